"""The package keeps the house rules; stops code that reaches up a floor or drags a heavy library in.

Each rule is also shown to fail on a small planted package that breaks it.
"""

from collections import Counter
from pathlib import Path

import pytest
from architecture import PACKAGE, breaches, read_modules

PROJECT = Path(__file__).parent.parent


def test_the_package_keeps_the_rules() -> None:
    assert breaches(PROJECT) == []


def test_the_rules_see_the_package() -> None:
    """An empty list of breaches would also come from an empty list of modules."""
    modules = read_modules(PROJECT)
    assert {"", "errors", "storage", "formats.wds", "sources.files"} <= modules.keys()
    assert "shardtools.storage.Storage" in {imported.name for imported in modules["build.attempts"].imports}


def test_every_module_of_the_tests_has_a_name_of_its_own() -> None:
    """Of two with one name Python knows the one that was asked for first, whichever folder it lies in."""
    counts = Counter(path.name for path in (PROJECT / "tests").rglob("*.py") if path.name != "conftest.py")
    assert [name for name, count in counts.items() if count > 1] == []


def plant(root: Path, files: dict[str, str]) -> Path:
    """A small package that keeps every rule, with ``files`` added."""
    sound = {
        "__init__": "",
        "errors": "",
        "units": "from shardtools.errors import UsageError\n",
        "sample": "",
        "storage/__init__": "import os\n",
        "storage/local": "from shardtools.errors import StorageError\n",
        "formats/__init__": "from shardtools.storage import ObjectWriter\n",
        "formats/_tar": "from shardtools.formats import Chunk\n",
        "formats/wds": "from shardtools import sample\nfrom shardtools.formats import Chunk, _tar\n",
        "sources/__init__": "from shardtools.formats import ShardFormat\n",
        "engines/__init__": "import subprocess\n",
        "build/__init__": "",
        "build/write": "from shardtools.build.receipts import Receipt\nfrom shardtools.formats.wds import Wds\n",
        "build/receipts": "import numpy\n",
        "cli/__init__": "import os\nimport click\n\nCOLUMNS = os.environ.get('COLUMNS')\n",
        "cli/pack": "from shardtools.build import write\n",
        "__main__": "from shardtools.cli import main\n",
    }
    for name, text in (sound | files).items():
        path = root / PACKAGE / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return root


def test_a_package_that_keeps_the_rules_has_no_breaches(tmp_path: Path) -> None:
    assert breaches(plant(tmp_path, {})) == []


BREACHES = {
    "higher floor": (
        {"formats/wds": "from shardtools import sample\nfrom shardtools.build.receipts import Receipt\n"},
        ["shardtools/formats/wds.py:2: imports shardtools.build.receipts, which is on a higher floor"],
    ),
    "higher floor, lazily": (
        {"sample": "def read():\n    import shardtools.storage.local\n"},
        ["shardtools/sample.py:2: imports shardtools.storage.local, which is on a higher floor"],
    ),
    "higher floor, for types alone": (
        {"sample": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from shardtools.storage import Storage\n"},
        ["shardtools/sample.py:3: imports shardtools.storage, which is on a higher floor"],
    ),
    "higher floor, relatively": (
        {"formats/wds": "from ..sources import Source\n"},
        ["shardtools/formats/wds.py:1: imports shardtools.sources, which is on a higher floor"],
    ),
    "same floor": (
        {"sources/files": "from shardtools.engines import Engine\n"},
        ["shardtools/sources/files.py:1: imports shardtools.engines, which is another package on the same floor"],
    ),
    "no floor": ({"misc": ""}, ["shardtools/misc.py:1: misc has no floor; give it one"]),
    "from the package itself": (
        {"__init__": "from shardtools.errors import ShardtoolsError\n"},
        ["shardtools/__init__.py:1: imports shardtools.errors, which every import of the package would then load"],
    ),
    "private part": (
        {"build/write": "from shardtools.formats._tar import header\n"},
        ["shardtools/build/write.py:1: imports shardtools.formats._tar, which is a private part of another package"],
    ),
    "plug-in of the same package": (
        {"formats/mds": "from shardtools.formats import wds\n"},
        ["shardtools/formats/mds.py:1: imports shardtools.formats.wds, which is a plug-in of the same package"],
    ),
    "a package that knows its plug-ins": (
        {"storage/__init__": "from shardtools.storage.local import Local\n"},
        ["shardtools/storage/__init__.py:1: imports shardtools.storage.local, which is a plug-in of the same package"],
    ),
    "cycle": (
        {"build/receipts": "def late():\n    from shardtools.build.write import BuildTask\n"},
        ["shardtools/build/receipts.py:1: is in a cycle of imports: build.receipts -> build.write -> build.receipts"],
    ),
    "heavy import": (
        {"formats/wds": "import torch.utils.data\nfrom PIL import Image\nimport click\n"},
        [
            "shardtools/formats/wds.py:1: imports torch, which is at home in loaders, verify, bench only",
            "shardtools/formats/wds.py:2: imports PIL, which is at home in transforms.images, loaders, verify, bench, explore._images only",
            "shardtools/formats/wds.py:3: imports click, which is at home in cli only",
        ],
    ),
    "heavy import beside its home": (
        {"sources/parquet": "import pyarrow\n", "sources/jsonl": "def late():\n    import pyarrow.json\n"},
        ["shardtools/sources/jsonl.py:2: imports pyarrow, which is at home in sources.parquet, sources.csv only"],
    ),
    "environment": (
        {
            "storage/local": "import os\n\nTOKEN = os.environ['TOKEN']\nHOME = os.getenv('HOME')\n",
            "formats/wds": "from os import environ\n",
            "engines/ray": "import subprocess, os\nsubprocess.run([], env={'A': os.environ['A']})\n",
        },
        [
            "shardtools/engines/ray.py:2: reads the environment, which only cli may",
            "shardtools/formats/wds.py:1: reads the environment, which only cli may",
            "shardtools/storage/local.py:3: reads the environment, which only cli may",
            "shardtools/storage/local.py:4: reads the environment, which only cli may",
        ],
    ),
    "long file": (
        {"build/write": "pass\n" * 251},
        ["shardtools/build/write.py:251: has 251 lines, more than 250; split it by meaning"],
    ),
    "long function": (
        {"build/write": "class A:\n    def long(self):\n" + "        pass\n" * 40},
        ["shardtools/build/write.py:2: A.long has 41 lines, more than 40; split it by meaning"],
    ),
    "many parameters": (
        {"build/write": "if True:\n    def f(a, b, /, c, d, e, *, f, g=1):\n        pass\n"},
        ["shardtools/build/write.py:2: f has 7 parameters, more than 6; a frozen dataclass should own them"],
    ),
    "keywords passed through": (
        {"build/write": "class A:\n    def __init__(self, **kwargs):\n        pass\n"},
        ["shardtools/build/write.py:2: A.__init__ takes **kwargs, which hides what it can be called with"],
    ),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_each_kind_of_breach_is_reported(tmp_path: Path, breach: str) -> None:
    files, expected = BREACHES[breach]
    assert breaches(plant(tmp_path, files)) == expected


ALLOWED = {
    "a file of 250 lines": {"build/write": "pass\n" * 250},
    "a function of 40 lines": {"build/write": "def long():\n" + "    pass\n" * 39},
    "six parameters beside self": {"build/write": "class A:\n    def f(self, a, b, c, d, e, *, f):\n        pass\n"},
    "keywords in private": {"build/write": "def _f(**kwargs):\n    pass\n", "cli/_help": "def f(**kwargs):\n    pass\n"},
    "an import by its name": {"storage/__init__": "import importlib\nlocal = importlib.import_module('shardtools.storage.local')\n"},
    "a variable set for children": {"engines/ray": "import os\nos.environ['RAY_X'] = '1'\n"},
    "an environment handed to a child": {
        "engines/ray": "import os, subprocess as sp\nsp.run([], env={**os.environ, 'A': '1'})\nsp.run([], env=os.environ.copy())\n"
    },
    "heavy imports at home": {"verify/__init__": "import torch, webdataset, streaming\n", "engines/ray": "import ray\n"},
}


@pytest.mark.parametrize("case", ALLOWED)
def test_what_is_allowed_is_not_reported(tmp_path: Path, case: str) -> None:
    assert breaches(plant(tmp_path, ALLOWED[case])) == []

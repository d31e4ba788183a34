"""``--where`` and ``--embed`` on the command line; stops a slip from ending in a traceback, and counts that nobody can know."""

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def folder(tree: Any) -> Path:
    rows = [{"image": f"img/{i}.jpg", "n": i, "lang": ("en", "de")[i % 2]} for i in range(10)]
    files = {row["image"]: b"\xff\xd8\xff" + bytes([row["n"]]) for row in rows}
    return Path(tree({"d.jsonl": b"".join(json.dumps(row).encode() + b"\n" for row in rows), **files}))


def test_what_was_left_out_is_shown_and_the_recipe_is_plain(pack_here: Any, folder: Path) -> None:
    done = pack_here(folder, "d.jsonl", "out", "--to", "wds", "--where", "lang = 'en' and n>1", "--embed", "image", "--json")
    assert done.returncode == 0, done.stderr
    assert "note: media: image=jpg" in done.stderr
    result = json.loads(done.stdout)
    assert (result["samples"], result["ledger"]["filters"]) == (4, {"where": 6})
    manifest = json.loads((folder / "out/shardtools.manifest").read_text())
    assert manifest["recipe"]["steps"] == [
        {"name": "select", "where": 'lang == "en" and n > 1'},
        {
            "name": "embed",
            "media": [{"field": "image", "extensions": ["jpg"], "count": 0, "optional": False}],
            "members": True,
        },
    ]
    table = pack_here(folder, "d.jsonl", "out", "--to", "wds", "--where", "n > 1 and (lang = 'en')", "--embed", "image")
    assert table.returncode == 2, "another expression is another recipe"
    again = pack_here(
        folder, "d.jsonl", "out", "--to", "wds", "--where", '(lang="en") AND n>1', "--embed", "image=jpg", "--media-root", "."
    )
    assert again.returncode == 0
    assert "already complete" in again.stderr
    assert "left out by --where" in again.stdout


def test_a_plan_says_that_only_reading_tells(pack_here: Any, folder: Path) -> None:
    done = pack_here(folder, "img", "out", "--to", "wds", "--where", "path startswith '3'", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "samples known when they are read" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--where", "n >"], "expected --where with a value (text in quotes, a number, true or false) at character 4, got the end: 'n >'"),
        (["--where", "m > 1"], "expected a field 'm' in the first records, got image, key, lang, n"),
        (["--where", "lang > 1"], "bad sample: d.jsonl, line 1 (byte 0): expected a number in the field 'lang'"),
        (["--where", "n > 9"], "expected at least one sample to write, got none of the 10 samples read: --where left out 10; nothing was"),
        (["--where", ""], "the name of a field"),
        (["--media-root", "."], "expected --embed FIELD with --media-root"),
        (["--embed", "image", "--media-root", "nowhere"], "expected --media-root with a folder that exists, got nowhere"),
        (["--embed", "image", "--media-root", "img"], "got none of them there, 'img/0.jpg' for one"),
        (["--embed", "lang=jpg", "--max-bad", "100%"], "got none of them there, 'en' for one"),
        (["--embed", "image=png"], "expected a file of the kinds png in the field 'image', as in the first records, got 'img/0.jpg'"),
        (["--embed", "image", "--media-root", "http://x/y"], "no other address is served"),
    ],
)
def test_a_slip_is_one_sentence(words: list[str], sentence: str, pack_here: Any, folder: Path) -> None:
    done = pack_here(folder, "d.jsonl", "out", "--to", "wds", *words)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode in (2, 3)
    assert len(errors) == 1, done.stderr
    assert sentence in errors[0]
    assert "Traceback" not in done.stderr
    assert not list(folder.glob("out/*.tar"))

"""``shardtools --help`` loads no heavy library; stops an import at the top of a module from making every command slow."""

import subprocess
import sys

import pytest

HEAVY = {"PIL", "boto3", "gigatoken", "numpy", "pyarrow", "ray", "streaming", "tokenizers", "torch", "webdataset"}

PROBE = """
import atexit, sys
atexit.register(lambda: print("\\n".join(sys.modules), file=sys.stderr))
sys.argv = ["shardtools", "--help"]
"""


def run_probe(statement: str) -> tuple[str, set[str]]:
    """Run a statement in a fresh interpreter; what it printed, and every module it had loaded at its end."""
    finished = subprocess.run([sys.executable, "-c", PROBE + statement], capture_output=True, text=True, timeout=60)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout, set(finished.stderr.split())


def test_help_loads_no_heavy_library() -> None:
    printed, loaded = run_probe("from shardtools.cli import main; main()")
    assert "pack" in printed
    assert "click" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize("name", ["numpy", "PIL"])
def test_the_probe_sees_what_is_loaded(name: str) -> None:
    """The test above would pass for ever if the list came out empty."""
    _, loaded = run_probe(f"import {name}")
    assert name in loaded

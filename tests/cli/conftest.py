"""The command line in this very process."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shardtools import cli


@pytest.fixture
def pack_here(monkeypatch, capfd) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """``pack``: the same entry point, without the time a new process takes to begin."""

    def call(folder: Path, *arguments: str | bytes, stdin: bytes = b"") -> "subprocess.CompletedProcess[str]":
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["shardtools", "pack", *map(os.fsdecode, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            cli.main()
        shown = capfd.readouterr()
        assert isinstance(caught.value.code, int)
        return subprocess.CompletedProcess(arguments, caught.value.code, shown.out, shown.err)

    return call

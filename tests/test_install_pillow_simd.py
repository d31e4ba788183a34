"""A script that takes Pillow away before it has another, that builds twice, or that fails without a word on what is missing.

The Python it is given is a stand-in that writes down what it is asked to do.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "install_pillow_simd.sh"
STAND_IN = """#!/usr/bin/env bash
echo "$*" >> {log}
case "$*" in
  *sys.base_prefix*) exit {outside} ;;
  *PIL.__version__*) cat {version} ;;
  *sysconfig*) echo {include} ;;
  *" wheel "*) {build} ;;
  *" uninstall "*) : > {version} ;;
  *" install "*) echo 12.1.1.post0 > {version} ;;
esac
"""
Run = Callable[..., tuple[int, str, str, list[str]]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Exit code, both outputs and what Python was asked for, of a run where these versions and headers are there."""

    def call(version: str = "13.0.0", outside: bool = False, headers: bool = True, builds: bool = True) -> tuple[int, str, str, list[str]]:
        (tmp_path / "version").write_text(f"{version}\n" if version else "")
        (tmp_path / "log").write_text("")
        compiler = tmp_path / "cc"
        compiler.write_text(f"#!/bin/sh\ncat > /dev/null\nexit {int(not headers)}\n")
        build = 'touch "${*: -2:1}/pillow_simd.whl"' if builds else "exit 1"
        python = tmp_path / "python"
        places = {name: tmp_path / name for name in ("log", "version", "include")}
        python.write_text(STAND_IN.format(outside=int(outside), build=build, **places))
        for path in (compiler, python):
            path.chmod(0o755)
        environment = {**os.environ, "CC": str(compiler)}
        done = subprocess.run([SCRIPT, python], capture_output=True, text=True, env=environment, check=False)
        asked = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("-m pip")]
        return done.returncode, done.stdout, done.stderr, asked

    return call


def test_pillow_goes_when_its_successor_is_built(run: Run) -> None:
    code, said, _, asked = run()
    assert code == 0 and said == "pillow-simd 12.1.1.post0 is in the place of Pillow 13.0.0\n"
    assert [next(word for word in ("wheel", "uninstall", "install") if f" {word} " in line) for line in asked] == [
        "wheel",
        "uninstall",
        "install",
    ]
    code, said, _, asked = run("")
    assert code == 0 and said == "pillow-simd 12.1.1.post0 is in the place of nothing\n" and len(asked) == 2


def test_a_second_run_does_nothing(run: Run) -> None:
    code, said, _, asked = run("12.1.1.post0")
    assert (code, said, asked) == (0, "pillow-simd 12.1.1.post0 is there already\n", [])


def test_a_build_that_fails_leaves_pillow(run: Run) -> None:
    code, _, errors, asked = run(builds=False)
    assert code == 1 and errors.splitlines()[-1] == "pillow-simd could not be built; Pillow 13.0.0 is still there"
    assert not any(" uninstall " in line for line in asked)


def test_missing_headers_are_named_before_anything_is_done(run: Run) -> None:
    code, _, errors, asked = run(headers=False)
    assert code == 1 and errors.startswith("expected the C header jpeglib.h, got none; install the headers of libjpeg") and asked == []


def test_a_python_of_the_system_is_left_alone(run: Run) -> None:
    code, _, errors, asked = run(outside=True)
    assert code == 1 and errors.startswith("expected the Python of a virtual environment, got ") and asked == []

"""Every command ends with its own code and one sentence, wherever its output goes and whenever it is interrupted.

Stops findings that a script never hears of because `head` closed the pipe, tracebacks on a full device, and a Ctrl-C that
an import turns into somebody else's traceback.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import shardtools

COMMAND = [sys.executable, "-m", "shardtools"]
FULL = Path("/dev/full")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(shardtools.__file__).parents[1])}


def run(folder: Path, *arguments: str, stdout: int | None = None) -> "subprocess.CompletedProcess[str]":
    output = subprocess.PIPE if stdout is None else stdout
    return subprocess.run([*COMMAND, *arguments], cwd=folder, env=environment(), stdout=output, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """``docs.jsonl``, a sound dataset ``sound`` of it, and ``damaged``, of which a shard is cut."""
    place: Path = tmp_path_factory.mktemp("outcomes")
    (place / "docs.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(20)))
    for name in ("sound", "damaged"):
        assert run(place, "pack", "docs.jsonl", name, "--to", "wds", "--engine", "serial").returncode == 0
    shard = place / "damaged" / "train-000000.tar"
    shard.write_bytes(shard.read_bytes()[:1000])
    return place


# Pipes and devices.


@pytest.mark.parametrize(("dataset", "code"), [("sound", 0), ("damaged", 1)])
@pytest.mark.parametrize("extra", [[], ["--json"]], ids=["table", "json"])
def test_the_code_of_verify_does_not_depend_on_who_reads_its_output(place, dataset, code, extra):
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = run(place, "verify", dataset, *extra, stdout=write_end)
    os.close(write_end)
    assert done.returncode == code
    assert "Traceback" not in done.stderr and "error" not in done.stderr


COMMANDS = {
    "pack": ["pack", "docs.jsonl", "sound", "--to", "wds", "--engine", "serial"],
    "plan": ["pack", "docs.jsonl", "sound", "--to", "wds", "--dry-run"],
    "verify": ["verify", "damaged"],
    "verify as JSON": ["verify", "damaged", "--json"],
    "inspect": ["inspect", "sound", "--head", "2"],
    "extract": ["extract", "sound", "files"],
    "help": ["pack", "--help"],
    "version": ["--version"],
}


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("name", COMMANDS)
def test_output_that_cannot_be_written_is_one_sentence_and_code_3(place, name):
    with FULL.open("wb") as full:
        done = run(place, *COMMANDS[name], stdout=full.fileno())
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith("error: could not write the result to standard output: No space left on device")
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


@pytest.mark.parametrize("closed", [1, 2])
def test_a_closed_stream_stops_nothing(place, tmp_path, closed):
    command = ["bash", "-c", f'exec "$@" {closed}>&-', "bash", *COMMAND, "pack", "docs.jsonl", str(tmp_path / "out"), "--to", "wds"]
    done = subprocess.run(command, cwd=place, env=environment(), capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert (tmp_path / "out" / "shardtools.manifest").exists()


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_what_cannot_be_said_stops_nothing(place, tmp_path):
    with FULL.open("wb") as full:
        command = [*COMMAND, "pack", "docs.jsonl", str(tmp_path / "out"), "--to", "mds"]
        done = subprocess.run(command, cwd=place, env=environment(), stdout=subprocess.PIPE, stderr=full)
    assert done.returncode == 0 and (tmp_path / "out" / "shardtools.manifest").exists()


def test_names_with_control_characters_do_not_steer_the_terminal(tmp_path):
    (tmp_path / "a\x1b[31m\n.txt").write_text("x")
    done = run(tmp_path, "pack", ".", "/nowhere/out", "--to", "wds", "--dry-run", "--fields", "txt=txt", "--engine", "serial")
    (tmp_path / "b\x1b[31m\n").mkdir()
    (tmp_path / "b\x1b[31m\n" / "a.jsonl").write_text("{}\n")
    mixed = run(tmp_path, "pack", ".", "/nowhere/out", "--to", "wds")
    assert mixed.returncode == 2 and len(mixed.stderr.splitlines()) == 1
    assert "\x1b" not in done.stdout + done.stderr + mixed.stderr and "\\x1b[31m\\n" in mixed.stderr


# Folders that are gone.


def test_a_current_folder_that_was_removed_is_one_sentence(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd "$1" && rmdir "$1" && shift && echo a.txt | "$@"'
    command = ["bash", "-c", script, "bash", str(gone), *COMMAND, "pack", "-", str(tmp_path / "out"), "--to", "wds"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: expected to be in a folder that exists, got one that was removed; change to another and run again"
    ]


# Interrupts.

INTERRUPTED_IMPORT = """
import os, signal, sys

class Cleaner:
    def __del__(self):
        # Python prints an exception raised in here, and goes on.
        os.kill(os.getpid(), signal.SIGINT)

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            Cleaner()

sys.meta_path.insert(0, Interrupt())
sys.argv = ["shardtools", "verify", "nowhere"]
from shardtools.cli import main
main()
"""


@pytest.mark.parametrize("name", ["click", "shardtools.cli._group", "shardtools.cli.verify", "shardtools.verify.findings"])
def test_an_interrupt_while_something_is_imported_is_one_line(tmp_path, name):
    command = [sys.executable, "-c", INTERRUPTED_IMPORT.format(name=name)]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 130
    assert done.stderr.splitlines() == [
        "error: interrupted; give the same command again: pack and merge go on where they stopped, others begin anew"
    ]


def test_a_program_in_the_background_goes_on_ignoring_interrupts(tmp_path):
    script = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)" + INTERRUPTED_IMPORT.format(name="click")
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 2 and "nowhere" in done.stderr


BEGUN = "import sys; from shardtools.cli import main; print('begun', flush=True); main()"


@pytest.mark.slow
def test_an_interrupt_at_any_of_the_first_moments_is_one_line(place, tmp_path):
    for delay_ms in range(0, 301, 20):
        command = [sys.executable, "-c", BEGUN, "pack", "docs.jsonl", str(tmp_path / "out"), "--to", "wds", "--workers", "2", "--overwrite"]
        process = subprocess.Popen(
            command, cwd=place, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        # Before the package is reached, Python itself answers.
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        time.sleep(delay_ms / 1000)
        os.killpg(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
        lines = [line for line in stderr.splitlines() if not line.startswith("note: ")]
        if "samples" in stdout:
            # All was done, and Python about to end.
            assert lines == [], (delay_ms, stderr)
        else:
            assert (process.returncode, len(lines), lines[-1][:18]) == (130, 1, "error: interrupted"), (delay_ms, stderr)


# What a run says of its input.


def test_skipped_files_links_and_escaped_keys_are_in_the_summary(tmp_path):
    source = tmp_path / "src"
    (source / "__pycache__").mkdir(parents=True)
    for name in (".hidden", "._a.txt", "Thumbs.db", "a b.txt", "c d.txt", "e.txt"):
        (source / name).write_text("x")
    (source / "link.txt").symlink_to("e.txt")
    done = run(tmp_path, "pack", "src", "out", "--to", "wds", "--engine", "serial")
    rows = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    assert ["skipped", "4"] in rows and ["AppleDouble", "1"] in rows and ["Thumbs.db", "1"] in rows and ["hidden", "1"] in rows
    told = [line.removeprefix("note: ") for line in done.stderr.splitlines() if line.startswith("note: ")]
    assert "note" not in {name for name, _ in rows}
    assert told == [
        "2 keys escaped, since not every reader takes the name as it is: 'a b' is a=20b, 'c d' is c=20d",
        "followed 1 symbolic link",
    ]
    result = json.loads(run(tmp_path, "pack", "src", "out", "--to", "wds", "--engine", "serial", "--json").stdout)
    assert result["skipped"] == {"AppleDouble": 1, "Thumbs.db": 1, "__pycache__": 1, "hidden": 1}
    assert result["notes"] == told


INTERRUPTED_FINALIZER = """
import signal, sys
from shardtools.cli import _group, main

class Cleaner:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def run():
    Cleaner()
    print("went on")

_group.run = run
main()
"""


def test_an_interrupt_in_a_finalizer_is_not_ignored() -> None:
    """Python prints exceptions of finalizers and goes on: the run would end as if nobody had asked it to stop."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_FINALIZER], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.startswith("error: interrupted")

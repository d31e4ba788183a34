"""Verify under watch: what it finds, and that it touches nothing, runs nothing, and takes little."""

import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import shardtools
from shardtools.verify import Verdict, VerifyOptions, verify

CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")
"""What no line of output may hold; a newline ends the line."""


def snapshot(root: Path) -> dict[str, Any]:
    """Everything below a folder, links unfollowed: kind, length, time of change, and the bytes of files."""
    found: dict[str, Any] = {}
    for folder, folders, names in os.walk(root):
        for name in [*folders, *names]:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            data = Path(path).read_bytes() if os.path.isfile(path) and not os.path.islink(path) and status.st_size < 1 << 20 else b""
            found[path] = (status.st_mode, status.st_size, status.st_mtime_ns, hashlib.sha256(data).hexdigest())
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the hostile dataset lies; what lies beside it is outside."""
    (tmp_path / "data").mkdir()
    (tmp_path / "secret.mds").write_bytes(b"outside")
    return tmp_path / "data"


@pytest.fixture
def untouched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Call it once the dataset is made: at the end of the test nothing may have changed inside it or beside it."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    before: list[dict[str, Any]] = []
    yield lambda: before.append(snapshot(tmp_path))
    if before:
        after = snapshot(tmp_path)
        assert os.listdir(scratch) == []
        del before[0][str(scratch)], after[str(scratch)]  # its own time changes with the temporary files in it
        assert after == before[0]


@pytest.fixture
def verdict(folder: Path, untouched: Callable[[], None]) -> Callable[[], Verdict]:
    """The verdict in this process, values decoded too; exceptions are failures, and so is anything that hangs."""

    def call() -> Verdict:
        untouched()
        with little_memory():
            given = verify(str(folder), VerifyOptions(workers=1, deep=True))
        json.dumps(given.as_json()).encode()
        for finding in given.findings:
            assert len(str(finding)) < 2000, str(finding)[:300]
        return given

    return call


@contextmanager
def little_memory() -> Iterator[None]:
    """A GiB more than the process has: what reads without end fails, and does not take the machine with it."""
    status = Path("/proc/self/status")
    if not status.exists():
        yield
        return
    used = int(status.read_text().partition("VmSize:")[2].split()[0]) << 10
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


LIMITED = """
import re, resource, sys
most_bytes, peak = int(sys.argv.pop(1)) << 20, sys.argv.pop(1)
resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))
from shardtools.cli import main
try:
    main()
finally:
    with open("/proc/self/status") as status, open(peak, "w") as file:
        file.write(re.search(r"VmHWM:\\s+(\\d+)", status.read())[1])
"""
"""The command, with a limit to the files it writes and to its memory; says what its memory came to."""


class Outcome(NamedTuple):
    """How a command ended."""

    code: int
    stdout: str
    stderr: str
    peak_mib: int


@pytest.fixture
def command(folder: Path, tmp_path: Path) -> Callable[..., Outcome]:
    """``command("verify")`` on the dataset in a process of its own, which may write no file above ``most_file_mib``."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()

    def run(*arguments: str, most_file_mib: int = 300) -> Outcome:
        environment = {**os.environ, "PYTHONPATH": str(Path(shardtools.__file__).parents[1]), "TMPDIR": str(temporary)}
        line = [sys.executable, "-c", LIMITED, str(most_file_mib), str(tmp_path / "peak"), *arguments, str(folder)]
        with (tmp_path / "stdout").open("w+b") as out, (tmp_path / "stderr").open("w+b") as err:
            done = subprocess.run(line, env=environment, stdout=out, stderr=err, cwd=temporary, timeout=60, check=False)
            out.seek(0)
            err.seek(0)
            outcome = Outcome(done.returncode, out.read().decode(), err.read().decode(), int((tmp_path / "peak").read_text()) // 1024)
        assert os.listdir(temporary) == []
        assert "Traceback" not in outcome.stderr, outcome.stderr
        for text in (outcome.stdout, outcome.stderr):
            assert not CONTROL.search(text), repr(text[:500])
        return outcome

    return run


@pytest.fixture
def tar() -> Callable[..., bytes]:
    """A tar of (name, bytes) pairs and of headers made elsewhere."""

    def make(members: Sequence[tuple[str | bytes, bytes] | tarfile.TarInfo], tar_format: int = tarfile.GNU_FORMAT) -> bytes:
        buffer = BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tar_format, errors="surrogateescape") as archive:
            for member in members:
                if isinstance(member, tarfile.TarInfo):
                    archive.addfile(member)
                    continue
                info = tarfile.TarInfo(os.fsdecode(member[0]))
                info.size = len(member[1])
                archive.addfile(info, BytesIO(member[1]))
        return buffer.getvalue()

    return make


@pytest.fixture
def header() -> Callable[..., bytes]:
    """One ustar header, its checksum right: ``header(b"a.bin", size=b"77777777777\\0", kind=b"0")``."""

    def make(name: bytes, size: bytes = b"00000000000\0", kind: bytes = b"0", link: bytes = b"") -> bytes:
        block = name.ljust(100, b"\0") + b"0000444\0" + b"0000000\0" * 2 + size + b"0" * 11 + b"\0" + b" " * 8
        block += kind + link.ljust(100, b"\0") + b"ustar\x0000" + bytes(247)
        assert len(block) == 512
        return block[:148] + b"%06o\0 " % sum(block) + block[156:]

    return make


@pytest.fixture
def mds_entry() -> Callable[..., dict[str, Any]]:
    """An entry of ``index.json`` with the right keys: ``mds_entry({"x": "bytes"}, raw_bytes=100)``."""

    def make(columns: Mapping[str, str], raw_bytes: int = 0, samples: int = 0, **changes: Any) -> dict[str, Any]:
        fixed = {"int": 8, "uint8": 1}
        entry: dict[str, Any] = {
            "column_encodings": [columns[name] for name in sorted(columns)],
            "column_names": sorted(columns),
            "column_sizes": [fixed.get(columns[name]) for name in sorted(columns)],
            "compression": None,
            "format": "mds",
            "hashes": [],
            "raw_data": {"basename": "shard.00000.mds", "bytes": raw_bytes, "hashes": {}},
            "samples": samples,
            "size_limit": None,
            "version": 2,
            "zip_data": None,
        }
        return {**entry, **changes}

    return make

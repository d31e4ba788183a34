"""Stops memory that grows with the input, or holds a large sample more often than parsing it takes."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

MIB = 1 << 20
PEAK = """
import re, sys
from shardtools import plugins
from shardtools.build import run
from shardtools.build.order import Order
from shardtools.build.run import RunOptions
from shardtools.engines.serial import Serial
from shardtools.plan import ShardLimit
from shardtools.sources.files import Files
from shardtools.sources.jsonl import Jsonl
from shardtools.units import Budget

source, out, format_name, kind = sys.argv[1:]
made = Files(group="file") if kind == "files" else Jsonl(max_line_bytes=int(kind))
order = Order(made, plugins.load("formats", format_name)(), ShardLimit(1 << 30), None, {})
result = run.build([source], out, order, RunOptions(Serial(), Budget.parse("100%"), False), run.Listener())
print(result.manifest.ledger.num_written, re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""
pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peaks are read from /proc")


@pytest.fixture
def peak(tmp_path) -> Callable[..., tuple[int, int]]:
    """Samples written, and the most MiB that planning and building in one process took."""

    def measure(source: Path, format_name: str, kind: str) -> tuple[int, int]:
        command = [sys.executable, "-c", PEAK, str(source), str(tmp_path / "out"), format_name, kind]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        num_written, peak_kib = map(int, done.stdout.split())
        return num_written, peak_kib // 1024

    return measure


@pytest.mark.slow
@pytest.mark.parametrize("format_name", ["wds", "mds"])
def test_a_long_line_is_held_as_often_as_parsing_it_takes(tmp_path, peak, format_name):
    """Three times: the line, the parser's copy, and its text; a fourth copy would not pass."""
    (tmp_path / "src").mkdir()
    with open(tmp_path / "src" / "a.jsonl", "wb") as file:
        file.writelines([b'{"t": "a"}\n{"t": "', b"0123456789abcdef" * (240 * MIB // 16), b'"}\n{"t": "z"}\n'])
    num_written, peak_mib = peak(tmp_path / "src", format_name, str(1 << 29))
    assert num_written == 3
    assert peak_mib < 3 * 240 + 100


@pytest.mark.slow
@pytest.mark.parametrize("format_name", ["wds", "mds"])
def test_a_large_file_is_held_once(tmp_path, peak, format_name):
    (tmp_path / "src").mkdir()
    with open(tmp_path / "src" / "a.bin", "wb") as file:
        for _ in range(300):
            file.write(os.urandom(MIB))
    num_written, peak_mib = peak(tmp_path / "src", format_name, "files")
    assert num_written == 1
    assert peak_mib < 300 + 100


@pytest.mark.slow
def test_planning_looks_at_a_bounded_part_of_large_records(tmp_path, peak):
    (tmp_path / "src").mkdir()
    with open(tmp_path / "src" / "a.jsonl", "wb") as file:
        for i in range(1000):
            file.write(b'{"id": %d, "t": "%s"}\n' % (i, b"x" * 300_000))
    num_written, peak_mib = peak(tmp_path / "src", "mds", str(1 << 29))
    assert num_written == 1000
    assert peak_mib < 200


@pytest.mark.slow
@pytest.mark.parametrize("filler", [b"x", b"\n"], ids=["one line", "only newlines"])
def test_a_small_stream_that_holds_much_text_takes_little_memory(tmp_path, peak, filler):
    (tmp_path / "src").mkdir()
    stream = zstandard.ZstdCompressor(1).compressobj()
    with open(tmp_path / "src" / "a.jsonl.zst", "wb") as file:
        file.write(stream.compress(b'{"a": 1}\n'))
        for _ in range(300):
            file.write(stream.compress(filler * MIB))
        file.write(stream.flush())
    assert (tmp_path / "src" / "a.jsonl.zst").stat().st_size < 100_000
    num_written, peak_mib = peak(tmp_path / "src", "wds", str(MIB))
    assert num_written == 1
    assert peak_mib < 250

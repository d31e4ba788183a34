"""Stops the memory of a shuffle from growing with the dataset, with the number of its samples, or with one bucket."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zstandard

MIB = 1 << 20
BOUND_MIB = 600
"""Of all processes together with two workers, which take 200 before they have done anything."""
MANY_BOUND_MIB = 1000
"""Where samples are of a few bytes, so that what is kept of each until keys are known to be unique, 16 bytes, counts for more."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="peaks are read from /proc"),
]


def said(path: Path) -> str:
    """Nothing where the process or the thread has ended meanwhile."""
    try:
        return path.read_text()
    except OSError:
        return ""


def processes_below(pid: int) -> list[int]:
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        for path in Path(f"/proc/{found[-1]}/task").glob("*/children"):
            waiting += map(int, said(path).split())
    return found


def memory_mib(pid: int) -> int:
    """Of a process and all below it, pages that they share counted once."""
    total = 0
    for one in processes_below(pid):
        lines = said(Path(f"/proc/{one}/smaps_rollup")).splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total // 1024


def peak_mib(source: Path, destination: Path, *words: str) -> int:
    command = [sys.executable, "-m", "shardtools", "pack", str(source), str(destination), "--to", "mds", "--compression", "zstd:1"]
    process = subprocess.Popen([*command, "--workers", "2", *words], env={**os.environ}, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, memory_mib(process.pid))
        time.sleep(0.05)
    assert process.returncode == 0 and peak > 100, "two workers and the one that started them"
    print(f"{peak} MiB")
    return peak


def write_text(folder: Path, num_bytes: int) -> Path:
    """Records of up to 16 kB in compressed files, so that only what is packed is large."""
    numbers = random.Random(5)
    text = " ".join("".join(numbers.choices("abcdefgh", k=numbers.randint(2, 9))) for _ in range(200_000))
    folder.mkdir()
    count = 0
    for i in range(20):
        size = 0
        with open(folder / f"{i:02d}.jsonl.zst", "wb") as file, zstandard.ZstdCompressor(1).stream_writer(file) as stream:
            while size < num_bytes // 20:
                begin = numbers.randrange(len(text) - 16_000)
                size += stream.write(
                    b'{"id": "k%d", "text": "%s"}\n' % (count, text[begin : begin + numbers.randint(100, 16_000)].encode())
                )
                count += 1
    return folder


def test_a_dataset_of_many_times_the_bound(tmp_path):
    source = write_text(tmp_path / "src", 10 * BOUND_MIB * MIB)
    assert peak_mib(source, tmp_path / "out", "--key", "id", "--shuffle", "--seed", "1") < BOUND_MIB


def test_very_many_samples_of_a_few_bytes(tmp_path):
    (tmp_path / "n.jsonl").write_bytes(b"".join(b'{"n": %d}\n' % i for i in range(4_000_000)))
    assert peak_mib(tmp_path / "n.jsonl", tmp_path / "out", "--shuffle", "--seed", "1") < MANY_BOUND_MIB


def test_dedup_of_very_many_samples(tmp_path):
    (tmp_path / "n.jsonl").write_bytes(b"".join(b'{"n": %d}\n' % (i // 2) for i in range(4_000_000)))
    assert peak_mib(tmp_path / "n.jsonl", tmp_path / "out", "--dedup", "content") < MANY_BOUND_MIB

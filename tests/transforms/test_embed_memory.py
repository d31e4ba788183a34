"""Memory while media are taken in; stops a batch of thousands of small records from holding all their media at once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MIB = 1 << 20
PEAK = """
import re, sys
sys.path[:0] = {path!r}
from step_orders import pack
pack({source!r}, {out!r}, {to!r}, embed="image")
# Not ru_maxrss, which begins with that of the process it was started from.
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10)
"""


def peak_bytes(source: Path, out: Path, to: str) -> int:
    """Of a process that packs the source and nothing else."""
    tests = [str(Path(__file__).parents[1])]
    program = PEAK.format(path=tests, source=str(source), out=str(out), to=to)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("to", ["wds", "mds"])
def test_memory_does_not_grow_with_what_records_point_at(to: str, tmp_path: Path) -> None:
    peaks = []
    for count in (20, 600):
        source = tmp_path / f"src{count}"
        source.mkdir()
        for i in range(count):
            (source / f"{i:04d}.jpg").write_bytes(b"\xff\xd8\xff" + i.to_bytes(2, "big") * (MIB // 4))
        (source / "d.jsonl").write_text("".join(json.dumps({"image": f"{i:04d}.jpg"}) + "\n" for i in range(count)))
        peaks.append(peak_bytes(source / "d.jsonl", tmp_path / f"out{count}", to))
    # 300 MiB of media beside 10 MiB.
    assert peaks[1] - peaks[0] < 60 * MIB, [peak // MIB for peak in peaks]

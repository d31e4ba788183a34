"""Stops workers that fetch the same memory from the system again for every sample, which made decoding a fifth slower."""

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra train")

GROWING_BUFFERS = """
import resource, sys
from torch.utils.data import DataLoader
from shardtools.loaders import open_dataset

def decode(sample):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    b"x" * (int(sample["json"][6:-1]) + 1 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

dataset = open_dataset(sys.argv[1], batch_size=1, decode=decode)
print(sum(int(faults) for faults in DataLoader(dataset, batch_size=None, num_workers=int(sys.argv[2]))))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc's allocator is set")
def test_a_worker_keeps_what_samples_gave_back(tmp_path: Path) -> None:
    """24 buffers, each a MiB longer: by default each is fetched page by page, kept ones only as far as the last was shorter."""
    (tmp_path / "a.jsonl").write_text("".join(f'{{"a": {i}}}\n' for i in range(24)))
    faults = []
    for workers in (0, 1):
        command = [sys.executable, "-c", GROWING_BUFFERS, str(tmp_path / "a.jsonl"), str(workers)]
        faults.append(int(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    assert faults[1] < 24 * 256 * 2
    assert faults[0] > 3 * faults[1]

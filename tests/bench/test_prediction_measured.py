"""Shared memory foreseen from one batch against what a loader takes; stops an estimate that is far off, and a bound that is exceeded.

Measured in a mount namespace of its own, whose ``/dev/shm`` nobody else uses, by a consumer that lets the queue fill, as a training
step slower than the loader does: a faster one finds fewer batches there.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shardtools.bench.prediction import Batch, Probe, predict
from shardtools.bench.spec import Settings

pytestmark = [pytest.mark.train, pytest.mark.skipif(sys.platform != "linux", reason="shared memory is measured in /dev/shm")]

MB = 1 << 20
ONE, MANY, OWN = "one", "many", "own"
"""One tensor a batch by torch's collate, which has it shared; 100 odd ones; one by a collate that makes it in private memory first."""
FAST = [(2, 2, MANY, 5), (3, 1, OWN, 8)]
CELLS = [(num_workers, prefetch, ONE, size) for num_workers in (1, 2, 3) for prefetch, size in ((1, 16), (2, 8), (4, 4))]
CELLS += [(num_workers, prefetch, MANY, 5) for num_workers in (1, 2, 3) for prefetch in (1, 2, 4)]
CELLS += [(2, 2, OWN, 16), (3, 4, OWN, 4)]

SCRIPT = """
import json, os, subprocess, sys, threading, time
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", "/dev/shm"], check=True)
import torch
from torch.utils.data import DataLoader, Dataset, default_collate
torch.set_num_threads(1)
from shardtools.bench.prediction import Batch

class Samples(Dataset):
    def __init__(self, kind, num_bytes):
        self.sizes = [50_001] * 100 if kind == "many" else [num_bytes]
    def __len__(self):
        return 1 << 20
    def __getitem__(self, i):
        time.sleep(0.05)  # as decoding takes time: the batch before is let go of meanwhile
        return [torch.ones(size, dtype=torch.uint8) for size in self.sizes]

def own(samples):
    return [torch.stack(tensors) for tensors in zip(*samples)]

def used():
    found = os.statvfs("/dev/shm")
    return (found.f_blocks - found.f_bfree) * found.f_frsize

def settled():
    before, since = used(), time.monotonic()
    while time.monotonic() - since < 0.4:
        time.sleep(0.005)
        if used() != before:
            before, since = used(), time.monotonic()

def measured(num_workers, prefetch, kind, size):
    loader = DataLoader(Samples(kind, size << 20), 1, num_workers=num_workers, prefetch_factor=prefetch,
                        collate_fn=own if kind == "own" else default_collate)
    peak, stop = [0], threading.Event()
    def watch():
        while not stop.wait(0.002):
            peak[0] = max(peak[0], used())
    watching = threading.Thread(target=watch)
    watching.start()
    for step, batch in enumerate(loader):
        settled()
        if step == 2:
            break
    stop.set()
    watching.join()
    found = Batch.of(batch, 1).as_json()
    del loader, batch
    return peak[0], found

for cell in json.loads(sys.argv[1]):
    while used():
        time.sleep(0.01)
    print(json.dumps([cell, *measured(*cell)]), flush=True)
"""


def measured(cells: list[tuple[int, int, str, int]]) -> list[tuple[list[Any], int, Batch]]:
    pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it", exc_type=ImportError)
    if os.getuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("a mount namespace of one's own needs root")
    command = ["unshare", "-m", sys.executable, "-c", SCRIPT, json.dumps(cells)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    assert done.returncode == 0, done.stderr
    return [(cell, peak, Batch(**batch)) for cell, peak, batch in map(json.loads, done.stdout.splitlines())]


def check(cells: list[tuple[int, int, str, int]]) -> None:
    found = measured(cells)
    assert len(found) == len(cells)
    for (num_workers, prefetch, kind, size), peak, batch in found:
        assert batch.tensors == (100 if kind == MANY else 1)
        assert batch.bytes == (5_000_100 if kind == MANY else size * MB)
        foreseen = predict(Probe(batch, 0, 0, 0), Settings(num_workers, prefetch), "blocking")
        what = f"W={num_workers}, P={prefetch}, {kind}: {foreseen.shm_bytes:,} foreseen, {peak:,} measured, b={batch.shm_bytes:,}"
        print(f"{what}, {foreseen.shm_bytes / peak:.3f}")
        assert 0.85 <= foreseen.shm_bytes / peak <= 1.25, what
        assert peak <= foreseen.shm_bound_bytes, what


def test_shared_memory_is_as_foreseen() -> None:
    check(FAST)


@pytest.mark.slow
def test_shared_memory_is_as_foreseen_in_every_cell() -> None:
    assert len(CELLS) >= 12
    check(CELLS)

"""Records real trials for the replays of the decision rule: `python tests/bench/recorded/record.py FILE NUM_WORKERS SECONDS SET...`.

Each trial is a fresh process that reads the same small JPEG files through a DataLoader; blocks of two trials, in pairs of opposite
order. Sides differ by nothing (A/A), or the second burns 0.3 of the CPU time that each of its samples took.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NUM_FILES, SIDE, NUM_BLOCKS, BATCH_SIZE = 2000, 256, 12, 32
SETS = {"decode_aa": ("decode", 0.0), "bytes_aa": ("bytes", 0.0), "decode_burn_0.3": ("decode", 0.3)}


def trial(root: str, kind: str, burn: float, num_workers: int, min_seconds: float) -> float:
    import torch
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset, RandomSampler

    from shardtools.bench.spec import Settings
    from shardtools.bench.window import WindowRule, measure

    class Files(Dataset[Any]):
        def __init__(self) -> None:
            self.paths = sorted(Path(root).iterdir())

        def __len__(self) -> int:
            return len(self.paths)

        def __getitem__(self, index: int) -> torch.Tensor:
            start = time.thread_time()
            if kind == "bytes":
                made = torch.frombuffer(bytearray(self.paths[index].read_bytes()[:8192]), dtype=torch.uint8)
            else:
                image = Image.open(self.paths[index]).convert("RGB").resize((224, 224))
                made = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
            end = start + (1 + burn) * (time.thread_time() - start)
            while time.thread_time() < end:
                pass
            return made

    files = Files()
    sampler = RandomSampler(files, replacement=True, num_samples=10_000_000)
    loader = DataLoader(files, BATCH_SIZE, sampler=sampler, num_workers=num_workers, prefetch_factor=2)
    rule = WindowRule.of(Settings(num_workers, 2), min_seconds)
    return measure(iter(loader), loader.__iter__, len, rule).throughput


def write_images(root: Path) -> None:
    import numpy as np
    from PIL import Image

    noise = np.random.default_rng(0)
    for index in range(NUM_FILES):
        rough = noise.integers(0, 256, (SIDE // 8, SIDE // 8, 3), np.uint8)
        Image.fromarray(rough).resize((SIDE, SIDE)).save(root / f"{index:05d}.jpg", quality=90)


def fresh_trial(root: Path, kind: str, burn: float, rest: list[str]) -> float:
    command = [sys.executable, __file__, "--trial", str(root), kind, str(burn), *rest]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def record(root: Path, kind: str, burn: float, rest: list[str]) -> list[list[float]]:
    blocks = []
    for block in range(NUM_BLOCKS):
        order = (0, 1) if block % 4 in (0, 3) else (1, 0)
        found = {side: fresh_trial(root, kind, (0.0, burn)[side], rest) for side in order}
        blocks.append([round(found[0], 2), round(found[1], 2)])
        print(kind, burn, blocks[-1], os.getloadavg()[0], file=sys.stderr, flush=True)
    return blocks


def main() -> None:
    if sys.argv[1] == "--trial":
        root, kind, burn, num_workers, min_seconds = sys.argv[2:]
        print(trial(root, kind, float(burn), int(num_workers), float(min_seconds)))
        return
    target, *rest = sys.argv[1:4]
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder))
        found = {name: record(Path(folder), *SETS[name], rest) for name in sys.argv[4:]}
    how = f"samples/s of [first, second] side in each block; warm cache, W = {rest[0]}, P = 2, B = {BATCH_SIZE}, windows of {rest[1]} s"
    Path(target).write_text(json.dumps({"how": how, "blocks": found}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()

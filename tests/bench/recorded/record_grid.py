"""Records full grids of DataLoader settings for the replays of the search:
`python tests/bench/recorded/record_grid.py tests/bench/recorded/grids/two_cpus.json [SET...]`.

Five small workloads that are bound by different things. Every trial is a fresh process, forked from this one, so that it need not import
torch; it drains what was read ahead and measures a window by the rules of the bench. Each round tries every cell once, in random order.
About nine minutes for all on two processors. Sets that are in the file already and are not named are kept.
"""

import io
import json
import multiprocessing
import os
import random
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, RandomSampler, Subset

from shardtools.bench.search import Cell, Space
from shardtools.bench.spec import Settings
from shardtools.bench.window import Hooks, WindowRule, measure

WARM_SECONDS, MIN_SECONDS, NUM_REPEATS, LATENCY_SECONDS = 0.4, 0.7, 3, 0.0015
CPUS = len(os.sched_getaffinity(0))
SPACE = Space(min(4, 2 * CPUS), "2 x processors", CPUS, num_repeats=NUM_REPEATS)
BETWEEN = [Cell(3, factor) for factor in SPACE.prefetch_factors]
"""Not of the grid, but the search may look there, between 2 and 4."""


@dataclass
class Samples(Dataset[Any]):
    make: Callable[[int], Any]
    count: int = 512

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


@dataclass(frozen=True)
class Load:
    make: Callable[[int], Any]
    batch_size: int
    collate: Callable[[list[Any]], Any] | None = None


def decode(_: Path) -> Load:
    """JPEG of 256 x 256 to 224 x 224: bound by processors."""
    noise, files = np.random.default_rng(0), []
    for _ in range(64):
        rough = Image.fromarray(noise.integers(0, 256, (32, 32, 3), np.uint8)).resize((256, 256))
        rough.save(file := io.BytesIO(), "JPEG", quality=90)
        files.append(file.getvalue())

    def make(index: int) -> torch.Tensor:
        image = Image.open(io.BytesIO(files[index % 64])).convert("RGB").resize((224, 224))
        return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)

    return Load(make, 4)


def latency(folder: Path) -> Load:
    """Files of 24 KB from a storage that answers after 1.5 ms, which a sleep stands for: bound by waiting."""
    for i in range(64):
        (folder / f"{i}.bin").write_bytes(os.urandom(24_000))

    def make(index: int) -> torch.Tensor:
        time.sleep(LATENCY_SECONDS)
        return torch.frombuffer(bytearray((folder / f"{index % 64}.bin").read_bytes()), dtype=torch.uint8)

    return Load(make, 8)


def many_tensors(_: Path) -> Load:
    """Samples from memory, collated into 16 tensors a batch: each costs on its way from a worker, so that no workers are best."""
    rows = torch.zeros(512, 256)

    def collate(samples: list[torch.Tensor]) -> list[torch.Tensor]:
        batch = torch.stack(samples)
        return [batch + i for i in range(16)]

    return Load(rows.__getitem__, 16, collate)


def uneven(_: Path) -> Load:
    """One sample in sixteen takes 12 ms, the others 0.3 ms: batches come unevenly."""

    def make(index: int) -> torch.Tensor:
        end = time.thread_time() + (0.012 if index % 16 == 0 else 0.0003)
        while time.thread_time() < end:
            pass
        return torch.zeros(3, 64, 64)

    return Load(make, 8)


def tokens(_: Path) -> Load:
    """JSON lines, tokenized as they are read."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words = [f"{a}{b}{c}" for a in ("tra", "lo", "shi", "mu") for b in ("de", "ra", "ning", "p") for c in ("s", "ed", "", "er")]
    choose = random.Random(0)
    texts = [" ".join(choose.choices(words, k=600)) for _ in range(64)]
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=400, show_progress=False))
    lines = [json.dumps({"text": text}) for text in texts]

    def make(index: int) -> torch.Tensor:
        return torch.tensor(tokenizer.encode(json.loads(lines[index % 64])["text"]).ids[:512])

    return Load(make, 8)


LOADS = {load.__name__: load for load in (decode, latency, many_tensors, uneven, tokens)}


def trial(load: Load, cell: Cell, answer: Connection) -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "This DataLoader will create")
    settings = Settings(cell.num_workers, cell.prefetch_factor, persistent_workers=cell.persistent_workers)
    kwargs: dict[str, Any] = {"num_workers": cell.num_workers, "batch_size": load.batch_size, "collate_fn": load.collate}
    if cell.num_workers:
        kwargs |= {"prefetch_factor": cell.prefetch_factor, "persistent_workers": cell.persistent_workers}
    samples = Samples(load.make)
    loader = DataLoader(samples, sampler=RandomSampler(samples, replacement=True, num_samples=10_000_000), **kwargs)
    window = WindowRule.of(settings, MIN_SECONDS)
    rule = WindowRule(window.num_workers, window.prefetch_factor, min_seconds=MIN_SECONDS, warm_seconds=WARM_SECONDS)
    facts = measure(iter(loader), loader.__iter__, lambda _: load.batch_size, rule, Hooks())
    waits = np.diff(facts.step_ends, prepend=0.0) * 1000
    epoch2_s = None
    if cell.num_workers and cell.prefetch_factor == 2:
        small = DataLoader(Subset(samples, range(2 * cell.num_workers * load.batch_size)), **kwargs)
        list(small)
        began = time.perf_counter()
        next(iter(small))
        epoch2_s = time.perf_counter() - began
    answer.send((facts.throughput, float(np.percentile(waits, 99)), float(waits.mean()), epoch2_s))


def record(name: str, load: Load) -> dict[str, Any]:
    grid = SPACE.cells()
    cells = [*grid, *BETWEEN]
    found: dict[Cell, list[tuple[float, float, float, float | None]]] = {cell: [] for cell in cells}
    context, order, began = multiprocessing.get_context("fork"), random.Random(0), time.time()
    for number in range(NUM_REPEATS):
        for cell in order.sample(cells, len(cells)):
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=trial, args=(load, cell, there))
            process.start()
            found[cell].append(here.recv())
            process.join()
        print(f"{name}: round {number + 1}, {time.time() - began:.0f} s, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    return {
        "what": " ".join((LOADS[name].__doc__ or "").split()),
        "cpus": CPUS,
        "max_workers": SPACE.max_workers,
        "num_repeats": NUM_REPEATS,
        "load_average": round(os.getloadavg()[1], 1),
        "cells": [
            {
                "setting": [cell.num_workers, cell.prefetch_factor, cell.pin_memory, cell.persistent_workers],
                "is_of_grid": cell in grid,
                "rates": [round(one[0], 1) for one in tries],
                "wait_p99_ms": [round(one[1], 3) for one in tries],
                "mean_step_ms": [round(one[2], 3) for one in tries],
                "epoch2_s": None if tries[0][3] is None else round(float(np.median([one[3] or 0.0 for one in tries])), 4),
            }
            for cell, tries in found.items()
        ],
    }


def main() -> None:
    target = Path(sys.argv[1])
    names = sys.argv[2:] or list(LOADS)
    kept = json.loads(target.read_text("utf-8"))["workloads"] if target.exists() and sys.argv[2:] else {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            kept[name] = record(name, LOADS[name](Path(folder)))
        how = (
            f"samples/s; setting is [W, P, pin, persistent]; warm, drained, torch {torch.__version__}; a window of {MIN_SECONDS} s, 50 and "
            "10 W P steps; load_average is the machine's over five minutes at the end of the set: above 3 other programs took part"
        )
        target.parent.mkdir(exist_ok=True)
        text = json.dumps({"how": how, "workloads": {name: kept[name] for name in LOADS if name in kept}}, indent=1)
        target.write_text(_compact(text) + "\n", "utf-8")


def _compact(text: str) -> str:
    """Lists of numbers in a line each."""
    return re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda match: "[" + re.sub(r"\s+", " ", match[1]) + "]", text)


if __name__ == "__main__":
    main()

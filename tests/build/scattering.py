"""Inputs and oracles for tests of the passes: records on disk, and the order and splits that they must come to."""

import json
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shardtools.build import run
from shardtools.build.order import Order
from shardtools.build.run import Listener, Result, RunOptions
from shardtools.engines.serial import Serial
from shardtools.formats.wds import Wds
from shardtools.plan import ShardLimit
from shardtools.selection import Selection
from shardtools.sources._record_layout import parse_mappings
from shardtools.sources.jsonl import Jsonl
from shardtools.units import Budget

SHARD_BYTES = 20_480
SPLIT = (("train", "0.7"), ("val", "0.2"), ("test", "0.1"))


def write_records(folder: Path, records: Sequence[dict[str, Any]], num_files: int = 3) -> Path:
    """JSON lines in so many files, whose order by name is that of the records."""
    folder.mkdir(exist_ok=True)
    step = -(-len(records) // num_files)
    for i in range(num_files):
        some = records[i * step : (i + 1) * step]
        (folder / f"{i}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in some))
    return folder


def make_records(count: int, seed: int = 1, longest: int = 300) -> list[dict[str, Any]]:
    """Keys are ``k`` and seven digits."""
    numbers = random.Random(seed)
    return [
        {"id": f"k{i:07d}", "n": i, "group": f"g{i // 4}", "text": "".join(numbers.choices("abc é画", k=numbers.randint(0, longest)))}
        for i in range(count)
    ]


def pack(source: Path, destination: Path, format_: Any = None, **given: Any) -> Result:
    """``given``: ``seed``, ``selection``, ``engine``, ``max_bad``, ``overwrite``, ``shard_samples``, ``shard_bytes``, ``tokens``,
    ``steps``, ``map``, ``key``, ``reader`` and ``listener``."""
    limit = (
        ShardLimit(num_samples=given["shard_samples"]) if "shard_samples" in given else ShardLimit(given.get("shard_bytes", SHARD_BYTES))
    )
    mapping = parse_mappings(given["map"]) if "map" in given else None
    order = Order(
        given.get("reader") or Jsonl(key=given.get("key", "id"), map=mapping),
        format_ or Wds(),
        limit,
        given.get("seed"),
        tokens=given.get("tokens"),
        steps=given.get("steps", ()),
        selection=given.get("selection", Selection()),
    )
    options = RunOptions(given.get("engine") or Serial(), Budget.parse(given.get("max_bad", "0")), given.get("overwrite", False))
    return run.build([str(source)], str(destination), order, options, given.get("listener") or Listener())


def keys_in(result: Result, destination: Path, split: str | None = None) -> list[str]:
    """The keys of a dataset of tars in the order of its shards, by Python's tarfile."""
    import tarfile

    found: list[str] = []
    for shard in result.manifest.shards:
        if split is None or shard.split == split:
            with tarfile.open(destination / shard.name) as archive:
                found += dict.fromkeys(name.partition(".")[0] for name in archive.getnames())
    return found


def shuffled(partitions: Iterable[Sequence[Any]], seed: int) -> list[Any]:
    """The samples of all partitions by a raw Philox word of each, drawn by a generator of each partition: the promised order."""
    words: list[tuple[int, int, int, Any]] = []
    for number, samples in enumerate(partitions):
        generator = np.random.Philox(counter=number << 192, key=seed)
        words += ((int(generator.random_raw()), number, row, sample) for row, sample in enumerate(samples))
    return [sample for _, _, _, sample in sorted(words, key=lambda word: word[:3])]


def planned(counts: list[int]) -> Listener:
    """Notes the number of partitions of each plan."""
    return Listener(on_plan=lambda plan: counts.append(len(plan.plan.partitions)))


Build = Callable[..., Result]

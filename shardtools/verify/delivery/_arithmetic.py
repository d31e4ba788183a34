"""The delivery by the reader's own arithmetic: no process is started and no reader is installed."""

from collections import Counter
from collections.abc import Sequence
from itertools import product
from math import lcm

import numpy as np

from shardtools.units import plural
from shardtools.verify.delivery import _streaming, _webdataset
from shardtools.verify.delivery._grid import Cell, listed, sizes_listed, world_sizes
from shardtools.verify.findings import Findings
from shardtools.verify.stored import Proof, Stored

UNPROVED_RESUME = "a resume in mid-epoch"

_REPLAYED_SAMPLES = 2_000_000
"""Up to so many in all epochs together every sample is followed; above, the closed form counts, which the tests prove equal."""
_RESUMED_PAIRS = 10_000
_MOST_SHARDS = 1_000_000
"""Nobody makes more so that ranks are even."""


def check_arithmetic(stored: Stored, cells: Sequence[Cell], findings: Findings) -> Proof:
    """Replay the reader of the dataset's format over all cells. Notes are one of a kind and list the cells."""
    if not stored.num_samples:
        return Proof(not_proved=("how samples are delivered, since none could be read",))
    once = _check_listing(stored, findings)
    if stored.dataset.format_name == "mds":
        return _check_streaming(stored.num_samples, cells, findings, once)
    return _check_webdataset(stored, cells, findings, once)


def _check_listing(stored: Stored, findings: Findings) -> bool:
    """That no shard is listed twice: every reader would read it as often."""
    counts = Counter(shard.name for shard in stored.dataset.shards)
    repeated = {name: count for name, count in counts.items() if count > 1}
    for name, count in repeated.items():
        findings.add("read-twice", f"expected every shard once in the list readers walk, got this one {count} times", name)
    return not repeated


def _check_webdataset(stored: Stored, cells: Sequence[Cell], findings: Findings, once: bool) -> Proof:
    counts = np.array(stored.counts, np.int64)
    empty: list[str] = []
    uneven: dict[int, str] = {}
    largest = 0
    for cell in cells:
        reading = _webdataset.tally(counts, cell)
        if reading.num_empty:
            empty.append(f"{cell} ({reading.num_empty})")
            largest = max(largest, cell.world_size * cell.num_readers)
        if reading.least != reading.most:
            uneven[cell.world_size] = f"{cell.world_size} ranks ({reading.least:,} to {reading.most:,})"
    what = plural(len(counts), "shard")
    if empty:
        detail = f"expected samples for every worker, got {what} and workers without any for {listed(empty)}"
        detail += ", where WebDataset raises 'No samples found' unless it is made with empty_check=False"
        findings.add("empty-worker", f"{detail}; {largest} shards, or a multiple, are enough for all of these")
    if uneven:
        detail = f"expected as many samples for every rank, got {what} and uneven ranks for {listed([*uneven.values()])}"
        enough = lcm(*uneven)
        number = f"a multiple of {enough}" if enough <= _MOST_SHARDS else "for each world size a multiple of it in"
        findings.add("uneven-ranks", f"{detail}; {number} shards of equal length makes them even")
    resume = f"{UNPROVED_RESUME} by webdataset, since it keeps no state"
    if not once:
        return Proof(not_proved=("an exact epoch, since a shard is listed twice", resume))
    counts_of_workers = sorted({cell.num_workers for cell in cells})
    sizes, workers = sizes_listed(world_sizes(cells)), f"{listed(counts_of_workers)} worker{'' if counts_of_workers == [1] else 's'}"
    proved = (
        f"By the arithmetic of webdataset with split_by_node every sample is delivered exactly once in an epoch for {sizes} "
        f"with {workers}: each shard goes to exactly one rank and worker."
    )
    return Proof((proved,), (resume,))


def _check_streaming(num_samples: int, cells: Sequence[Cell], findings: Findings, once: bool) -> Proof:
    sizes = world_sizes(cells)
    is_replayed = sum(max(num_samples, size) for size in sizes) <= _REPLAYED_SAMPLES
    repeats = {size: _num_repeats(num_samples, size, is_replayed, findings) for size in sizes}
    padded = [f"world size {size} repeats {count:,} of {num_samples:,}" for size, count in repeats.items() if count]
    if padded:
        divisors = [size for size in range(1, 1025) if num_samples % size == 0]
        detail = f"expected an epoch of {num_samples:,} samples, got more, since StreamingDataset gives all ranks equally many"
        findings.add("padding", f"{detail}: {listed(padded)}; exact for the world sizes {listed(divisors)}")
    empty = [str(cell) for cell in cells if -(-num_samples // cell.world_size) < cell.num_readers]
    if empty:
        detail = f"expected samples for every worker, got {plural(num_samples, 'sample')} and workers without any for {listed(empty)}"
        findings.add("empty-worker", detail)
    if not once:
        return Proof(not_proved=("an exact epoch, since a shard is listed twice",))
    exact = [size for size, count in repeats.items() if not count]
    epoch = f"By the arithmetic of StreamingDataset no sample is missing from an epoch for {sizes_listed(sizes)}"
    if exact:
        epoch = f"By the arithmetic of StreamingDataset every sample is delivered exactly once in an epoch for {sizes_listed(exact)}"
    resume = (
        "A stop in the middle of an epoch and a resume, with the same world size or another of these and the same global batch, "
        f"loses nothing and repeats nothing{' but that padding' if padded else ''}."
    )
    padding = f"; {'; '.join(padded)} (padding)" if padded else ""
    return Proof((f"{epoch}{padding}.", *((resume,) if _resumes_are_whole(num_samples, sizes, findings) else ())))


def _num_repeats(num_samples: int, size: int, is_replayed: bool, findings: Findings) -> int:
    """How many samples of an epoch are repeats; a sample that never comes is a finding."""
    world = _streaming.one_node(size)
    if is_replayed:
        times = np.bincount(_streaming.delivered(num_samples, world).ravel(), minlength=num_samples)
        if num_missing := int((times == 0).sum()):
            findings.add("never-read", f"expected every sample in an epoch, got {num_missing:,} that never come for world size {size}")
    return _streaming.num_delivered(num_samples, world) - num_samples


def _resumes_are_whole(num_samples: int, sizes: Sequence[int], findings: Findings) -> bool:
    """Stop near the middle with one world size, go on with another, and look at the union."""
    global_batch = lcm(*sizes)
    num_seen = num_samples // (2 * global_batch) * global_batch
    if not num_seen or len(sizes) ** 2 > _RESUMED_PAIRS:
        return False
    is_replayed = num_samples * len(sizes) ** 2 <= _REPLAYED_SAMPLES
    for before, after in product(sizes, sizes):
        total = num_seen + _streaming.num_delivered(num_samples, _streaming.one_node(after), num_seen)
        missing, repeats = max(num_samples - total, 0), max(total - num_samples, 0)
        if is_replayed:
            first = _streaming.delivered(num_samples, _streaming.one_node(before))[: num_seen // before]
            rest = _streaming.delivered(num_samples, _streaming.one_node(after), num_seen)
            times = np.bincount(np.concatenate([first.ravel(), rest.ravel()]), minlength=num_samples)
            missing, repeats = int((times == 0).sum()), int((times - 1)[times > 1].sum())
        where = f"after {num_seen:,} samples with world size {before} and a resume with {after}"
        if missing:
            findings.add("resume-skips", f"expected every sample in the epoch, got {missing:,} that never come {where}")
        if repeats >= after:
            findings.add("resume-repeats", f"expected at most {after - 1} repeats, the padding, got {repeats:,} {where}")
        if missing or repeats >= after:
            return False
    return True

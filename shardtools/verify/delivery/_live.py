"""The delivery by real readers: processes of all ranks with real DataLoader workers, cell by cell."""

import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from shardtools.datasets import Dataset
from shardtools.formats import index_place
from shardtools.places import is_here, join
from shardtools.signals import ends_tidily
from shardtools.verify.delivery import _processes
from shardtools.verify.delivery._arithmetic import UNPROVED_RESUME
from shardtools.verify.delivery._compare import id_digest
from shardtools.verify.delivery._grid import Cell, listed, live_cells
from shardtools.verify.delivery._ids import ID_NAMES
from shardtools.verify.delivery._judge import Epoch, Judge, num_padding, overrun
from shardtools.verify.delivery._logs import read_log
from shardtools.verify.delivery._spec import EPOCHS, RESUMED, RankReport, RunSpec
from shardtools.verify.findings import Findings
from shardtools.verify.options import DeliveryOptions
from shardtools.verify.stored import Proof, Stored, digest_of, places

READER_OF = {"wds": "webdataset", "mds": "streaming"}
"""The reference reader of each format."""
OWN_READER = "shardtools"
"""The loaders of this package, for every format."""

_MAX_BATCH = 32
_ORDER_SAMPLES = 200
_SHARED_MEMORY_NUMBERS = (100_000, 900_000)


@dataclass
class _Outcome:
    """What the cells came to, for the closing sentences."""

    exact: list[str] = field(default_factory=list)
    padded: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)
    unproved: list[str] = field(default_factory=list)
    with_same_order: list[str] = field(default_factory=list)


def check_live(stored: Stored, options: DeliveryOptions, findings: Findings) -> Proof:
    """Run the reader for every cell. Whatever the reader does wrong is a finding: what was found before must not be lost."""
    if not stored.num_samples:
        return Proof(not_proved=("what real reader processes deliver, since no sample could be read",))
    reader = options.factory or options.reader or READER_OF[stored.dataset.format_name]
    if _lacks_index(stored.dataset, reader, findings):
        return Proof(not_proved=(f"what {reader} delivers, since it cannot read this dataset",))
    judge, outcome = Judge(stored, findings), _Outcome()
    own_loaders: set[int] = set()
    with ends_tidily(), tempfile.TemporaryDirectory(prefix="shardtools-live-") as folder:
        for i, cell in enumerate(live_cells(options)):
            if cell.world_size in own_loaders:
                continue  # the user's DataLoader has its own number of workers
            live = _LiveCell(judge, cell, _spec(stored, options, cell, os.path.join(folder, str(i))), outcome)
            if live.run():
                own_loaders.add(cell.world_size)
    if outcome.with_same_order:
        detail = "expected another order in each epoch from a reader that shuffles, got the same in both"
        findings.add("same-order", f"{detail} for {listed(outcome.with_same_order)}")
    return Proof(tuple(_sentences(reader, outcome)), tuple(dict.fromkeys(outcome.unproved)))


def _lacks_index(dataset: Dataset, reader: str, findings: Findings) -> bool:
    if reader != "streaming" or dataset.storage.num_bytes(index_place(dataset.split or "")) is not None:
        return False
    detail = (
        f"expected {index_place(dataset.split or '')} in {dataset.uri}, which StreamingDataset needs, got none; run shardtools index on it"
    )
    findings.add("reader-failed", detail)
    return True


def _sentences(reader: str, outcome: _Outcome) -> Iterator[str]:
    began = f"{reader}, run in real processes,"
    if outcome.exact:
        yield f"{began} delivered every sample exactly once in each of {len(EPOCHS)} epochs for {listed(outcome.exact)}."
    if outcome.padded:
        yield f"{began} delivered every sample in each of {len(EPOCHS)} epochs, with padding, for {listed(outcome.padded)}."
    if outcome.resumed:
        yield f"{began} delivered the rest and nothing else after a stop in mid-epoch and a resume for {listed(outcome.resumed)}."


def _spec(stored: Stored, options: DeliveryOptions, cell: Cell, folder: str) -> RunSpec:
    dataset = stored.dataset
    os.mkdir(folder)
    key_name = dataset.shards[0].format.key_name
    return RunSpec(
        uri=dataset.uri,
        world_size=cell.world_size,
        num_workers=cell.num_workers,
        batch_size=min(max(stored.num_samples // (cell.world_size * cell.num_readers * 4), 1), _MAX_BATCH),
        num_samples=stored.num_samples,
        reader=None if options.factory else options.reader or READER_OF[dataset.format_name],
        factory=options.factory,
        id_of=options.id_of,
        id_names=(key_name, *ID_NAMES) if key_name not in (None, *ID_NAMES) else ID_NAMES,
        shards=tuple(join(dataset.uri, shard.name) for shard in dataset.shards),
        is_mosaic=dataset.format_name == "mds",
        is_unpacked=is_here(dataset.uri) and all(shard.compression is None for shard in dataset.shards),
        is_keyless=any(shard.is_keyless for shard in dataset.shards),
        split=dataset.split,
        first_shard=dataset.shards[0].index,
        folder=folder,
        state_folder=folder,
        shared_memory_begin=random.SystemRandom().randrange(*_SHARED_MEMORY_NUMBERS),
    )


@dataclass(frozen=True)
class _LiveCell:
    """One world."""

    judge: Judge
    cell: Cell
    spec: RunSpec
    outcome: _Outcome

    @property
    def _reader(self) -> str:
        return self.spec.factory or self.spec.reader or ""

    def run(self) -> bool:
        """Two epochs, then a stop and a resume. Returns whether the user brought a DataLoader."""
        reports = self._start(self.spec, "")
        if reports is None:
            return False
        report = reports[0]
        cell = self.cell._replace(num_workers=report.num_workers)
        epochs = self.judge.epochs(self.spec, cell, EPOCHS, reports)
        try:
            is_whole = self._sum_up(cell, epochs, report)
        finally:
            for epoch in epochs:
                epoch.delivery.table.close()
        if any(rank.overrun for rank in reports):
            self.outcome.unproved.append(f"whether every sample comes in an epoch of {self._reader} for {cell}, since it was stopped")
        if report.stateless is not None:
            self.outcome.unproved.append(f"{UNPROVED_RESUME} by {self._reader}, since {report.stateless}")
        elif not is_whole:
            self.outcome.unproved.append(f"{UNPROVED_RESUME} by {self._reader} for {cell}, since its full epochs are not exact")
        elif not report.num_stopped:
            self.outcome.unproved.append(f"{UNPROVED_RESUME} by {self._reader} for {cell}, since a rank has fewer than two batches")
        else:
            self._resume(cell, report)
        return report.is_own_loader

    def _sum_up(self, cell: Cell, epochs: Sequence[Epoch], report: RankReport) -> bool:
        padding = num_padding(self.judge.stored.num_samples, cell, report)
        found = [epoch.differences for epoch in epochs]
        is_whole = all(not each.num_missing and not each.num_unknown and each.num_repeats == padding for each in found)
        if is_whole:
            (self.outcome.padded if padding else self.outcome.exact).append(str(cell))
            if padding and self.spec.reader != "streaming":  # the arithmetic has told it of that reader
                detail = f"expected an epoch of {self.judge.stored.num_samples:,} samples, got {padding:,} more for {cell}"
                self.judge.findings.add("padding", f"{detail}, repeated on purpose so that all ranks get equally many")
        if self.spec.factory is not None and self._shuffles_alike(epochs):
            self.outcome.with_same_order.append(str(cell))
        return is_whole

    def _resume(self, cell: Cell, report: RankReport) -> None:
        folder = os.path.join(self.spec.folder, "resume")
        os.mkdir(folder)
        begin = random.SystemRandom().randrange(*_SHARED_MEMORY_NUMBERS)
        spec = replace(self.spec, folder=folder, is_resume=True, shared_memory_begin=begin)
        reports = self._start(spec, " after a resume")
        if reports is not None and self.judge.resume(self.spec, spec, cell, report, overrun(reports, RESUMED)):
            self.outcome.resumed.append(str(cell))

    def _start(self, spec: RunSpec, when: str) -> list[RankReport] | None:
        """None where a rank failed, which is a finding."""
        try:
            return _processes.run_ranks(spec)
        except _processes.RankFailedError as failure:
            where = f"rank {failure.rank}{when}"
            detail = f"expected every rank to get through its epochs for {self.cell}, got this from {where}: {failure.words}"
            if failure.is_misuse:  # a sentence of its own
                detail = f"{failure.words} ({where}, {self.cell})"
            self.judge.findings.add("reader-failed", detail)
            self.outcome.unproved.append(f"what {self._reader} delivers for {self.cell}{when}, since it failed")
            return None

    def _shuffles_alike(self, epochs: Sequence[Epoch]) -> bool:
        """Every reader delivered the same order in all epochs, and it is not the order in which the samples are stored."""
        orders = [{reader: stream.order for reader, stream in epoch.delivery.streams.items()} for epoch in epochs]
        if any(before != after for before, after in pairwise(orders)):
            return False
        return any(self._is_shuffled(rank) for rank in range(self.cell.world_size))

    def _is_shuffled(self, rank: int) -> bool:
        """The first samples of one worker of the rank lie here and there in the dataset."""
        digests: list[bytes] = []
        first: int | None = None
        for worker, ids, _ in read_log(self.spec.log_path(rank, EPOCHS[0])):
            first = worker if not digests else first
            digests += (id_digest(each) for each in ids if worker == first)
            if len(digests) >= _ORDER_SAMPLES:
                break
        position = {digest_of(place.key): i for i, place in enumerate(places(self.judge.stored.dataset, digests))}
        numbers = [position[digest] for digest in digests if digest in position]
        return sum(after < before for before, after in pairwise(numbers)) > 1

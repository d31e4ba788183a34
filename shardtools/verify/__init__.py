"""Proof that a dataset is whole and undamaged. Reads only; reports everything it finds and never stops at the first."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from shardtools.build.receipts import PLAN_NAME
from shardtools.datasets import MAX_HELD_BYTES, Dataset, survey_dataset
from shardtools.digests import DigestTable
from shardtools.engines import Engine, Progress
from shardtools.engines.processes import Processes, num_cores
from shardtools.engines.serial import Serial
from shardtools.manifest import MANIFEST_NAME, OFFSETS_NAME
from shardtools.storage import open_storage
from shardtools.verify._index import check_index
from shardtools.verify._presence import check_presence, length_of
from shardtools.verify._shards import CheckShard, ShardItem, ShardReport
from shardtools.verify._unique import check_contents, check_keys
from shardtools.verify.findings import KINDS, LEVELS, Finding, Findings
from shardtools.verify.options import DeliveryOptions, VerifyOptions
from shardtools.verify.stored import RECORD_BYTES, Proof, Stored
from shardtools.verify.verdict import Verdict

__all__ = ["KINDS", "LEVELS", "Checked", "DeliveryOptions", "Finding", "Verdict", "VerifyOptions", "verify"]

# Starting worker processes takes longer than checking this much.
_WORTH_WORKERS_BYTES = 256 << 20
_OFFSET_BYTES = 8


class Checked(NamedTuple):
    """What was checked since the last event."""

    num_samples: int
    num_bytes: int
    total_bytes: int
    """Of all shards, the same in every event."""


OnProgress = Callable[[Checked], None]


def _ignore(checked: Checked) -> None:
    """For callers that show no progress."""


def verify(uri: str, options: VerifyOptions = VerifyOptions(), on_progress: OnProgress = _ignore) -> Verdict:
    """Check the dataset at ``uri`` on all levels that ``options`` ask for.

    Raises UsageError where there is none, and for options that do not fit it.
    """
    began = time.monotonic()
    findings = Findings(options.max_findings)
    storage = open_storage(uri)
    if storage.num_bytes(MANIFEST_NAME) is None and storage.num_bytes(PLAN_NAME) is not None:
        findings.add("unfinished-build", "expected a published dataset, got a build that has not finished", PLAN_NAME)
        nothing = Dataset(storage.uri, "unknown", (), (), None)
        return Verdict.of(nothing, (), findings.all(), options, seconds=time.monotonic() - began)
    dataset = survey_dataset(uri)
    _refuse_impossible(dataset, options)
    check_presence(dataset, findings)
    check_index(dataset, findings)
    keys, contents = DigestTable(RECORD_BYTES), DigestTable(RECORD_BYTES)
    try:
        reports = _check_shards(dataset, options, on_progress, (keys, contents))
        for report in reports:
            findings.extend(report.findings)
        check_keys(dataset, keys, findings)
        check_contents(dataset, contents, findings)
        num_samples = {report.shard.index: report.num_samples for report in reports}
        stored = Stored(dataset, tuple(num_samples.get(shard.index, 0) for shard in dataset.shards), keys)
        proofs = _ask_more(stored, options, findings)
    finally:
        keys.close()
        contents.close()
    return Verdict.of(dataset, reports, findings.all(), options, proofs, time.monotonic() - began)


def _refuse_impossible(dataset: Dataset, options: VerifyOptions) -> None:
    """What cannot be carried out is said before anything is read."""
    if options.asks_for_delivery:
        from shardtools.verify.delivery import refuse_impossible

        refuse_impossible(options.delivery, dataset.format_name)
    if options.targets:
        from shardtools.verify.targets import refuse_unknown

        refuse_unknown(dataset, options.targets)


def _ask_more(stored: Stored, options: VerifyOptions, findings: Findings) -> list[Proof]:
    """What is only looked at on demand; its code is loaded only then."""
    proofs = []
    if options.asks_for_delivery:
        from shardtools.verify.delivery import check_delivery

        proofs.append(check_delivery(stored, options.delivery, findings))
    if options.against:
        from shardtools.verify.against import check_against

        proofs.append(check_against(stored, options.against, options.workers, findings))
    if options.targets:
        from shardtools.verify.targets import check_targets

        proofs.append(check_targets(stored.dataset, options.targets, findings))
    return proofs


def _check_shards(
    dataset: Dataset, options: VerifyOptions, on_progress: OnProgress, tables: tuple[DigestTable, DigestTable]
) -> list[ShardReport]:
    """Reports in the order of the shards; the digests of keys and contents go into the tables instead."""
    items = [item for item in _items(dataset) if length_of(dataset, item.shard.name) is not None]
    sizes = [length_of(dataset, item.shard.name) or 0 for item in items]
    total_bytes = sum(sizes)
    reports: list[ShardReport] = []

    def on_report(progress: Progress) -> None:
        on_progress(Checked(progress.num_samples, progress.num_bytes, total_bytes))

    def on_result(report: ShardReport) -> None:
        for table, records in zip(tables, (report.keys, report.contents), strict=True):
            table.add(records)
        reports.append(replace(report, keys=b"", contents=b""))

    with _engine(options.workers, len(items), total_bytes, max(sizes, default=0)) as engine:
        engine.run(CheckShard(dataset, options), items, on_report, on_result)
    return sorted(reports, key=lambda report: report.shard.index)


def _items(dataset: Dataset) -> list[ShardItem]:
    """The shards, each with the place of its offsets, where there is an offsets file of the right length."""
    counts = [shard.num_samples for shard in dataset.shards]
    ends = [0]
    for count in counts:
        ends.append(ends[-1] + _OFFSET_BYTES * ((count or 0) + 1))
    comparable = dataset.manifest is not None and length_of(dataset, OFFSETS_NAME) == ends[-1]
    return [ShardItem(shard, ends[i] if comparable else None) for i, shard in enumerate(dataset.shards)]


def _engine(workers: int | None, num_items: int, total_bytes: int, largest_bytes: int) -> Engine:
    """``largest_bytes``: a file that has to be mapped, and is cut meanwhile, must end a worker and not this process."""
    is_little = workers == 1 or num_items < 2 or (workers is None and total_bytes < _WORTH_WORKERS_BYTES)
    if is_little and largest_bytes <= MAX_HELD_BYTES:
        return Serial()
    return Processes(min(workers or num_cores(), num_items))

"""Proof that a dataset is whole and undamaged. Reads only; reports everything it finds and never stops at the first."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shardtools.build.receipts import PLAN_NAME
from shardtools.datasets import Dataset, survey_dataset
from shardtools.engines import Engine, Progress
from shardtools.engines.processes import Processes, num_cores
from shardtools.engines.serial import Serial
from shardtools.manifest import MANIFEST_NAME, OFFSETS_NAME
from shardtools.storage import open_storage
from shardtools.verify._index import check_index
from shardtools.verify._presence import check_presence
from shardtools.verify._shards import CheckShard, ShardItem, ShardReport
from shardtools.verify._unique import check_unique
from shardtools.verify.findings import KINDS, LEVELS, Finding, Findings
from shardtools.verify.verdict import Verdict

__all__ = ["KINDS", "LEVELS", "Checked", "Finding", "Verdict", "VerifyOptions", "verify"]

# Starting worker processes takes longer than checking this much.
_WORTH_WORKERS_BYTES = 256 << 20
_OFFSET_BYTES = 8


@dataclass(frozen=True)
class VerifyOptions:
    """How the work is done. Nothing here changes what is found."""

    workers: int | None = None
    """Worker processes; None: all cores where there is enough to check, else none."""
    max_findings: int = 100
    """How many findings of one kind in one file are listed; the others are counted."""


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
    """Check the dataset at ``uri`` on all levels. Raises UsageError where there is none."""
    began = time.monotonic()
    findings = Findings(options.max_findings)
    storage = open_storage(uri)
    if storage.num_bytes(MANIFEST_NAME) is None and storage.num_bytes(PLAN_NAME) is not None:
        findings.add("unfinished-build", "expected a published dataset, got a build that has not finished", PLAN_NAME)
        return _verdict(Dataset(storage.uri, "unknown", (), (), None), [], findings, began)
    dataset = survey_dataset(uri)
    check_presence(dataset, findings)
    check_index(dataset, findings)
    _check_files(dataset, findings)
    reports = _check_shards(dataset, options, on_progress)
    for report in reports:
        findings.extend(report.findings)
    check_unique(dataset, reports, findings)
    return _verdict(dataset, reports, findings, began)


def _check_files(dataset: Dataset, findings: Findings) -> None:
    """Digests of the published files that are no shards."""
    for file in dataset.manifest.files if dataset.manifest is not None else ():
        if dataset.storage.num_bytes(file.name) == file.num_bytes and (actual := dataset.storage.sha256(file.name)) != file.sha256:
            findings.add("wrong-sha256", f"expected the SHA-256 {file.sha256}, got {actual}", file.name)


def _check_shards(dataset: Dataset, options: VerifyOptions, on_progress: OnProgress) -> list[ShardReport]:
    items = [item for item in _items(dataset) if dataset.storage.num_bytes(item.shard.name) is not None]
    total_bytes = sum(dataset.storage.num_bytes(item.shard.name) or 0 for item in items)
    reports: list[ShardReport] = []

    def on_report(progress: Progress) -> None:
        on_progress(Checked(progress.num_samples, progress.num_bytes, total_bytes))

    with _engine(options.workers, len(items), total_bytes) as engine:
        engine.run(CheckShard(dataset, options.max_findings), items, on_report, reports.append)
    return sorted(reports, key=lambda report: report.shard.index)


def _items(dataset: Dataset) -> list[ShardItem]:
    """The shards, each with the place of its offsets, where there is an offsets file of the right length."""
    counts = [shard.num_samples for shard in dataset.shards]
    ends = [0]
    for count in counts:
        ends.append(ends[-1] + _OFFSET_BYTES * ((count or 0) + 1))
    comparable = dataset.manifest is not None and dataset.storage.num_bytes(OFFSETS_NAME) == ends[-1]
    return [ShardItem(shard, ends[i] if comparable else None) for i, shard in enumerate(dataset.shards)]


def _engine(workers: int | None, num_items: int, total_bytes: int) -> Engine:
    if workers == 1 or num_items < 2 or (workers is None and total_bytes < _WORTH_WORKERS_BYTES):
        return Serial()
    return Processes(min(workers or num_cores(), num_items))


def _verdict(dataset: Dataset, reports: Sequence[ShardReport], findings: Findings, began: float) -> Verdict:
    return Verdict(
        uri=dataset.uri,
        format_name=dataset.format_name,
        is_published=dataset.manifest is not None,
        findings=findings.all(),
        num_shards=len(dataset.shards),
        num_samples=sum(report.num_samples for report in reports),
        num_bytes=sum(dataset.storage.num_bytes(shard.name) or 0 for shard in dataset.shards),
        unchecked_fields=tuple(sorted({name for report in reports for name in report.unchecked})),
        has_keys=not any(shard.is_keyless for shard in dataset.shards),
        seconds=time.monotonic() - began,
    )

"""Proof that a dataset is whole and undamaged. Reads only; reports everything it finds and never stops at the first.

Where the levels of ``findings.LEVELS`` are: 1 in ``_presence``, ``_manifest`` and ``_index``; 2 and 3 in ``_shards``, a shard at a
time, with ``_tally`` and ``_deep``; keys and contents that occur twice in ``_unique``; 5 in ``delivery``, 6 in ``against``, 7 in
``targets``, which see what was found of the samples as ``stored.Stored``.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from shardtools.build.receipts import PLAN_NAME
from shardtools.build.workers import fitting_engine
from shardtools.datasets import Dataset, is_pattern, survey_dataset
from shardtools.digests import DigestTable
from shardtools.engines import Progress
from shardtools.manifest import MANIFEST_NAME, OFFSETS_NAME
from shardtools.places import Listing, is_there, length_of
from shardtools.storage import open_storage
from shardtools.verify._index import check_index
from shardtools.verify._offsets import offset_places
from shardtools.verify._presence import check_presence
from shardtools.verify._shards import CheckShard, ShardItem, ShardReport
from shardtools.verify._splits import split_proof
from shardtools.verify._token_rules import has_ids_of_its_own, token_rules
from shardtools.verify._unique import check_contents, check_keys
from shardtools.verify.findings import KINDS, LEVELS, Finding, Findings
from shardtools.verify.options import DeliveryOptions, VerifyOptions
from shardtools.verify.stored import PIECE_BYTES, RECORD_BYTES, Proof, Stored
from shardtools.verify.verdict import Verdict

__all__ = ["KINDS", "LEVELS", "Checked", "DeliveryOptions", "Finding", "Verdict", "VerifyOptions", "verify"]


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
    if _is_unfinished(uri):
        findings.add("unfinished-build", "expected a published dataset, got a build that has not finished", PLAN_NAME)
        nothing = Dataset(open_storage(uri).uri, "unknown", (), (), None)
        return Verdict.of(nothing, (), findings.all(), options, seconds=time.monotonic() - began)
    dataset = survey_dataset(uri)
    _refuse_impossible(dataset, options)
    listing = dataset.listing()
    check_presence(dataset, listing, findings)
    check_index(dataset, findings)
    keys, contents, pieces = DigestTable(RECORD_BYTES), DigestTable(RECORD_BYTES), DigestTable(PIECE_BYTES)
    try:
        reports = _check_shards(_items(dataset, listing), CheckShard(dataset, options), on_progress, (keys, contents, pieces))
        for report in reports:
            findings.extend(report.findings)
        check_keys(dataset, keys, findings)
        _check_tokens(dataset, reports, pieces, findings)
        check_contents(dataset, contents, findings)
        num_samples = {report.shard.index: report.num_samples for report in reports}
        stored = Stored(dataset, tuple(num_samples.get(shard.index, 0) for shard in dataset.shards), keys)
        proofs = [split_proof(stored), *_ask_more(stored, options, findings)]
    finally:
        for table in (keys, contents, pieces):
            table.close()
    return Verdict.of(dataset, reports, findings.all(), options, proofs, time.monotonic() - began)


def _refuse_impossible(dataset: Dataset, options: VerifyOptions) -> None:
    """What cannot be carried out is said before anything is read."""
    if options.asks_for_delivery:
        from shardtools.verify.delivery import refuse_elsewhere, refuse_impossible

        refuse_impossible(options.delivery, dataset.format_name)
        refuse_elsewhere(options.delivery, dataset)
    if options.against:
        from shardtools.verify.against import refuse_sources

        refuse_sources(dataset, options.against)
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

        proofs.append(check_against(stored, options, findings))
    if options.targets:
        from shardtools.verify.targets import check_targets

        proofs.append(check_targets(stored.dataset, options.targets, findings))
    return proofs


def _check_shards(
    items: Sequence[ShardItem], check: CheckShard, on_progress: OnProgress, tables: tuple[DigestTable, DigestTable, DigestTable]
) -> list[ShardReport]:
    """Reports in the order of the shards; the digests of keys and contents go into the tables instead."""
    sizes = [item.num_bytes for item in items]
    total_bytes = sum(sizes)
    reports: list[ShardReport] = []

    def on_report(progress: Progress) -> None:
        on_progress(Checked(progress.num_samples, progress.num_bytes, total_bytes))

    def on_result(report: ShardReport) -> None:
        for table, records in zip(tables, (report.keys, report.contents, report.pieces), strict=True):
            table.add(records)
        reports.append(replace(report, keys=b"", contents=b"", pieces=b""))

    with fitting_engine(check.options.workers, sizes) as engine:
        engine.run(check, items, on_report, on_result)
    return sorted(reports, key=lambda report: report.shard.index)


def _check_tokens(dataset: Dataset, reports: Sequence[ShardReport], pieces: DigestTable, findings: Findings) -> None:
    """The ledger of tokens, where the dataset holds rows of them that could all be read."""
    manifest, rules = dataset.manifest, token_rules(dataset.manifest)
    if manifest is None or rules is None or any(report.findings for report in reports):
        return
    from shardtools.verify._token_rows import check_documents, check_ledger

    if len(reports) == len(manifest.shards):
        check_ledger(manifest, sum((report.token_counts for report in reports), Counter()), findings)
        if rules.has_doc_ids and has_ids_of_its_own(manifest):
            check_documents(pieces, rules, manifest.ledger.num_written, findings)


def _items(dataset: Dataset, listing: Listing) -> list[ShardItem]:
    """The shards that are there, each with the place of its offsets, where there is an offsets file of the right length."""
    begins = offset_places(shard.num_samples or 0 for shard in dataset.shards)
    comparable = dataset.manifest is not None and length_of(listing, OFFSETS_NAME) == begins[-1]
    lengths = [length_of(listing, shard.name) for shard in dataset.shards]
    return [
        ShardItem(shard, num_bytes, (begins[i], begins[i + 1]) if comparable else None)
        for i, (shard, num_bytes) in enumerate(zip(dataset.shards, lengths, strict=True))
        if num_bytes is not None
    ]


def _is_unfinished(uri: str) -> bool:
    """A build lies there, and nothing that was published."""
    if is_pattern(uri) and not is_there(uri):
        return False
    storage = open_storage(uri)
    return storage.num_bytes(MANIFEST_NAME) is None and storage.num_bytes(PLAN_NAME) is not None

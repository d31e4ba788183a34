"""Level 7: what the readers of a dataset's format would drop, merge, rename, change or reject, by their own rules.

One module a reader; each names the version its rules were taken from. The readers themselves are not run.
"""

from collections.abc import Callable, Sequence

from shardtools.datasets import Dataset, Shard
from shardtools.errors import ShardtoolsError, UsageError
from shardtools.units import plural
from shardtools.verify.findings import Findings
from shardtools.verify.stored import Proof
from shardtools.verify.targets._beside import check_beside
from shardtools.verify.targets._complaints import Complaints, Rule
from shardtools.verify.targets._keys import KeyTable, examples
from shardtools.verify.targets._lint import Lint
from shardtools.verify.targets._members import seen_members
from shardtools.verify.targets._stems import DottedStems
from shardtools.verify.targets.dali import Dali
from shardtools.verify.targets.energon import KEY_TWICE, Energon
from shardtools.verify.targets.hf import HuggingFace
from shardtools.verify.targets.streaming import check_streaming
from shardtools.verify.targets.webdataset import WebDataset
from shardtools.verify.targets.wids import Wids

__all__ = ["TARGETS", "check_targets", "refuse_unknown"]

_TAR_READERS: dict[str, Callable[[], Lint]] = {"webdataset": WebDataset, "hf": HuggingFace, "energon": Energon, "dali": Dali, "wids": Wids}
_VERSIONS = {
    "webdataset": "webdataset 1.0.2",
    "hf": "datasets 5.2.0",
    "energon": "megatron-energon 7.4.1",
    "dali": "DALI's wds2idx",
    "wids": "wids 0.1.11",
    "streaming": "mosaicml-streaming 0.13.0",
}
TARGETS = {**dict.fromkeys(_TAR_READERS, "wds"), "streaming": "mds"}
"""The format each reader reads."""

_TWINS = Rule("case-twins", "whose key differs from another's by case or Unicode form alone, and is the same file there", "sample")


def refuse_unknown(dataset: Dataset, targets: Sequence[str]) -> None:
    """Raises UsageError for a target that is not known, or that does not read the dataset's format."""
    format_name = dataset.format_name
    for target in targets:
        if target not in TARGETS:
            raise UsageError(f"expected readers of {', '.join(TARGETS)} as targets, got {target!r}; name one of them")
        if format_name in TARGETS.values() and TARGETS[target] != format_name:
            there = ", ".join(name for name, reads in TARGETS.items() if reads == format_name)
            raise UsageError(f"expected a target that reads {format_name}, got {target}, which does not; name one of {there}")


def check_targets(dataset: Dataset, targets: Sequence[str], findings: Findings) -> Proof:
    """Add a finding for each rule of a target that the dataset runs into, with a count and three places.

    Raises what ``refuse_unknown`` does. Memory: bounded but for the shards' names, and 32 bytes for each member of one shard
    for wids.
    """
    refuse_unknown(dataset, targets)
    names = list(dict.fromkeys(targets))
    if dataset.format_name == "mds":
        complaints = Complaints("streaming")
        remarks = check_streaming(dataset, complaints)
        return _proof([complaints], remarks, [], findings)
    lints = [_TAR_READERS[name]() for name in names] if dataset.format_name == "wds" else []
    return _check_tars(dataset, lints, findings)


def _check_tars(dataset: Dataset, lints: list[Lint], findings: Findings) -> Proof:
    table, stems, unread, num_samples = KeyTable(), DottedStems(), list[str](), 0
    try:
        for shard in dataset.shards:
            count, is_whole = _see(dataset, shard, lints, table, stems)
            num_samples += count
            unread += [] if is_whole else [shard.name]
        twice, twins = table.repeats()
    finally:
        table.close()
    remarks: tuple[str, ...] = ()
    for lint in lints:
        remarks += lint.remarks()
        stems.report(lint.complaints, num_samples)
        if isinstance(lint, Energon) and twice.count:
            lint.complaints.add_all(KEY_TWICE, examples(dataset, twice), twice.count)
        if isinstance(lint, HuggingFace):
            check_beside(dataset, lint.complaints)
    everywhere = Complaints("file systems that fold names")
    if twins.count:
        everywhere.add_all(_TWINS, examples(dataset, twins), twins.count)
        everywhere.report(findings)
    return _proof([lint.complaints for lint in lints], remarks, unread, findings)


def _see(dataset: Dataset, shard: Shard, lints: list[Lint], table: KeyTable, stems: DottedStems) -> tuple[int, bool]:
    """Show a shard to everyone. Returns its number of samples, and whether all of it could be read."""
    is_whole, num_samples, last = True, 0, None
    for lint in lints:
        lint.begin(shard, dataset.uri)
    try:
        for seen in seen_members(shard, dataset.unpacked(shard, dataset.stored(shard))):
            for lint in lints:
                lint.see(seen)
            stems.see(seen)
            if seen.field and seen.member.is_file:
                table.see(seen.key)
                num_samples += seen.key != last
                last = seen.key
    except ShardtoolsError:
        is_whole = False  # why it cannot be read on was found when it was checked
    for lint in lints:
        lint.end(shard)
    table.end_shard()
    return num_samples, is_whole


def _proof(found: list[Complaints], remarks: Sequence[str], unread: list[str], findings: Findings) -> Proof:
    for complaints in found:
        complaints.report(findings)
    content = [_VERSIONS[complaints.reader] for complaints in found if not complaints.tallies]
    proved = (
        (f"By their own rules, {' and '.join(content)} {'takes' if len(content) == 1 else 'take'} every sample as it is.",)
        if content and not unread
        else ()
    )
    not_proved = [f"whether versions other than {', '.join(_VERSIONS[complaints.reader] for complaints in found)} follow the same rules"]
    if unread:
        not_proved.append(f"what readers make of {plural(len(unread), 'shard')} that cannot be read to the end, such as {unread[0]}")
    return Proof((*proved, *remarks), tuple(not_proved) if found else ())

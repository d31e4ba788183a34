"""Differences as findings: the first of each kind by name and place, all of them counted."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from shardtools.verify.against._compare import Differences
from shardtools.verify.against._samples import MOST_OF_A_KEY, Found, difference
from shardtools.verify.findings import Finding, Findings


def report(differences: Differences, source: Iterable[Found], stored: Iterable[Found], findings: Findings) -> None:
    """Add a finding for every difference that ``source`` and ``stored`` can name, and one for the rest of each kind."""
    ours, theirs = _by_key(source), _by_key(stored)
    left = {key: _unmatched(ours.get(key, ()), theirs.get(key, ())) for key in differences.wanted}
    named: dict[str, list[tuple[str, Found]]] = {"changed-sample": [], "missing-sample": [], "foreign-sample": []}
    for key in differences.changed:
        named["changed-sample"] += [(difference(expected, got), got) for expected, got in zip(*left[key], strict=False)]
    for key in differences.missing:
        only_source, only_stored = left[key]
        detail = [_missing(found, len(ours[key]), len(theirs.get(key, ()))) for found in only_source]
        named["missing-sample"] += list(zip(detail, only_source, strict=True))[len(only_stored) :]
    for key in differences.foreign:
        only_source, only_stored = left[key]
        text = _foreign(len(ours.get(key, ())), len(theirs.get(key, ())))
        named["foreign-sample"] += [(text, found) for found in only_stored[len(only_source) :]]
    totals = {
        "changed-sample": differences.num_changed,
        "missing-sample": differences.num_missing,
        "foreign-sample": differences.num_foreign,
    }
    for kind, total in totals.items():
        # Of a key that very many samples have, not all were looked at: never more are named than there are.
        listed = named[kind][: min(total, findings.limit)]
        for detail_of, found in listed:
            findings.add(kind, detail_of, found.shard, found.key, found.offset)
        findings.extend(_more(kind, total - len(listed)))


def _more(kind: str, count: int) -> list[Finding]:
    return [Finding(kind, None, None, None, f"expected none of this kind, got {count:,} more, not listed", count)] if count else []


def _by_key(samples: Iterable[Found]) -> Mapping[bytes, Sequence[Found]]:
    found: dict[bytes, list[Found]] = defaultdict(list)
    for sample in samples:
        found[sample.key_digest].append(sample)
    return found


def _unmatched(ours: Sequence[Found], theirs: Sequence[Found]) -> tuple[list[Found], list[Found]]:
    """What remains of both when samples of equal content are paired off."""
    return _without(ours, theirs), _without(theirs, ours)


def _without(samples: Sequence[Found], others: Sequence[Found]) -> list[Found]:
    paired = Counter(other.content for other in others)
    left = []
    for sample in samples:
        if paired[sample.content]:
            paired[sample.content] -= 1
        else:
            left.append(sample)
    return left


def _missing(found: Found, num_source: int, num_stored: int) -> str:
    origin = "" if found.where is None else f" made of {found.where}"
    if num_stored:
        return f"expected the sample{origin} {_times(num_source)}, as the source has it, got it {_times(num_stored)}"
    return f"expected the sample{origin} in the dataset, got none of that key"


def _foreign(num_source: int, num_stored: int) -> str:
    if not num_source:
        return "expected only samples of the source, got one it does not have"
    return f"expected the sample {_times(num_source)}, as the source has it, got it {_times(num_stored)}"


def _times(count: int) -> str:
    if count == 1:
        return "once"
    return f"{count} times" if count < MOST_OF_A_KEY else f"{count} or more times"

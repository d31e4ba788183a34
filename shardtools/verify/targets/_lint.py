"""The socket a reader's rules stand in, and the rules that several readers share."""

from typing import Protocol

from shardtools.datasets import Shard
from shardtools.verify.targets._complaints import Complaints, Rule
from shardtools.verify.targets._members import Seen, is_hidden, is_meta, split_at_first_dot


class Lint(Protocol):
    """One reader's rules, shown every entry of every shard in order."""

    complaints: Complaints

    def begin(self, shard: Shard, uri: str) -> None:
        """Before the entries of a shard; ``uri`` is the dataset's folder."""

    def see(self, seen: Seen) -> None:
        """One entry."""

    def end(self, shard: Shard) -> None:
        """After the last entry that can be read."""

    def remarks(self) -> tuple[str, ...]:
        """At the end: what the reader does to every sample, or what is worth knowing and no fault, as sentences."""


LINK = Rule("target-drops", "that are links, which it passes over")
NO_DOT = Rule("target-drops", "without a dot in the file's name, which it passes over")
HIDDEN_DROPPED = Rule("target-drops", "whose file name begins with a dot, which it passes over")
HIDDEN_MERGED = Rule("target-merges", "whose file name begins with a dot: those of one folder become one sample named like the folder")
META = Rule("target-drops", "below a first folder __like_this__ (or named so), which it takes for metadata and passes over")
FIELD_TWICE = Rule("target-rejects", "that repeat a field of their sample, where it stops")
BAD_UTF8 = Rule("target-rejects", "whose names are no UTF-8: what stores or prints such a key fails")
EMPTY = Rule("target-rejects", "without a sample, where it stops", "shard")
TWO_SPELLINGS = Rule(
    "target-drops", "whose field is also spelled in another case: it tells them apart, and asked for one misses the other", "field"
)
"""The last is said of fields."""

_LINKS = (b"1", b"2")


def is_passed_over(seen: Seen, complaints: Complaints) -> bool:
    """Whether an entry is no regular file, which every reader passes over; only a link could have been part of a sample."""
    if seen.member.kind in _LINKS:
        complaints.add(LINK, seen.at)
    return not seen.member.is_file


def read_at_first_dot(seen: Seen, complaints: Complaints) -> tuple[str, str] | None:
    """Key and field of an unusual entry as webdataset and Energon take them; None where they pass over it."""
    if is_passed_over(seen, complaints):
        return None
    if is_meta(seen.name):
        complaints.add(META, seen.at)
        return None
    reading = split_at_first_dot(seen.name)
    if is_hidden(seen.name):
        complaints.add(HIDDEN_DROPPED if reading is None else HIDDEN_MERGED, seen.at)
    elif reading is None:
        complaints.add(NO_DOT, seen.at)
    return reading

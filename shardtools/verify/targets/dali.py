"""What NVIDIA DALI makes of tars by the index of its ``wds2idx``. Source: NVIDIA/DALI, tools/wds2idx.py."""

import re

from shardtools.datasets import Shard
from shardtools.verify.targets import _lint
from shardtools.verify.targets._complaints import At, Complaints, Rule
from shardtools.verify.targets._members import Runs, Seen

EXTENSION = Rule("target-rejects", "with an extension header (PAX or GNU), after which the offsets in its index are wrong")
WHITE_SPACE = Rule("target-rejects", "with white space in the name, which breaks its index")
NOT_ASCII = Rule("target-rejects", "whose names are not ASCII, where its indexer stops")
QUOTED = Rule("target-renames", "with a backslash or control characters in the name, which GNU tar shows to its indexer in another way")
NO_DOT = Rule(
    "target-renames", "without a dot in the file's name: its indexer takes all but the last letter for the key and all for the field"
)
UPPER = Rule("target-drops", "with capitals in the field: it is asked by exact spelling and does not find them by lower-case names")
GZIP = Rule("target-rejects", "that are compressed, which it does not read", "shard")
DOTS = Rule(
    "target-merges", "with more than one dot in the file name: its index is named up to the first, as those of other shards are", "shard"
)

_SPACE = re.compile(r"\s")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")


class Dali:
    """The rules of its indexer, and of the reader that follows the index."""

    def __init__(self) -> None:
        self.complaints = Complaints("dali")
        self._runs = Runs()

    def begin(self, shard: Shard, uri: str) -> None:
        if shard.compression is not None:
            self.complaints.add(GZIP, At(shard.name))
        elif "." in shard.name.rpartition("/")[2].removesuffix(".tar"):
            self.complaints.add(DOTS, At(shard.name))

    def see(self, seen: Seen) -> None:
        if seen.is_plain:
            self._runs.take(seen.key, seen.field)
            return
        if _lint.is_passed_over(seen, self.complaints):
            return
        key, field = indexed_name(seen.name)
        if seen.has_extension:
            self.complaints.add(EXTENSION, seen.at)
        if not seen.name.isascii():
            self.complaints.add(NOT_ASCII, seen.at)
        elif _SPACE.search(seen.name):
            self.complaints.add(WHITE_SPACE, seen.at)
        elif _CONTROL.search(seen.name):
            self.complaints.add(QUOTED, seen.at)
        if not key or key.endswith("/"):
            has_dot = "." in seen.name[seen.name.rfind("/") + 1 :]
            self.complaints.add(_lint.HIDDEN_DROPPED if has_dot else _lint.NO_DOT, seen.at)
            return
        if (key, field) != (seen.key, seen.field):
            self.complaints.add(NO_DOT, seen.at)
        elif field != field.lower():
            self.complaints.add(UPPER, seen.at)
        self._runs.take(key, field)

    def end(self, shard: Shard) -> None:
        if not self._runs.end_shard():
            self.complaints.add(_lint.EMPTY, At(shard.name))

    def remarks(self) -> tuple[str, ...]:
        return ()


def indexed_name(name: str) -> tuple[str, str]:
    """Key and field as the indexer cuts them: where there is no dot it cuts off the last letter, and takes the whole name for the field."""
    dot = name.find(".", name.rfind("/") + 1)
    return (name[:-1], name) if dot < 0 else (name[:dot], name[dot + 1 :])

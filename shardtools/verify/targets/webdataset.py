"""What the webdataset library makes of tars. Source: webdataset 1.0.2, tariterators.py, gopen.py, cache.py, writer.py."""

import re

from shardtools.datasets import Shard
from shardtools.places import join
from shardtools.verify.targets import _lint
from shardtools.verify.targets._complaints import At, Complaints, Rule
from shardtools.verify.targets._members import Runs, Seen, is_hidden

UPPER = Rule("target-renames", "with capitals in the field, which it delivers in lower case")
RESERVED = Rule("target-rejects", "named like its own fields __key__ or __url__, where it stops")
BAD = Rule("target-drops", "with the field __bad__, whose whole samples it drops")
LOCAL_PATH = Rule("target-drops", "with the field __local_path__, which its cache writes over")
UNDERSCORE = Rule("target-drops", "whose field begins with _, which its writer drops when samples are copied")
CUT_PATH = Rule("target-rejects", "with #, ? or ; in the path, where it cuts the path off", "shard")
PATTERN_PATH = Rule(
    "target-rejects", "with {, :: or ${ in the path, which it takes for a pattern unless it is given a list of paths", "shard"
)
SAME_BASENAME = Rule("target-merges", "whose file name another shard has too: its cache looks at the name alone", "shard")

_CUT = re.compile(r"[#?;]")
_PATTERN = re.compile(r"::|\$\{\w+\}|\{[^{}]*(?:,|\.\.)[^{}]*\}")


class SameBasenames:
    """Shards of several folders that share a file name. Memory: the file names."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def is_repeat(self, name: str) -> bool:
        return self._seen.setdefault(name.rpartition("/")[2], name) != name


class WebDataset:
    """Its rules."""

    def __init__(self) -> None:
        self.complaints = Complaints("webdataset")
        self._runs = Runs()
        self._basenames = SameBasenames()

    def begin(self, shard: Shard, uri: str) -> None:
        path = join(uri, shard.name)
        for pattern, rule in ((_CUT, CUT_PATH), (_PATTERN, PATTERN_PATH)):
            if pattern.search(path):
                self.complaints.add(rule, At(shard.name))
        if self._basenames.is_repeat(shard.name):
            self.complaints.add(SAME_BASENAME, At(shard.name))

    def see(self, seen: Seen) -> None:
        if seen.is_plain:
            reading = (seen.key, seen.field)
        else:
            taken = self._read(seen)
            if taken is None:
                return
            reading = taken
        if not self._runs.take(*reading):
            self.complaints.add(_lint.FIELD_TWICE, seen.at)

    def end(self, shard: Shard) -> None:
        self._runs.end_shard()

    def remarks(self) -> tuple[str, ...]:
        return ()

    def _read(self, seen: Seen) -> tuple[str, str] | None:
        """Key and field of an unusual member; None where it passes over it."""
        reading = _lint.read_at_first_dot(seen, self.complaints)
        if reading is None:
            return None
        self._check(seen, reading[1])
        return reading[0], reading[1].lower()

    def _check(self, seen: Seen, field: str) -> None:
        lower = field.lower()
        rules = {
            UPPER: field != lower,
            RESERVED: lower in ("__key__", "__url__"),
            BAD: lower == "__bad__" and seen.member.num_bytes > 0,
            LOCAL_PATH: lower == "__local_path__",
            UNDERSCORE: lower.startswith("_")
            and not is_hidden(seen.name)
            and lower not in ("__key__", "__url__", "__bad__", "__local_path__"),
            _lint.BAD_UTF8: not seen.is_utf8,
        }
        for rule, applies in rules.items():
            if applies:
                self.complaints.add(rule, seen.at)

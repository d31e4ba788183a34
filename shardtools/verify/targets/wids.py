"""What wids makes of tars, which it maps instead of streaming. Source: wids 0.1.11, wids_mmtar.py and wids.py."""

from shardtools.datasets import Shard
from shardtools.verify.targets import _lint
from shardtools.verify.targets._complaints import At, Complaints, Rule
from shardtools.verify.targets._members import NAME_BYTES, Seen
from shardtools.verify.targets._spellings import Spellings
from shardtools.verify.targets.webdataset import SAME_BASENAME, SameBasenames

NO_DOT = Rule("target-drops", "without a dot in the name as it reads it, which it passes over")
CUT_NAME = Rule(
    "target-merges", "whose name does not fit the header's name field: it reads what is there, and what then looks alike becomes one"
)
FOLDER_DOT = Rule("target-merges", "without a dot in the file's name but with one in the folder's: those of one folder become one sample")
BAD_UTF8 = Rule("target-rejects", "whose names are no UTF-8, where it stops")
NEWLINE = Rule("target-rejects", "with a line break in the name, where it stops")
BIG = Rule("target-rejects", "of 8 GiB or more, whose size it cannot read")
SAME_NAME = Rule("target-merges", "whose name the shard has already: it keeps the last, and the samples after it shift")
GZIP = Rule("target-rejects", "that are compressed, where it stops", "shard")

_MAX_BYTES = 8**11


class Wids:
    """Its rules. Memory: 32 bytes for each member of a shard."""

    def __init__(self) -> None:
        self.complaints = Complaints("wids")
        self._names: set[int] = set()
        self._basenames = SameBasenames()
        self._spellings = Spellings(self.complaints)

    def begin(self, shard: Shard, uri: str) -> None:
        if shard.compression is not None:
            self.complaints.add(GZIP, At(shard.name))
        if self._basenames.is_repeat(shard.name):
            self.complaints.add(SAME_BASENAME, At(shard.name))

    def see(self, seen: Seen) -> None:
        name = seen.name if seen.is_plain else self._read(seen)
        if name is None:
            return
        if (digest := hash(name)) in self._names:
            self.complaints.add(SAME_NAME, seen.at)
        self._names.add(digest)
        self._spellings.add(seen.field, seen)

    def end(self, shard: Shard) -> None:
        self._names.clear()

    def remarks(self) -> tuple[str, ...]:
        return ("wids delivers every field with a dot before its name (.jpg).",)

    def _read(self, seen: Seen) -> str | None:
        """The name as it stands in the header, which is all that is looked at; None where no sample comes of it."""
        if _lint.is_passed_over(seen, self.complaints):
            return None
        if seen.member.num_bytes >= _MAX_BYTES:
            self.complaints.add(BIG, seen.at)
            return None
        stored = seen.header[:NAME_BYTES].rstrip(b"\0")
        try:
            name = stored.decode().strip("\0")
        except UnicodeDecodeError:
            self.complaints.add(BAD_UTF8, seen.at)
            return None
        if name != seen.name and "." in name:
            self.complaints.add(CUT_NAME, seen.at)
        return self._grouped(seen, name)

    def _grouped(self, seen: Seen, name: str) -> str | None:
        base = name[name.rfind("/") + 1 :]
        if "." not in name:
            self.complaints.add(NO_DOT, seen.at)
            return None
        if "\n" in name:
            self.complaints.add(NEWLINE, seen.at)
            return None
        if base.startswith("."):
            self.complaints.add(_lint.HIDDEN_MERGED, seen.at)
        elif "." not in base:
            self.complaints.add(FOLDER_DOT, seen.at)
        return name

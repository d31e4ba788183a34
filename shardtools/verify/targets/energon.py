"""What Megatron-Energon makes of tars. Source: megatron-energon 7.4.1, prepare.py, itar_reader.py, itar.py, indexing.py."""

from shardtools.datasets import Shard
from shardtools.verify.targets import _lint
from shardtools.verify.targets._complaints import At, Complaints, Rule
from shardtools.verify.targets._members import Runs, Seen
from shardtools.verify.targets._spellings import Spellings

RESERVED = Rule("target-rejects", "named like its own fields (__key__, __shard__, __restore_key__, __sources__), where it stops")
FIELD_TWICE = Rule("target-merges", "that repeat a field of their sample, of which it keeps the last")
BAD_UTF8 = Rule("target-rejects", "whose names are no UTF-8, which its index cannot hold")
GZIP = Rule("target-rejects", "that are compressed, which its random access refuses", "shard")
NOT_LISTED = Rule("target-drops", "whose name does not end in .tar or .tgz, which energon prepare does not look for", "shard")
KEY_TWICE = Rule("target-rejects", "whose key another sample has, where energon prepare ends with an error", "sample")

_RESERVED = ("__key__", "__shard__", "__restore_key__", "__sources__")
_ADVISED_SHARDS = 10_000


class Energon:
    """Its rules but for keys that occur twice, which are found over the whole dataset."""

    def __init__(self) -> None:
        self.complaints = Complaints("energon")
        self._runs = Runs()
        self._spellings = Spellings(self.complaints)
        self._num_shards = 0

    def begin(self, shard: Shard, uri: str) -> None:
        self._num_shards += 1
        if not shard.name.endswith((".tar", ".tgz")):
            self.complaints.add(NOT_LISTED, At(shard.name))
        elif shard.compression is not None:
            self.complaints.add(GZIP, At(shard.name))

    def see(self, seen: Seen) -> None:
        reading = (seen.key, seen.field) if seen.is_plain else self._read(seen)
        if reading is None:
            return
        if not self._runs.take(*reading):
            self.complaints.add(FIELD_TWICE, seen.at)
        self._spellings.add(reading[1], seen)

    def end(self, shard: Shard) -> None:
        if not self._runs.end_shard():
            self.complaints.add(_lint.EMPTY, At(shard.name))

    def remarks(self) -> tuple[str, ...]:
        if self._num_shards > _ADVISED_SHARDS:
            return (f"Energon's makers advise fewer than {_ADVISED_SHARDS:,} shards, and here are {self._num_shards:,}.",)
        return ()

    def _read(self, seen: Seen) -> tuple[str, str] | None:
        reading = _lint.read_at_first_dot(seen, self.complaints)
        if reading is None:
            return None
        if reading[1] in _RESERVED:
            self.complaints.add(RESERVED, seen.at)
        if not seen.is_utf8:
            self.complaints.add(BAD_UTF8, seen.at)
        return reading

"""Shards that may be one dataset together: each sound, none there twice, no key in two of them."""

from collections.abc import Iterator, Sequence

from shardtools.build.examine import Candidate, Examined, ExamineShard
from shardtools.datasets import Dataset
from shardtools.duplicates import key_digest, repeats
from shardtools.engines import Engine, Report
from shardtools.engines.processes import Processes, num_cores
from shardtools.engines.serial import Serial
from shardtools.errors import DuplicateKeyError, ShardtoolsError
from shardtools.formats import Audit, Fault
from shardtools.formats.mds import Mds
from shardtools.storage import open_storage
from shardtools.units import plural

# Starting worker processes takes longer than reading this much.
_WORTH_WORKERS_BYTES = 256 << 20


class UnsoundShardsError(ShardtoolsError):
    """Shards that must not become part of a dataset; ``faults`` has a sentence for each."""

    def __init__(self, faults: Sequence[str]) -> None:
        more = "" if len(faults) == 1 else f" (and {plural(len(faults) - 1, 'more unsound shard')})"
        super().__init__(f"{faults[0]}{more}; restore what is damaged and run the same command again")
        self.faults = tuple(faults)


def fitting_engine(workers: int | None, candidates: Sequence[Candidate]) -> Engine:
    """So many worker processes; None: one for each core where there is enough to read, else none."""
    num_bytes = sum(open_storage(candidate.uri).num_bytes(candidate.shard.name) or 0 for candidate in candidates)
    if workers == 1 or len(candidates) < 2 or (workers is None and num_bytes < _WORTH_WORKERS_BYTES):
        return Serial()
    return Processes(min(workers or num_cores(), len(candidates)))


def admit(candidates: Sequence[Candidate], engine: Engine, on_progress: Report) -> list[Examined]:
    """Every shard, examined, in the given order.

    Raises UnsoundShardsError, DuplicateKeyError, and ShardtoolsError for a shard that is there twice. Memory: 24 bytes a sample.
    """
    order = {candidate.place: i for i, candidate in enumerate(candidates)}
    found: list[Examined] = []
    engine.run(ExamineShard(), candidates, on_progress, found.append)
    examined = sorted(found, key=lambda one: order[one.candidate.place])
    faults = [one.fault for one in examined if one.fault is not None]
    if faults:
        raise UnsoundShardsError(faults)
    _refuse_same_shards(examined)
    _refuse_repeats(examined)
    return examined


def _refuse_same_shards(examined: Sequence[Examined]) -> None:
    known: dict[str, str] = {}
    for one in examined:
        other = known.setdefault(one.facts.sha256, one.candidate.place)
        if other != one.candidate.place:
            raise ShardtoolsError(
                f"expected every shard once, got {other} and {one.candidate.place} with the same bytes; leave one of the two out"
            )


def _refuse_repeats(examined: Sequence[Examined]) -> None:
    """Raises DuplicateKeyError that names both places of the first key found twice."""
    for digest in repeats([one.keys for one in examined]):
        first_place: dict[str, str] = {}
        for one in examined:
            for key, place in _places(one, digest) if one.keys.between(digest, None)[:1] == [digest] else ():
                if key in first_place:
                    raise DuplicateKeyError(
                        f"expected every key once, got {key!r} in {first_place[key]} and in {place}; remove one of the two samples"
                    )
                first_place[key] = place


def _places(one: Examined, digest: bytes) -> Iterator[tuple[str, str]]:
    """The samples of a shard whose keys have the digest."""
    shard = one.candidate.shard
    opened = Dataset(one.candidate.uri, "", (), (), None)
    shard_format = Mds(key_column=one.key_column) if isinstance(shard.format, Mds) else shard.format
    for sample in shard_format.audit(opened.unpacked(shard, opened.stored(shard)), Audit(_ignore)):
        if key_digest(sample.key.encode("utf-8", "surrogateescape")) == digest:
            yield sample.key, f"{one.candidate.place} at byte {sample.offset}"


def _ignore(fault: Fault) -> None:
    """A fault would have been found when the shard was examined."""

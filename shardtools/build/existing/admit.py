"""Shards that may be one dataset together: each sound, none there twice, no key in two of them."""

from collections.abc import Iterator, Sequence

from shardtools.build.existing.examine import Candidate, Examined, ExamineShard
from shardtools.duplicates import key_digest, repeats
from shardtools.engines import Engine, Report
from shardtools.errors import DuplicateKeyError, ShardtoolsError
from shardtools.units import plural


class UnsoundShardsError(ShardtoolsError):
    """Shards that must not become part of a dataset; ``faults`` has a sentence for each."""

    def __init__(self, faults: Sequence[str]) -> None:
        more = "" if len(faults) == 1 else f" (and {plural(len(faults) - 1, 'more unsound shard')})"
        super().__init__(faults[0] + more)
        self.faults = tuple(faults)


def admit(candidates: Sequence[Candidate], engine: Engine, on_progress: Report) -> list[Examined]:
    """The shards of one dataset: ``sound_shards``, and no key in two of them."""
    examined = sound_shards(candidates, engine, on_progress)
    refuse_repeats(examined)
    return examined


def sound_shards(candidates: Sequence[Candidate], engine: Engine, on_progress: Report) -> list[Examined]:
    """Every shard, examined, in the given order.

    Raises UnsoundShardsError, and ShardtoolsError for a shard that is there twice. Memory: 24 bytes a sample.
    """
    order = {candidate.place: i for i, candidate in enumerate(candidates)}
    found: list[Examined] = []
    engine.run(ExamineShard(), candidates, on_progress, found.append)
    examined = sorted(found, key=lambda one: order[one.candidate.place])
    faults = [one.fault for one in examined if one.fault is not None]
    if faults:
        raise UnsoundShardsError(faults)
    _refuse_same_shards(examined)
    return examined


def _refuse_same_shards(examined: Sequence[Examined]) -> None:
    known: dict[str, str] = {}
    for one in examined:
        other = known.setdefault(one.facts.sha256, one.candidate.place)
        if other != one.candidate.place:
            raise ShardtoolsError(
                f"expected every shard once, got {other} and {one.candidate.place} with the same bytes; leave one of the two out"
            )


def refuse_repeats(examined: Sequence[Examined], remedy: str = "remove one of the two samples") -> None:
    """Raises DuplicateKeyError that names both places of the first key found twice, and ends in the remedy."""
    for digest in repeats([one.keys for one in examined]):
        first_place: dict[str, str] = {}
        for one in examined:
            for key, place in _places(one, digest) if one.keys.between(digest, None)[:1] == [digest] else ():
                if key in first_place:
                    raise DuplicateKeyError(f"expected every key once, got {key!r} in {first_place[key]} and in {place}; {remedy}")
                first_place[key] = place


def _places(one: Examined, digest: bytes) -> Iterator[tuple[str, str]]:
    """The samples of a shard whose keys have the digest."""
    shard, folder = one.candidate.shard, one.candidate.folder
    for sample in folder.salvaged(shard, folder.unpacked(shard, folder.stored(shard))):
        if key_digest(sample.key.encode("utf-8", "surrogateescape")) == digest:
            yield sample.key, f"{one.candidate.place} at byte {sample.offset}"

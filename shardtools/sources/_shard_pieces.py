"""Pieces: runs of neighbouring samples of one shard, what partitions of shards are made of."""

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardtools.extents import extent, identity, version
from shardtools.sources._shard_inputs import SourceShard

PIECE_BYTES = 16 << 20
"""Pieces that can be read by themselves are about so large: what a worker holds of the input at a time."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One extent. What is not known is None."""

    name: str
    """Of the shard's file, below the input."""
    root: int
    number: int
    """Of the shard, over all inputs."""
    begin: int
    end: int | None
    """Its samples are those from ``begin`` to before ``end`` of the shard, None: all from there on."""
    first_byte: int | None
    end_byte: int | None
    """Where they lie, in tars with known offsets."""
    num_samples: int | None
    """Of the whole shard."""
    num_bytes: int
    """Of the stored file."""
    raw_bytes: int | None
    """Of the uncompressed shard, where it is compressed and an index tells."""
    compression: str | None
    is_keyless: bool
    version: str = ""

    @property
    def count(self) -> int | None:
        """How many samples it has."""
        return None if self.end is None else self.end - self.begin

    @property
    def is_whole(self) -> bool:
        """It is the whole shard."""
        return self.begin == 0 and self.end == self.num_samples

    def packed(self) -> bytes:
        numbers = (self.root, self.number, self.begin, self.end, self.first_byte, self.end_byte, self.num_samples, self.num_bytes)
        texts = [b"" if number is None else b"%d" % number for number in (*numbers, self.raw_bytes, int(self.is_keyless))]
        return extent([os.fsencode(self.name), *texts, (self.compression or "").encode()], self.version.encode())

    @classmethod
    def unpacked(cls, packed: bytes) -> "Piece":
        name, *texts, compression = identity(packed).split(b"\0")
        numbers = [int(text) if text else None for text in texts]
        root, number, begin, end, first_byte, end_byte, num_samples, num_bytes, raw_bytes, is_keyless = numbers
        assert root is not None and number is not None and begin is not None and num_bytes is not None, "as packed"
        return cls(
            os.fsdecode(name),
            root,
            number,
            begin,
            end,
            first_byte,
            end_byte,
            num_samples,
            num_bytes,
            raw_bytes,
            compression.decode() or None,
            bool(is_keyless),
            version(packed).decode(),
        )


@dataclass(frozen=True)
class Run:
    """Some samples of a shard, or all of them where ``end`` is None."""

    source: SourceShard
    begin: int
    end: int | None

    @property
    def num_bytes(self) -> int:
        return self.source.bytes_of(self.begin, self.end)

    @property
    def num_samples(self) -> int | None:
        return None if self.end is None else self.end - self.begin

    def pieces(self) -> Iterator[Piece]:
        """In order, each at most PIECE_BYTES where the shard can be cut and its samples are no larger."""
        if self.end is None or not self.source.can_be_cut:
            yield self._piece(self.begin, self.end)
            return
        begin = self.begin
        while begin < self.end:
            end = min(begin + rows_within(self.source, begin, PIECE_BYTES), self.end)
            yield self._piece(begin, end)
            begin = end

    def _piece(self, begin: int, end: int | None) -> Piece:
        source, shard = self.source, self.source.shard
        offsets = source.offsets if source.can_be_cut else None
        return Piece(
            name=source.name,
            root=source.root,
            number=shard.index,
            begin=begin,
            end=end,
            first_byte=None if offsets is None or end is None else offsets[begin],
            end_byte=None if offsets is None or end is None else offsets[end],
            num_samples=shard.num_samples,
            num_bytes=source.num_bytes,
            raw_bytes=None if shard.compression is None or shard.entry is None else shard.entry.raw.num_bytes,
            compression=shard.compression,
            is_keyless=shard.is_keyless,
            version=source.version,
        )


def rows_within(source: SourceShard, begin: int, num_bytes: int) -> int:
    """How many samples from ``begin`` on take at most so much, but one at least."""
    if source.offsets is not None:
        return max(1, bisect_right(source.offsets, source.offsets[begin] + num_bytes, begin) - 1 - begin)
    return max(1, num_bytes * (source.shard.num_samples or 1) // max(1, source.raw_bytes))


def cut_by_bytes(shards: Sequence[SourceShard], sizes: Iterator[int]) -> Iterator[list[Run]]:
    """Runs of about ``sizes`` bytes each; a shard that cannot be cut is in one of them as a whole."""
    runs: list[Run] = []
    goal, done = next(sizes), 0
    for source in shards:
        begin, count = 0, source.shard.num_samples
        while count is None or begin < count:
            rest = Run(source, begin, count)
            room = goal - done
            if rest.num_bytes > room and not source.can_be_cut and runs and 2 * room < rest.num_bytes:
                yield runs  # less would be too much by leaving the shard out than by taking it
                runs, goal = [], max(goal, done) + next(sizes)
                continue
            if rest.num_bytes > room and source.can_be_cut:
                rest = Run(source, begin, min(begin + rows_within(source, begin, max(room, 1)), count or 0))
            runs.append(rest)
            done += rest.num_bytes
            begin = rest.end if rest.end is not None else begin
            if done >= goal or (rest.end is not None and rest.end != count):
                yield runs
                runs, goal = [], max(goal, done) + next(sizes)
            if rest.end is None:
                break
    if runs:
        yield runs


def cut_by_samples(shards: Sequence[SourceShard], num_samples: int, target_bytes: int) -> Iterator[list[Run]]:
    """Runs of a multiple of ``num_samples`` samples, all but the last, of about ``target_bytes`` each; every count is known."""
    counts = [source.shard.num_samples or 0 for source in shards]
    mean = sum(source.raw_bytes for source in shards) / max(1, sum(counts))
    share = num_samples * max(1, round(target_bytes / max(mean, 1) / num_samples))
    runs: list[Run] = []
    room = share
    for source, count in zip(shards, counts, strict=True):
        begin = 0
        while begin < count:
            end = min(begin + room, count)
            runs.append(Run(source, begin, end))
            room -= end - begin
            begin = end
            if room == 0:
                yield runs
                runs, room = [], share
    if runs:
        yield runs

"""Runs of rows cut into partitions: whole where bytes decide, and within where a number of rows does."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Span(Protocol):
    """Rows of a file that follow each other."""

    @property
    def num_rows(self) -> int: ...

    @property
    def num_bytes(self) -> int: ...


_S = TypeVar("_S", bound=Span)


@dataclass(frozen=True)
class Cut(Generic[_S]):
    """What one partition is made of."""

    parts: list[tuple[_S, int, int]]
    """Spans, each with the first of its rows and the one behind the last."""
    num_bytes: int
    num_rows: int


def cut_by_bytes(spans: Sequence[_S], sizes: Iterator[int]) -> Iterator[Cut[_S]]:
    """Partitions of whole spans that hold as many bytes as ``sizes`` say, or up to a span more."""
    parts: list[tuple[_S, int, int]] = []
    num_bytes = num_rows = 0
    room = next(sizes)
    for span in spans:
        parts.append((span, 0, span.num_rows))
        num_bytes += span.num_bytes
        num_rows += span.num_rows
        if num_bytes >= room:
            yield Cut(parts, num_bytes, num_rows)
            parts, num_bytes, num_rows, room = [], 0, 0, next(sizes)
    if parts:
        yield Cut(parts, num_bytes, num_rows)


def cut_by_rows(spans: Sequence[_S], shard_samples: int, partition_bytes: int) -> Iterator[Cut[_S]]:
    """Partitions of a multiple of ``shard_samples`` rows, but for the last one, that hold so many bytes or a little more."""
    parts: list[tuple[_S, int, int]] = []
    num_bytes = num_rows = 0
    for span in spans:
        begin = 0
        while begin < span.num_rows:
            wanted = max(1, -(-(partition_bytes - num_bytes) * span.num_rows // max(span.num_bytes, 1)))
            wanted += -(num_rows + wanted) % shard_samples
            end = min(begin + wanted, span.num_rows)
            parts.append((span, begin, end))
            num_bytes += span.num_bytes * (end - begin) // span.num_rows
            num_rows += end - begin
            begin = end
            if num_rows % shard_samples == 0 and num_bytes >= partition_bytes:
                yield Cut(parts, num_bytes, num_rows)
                parts, num_bytes, num_rows = [], 0, 0
    if parts:
        yield Cut(parts, num_bytes, num_rows)

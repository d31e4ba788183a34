"""A spill: all samples that one partition came to, parted into segments that are read apart.

Segments are written in runs, each of as many samples as memory may hold, so that a segment number has as many segments as there
are runs. Behind them lies the index: for each segment number, for each run, four ``<u8``: where the frame begins, its length, about
how much memory its samples take, how many there are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shardtools.build.stages.segments import Samples, Words
from shardtools.formats import Chunk
from shardtools.storage import ObjectWriter, Storage

RUN_BYTES = 64 << 20
"""How much one partition holds in memory before it is written."""
_SAMPLE_BYTES = 400
"""About what a sample takes in memory beside its stored bytes, before it is written."""
_SORTED_BYTES = 120
"""The same where samples are sorted."""
_ENTRY = 4
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SpillFacts:
    """What is needed to read one."""

    name: str
    num_bytes: int
    index_begin: int
    num_runs: int


class Frame(NamedTuple):
    """Where one segment of one run lies."""

    spill: SpillFacts
    begin: int
    num_bytes: int
    memory_bytes: int
    num_samples: int


class SpillWriter:
    """Takes encoded samples in the order of their rows. Memory: RUN_BYTES, and as much again while they are written."""

    def __init__(self, name: str, output: ObjectWriter, num_segments: int) -> None:
        self._name = name
        self._output = output
        self._num_segments = num_segments
        self._held: list[tuple[Chunk, Words, Numbers]] = []
        self._held_bytes = 0
        self._num_rows = 0
        self._num_written = 0
        self._runs: list[npt.NDArray[np.uint64]] = []

    def add(self, chunk: Chunk, words: Words, segments: Numbers) -> None:
        """Samples with the word and the segment of each."""
        self._held.append((chunk, words, segments))
        self._held_bytes += sum(chunk.costs) + _SAMPLE_BYTES * len(chunk.keys)
        if self._held_bytes >= RUN_BYTES:
            self._flush()

    def finish(self) -> SpillFacts:
        self._flush()
        index = np.stack(self._runs, 1) if self._runs else np.zeros((self._num_segments, 0, _ENTRY), np.uint64)
        facts = SpillFacts(self._name, self._num_written + index.nbytes, self._num_written, len(self._runs))
        self._output.write(index.astype("<u8").tobytes())
        self._output.finish()
        return facts

    def abort(self) -> None:
        self._output.abort()

    def _flush(self) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        num_samples = sum(len(words) for _, words, _ in held)
        if not num_samples:
            return
        run = _Run.of(held, self._num_rows)
        del held
        entries = np.zeros((self._num_segments, _ENTRY), np.uint64)
        order = np.argsort(run.segments, kind="stable")
        bounds = np.searchsorted(run.segments[order], np.arange(self._num_segments + 1))
        for segment, (begin, end) in enumerate(pairwise(bounds.tolist())):
            if begin < end:
                samples = run.taken(order[begin:end])
                frame = samples.packed()
                self._output.write(frame)
                entries[segment] = self._num_written, len(frame), samples.data.nbytes + _SORTED_BYTES * (end - begin), end - begin
                self._num_written += len(frame)
        self._runs.append(entries)
        self._num_rows += num_samples


@dataclass(frozen=True)
class _Run:
    """The samples of one run, in the order of their rows."""

    first_row: int
    words: Words
    segments: Numbers
    costs: Words
    lengths: Words
    piece_ends: list[int]
    pieces: list[bytes]
    keys: list[bytes]
    field_sets: Numbers
    names: list[str]

    @classmethod
    def of(cls, held: Sequence[tuple[Chunk, Words, Numbers]], first_row: int) -> "_Run":
        pieces = [piece for chunk, _, _ in held for piece in chunk.pieces]
        keys = [key for chunk, _, _ in held for key in chunk.keys]
        ends: list[int] = []
        first = 0
        for chunk, _, _ in held:
            ends += [first + end for end in chunk.ends]
            first += len(chunk.pieces)
        piece_bytes = np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)))
        sample_ends = piece_bytes[np.array(ends, np.int64) - 1]
        names: dict[str, int] = {}
        field_sets = [names.setdefault(name, len(names)) for chunk, _, _ in held for name in chunk.field_sets]
        return cls(
            first_row,
            np.concatenate([words for _, words, _ in held]),
            np.concatenate([segments for _, _, segments in held]),
            np.array([cost for chunk, _, _ in held for cost in chunk.costs], np.uint64),
            np.diff(sample_ends, prepend=0).astype(np.uint64),
            [0, *ends],
            pieces,
            keys,
            np.array(field_sets, np.int64),
            list(names),
        )

    def taken(self, chosen: Numbers) -> Samples:
        pieces, ends, parts = self.pieces, self.piece_ends, list[bytes]()
        indices = chosen.tolist()
        for i in indices:
            parts += pieces[ends[i] : ends[i + 1]]
        keys = [self.keys[i] for i in indices]
        return Samples(
            self.words[chosen],
            (chosen + self.first_row).astype(np.uint64),
            self.costs[chosen],
            self.lengths[chosen],
            np.fromiter(map(len, keys), np.uint32, len(keys)),
            self.field_sets[chosen].astype(np.uint32),
            self.names,
            b"".join(keys),
            memoryview(b"".join(parts)),
        )


def frames(storage: Storage, spill: SpillFacts, segments: range) -> Iterator[list[Frame]]:
    """For each segment number what the spill has of it, run by run. Reads that part of the index."""
    row_bytes = spill.num_runs * _ENTRY * 8
    data = bytearray(len(segments) * row_bytes)
    if data:
        storage.read_into(spill.name, memoryview(data), spill.index_begin + segments.start * row_bytes)
    for of_segment in np.frombuffer(data, "<u8").reshape(len(segments), spill.num_runs, _ENTRY).tolist():
        yield [Frame(spill, *entry) for entry in of_segment if entry[-1]]


def read_frame(storage: Storage, frame: Frame) -> Samples:
    """Raises StorageError for a spill that was damaged, or removed by another run."""
    data = bytearray(frame.num_bytes)
    storage.read_into(frame.spill.name, memoryview(data), frame.begin)
    return Samples.unpacked(data, f"{storage.uri}/{frame.spill.name}")

"""Stops a spill that loses samples, their order or their bytes, and one that is damaged without anyone noticing."""

import random

import numpy as np
import pytest

from shardtools.build.stages import segments as segments_module
from shardtools.build.stages import spill as spill_module
from shardtools.build.stages.layout import ScatterLayout
from shardtools.build.stages.segments import Samples, in_order
from shardtools.build.stages.sizes import Sizes, Tally
from shardtools.build.stages.spill import SpillWriter, frames, read_frame
from shardtools.errors import StorageError
from shardtools.formats import Chunk
from shardtools.storage import open_storage


def make_chunks(count: int, seed: int = 1) -> list[Chunk]:
    """Samples of one to three pieces, some of them empty, in chunks of one to nine."""
    numbers, chunks, begin = random.Random(seed), [], 0
    while begin < count:
        size = min(numbers.randint(1, 9), count - begin)
        pieces, ends = [], []
        for _ in range(size):
            pieces += [numbers.randbytes(numbers.choice((0, 3, 40))) for _ in range(numbers.randint(1, 3))]
            ends.append(len(pieces))
        keys = [b"k%d" % i for i in range(begin, begin + size)]
        costs = [sum(map(len, pieces[a:b])) + 4 for a, b in zip([0, *ends], ends, strict=False)]
        chunks.append(Chunk(keys, pieces, ends, costs, [numbers.choice(("a", "a,b", "c%2C")) for _ in keys]))
        begin += size
    return chunks


def told(chunks) -> list[tuple[bytes, bytes, int, str]]:
    """Key, stored bytes, cost and field set of each sample."""
    found = []
    for chunk in chunks:
        for i, key in enumerate(chunk.keys):
            pieces = chunk.pieces[chunk.ends[i - 1] if i else 0 : chunk.ends[i]]
            found.append((key, b"".join(pieces), chunk.costs[i], chunk.field_sets[i]))
    return found


@pytest.fixture
def storage(tmp_path):
    return open_storage(str(tmp_path / "out"))


def spilled(storage, chunks, words, numbers, num_segments=5):
    writer = SpillWriter("spill", storage.writer("spill"), num_segments)
    begin = 0
    for chunk in chunks:
        end = begin + len(chunk.keys)
        writer.add(chunk, words[begin:end], numbers[begin:end])
        begin = end
    return writer.finish()


@pytest.mark.parametrize("run_bytes", [1, 2000, 1 << 30])
def test_every_sample_comes_back_in_the_order_of_words_then_partitions_then_rows(storage, monkeypatch, run_bytes):
    monkeypatch.setattr(spill_module, "RUN_BYTES", run_bytes)
    monkeypatch.setattr(segments_module, "_CHUNK_SAMPLES", 13)
    chunks = make_chunks(300)
    generator = np.random.default_rng(2)
    words = generator.integers(0, 40, 300).astype(np.uint64)  # many are equal
    numbers = generator.integers(0, 4, 300)  # the last segment stays empty
    facts = spilled(storage, chunks, words, numbers)
    assert facts.num_bytes == storage.num_bytes("spill")
    expected = told(chunks)
    for segment, of_segment in enumerate(frames(storage, facts, range(5))):
        found = [(0, read_frame(storage, frame)) for frame in of_segment]
        rows = sorted((int(words[row]), row) for row in range(300) if numbers[row] == segment)
        assert told(in_order(found, 0, 10_000)) == [expected[row] for _, row in rows]
        assert told(in_order(found, 3, 17)) == [expected[row] for _, row in rows][3:17]
        assert sum(frame.num_samples for frame in of_segment) == len(rows)


def test_equal_words_are_ordered_by_partition_before_row(storage):
    chunks = make_chunks(10)
    facts = spilled(storage, chunks, np.zeros(10, np.uint64), np.zeros(10, np.int64))
    (frame,) = next(frames(storage, facts, range(1)))
    samples = read_frame(storage, frame)
    assert told(in_order([(5, samples), (2, samples)], 0, 20)) == told(chunks) * 2


def test_a_stretch_of_words_is_a_copy_of_those_samples_alone(storage):
    chunks = make_chunks(100)
    words = np.arange(100, dtype=np.uint64) << np.uint64(57)
    words[5:9] = ((1 << 62) - 1, 1 << 62, (1 << 63) - 1, (1 << 64) - 1)
    facts = spilled(storage, chunks, words, np.zeros(100, np.int64))
    (frame,) = next(frames(storage, facts, range(1)))
    samples = read_frame(storage, frame)
    for low, high in ((0, 1 << 62), (1 << 62, 1 << 63), (1 << 63, 1 << 64)):
        order = sorted(range(100), key=lambda row: (words.tolist()[row], row))
        wanted = [told(chunks)[row] for row in order if low <= words.tolist()[row] < high]
        assert told(in_order([(0, samples.between(low, high))], 0, 100)) == wanted


def test_a_spill_of_nothing_has_no_frames(storage):
    facts = SpillWriter("spill", storage.writer("spill"), 3).finish()
    assert list(frames(storage, facts, range(3))) == [[], [], []]


@pytest.mark.parametrize("place", [0, 20, -1])
def test_changed_bytes_are_noticed(storage, tmp_path, place, one_sentence):
    facts = spilled(storage, make_chunks(50), np.zeros(50, np.uint64), np.zeros(50, np.int64))
    (frame,) = next(frames(storage, facts, range(1)))
    path = tmp_path / "out" / "spill"
    data = bytearray(path.read_bytes())
    data[place % frame.num_bytes] ^= 1
    path.write_bytes(data)
    with pytest.raises(StorageError) as caught:
        read_frame(storage, frame)
    assert "damaged" in one_sentence(caught.value) and "spill" in str(caught.value)


def test_a_frame_is_not_larger_than_what_it_holds():
    samples = Samples(
        *(np.zeros(1000, kind) for kind in ("u8", "u8", "u8", "u8", "u4", "u4")), names=["a"], keys=b"", data=memoryview(bytes(10_000))
    )
    assert len(samples.packed()) < 1000


# What lies in each slice.


def test_slices_of_words_add_up():
    layout = ScatterLayout(seed=1, num_splits=2, bucket_bits=1, slice_bits=3, slice_bytes=1)
    tally = Tally(layout)
    words = np.array([0, 1 << 61, 7 << 61, (1 << 64) - 1], np.uint64)
    tally.add(words, np.array([0, 0, 1, 0]), np.array([5, 6, 7, 8]))
    tally.add(words[:1], np.array([0]), np.array([1]))
    first, second = tally.sizes()
    assert first.counts.tolist() == [2, 1, 0, 0, 0, 0, 0, 1] and first.num_bytes.tolist() == [6, 6, 0, 0, 0, 0, 0, 8]
    assert second.counts.tolist() == [0] * 7 + [1] and second.num_bytes.tolist() == [0] * 7 + [7]
    assert Sizes.of(first.tobytes()).counts.tolist() == first.counts.tolist()
    assert layout.segments(words, np.array([0, 0, 1, 1])).tolist() == [0, 0, 3, 3]


def test_slices_of_bytes_are_the_same_however_samples_come():
    layout = ScatterLayout(seed=None, num_splits=1, bucket_bits=0, slice_bits=0, slice_bytes=10)
    costs = np.array([4, 4, 4, 25, 3, 1])
    whole, single = Tally(layout), Tally(layout)
    whole.add(np.zeros(6, np.uint64), np.zeros(6, np.int64), costs)
    for cost in costs:
        single.add(np.zeros(1, np.uint64), np.zeros(1, np.int64), np.array([cost]))
    for tally in (whole, single):
        (sizes,) = tally.sizes()
        # They begin at 0, 4, 8 | 12 | 37 | 40
        assert sizes.counts.tolist() == [3, 1, 1, 1] and sizes.num_bytes.tolist() == [12, 25, 3, 1]

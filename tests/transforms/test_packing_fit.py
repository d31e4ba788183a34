"""Stops packing that is not best-fit decreasing, that wastes more than it must, or whose time grows with the square of its input."""

import json
import random
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packing_cases import batches, documents, pack, slow_best_fit_decreasing

from shardtools.sample import Batch, Reject
from shardtools.transforms import PartitionWork
from shardtools.transforms._pack_fit import RoomSet, best_fit_decreasing
from shardtools.transforms.packing import Packing


def rows_of(lengths: list[int], seq_len: int) -> list[list[int]]:
    """Lengths by row, rows that are full from the start put apart, since the order among those says nothing."""
    rows = best_fit_decreasing(np.array(lengths, np.int64), seq_len)
    found: dict[int, list[int]] = {}
    for row, length in zip(rows.tolist(), lengths, strict=True):
        found.setdefault(row, []).append(length)
    assert sorted(found) == list(range(len(found)))
    return [sorted(row, reverse=True) for row in found.values()]


@settings(max_examples=300, deadline=None)
@given(data=st.data(), seq_len=st.integers(2, 200))
def test_rows_are_those_of_the_definition(data: st.DataObject, seq_len: int) -> None:
    lengths = data.draw(st.lists(st.integers(1, seq_len), min_size=1, max_size=120))
    assert sorted(rows_of(lengths, seq_len)) == sorted(slow_best_fit_decreasing(lengths, seq_len))


@pytest.mark.parametrize("seq_len", [2, 63, 64, 65, 4095, 4096, 4097, 300_000])
def test_rows_are_those_of_the_definition_at_the_edges_of_words(seq_len: int) -> None:
    numbers = random.Random(seq_len)
    lengths = [min(seq_len, max(1, int(seq_len * numbers.random() ** 3))) for _ in range(400)]
    assert sorted(rows_of(lengths, seq_len)) == sorted(slow_best_fit_decreasing(lengths, seq_len))


def test_best_fit_by_hand() -> None:
    # 6 opens row 0, 5 row 1, 4 fits row 0 exactly, 3 row 1, 2 exactly fills row 1.
    assert best_fit_decreasing(np.array([2, 3, 4, 5, 6]), 10).tolist() == [1, 1, 0, 1, 0]


@settings(max_examples=200, deadline=None)
@given(calls=st.lists(st.tuples(st.booleans(), st.integers(0, 70_000)), max_size=60), asked=st.lists(st.integers(0, 70_000), max_size=20))
def test_the_set_of_rooms_finds_what_a_sorted_list_finds(calls: list[tuple[bool, int]], asked: list[int]) -> None:
    rooms, known = RoomSet(70_000), set[int]()
    for adds, room in calls:
        (rooms.add if adds else rooms.discard)(room)
        (known.add if adds else known.discard)(room)
    for size in [*asked, 0, 70_000]:
        assert rooms.least_from(size) == min((room for room in known if room >= size), default=None)


def padding(lengths: list[int], packing: Packing) -> float:
    """The share of padding in the rows of one partition; the tokens themselves do not matter."""
    work = PartitionWork(0, list[Reject]().append)

    blocks = (lengths[at : at + 500] for at in range(0, len(lengths), 500))
    given = (Batch([b"k"] * len(some), {"tokens": [np.zeros(n, packing.dtype) for n in some]}, str) for some in blocks)
    num_rows = sum(len(batch) for batch in packing.apply(given, work))
    assert packing.seq_len is not None
    return work.counts["padding"] / (num_rows * packing.seq_len)


def test_windows_waste_hardly_more_than_the_whole() -> None:
    """What fits badly waits for the next window: windows packed by themselves leave more than eight times as much."""
    numbers = random.Random(6)
    lengths = [min(512, 1 + int(numbers.lognormvariate(4.5, 1))) for _ in range(12_000)]
    by_itself = sum(padding(lengths[at : at + 500], Packing("bfd", 512)) for at in range(0, len(lengths), 500)) / (len(lengths) / 500)
    windows = padding(lengths, Packing("bfd", 512, window=500))
    assert windows < by_itself / 8
    assert windows < 0.001


def test_rows_left_short_are_filled_by_exchange() -> None:
    """Lengths too alike to fill rows greedily: best-fit decreasing alone leaves 2.6 % here."""
    numbers = random.Random(8)
    lengths = [numbers.randint(90, 250) for _ in range(4000)]
    alone = sum(lengths) / (len(slow_counts(lengths, 1024)) * 1024)
    assert 1 - alone > 0.005
    assert padding(lengths, Packing("bfd", 1024)) < (1 - alone) / 2


def slow_counts(lengths: list[int], seq_len: int) -> list[int]:
    """Room left in each row of best-fit decreasing, by a plain sorted list."""
    rooms: list[int] = []
    for length in sorted(lengths, reverse=True):
        fitting = [room for room in rooms if room >= length]
        if fitting:
            rooms.remove(min(fitting))
            rooms.append(min(fitting) - length)
        else:
            rooms.append(seq_len - length)
    return rooms


@pytest.mark.parametrize("lengths", ["all above half", "all alike", "thirds"])
def test_hopeless_lengths_end_and_lose_nothing(lengths: str) -> None:
    numbers = random.Random(3)
    made = {
        "all above half": [numbers.randint(51, 99) for _ in range(700)],
        "all alike": [60] * 700,
        "thirds": [numbers.choice((34, 51, 67)) for _ in range(700)],
    }[lengths]
    packed = pack(Packing("bfd", 100, window=64), batches(documents(made), range(3, 700, 3), has_mask=False))
    assert packed.counts["tokens-stored"] == sum(made)
    assert packed.counts["rows"] <= len(made)


def test_time_grows_with_the_input_and_not_its_square() -> None:
    """CPU time, so that other processes do not count: 8 times the pieces may take 8 times as long, not 64 times."""
    lengths = np.random.default_rng(4).integers(1, 30_000, 64_000)

    def seconds(some: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> float:
        taken = []
        for _ in range(3):
            begin = time.process_time()
            best_fit_decreasing(some, 30_000)
            taken.append(time.process_time() - begin)
        return min(taken)

    assert seconds(lengths) < 24 * seconds(lengths[:8000])


@pytest.fixture(scope="module")
def corpus_lengths(corpora: Path) -> list[int]:
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    tokenizer = tokenizers.Tokenizer.from_file(str(corpora / "tokenizers/gpt2/tokenizer.json"))
    lengths = []
    for name in ("gsm8k.jsonl", "mixed.jsonl"):
        texts = [json.loads(line)["text"] for line in (corpora / "text" / name).read_bytes().split(b"\n") if line]
        for at in range(0, len(texts), 500):
            lengths += [len(encoding.ids) for encoding in tokenizer.encode_batch_fast(texts[at : at + 500], add_special_tokens=False)]
    return lengths


@pytest.mark.slow
@pytest.mark.parametrize("with_eos", [0, 1])
@pytest.mark.parametrize(("seq_len", "most"), [(2048, 0.001), (8192, 0.005), (2049, 0.001), (4096, 0.002)])
def test_padding_on_real_text(corpus_lengths: list[int], seq_len: int, most: float, with_eos: int) -> None:
    assert padding([n + with_eos for n in corpus_lengths], Packing("bfd", seq_len)) < most

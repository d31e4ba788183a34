"""The delivery is proved by arithmetic without any reader installed; stops padding, empty workers and uneven ranks from being
missed, and notes from being one for every world that was looked at.
"""

import random
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from shardtools.errors import UsageError
from shardtools.verify.delivery import refuse_impossible
from shardtools.verify.delivery._arithmetic import check_arithmetic
from shardtools.verify.delivery._grid import Cell, arithmetic_cells, listed
from shardtools.verify.delivery._webdataset import tally
from shardtools.verify.findings import Findings
from shardtools.verify.options import DeliveryOptions


def arithmetic(format_name, counts, names=None, **options):
    """Notes and findings by kind, and the proof."""
    names = names or [f"shard-{i}" for i in range(len(counts))]
    dataset = SimpleNamespace(format_name=format_name, shards=[SimpleNamespace(name=name) for name in names])
    stored = SimpleNamespace(dataset=dataset, counts=tuple(counts), num_samples=sum(counts))
    findings = Findings(100)
    proof = check_arithmetic(stored, arithmetic_cells(DeliveryOptions(**options)), findings)
    found = findings.all()
    assert len({finding.kind for finding in found}) == len(found)
    return {finding.kind: finding.detail for finding in found}, proof


def test_equal_shards_in_a_multiple_of_the_readers_are_exact_and_even():
    found, proof = arithmetic("wds", [7] * 64)
    assert found == {}
    assert proof.proved == (
        "By the arithmetic of webdataset with split_by_node every sample is delivered exactly once in an epoch for world sizes 1, 2, 4 "
        "and 8 with 0, 1, 2, 4 and 8 workers: each shard goes to exactly one rank and worker.",
    )
    assert proof.not_proved == ("a resume in mid-epoch by webdataset, since it keeps no state",)


def test_workers_without_a_shard_are_one_note_that_says_how_many_shards_are_enough():
    """Five shards over 2 x 4 readers leave three without; over 4 x 1 none."""
    found, _ = arithmetic("wds", [9, 9, 9, 9, 9], world_sizes=(2, 4), num_workers=(1, 4))
    assert found["empty-worker"] == (
        "expected samples for every worker, got 5 shards and workers without any for 2 ranks x 4 workers (3) and 4 ranks x 4 workers (11), "
        "where WebDataset raises 'No samples found' unless it is made with empty_check=False; "
        "16 shards, or a multiple, are enough for all of these"
    )


def test_a_shard_without_samples_leaves_its_worker_empty_too():
    found, _ = arithmetic("wds", [5, 0], world_sizes=(1,), num_workers=(2,))
    assert "1 rank x 2 workers (1)" in found["empty-worker"]


def test_uneven_ranks_are_one_note():
    found, _ = arithmetic("wds", [9, 9, 9, 9, 4], world_sizes=(1, 2, 5), num_workers=(1,))
    assert "uneven ranks for 2 ranks (18 to 22) and 5 ranks (4 to 9); a multiple of 10 shards" in found["uneven-ranks"]


def test_a_shard_listed_twice_is_read_twice():
    found, proof = arithmetic("wds", [9, 9, 9], ["a.tar", "b.tar", "a.tar"], world_sizes=(1,), num_workers=(1,))
    assert found["read-twice"] == "expected every shard once in the list readers walk, got this one 2 times"
    assert proof.proved == () and "an exact epoch, since a shard is listed twice" in proof.not_proved


def test_padding_is_one_note_that_names_the_exact_world_sizes():
    found, proof = arithmetic("mds", [1001])
    assert set(found) == {"padding"}
    assert (
        "world size 2 repeats 1 of 1,001, world size 4 repeats 3 of 1,001 and world size 8 repeats 7 of 1,001; "
        "exact for the world sizes 1, 7, 11, 13, 77, 91, 143 and 1001"
    ) in found["padding"]
    assert proof.proved[0] == (
        "By the arithmetic of StreamingDataset every sample is delivered exactly once in an epoch for world size 1; "
        "world size 2 repeats 1 of 1,001; world size 4 repeats 3 of 1,001; world size 8 repeats 7 of 1,001 (padding)."
    )
    assert "loses nothing and repeats nothing but that padding" in proof.proved[1]


def test_divisible_samples_are_exact_in_every_world():
    found, proof = arithmetic("mds", [5000, 3000])
    assert found == {}
    assert "exactly once in an epoch for world sizes 1, 2, 4 and 8." in proof.proved[0]


def test_fewer_samples_than_readers():
    found, proof = arithmetic("mds", [3], world_sizes=(8,), num_workers=(1, 2))
    assert "world size 8 repeats 5 of 3" in found["padding"]
    assert found["empty-worker"].endswith("got 3 samples and workers without any for 8 ranks x 2 workers")
    assert len(proof.proved) == 1  # there is no middle of the epoch to stop at


def test_a_large_dataset_costs_neither_time_nor_memory():
    began = time.thread_time()
    arithmetic("mds", [10**12])
    arithmetic("wds", [1000] * 100_000)
    assert time.thread_time() - began < 3


def test_nothing_is_proved_of_nothing():
    _, proof = arithmetic("wds", [])
    assert proof.proved == () and proof.not_proved == ("how samples are delivered, since none could be read",)


@pytest.mark.train
def test_the_split_is_that_of_webdataset(webdataset, monkeypatch):
    """Its own splitters, told rank and worker as it reads them: by variables, in one process."""
    for num_shards in (1, 5, 6, 17):
        for cell in (Cell(1, 0), Cell(2, 2), Cell(3, 4), Cell(8, 3)):
            counts = np.arange(1, num_shards + 1)
            table = np.zeros((cell.world_size, cell.num_readers), np.int64)
            for rank in range(cell.world_size):
                for worker in range(cell.num_readers):
                    for name, value in (
                        ("RANK", rank),
                        ("WORLD_SIZE", cell.world_size),
                        ("WORKER", worker),
                        ("NUM_WORKERS", cell.num_readers),
                    ):
                        monkeypatch.setenv(name, str(value))
                    split = list(webdataset.split_by_worker(webdataset.split_by_node(iter(range(num_shards)))))
                    table[rank, worker] = counts[split].sum()
            ranks = table.sum(axis=1)
            assert tally(counts, cell) == ((table == 0).sum(), ranks.min(), ranks.max())


def test_the_tally_counts_what_each_reader_gets():
    """By a table of all readers, filled shard by shard: first a stride of ranks, then each rank's stride of workers."""
    numbers = random.Random(5)
    for _ in range(300):
        counts = [numbers.choice([0, 1, 7]) for _ in range(numbers.randint(1, 30))]
        cell = Cell(numbers.randint(1, 12), numbers.randint(0, 5))
        table = [[0] * cell.num_readers for _ in range(cell.world_size)]
        for shard, count in enumerate(counts):
            table[shard % cell.world_size][shard // cell.world_size % cell.num_readers] += count
        ranks = [sum(row) for row in table]
        assert tally(np.array(counts), cell) == (sum(row.count(0) for row in table), min(ranks), max(ranks)), (counts, cell)


@pytest.mark.parametrize("dataset", [("wds", [100] * 1000), ("mds", [5000, 5000]), ("mds", [10**9])])
@pytest.mark.parametrize(
    "options",
    [
        {"world_sizes": tuple(range(1, 2001)), "num_workers": (0, 1, 2, 4, 8)},
        {"world_sizes": tuple(range(999_001, 1_000_001)), "num_workers": tuple(range(9_991, 10_001))},
        {"world_sizes": (1_000_000,), "num_workers": (10_000,)},
        {"world_sizes": tuple(size for size in range(1, 5041) if 5040 % size == 0)},
    ],
    ids=["many", "large", "largest", "divisors"],
)
def test_the_largest_grids_are_quick(dataset, options):
    """The limits of what is refused; a table of all readers would not fit into memory."""
    refuse_impossible(DeliveryOptions(**options), dataset[0])
    began = time.thread_time()
    arithmetic(*dataset, **options)
    assert time.thread_time() - began < 5


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"world_sizes": (0,)}, "expected world sizes of at least 1, got 0"),
        ({"num_workers": (2, -1)}, "expected 0 workers or more, got -1"),
        ({"reader": "ffcv"}, "expected webdataset or streaming or shardtools for --reader, got 'ffcv'"),
        ({"reader": "streaming"}, "expected the reader of wds, webdataset, got streaming"),
        ({"reader": "webdataset", "factory": "a:b"}, "expected --reader or --dataset, got both"),
        (
            {"world_sizes": (10**23,)},
            "expected world sizes of at most 1,000,000, got 100,000,000,000,000,000,000,000; correct --world-size",
        ),
        ({"world_sizes": (1, 2**63 - 1)}, "expected world sizes of at most 1,000,000, got 9,223"),
        ({"num_workers": (10_001,)}, "expected numbers of workers of at most 10,000, got 10,001; correct --num-workers"),
        (
            {"world_sizes": tuple(range(1, 2001)), "num_workers": tuple(range(500))},
            "expected numbers of worlds (world sizes times numbers of workers) of at most 10,000, got 1,000,000; name fewer",
        ),
        ({"live": True, "world_sizes": (65,)}, "expected world sizes for a live run of at most 64, got 65"),
        ({"live": True, "world_sizes": tuple(range(1, 34)), "num_workers": (0, 1)}, "expected numbers of worlds for a live run"),
        ({"live": True, "world_sizes": (64,), "num_workers": (16,)}, "expected numbers of processes for a live run of at most 1,024"),
        ({"id_of": "a:b"}, "expected --live, --reader or --dataset with --id, got none of them"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_sentence(options, sentence, one_sentence):
    with pytest.raises(UsageError) as refused:
        refuse_impossible(DeliveryOptions(**options), "wds")
    assert one_sentence(refused.value).startswith(sentence)


def test_a_live_run_without_the_readers_names_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    refuse_impossible(DeliveryOptions(), "wds")
    with pytest.raises(UsageError, match=r"pip install 'shardtools\[train\]'"):
        refuse_impossible(DeliveryOptions(live=True), "wds")


def test_the_arithmetic_imports_no_reader():
    code = "import sys, shardtools.verify.delivery; print([name for name in ('torch', 'webdataset', 'streaming') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_long_lists_are_cut():
    assert listed([1]) == "1" and listed([1, 2]) == "1 and 2" and listed([]) == ""
    assert listed(range(14)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more"

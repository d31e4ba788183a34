"""Sound readers, the reference libraries among them, run by real processes and have no findings; stops a proof that accuses
them of what they do on purpose, and one that does not see what is stored twice or named otherwise.
"""

import os
import tarfile
from multiprocessing import shared_memory

import pytest

from shardtools.verify.delivery import _live, _processes

pytestmark = pytest.mark.train

SHARDS = [[f"k{shard * 9 + i:03d}" for i in range(9)] for shard in range(6)]
TWO_BY_TWO = {"world_sizes": (2,), "num_workers": (2,)}


def mosaic_keys(count):
    return [[f"k{i:03d}" for i in range(count)]]


@pytest.mark.slow
def test_a_pattern_of_shards(deliver, tars):
    delivered = deliver(f"{tars}/train-00000{{0..3}}.tar", SHARDS[:4], live=True, **TWO_BY_TWO)
    assert (
        delivered.findings == () and "webdataset, run in real processes, delivered every sample exactly once" in delivered.proof.proved[1]
    )


def test_webdataset(deliver, tars):
    delivered = deliver(tars, live=True, **TWO_BY_TWO)
    assert delivered.findings == ()
    assert delivered.proof.proved[1] == (
        "webdataset, run in real processes, delivered every sample exactly once in each of 2 epochs for 2 ranks x 2 workers."
    )
    assert delivered.proof.not_proved == ("a resume in mid-epoch by webdataset, since it keeps no state",)


@pytest.mark.slow
def test_webdataset_where_some_workers_have_nothing_to_read(deliver, tars):
    """Without workers too: the rank's own process reads."""
    delivered = deliver(tars, reader="webdataset", world_sizes=(1, 2), num_workers=(0, 4))
    assert delivered.kinds == {}
    assert set(delivered.notes) == {"empty-worker"}
    assert "1 rank x 0 workers, 1 rank x 4 workers, 2 ranks x 0 workers and 2 ranks x 4 workers." in delivered.proof.proved[1]


@pytest.mark.slow
def test_streaming_pads_on_purpose(deliver, mosaic):
    """41 samples: exact for one rank, one repeat for two, and both go on after a stop."""
    delivered = deliver(mosaic(41), mosaic_keys(41), live=True, world_sizes=(1, 2), num_workers=(2,))
    assert delivered.kinds == {}
    assert "world size 2 repeats 1 of 41; exact for the world sizes 1 and 41" in delivered.notes["padding"]
    assert [sentence.partition("processes, ")[2] for sentence in delivered.proof.proved[2:]] == [
        "delivered every sample exactly once in each of 2 epochs for 1 rank x 2 workers.",
        "delivered every sample in each of 2 epochs, with padding, for 2 ranks x 2 workers.",
        "delivered the rest and nothing else after a stop in mid-epoch and a resume for 1 rank x 2 workers and 2 ranks x 2 workers.",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_streaming_without_keys_never_writes_into_the_dataset(deliver, mosaic, compression):
    """Samples without a key are named by shard and row; compressed shards are unpacked elsewhere."""
    folder = mosaic(40, keyed=False, compression=compression)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    counts = [int(entry) for entry in _shard_counts(folder)]
    keys = [[f"{shard:05d}/{row:08d}" for row in range(count)] for shard, count in enumerate(counts)]
    delivered = deliver(folder, keys, reader="streaming", **TWO_BY_TWO)
    assert delivered.findings == ()
    assert "exactly once" in delivered.proof.proved[2] and "resume" in delivered.proof.proved[3]
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def _shard_counts(folder):
    import json

    return [entry["samples"] for entry in json.loads((folder / "index.json").read_text())["shards"]]


@pytest.mark.slow
@pytest.mark.parametrize("factory", ["streaming_dataset", "streaming_loader"])
def test_a_streaming_dataset_of_the_user(deliver, mosaic, factory):
    """Its padding is known for what it is, and its state is kept."""
    delivered = deliver(mosaic(41), mosaic_keys(41), factory=f"planted:{factory}", **TWO_BY_TWO)
    assert delivered.kinds == {}
    assert delivered.proof.proved[-1].endswith("a stop in mid-epoch and a resume for 2 ranks x 2 workers.")


@pytest.mark.slow
def test_names_in_shared_memory_are_of_this_run_alone(deliver, mosaic, monkeypatch):
    """The library takes the first number that is free, in a race with every other job of the host."""
    number = 100_000 + os.getpid() % 800_000
    monkeypatch.setattr(_live, "_SHARED_MEMORY_NUMBERS", (number, number + 1))
    (finding,) = deliver(mosaic(40), mosaic_keys(40), factory="planted:tells_its_number", world_sizes=(1,), num_workers=(0,)).findings
    assert finding.detail.endswith(f": RuntimeError: number {number}")
    assert not [name for name in os.listdir("/dev/shm") if name.startswith(f"{number}_")]


def test_what_streaming_leaves_in_shared_memory_is_freed():
    number = 100_000 + os.getpid() % 800_000
    for begin, name in ((number, "locals"), (number + 3, "epoch_data")):
        shared_memory.SharedMemory(f"{begin}_{name}", create=True, size=8).close()
    _processes._free_shared_memory(number)
    assert not [name for name in os.listdir("/dev/shm") if name.startswith((f"{number}_", f"{number + 3}_"))]


@pytest.mark.slow
@pytest.mark.parametrize("factory", ["default_collated", "web_loader"])
def test_a_loader_of_the_user_is_used_as_it_is(deliver, tars, factory):
    """Its own number of workers stands, so that it is run once for each world size."""
    delivered = deliver(tars, factory=f"planted:{factory}", world_sizes=(2,), num_workers=(1, 3))
    assert delivered.kinds == {}
    assert delivered.proof.proved[0].endswith("exactly once in each of 2 epochs for 2 ranks x 2 workers.")


@pytest.mark.slow
def test_a_map_style_dataset_is_read_through_a_distributed_sampler(deliver, tars):
    """54 samples over four ranks: the sampler repeats two, on purpose."""
    delivered = deliver(tars, factory="planted:MapStyle", world_sizes=(4,), num_workers=(1,))
    assert delivered.kinds == {}
    assert delivered.notes["padding"].startswith("expected an epoch of 54 samples, got 2 more for 4 ranks x 1 worker, repeated on purpose")


@pytest.mark.slow
def test_ids_found_by_a_function_of_the_user(deliver, tars):
    assert deliver(tars, factory="planted:Numbers", id_of="planted:key_of_number", **TWO_BY_TWO).findings == ()
    delivered = deliver(tars, factory="planted:Numbers", id_of="planted:wrong_key_of_number", **TWO_BY_TWO)
    assert delivered.kinds == {"unknown-id": 1}
    (finding,) = delivered.findings
    assert finding.detail.startswith("expected ids that are stored keys, got 'number-")
    assert finding.detail.endswith(": 54 of 54 samples in epoch 0 of 2 ranks x 2 workers")


@pytest.mark.slow
def test_a_reader_that_shuffles_must_know_the_epoch(deliver, tars):
    alike = deliver(tars, factory="planted:ShuffledAlike", **TWO_BY_TWO)
    assert alike.kinds == {} and "same in both for 2 ranks x 2 workers" in alike.notes["same-order"]
    assert "same-order" not in deliver(tars, factory="planted:ShuffledAnew", **TWO_BY_TWO).notes


@pytest.mark.slow
def test_a_key_that_is_stored_twice_is_rightly_delivered_twice(deliver, tars):
    """It is a fault of the dataset, which others report; never-read and read-twice are told by how often it is stored."""
    with tarfile.open(tars / "train-000005.tar", "a") as archive:
        archive.add(__file__, "k000.txt")
    stored = [*SHARDS[:5], [*SHARDS[5], "k000"]]
    assert deliver(tars, stored, factory="planted:sound", **TWO_BY_TWO).kinds == {}
    assert deliver(tars, stored, factory="planted:DropsAtShardEnd", **TWO_BY_TWO).keys("never-read")[0] == "k000"


@pytest.mark.slow
def test_many_findings_are_counted_and_some_are_listed(deliver, tars):
    delivered = deliver(tars, limit=5, factory="planted:EveryWorkerReadsAll", **TWO_BY_TWO)
    assert delivered.kinds == {"read-twice": 5}
    assert all("(162 deliveries too many)" in finding.detail for finding in delivered.findings)

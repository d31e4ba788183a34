"""Stops a reader bug from passing for a sound delivery, and from being told as another: each is planted in a reader a user might
have written, run by real processes, and must be found as what it is, with the right ids and who delivered them.

With 2 ranks and 2 workers, of the six shards of nine samples rank 0 has 0, 2 and 4, of which worker 0 has 0 and 4; rank 1 has
1, 3 and 5, of which worker 0 has 1 and 5.
"""

from collections import Counter

import planted
import pytest

pytestmark = pytest.mark.train

SHARDS = [[f"k{shard * 9 + i:03d}" for i in range(9)] for shard in range(6)]
KEYS = [key for keys in SHARDS for key in keys]
READERS = {
    0: "rank 0 worker 0",
    1: "rank 1 worker 0",
    2: "rank 0 worker 1",
    3: "rank 1 worker 1",
    4: "rank 0 worker 0",
    5: "rank 1 worker 0",
}
FOUR = "rank 0 worker 0, rank 0 worker 1, rank 1 worker 0 and rank 1 worker 1"


@pytest.fixture
def find(deliver, tars):
    """What is found with 2 ranks and 2 workers."""
    return lambda reader: deliver(tars, factory=f"planted:{reader}", world_sizes=(2,), num_workers=(2,))


@pytest.mark.slow
def test_a_sound_reader_has_no_findings(find):
    delivered = find("Resumable")
    assert delivered.findings == ()
    assert delivered.proof.proved == (
        "planted:Resumable, run in real processes, delivered every sample exactly once in each of 2 epochs for 2 ranks x 2 workers.",
        "planted:Resumable, run in real processes, delivered the rest and nothing else after a stop in mid-epoch and a resume for "
        "2 ranks x 2 workers.",
    )


def test_every_worker_reads_all(find):
    delivered = find("EveryWorkerReadsAll")
    assert delivered.kinds == {"read-twice": 54}
    assert delivered.keys("read-twice") == KEYS
    assert delivered.detail("read-twice", "k030") == (
        f"expected this sample once in epoch 0 of 2 ranks x 2 workers, got it 4 times, from {FOUR} (162 deliveries too many)"
    )


@pytest.mark.slow
def test_split_by_rank_only(find):
    delivered = find("SplitByRankOnly")
    assert delivered.keys("read-twice") == KEYS and delivered.kinds == {"read-twice": 54}
    for shard, keys in enumerate(SHARDS):
        for key in keys:
            assert f"2 times, from rank {shard % 2} worker 0 and rank {shard % 2} worker 1 (54" in delivered.detail("read-twice", key)


@pytest.mark.slow
def test_split_by_worker_only(find):
    delivered = find("SplitByWorkerOnly")
    assert delivered.keys("read-twice") == KEYS and delivered.kinds == {"read-twice": 54}
    for shard, keys in enumerate(SHARDS):
        for key in keys:
            assert f"2 times, from rank 0 worker {shard % 2} and rank 1 worker {shard % 2} (54" in delivered.detail("read-twice", key)


def test_unseeded_shuffle_before_the_split(find):
    """The number of deliveries is right: only the ids tell."""
    sources = {}
    for rank in (0, 1):
        for worker in (0, 1):
            for keys in planted.unseeded_order(SHARDS, rank, worker)[rank::2][worker::2]:
                sources.setdefault(keys[0], []).append(f"rank {rank} worker {worker}")
    times = Counter({keys[0]: len(sources.get(keys[0], [])) for keys in SHARDS})
    twice = [key for keys in SHARDS for key in keys if times[keys[0]] > 1]
    never = [key for keys in SHARDS for key in keys if times[keys[0]] == 0]
    assert sum(times.values()) == 6 and twice and never
    delivered = find("UnseededShuffle")
    assert delivered.keys("read-twice") == twice
    assert delivered.keys("never-read") == never
    for keys in SHARDS:
        if times[keys[0]] > 1:
            assert f"{times[keys[0]]} times, from {' and '.join(sources[keys[0]])} (" in delivered.detail("read-twice", keys[3])


def test_one_sample_dropped_at_the_end_of_every_shard(find):
    delivered = find("DropsAtShardEnd")
    assert delivered.kinds == {"never-read": 6}
    assert delivered.keys("never-read") == ["k008", "k017", "k026", "k035", "k044", "k053"]
    for shard, keys in enumerate(SHARDS):
        assert delivered.detail("never-read", keys[-1]) == (
            "expected this sample once in epoch 0 of 2 ranks x 2 workers, got it never; "
            f"the sample before it in the shard came from {READERS[shard]} (6 missing)"
        )


@pytest.mark.slow
def test_samples_dropped_before_the_end_are_no_lost_tail(find):
    """Every batch is full and less than a batch of each worker is missing, but more comes after what is."""
    delivered = find("drops_at_shard_end")
    assert delivered.kinds == {"never-read": 6}
    assert delivered.keys("never-read") == ["k008", "k017", "k026", "k035", "k044", "k053"]


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["drop_last", "FullBatchesOnly"])
def test_drop_last(find, reader):
    """Batches of four: two of the 18 samples are over where a worker has two shards, one of the nine where it has one."""
    delivered = find(reader)
    assert delivered.kinds == {"lost-tail": 6}
    assert delivered.keys("lost-tail") == ["k026", "k035", "k043", "k044", "k052", "k053"]
    assert "came from rank 1 worker 1 (6 missing)" in delivered.detail("lost-tail", "k035")


@pytest.mark.slow
def test_drop_last_of_a_shuffled_pipeline(find):
    """Which samples are lost changes from epoch to epoch, so that both epochs name theirs."""
    delivered = find("webdataset_batches")
    assert set(delivered.kinds) == {"lost-tail"}
    assert 6 < delivered.kinds["lost-tail"] <= 12


@pytest.mark.slow
def test_what_a_sampler_drops_so_that_ranks_are_even_is_a_lost_tail(deliver, tars):
    """54 samples over four ranks: two are left out, other ones in each epoch."""
    delivered = deliver(tars, factory="planted:sampler_drops", world_sizes=(4,), num_workers=(0,))
    assert set(delivered.kinds) == {"lost-tail"} and 2 <= delivered.kinds["lost-tail"] <= 4


@pytest.mark.slow
def test_a_resume_that_repeats(find):
    """Each rank stops in the middle of its four batches of six or three, and each worker delivers its last sample again."""
    delivered = find("ResumeRepeats")
    assert set(delivered.kinds) == {"resume-repeats"}
    keys = delivered.keys("resume-repeats")
    assert len(keys) == 4
    for key in keys:
        reader = READERS[int(key[1:]) // 9]
        assert f"2 times, from {reader} and {reader} after the resume (4 deliveries too many)" in delivered.detail("resume-repeats", key)


@pytest.mark.slow
def test_a_resume_that_skips(find):
    delivered = find("ResumeSkips")
    assert set(delivered.kinds) == {"resume-skips"}
    keys = delivered.keys("resume-skips")
    assert len(keys) == 4
    for key in keys:
        assert f"the sample before it in the shard came from {READERS[int(key[1:]) // 9]} (4 missing)" in delivered.detail(
            "resume-skips", key
        )

"""What a loader will take is told before it begins, by the published formulas; stops cells that end in a bus error or a killed pod.

Expected numbers are computed by hand.
"""

import json
from typing import Any

import pytest

from shardtools.bench import prediction
from shardtools.bench.prediction import Batch, Limits, Prediction, Probe, predict, probe_of, refusal
from shardtools.bench.spec import Settings

BATCH = Batch(bytes=5004, tensors=2, shm_bytes=12288, pinned_bytes=8196, samples=4)
PROBE = Probe(BATCH, worker_rss_bytes=1000, main_rss_bytes=50_000, buffer_bytes_per_worker=300)
ZERO = Prediction(0, 0, 0, 0, 0)


@pytest.mark.train
def test_a_batch_takes_whole_pages_and_blocks_of_a_power_of_two() -> None:
    """One tensor of 5,000 bytes takes two pages of 4,096 and a block of 8,192; one of 4 a page and a block of 4; one of none neither."""
    torch = pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it", exc_type=ImportError)
    batch = {"a": torch.zeros(5000, dtype=torch.uint8), "b": [torch.zeros(1)]}
    assert Batch.of(batch, 4) == Batch(bytes=5004, tensors=2, shm_bytes=12288, pinned_bytes=8192 + 4, samples=4)
    sizes = [torch.zeros(size, dtype=torch.uint8) for size in (4096, 4097, 0)]
    assert Batch.of(sizes, 1) == Batch(8193, 3, 4096 + 8192, 4096 + 8192, 1)


def test_shared_memory_and_descriptors_follow_the_published_bound() -> None:
    """W = 3, P = 4: 12 asked for, one returned, one held. RAM: main, three workers with their buffers, and what is shared."""
    found = predict(PROBE, Settings(3, 4), "async")
    assert found == Prediction(13 * 12288, 14 * 12288, 28, 0, 50_000 + 3 * 1300 + 14 * 12288)


def test_nothing_is_sent_without_workers() -> None:
    """The main process has the buffer then, and two batches."""
    found = predict(PROBE, Settings(0, 4), "async")
    assert found == Prediction(0, 0, 0, 0, 50_000 + 300 + 2 * 5004)


@pytest.mark.parametrize(("copy", "num_pinned"), [("blocking", 14), ("async", 22), ("prefetch-stream", 22)])
def test_pinned_batches_are_those_of_the_queue_and_those_that_are_still_copied(copy: Any, num_pinned: int) -> None:
    """The host may be 8 steps ahead of the device."""
    found = predict(PROBE, Settings(3, 4, pin_memory=True), copy)
    assert found.pinned_bound_bytes == num_pinned * 8196
    assert found.ram_bytes == 50_000 + 3 * 1300 + 14 * 12288 + num_pinned * 8196
    assert predict(PROBE, Settings(0, pin_memory=True), "blocking").pinned_bound_bytes == 2 * 8196


def test_all_ranks_of_a_node_share_its_memory_and_none_its_descriptors() -> None:
    one, eight = (predict(PROBE, Settings(3, 4, pin_memory=True), "blocking", num_ranks) for num_ranks in (1, 8))
    assert (eight.shm_bytes, eight.shm_bound_bytes) == (8 * one.shm_bytes, 8 * one.shm_bound_bytes)
    assert (eight.pinned_bound_bytes, eight.ram_bytes) == (8 * one.pinned_bound_bytes, 8 * (one.ram_bytes or 0))
    assert eight.fds == one.fds == 28


def test_a_worker_that_was_not_looked_at_leaves_its_memory_unknown() -> None:
    unknown = Probe(BATCH, None, 50_000, 300)
    assert predict(unknown, Settings(1), "blocking").ram_bytes is None
    assert predict(unknown, Settings(0), "blocking").ram_bytes == 50_000 + 300 + 2 * 5004
    assert predict(Probe(BATCH, 1000, 50_000, None), Settings(1), "blocking").ram_bytes is None


def test_a_probe_survives_json() -> None:
    assert probe_of(json.loads(json.dumps(PROBE.as_json()))) == PROBE


def asked(shm: int = 0, fds: int = 0, ram: int | None = 0, pinned: int = 0) -> Prediction:
    return Prediction(0, shm, fds, pinned, ram)


@pytest.mark.parametrize("limits", [Limits(100, 100, 1000), Limits(None, None, None)])
def test_what_fits_is_not_refused(limits: Limits) -> None:
    assert refusal(asked(80, 80, 700), limits) is None


@pytest.mark.parametrize(
    ("prediction", "words"),
    [
        (asked(shm=81), "not run: shm 81 B of 100 B free in /dev/shm, of which 80% are safe; use fewer workers, a lower prefetch factor, "),
        (asked(fds=81), "not run: 81 of 100 file descriptors, of which 80% are safe; collate into fewer tensors, use fewer workers, "),
        (asked(ram=701), "not run: RAM 701 B of 1000 B usable memory, of which 70% are safe; use fewer workers, "),
        (asked(shm=80, pinned=621, ram=None), "not run: RAM 701 B of 1000 B usable memory"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_remedy(prediction: Prediction, words: str) -> None:
    said = refusal(prediction, Limits(100, 100, 1000)) or ""
    assert said.startswith(words)
    assert said.count(";") == 1


def test_limits_are_those_of_here(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = prediction.resource
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 200))
    found = Limits.here()
    assert found.fds == 100
    assert (found.usable_memory_bytes or 0) > 1 << 20
    assert found.beside(10).usable_memory_bytes == (found.usable_memory_bytes or 0) + 10
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert Limits.here().fds is None
    assert Limits(1, 1, None).beside(10) == Limits(1, 1, None)

"""What bears on a loop that waits for copies, or is held up; stops a verdict of the copy that no speed supports, and one of contention
that names none of what is counted: pressure, processors, late batches, the time to launch."""

from dataclasses import replace
from typing import Any

import pytest
from attribution_model import Model

from shardtools.bench.attribution import Context, attribute
from shardtools.bench.attribution._evidence import of_processors
from shardtools.bench.attribution._loop_evidence import contention_evidence, copy_evidence
from shardtools.bench.devices.sim import SimDevice, VirtualClock
from shardtools.bench.trial import TrialResult

COPIES = {"mean": 2.0, "p99": 3.0}
CEILINGS = {"pinned_GBps": 12.0, "pageable_GBps": 6.0}


def result(**found: Any) -> TrialResult:
    model = Model(num_workers=4)
    made = model.run(model.spec(), "cold-data")
    return replace(made, found={**made.found, **found}, watched={"counters": found.pop("counters", {})})


def timeline(copied_bytes: int = 0, **steps: Any) -> TrialResult:
    return result(steps={"h2d_copy_ms": COPIES, **steps}, batch={"bytes": copied_bytes, "tensors": 1}, h2d_ceilings=CEILINGS)


def pinned(count: int) -> list[TrialResult]:
    return [result(pinning={"num_tensors": 2, "num_pinned": count})]


@pytest.mark.parametrize(
    ("mib", "num_pinned", "reached", "ceiling", "agrees"),
    [
        (20, 2, 10.0, 12.0, True),
        (16, 2, 8.0, 12.0, False),
        (10, 1, 5.0, 6.0, True),
        (2, 0, 1.0, 6.0, True),
    ],
)
def test_copies_are_held_against_what_memory_of_their_kind_gives(
    mib: int, num_pinned: int, reached: float, ceiling: float, agrees: bool
) -> None:
    """At 2 ms a copy, 20 million bytes are 10 GB/s. Tensors that could be pinned and are not say enough."""
    told, supports = copy_evidence((1000.0, 500.0), pinned(num_pinned), timeline(mib * 1_000_000))
    assert (told.values["GBps"], told.values["ceiling_GBps"], supports) == (pytest.approx(reached), ceiling, agrees)
    assert told.values["exposed_share"] == 0.5


def test_without_a_timeline_no_speed_is_known() -> None:
    told, supports = copy_evidence((1000.0, 500.0), pinned(2), None)
    assert (told.values["GBps"], told.values["ceiling_GBps"], supports) == (None, None, False)


WAITS = {"mean": 1.0, "p99": 3.0}


@pytest.mark.parametrize(
    ("counters", "waits", "kinds", "agrees"),
    [
        ({}, WAITS, ["contention", "launch"], False),
        ({}, {"mean": 1.0, "p99": 6.0}, ["contention", "head_of_line", "launch"], True),
        ({"psi_cpu_share": 0.5}, WAITS, ["contention", "pressure", "launch"], True),
        ({"psi_cpu_share": 0.1}, WAITS, ["contention", "pressure", "launch"], False),
        ({"cpu_util": 2.0, "cpu_util_share": 0.9}, WAITS, ["contention", "cpu", "launch"], True),
        ({"cpu_throttled_share": 0.2}, WAITS, ["contention", "throttled", "launch"], True),
    ],
)
def test_what_holds_a_loop_up(counters: dict[str, float], waits: dict[str, float], kinds: list[str], agrees: bool) -> None:
    looked = timeline(data_wait_ms=waits, launch_ms={"mean": 0.5, "p99": 2.0})
    told = contention_evidence((500.0, 1000.0), [replace(result(), watched={"counters": counters})], looked)
    assert [fact.kind for fact, _ in told] == kinds
    assert any(supports for _, supports in told) == agrees


def test_contention_that_counters_see_is_told_with_high_confidence() -> None:
    def loop(pressure: float, num_trials: int = 2, is_noisy: bool = False) -> str:
        model = Model(dict.fromkeys(("storage", "parse", "decode", "transform", "collate"), 0.02), step=1.0, jitter=0.5, noise=0.001)
        base = model.spec()
        run = replace(model.run(base, base.cache), watched={"counters": {"psi_cpu_share": pressure}})
        found = attribute(base, model.run, Context(measured=[run] * num_trials, is_noisy=is_noisy), model.clock)
        assert found.verdict == "contention"
        return found.confidence

    assert (loop(0.6), loop(0.0)) == ("high", "medium")
    assert (loop(0.6, num_trials=1), loop(0.6, is_noisy=True)) == ("medium", "medium")


def test_processors_that_others_use_are_busy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of two in use, one of them by the trial. Of a larger machine, of which it may use two, that says nothing."""
    counters = {"cpu_util": 1.0, "cpu_util_share": 0.5, "host_cpu_util": 2.0}

    def supports(count: int) -> bool:
        monkeypatch.setattr("os.cpu_count", lambda: count)
        return any(agrees for _, agrees in of_processors(counters, result()))

    assert (supports(2), supports(64)) == (True, False)


@pytest.mark.train
@pytest.mark.parametrize("batch_bytes", [1000, 50_000_000])
def test_a_ceiling_is_what_the_device_copies_at(batch_bytes: int) -> None:
    pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it", exc_type=ImportError)
    from shardtools.bench.trial._static import h2d_ceilings

    found = h2d_ceilings(SimDevice(VirtualClock(), copy_gbps=8.0), batch_bytes)
    assert found == {"pinned_GBps": pytest.approx(8.0), "pageable_GBps": pytest.approx(8.0)}

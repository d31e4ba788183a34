"""The main loop on a simulated device and a virtual clock: stops copies that are hidden in, or missing from, the figures of a step.

A batch is 1,000 bytes, the device copies 100,000 bytes a second: 10 ms. It computes for 20 ms. What each loop must cost follows by hand.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it", exc_type=ImportError)

from shardtools.bench.consumers import open_step  # noqa: E402
from shardtools.bench.devices.sim import SimDevice, VirtualClock  # noqa: E402
from shardtools.bench.not_measured import Reasons  # noqa: E402
from shardtools.bench.spec import Consumer, Copy, Layout, TrialSpec, Workload  # noqa: E402
from shardtools.bench.trial import _static  # noqa: E402
from shardtools.bench.trial._figures import Timed, shares, step_figures  # noqa: E402
from shardtools.bench.trial._marks import COMPUTE_BEGIN, COPY_END, DeviceMarks, HostMarks  # noqa: E402
from shardtools.bench.trial._steps import Loop  # noqa: E402
from shardtools.bench.window import Hooks, WindowFacts, WindowRule, measure  # noqa: E402

pytestmark = pytest.mark.train

COPY_MS, COMPUTE_MS = 10.0, 20.0
CONSUMER = Consumer("sim", step_ms=COMPUTE_MS, device="sim")
COPIES: tuple[Copy, ...] = ("blocking", "async", "prefetch-stream")


def device(pins: bool = True) -> SimDevice:
    return SimDevice(VirtualClock(), copy_gbps=1e-4, pins=pins)


def loaded(sim: SimDevice, load_ms: float) -> Iterator[Any]:
    """A loader each of whose batches keeps the host waiting."""
    while True:
        assert isinstance(sim.clock, VirtualClock)
        sim.clock.pass_by(load_ms / 1000)
        yield torch.zeros(1000, dtype=torch.uint8)


def timed(sim: SimDevice, copy: Copy, load_ms: float, is_isolated: bool = False) -> tuple[Timed, WindowFacts]:
    spec = TrialSpec(Layout("x", "files", "torch"), Workload(), consumer=CONSUMER, mode="isolation" if is_isolated else "timeline")
    marks = HostMarks(sim) if is_isolated else DeviceMarks(sim)
    loop = Loop(sim, open_step(CONSUMER, None, sim), copy, marks)
    rule = WindowRule(0, 2, min_steps=20, min_seconds=0.5, warm_seconds=0.2)
    batches = loop.consumed(loaded(sim, load_ms))
    facts = measure(batches, lambda: batches, lambda _: 4, rule, Hooks(sim.now, sim.synchronize))
    return Timed(spec, sim, loop, marks), facts


def means(run: Timed, facts: WindowFacts) -> dict[str, float]:
    figures = step_figures(run, facts, Reasons())
    return {name: round(part["mean"], 6) for name, part in figures.items() if part is not None}


@pytest.mark.parametrize(("copy", "step_ms"), [("blocking", 30.0), ("async", 30.0), ("prefetch-stream", 20.0)])
def test_a_fed_device_overlaps_copies_only_on_a_stream_of_their_own(copy: Copy, step_ms: float) -> None:
    """``async`` frees the host and hides nothing: its copy is queued behind the kernels."""
    run, facts = timed(device(), copy, load_ms=0.0)
    assert facts.wall_s / facts.steps * 1000 == pytest.approx(step_ms, rel=0.02)
    found = means(run, facts)
    assert found["h2d_copy_ms"] == pytest.approx(COPY_MS)
    assert found["compute_ms"] == pytest.approx(COMPUTE_MS)
    assert found["gpu_starved_ms"] == 0


@pytest.mark.parametrize(
    ("copy", "step_ms", "starved_ms"), [("blocking", 60.0, 30.0), ("async", 50.0, 20.0), ("prefetch-stream", 50.0, 20.0)]
)
def test_a_slow_loader_starves_the_device(copy: Copy, step_ms: float, starved_ms: float) -> None:
    """50 ms a batch. Blocking, the host waits 10 ms more for each copy. Else the device copies 10, computes 20 and waits 20 ms."""
    run, facts = timed(device(), copy, load_ms=50.0)
    found = means(run, facts)
    assert facts.wall_s / facts.steps * 1000 == pytest.approx(step_ms, rel=0.04)
    assert found["data_wait_ms"] == pytest.approx(50.0)
    starved = step_figures(run, facts, Reasons())["gpu_starved_ms"]
    assert starved is not None
    assert starved["p50"] == pytest.approx(starved_ms)  # the window's first synchronization makes one step differ
    share = shares(step_figures(run, facts, Reasons()), 0.0, facts, Reasons())
    assert share["wait"] == pytest.approx(50.0 / step_ms, rel=0.04)


def test_the_wait_for_the_copy_is_no_wait_for_data() -> None:
    run, facts = timed(device(), "blocking", load_ms=0.0)
    assert means(run, facts)["data_wait_ms"] == 0


@pytest.mark.parametrize("copy", COPIES)
def test_computing_begins_when_the_batch_is_there(copy: Copy) -> None:
    run, facts = timed(device(), copy, load_ms=7.0)
    assert run.marks is not None
    first = facts.warm_steps
    assert all(run.marks.between_ms((i, COPY_END), (i, COMPUTE_BEGIN)) >= 0 for i in range(first, first + facts.steps))


def test_a_prefetched_batch_is_held_for_the_stream_that_computes() -> None:
    """Without it the memory could be given to the next batch while the step still reads it."""
    sim = device()
    run, _ = timed(sim, "prefetch-stream", load_ms=1.0)
    assert run.loop.num_steps > 3
    assert {stream for _, stream in sim.held} == {sim.main_stream()}
    assert len(sim.held) == 4


def test_isolation_waits_after_every_phase() -> None:
    run, facts = timed(device(), "async", load_ms=5.0, is_isolated=True)
    found = means(run, facts)
    assert facts.wall_s / facts.steps * 1000 == pytest.approx(35.0, rel=0.02)
    assert (found["data_wait_ms"], found["h2d_copy_ms"], found["compute_ms"]) == pytest.approx((5.0, COPY_MS, COMPUTE_MS))
    assert "gpu_starved_ms" not in found


def test_pageable_batches_keep_the_host_waiting() -> None:
    waits = {}
    for pins in (True, False):
        sim = device(pins)
        loop = Loop(sim, open_step(CONSUMER, None, sim), "async")
        next(loop.consumed(loaded(sim, 0.0)))
        waits[pins] = sim.now()
    assert waits == {True: 0.0, False: pytest.approx(0.010)}


def test_the_host_is_never_far_ahead_of_the_device() -> None:
    """64 batches of a loader that takes no time would lie on the device before the first is computed."""
    sim = device()
    loop = Loop(sim, open_step(CONSUMER, None, sim), "async")
    ahead = [sim.main_stream().free_at - sim.now() for _ in islice(loop.consumed(loaded(sim, 0.0)), 64)]
    assert max(ahead) <= 9 * (COPY_MS + COMPUTE_MS) / 1000


@pytest.mark.parametrize(("copy", "exposed_ms"), [("blocking", 10.0), ("async", 10.0), ("prefetch-stream", 0.0)])
def test_rates_without_a_loader(copy: Copy, exposed_ms: float) -> None:
    sim = device()
    step = open_step(CONSUMER, None, sim)
    assert step is not None
    batch = torch.zeros(1000, dtype=torch.uint8)
    resident_s = _static.resident_step_s(sim, step, batch)
    assert resident_s * 1000 == pytest.approx(COMPUTE_MS, rel=0.02)
    copied_s = _static.copied_step_s(sim, step, copy, batch)
    assert (copied_s - resident_s) * 1000 == pytest.approx(exposed_ms, abs=1.2)


def test_nothing_is_timed_without_marks() -> None:
    sim = device()
    loop = Loop(sim, open_step(CONSUMER, None, sim), "blocking")
    list(islice(loop.consumed(loaded(sim, 0.0)), 5))
    assert (loop.num_steps, loop.wait_s, loop.launch_s) == (5, [], [])


@pytest.mark.parametrize("copy", COPIES)
def test_every_batch_of_every_pass_is_consumed_once(copy: Copy) -> None:
    sim = device()
    seen: list[int] = []

    def step(batch: Any) -> None:
        seen.append(int(batch[0]))

    loop = Loop(sim, step, copy, DeviceMarks(sim))
    yielded = []
    for numbers in (range(5), range(5, 6), range(0), range(6, 9)):
        yielded += [int(batch[0]) for batch in loop.consumed(iter([torch.tensor([number]) for number in numbers]))]
    assert seen == yielded == list(range(9))
    assert len(loop.wait_s) == loop.num_steps == 9


def test_a_long_window_keeps_its_last_steps() -> None:
    sim = device()
    loop = Loop(sim, open_step(CONSUMER, None, sim), "prefetch-stream", marks := DeviceMarks(sim, num_kept=16))
    list(islice(loop.consumed(loaded(sim, 0.0)), 100))
    facts = WindowFacts(20, 0.0, 80, 1.6, 320, 0, False, 0.0, None, 0.0, None, ())
    spec = TrialSpec(Layout("x", "files", "torch"), Workload(), consumer=CONSUMER, mode="timeline")
    found = step_figures(Timed(spec, sim, loop, marks), facts, Reasons())["h2d_copy_ms"]
    assert found is not None
    assert len(found["first"]) == 15
    assert found["mean"] == pytest.approx(COPY_MS)

"""The rule over trials that really ran, with faults planted in real loaders; stops thresholds that hold for simulated
loaders alone.

Each replay takes whole recorded blocks in random order, so that what a real machine did to neighbouring trials is in them, again only
when all were taken, since a run does not meet the same moment twice; and adds noise of 2 %, so that no two replays are the same.
"""

import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shardtools.bench.attribution import Context, attribute
from shardtools.bench.self_test.cases import CASES as SELF_TESTED
from shardtools.bench.spec import CacheState, Consumer, Layout, Settings, TrialSpec, Workload
from shardtools.bench.trial import TrialResult

FILE = Path(__file__).parent / "recorded" / "attribution" / "two_cpus.json"
CASES: dict[str, dict[str, Any]] = json.loads(FILE.read_text("utf-8"))["cases"]
NUM_REPLAYS = 300
NOISE = 0.02
CONTROLS = ("fed", "balanced")


class Replay:
    """Trials of one recorded case, drawn anew."""

    def __init__(self, name: str, seed: int) -> None:
        self._case = CASES[name]
        self._random = random.Random(f"{name} {seed}")
        self._seen: set[str] = set()
        self._block: dict[str, float] = {}
        self._left: list[dict[str, float]] = []
        self.num_trials = 0

    def clock(self) -> float:
        return 4.0 * self.num_trials

    def spec(self) -> TrialSpec:
        has_loop = self._case.get("loops") or self._case.get("ends")
        consumer = Consumer("sim", step_ms=1.0, device="sim") if has_loop else Consumer()
        workload = Workload(8, "x:decode", "x:transform", "x:collate")
        return TrialSpec(
            Layout("data", "files", "torch"), workload, Settings(self._case["num_workers"]), consumer, cache=self._case["cache"]
        )

    def run(self, spec: TrialSpec, _: CacheState) -> TrialResult:
        self.num_trials += 1
        if "ends" in self._case:
            end = self._random.choice(self._case["ends"])
            return TrialResult(spec, end["status"], "", {"exceeds": end["exceeds"]}, {"counters": {}, "peaks": {}})
        noise = math.exp(self._random.gauss(0.0, NOISE))
        if spec.consumer.kind != "none":
            rates = self._random.choice(self._case["loops"])
            return self._result(spec, rates["F"] * noise, rates)
        rate = self._drawn(spec.intervention or "") * noise
        return self._result(spec, rate, {"F": None, "G": None, "H": None, "L": rate})

    def _drawn(self, name: str) -> float:
        """Another block when an intervention comes round again."""
        if not self._block or (name and name in self._seen):
            self._left = self._left or self._random.sample(self._case["blocks"], len(self._case["blocks"]))
            self._block, self._seen = self._left.pop(), set()
        self._seen.add(name)
        return self._block[name]

    def _result(self, spec: TrialSpec, rate: float, rates: dict[str, float | None]) -> TrialResult:
        workers = self._case["num_workers"]
        stages = {
            name: {"wall_s": wall * workers, "blocked_s": blocked * workers} for name, (wall, blocked) in self._case["stages"].items()
        }
        found = {
            "throughput": rate,
            "rates": rates,
            "window": {"wall_s": 1.0, "is_looped": False},
            "stages": stages if spec.mode == "timeline" else None,
            "step_ms": 1.0,
            "ipc_floor_ms": self._case["floor_share"],
            "batch": {"tensors": 1},
            "pinning": {"num_tensors": 1, "num_pinned": 0},
        }
        return TrialResult(spec, "ok", "", found, {"counters": {}, "peaks": {}})


def test_every_case_of_the_self_test_is_recorded_often_enough() -> None:
    missing = [case.name for case in SELF_TESTED if case.name not in CASES]
    if missing:
        pytest.skip(f"not recorded yet: {', '.join(missing)}; recorded/attribution/record_attribution.py records all in ten quiet minutes")
    for case in SELF_TESTED:
        recorded = CASES[case.name]
        assert recorded["planted"] == case.planted
        assert len(recorded.get("ends", [])) >= 6 or len(recorded["loops"]) >= 3 or len(recorded["blocks"]) >= 4


@pytest.mark.parametrize("name", CASES)
def test_recorded_trials_are_told_right(name: str) -> None:
    planted = CASES[name]["planted"]
    found: Counter[str] = Counter()
    for seed in range(NUM_REPLAYS):
        replay = Replay(name, seed)
        found[attribute(replay.spec(), replay.run, Context(seed=seed), replay.clock).verdict] += 1
    allowed = {*CONTROLS, "inconclusive"} if planted in CONTROLS else {planted}
    right = sum(count for verdict, count in found.items() if verdict in allowed)
    assert right >= (1.0 if planted in CONTROLS else 0.95) * NUM_REPLAYS, found
    assert set(found) <= {planted, *CONTROLS, "inconclusive"}, found

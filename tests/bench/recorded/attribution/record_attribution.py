"""Records real trials with planted faults for the replays of attribution: `python record_attribution.py FILE NUM_BLOCKS [CASE...]`.

The cases are those of the self-test, without CASE all of them: about ten minutes with four blocks on two quiet processors. A block is one
trial as it is and one for each intervention, in random order, each a fresh process that drains the loader; before them one with timers. Of
faults that are not the loader's: some of the whole loop with its consumer, and the loader as it is. Where shared memory is small: how each
trial of the whole loop ended. FILE is written after each case; what it has of others is kept.
"""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from shardtools.bench.page_cache import PageCache
from shardtools.bench.page_cache import state as cache_state
from shardtools.bench.self_test.cases import CASES, SMALL_SHM_BYTES, Case
from shardtools.bench.self_test.confined import shrink_shared_memory
from shardtools.bench.self_test.data import small_files
from shardtools.bench.spec import CacheState, Consumer, TrialSpec
from shardtools.bench.trial import TrialResult, run_trial

SECONDS = 0.5
LEVEL_ONE = ("fed", "h2d_copy")
"""Told from the loop and the loader as they are."""
NUM_LOOPS = 3
CONFINED = "--confined"
INTERVENTIONS = ("storage", "decode", "transform", "collate", "transfer")


class Recorder:
    """Of one case."""

    def __init__(self, case: Case, folder: str) -> None:
        self._case = case
        self._side = cache_state.Side(PageCache.of(folder), "files")
        self._loop = replace(case.spec(folder), min_seconds=SECONDS, max_seconds=1.6 * SECONDS, min_steps=10)
        self._drain = replace(self._loop, consumer=Consumer())
        self._random = random.Random(case.name)

    def record(self, num_blocks: int) -> dict[str, Any]:
        timeline = self._run(replace(self._drain, mode="timeline"))
        window_s = timeline.found["window"]["wall_s"] * self._loop.settings.num_workers
        stages = {
            name: [round(stage[part] / window_s, 4) for part in ("wall_s", "blocked_s")] for name, stage in timeline.found["stages"].items()
        }
        is_level_one = self._case.planted in LEVEL_ONE
        loops = [self._run(self._loop).found["rates"] for _ in range(NUM_LOOPS * is_level_one)]
        return {
            "planted": self._case.planted,
            "cache": self._case.cache,
            "num_workers": self._loop.settings.num_workers,
            "floor_share": round((timeline.found["ipc_floor_ms"] or 0.0) / timeline.found["step_ms"], 4),
            "stages": stages,
            "loops": [{name: None if rate is None else round(rate, 1) for name, rate in rates.items()} for rates in loops],
            "blocks": [self._block() for _ in range(num_blocks)],
        }

    def ends(self, num_trials: int) -> dict[str, Any]:
        """How trials end that have too little shared memory."""
        results = [self._trial(self._loop) for _ in range(num_trials)]
        ends = [{"status": one.status, "exceeds": one.found.get("exceeds")} for one in results]
        return {"planted": self._case.planted, "cache": self._case.cache, "num_workers": self._loop.settings.num_workers, "ends": ends}

    def _block(self) -> dict[str, float]:
        hides_storage = self._case.cache == "warm"
        names = ["", *(name for name in INTERVENTIONS if not (hides_storage and name == "storage"))]
        if self._case.planted in LEVEL_ONE:
            names = names[:1]
        self._random.shuffle(names)
        return {name: round(self._run(replace(self._drain, intervention=name or None)).throughput or 0.0, 1) for name in names}

    def _run(self, spec: TrialSpec) -> TrialResult:
        result = self._trial(spec)
        if result.status != "ok":
            raise SystemExit(f"{self._case.name}: {result.message}\n{result.said}")
        return result

    def _trial(self, spec: TrialSpec) -> TrialResult:
        cache: CacheState = "warm" if spec.intervention == "storage" else spec.cache
        result = run_trial(
            replace(spec, cache=cache), lambda: cache_state.prepare(cache, self._side, (), allows_drop=False) and None, is_watched=False
        )
        print(self._case.name, spec.intervention or spec.mode, result.status, result.throughput, os.getloadavg()[0], file=sys.stderr)
        return result


def confined(name: str, num_trials: str, folder: str) -> None:
    """In a process of its own, whose ``/dev/shm`` is small."""
    shrink_shared_memory(SMALL_SHM_BYTES)
    case = next(case for case in CASES if case.name == name)
    print(json.dumps(Recorder(case, folder).ends(int(num_trials))))


def record(case: Case, num_blocks: int, folder: str) -> dict[str, Any]:
    if case.place == "here":
        return Recorder(case, folder).record(num_blocks)
    command = [sys.executable, __file__, CONFINED, case.name, str(2 * num_blocks), folder]
    found: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return found


def main() -> None:
    if sys.argv[1] == CONFINED:
        confined(*sys.argv[2:])
        return
    target, num_blocks, *names = sys.argv[1:]
    found = json.loads(Path(target).read_text("utf-8"))["cases"] if names and Path(target).exists() else {}
    with small_files() as folder:
        for case in CASES:
            if case.name in names or not names:
                found[case.name] = record(case, int(num_blocks), folder) | {"load_average": round(os.getloadavg()[0], 1)}
                how = f"samples/s, the self-test's cases, windows of {SECONDS} s, {os.cpu_count()} processors"
                Path(target).write_text(json.dumps({"how": how, "cases": found}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()

"""All trials of a bench in their order: paired blocks until they are enough, then one trial with instruments of each side."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from shardtools.bench.copies import Copies, keeps_copies
from shardtools.bench.measured import Trial
from shardtools.bench.noise import HostReading, reading_of
from shardtools.bench.not_measured import Unknown
from shardtools.bench.page_cache import PageCache
from shardtools.bench.page_cache import state as cache_state
from shardtools.bench.places import is_remote
from shardtools.bench.request import BenchRequest
from shardtools.bench.spec import CacheState, Layout, Mode, TrialSpec, Workload
from shardtools.bench.statistics import Comparison, compare
from shardtools.bench.trial import TrialResult, run_trial
from shardtools.errors import ShardtoolsError, UsageError

Say = Callable[[str], None]

_WRONG_USE = "UsageError: "
_MOST_FAILURES = 2
"""Of one side, before it is given up."""


@dataclass
class Rounds:
    """Runs trials one at a time, each begun with a page cache that was prepared and proved."""

    request: BenchRequest
    layouts: list[Layout]
    workload: Workload
    say: Say
    sides: list[cache_state.Side]
    counts: list[int | None]
    """Samples each side was proved to have."""
    num_cpus: int | None = None
    copies: Copies = field(default_factory=Copies)
    tokens_each: list[float | None] = field(default_factory=list)
    """Tokens of a sample of each side, where samples are rows of them."""
    trials: list[Trial] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    """Each trial took."""

    def blocks(self) -> None:
        """Until the stop rule is content, or a side has failed too often."""
        plan, block, began = self.request.plan, 0, time.monotonic()
        while plan.wants_more(block, [compared for _, _, compared in self.comparisons()], time.monotonic() - began):
            for place, side in enumerate(plan.order(block, len(self.layouts))):
                self._run(side, block, place, "throughput")
            block += 1
            if any(self.num_failed(side) >= _MOST_FAILURES for side in range(len(self.layouts))):
                return

    def with_instruments(self) -> None:
        """A timeline of each side that can be read, and where there are copies also each phase by itself."""
        modes: tuple[Mode, ...] = ("timeline",) if self.request.consumer.device == "cpu" else ("timeline", "isolation")
        for side in range(len(self.layouts)):
            for mode in modes if self.rates(side) else ():
                self._run(side, None, 0, mode)

    def comparisons(self) -> list[tuple[int, int, Comparison]]:
        """Of all pairs of sides that both ran in some block, the first with the second argument first."""
        found = []
        for one, other in _pairs(self.layouts):
            rates_of_one, rates_of_other = self.rates(one), self.rates(other)
            common = sorted(rates_of_one.keys() & rates_of_other.keys())
            if common:
                found.append((one, other, compare([(rates_of_one[block], rates_of_other[block]) for block in common])))
        return found

    def rates(self, side: int) -> dict[int, float]:
        """Throughput by block."""
        found = {trial.block: trial.result.throughput for trial in self.trials if trial.side == side and trial.block is not None}
        return {block: rate for block, rate in found.items() if rate}

    def num_failed(self, side: int) -> int:
        return sum(trial.side == side and trial.result.status != "ok" for trial in self.trials)

    def readings(self) -> list[HostReading]:
        return [reading_of(trial.result.watched, self.num_cpus) for trial in self.trials if trial.result.watched]

    def spec(self, side: int, mode: Mode = "throughput") -> TrialSpec:
        """What a trial of that side is asked."""
        request = self.request
        return TrialSpec(
            self.layouts[side],
            self.workload,
            request.settings,
            request.consumer,
            mode,
            request.cache,
            request.min_seconds,
            timeout_seconds=request.timeout_seconds,
        )

    def run_spec(self, side: int, spec: TrialSpec, cache: CacheState) -> tuple[TrialResult, dict[str, Any]]:
        """One trial of that side, begun with that state of the page cache; with it the proof of that state.

        Data of a bucket is without its cost where it lies in the page cache of this machine. Raises Unknown where it cannot.
        """
        proof: list[cache_state.CacheProof] = []
        mine = self.sides[side]
        if spec.intervention == "storage" and is_remote(spec.layout.uri):
            spec = replace(spec, layout=self.copies.whole(spec.layout, self.say))
            mine = cache_state.Side(PageCache.of(spec.layout.uri), mine.kind)

        def prepare() -> None:
            others = [other for i, other in enumerate(self.sides) if i != side]
            proof.append(cache_state.prepare(cache, mine, others, self.request.allow_drop_caches))

        result = run_trial(replace(spec, cache=cache), prepare)
        after = mine.pages.residency() if mine.pages.files else None
        nothing: dict[str, Any] = {"wanted": cache, "label": "unknown", "why": result.message, "caveats": []}
        return result, proof[0].as_json(after) if proof else nothing

    def hides_storage(self, side: int) -> str | None:
        """Why the cost of storage cannot be taken away, as attribution calls it; None where it can. A bucket is copied here."""
        layout = self.layouts[side]
        is_warm = self.request.cache == "warm" and keeps_copies(layout)
        if is_remote(layout.uri) and not is_warm:
            try:
                self.copies.whole(layout, self.say)
            except Unknown as unknown:
                self.say(f"storage will not be judged: {unknown}")
                return "no_copy"
        return None

    def _run(self, side: int, block: int | None, place: int, mode: Mode) -> None:
        layout, began = self.layouts[side], time.monotonic()
        result, cache = self.run_spec(side, self.spec(side, mode), self.request.cache)
        if result.status == "refused" and result.message.startswith(_WRONG_USE):
            raise UsageError(result.message.removeprefix(_WRONG_USE))
        if result.status == "error" and not self.rates(side):
            raise ShardtoolsError(f"expected to read {layout.uri} ({layout.name}), but its first trial ended so: {result.message}")
        self._require_all(side, result)
        self.trials.append(Trial(side, block, place, cache, result))
        self.seconds.append(time.monotonic() - began)
        what = mode if block is None else f"block {block + 1} of {max(block + 1, self.request.plan.min_blocks)}"
        rate = self._rate(side, result.throughput) if result.throughput else f"{result.status}: {result.message}"
        self.say(f"{what}, {layout.uri} ({layout.name}): {rate}{self._to_go()}")

    def _rate(self, side: int, throughput: float) -> str:
        tokens = self.tokens_each[side] if self.tokens_each else None
        return f"{throughput:,.0f} samples/s" if tokens is None else f"{throughput * tokens:,.0f} tokens/s, {throughput:,.0f} rows/s"

    def _to_go(self) -> str:
        """As long as the trials that are surely still to run will take, by those that ran."""
        num_modes = 1 if self.request.consumer.device == "cpu" else 2
        num_left = len(self.layouts) * (self.request.plan.min_blocks + num_modes) - len(self.trials)
        return f"; about {num_left * sum(self.seconds) / len(self.seconds):.0f} s of trials to go" if num_left > 0 else ""

    def _require_all(self, side: int, result: TrialResult) -> None:
        """A transform or a collate function that loses samples makes a side fast."""
        expected, got = self.counts[side], result.found.get("window", {}).get("pass_samples")
        if expected is not None and got is not None and got != expected:
            layout = self.layouts[side]
            raise ShardtoolsError(
                f"expected {expected:,} samples from each pass over {layout.uri} ({layout.name}), as were proved, got {got:,}; "
                "make --transform return one sample for each it is given"
            )


def _pairs(layouts: list[Layout]) -> list[tuple[int, int]]:
    """First argument with second, by the same reader where the format is the same; then all other pairs."""
    pairs = [(one, other) for one in range(len(layouts)) for other in range(one + 1, len(layouts))]

    def rank(pair: tuple[int, int]) -> tuple[bool, bool, bool]:
        one, other = (layouts[side] for side in pair)
        is_same_data, has_other_reader = one.uri == other.uri, one.kind == other.kind and one.reader != other.reader
        return one.uri != layouts[0].uri, is_same_data, has_other_reader

    return sorted(pairs, key=rank)

"""From a request to a report: sides proved equal, then trials in randomised blocks, each begun with a page cache that is proved, too."""

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shardtools.bench import cache_state, environment
from shardtools.bench.counters.sampler import Sampler
from shardtools.bench.equality import Proof, prove, refuse_unequal
from shardtools.bench.measured import Measured, Trial
from shardtools.bench.noise import HostReading, Noise, judge, reading_of
from shardtools.bench.page_cache import PageCache
from shardtools.bench.places import files_of
from shardtools.bench.readers import layouts_of, settle_workload
from shardtools.bench.report import Report
from shardtools.bench.request import BenchRequest
from shardtools.bench.spec import Layout, Mode, TrialSpec, Workload
from shardtools.bench.statistics import Comparison, compare
from shardtools.bench.summary import report_of
from shardtools.bench.trial import TrialResult, run_trial
from shardtools.errors import ShardtoolsError, UsageError

Say = Callable[[str], None]

_LOOK_SECONDS = 1.0
"""At the machine before the first trial."""
_PROOF_FACTOR = 5
"""A proof reads everything and may take so many times as long as a trial."""
_WRONG_USE = "UsageError: "
_MOST_FAILURES = 2
"""Of one side, before it is given up."""


@dataclass
class _Bench:
    request: BenchRequest
    layouts: list[Layout]
    workload: Workload
    say: Say
    sides: list[cache_state.Side]
    trials: list[Trial] = field(default_factory=list)
    num_cpus: int | None = None
    counts: list[int | None] = field(default_factory=list)
    """Samples each side was proved to have."""

    def blocks(self) -> None:
        """Until the stop rule is content, or a side has failed too often."""
        plan, block = self.request.plan, 0
        while plan.wants_more(block, [compared for _, _, compared in self.comparisons()]):
            for place, side in enumerate(plan.order(block, len(self.layouts))):
                self._run(side, block, place, "throughput")
            block += 1
            if any(self.num_failed(side) >= _MOST_FAILURES for side in range(len(self.layouts))):
                return

    def timelines(self) -> None:
        """One for each side that can be read: where a step's time goes."""
        for side in range(len(self.layouts)):
            if self.rates(side):
                self._run(side, None, 0, "timeline")

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

    def _run(self, side: int, block: int | None, place: int, mode: Mode) -> None:
        request, layout = self.request, self.layouts[side]
        spec = TrialSpec(
            layout,
            self.workload,
            request.settings,
            request.consumer,
            mode,
            request.cache,
            request.min_seconds,
            timeout_seconds=request.timeout_seconds,
        )
        proof: list[cache_state.CacheProof] = []

        def prepare() -> None:
            others = [other for i, other in enumerate(self.sides) if i != side]
            proof.append(cache_state.prepare(request.cache, self.sides[side], others, request.allow_drop_caches))

        result = run_trial(spec, prepare)
        if result.status == "refused" and result.message.startswith(_WRONG_USE):
            raise UsageError(result.message.removeprefix(_WRONG_USE))
        if result.status == "error" and not self.rates(side):
            raise ShardtoolsError(f"expected to read {layout.uri} ({layout.name}), but its first trial ended so: {result.message}")
        self._require_all(side, result)
        after = self.sides[side].pages.residency() if self.sides[side].pages.files else None
        cache = proof[0].as_json(after) if proof else {"wanted": request.cache, "label": "unknown", "why": result.message, "caveats": []}
        self.trials.append(Trial(side, block, place, cache, result))
        what = "timeline" if block is None else f"block {block + 1}"
        rate = f"{result.throughput:,.0f} samples/s" if result.throughput else f"{result.status}: {result.message}"
        self.say(f"{what}, {layout.uri} ({layout.name}): {rate}")

    def _require_all(self, side: int, result: TrialResult) -> None:
        """A transform or a collate function that loses samples makes a side fast."""
        expected, got = self.counts[side], result.found.get("window", {}).get("pass_samples")
        if expected is not None and got is not None and got != expected:
            layout = self.layouts[side]
            raise ShardtoolsError(
                f"expected {expected:,} samples from each pass over {layout.uri} ({layout.name}), as were proved, got {got:,}; "
                "make --transform return one sample for each it is given"
            )


def bench(request: BenchRequest, say: Say) -> Report:
    """Measures what was asked for; ``say`` hears a line about each step.

    Raises UsageError for what cannot be read or compared so, ShardtoolsError where there is no such device, StorageError.
    """
    began = time.monotonic()
    _require_device(request)
    layouts = layouts_of(request.uris, request.readers, request.workload.tokenizer is not None)
    workload = settle_workload(layouts, request.workload)
    version = _version(request.uris)
    proofs = []
    for layout in layouts:
        say(f"proving {layout.uri} ({layout.name})")
        proofs.append(prove(layout, workload, request.settings, _PROOF_FACTOR * request.timeout_seconds))
    proved = refuse_unequal(proofs)
    ledger = environment.ledger(request.uris, request.settings.start_method)
    before = _before(request.uris[0], ledger)
    sides = [cache_state.Side(PageCache.of(layout.uri), layout.kind) for layout in layouts]
    counts = [proof.count for proof in proofs]
    run = _Bench(request, layouts, workload, say, sides, num_cpus=ledger["cpus"], counts=counts)
    run.blocks()
    run.timelines()
    if _version(request.uris) != version:
        raise ShardtoolsError("expected data that stays as it was proved, got files that changed while it was measured; run it again")
    noise = judge(before, run.readings())
    return _report(run, proofs, proved, (ledger, noise), time.monotonic() - began)


def _version(uris: tuple[str, ...]) -> str:
    """Of all files: their names, sizes and times."""
    digest = hashlib.sha256()
    for path in (path for uri in uris for path in files_of(uri)):
        try:
            status = os.stat(path)
            digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
        except FileNotFoundError:
            digest.update(b"gone")
    return digest.hexdigest()


def _report(run: _Bench, proofs: list[Proof], proved: list[str], machine: tuple[dict[str, Any], Noise], seconds: float) -> Report:
    measured = Measured(run.request, run.layouts, run.workload, run.trials, run.comparisons())
    return Report(report_of(measured, proofs, proved, machine, seconds))


def _require_device(request: BenchRequest) -> None:
    if request.consumer.device != "cuda":
        return
    import torch

    if not torch.cuda.is_available():
        built = "this torch is built without CUDA" if torch.version.cuda is None else "no CUDA device or driver is there"
        raise ShardtoolsError(f"expected a CUDA device for --gpu, got none: {built}; measure the loader alone with --device cpu")


def _before(uri: str, ledger: dict[str, Any]) -> HostReading:
    """The machine while nothing of ours runs but this process."""
    sampler = Sampler(os.getpid(), uri)
    sampler.start()
    time.sleep(_LOOK_SECONDS)
    return reading_of(sampler.stop(), ledger["cpus"], ledger["governor"])


def _pairs(layouts: list[Layout]) -> list[tuple[int, int]]:
    """First argument with second, by the same reader where the format is the same; then all other pairs."""
    pairs = [(one, other) for one in range(len(layouts)) for other in range(one + 1, len(layouts))]

    def rank(pair: tuple[int, int]) -> tuple[bool, bool, bool]:
        one, other = (layouts[side] for side in pair)
        is_same_data, has_other_reader = one.uri == other.uri, one.kind == other.kind and one.reader != other.reader
        return one.uri != layouts[0].uri, is_same_data, has_other_reader

    return sorted(pairs, key=rank)

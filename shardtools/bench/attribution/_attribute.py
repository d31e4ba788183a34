"""From trials to a verdict: the order in which questions are asked."""

import time
from collections.abc import Sequence
from dataclasses import replace

from shardtools.bench.attribution import _gain
from shardtools.bench.attribution._ablate import Ablations, Clock, drained
from shardtools.bench.attribution._evidence import corroborate
from shardtools.bench.attribution._level_one import is_fed, level_one, rates_of
from shardtools.bench.attribution._rule import Decision, decide
from shardtools.bench.attribution._status import decisive, status_verdict
from shardtools.bench.attribution._sure import bounded, interval_values, scattered
from shardtools.bench.attribution._timers import Reader, Timed, reader_of, timed
from shardtools.bench.attribution.context import Context, Run
from shardtools.bench.attribution.result import Ablation, Attribution, Confidence, Fact, Gain, VerdictClass
from shardtools.bench.copies import fetches_anew
from shardtools.bench.spec import Intervention, TrialSpec
from shardtools.bench.trial import TrialResult

Rates = dict[str, float | None]


def attribute(base: TrialSpec, run: Run, context: Context | None = None, clock: Clock = time.monotonic) -> Attribution:
    """What limits ``base``, by trials that ``run`` runs. The workload is settled.

    Takes 6 trials where nothing stands out, 12 to 14 as a rule, of about 4 s each on quiet cores, and more only where noise leaves
    it open. Raises only what ``run`` raises.
    """
    return _Attributing(base, run, context or Context(), clock).attribution()


class _Attributing:
    def __init__(self, base: TrialSpec, run: Run, context: Context, clock: Clock) -> None:
        self._base = replace(base, intervention=None, mode="throughput")
        self._is_warm = base.cache == "warm" and not fetches_anew(base.layout)
        self._context = context
        self._level_two = Ablations(drained(self._base, context), run, context, clock(), clock)
        self._rates: Rates = dict.fromkeys(("F", "G", "H", "L"))
        self._facts: list[Fact] = []

    def attribution(self) -> Attribution:
        if self._is_warm:
            self._facts.append(Fact("storage_hidden", {"reason": "warm"}))
        failed = decisive(self._context.measured)
        if failed is not None:
            return self._ended(failed)
        if self._base.consumer.kind != "none":
            early = self._one()
            if early is not None:
                return early
        return self._two()

    def _one(self) -> Attribution | None:
        """None where the loader is the limit."""
        results = [one for one in self._context.measured if one.status == "ok"]
        if not results:
            spec = replace(self._level_two.base, consumer=self._base.consumer)
            result = self._level_two.trial(spec, spec.cache, "with its consumer")
            if not result.throughput:
                return self._ended(result)
            results = [result]
        self._rates = rates_of(results)
        if not is_fed(self._rates):
            drain = self._level_two.baseline()
            if drain is None:
                return self._ended(self._level_two.trials[-1])
            self._rates["L"] = drain.throughput
        told = level_one(self._rates, results, self._context.timeline)
        self._facts += told.facts
        if told.verdict is None:
            return None
        confidence = bounded(told.confidence, len(results), self._context.is_noisy)
        return self._done(told.verdict, None, confidence, _gain.of_loop(told.verdict, self._rates))

    def _two(self) -> Attribution:
        level_two = self._level_two
        timeline = self._timeline()
        if timeline.status != "ok" and (timeline.status != "error" or level_two.baseline() is None):
            return self._ended(timeline)
        found = timed(timeline)
        shares = None if found is None else found.most
        stages = self._stages(timeline)
        level_two.round(stages)
        num_rounds = 1
        while True:
            if level_two.failure is not None:
                return self._ended(level_two.failure)
            reader = _reader(found, level_two.found())
            ratio = None if reader is None else reader.ratio
            decision = decide(level_two.found(), ratio, shares=shares)
            if decision.kind == "more" and not level_two.has_time(len(decision.stages)):
                self._facts.append(self._budget(num_rounds))
                decision = decide(level_two.found(), ratio, is_last=True, shares=shares)
            if decision.kind != "more":
                break
            level_two.round([stage for stage in stages if stage in decision.stages])
            num_rounds += 1
        return self._decided(decision, reader, found)

    def _budget(self, num_rounds: int) -> Fact:
        spent = self._level_two.clock() - self._level_two.began
        return Fact("budget", {"seconds": self._context.seconds, "spent": spent, "rounds": num_rounds})

    def _timeline(self) -> TrialResult:
        """Of the loop's own where its timers are the loader's alone: without workers they share a process with the consumer."""
        given = self._context.timeline
        has_own = given is not None and (given.spec.consumer.kind == "none" or given.spec.settings.num_workers > 0)
        if given is not None and has_own and given.status == "ok":
            return given
        spec = replace(self._level_two.base, mode="timeline")
        return self._level_two.trial(spec, spec.cache, "with timers")

    def _stages(self, first: TrialResult) -> list[Intervention]:
        """Those that there are to be taken away. That storage is hidden is a fact."""
        workload, stages = self._base.workload, list[Intervention]()
        hidden = self._context.storage_hidden or _hidden(first)
        if hidden is not None:
            self._facts.append(Fact("storage_hidden", {"reason": hidden}))
        if hidden is None and not self._is_warm:
            stages.append("storage")
        stages.append("decode")
        if workload.transform is not None or workload.decode == "rgb":
            stages.append("transform")
        stages.append("collate")
        if self._base.settings.num_workers > 0:
            stages.append("transfer")
        return stages

    def _decided(self, decision: Decision, reader: Reader | None, found: Timed | None) -> Attribution:
        level_two = self._level_two
        ablations = sorted(level_two.found(), key=lambda one: -one.ratio)
        self._facts += [*_facts_of(decision, ablations, reader, found), *level_two.facts]
        if self._rates["L"] is None and ablations:
            self._rates["L"] = _gain.baseline_rate(ablations)
        if decision.kind == "reader" and reader is not None:
            return self._of_reader(reader, ablations, found)
        if decision.kind != "stage":
            kind: VerdictClass = "inconclusive" if decision.kind == "unsure" else "balanced"
            return self._done(kind, None, "inconclusive" if kind == "inconclusive" else "medium")
        stage = decision.stages[0]
        told = corroborate(stage, self._a_baseline(), found, self._context.ceilings)
        self._facts += [fact for fact, _ in told]
        first = next(one for one in ablations if one.stage == stage)
        confidence = bounded("high" if any(supports for _, supports in told) else "medium", first.n, self._context.is_noisy)
        return self._done(first.stage, stage, confidence, _gain.of_stage(first, ablations, _gain.Binding(reader, found, self._rates)))

    def _of_reader(self, reader: Reader, ablations: Sequence[Ablation], found: Timed | None) -> Attribution:
        """By timers alone, so never with high confidence. A wait that a warm cache leaves is nothing that is known."""
        self._facts.append(Fact("reader", reader.values()))
        gain = _gain.of_reader(reader, ablations, _gain.Binding(reader, found, self._rates))
        if not reader.is_waiting:
            self._facts += [fact for fact, _ in corroborate("parse", self._a_baseline(), found, None)]
            return self._done("parse", "parse", "medium", gain)
        hidden = next((fact for fact in self._facts if fact.kind == "storage_hidden"), None)
        return self._done("storage", "storage", "medium", gain) if hidden is None else self._done("inconclusive", None, "inconclusive")

    def _a_baseline(self) -> TrialResult | None:
        """The first whose counters were watched."""
        own = [one for one in self._level_two.trials if one.status == "ok" and _is_baseline(one.spec)]
        return next((one for one in own if one.watched.get("counters")), own[0] if own else None)

    def _ended(self, result: TrialResult) -> Attribution:
        kind, confidence = status_verdict(result)
        self._facts.append(Fact("status", {"status": result.status, "message": result.message}))
        return self._done(kind, None, confidence)

    def _done(self, kind: VerdictClass, stage: str | None, confidence: Confidence, gain: Gain | None = None) -> Attribution:
        level_two = self._level_two
        seconds = level_two.clock() - level_two.began
        trials = tuple(level_two.trials)
        facts = (*self._facts, Fact("trials", {"count": len(trials), "seconds": seconds}))
        return Attribution(kind, stage, confidence, self._rates, facts, gain, tuple(level_two.found()), trials, seconds)


def _is_baseline(spec: TrialSpec) -> bool:
    return spec.intervention is None and spec.mode == "throughput" and spec.consumer.kind == "none"


def _hidden(first: TrialResult) -> str | None:
    """Why storage cannot be judged although it was to be; None where it can."""
    if first.spec.cache == "warm":
        return None
    if first.watched.get("cache_label") == "warm":
        return "in_memory"
    window = first.found.get("window") or {}
    return "looped" if window.get("is_looped") and not fetches_anew(first.spec.layout) else None


def _reader(found: Timed | None, ablations: Sequence[Ablation]) -> Reader | None:
    storage = next((one.ratio for one in ablations if one.stage == "storage"), None)
    return reader_of(found, storage)


def _facts_of(decision: Decision, ablations: Sequence[Ablation], reader: Reader | None, found: Timed | None) -> list[Fact]:
    of = {str(one.stage): one for one in ablations}
    if not ablations or decision.kind == "reader":
        return []
    first = of[decision.stages[0]]
    told = {"stage": first.stage, "ratio": first.ratio, "n": first.n, **interval_values(first, ablations)}
    if decision.kind == "no_stage":
        return [Fact("no_stage", {"stage": first.stage, "ratio": first.ratio})]
    if decision.kind == "unsure":
        return [scattered(first, ablations, found) or Fact("unsure", told)]
    if decision.kind == "co_bottleneck":
        implied = {} if reader is None else {"parse": reader.ratio}
        ratios = [of[stage].ratio if stage in of else implied[stage] for stage in decision.stages]
        equal = Fact("co_bottleneck", {"stages": list(decision.stages), "ratios": ratios})
        return [equal, Fact("reader", reader.values())] if reader is not None and "parse" in decision.stages else [equal]
    baseline, intervened = _gain.medians(first)
    facts = [Fact("intervention", told | {"baseline": baseline, "intervened": intervened})]
    second = next((one for one in ablations if one.stage != first.stage), None)
    return facts if second is None else [*facts, Fact("runner_up", {"stage": second.stage, "ratio": second.ratio})]

"""One run's way through the passes of a build."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from shardtools.build.attempts import Terms, refuse_over_budget
from shardtools.build.numbering import Planned
from shardtools.build.planning import PlannedBuild
from shardtools.build.progress import BuildProgress
from shardtools.build.reading import Cut, Selected
from shardtools.build.receipts import Receipt
from shardtools.build.write import BuildTask
from shardtools.engines import Engine, Report, Task
from shardtools.errors import UsageError
from shardtools.storage import Storage
from shardtools.units import Budget

_FIRST_WAVE = 4


@dataclass(frozen=True)
class Share:
    """What one of ``count`` runs does that work on one build without waiting for each other."""

    number: int
    """0 to ``count - 1``."""
    count: int

    @classmethod
    def parse(cls, text: str) -> "Share":
        """``I/N``, as a user counts: the first is 1/N. Raises UsageError for anything else."""
        number, slash, count = text.partition("/")
        if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise UsageError(f"expected --part as I/N, from 1/N to N/N, got {text!r}")
        return cls(int(number) - 1, int(count))

    def __str__(self) -> str:
        return f"{self.number + 1}/{self.count}"

    def has(self, index: int) -> bool:
        """Whether the partition of that index is its own."""
        return index % self.count == self.number

    def of(self, items: Sequence[Any]) -> list[Any]:
        return [item for item in items if self.has(item.index)]

    def all(self) -> list["Share"]:
        """This one first, then those of the others."""
        return [Share((self.number + i) % self.count, self.count) for i in range(self.count)]


@dataclass(frozen=True)
class Job:
    """One build, as a run finds it when it has planned."""

    storage: Storage
    planned: PlannedBuild
    budget: Budget
    engine: Engine
    report: Report
    final: Planned | None = None
    """Names that shards get at once; None: those they have until publication."""
    share: Share | None = None
    """None: everything."""

    @property
    def terms(self) -> Terms:
        plan, spans_machines = self.planned.plan, self.share is not None or self.engine.spans_machines
        return Terms(plan.recipe, plan.digest, self.planned.roots, self.storage.uri, self.budget, spans_machines)


@dataclass(frozen=True)
class Built:
    """A build of which nothing is missing but its publication."""

    progress: BuildProgress
    reads: Sequence[Receipt] = ()
    """Of the pass that read the input, where it is not the one that built the shards."""


@dataclass(frozen=True)
class Left:
    """What others have to do of the first pass that is not complete."""

    num_partitions: int


def selected(job: Job) -> list[Selected]:
    """The partitions that the build reads, each with what is taken of it. What a look at them found lies in the storage."""
    found = _Run(job).selected()
    assert found is not None, "a run that does everything leaves nothing to others"
    return found


def advance(job: Job, on_read: Callable[[Sequence[Receipt]], None] = lambda _: None) -> Built | Left:
    """Do this run's work; Left where others have theirs to do before anything can be published.

    With a share, a run does that share of the first pass. Where it finds a pass complete it does all that is left of the next,
    its own share first. ``on_read`` may refuse what was read before shards are built of what was scattered.
    """
    run = _Run(job)
    return _built(run, on_read) or Left(run.num_left)


def _built(run: "_Run", on_read: Callable[[Sequence[Receipt]], None]) -> Built | None:
    job, selected = run.job, run.selected()
    if selected is None:
        return None
    if job.planned.is_scattered:
        return _scattered(run, selected, on_read)
    plan = job.planned.plan
    progress = BuildProgress(job.storage, plan, job.final, selected)
    return Built(progress) if run.finish(BuildTask(job.terms, job.final), partial(progress.missing, run.own.has)) else None


def _scattered(run: "_Run", selected: Sequence[Selected], on_read: Callable[[Sequence[Receipt]], None]) -> Built | None:
    # Only here: packing to WDS does without numpy.
    from shardtools.build.stages.assemble import AssembleTask
    from shardtools.build.stages.layout import ScatterLayout
    from shardtools.build.stages.parts import cut_parts
    from shardtools.build.stages.scatter import ScatterProgress, ScatterTask

    job, plan = run.job, run.job.planned.plan
    layout = ScatterLayout.of(job.planned)
    scatter = ScatterProgress(job.storage, plan.digest, layout, selected)
    if not run.finish(ScatterTask(job.terms, layout), scatter.missing):
        return None
    found = scatter.scattered()
    reads = [one.receipt for one in found]
    refuse_over_budget(job.budget, reads)
    on_read(reads)
    parts = cut_parts(plan.recipe, layout, found)
    progress = BuildProgress(job.storage, plan, None, parts)
    task = AssembleTask(job.terms, layout, tuple(one.spill for one in found))
    return Built(progress, reads) if run.finish(task, partial(progress.missing, run.own.has)) else None


class _Run:
    """Does what is missing, or a share of it."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.own = job.share or Share(0, 1)
        self._is_past_first = False
        self.num_left = 0
        """What is missing of the pass that others have to complete."""

    def selected(self) -> list[Selected] | None:
        """The partitions that are read, each with what is taken of it; None where others have not looked at all yet."""
        job, selection = self.job, self.job.planned.plan.recipe.selection
        partitions = job.planned.plan.partitions
        if not selection.looks_ahead:
            return [Selected(partition) for partition in partitions]
        from shardtools.build.stages.cuts import cuts_of
        from shardtools.build.stages.look import LookProgress

        num_looked = len(partitions) if selection.limit is None else 0
        cuts: list[Cut] = []
        while True:
            num_looked = min(max(num_looked, _FIRST_WAVE), len(partitions))
            progress = LookProgress(job.storage, job.planned.plan.digest, partitions[:num_looked])
            if not self.finish(self._look_task(), progress.missing):
                return None
            cuts, is_reached = cuts_of(job.storage, progress.looked(), selection)
            if is_reached or num_looked == len(partitions):
                return [Selected(partition, cut) for partition, cut in zip(partitions, cuts, strict=False)]
            # What comes of it depends on the order of partitions alone, not on how many are looked at together.
            num_looked *= 2

    def finish(self, task: Task, missing: Callable[[], Sequence[Any]]) -> bool:
        """Do what this run has to do of a pass. Whether nothing of it is missing any more."""
        for share in self.own.all():
            todo = missing()
            if not todo:
                break
            # Once a pass is complete nobody may be left who would do the others' shares of the next.
            if share != self.own and not self._is_past_first:
                self.num_left = len(todo)
                return False
            self._do(task, share.of(todo))
        self._is_past_first = True
        return True

    def _do(self, task: Task, items: Sequence[Any]) -> None:
        if items:
            self.job.engine.run(task, items, self.job.report)

    def _look_task(self) -> Task:
        from shardtools.build.stages.look import LookTask

        planned = self.job.planned
        num_bytes = sum(partition.input_bytes for partition in planned.plan.partitions)
        return LookTask(self.job.terms, planned.survey.expected_bytes / max(num_bytes, 1))

"""The whole job: plan from metadata, do what is missing of each pass, publish."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shardtools.build.destination import Destination, refuse_inside
from shardtools.build.order import Order
from shardtools.build.planning import PlannedBuild, plan_build
from shardtools.build.publish import Publisher
from shardtools.build.sight import seeing_destination, seeing_inputs
from shardtools.build.stages.advance import Built, Job, Share, advance
from shardtools.engines import Engine, Progress
from shardtools.engines.serial import Serial
from shardtools.errors import BadSampleError, ShardtoolsError, StorageError, UsageError
from shardtools.manifest import Manifest
from shardtools.sources import Input, Survey, resolve_inputs
from shardtools.storage import open_storage
from shardtools.units import Budget


@dataclass(frozen=True)
class RunOptions:
    """How the work is done. Nothing here changes a published byte."""

    engine: Engine = field(default_factory=Serial)
    budget: Budget = field(default_factory=Budget)
    """How many bad samples are set aside before the run fails."""
    overwrite: bool = False
    part: Share | None = None
    """What this run does of a build that others work on, too; None: everything. For ``build_part``."""

    def __post_init__(self) -> None:
        if self.part is not None and self.overwrite:
            raise UsageError("expected no --overwrite with --part, which would discard what other parts built; remove DST first instead")


@dataclass(frozen=True)
class Result:
    """What a build did."""

    manifest: Manifest
    survey: Survey
    """What planning found: notes, and what was left out."""
    already_complete: bool
    warnings: list[str]
    seconds: float


@dataclass(frozen=True)
class PartDone:
    """What a part did that leaves work to other parts: nothing is published yet."""

    part: Share
    num_partitions: int
    num_left: int
    """Partitions that are missing of the first pass that is not complete."""
    survey: Survey
    seconds: float


@dataclass(frozen=True)
class Listener:
    """Callbacks into whoever shows what happens; the library itself prints nothing."""

    on_plan: Callable[[PlannedBuild], None] = lambda _: None
    on_progress: Callable[[Progress], None] = lambda _: None


def build(
    sources: Sequence[str | Input], destination: str, order: Order, options: RunOptions | None = None, listener: Listener | None = None
) -> Result:
    """Pack the sources into a dataset at ``destination``, or finish what an earlier run of the same plan began.

    Raises UsageError where the destination holds something else, BadSampleError, DuplicateKeyError, StorageError.
    """
    if options is not None and options.part is not None:
        raise UsageError("expected build_part() for options with a part, got build(), which leaves nothing to others")
    done = build_part(sources, destination, order, options, listener)
    assert isinstance(done, Result), "a run that does everything leaves nothing to others"
    return done


def build_part(
    sources: Sequence[str | Input], destination: str, order: Order, options: RunOptions | None = None, listener: Listener | None = None
) -> Result | PartDone:
    """As ``build``, by runs of a part each, in any order and at any time: none waits for another.

    A part builds its share of the first pass. The one that finds a pass complete builds what is left of the next, and the one
    that finds everything built publishes it.
    """
    began = time.monotonic()
    options, listener = options or RunOptions(), listener or Listener()
    storage = open_storage(destination)
    inputs = resolve_inputs(sources)
    refuse_inside(inputs, storage)
    place: Destination | None = None
    try:
        with options.engine as live:
            engine = seeing_inputs(live, [*inputs, *order.media])
            planned = plan_build(inputs, order, engine)
            listener.on_plan(planned)
            publisher = Publisher(storage, planned.plan, planned.roots, options.budget, options.overwrite)
            place = Destination(storage, planned.plan, publisher)
            if not options.overwrite and (finished := place.finished()) is not None:
                return Result(finished, planned.survey, True, place.stale_warning(planned.survey.newest_ns), time.monotonic() - began)
            place.prepare(options.overwrite)
            final = place.planned_names() if _is_fixed(planned, options) else None
            watch = _BudgetWatch(options.budget, listener.on_progress)
            job = Job(storage, planned, options.budget, seeing_destination(engine, storage), watch, final, options.part)
            manifest, warnings, num_left = _finished(job, place, publisher)
    except ShardtoolsError as error:
        # The workers have ended by now, and with them all writing.
        overtaking = place.taken_over(options.overwrite) if place is not None and isinstance(error, StorageError) else None
        if overtaking is None:
            # What other parts need stays.
            if place is not None and options.part is None:
                place.forget_if_empty()
            raise
        manifest, warnings = overtaking, []
    if manifest is None:
        return PartDone(options.part or Share(0, 1), len(planned.plan.partitions), num_left, planned.survey, time.monotonic() - began)
    return Result(manifest, planned.survey, False, warnings, time.monotonic() - began)


def foresee(planned: PlannedBuild, inputs: Sequence[Input], destination: str, overwrite: bool) -> str:
    """What a run of the plan would do at the destination, in a few words; raises what it would raise before it writes."""
    storage = open_storage(destination)
    refuse_inside(inputs, storage)
    return Destination(storage, planned.plan, Publisher(storage, planned.plan, planned.roots, Budget(), overwrite)).foreseen(overwrite)


def _finished(job: Job, place: Destination, publisher: Publisher) -> tuple[Manifest | None, list[str], int]:
    """Does this run's work. The dataset, if nothing is left to others, with warnings; and how many partitions are."""
    built = advance(job, publisher.refuse_repeats)
    if isinstance(built, Built):
        return *publisher.publish(built.progress, built.reads), 0
    # What is missing may have been published and cleaned up by another part.
    manifest = place.taken_over(overwrite=False)
    if manifest is None:
        place.leave()
    return manifest, [], built.num_partitions


def _is_fixed(planned: PlannedBuild, options: RunOptions) -> bool:
    """Whether every shard is known before the first is built: a sample that is set aside, a step or a transform would change that."""
    recipe = planned.plan.recipe
    is_planned = planned.survey.fixes_shards and not (recipe.transforms or recipe.steps) and planned.passes == ("build",)
    return is_planned and options.budget == Budget() and not options.overwrite


@dataclass
class _BudgetWatch:
    """Adds up bad samples over all partitions, and stops the run when they are too many."""

    budget: Budget
    on_progress: Callable[[Progress], None]
    num_rejects: int = 0

    def __call__(self, progress: Progress) -> None:
        self.on_progress(progress)
        self.num_rejects += progress.num_rejects
        if not self.budget.allows_so_far(self.num_rejects):
            raise BadSampleError(
                f"more than the {self.budget} bad samples that --max-bad allows; raise it, or run without it to see the first"
            )

"""The whole job: plan from metadata, run the partitions that are not built yet, publish."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shardtools.build.destination import Destination, refuse_inside
from shardtools.build.order import Order
from shardtools.build.progress import BuildProgress
from shardtools.build.publish import Publisher
from shardtools.build.token_order import request_for
from shardtools.build.write import BuildTask
from shardtools.engines import Engine, Progress
from shardtools.engines.serial import Serial
from shardtools.errors import BadSampleError, ShardtoolsError, StorageError
from shardtools.manifest import Manifest
from shardtools.partitions import parts_note
from shardtools.plan import Plan, Recipe, ShardLimit
from shardtools.sources import Input, Spread, Survey, SurveyRequest, resolve_inputs, spread_here
from shardtools.storage import open_storage
from shardtools.transforms import Transform
from shardtools.units import Budget


@dataclass(frozen=True)
class RunOptions:
    """How the work is done. Nothing here changes a published byte."""

    engine: Engine = field(default_factory=Serial)
    budget: Budget = field(default_factory=Budget)
    """How many bad samples are set aside before the run fails."""
    overwrite: bool = False


@dataclass(frozen=True)
class PlannedBuild:
    """A plan with what planning found out."""

    plan: Plan
    survey: Survey
    roots: tuple[str, ...]


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
class Listener:
    """Callbacks into whoever shows what happens; the library itself prints nothing."""

    on_plan: Callable[[PlannedBuild], None] = lambda _: None
    on_progress: Callable[[Progress], None] = lambda _: None


def plan_build(sources: Sequence[str | Input], order: Order, engine: Engine | None = None) -> PlannedBuild:
    """Scan the inputs and settle the recipe. Reads metadata and at most 1,000 records.

    ``sources`` are folders, files, ``@list`` or ``-``, or inputs made of them. Raises UsageError where they leave a choice open.
    """
    inputs = resolve_inputs(sources)
    limit = order.limit or ShardLimit(num_bytes=order.format.default_shard_bytes)
    spread = _spread(engine) if engine is not None else spread_here
    request = SurveyRequest(inputs, order.format, limit, order.shuffle_seed, spread, order.encodings)
    transforms: tuple[Transform, ...] = ()
    if order.tokens is not None:
        request = request_for(order.tokens.encode, replace(request, wanted=order.tokens.wanted))
    survey = order.source.survey(request)
    if order.tokens is not None:
        transforms, survey.fields = order.tokens.transforms(survey.fields, npy=order.format.index_name is None)
        survey.notes += order.tokens.notes
        order.format.encoder(survey.fields, limit.num_bytes)  # refuses fields the format cannot hold, and shards too small for them
    survey.notes += parts_note(survey.partitions, limit, survey.expected_bytes)
    recipe = Recipe(survey.source, order.format, survey.fields, limit, order.shuffle_seed, order.sidecars, transforms)
    return PlannedBuild(Plan.make(recipe, survey.partitions), survey, tuple(given.root for given in inputs))


def build(
    sources: Sequence[str | Input], destination: str, order: Order, options: RunOptions | None = None, listener: Listener | None = None
) -> Result:
    """Pack the sources into a dataset at ``destination``, or finish what an earlier run of the same plan began.

    Raises UsageError where the destination holds something else, BadSampleError, DuplicateKeyError, StorageError.
    """
    began = time.monotonic()
    options, listener = options or RunOptions(), listener or Listener()
    storage = open_storage(destination)
    inputs = resolve_inputs(sources)
    refuse_inside(inputs, storage)
    place: Destination | None = None
    try:
        with options.engine as engine:
            planned = plan_build(inputs, order, engine)
            listener.on_plan(planned)
            publisher = Publisher(storage, planned.plan, planned.roots, options.budget, options.overwrite)
            place = Destination(storage, planned.plan, publisher)
            if not options.overwrite and (finished := place.finished()) is not None:
                return Result(finished, planned.survey, True, place.stale_warning(planned.survey.newest_ns), time.monotonic() - began)
            place.prepare(options.overwrite)
            task = BuildTask(planned.plan.recipe, planned.plan.digest, planned.roots, storage.uri, options.budget)
            engine.run(task, BuildProgress(storage, planned.plan).missing(), _BudgetWatch(options.budget, listener.on_progress))
            manifest, warnings = publisher.publish()
    except ShardtoolsError as error:
        # The workers have ended by now, and with them all writing.
        overtaking = place.taken_over(options.overwrite) if place is not None and isinstance(error, StorageError) else None
        if overtaking is None:
            if place is not None:
                place.forget_if_empty()
            raise
        manifest, warnings = overtaking, []
    return Result(manifest, planned.survey, False, warnings, time.monotonic() - began)


def _spread(engine: Engine) -> Spread:
    """Planning work on the engine that will run the partitions."""

    def spread(function: Callable[[Any, Any], Any], items: Sequence[Any]) -> list[Any]:
        results: list[Any] = []
        engine.run(function, items, lambda _: None, results.append)
        return results

    return spread


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

"""The whole job: plan from metadata, run the partitions that are not built yet, publish."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardtools.build.order import Order
from shardtools.build.publish import Publisher
from shardtools.build.receipts import KEPT_PLAN_NAME, PLAN_NAME
from shardtools.build.write import BuildTask
from shardtools.engines import Engine, Progress
from shardtools.engines.serial import Serial
from shardtools.errors import BadSampleError, StorageError, UsageError
from shardtools.manifest import BUILD_FOLDER, MANIFEST_NAME, PRIVATE_FOLDER, Manifest
from shardtools.plan import Plan, Recipe, ShardLimit
from shardtools.sources import Input, Spread, Survey, SurveyRequest, resolve_inputs, spread_here
from shardtools.storage import Storage, open_storage
from shardtools.units import Budget, plural


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
    survey = order.source.survey(SurveyRequest(inputs, order.format, limit, order.shuffle_seed, spread, order.encodings))
    recipe = Recipe(survey.source, order.format, survey.fields, limit, order.shuffle_seed)
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
    _refuse_destination_inside(inputs, storage)
    was_overtaken = False
    with options.engine as engine:
        planned = plan_build(inputs, order, engine)
        listener.on_plan(planned)
        publisher = Publisher(storage, planned.plan, planned.roots, options.budget)
        old = publisher.read_manifest()
        if old is not None and not options.overwrite:
            if old.plan_digest != planned.plan.digest:
                raise _refusal(storage, planned.plan, KEPT_PLAN_NAME, "a finished dataset")
            publisher.clean_up()
            return Result(old, True, _stale_warning(storage, planned), time.monotonic() - began)
        task = BuildTask(planned.plan.recipe, planned.plan.digest, planned.roots, storage.uri, options.budget)
        try:
            _prepare(storage, planned.plan, publisher, options.overwrite, old)
            engine.run(task, publisher.missing(), _BudgetWatch(options.budget, listener.on_progress))
            manifest, warnings = publisher.publish(old)
        except StorageError:
            # Another run of the same plan may have published and cleaned up under this one's feet.
            if options.overwrite or not publisher.is_published():
                raise
            manifest, warnings, was_overtaken = publisher.published(), [], True
    if was_overtaken:
        # What the workers, ended by now, wrote after the other run cleaned up.
        storage.delete(BUILD_FOLDER)
    return Result(manifest, False, warnings, time.monotonic() - began)


def _spread(engine: Engine) -> Spread:
    """Planning work on the engine that will run the partitions."""

    def spread(function: Callable[[Any, Any], Any], items: Sequence[Any]) -> list[Any]:
        results: list[Any] = []
        engine.run(function, items, lambda _: None, results.append)
        return results

    return spread


def _prepare(storage: Storage, plan: Plan, publisher: Publisher, overwrite: bool, old: Manifest | None) -> None:
    """Leave the destination with this plan and nothing that does not belong to it, or refuse."""
    if overwrite:
        publisher.remove_replaced()
        publisher.remove_unfinished()
        storage.delete(BUILD_FOLDER)
    stored = storage.get(PLAN_NAME)
    if stored is None:
        _refuse_foreign(storage, publisher, old)
        if storage.create(PLAN_NAME, plan.serialize()):
            return
        stored = storage.get(PLAN_NAME)
    if stored is not None and Plan.digest_of(stored) != plan.digest:
        raise _refusal(storage, plan, PLAN_NAME, "an unfinished build")


def _refuse_foreign(storage: Storage, publisher: Publisher, old: Manifest | None) -> None:
    known = set(old.names()) | {MANIFEST_NAME} if old is not None else set()
    foreign = [name for name in storage.names() if name not in known and not name.startswith(PRIVATE_FOLDER + "/")]
    if not foreign:
        return
    if old is None and publisher.is_published():
        raise StorageError("another run of the same plan was faster")
    raise UsageError(
        f"expected {storage.uri} to be empty, got {plural(len(foreign), 'file')} that no manifest names, such as {min(foreign)}; "
        "choose another destination or move the files away"
    )


def _refusal(storage: Storage, plan: Plan, name: str, what: str) -> UsageError:
    stored = storage.get(name)
    differences = plan.differences(stored) if stored is not None else ["its plan is not there to compare"]
    shown = "; ".join(differences[:5])
    return UsageError(
        f"expected {storage.uri} to be empty or of the same plan, got {what} of another: {shown}; "
        "choose another destination, or --overwrite to replace it"
    )


def _stale_warning(storage: Storage, planned: PlannedBuild) -> list[str]:
    published_ns = storage.modified_ns(MANIFEST_NAME)
    if published_ns is None or planned.survey.newest_ns <= published_ns:
        return []
    return ["inputs of the same names and sizes were modified after the dataset was published; --overwrite packs them anew"]


def _refuse_destination_inside(inputs: Sequence[Input], storage: Storage) -> None:
    for given in inputs:
        root = os.path.realpath(given.root)
        if given.paths is None and os.path.commonpath([root, os.path.realpath(storage.uri)]) == root:
            raise UsageError(f"expected a destination outside the source {given.root}, got {storage.uri}; its shards would become input")


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

"""The first half of the job: look at the inputs, settle every choice, cut the input into partitions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardtools.build.first_look import FirstLook
from shardtools.build.order import Order
from shardtools.build.shrinking import surveyed
from shardtools.build.token_order import request_for
from shardtools.engines import Engine
from shardtools.partitions import parts_note
from shardtools.plan import Plan, Recipe, ShardLimit
from shardtools.sources import Input, Spread, Survey, SurveyRequest, resolve_inputs, spread_here
from shardtools.transforms import Transform


@dataclass(frozen=True)
class PlannedBuild:
    """A plan with what planning found out."""

    plan: Plan
    survey: Survey
    roots: tuple[str, ...]

    @property
    def is_permuted(self) -> bool:
        """Whether samples are put into another order while they are built."""
        return self.plan.recipe.shuffle_seed is not None and not self.survey.is_shuffled

    @property
    def is_scattered(self) -> bool:
        """Whether every sample is written to a spill before it comes to its shard."""
        return self.is_permuted or bool(self.plan.recipe.selection.split)

    @property
    def passes(self) -> tuple[str, ...]:
        """What is done with all samples, one after the other."""
        looks, scatters = self.plan.recipe.selection.looks_ahead, self.is_scattered
        return (*(["select"] if looks else []), *(["scatter"] if scatters else []), "build")


def plan_build(sources: Sequence[str | Input], order: Order, engine: Engine | None = None) -> PlannedBuild:
    """Scan the inputs and settle the recipe. Reads metadata and at most 1,000 records.

    ``sources`` are folders, files, ``@list`` or ``-``, or inputs made of them. Raises UsageError where they leave a choice open.
    """
    inputs = resolve_inputs(sources)
    limit = order.limit or ShardLimit(num_bytes=order.format.default_shard_bytes)
    look = FirstLook(order.steps, tuple(given.root for given in inputs))
    survey = surveyed(order.source, _request(inputs, order, limit, engine, look), look)
    survey.notes += look.notes
    for step in look.steps:
        survey.fields = step.fields(survey.fields)
    transforms: tuple[Transform, ...] = ()
    if order.tokens is not None:
        transforms, survey.fields = order.tokens.transforms(survey.fields, npy=order.format.index_name is None)
        survey.notes += order.tokens.notes
    if order.tokens is not None or order.steps:
        order.format.encoder(survey.fields, limit.num_bytes)  # refuses fields the format cannot hold, and shards too small for them
    recipe = Recipe(
        source=survey.source,
        format=order.format,
        fields=survey.fields,
        limit=limit,
        shuffle_seed=order.shuffle_seed,
        sidecars=order.sidecars,
        transforms=transforms,
        steps=look.steps,
        selection=order.selection,
    )
    planned = PlannedBuild(Plan.make(recipe, survey.partitions), survey, tuple(given.root for given in inputs))
    if planned.passes == ("build",):
        survey.notes += parts_note(survey.partitions, limit, survey.expected_bytes)
    return planned


def _request(inputs: Sequence[Input], order: Order, limit: ShardLimit, engine: Engine | None, look: FirstLook) -> SurveyRequest:
    request = SurveyRequest(
        inputs=inputs,
        format=order.format,
        limit=limit,
        shuffle_seed=order.shuffle_seed,
        spread=spread_on(engine) if engine is not None else spread_here,
        encodings=order.encodings,
    )
    request = look.of(request, order.selection.extras)
    return request if order.tokens is None else request_for(order.tokens.encode, replace(request, wanted=order.tokens.wanted))


def spread_on(engine: Engine) -> Spread:
    """Planning work on a live engine."""

    def spread(function: Callable[[Any, Any], Any], items: Sequence[Any]) -> list[Any]:
        results: list[Any] = []
        engine.run(function, items, lambda _: None, results.append)
        return results

    return spread

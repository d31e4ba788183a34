"""``shardtools pack``: build a dataset."""

from collections.abc import Mapping
from dataclasses import dataclass

import click

from shardtools import plugins
from shardtools.build.order import OrderWords, order_of
from shardtools.build.planning import PlannedBuild, plan_build
from shardtools.build.run import Listener, PartDone, RunOptions, build_part, foresee
from shardtools.build.stages.advance import Share
from shardtools.cli._help import GroupedCommand
from shardtools.cli._output import Answer, json_lines, say, table_lines
from shardtools.cli._pack_options import IMAGES, INPUT, OUTPUT, OVERWRITE, RUN, SELECTION, TOKENS
from shardtools.cli._pack_summary import notes, part_json, part_rows, plan_json, plan_rows, result_json, result_rows
from shardtools.cli._progress import ProgressBar
from shardtools.cli._recipe import write_recipe
from shardtools.errors import UsageError
from shardtools.manifest import REJECTS_NAME
from shardtools.sources import resolve_inputs
from shardtools.units import Budget

_EXAMPLES = (
    "shardtools pack images/ shards/images --to wds",
    "shardtools pack docs.jsonl shards/docs --to mds --compression zstd",
    "shardtools pack docs.jsonl shards/tokens --to mds --tokenizer tokenizer/ --seq-len 2048 --packing bfd",
)


@dataclass(frozen=True)
class RunWords:
    """How the work is done and shown, as it was typed."""

    engine: str
    engine_options: Mapping[str, str]
    max_bad: str
    part: str | None
    overwrite: bool
    dry_run: bool
    write_recipe: str | None
    as_json: bool


@click.command("pack", cls=GroupedCommand, examples=_EXAMPLES, gathers={"order": OrderWords, "run": RunWords})
@click.argument("sources", nargs=-1, required=True, metavar="SRC...")
@click.argument("destination", metavar="DST")
@OUTPUT
@OVERWRITE
@INPUT
@TOKENS
@SELECTION
@IMAGES
@RUN
@click.pass_context
def command(context: click.Context, sources: tuple[str, ...], destination: str, order: OrderWords, run: RunWords) -> Answer:
    """Pack SRC (folders, files, @LIST or - for a list of paths) into shards at DST; either may be s3://BUCKET/PREFIX.

    The bytes at DST depend on the input and these options only, never on the number of workers. An interrupted run goes
    on where it stopped when the same command is given again.
    """
    inputs = resolve_inputs(sources)
    ordered = order_of(inputs, order)
    budget = Budget.parse(run.max_bad)
    part = None if run.part is None else Share.parse(run.part)
    engine = plugins.make("engines", run.engine, run.engine_options, "--engine")
    if run.write_recipe is not None and not run.dry_run:
        raise UsageError("expected --dry-run with --write-recipe FILE, got none; add it, and pack with --recipe FILE afterwards")
    if run.dry_run:
        planned = plan_build(inputs, ordered)
        found = foresee(planned, inputs, destination, run.overwrite)
        if run.write_recipe is not None:
            write_recipe(run.write_recipe, context)
        plan = {**plan_json(planned), "destination": found}
        return Answer(json_lines(plan) if run.as_json else table_lines([*plan_rows(planned), ("destination", found)]))
    with ProgressBar("pack") as bar:

        def on_plan(planned: PlannedBuild) -> None:
            for note in notes(planned.survey):
                say(note)
            bar.begin(planned.survey.expected_bytes * len(planned.passes), "row" if planned.plan.recipe.transforms else "sample")

        result = build_part(inputs, destination, ordered, RunOptions(engine, budget, run.overwrite, part), Listener(on_plan, bar.add))
    if isinstance(result, PartDone):
        return Answer(json_lines(part_json(result)) if run.as_json else table_lines(part_rows(result)))
    for warning in result.warnings:
        say(f"warning: {warning}")
    if result.manifest.ledger.num_rejected:
        say(f"warning: bad samples were set aside, each with its place and reason in {destination.rstrip('/')}/{REJECTS_NAME}")
    if run.as_json:
        said = {} if part is None else {"part": str(part), "published": True, "left": 0}
        return Answer(json_lines({**said, **result_json(result)}))
    if result.already_complete:
        say("already complete: the dataset of this very plan is there")
    return Answer(table_lines(result_rows(result)))

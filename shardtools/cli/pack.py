"""``shardtools pack``: build a dataset."""

from collections.abc import Mapping
from dataclasses import dataclass

import click

from shardtools import plugins
from shardtools.build.order import AUTO, OrderWords, order_of
from shardtools.build.run import Listener, PlannedBuild, RunOptions, build, plan_build
from shardtools.cli._help import GroupedCommand, option, options
from shardtools.cli._output import Answer, json_lines, say, table_lines
from shardtools.cli._pack_summary import notes, plan_json, plan_rows, result_json, result_rows
from shardtools.cli._progress import ProgressBar
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
    overwrite: bool
    dry_run: bool
    as_json: bool


@click.command("pack", cls=GroupedCommand, examples=_EXAMPLES, gathers={"order": OrderWords, "run": RunWords})
@click.argument("sources", nargs=-1, required=True, metavar="SRC...")
@click.argument("destination", metavar="DST")
@options(
    "Output",
    option("--to", "format", type=click.Choice(plugins.names("formats")), required=True, help="WebDataset tar or Mosaic MDS."),
    option("--shard-size", metavar="SIZE", help="Most bytes a shard may have. [default: 256MiB for wds, 64MiB for mds]"),
    option("--shard-samples", type=int, metavar="N", help="Samples in every shard, in place of a size."),
    option("--compression", of="format", metavar="zstd[:LEVEL]", help="Compress MDS shards."),
    option("--hashes", of="format", metavar="NAMES", help="Hashes in MDS's index.json: sha1,xxh64."),
    option("--sidecars", metavar="NAMES", help="Index files of other readers of WDS: dali,wids,energon."),
    into="order",
)
@options("Output", option("--overwrite", is_flag=True, help="Replace the dataset at DST once the new one is built."), into="run")
@options(
    "Input",
    option("--from", "source", type=click.Choice([AUTO, *plugins.names("sources")]), default=AUTO, help="What SRC is. [default: auto]"),
    option(
        "--group",
        of="source",
        metavar="[auto|first-dot|last-dot|file]",
        help="Which files are one sample: the same name up to the first or last dot, or each its own. [default: auto]",
    ),
    option("--fields", of="source", metavar="SPEC", help="Fields by file extension, ? after what may be missing: image=jpg|png,json?"),
    option("--columns", metavar="SPEC", help="MDS encodings in place of the inferred ones: meta=json,score=float32"),
    option("--map", of="source", metavar="SPEC", help="Fields made of record fields: txt=text,cls=label"),
    option("--key", of="source", metavar="FIELD", help="Record field that names the sample. [default: file and byte offset]"),
    option("--key-column", of="format", metavar="NAME", help="MDS column that holds the key, or none. [default: key]"),
    option("--keep-path", of="source", is_flag=True, help="Keep the name before escaping in a field, path."),
    option("--label-from", of="source", metavar="[dir]", help="Label samples (cls) by their top-level folder."),
    option("--max-line-bytes", of="source", metavar="SIZE", help="Longest JSON line. [default: 512MiB]"),
    into="order",
)
@options(
    "Tokens",
    option("--tokenizer", of="token", metavar="FILE|DIR", help="Store tokens: tokenizer.json, or the folder it lies in."),
    option("--text-key", of="token", metavar="A.B", help="Record field, or file extension, of the text. [default: text; messages]"),
    option("--seq-len", of="token", metavar="N", help="Tokens in a row."),
    option("--packing", of="token", metavar="[none|concat|bfd]", help="Documents into rows. [default: bfd with --seq-len, else none]"),
    option("--bos", of="token", metavar="[auto|none|TOKEN]", help="First token of a document. [default: auto]"),
    option("--eos", of="token", metavar="[auto|none|TOKEN]", help="Last token of a document. [default: auto]"),
    option(
        "--special-in-text", of="token", metavar="[split|parse|reject]", help="Text that spells a special token. [default: split, as text]"
    ),
    option("--long-docs", of="token", metavar="[split|truncate|drop]", help="Documents above a row. [default: split; chats: drop]"),
    option("--tail", of="token", metavar="[pad|drop]", help="Last row of a partition that is not full. [default: pad]"),
    option(
        "--chat",
        of="token",
        is_flag=True,
        help="Text is a list of messages, packed by the tokenizer's template with a loss mask. Chats longer than --seq-len are "
        "left out and counted.",
    ),
    option(
        "--doc-ids", of="token", is_flag=True, help="Keep which document each piece of a row is of: KEY, or KEY@OFFSET:TOTAL in tokens."
    ),
    option("--backend", of="token", metavar="[auto|hf|gigatoken]", help="Who encodes; the ids are the same. [default: auto]"),
    option("--dtype", of="token", metavar="[auto|uint16|uint32|int32]", help="Type of stored ids. [default: auto, by the largest]"),
    option("--max-doc-bytes", of="token", metavar="SIZE", help="Most text that is encoded at once. [default: 1MiB]"),
    option(
        "--oversized", of="token", metavar="[cut|reject]", help="Documents above that: encode in pieces cut at newlines. [default: cut]"
    ),
    into="order",
)
@options(
    "Selection",
    option("--shuffle", is_flag=True, help="Permute all samples; needs --seed."),
    option(
        "--seed",
        type=click.IntRange(0, 2**64 - 1),
        metavar="S",
        help="Seed of --shuffle, and of the order of packed rows. [default: none; 0 for packed rows]",
    ),
    into="order",
)
@options(
    "Run",
    option("--workers", of="engine", type=click.IntRange(1), metavar="N", help="Worker processes. [default: one per core]"),
    option("--engine", type=click.Choice(plugins.names("engines")), default="processes", help="Who does the work. [default: processes]"),
    option("--max-bad", default="0", metavar="N|P%", help="Bad samples to set aside before the run fails. [default: 0]"),
    option("--dry-run", is_flag=True, help="Show the plan, write nothing."),
    option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
    into="run",
)
def command(sources: tuple[str, ...], destination: str, order: OrderWords, run: RunWords) -> Answer:
    """Pack SRC (folders, files, @LIST or - for a list of paths) into shards at DST.

    The bytes at DST depend on the input and these options only, never on the number of workers. An interrupted run goes
    on where it stopped when the same command is given again.
    """
    inputs = resolve_inputs(sources)
    ordered = order_of(inputs, order)
    budget = Budget.parse(run.max_bad)
    engine = plugins.make("engines", run.engine, run.engine_options, "--engine")
    if run.dry_run:
        planned = plan_build(inputs, ordered)
        return Answer(json_lines(plan_json(planned)) if run.as_json else table_lines(plan_rows(planned)))
    with ProgressBar("pack") as bar:

        def on_plan(planned: PlannedBuild) -> None:
            for note in notes(planned.survey):
                say(note)
            bar.begin(planned.survey.expected_bytes, "row" if planned.plan.recipe.transforms else "sample")

        result = build(inputs, destination, ordered, RunOptions(engine, budget, run.overwrite), Listener(on_plan, bar.add))
    for warning in result.warnings:
        say(f"warning: {warning}")
    if result.manifest.ledger.num_rejected:
        say(f"warning: bad samples were set aside, each with its place and reason in {destination}/{REJECTS_NAME}")
    if run.as_json:
        return Answer(json_lines(result_json(result)))
    if result.already_complete:
        say("already complete: the dataset of this very plan is there")
    return Answer(table_lines(result_rows(result)))

"""``shardtools pack``: build a dataset."""

from collections.abc import Sequence
from typing import Any

import click

from shardtools import plugins
from shardtools.build.order import Order, detect_source, limit_of, parse_pairs
from shardtools.build.run import Listener, PlannedBuild, Result, RunOptions, build, plan_build
from shardtools.cli._help import GroupedCommand, option, options
from shardtools.cli._output import print_json, print_table, say
from shardtools.cli._progress import ProgressBar
from shardtools.errors import UsageError
from shardtools.formats import ShardFormat
from shardtools.sources import Input, Source, resolve_inputs
from shardtools.units import Budget, format_bytes, parse_bytes, plural

_EXAMPLES = (
    "shardtools pack images/ shards/ --to wds",
    "shardtools pack docs.jsonl shards/ --to mds --compression zstd --workers 8",
)
_FILE_OPTIONS = ("group", "fields", "label_from")
_RECORD_OPTIONS = ("map", "key", "max_line_bytes")
_MDS_OPTIONS = ("columns", "key_column", "compression", "hashes")


@click.command("pack", cls=GroupedCommand, examples=_EXAMPLES)
@click.argument("sources", nargs=-1, required=True, metavar="SRC...")
@click.argument("destination", metavar="DST")
@options(
    "Output",
    option("--to", "format_name", type=click.Choice(["wds", "mds"]), required=True, help="WebDataset tar or Mosaic MDS."),
    option("--shard-size", metavar="SIZE", help="Most bytes a shard may have. [default: 256MiB for wds, 64MiB for mds]"),
    option("--shard-samples", type=int, metavar="N", help="Samples in every shard, in place of a size."),
    option("--compression", metavar="zstd[:LEVEL]", help="Compress MDS shards."),
    option("--hashes", metavar="NAMES", help="Hashes in MDS's index.json: sha1,xxh64."),
    option("--overwrite", is_flag=True, help="Replace the dataset at DST once the new one is built."),
)
@options(
    "Input",
    option("--from", "source_name", type=click.Choice(["auto", "files", "jsonl"]), default="auto", help="What SRC is. [default: auto]"),
    option(
        "--group",
        type=click.Choice(["auto", "first-dot", "last-dot", "file"]),
        help="Which files are one sample: the same name up to the first or last dot, or each its own. [default: auto]",
    ),
    option("--fields", metavar="SPEC", help="Fields by file extension, ? after what may be missing: image=jpg|png,json?"),
    option("--columns", metavar="SPEC", help="MDS encodings in place of the inferred ones: meta=json,score=float32"),
    option("--map", metavar="SPEC", help="Fields made of record fields: txt=text,cls=label"),
    option("--key", metavar="FIELD", help="Record field that names the sample. [default: file and byte offset]"),
    option("--key-column", metavar="NAME", help="MDS column that holds the key, or none. [default: key]"),
    option("--keep-path", is_flag=True, help="Keep the name before escaping in a field, path."),
    option("--label-from", type=click.Choice(["dir"]), help="Label samples (cls) by their top-level folder."),
    option("--max-line-bytes", metavar="SIZE", help="Longest JSON line. [default: 512MiB]"),
)
@options(
    "Selection",
    option("--shuffle", is_flag=True, help="Permute all samples; needs --seed."),
    option("--seed", type=click.IntRange(0, 2**64 - 1), metavar="S", help="Seed of --shuffle."),
)
@options(
    "Run",
    option("--workers", type=click.IntRange(1), metavar="N", help="Worker processes. [default: one per core]"),
    option("--engine", "engine_name", type=click.Choice(["serial", "processes"]), default="processes", help="[default: processes]"),
    option("--max-bad", default="0", metavar="N|P%", help="Bad samples to set aside before the run fails. [default: 0]"),
    option("--dry-run", is_flag=True, help="Show the plan, write nothing."),
    option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
)
def command(sources: tuple[str, ...], destination: str, **given: Any) -> None:
    """Pack SRC (folders, files, @LIST or - for a list of paths) into shards at DST.

    The bytes at DST depend on the input and these options only, never on the number of workers. An interrupted run goes
    on where it stopped when the same command is given again.
    """
    inputs = resolve_inputs(sources)
    order = _order(inputs, given)
    budget = Budget.parse(given["max_bad"])
    if given["dry_run"]:
        _show_plan(plan_build(inputs, order), given["as_json"])
        return
    engine_options = {} if given["workers"] is None else {"workers": given["workers"]}
    engine = plugins.load("engines", given["engine_name"])(**engine_options)
    run_options = RunOptions(engine, budget, given["overwrite"])
    with ProgressBar("pack") as bar:

        def on_plan(planned: PlannedBuild) -> None:
            _say_notes(planned)
            bar.begin(planned.survey.expected_bytes)

        result = build(inputs, destination, order, run_options, Listener(on_plan, bar.add))
    _show_result(result, given["as_json"])


def _order(inputs: Sequence[Input], given: dict[str, Any]) -> Order:
    if given["shuffle"] != (given["seed"] is not None):
        raise UsageError("expected --shuffle and --seed S together, got only one; the seed fixes the order")
    return Order(
        source=_source(inputs, given),
        format=_format(given),
        limit=limit_of(None if given["shard_size"] is None else parse_bytes(given["shard_size"]), given["shard_samples"]),
        shuffle_seed=given["seed"],
        encodings={} if given["columns"] is None else parse_pairs(given["columns"], "--columns"),
    )


def _source(inputs: Sequence[Input], given: dict[str, Any]) -> Source:
    name = detect_source(inputs) if given["source_name"] == "auto" else given["source_name"]
    _refuse_given(given, _RECORD_OPTIONS if name == "files" else _FILE_OPTIONS, f"--from {name}")
    source: Source = plugins.load("sources", name).from_words(given)
    return source


def _format(given: dict[str, Any]) -> ShardFormat:
    if given["format_name"] == "wds":
        _refuse_given(given, _MDS_OPTIONS, "--to wds")
        wds: ShardFormat = plugins.load("formats", "wds")()
        return wds
    key_column = given["key_column"] or "key"
    mds: ShardFormat = plugins.load("formats", "mds")(
        compression=given["compression"],
        hashes=() if given["hashes"] is None else tuple(given["hashes"].split(",")),
        key_column=None if key_column == "none" else key_column,
    )
    return mds


def _refuse_given(given: dict[str, Any], names: Sequence[str], beside: str) -> None:
    for name in names:
        if given[name] is not None:
            raise UsageError(f"expected no --{name.replace('_', '-')} with {beside}, got it; leave it out")


def _say_notes(planned: PlannedBuild) -> None:
    survey = planned.survey
    for note in survey.notes:
        say(f"note: {note}")
    if survey.skipped:
        say("skipped: " + ", ".join(f"{count:,} {reason}" for reason, count in survey.skipped.items()))


def _show_plan(planned: PlannedBuild, as_json: bool) -> None:
    partitions, survey = planned.plan.partitions, planned.survey
    counts = [partition.num_samples for partition in partitions]
    num_samples = None if None in counts else sum(count or 0 for count in counts)
    content: dict[str, Any] = {
        "plan": planned.plan.digest,
        "samples": num_samples,
        "input_bytes": sum(partition.input_bytes for partition in partitions),
        "stored_bytes": survey.expected_bytes,
        "shards": sum(partition.num_shards for partition in partitions),
        "partitions": len(partitions),
        "fields": {field.name: field.encoding + ("?" if field.optional else "") for field in survey.fields},
        "first_keys": survey.preview,
        "key_twins": survey.num_twins,
        "skipped": survey.skipped,
        "notes": survey.notes,
    }
    if as_json:
        print_json(content)
        return
    _say_notes(planned)
    about = "" if num_samples is not None else "about "
    print_table(
        [
            ("samples", f"{num_samples:,}" if num_samples is not None else "known when they are read"),
            ("input", format_bytes(content["input_bytes"])),
            ("shards", f"{about}{content['shards']:,}, {about}{format_bytes(survey.expected_bytes)} in all"),
            ("fields", ", ".join(f"{name} ({encoding})" for name, encoding in content["fields"].items())),
            ("first keys", ", ".join(survey.preview)),
            ("collisions", f"{plural(survey.num_twins, 'key')} differ from another only by case or Unicode form"),
        ]
    )


def _show_result(result: Result, as_json: bool) -> None:
    manifest, ledger = result.manifest, result.manifest.ledger
    num_bytes = sum(shard.num_bytes for shard in manifest.shards)
    seconds = max(result.seconds, 1e-9)
    for warning in result.warnings:
        say(f"warning: {warning}")
    if as_json:
        print_json(
            {
                "already_complete": result.already_complete,
                "plan": manifest.plan_digest,
                "samples": ledger.num_written,
                "shards": len(manifest.shards),
                "bytes": num_bytes,
                "ledger": ledger.as_json(),
                "seconds": round(result.seconds, 3),
                "samples_per_second": round(ledger.num_written / seconds, 1),
                "megabytes_per_second": round(num_bytes / 1e6 / seconds, 1),
                "warnings": result.warnings,
            }
        )
        return
    if result.already_complete:
        say("already complete: the dataset of this very plan is there")
    rates = [("samples/s", f"{ledger.num_written / seconds:,.0f}"), ("MB/s", f"{num_bytes / 1e6 / seconds:,.1f}")]
    print_table(
        [
            ("samples", f"{ledger.num_written:,}"),
            ("shards", f"{len(manifest.shards):,}"),
            ("bytes", f"{num_bytes:,} ({format_bytes(num_bytes)})"),
            ("rejected", f"{ledger.num_rejected:,}"),
            *((f"  {reason}", f"{count:,}") for reason, count in sorted(ledger.rejects.items())),
            ("seconds", f"{result.seconds:,.2f}"),
            *([] if result.already_complete else rates),
        ]
    )

"""``shardtools merge``: one dataset of several."""

import click

from shardtools.build.existing.admit import UnsoundShardsError
from shardtools.build.merge import Merged, MergeListener, MergeOptions, merge
from shardtools.cli._endpoint import endpoint_option
from shardtools.cli._help import GroupedCommand, option, options
from shardtools.cli._output import Answer, json_lines, say, table_lines
from shardtools.cli._progress import ProgressBar
from shardtools.cli._repair import refusal

_EXAMPLES = ("shardtools merge shards/a shards/b shards/all", "shardtools merge parts/ shards/all --link")


@click.command("merge", cls=GroupedCommand, examples=_EXAMPLES)
@click.argument("sources", nargs=-1, required=True, metavar="A B...")
@click.argument("destination", metavar="DST")
@options(
    "Output",
    option("--link", is_flag=True, help="Hard links to the shards in place of copies; needs one file system."),
    option("--overwrite", is_flag=True, help="Replace the dataset at DST once the new one is there."),
)
@options(
    "Run",
    option("--workers", type=click.IntRange(1), metavar="N", help="Worker processes. [default: one per core]"),
    endpoint_option(),
    option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
)
def command(sources: tuple[str, ...], destination: str, link: bool, overwrite: bool, workers: int | None, as_json: bool) -> Answer:
    """Make one dataset at DST of the datasets A, B, ..., or of those in their folders at any depth.

    Shards stay as they are and get new numbers, in the order given; folders come in the order of the numbers in their names. Damaged,
    missing and repeated shards, keys that occur twice, and columns that differ are refused.
    """
    with ProgressBar("merge") as bar:
        try:
            done = merge(sources, destination, MergeOptions(workers, overwrite, link), MergeListener(bar.begin, bar.add))
        except UnsoundShardsError as error:
            return refusal(error)
    for warning in done.warnings:
        say(f"warning: {warning}")
    if as_json:
        return Answer(json_lines(_json(done)))
    if done.already_complete:
        say("already complete: the dataset of these very inputs is there")
    return Answer(table_lines(_rows(done)))


def _json(done: Merged) -> dict[str, object]:
    return {
        "already_complete": done.already_complete,
        "plan": done.manifest.plan_digest,
        "inputs": done.num_inputs,
        "samples": done.manifest.ledger.num_stored,
        "shards": len(done.manifest.shards),
        "bytes": sum(shard.num_bytes for shard in done.manifest.shards),
        "ledger": done.manifest.ledger.as_json(),
        "warnings": done.warnings,
        "seconds": round(done.seconds, 3),
    }


def _rows(done: Merged) -> list[tuple[str, str]]:
    content = _json(done)
    words = {"samples": f"{done.manifest.ledger.stored_noun}s"}
    counts = [(words.get(name, name), f"{content[name]:,}") for name in ("inputs", "samples", "shards", "bytes")]
    return [*counts, ("rejected", f"{done.manifest.ledger.num_rejected:,}"), ("seconds", f"{done.seconds:,.2f}")]

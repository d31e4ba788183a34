"""``shardtools index``: make whatever describes sound shards again."""

import click

from shardtools.build.existing.admit import UnsoundShardsError
from shardtools.build.reindex import Reindexed, ReindexListener, ReindexOptions, reindex
from shardtools.build.sidecars import parse_kinds
from shardtools.cli._endpoint import endpoint_option
from shardtools.cli._help import GroupedCommand, option, options
from shardtools.cli._output import Answer, json_lines, say, table_lines
from shardtools.cli._progress import ProgressBar
from shardtools.cli._repair import refusal

_EXAMPLES = ("shardtools index shards/", "shardtools index shards/ --sidecars dali,energon")


@click.command("index", cls=GroupedCommand, examples=_EXAMPLES)
@click.argument("dataset", metavar="DST")
@options(
    "Output",
    option("--sidecars", metavar="NAMES", help="Index files of other readers of WDS: dali,wids,energon."),
)
@options(
    "Run",
    option("--workers", type=click.IntRange(1), metavar="N", help="Worker processes. [default: one per core]"),
    endpoint_option(),
    option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
)
def command(dataset: str, sidecars: str | None, workers: int | None, as_json: bool) -> Answer:
    """Make index.json, offsets, sidecars and manifest of the dataset at DST again, from its shards.

    What is sound stays byte for byte. Shards are read strictly and never changed: a damaged one is refused by name. Foreign WDS and MDS
    folders get a manifest, which names every file in them.
    """
    with ProgressBar("index") as bar:
        try:
            done = reindex(dataset, ReindexOptions(parse_kinds(sidecars), workers), ReindexListener(bar.begin, bar.add))
        except UnsoundShardsError as error:
            return refusal(error)
    for name in done.replaced:
        say(f"note: replaced {name}, which was damaged or not what the shards say")
    if as_json:
        return Answer(json_lines(_json(done)))
    return Answer(table_lines(_rows(done)))


def _json(done: Reindexed) -> dict[str, object]:
    return {
        "samples": done.manifest.ledger.num_stored,
        "shards": len(done.manifest.shards),
        "bytes": sum(shard.num_bytes for shard in done.manifest.shards),
        "made": list(done.made),
        "replaced": list(done.replaced),
        "adopted": list(done.adopted),
        "seconds": round(done.seconds, 3),
    }


def _rows(done: Reindexed) -> list[tuple[str, str]]:
    content = _json(done)
    return [
        ("samples", f"{content['samples']:,}"),
        ("shards", f"{content['shards']:,}"),
        ("bytes", f"{content['bytes']:,}"),
        *(("made", name) for name in done.made),
        *(("replaced", name) for name in done.replaced),
        *(("adopted", name) for name in done.adopted),
        ("seconds", f"{done.seconds:,.2f}"),
    ]

"""``shardtools inspect``: show what a dataset is and what is in it."""

from collections.abc import Iterator, Sequence
from itertools import chain

import click

from shardtools.cli._endpoint import endpoint_option
from shardtools.cli._help import GroupedCommand, option, options
from shardtools.cli._output import Answer, json_lines, table_lines
from shardtools.datasets import open_dataset
from shardtools.explore.describe import describe
from shardtools.explore.show import ShownSample, find, head

_EXAMPLES = ("shardtools inspect shards/ --head 3", "shardtools inspect shards/ --key a/b --json")


@click.command("inspect", cls=GroupedCommand, examples=_EXAMPLES)
@click.argument("dataset", metavar="DST")
@options(
    "Output",
    option("--head", "num_samples", type=click.IntRange(0), default=0, metavar="N", help="Show the first N samples. [default: 0]"),
    option("--key", metavar="K", help="Show the sample of this key only, as it is stored or was before."),
    option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
)
@options("Selection", option("--split", metavar="NAME", help="Only this split: train, val or what they are called. [default: all]"))
@options("Run", endpoint_option())
def command(dataset: str, num_samples: int, key: str | None, as_json: bool, split: str | None) -> Answer:
    """Show format, shards, samples, fields, sizes and origin of the dataset at DST, and samples if asked for.

    DST was packed by shardtools, or is a folder of WDS or MDS shards of any origin.
    """
    opened = open_dataset(dataset, split)
    samples = [find(opened, key)] if key is not None else list(head(opened, num_samples))
    description = describe(opened)
    if as_json:
        return Answer(json_lines({**description.as_json(), "head": [sample.as_json() for sample in samples]}))
    return Answer(chain(table_lines(description.rows() if key is None else []), _sample_lines(samples)))


def _sample_lines(samples: Sequence[ShownSample]) -> Iterator[str]:
    for sample in samples:
        yield ""
        yield from table_lines(
            [
                ("key", sample.key),
                ("at", f"{sample.shard}, byte {sample.offset:,}"),
                *((f"  {value.name}", f"{value.encoding}  {value.text}") for value in sample.values),
            ]
        )

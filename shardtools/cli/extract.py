"""``shardtools extract``: turn shards back into files."""

import click

from shardtools.cli._endpoint import endpoint_option
from shardtools.cli._help import GroupedCommand, option, options
from shardtools.cli._output import Answer, json_lines, table_lines
from shardtools.cli._progress import ProgressBar
from shardtools.datasets import open_dataset
from shardtools.engines import Progress
from shardtools.explore.extract import ExtractOptions, extract
from shardtools.units import format_bytes

_EXAMPLES = ("shardtools extract shards/ files/", "shardtools extract shards/ files/ --key a/b")


@click.command("extract", cls=GroupedCommand, examples=_EXAMPLES)
@click.argument("dataset", metavar="DST")
@click.argument("out", metavar="OUT")
@options(
    "Selection",
    option(
        "--key",
        "keys",
        multiple=True,
        metavar="K",
        help="Only the sample of this key, as it is stored or was before; may be given several times.",
    ),
    option("--split", metavar="NAME", help="Only this split: train, val or what they are called. [default: all]"),
)
@options("Run", endpoint_option(), option("--json", "as_json", is_flag=True, help="Print the result as JSON."))
def command(dataset: str, out: str, keys: tuple[str, ...], split: str | None, as_json: bool) -> Answer:
    """Write the samples of the dataset at DST as files KEY.FIELD below OUT, byte for byte.

    Nothing is overwritten: a file that is there already must have the same bytes.
    """
    opened = open_dataset(dataset, split)
    with ProgressBar("extract") as bar:
        bar.begin(0)

        def on_sample(num_bytes: int) -> None:
            bar.add(Progress(1, num_bytes, 0))

        done = extract(opened, out, ExtractOptions(keys or None, on_sample=on_sample))
    if as_json:
        return Answer(json_lines(done.as_json()))
    rows = [
        ("samples", f"{done.num_samples:,}"),
        ("files", f"{done.num_files:,}"),
        ("unchanged", f"{done.num_unchanged:,}"),
        ("bytes", f"{done.num_bytes:,} ({format_bytes(done.num_bytes)})"),
    ]
    return Answer(table_lines(rows))

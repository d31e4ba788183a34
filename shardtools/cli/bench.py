"""``shardtools bench``: are shards faster here, what limits the loader, and which settings to use."""

import click

from shardtools.bench.report import make_folder
from shardtools.bench.request import BenchRequest
from shardtools.bench.run import bench
from shardtools.bench.self_test.run import self_test as run_self_test
from shardtools.cli._bench_options import ConsumerWords, DataWords, LoaderWords, MeasureWords, request_of
from shardtools.cli._endpoint import endpoint_option
from shardtools.cli._help import GroupedCommand, option, options
from shardtools.cli._output import Answer, json_lines, say, shown
from shardtools.errors import UsageError
from shardtools.signals import EndedError, ends_tidily

_INTERRUPTED = "error: interrupted; the report has what was measured until then, and the same command again measures all of it"
_EXAMPLES = ("shardtools bench images/ shards/", "shardtools bench docs.jsonl tokens/ --tokenizer tok.json --seq-len 2048 --json")


@click.command(
    "bench",
    cls=GroupedCommand,
    examples=_EXAMPLES,
    gathers={"data": DataWords, "loader": LoaderWords, "consumer": ConsumerWords, "measure": MeasureWords},
)
@click.argument("uris", metavar="SRC|DST...", nargs=-1)
@options(
    "Data",
    option("--reader", multiple=True, metavar="NAMES", help="torch,webdataset,streaming,shardtools. [default: by the format]"),
    option("--batch-size", type=click.IntRange(1), default=64, metavar="B", help="Samples of a batch. [default: 64]"),
    option("--decode", default="auto", metavar="NAME", help="auto, rgb, tokens, none or PKG.MOD:FN. [default: auto]"),
    option("--transform", metavar="PKG.MOD:FN", help="What is done with a decoded image. [default: 224 x 224]"),
    option("--collate", metavar="PKG.MOD:FN", help="Makes a batch of a list of samples. [default: by --decode]"),
    option("--order", type=click.Choice(["shuffled", "sequential"]), default="shuffled", help="As training reads. [default: shuffled]"),
    option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, metavar="S", help="Of the order of samples and of trials. [default: 0]"),
    option("--tokenizer", metavar="FILE|DIR", help="Of JSON lines that are tokenized as they are read."),
    option("--text-key", default="text", metavar="A.B", help="The field with the text. [default: text]"),
    option("--seq-len", type=click.IntRange(2), metavar="N", help="Tokens of a row. [default: as the shards have]"),
    endpoint_option(),
    into="data",
)
@options(
    "Loader",
    option("--num-workers", type=click.IntRange(0), default=2, metavar="W", help="Workers of the DataLoader. [default: 2]"),
    option("--prefetch-factor", type=click.IntRange(1), default=2, metavar="P", help="Batches each makes ahead. [default: 2]"),
    option("--pin-memory", is_flag=True, help="Batches go through pinned memory."),
    option("--start-method", type=click.Choice(["fork", "spawn", "forkserver"]), help="Of workers. [default: Python's]"),
    option("--shuffle-buffer", type=click.IntRange(1), metavar="N", help="Of webdataset, in each worker. [default: 1000, or less]"),
    option("--predownload", type=click.IntRange(1), metavar="N", help="Of StreamingDataset. [default: its own]"),
    option("--cache-limit", metavar="SIZE", help="Of StreamingDataset and shardtools. [default: their own]"),
    into="loader",
)
@options(
    "Consumer",
    option("--gpu", is_flag=True, help="Copy to a CUDA device and train on it."),
    option("--device", type=click.Choice(["cpu", "cuda"]), help="Where batches go. [default: cpu]"),
    option("--consumer", type=click.Choice(["none", "sim", "model"]), help="Drain, wait for --step-ms, or train. [default: by device]"),
    option("--step-ms", type=click.FloatRange(0, min_open=True), metavar="X", help="Of a simulated step, --consumer sim."),
    option("--launch-cpu-ms", type=click.FloatRange(0), default=0.0, metavar="X", help="CPU time to launch a step. [default: 0]"),
    option("--model", metavar="PKG.MOD:FACTORY", help="Your training step. [default: a small ResNet or transformer]"),
    option(
        "--copy",
        type=click.Choice(["blocking", "async", "prefetch-stream"]),
        default="blocking",
        help="Host to device. [default: blocking]",
    ),
    into="consumer",
)
@options(
    "Measurement",
    option("--cache", type=click.Choice(["cold-data", "cold-full", "warm"]), default="cold-data", help="Page cache. [default: cold-data]"),
    option("--allow-drop-caches", is_flag=True, help="For cold-full: empty the page cache of the whole machine."),
    option("--attribute", type=click.Choice(["first", "all", "none"]), default="first", help="Find what limits these. [default: first]"),
    option(
        "--matrix",
        "search",
        type=click.Choice(["knee", "grid"]),
        is_flag=False,
        flag_value="knee",
        help="Search the best settings of the side named last.",
    ),
    option("--matrix-seconds", "search_seconds", type=click.FloatRange(1), metavar="X", help="For that. [default: 150; of grid 600]"),
    option("--blocks", type=click.IntRange(1, 20), metavar="N", help="Paired trials. [default: 6, to 12 where they differ much]"),
    option("--min-seconds", type=click.FloatRange(0.1), default=5.0, metavar="X", help="Of each measured window. [default: 5]"),
    option("--timeout", type=click.FloatRange(1), default=120.0, metavar="X", help="Seconds a trial may take. [default: 120]"),
    option("--require-ratio", type=click.FloatRange(0, min_open=True), metavar="R", help="Exit 1 unless DST is surely R times SRC."),
    option("--require-au", type=click.FloatRange(0, 100), metavar="P", help="Exit 1 unless the device is P % busy with DST."),
    option("--report", metavar="DIR", help="Write report.html and bench.json there. [default: not]"),
    option("--png", is_flag=True, help="Write the report's figures as PNG, too."),
    option("--lang", type=click.Choice(["en", "zh"]), default="en", help="Of the report. [default: en]"),
    option("--json", "as_json", is_flag=True, help="Print the report as JSON."),
    into="measure",
)
@options(
    "Check of itself",
    option("--self-test", is_flag=True, help="Plant each fault, and see whether it is found; takes no SRC."),
)
def command(
    uris: tuple[str, ...], data: DataWords, loader: LoaderWords, consumer: ConsumerWords, measure: MeasureWords, self_test: bool
) -> Answer:
    """Read the same samples from SRC and DST, in turn, and tell how fast each is, how sure that is, and what limits the loader.

    Small files, JSON lines, WDS and MDS shards; with one argument that one alone. Each trial is a process of its own, begun with the
    same state of the page cache, which is proved. Two sides take two to three minutes, --matrix three more, --self-test ten alone. Exit
    code 1 when a required bound is missed, 3 when a side cannot be read. PKG.MOD is found in the current folder or on PYTHONPATH;
    docs/bench.md has an example of each.
    """
    with ends_tidily():
        try:
            if self_test:
                return _self_test(uris, measure)
            return _bench(request_of(uris, data, loader, consumer, measure), measure)
        except EndedError as ended:
            say(f"error: interrupted by {ended} before there was anything to tell; the same command again measures all of it")
            raise


def _bench(request: BenchRequest, measure: MeasureWords) -> Answer:
    if measure.report is not None:
        make_folder(measure.report, measure.png)
    report = bench(request, say)
    if measure.report is not None:
        say(f"report: {report.write(measure.report, measure.lang, measure.png)}")
    lines = json_lines(report.as_json()) if measure.as_json else map(shown, report.lines(measure.lang))
    return Answer(lines, report.exit_code, "; ".join(report.missed) or _INTERRUPTED * report.is_interrupted)


def _self_test(uris: tuple[str, ...], measure: MeasureWords) -> Answer:
    if uris:
        raise UsageError(f"expected no data with --self-test, which makes its own, got {uris[0]}; leave one out")
    found = run_self_test(say)
    return Answer(json_lines(found.as_json()) if measure.as_json else map(shown, found.lines()), found.exit_code)

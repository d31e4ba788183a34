"""``shardtools bench``: are shards faster here, and what limits the loader."""

import math
from dataclasses import dataclass

import click

from shardtools.bench.blocks import BlockPlan
from shardtools.bench.report import Report, make_folder
from shardtools.bench.request import BenchRequest
from shardtools.bench.run import bench
from shardtools.bench.spec import Consumer, Settings, Workload
from shardtools.cli._help import GroupedCommand, option, options
from shardtools.cli._output import Answer, json_lines, say, shown
from shardtools.errors import UsageError

_EXAMPLES = ("shardtools bench images/ shards/", "shardtools bench docs.jsonl tokens/ --tokenizer tok.json --seq-len 2048 --json")
_BOUND_MISSED = 1


@dataclass(frozen=True)
class DataWords:
    """The options that say what is read and what is done with it."""

    reader: tuple[str, ...]
    batch_size: int
    decode: str
    transform: str | None
    order: str
    seed: int
    tokenizer: str | None
    text_key: str
    seq_len: int | None

    def workload(self, loader: "LoaderWords") -> Workload:
        return Workload(
            batch_size=self.batch_size,
            decode=self.decode,
            transform=self.transform,
            shuffle=self.order == "shuffled",
            seed=self.seed,
            shuffle_buffer=loader.shuffle_buffer,
            predownload=loader.predownload,
            cache_limit=loader.cache_limit,
            tokenizer=self.tokenizer,
            text_key=self.text_key,
            seq_len=self.seq_len,
        )


@dataclass(frozen=True)
class LoaderWords:
    """The options of the DataLoader and of the readers under it."""

    num_workers: int
    prefetch_factor: int
    pin_memory: bool
    start_method: str | None
    shuffle_buffer: int
    predownload: int | None
    cache_limit: str | None

    def settings(self) -> Settings:
        return Settings(self.num_workers, self.prefetch_factor, self.pin_memory, start_method=self.start_method)


@dataclass(frozen=True)
class ConsumerWords:
    """The options of what takes the batches."""

    gpu: bool
    device: str | None
    consumer: str | None
    step_ms: float | None
    launch_cpu_ms: float
    model: str | None
    copy: str

    def parsed(self) -> Consumer:
        if self.gpu and self.device == "cpu":
            raise UsageError("expected one of --gpu and --device cpu, got both; leave one out")
        device = "cuda" if self.gpu else self.device or "cpu"
        kind = self.consumer or ("model" if device == "cuda" or self.model else "sim" if self.step_ms else "none")
        if kind == "sim" and self.step_ms is None:
            raise UsageError("expected --step-ms X with --consumer sim, got none; say how long a step takes")
        if kind != "sim" and self.step_ms is not None:
            raise UsageError(f"expected --step-ms only for a simulated step, got it with --consumer {kind}; leave one out")
        if self.model and kind != "model":
            raise UsageError(f"expected --consumer model with --model, got --consumer {kind}; leave one out")
        return Consumer(kind, self.step_ms or 0.0, self.launch_cpu_ms, self.model, device, self.copy)  # type: ignore[arg-type]


@dataclass(frozen=True)
class MeasureWords:
    """The options that say how it is measured and told."""

    cache: str
    allow_drop_caches: bool
    blocks: int | None
    min_seconds: float
    timeout: float
    require_ratio: float | None
    require_au: float | None
    report: str | None
    as_json: bool


@click.command(
    "bench",
    cls=GroupedCommand,
    examples=_EXAMPLES,
    gathers={"data": DataWords, "loader": LoaderWords, "consumer": ConsumerWords, "measure": MeasureWords},
)
@click.argument("uris", metavar="SRC|DST...", nargs=-1, required=True)
@options(
    "Data",
    option("--reader", multiple=True, metavar="NAMES", help="torch,webdataset,streaming,shardtools. [default: by the format]"),
    option("--batch-size", type=click.IntRange(1), default=64, metavar="B", help="Samples of a batch. [default: 64]"),
    option("--decode", default="auto", metavar="NAME", help="auto, rgb, tokens, none or PKG.MOD:FN. [default: auto]"),
    option("--transform", metavar="PKG.MOD:FN", help="What is done with a decoded image. [default: 224 x 224]"),
    option("--order", type=click.Choice(["shuffled", "sequential"]), default="shuffled", help="As training reads. [default: shuffled]"),
    option("--seed", type=click.IntRange(0), default=0, metavar="S", help="Of the order of samples and of trials. [default: 0]"),
    option("--tokenizer", metavar="FILE|DIR", help="Of JSON lines that are tokenized as they are read."),
    option("--text-key", default="text", metavar="A.B", help="The field with the text. [default: text]"),
    option("--seq-len", type=click.IntRange(2), metavar="N", help="Tokens of a row. [default: as the shards have]"),
    into="data",
)
@options(
    "Loader",
    option("--num-workers", type=click.IntRange(0), default=2, metavar="W", help="Workers of the DataLoader. [default: 2]"),
    option("--prefetch-factor", type=click.IntRange(1), default=2, metavar="P", help="Batches each makes ahead. [default: 2]"),
    option("--pin-memory", is_flag=True, help="Batches go through pinned memory."),
    option("--start-method", type=click.Choice(["fork", "spawn", "forkserver"]), help="Of workers. [default: Python's]"),
    option("--shuffle-buffer", type=click.IntRange(1), default=1000, metavar="N", help="Of webdataset, in each worker. [default: 1000]"),
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
    option("--blocks", type=click.IntRange(1, 20), metavar="N", help="Paired trials. [default: 6, to 12 where they differ much]"),
    option("--min-seconds", type=click.FloatRange(0.1), default=5.0, metavar="X", help="Of each measured window. [default: 5]"),
    option("--timeout", type=click.FloatRange(1), default=120.0, metavar="X", help="Seconds a trial may take. [default: 120]"),
    option("--require-ratio", type=click.FloatRange(0, min_open=True), metavar="R", help="Exit 1 unless DST is surely R times SRC."),
    option("--require-au", type=click.FloatRange(0, 100), metavar="P", help="Exit 1 unless the device is P % busy with DST."),
    option("--report", metavar="DIR", help="Write bench.json there. [default: not]"),
    option("--json", "as_json", is_flag=True, help="Print the report as JSON."),
    into="measure",
)
def command(uris: tuple[str, ...], data: DataWords, loader: LoaderWords, consumer: ConsumerWords, measure: MeasureWords) -> Answer:
    """Read the same samples from SRC and DST, in turn, and tell how fast each is and how sure that is.

    Small files, JSON lines, WDS and MDS shards; with one argument that one alone. Each trial is a process of its own, begun with the
    same state of the page cache, which is proved. Two sides take one to three minutes. Exit code 1 when a required bound is missed,
    3 when a side cannot be read. PKG.MOD is found in the current folder or on PYTHONPATH; docs/bench.md has an example of each.
    """
    if measure.require_ratio is not None and (measure.blocks == 1 or len(uris) < 2):
        raise UsageError(
            "expected two sides and two blocks or more with --require-ratio, since one trial of each has no interval, got less"
        )
    given = (measure.min_seconds, measure.timeout, measure.require_ratio, measure.require_au, consumer.step_ms, consumer.launch_cpu_ms)
    if not all(math.isfinite(number) for number in given if number is not None):
        raise UsageError("expected finite numbers, got nan or infinity; correct the option")
    if measure.require_au is not None and consumer.parsed().kind == "none":
        raise UsageError("expected --step-ms, --model or --gpu with --require-au, since nothing else is kept busy, got none of them")
    if measure.report is not None:
        make_folder(measure.report)
    plan = BlockPlan(data.seed) if measure.blocks is None else BlockPlan.fixed(measure.blocks, data.seed)
    request = BenchRequest(
        uris,
        tuple(name.strip() for names in data.reader for name in names.split(",")),
        data.workload(loader),
        loader.settings(),
        consumer.parsed(),
        measure.cache,  # type: ignore[arg-type]
        measure.allow_drop_caches,
        plan,
        measure.min_seconds,
        measure.timeout,
    )
    report = bench(request, say)
    if measure.report is not None:
        say(f"report: {report.write(measure.report)}")
    missed = _missed(report, measure)
    lines = json_lines(report.as_json()) if measure.as_json else map(shown, report.lines())
    return Answer(lines, report.exit_code or (_BOUND_MISSED if missed else 0), "; ".join(missed))


def _missed(report: Report, measure: MeasureWords) -> list[str]:
    """What was required and is not so, in sentences."""
    missed = []
    if measure.require_ratio is not None:
        low = report.surely_times_as_fast
        if low is None or low < measure.require_ratio:
            got = "nothing that can be compared" if low is None else f"surely {low:.2f} times"
            missed.append(f"expected the second side {measure.require_ratio:g} times as fast as the first, got {got}")
    if measure.require_au is not None:
        au = report.au_percent
        if au is None or au < measure.require_au:
            got = "no figure: give --consumer sim or model" if au is None else f"{au:.1f} %"
            missed.append(f"expected the device {measure.require_au:g} % busy, got {got}")
    return missed

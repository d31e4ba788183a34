"""What the options of ``bench`` are gathered into, and the values they become."""

from dataclasses import dataclass

from shardtools.bench.blocks import BlockPlan
from shardtools.bench.report import Lang
from shardtools.bench.report.gates import Bounds
from shardtools.bench.request import BenchRequest
from shardtools.bench.spec import Consumer, Settings, Workload
from shardtools.errors import UsageError


@dataclass(frozen=True)
class DataWords:
    """The options that say what is read and what is done with it."""

    reader: tuple[str, ...]
    batch_size: int
    decode: str
    transform: str | None
    collate: str | None
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
            collate=self.collate,
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
    shuffle_buffer: int | None
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
    attribute: str
    search: str | None
    search_seconds: float | None
    require_ratio: float | None
    require_au: float | None
    report: str | None
    png: bool
    lang: Lang
    as_json: bool


def request_of(uris: tuple[str, ...], data: DataWords, loader: LoaderWords, consumer: ConsumerWords, measure: MeasureWords) -> BenchRequest:
    """What the command line asks for. Raises UsageError."""
    if measure.png and measure.report is None:
        raise UsageError("expected --report DIR with --png, since the pictures lie there, got none; name a folder")
    return BenchRequest(
        uris,
        tuple(name.strip() for names in data.reader for name in names.split(",")),
        data.workload(loader),
        loader.settings(),
        consumer.parsed(),
        measure.cache,  # type: ignore[arg-type]
        measure.allow_drop_caches,
        BlockPlan(data.seed) if measure.blocks is None else BlockPlan.fixed(measure.blocks, data.seed),
        measure.min_seconds,
        measure.timeout,
        measure.attribute,  # type: ignore[arg-type]
        measure.search,  # type: ignore[arg-type]
        measure.search_seconds,
        Bounds(measure.require_ratio, measure.require_au),
    )

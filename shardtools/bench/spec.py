"""What one trial is asked: frozen values, plain data that reaches the trial's process as JSON.

Symbols, as in the report: W = ``num_workers``, P = ``prefetch_factor``, B = ``batch_size``.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Kind = Literal["files", "jsonl", "wds", "mds"]
ReaderName = Literal["torch", "webdataset", "streaming", "shardtools"]
Mode = Literal["throughput", "timeline", "isolation"]
CacheState = Literal["cold-full", "cold-data", "warm"]
ConsumerKind = Literal["none", "sim", "model"]
DeviceName = Literal["cpu", "cuda", "sim"]
Copy = Literal["blocking", "async", "prefetch-stream"]
MAX_WORKERS = 256
"""Of one loader: more are a slip of the keyboard."""
FED_AU = 0.95
"""A device so busy is fed: there is nothing to gain from its loader."""
_USUAL_BUFFER = 1000
"""Of samples, as webdataset's users set it."""

Intervention = Literal["storage", "decode", "transform", "collate", "transfer"]


@dataclass(frozen=True)
class Layout:
    """One side of a comparison: data in one form, and who reads it."""

    uri: str
    kind: Kind
    reader: ReaderName
    """``torch`` reads files and JSON lines: a map-style dataset with a random sampler, an iterable one that tokenizes as it goes."""
    cache_folder: str | None = None
    """Where a reader that keeps local copies of a bucket finds them, and keeps them for later trials; None: each trial has its own."""

    @property
    def name(self) -> str:
        return f"{self.kind} by {self.reader}"


@dataclass(frozen=True)
class Workload:
    """What happens to a sample, the same on every side."""

    batch_size: int = 64
    decode: str = "auto"
    """``auto``: images where samples hold one, tokens where they are rows of tokens, else ``none``. ``rgb``, ``tokens``, ``text``
    (what lies under ``text_key``), ``none`` (bytes of all fields), or ``pkg.mod:function`` of a dict of bytes."""
    transform: str | None = None
    """``pkg.mod:function`` of what ``decode`` made (of ``rgb``: a ``PIL.Image`` in RGB); None: images are resized to
    [3, image_side, image_side] uint8, others kept."""
    collate: str | None = None
    """``pkg.mod:function`` of the list of samples of a batch; None: by what ``decode`` makes."""
    image_side: int = 224
    shuffle: bool = True
    seed: int = 0
    shuffle_buffer: int | None = None
    """Samples webdataset's buffer holds in each worker; None: see ``buffer_samples``."""
    predownload: int | None = None
    """StreamingDataset's; None: its own default."""
    cache_limit: str | None = None
    """StreamingDataset's, and ``cache_bytes`` of ours."""
    tokenizer: str | None = None
    text_key: str = "text"
    seq_len: int | None = None
    like: str | None = None
    """A dataset packed from the other sides: its recipe says how files are grouped, what the keys are, how text is tokenized."""

    def buffer_samples(self, num_samples: int | None, num_workers: int) -> int:
        """What webdataset's buffer holds in each worker: as given, else 1,000, and no more than a tenth of what the worker reads: a
        larger one would have read a small set to its end before the first batch, and nothing of that be measured."""
        if self.shuffle_buffer is not None or num_samples is None:
            return self.shuffle_buffer or _USUAL_BUFFER
        return max(1, min(_USUAL_BUFFER, num_samples // (10 * max(1, num_workers))))


@dataclass(frozen=True)
class Settings:
    """Of the ``DataLoader``."""

    num_workers: int = 2
    prefetch_factor: int = 2
    pin_memory: bool = False
    persistent_workers: bool = True
    start_method: str | None = None
    """None: Python's default of this platform."""
    in_order: bool = True


@dataclass(frozen=True)
class Consumer:
    """What takes the batches."""

    kind: ConsumerKind = "none"
    """``none`` drains; ``sim`` computes for ``step_ms``; ``model`` trains one."""
    step_ms: float = 0.0
    launch_cpu_ms: float = 0.0
    """CPU time the host spends to launch a step, of ``sim``."""
    model: str | None = None
    """``pkg.mod:factory``; None: a small ResNet for images, a small transformer for tokens."""
    device: DeviceName = "cpu"
    copy: Copy = "blocking"
    """Host to device."""
    sim_copy_gbps: float = 12.0
    """Of the device ``sim``: 10^9 bytes a second from host to device."""


MIN_SECONDS = 5.0
"""Of a measured window, unless another time is asked for."""


@dataclass(frozen=True)
class TrialSpec:
    """One fresh process that reads one side once."""

    layout: Layout
    workload: Workload
    settings: Settings = field(default_factory=Settings)
    consumer: Consumer = field(default_factory=Consumer)
    mode: Mode = "throughput"
    cache: CacheState = "cold-data"
    min_seconds: float = MIN_SECONDS
    """Of the measured window."""
    min_steps: int = 50
    timeout_seconds: float = 120.0
    """Of the whole trial; then its process group is ended."""
    is_forced: bool = False
    """Run also where too little shared memory or too few descriptors are foreseen."""
    max_seconds: float = 30.0
    """The window ends then, however few its steps, unless ``min_seconds`` is more."""
    intervention: Intervention | None = None
    """The cost that is taken away, to see what the loader gains. ``storage``: nothing but a warm page cache, which the caller prepares;
    ``decode``, ``transform``: what they made of earlier samples is given again; ``collate``: one batch, built once, is sent again and
    again; ``transfer``: all work is done, and a number is sent in place of the batch."""
    plant: str | None = None
    """``pkg.mod:function`` of the opened ``Side``, which returns it with a fault of known cost: how attribution is tested."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def spec_of(data: dict[str, Any]) -> TrialSpec:
    """The spec ``as_json`` wrote."""
    parts = {"layout": Layout, "workload": Workload, "settings": Settings, "consumer": Consumer}
    return TrialSpec(**{name: parts[name](**value) if name in parts else value for name, value in data.items()})

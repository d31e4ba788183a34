"""From stored fields to tensors and batches: one decode, one transform and one collate for all sides."""

import importlib
import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import torch
from torch.utils.data import default_collate

from shardtools import datasets
from shardtools.bench.readers._again import Again
from shardtools.bench.readers.faults import of_collate, stages_of
from shardtools.bench.readers.side import KEY, RawSample
from shardtools.bench.spec import Intervention, Layout, Workload
from shardtools.bench.timers import StageTimers
from shardtools.bench.user_faults import is_of_machine
from shardtools.errors import UsageError
from shardtools.formats import IMAGE_MAGIC
from shardtools.loaders.decoders import FieldDecoder

Decode = Callable[[RawSample], Any]

TOKEN_FIELDS = ("tokens", "tokens.npy")
LENGTH_FIELDS = ("seq_lens", "seq_lens.npy")
_MAGIC = (*IMAGE_MAGIC.values(), b"GIF8", b"II*\0", b"MM\0*")
_RECORD_FIELD = "json"


class Prepare:
    """The ``finish`` of a measurement: decode, then transform, each as far as no intervention takes its cost away."""

    def __init__(self, layout: Layout, workload: Workload, timers: StageTimers | None, intervention: Intervention | None = None) -> None:
        decode, transform = decoder_of(layout, workload), transform_of(workload)
        self._decode = Again(decode) if intervention == "decode" else decode
        self._transform = Again(transform) if intervention == "transform" else transform
        self._timers = timers
        self._stages = stages_of(layout, workload)

    def __call__(self, raw: RawSample) -> Any:
        """Raises SampleError."""
        timers, (stage, following) = self._timers, self._stages
        try:
            if timers is None:
                decoded = self._decode(raw)
                stage = following
                made = self._transform(decoded)
            else:
                with timers.stage("decode", payload_bytes(raw)):
                    decoded = self._decode(raw)
                stage = following
                with timers.stage("transform"):
                    made = self._transform(decoded)
        except (Exception, SystemExit) as error:
            raise stage.fault(raw, error) from None
        if made is None:  # readers take it for a sample that is to be left out
            raise (self._stages[0] if decoded is None else stage).nothing(raw)
        return made


class Collate:
    """Batches of tensors. ``none`` and ``text``: all bytes as one uint8 tensor, and int64 [B] of lengths; ``tokens``: int64 [B, T],
    shorter rows padded with 0; others as torch's own ``default_collate`` has it. All as the user's own function where there is one.

    Raises UsageError for a function that is not there, SampleError for samples that cannot be put into one batch.
    """

    def __init__(self, workload: Workload, timers: StageTimers | None) -> None:
        self._own = workload.collate
        self._made_by = f"--transform {workload.transform}" if workload.transform else f"--decode {workload.decode}"
        if workload.collate is not None:
            self._collate: Callable[[list[Any]], Any] = named_function(workload.collate, "--collate")
        else:
            self._collate = {"none": _joined, "text": _joined, "tokens": _rows}.get(workload.decode, default_collate)
        self._timers = timers

    def __call__(self, samples: list[Any], keys: Sequence[str] = ()) -> Any:
        """``keys``: of the samples, to be told where they do not fit."""
        try:
            if self._timers is None:
                return self._collate(samples)
            with self._timers.stage("collate"):
                return self._collate(samples)
        except (Exception, SystemExit) as error:
            if is_of_machine(error):
                raise
            raise of_collate(self._own, self._made_by, samples, error, keys) from None


def payload_bytes(raw: RawSample) -> int:
    """Of all fields of a sample."""
    return sum(value.nbytes if isinstance(value, np.ndarray) else len(value) for name, value in raw.items() if name != KEY)


def decoder_of(layout: Layout, workload: Workload) -> Decode:
    """What a settled workload makes of raw samples of that layout. Raises UsageError for a function that is not there."""
    if workload.decode == "rgb":
        return decode_rgb
    if workload.decode == "none":
        return decode_bytes
    if workload.decode == "text":
        return partial(decode_text, path=tuple(workload.text_key.split(".")))
    if workload.decode == "tokens":
        return TokenDecoder(layout)
    return partial(_by_user, function=named_function(workload.decode, "--decode"))


def decode_rgb(raw: RawSample) -> Any:
    """The sample's image, all its pixels read: ``PIL.Image`` in RGB, as torchvision's ImageFolder has it."""
    from PIL import Image

    return Image.open(io.BytesIO(image_of(raw))).convert("RGB")


def decode_bytes(raw: RawSample) -> torch.Tensor:
    """All fields, sorted by name, one behind the other: uint8 [n]."""
    return _as_tensor(bytearray().join([raw[name] for name in sorted(raw) if name != KEY]))


def decode_text(raw: RawSample, path: tuple[str, ...]) -> torch.Tensor:
    """The text of a record in UTF-8: uint8 [n]."""
    return _as_tensor(bytearray(text_of(raw, path)))


class TokenDecoder:
    """A row of tokens as int64 [T]."""

    def __init__(self, layout: Layout) -> None:
        encodings: Mapping[str, str] = {}
        if layout.kind in ("wds", "mds"):
            encodings = {field.name: field.encoding for field in datasets.open_dataset(layout.uri).fields}
        self._fields = FieldDecoder(layout.kind, encodings, None)

    def __call__(self, raw: RawSample) -> torch.Tensor:
        return torch.from_numpy(self.array(raw, TOKEN_FIELDS).astype(np.int64))

    def array(self, raw: RawSample, names: Sequence[str]) -> npt.NDArray[Any]:
        """The field of the first of these names the row has."""
        name = next((name for name in names if name in raw), None)
        if name is None:
            raise UsageError(f"expected rows of tokens with a field {names[0]!r}, got {', '.join(sorted(raw)) or 'nothing'}")
        value = raw[name]
        found: npt.NDArray[Any] = value if isinstance(value, np.ndarray) else self._fields({name: value})[name]
        return found


def image_of(raw: RawSample) -> Any:
    """The first field, by name, that is an image. Raises ValueError where there is none."""
    for name in sorted(raw):
        if name != KEY and is_image(raw[name]):
            return raw[name]
    raise ValueError(f"expected an image in sample {raw[KEY]}, got the fields {', '.join(name for name in sorted(raw) if name != KEY)}")


def is_image(value: Any) -> bool:
    """By how the bytes begin."""
    head = bytes(value[:12]) if isinstance(value, bytes | memoryview) else b""
    return head.startswith(_MAGIC) or (head[:4] == b"RIFF" and head[8:] == b"WEBP") or (head[:2] == b"BM" and head[6:10] == b"\0\0\0\0")


def text_of(raw: RawSample, path: tuple[str, ...]) -> bytes:
    """A field of that name, or what lies there in the record, or a text file. Raises ValueError where there is none."""
    name = ".".join(path)
    for field in (name, f"{name}.txt", "txt"):
        if field in raw:
            return bytes(raw[field])
    value: Any = orjson.loads(raw[_RECORD_FIELD]) if _RECORD_FIELD in raw else None
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    if not isinstance(value, str):
        raise ValueError(f"expected text under {name!r} in sample {raw[KEY]}, got {type(value).__name__}; choose with --text-key")
    return value.encode()


def named_function(text: str, flag: str) -> Callable[[Any], Any]:
    """What ``pkg.mod:name`` names. Raises UsageError."""
    module_name, _, name = text.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), name]):
        raise UsageError(f"expected {flag} as pkg.mod:function, got {text!r}")
    try:
        found = getattr(importlib.import_module(module_name), name, None)
    except Exception as error:
        raise UsageError(f"expected to import {module_name} for {flag}, got {type(error).__name__}: {error}") from error
    if not callable(found):
        raise UsageError(f"expected a function {name} in {module_name} for {flag}, got {'none' if found is None else type(found).__name__}")
    function: Callable[[Any], Any] = found
    return function


def transform_of(workload: Workload) -> Callable[[Any], Any]:
    """What a settled workload makes of decoded samples. Raises UsageError for a function that is not there."""
    if workload.transform is not None:
        return named_function(workload.transform, "--transform")
    return partial(_resized, side=workload.image_side) if workload.decode == "rgb" else _as_it_is


def _resized(image: Any, side: int) -> torch.Tensor:
    """[3, side, side] uint8, bilinear."""
    from PIL import Image

    pixels = np.array(image.resize((side, side), Image.Resampling.BILINEAR))
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def _as_it_is(decoded: Any) -> Any:
    return decoded


def _by_user(raw: RawSample, function: Callable[[Any], Any]) -> Any:
    return function({name: value for name, value in raw.items() if name != KEY})


def _as_tensor(data: bytearray) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(data, np.uint8))


def _joined(samples: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.cat(samples), torch.tensor([len(sample) for sample in samples])


def _rows(samples: list[torch.Tensor]) -> torch.Tensor:
    if len({len(sample) for sample in samples}) > 1:
        return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)
    stacked: torch.Tensor = default_collate(samples)
    return stacked

"""Small sides of a comparison, written by Python's tarfile, by MDSWriter and by hand, and what is in them."""

import io
import json
import tarfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
from torch.utils.data import DataLoader

from shardtools.bench.readers import Side
from shardtools.build import run
from shardtools.build.order import OrderWords, order_of
from shardtools.build.run import RunOptions
from shardtools.engines.serial import Serial
from shardtools.sources import resolve_inputs

QUIET = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]
EOS = "<|endoftext|>"

Samples = Mapping[str, Mapping[str, bytes]]
"""Fields of samples by key."""


def pictures(count: int) -> dict[str, dict[str, bytes]]:
    """Samples of a PNG and a JSON text, of different sizes and colours."""
    samples = {}
    for i in range(count):
        pixels = np.full((5 + i % 4, 7 + i % 3, 3), (i * 7) % 256, np.uint8)
        pixels[0, 0] = (i % 256, 255 - i % 256, 3)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        samples[f"{i % 2:02d}/{i:04d}"] = {"json": json.dumps({"n": i}).encode(), "png": file.getvalue()}
    return samples


def resized(samples: Samples, side: int) -> list[bytes]:
    """What every reader has to deliver of the images, by PIL alone: pixels as [3, side, side], sorted."""
    found = []
    for fields in samples.values():
        image = Image.open(io.BytesIO(fields["png"])).convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
        found.append(np.asarray(image).transpose(2, 0, 1).tobytes())
    return sorted(found)


def as_files(folder: Path, samples: Samples) -> str:
    for key, fields in samples.items():
        for name, value in fields.items():
            path = folder / f"{key}.{name}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(value)
    return str(folder)


def as_tars(folder: Path, samples: Samples, per_shard: int = 7) -> str:
    folder.mkdir(parents=True)
    keys = list(samples)
    for n, begin in enumerate(range(0, len(keys), per_shard)):
        with tarfile.open(folder / f"train-{n:06d}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for key in keys[begin : begin + per_shard]:
                for name, value in sorted(samples[key].items()):
                    info = tarfile.TarInfo(f"{key}.{name}")
                    info.size = len(value)
                    archive.addfile(info, io.BytesIO(value))
    return str(folder)


def as_mds(folder: Path, samples: Samples, encodings: Mapping[str, str], compression: str | None = None, keyed: bool = True) -> str:
    """By the library itself; bytes pass through its encodings unchanged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from streaming import MDSWriter

        with MDSWriter(
            out=str(folder), columns={**encodings, **({"key": "str"} if keyed else {})}, compression=compression, size_limit=4096
        ) as writer:
            for key, fields in samples.items():
                writer.write({**fields, **({"key": key} if keyed else {})})
    return str(folder)


def as_lines(path: Path, records: Iterable[Any]) -> str:
    path.write_bytes(b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records))
    return str(path)


def small_tokenizer(folder: Path) -> str:
    """A byte-level BPE with an EOS."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(["the cat sat on the mat and the dog ate the log. " * 20], trainer)
    tokenizer.add_special_tokens([AddedToken(EOS, normalized=False, special=True)])
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    return str(folder)


def pack_tokens(source: str, destination: Path, tokenizer: str, format_: str, words: Mapping[str, str]) -> str:
    """As the command line does."""
    order = order_of(resolve_inputs([source]), OrderWords(format_, token_options={"tokenizer": tokenizer, **words}))
    run.build([source], str(destination), order, RunOptions(Serial()))
    return str(destination)


def ids_of(tokenizer: str, texts: Sequence[str]) -> list[list[int]]:
    """The documents as the tokenizers library has them, each with its EOS."""
    loaded = Tokenizer.from_file(f"{tokenizer}/tokenizer.json")
    return [[*loaded.encode(text, add_special_tokens=False).ids, loaded.token_to_id(EOS)] for text in texts]


def batches(side: Side, num_workers: int) -> list[Any]:
    return list(DataLoader(side.dataset, num_workers=num_workers, **side.loader_kwargs))

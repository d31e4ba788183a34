"""Tokenizers made on the spot, and what the reference library makes of texts: it alone decides what is right."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from shardtools.sample import Batch, Reject
from shardtools.transforms import PartitionWork
from shardtools.transforms.tokenize import Tokenize, settle_tokenizer

os.environ["TOKENIZERS_PARALLELISM"] = "false"

EOS, BOS, THINK = "<|endoftext|>", "<|bos|>", "<think>"
_QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TRAINING = ("the cat sat on the mat and the dog ate the log. " * 20 + "def f(x):\n    return x + 12345\n") * 3


def small_tokenizer(path: Path, *, normalizes: bool = True) -> Path:
    """A byte-level BPE as real ones are: an EOS and a BOS, controls that are not flagged, white space as an added token."""
    tokenizer = Tokenizer(models.BPE())
    if normalizes:
        tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(_QWEN), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=500, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator([_TRAINING], trainer)
    tokenizer.add_special_tokens([AddedToken(EOS, normalized=False, special=True), AddedToken(BOS, normalized=False, special=True)])
    plain = [AddedToken(text, normalized=False, special=False) for text in (THINK, "</think>", "<think", "\n\n\n")]
    tokenizer.add_tokens(plain)
    path.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path / "tokenizer.json"))
    return path / "tokenizer.json"


def changed(path: Path, target: Path, change: Mapping[str, Any]) -> Path:
    """A copy of a tokenizer.json with other values at its top."""
    target.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **change}), "utf-8")
    return target


@dataclass
class Outcome:
    """What came out of one partition."""

    keys: list[bytes]
    columns: dict[str, list[Any]]
    rejects: list[Reject]
    counts: Counter[str]

    @property
    def ids(self) -> list[list[int]]:
        return [array.tolist() for array in self.columns.get("tokens", [])]


def batches(column: str, values: Sequence[Any], size: int) -> Iterator[Batch]:
    for begin in range(0, len(values), size):
        part = list(values[begin : begin + size])
        numbers = [begin + i for i in range(len(part))]
        yield Batch([b"d/%06d" % number for number in numbers], {column: part}, lambda i, numbers=numbers: f"value {numbers[i]}")


def run(transform: Any, values: Sequence[Any], size: int = 100) -> Outcome:
    outcome = Outcome([], {}, [], Counter())
    work = PartitionWork(0, outcome.rejects.append, outcome.counts)
    for batch in transform.apply(batches(transform.column, values, size), work):
        outcome.keys += batch.keys
        assert {len(column) for column in batch.columns.values()} == {len(batch)}
        assert all(batch.where(i) == f"value {int(key[2:])}" for i, key in enumerate(batch.keys))
        for name, column in batch.columns.items():
            outcome.columns.setdefault(name, []).extend(column)
    return outcome


def settled(path: Path, **words: str) -> Tokenize:
    return settle_tokenizer({"tokenizer": str(path), "bos": "none", "eos": "none", **words})[0]


def parsed_ids(path: Path, texts: Iterable[str]) -> list[list[int]]:
    """What the library gives for the file as it is."""
    tokenizer, _ = _reference(path, parses=True)
    return [encoding.ids for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)]


def plain_ids(path: Path, texts: Iterable[str]) -> list[list[int]]:
    """What it gives where the file knows no added tokens, but for white space: all text is plain text."""
    tokenizer, spaces = _reference(path, parses=False)
    return [_around_spaces(tokenizer, spaces, text) for text in texts]


@lru_cache(maxsize=12)
def _reference(path: Path, parses: bool) -> tuple[Tokenizer, list[dict[str, Any]]]:
    plain = json.loads(path.read_text("utf-8"))
    added = plain["added_tokens"]
    given = {**plain, "added_tokens": added if parses else [], "truncation": None, "padding": None}
    return Tokenizer.from_str(json.dumps(given)), [token for token in added if not token["content"].strip()]


def _around_spaces(tokenizer: Tokenizer, spaces: list[dict[str, Any]], text: str) -> list[int]:
    """By hand: the text between those tokens is encoded on its own."""
    for space in spaces:
        if space["content"] in text:
            before, after = text.split(space["content"], 1)
            return [*_around_spaces(tokenizer, spaces, before), space["id"], *_around_spaces(tokenizer, spaces, after)]
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def assert_dtype(outcome: Outcome, dtype: str) -> None:
    assert {array.dtype for array in outcome.columns["tokens"]} == {np.dtype(dtype)}
    assert {array.ndim for array in outcome.columns["tokens"]} == {1}


def has_gigatoken() -> bool:
    return find_spec("gigatoken") is not None

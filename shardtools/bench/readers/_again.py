"""Interventions inside a loader: a stage's cost is taken away, and everything before and behind it stays as it is.

What an earlier call of the same worker made is given again, as a copy, since a transform or a collate function may change what it is
given. A copy costs time, too: as much as copying its bytes, which is less than making them by any decoder. Objects of other types
that cannot be copied are given again as they are.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from shardtools.bench.leaves import leaves
from shardtools.sample import Batch
from shardtools.transforms import PartitionWork
from shardtools.transforms.tokenize import Tokenize

_MOST_KEPT = 16
_MOST_BYTES = 64 << 20
"""Of a worker's kept samples; one is kept whatever its size."""
_FEW = 2
"""Batches of documents: each is hundreds of samples."""


class Again:
    """A function that is really called for its first values alone; for all others, copies of what it made of those, in turn."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self._made: list[Any] = []
        self._num_bytes = 0
        self._num_given = 0

    def __call__(self, value: Any) -> Any:
        is_full = len(self._made) >= _MOST_KEPT or self._num_bytes >= _MOST_BYTES
        if not is_full:
            made = self._function(value)
            self._made.append(copied(made))
            self._num_bytes += num_bytes(made)
            return made
        self._num_given += 1
        return copied(self._made[self._num_given % len(self._made)])


class DocumentsAgain:
    """In place of a tokenizer of batches of documents: the first batches really are tokenized, all others get the tokens of those, for
    as many documents as they hold."""

    def __init__(self, encode: Tokenize) -> None:
        self.column = encode.column
        self._encode = encode
        self._made: list[list[Batch]] = []
        self._num_given = 0

    def apply(self, batches: Iterator[Batch], work: PartitionWork) -> Iterator[Batch]:
        for batch in batches:
            if len(self._made) < _FEW:
                self._made.append(list(self._encode.apply(iter((batch,)), work)))
                yield from self._made[-1]
            else:
                self._num_given += 1
                yield from _as_many(self._made[self._num_given % _FEW], len(batch))


def _as_many(batches: list[Batch], num_documents: int) -> Iterator[Batch]:
    """So many documents of these, again from the first where they end; of none, none."""
    for batch in cycle(batches):
        yield batch.take(range(min(num_documents, len(batch))))
        num_documents -= len(batch)
        if num_documents <= 0:
            return


class SameBatch:
    """Each worker collates its first samples and sends what that made, which lies in shared memory, again and again."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self._collate = collate
        self._batch: list[Any] = []

    def __call__(self, samples: list[Any]) -> Any:
        if not self._batch:
            batch = self._collate(samples)
            if get_worker_info() is not None:
                for leaf in leaves(batch):
                    leaf.tensor.share_memory_()  # type: ignore[no-untyped-call]
            self._batch.append(batch)
        return self._batch[0]


class NoBatch:
    """Collates, and sends nothing of it but a number."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self._collate = collate

    def __call__(self, samples: list[Any]) -> int:
        self._collate(samples)
        return len(samples)


def copied(value: Any) -> Any:
    """Of tensors, arrays, images, and dicts, lists and tuples of them without any other way than copying their bytes."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, np.ndarray) or _is_image(value):
        return value.copy()
    if isinstance(value, str | bytes | int | float) or value is None:
        return value
    if type(value) is dict:
        return {name: copied(inner) for name, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(copied(inner) for inner in value)
    try:
        return copy.deepcopy(value)
    except Exception:  # whatever a type of the user's own raises
        return value


def num_bytes(value: Any) -> int:
    """As far as it can be told, of the same types."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return value.nbytes
    if _is_image(value):
        return int(value.width * value.height * len(value.getbands()))
    if isinstance(value, str | bytes):
        return len(value)
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return sum(map(num_bytes, inner))


def _is_image(value: Any) -> bool:
    from PIL.Image import Image

    return isinstance(value, Image)

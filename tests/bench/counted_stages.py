"""A user's decode, transform and collate that say each time they are called, in whatever process that is: a letter in a file."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

VARIABLE = "SHARDTOOLS_TEST_CALLS"


def _said(letter: str) -> None:
    with open(os.environ[VARIABLE], "a") as file:
        file.write(letter)


def calls() -> Counter[str]:
    """Of this test so far, by the first letter of the stage."""
    path = Path(os.environ[VARIABLE])
    return Counter(path.read_text() if path.exists() else "")


def decode(fields: dict[str, Any]) -> dict[str, Any]:
    """All bytes of a sample and how many there are."""
    _said("d")
    data = b"".join(fields[name] for name in sorted(fields))
    return {"bytes": np.frombuffer(data, np.uint8).copy(), "count": [len(data)]}


def transform(sample: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Of a decoded sample that is then spoilt, as a transform may do with what it was given."""
    _said("t")
    data = sample.pop("bytes")
    total = int(data.sum())
    data[:] = 0
    (count,) = sample["count"]
    sample["count"].clear()
    return {"total": torch.tensor(total), "count": torch.tensor(count)}


def collate(samples: list[dict[str, torch.Tensor]]) -> list[torch.Tensor]:
    """Rows (count, total) of samples that are then spoilt; the last tensor has no row a sample."""
    _said("c")
    rows = torch.stack([torch.stack([sample.pop("count"), sample.pop("total")]) for sample in samples])
    return [rows, torch.zeros(3)]


def sound(side: Any) -> Any:
    """A plant that does nothing but say that it was there."""
    _said("p")
    return side


def without_last(side: Any) -> Any:
    """A plant around collate: it sees samples, and gives all but the last."""
    from dataclasses import replace

    inner = side.loader_kwargs["collate_fn"]
    return replace(side, loader_kwargs=side.loader_kwargs | {"collate_fn": AllButLast(inner)})


class AllButLast:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __call__(self, samples: list[Any]) -> Any:
        _said("s")
        return self._inner(samples[:-1])

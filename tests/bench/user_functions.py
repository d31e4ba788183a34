"""Functions as users write them, and as they get them wrong: named to ``--decode``, ``--transform``, ``--collate`` and ``--model``."""

import json
import os
import sys
import time
from typing import Any

import numpy
import torch


def decode(fields: dict[str, bytes]) -> Any:
    return torch.tensor(json.loads(fields["json"])["n"])


def decode_missing(fields: dict[str, bytes]) -> Any:
    return fields["cls"]


def decode_none(_: dict[str, bytes]) -> Any:
    return None


def plain(image: Any) -> Any:
    return torch.from_numpy(numpy.array(image.resize((8, 8))))


def deep(image: Any) -> Any:
    return _deeper(image)


def _deeper(image: Any) -> Any:
    return numpy.array(image).reshape(1, 2, 3)  # fails here


def none(_: Any) -> Any:
    return None


def none_for_some(image: Any) -> Any:
    """As a filter for small pictures."""
    return None if image.width == 8 else plain(image)


def raises_for_some(image: Any) -> Any:
    if image.getpixel((0, 0))[0] == 40:
        raise ValueError("no such\npicture")
    return plain(image)


def as_it_is(image: Any) -> Any:
    return image


def of_its_own_size(image: Any) -> Any:
    return torch.from_numpy(numpy.array(image))


def two_kinds(image: Any) -> Any:
    return {"image" if image.width == 8 else "picture": plain(image)}


def hangs(_: Any) -> Any:
    time.sleep(600)


def exits(_: Any) -> Any:
    sys.exit(7)


def exits_at_once(_: Any) -> Any:
    print("so long")
    sys.stdout.flush()
    os._exit(9)


def prints(image: Any) -> Any:
    print("noise")
    return plain(image)


def stops(_: Any) -> Any:
    return next(iter(()))


def collate(samples: list[Any]) -> Any:
    return torch.stack(samples)


def collate_fails(samples: list[Any]) -> Any:
    return torch.stack(samples, dim=9)


def collate_none(_: list[Any]) -> Any:
    return None


def collate_lambda(samples: list[Any]) -> Any:
    return {"image": torch.stack(samples), "later": lambda: 1}


def model(_: Any, device: Any) -> Any:
    layer = torch.nn.Linear(8 * 8 * 3, 10).to(device)
    return lambda batch: layer(batch.flatten(1).float()).sum().backward()


def model_of_other_size(_: Any, device: Any) -> Any:
    layer = torch.nn.Linear(5, 10).to(device)

    def step(batch: Any) -> None:
        layer(batch.flatten(1).float())

    return step


def model_fails(*_: Any) -> Any:
    raise RuntimeError("no weights")


def model_none(*_: Any) -> Any:
    return None

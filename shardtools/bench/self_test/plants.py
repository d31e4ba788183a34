"""Faults of known cost, named to trials as ``shardtools.bench.self_test.plants:NAME``; and the cheap stages they stand among.

A storage fault, and all of ``sleep``, waits, so that cores are not the limit however few there are. ``burn`` uses a core, as a real
decoder does. Costs are by sample unless their names say batch.
"""

import os
import time
from typing import Any

import numpy as np
import torch

from shardtools.bench.page_cache.resident import Look, choose_look
from shardtools.bench.readers import Side
from shardtools.bench.self_test.slow_disk import enter

COST_MS = 4.0
"""Of a fault, a sample; about 20 times what reading and sending a sample cost."""
SHARE_MS = 2.0
"""Of each part of a control in which several cost the same."""
BATCH_MS = 32.0
"""Of a slow collate, a batch: that of 8 samples at ``COST_MS``."""
NUM_TENSORS = 256
LARGE_BYTES = 1 << 20


def decode(fields: dict[str, Any]) -> Any:
    """A vector of the stored bytes: as little as can be done."""
    (data,) = fields.values()
    return np.frombuffer(data, np.uint8)


def decode_burn(fields: dict[str, Any]) -> Any:
    _burn(COST_MS)
    return decode(fields)


def decode_sleep(fields: dict[str, Any]) -> Any:
    _sleep(COST_MS)
    return decode(fields)


def decode_sleep_twice(fields: dict[str, Any]) -> Any:
    _sleep(2 * COST_MS)
    return decode(fields)


def decode_share(fields: dict[str, Any]) -> Any:
    _sleep(SHARE_MS)
    return decode(fields)


def decode_large(fields: dict[str, Any]) -> Any:
    """1 MiB, of a sample of any size."""
    return np.resize(decode(fields), LARGE_BYTES)


def transform(pixels: Any) -> torch.Tensor:
    return torch.from_numpy(pixels.copy())


def transform_burn(pixels: Any) -> torch.Tensor:
    _burn(COST_MS)
    return transform(pixels)


def transform_share(pixels: Any) -> torch.Tensor:
    _sleep(SHARE_MS)
    return transform(pixels)


def collate(samples: list[Any]) -> torch.Tensor:
    """One tensor [B, n] uint8."""
    return torch.stack(samples)


def collate_sleep(samples: list[Any]) -> torch.Tensor:
    """By batch."""
    _sleep(BATCH_MS)
    return collate(samples)


def collate_share(samples: list[Any]) -> torch.Tensor:
    """As long for the batch as ``SHARE_MS`` for each sample."""
    _sleep(SHARE_MS * len(samples))
    return collate(samples)


def collate_many(samples: list[Any]) -> list[torch.Tensor]:
    """The batch in 256 tensors, each of which is sent by itself. The last has a row a sample, by which a batch is counted."""
    rows = collate(samples)
    return [*(part.clone() for part in rows.flatten().chunk(NUM_TENSORS - 1)), rows[:, :1].clone()]


def storage(side: Side) -> Side:
    """A device that takes ``COST_MS`` for each file that is not in the page cache."""
    return _throttled(side, COST_MS)


def storage_twice(side: Side) -> Side:
    return _throttled(side, 2 * COST_MS)


def storage_share(side: Side) -> Side:
    return _throttled(side, SHARE_MS)


def disk(side: Side) -> Side:
    """Not a device that is imitated but the real one, throttled by the kernel for this process."""
    enter(os.getppid())
    return side


class ThrottledOpen:
    """``open`` for reading that waits where a slow device would: for files the page cache does not hold, and for no others."""

    def __init__(self, file_ms: float) -> None:
        self._file_ms = file_ms
        self._look: Look | None = None

    def __call__(self, path: bytes, mode: str) -> Any:
        """Raises Unknown where the kernel does not tell what is in the page cache."""
        file = open(path, mode)  # noqa: SIM115 - the reader closes it
        if self._is_missing(path, file.fileno()):
            _sleep(self._file_ms)
        return file

    def _is_missing(self, path: bytes, fd: int) -> bool:
        if self._look is None:
            _, self._look = choose_look(path.decode())
            return False  # it was read to find out how to look
        pages = self._look(fd)
        return pages.num_resident < pages.num_pages


def _throttled(side: Side, file_ms: float) -> Side:
    side.dataset.opener = ThrottledOpen(file_ms)
    return side


def _sleep(milliseconds: float) -> None:
    time.sleep(milliseconds / 1000)


def _burn(milliseconds: float) -> None:
    """CPU time of this thread, whatever else the machine does."""
    until = time.thread_time() + milliseconds / 1000
    while time.thread_time() < until:
        pass

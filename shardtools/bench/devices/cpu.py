"""No accelerator: nothing is copied, and computing is the host's own."""

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from shardtools.bench.leaves import Leaf


@dataclass
class HostMark:
    """A moment of the host's clock."""

    at: float = 0.0


class CpuDevice:
    """The host. It has one stream, and all its work is done when the call returns."""

    name = "cpu"
    has_copies = False
    target = "cpu"

    def now(self) -> float:
        return time.perf_counter()

    def main_stream(self) -> None:
        return None

    def side_stream(self) -> None:
        return None

    def on(self, stream: None) -> AbstractContextManager[None]:
        return nullcontext()

    def copied(self, batch: Any, non_blocking: bool) -> Any:
        return batch

    def wait(self, waiting: None, other: None) -> None:
        pass

    def hold(self, batch: Any, stream: None) -> None:
        pass

    def busy(self, milliseconds: float) -> None:
        """Asleep: an accelerator that computes takes no core from the loader's workers."""
        time.sleep(milliseconds / 1000)

    def new_mark(self) -> HostMark:
        return HostMark()

    def record(self, mark: HostMark) -> None:
        mark.at = time.perf_counter()

    def wait_for(self, mark: HostMark) -> None:
        pass

    def between_ms(self, begin: HostMark, end: HostMark) -> float:
        return (end.at - begin.at) * 1000

    def synchronize(self) -> None:
        pass

    def is_pinned(self, leaf: Leaf) -> None:
        return None

    def pinned_copy(self, tensor: Any) -> Any:
        return tensor.clone()

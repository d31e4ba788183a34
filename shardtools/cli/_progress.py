"""A progress bar on terminals, nothing elsewhere."""

import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING

from shardtools.engines import Progress

if TYPE_CHECKING:
    from tqdm import tqdm


class ProgressBar:
    """Stored bytes of what is expected, with rate, time left, samples and rejects."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._bar: tqdm[None] | None = None
        self._noun = "sample"
        self._num_samples = 0
        self._num_rejects = 0

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()

    def begin(self, expected_bytes: int, noun: str = "sample") -> None:
        """Show the bar; ``expected_bytes`` may be an estimate, ``noun`` is what is stored."""
        self._noun = noun
        if sys.stderr is None or not sys.stderr.isatty():
            return
        from tqdm import tqdm

        # A terminal that does not know its size gives 0, on which tqdm would show nothing at all.
        size = os.get_terminal_size(sys.stderr.fileno())
        self._bar = tqdm(
            ncols=None if size.columns else 80,
            nrows=None if size.lines else 24,
            total=expected_bytes or None,
            desc=self._label,
            unit="B",
            unit_scale=True,
            leave=False,
            file=sys.stderr,
        )

    def add(self, progress: Progress) -> None:
        """Count what an engine reports."""
        self._num_samples += progress.num_samples
        self._num_rejects += progress.num_rejects
        if self._bar is not None:
            self._bar.set_postfix_str(f"{self._num_samples:,} {self._noun}s, {self._num_rejects:,} rejected", refresh=False)
            self._bar.update(progress.num_bytes)

"""The arguments of every ``DataLoader`` of the bench, made in one place and valid for any number of workers."""

import sys
from typing import Any

from shardtools.bench.spec import Settings
from shardtools.errors import UsageError

BATCH_TIMEOUT_SECONDS = 25.0
"""A batch that takes longer is taken to be lost: without a limit a loader whose worker could not send one waits for ever."""


def loader_kwargs(settings: Settings, timeout_seconds: float = BATCH_TIMEOUT_SECONDS) -> dict[str, Any]:
    """For ``DataLoader(dataset, **loader_kwargs(settings), ...)``, beside what the dataset's side gives.

    ``prefetch_factor``, ``persistent_workers``, ``timeout`` and a start method are refused by torch where there are no workers, so they
    are left out there. ``drop_last`` is never set: with workers it drops the rest of each of them.

    Raises UsageError for numbers torch would take now and fail over later.
    """
    if settings.num_workers < 0:
        raise UsageError(f"expected 0 workers or more, got {settings.num_workers}; correct --num-workers")
    kwargs: dict[str, Any] = {"num_workers": settings.num_workers, "pin_memory": settings.pin_memory, "drop_last": False}
    if settings.num_workers == 0:
        return kwargs
    if settings.prefetch_factor < 1:
        raise UsageError(f"expected a prefetch factor of at least 1, got {settings.prefetch_factor}; correct --prefetch-factor")
    kwargs |= {
        "prefetch_factor": settings.prefetch_factor,
        "persistent_workers": settings.persistent_workers,
        "timeout": timeout_seconds,
        "worker_init_fn": limit_threads,
    }
    if settings.start_method is not None:
        kwargs["multiprocessing_context"] = settings.start_method
    if not settings.in_order:
        kwargs["in_order"] = False  # torch has it since 2.6
    return kwargs


def limit_threads(_: int = 0) -> None:
    """OpenCV's threads off in this process. torch sees to its own in workers; other libraries obey ``THREAD_VARIABLES``."""
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(0)

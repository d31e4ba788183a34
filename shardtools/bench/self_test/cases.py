"""What a self-test plants: a fault of each class, and controls in which nothing may be blamed.

Every fault costs at least ten times what all other stages cost together: below two and a half times the next stage the answer
would be open, and such a case would test its own luck. A simulated device takes 2 ms a step, so that it waits for the loader wherever
the loader is at fault; no core computes for it.
"""

from dataclasses import dataclass, replace
from typing import Literal

from shardtools.bench.spec import CacheState, Consumer, Layout, Settings, TrialSpec, Workload
from shardtools.errors import UsageError

CONTROLS = ("fed", "balanced")
"""The classes of controls: for these nothing may be blamed."""
SMALL_SHM_BYTES = 16 << 20
_PLANTS = "shardtools.bench.self_test.plants"
_BATCH_SIZE = 8
_TWO_WORKERS = Settings(num_workers=2)
_ONE_WORKER = Settings(num_workers=1)
"""For faults that use a core: one is left for the rest."""
_QUICK = Consumer("sim", step_ms=2.0, device="sim")
_SLOW = Consumer("sim", step_ms=100.0, device="sim")


@dataclass(frozen=True)
class Case:
    """One fault, or none."""

    name: str
    planted: str
    """The class of verdict that is right."""
    how: str
    """What it costs, in words."""
    workload: Workload
    settings: Settings = _TWO_WORKERS
    consumer: Consumer = _QUICK
    cache: CacheState = "cold-data"
    plant: str | None = None
    is_forced: bool = False
    """Run although it was foreseen that it cannot go well."""
    place: Literal["here", "small-shm"] = "here"
    """``small-shm``: in a process of its own, whose ``/dev/shm`` holds 16 MiB."""

    @property
    def is_control(self) -> bool:
        return self.planted in CONTROLS

    @property
    def needs_cold(self) -> bool:
        """Whether the fault is there only for files that are not in the page cache."""
        return self.plant is not None and self.cache != "warm"

    def spec(self, folder: str, seed: int = 0) -> TrialSpec:
        """The trial of it over the files of that folder."""
        layout = Layout(folder, "files", "torch")
        workload = replace(self.workload, seed=seed)
        return TrialSpec(layout, workload, self.settings, self.consumer, cache=self.cache, is_forced=self.is_forced, plant=self.plant)


def _named(name: str) -> str:
    return f"{_PLANTS}:{name}"


def workload(decode: str = "decode", transform: str = "transform", collate: str = "collate") -> Workload:
    """Of eight samples a batch, by the functions of that name among the plants."""
    return Workload(_BATCH_SIZE, _named(decode), _named(transform), _named(collate))


CASES = (
    Case(
        "slow-storage",
        "storage",
        "4 ms of waiting for each file that is not in the page cache",
        workload(),
        plant=_named("storage"),
    ),
    Case("slow-decode", "decode", "4 ms of a core a sample", workload(decode="decode_burn"), _ONE_WORKER),
    Case("slow-transform", "transform", "4 ms of a core a sample", workload(transform="transform_burn"), _ONE_WORKER),
    Case("slow-collate", "collate", "32 ms of waiting a batch of 8", workload(collate="collate_sleep")),
    Case(
        "many-tensors",
        "transfer",
        "a batch of 8 samples in 256 tensors",
        workload(collate="collate_many"),
        Settings(num_workers=1, prefetch_factor=1),
    ),
    Case(
        "small-shm",
        "shared_memory",
        "batches of 8 MiB, and 16 MiB of /dev/shm",
        workload(decode="decode_large"),
        place="small-shm",
    ),
    Case(
        "full-shm",
        "shared_memory",
        "the same, although it was foreseen that they do not fit",
        replace(workload(decode="decode_large"), collate=None),
        is_forced=True,
        place="small-shm",
    ),
    Case(
        "slow-copy",
        "h2d_copy",
        "a simulated device, 20 ms to copy a batch and 5 ms to compute it",
        workload(),
        consumer=Consumer("sim", step_ms=5.0, device="sim", sim_copy_gbps=32768 / 0.020 / 1e9),
    ),
    Case(
        "slow-consumer",
        "fed",
        "a simulated device, 100 ms to compute a batch",
        workload(),
        consumer=_SLOW,
    ),
    Case(
        "hidden-storage",
        "fed",
        "the slow storage behind a warm page cache, and 100 ms to compute a batch",
        workload(),
        consumer=_SLOW,
        cache="warm",
        plant=_named("storage"),
    ),
    Case(
        "two-equal",
        "balanced",
        "2 ms of waiting a sample in decode, and 2 ms in transform",
        workload("decode_share", "transform_share"),
    ),
    Case(
        "four-equal",
        "balanced",
        "2 ms of waiting a sample in each of storage, decode, transform and collate",
        workload("decode_share", "transform_share", "collate_share"),
        plant=_named("storage_share"),
    ),
)


def cases_of(names: tuple[str, ...]) -> tuple[Case, ...]:
    """The cases of these names or classes, in the order of ``CASES``; of none, all. Raises UsageError for a name that is neither."""
    known = {case.name for case in CASES} | {case.planted for case in CASES}
    for name in names:
        if name not in known:
            raise UsageError(f"expected a planted class or a case as one of {', '.join(sorted(known))}, got {name}")
    return tuple(case for case in CASES if not names or {case.name, case.planted} & set(names))

"""The process in which the user's functions are tried: asked on standard input, it says before each step what it is about to do."""

import json
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

from shardtools.bench.consumers import open_step
from shardtools.bench.devices import open_device
from shardtools.bench.equality._samples import first_samples
from shardtools.bench.equality.functions import RESULT_NAME, STEPS_NAME
from shardtools.bench.leaves import leaves
from shardtools.bench.readers.faults import stages_of
from shardtools.bench.readers.prepare import Collate, decoder_of, transform_of
from shardtools.bench.readers.side import KEY, RawSample
from shardtools.bench.spec import Consumer, Layout, Settings, TrialSpec, Workload
from shardtools.bench.user_faults import described, is_of_machine, place_of, said_of, sentence_of
from shardtools.errors import ShardtoolsError, UsageError
from shardtools.units import plural

_MOST_SAMPLES = 64
_MODEL_FACTOR = 5
"""A model may compile itself, and take so many times as long as a function of a sample."""
_NUM_STEPS = 2
"""The second meets what the first left behind."""


class Steps:
    """What is being done, in a file that outlives this process."""

    def __init__(self, folder: str, seconds: float) -> None:
        self._file = open(os.path.join(folder, STEPS_NAME), "ab", buffering=0)  # noqa: SIM115 - for as long as the process lives
        self._seconds = seconds
        self.is_own = False
        """Of the user, what is being done."""

    def begin(self, what: str, is_own: bool, factor: float = 1.0) -> None:
        self.is_own = is_own
        self._file.write(json.dumps({"what": what, "is_own": is_own, "seconds": factor * self._seconds}).encode() + b"\n")

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True)
class Trying:
    """One side, and what is tried on it."""

    layout: Layout
    workload: Workload
    settings: Settings
    steps: Steps

    def batch(self) -> Any:
        """One batch as a worker would make it. Raises SampleError and UsageError."""
        workload = self.workload
        decode, transform, collate = self._functions()
        keys, samples = [], []
        for raw in self._raw():
            keys.append(raw[KEY])
            samples.append(self._prepared(raw, decode, transform))
        own = [f"{flag} {name}" for flag, name in _own(workload).items() if name]
        what = f"--collate {workload.collate}" if workload.collate else "collating"
        self.steps.begin(f"{what} {plural(len(samples), 'sample')} of {self.layout.uri}", bool(own))
        batch = collate(samples, keys if all(keys) else ())
        made_by = own[-1] if own else f"decoding ({workload.decode})"
        self._require_tensors(batch, made_by)
        if own and self.settings.num_workers:
            self._require_sendable(batch, made_by)
        return batch

    def _functions(self) -> tuple[Any, Any, Any]:
        """Decode, transform and collate."""
        shown = " and ".join(name for name in _own(self.workload).values() if name)
        self.steps.begin(f"the import of {shown or 'what is built in'}", bool(shown))
        try:
            return decoder_of(self.layout, self.workload), transform_of(self.workload), Collate(self.workload, None)
        except SystemExit as error:
            raise UsageError(f"expected to import {shown}, got {said_of(error)}{place_of(error)}; a module must not exit") from None

    def _prepared(self, raw: RawSample, decode: Any, transform: Any) -> Any:
        value: Any = raw
        for stage, function in zip(stages_of(self.layout, self.workload), (decode, transform), strict=True):
            self.steps.begin(f"{stage.what} on sample {raw[KEY]} of {self.layout.uri}", stage.is_own)
            try:
                value = function(value)
            except (Exception, SystemExit) as error:
                raise stage.fault(raw, error) from None
            if value is None:
                raise stage.nothing(raw)
        return value

    def _raw(self) -> Iterator[RawSample]:
        self.steps.begin(f"reading the first samples of {self.layout.uri}", False, _MODEL_FACTOR)
        found = first_samples(self.layout, self.workload)
        count = 0
        for raw in islice(found, min(self.workload.batch_size, _MOST_SAMPLES)):
            yield raw
            count += 1
        if not count:
            raise UsageError(f"expected samples in {self.layout.uri} ({self.layout.name}), got none; name other data")

    def _require_tensors(self, batch: Any, made_by: str) -> None:
        if not leaves(batch):
            raise UsageError(f"expected batches that hold tensors from {made_by}, got {described(batch)}; return tensors")

    def _require_sendable(self, batch: Any, made_by: str) -> None:
        try:
            ForkingPickler.dumps(batch)
        except Exception as error:
            if not is_of_machine(error):
                why = f"got {described(batch)} ({said_of(error)}); return tensors, or types at the top of a module"
                raise UsageError(f"expected batches that a worker can send to the main process from {made_by}, {why}") from None


def _own(workload: Workload) -> dict[str, str | None]:
    """The user's functions by flag, in the order in which they are called."""
    return {
        "--decode": workload.decode if ":" in workload.decode else None,
        "--transform": workload.transform,
        "--collate": workload.collate,
    }


def try_model(consumer: Consumer, layout: Layout, batch: Any, steps: Steps) -> None:
    """The step it makes of a batch, run on it. Raises UsageError."""
    name = f"--model {consumer.model}" if consumer.model else "the built-in model"
    device = open_device(TrialSpec(layout, Workload(), Settings(0), consumer))
    on_device = device.copied(batch, False)
    what = f"{name} made of a batch of {layout.uri}, {described(batch)},"
    try:
        steps.begin(f"{name} called with a batch of {layout.uri}, {described(batch)},", True, _MODEL_FACTOR)
        step = open_step(consumer, on_device, device)
        assert step is not None
        steps.begin(f"the step that {what}", True, _MODEL_FACTOR)
        for _ in range(_NUM_STEPS):
            step(on_device)
        device.synchronize()
    except ShardtoolsError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"expected a step that {what} and that takes it, got {said_of(error)}{place_of(error)}; correct the model"
        ) from None


def try_here(asked: dict[str, Any], steps: Steps) -> None:
    workload, consumer, settings = Workload(**asked["workload"]), Consumer(**asked["consumer"]), Settings(**asked["settings"])
    torch.set_num_threads(1)
    for words in asked["layouts"]:
        layout = Layout(**words)
        batch = Trying(layout, workload, settings, steps).batch()
        if consumer.kind == "model":
            try_model(consumer, layout, batch, steps)


def main(folder: str, asked: dict[str, Any]) -> None:
    """In a process that does nothing else."""
    warnings.simplefilter("ignore")
    steps = Steps(folder, asked["seconds"])
    answer: dict[str, Any] = {"fault": None}
    try:
        try_here(asked, steps)
    except (Exception, SystemExit) as error:
        # Raised by importing a module of the user's, a place in it is known.
        at = "" if error.__cause__ is None else place_of(error.__cause__)
        answer = {"fault": sentence_of(error) + at, "is_usage": steps.is_own or isinstance(error, UsageError)}
    path = os.path.join(folder, RESULT_NAME)
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(answer, file)
    os.replace(path + ".part", path)
    sys.stdout.flush()
    os._exit(0)  # threads that a function left running would keep the process

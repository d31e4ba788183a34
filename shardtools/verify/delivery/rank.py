"""One rank of a live run: ``python -m shardtools.verify.delivery.rank SPEC RANK``. Started by verify, never by users.

It reads as a training job would, with torch.distributed ready, and writes down what it was given. It ends by ``os._exit``, so
that nothing a reader left running can hold it, and dies when the process that started it does.
"""

import dataclasses
import itertools
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from shardtools.verify.delivery._ids import MisuseError
from shardtools.verify.delivery._logs import LogWriter
from shardtools.verify.delivery._spec import ABANDONED, EPOCHS, RESUMED, STOPPED, RankReport, RunSpec


def main(spec_path: str, rank: int) -> None:
    threading.Thread(target=_die_with_the_parent, daemon=True).start()
    spec = RunSpec.load(spec_path)
    try:
        report = _read(spec, rank)
    except MisuseError as error:
        report = RankReport(fault=str(error), is_misuse=True)
    except BaseException as error:
        import traceback

        traceback.print_exc()
        report = RankReport(fault=_last_words(error))
    report.save(spec.report_path(rank))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if report.fault is None else 1)


def _die_with_the_parent() -> None:
    """Standard input is a pipe nobody writes to: it ends when the parent does."""
    os.read(0, 1)  # not sys.stdin, whose lock a forked worker would find taken
    os.killpg(0, signal.SIGKILL)


def _last_words(error: BaseException) -> str:
    """The error in one line. torch hands on what a worker raised as a text that holds the whole traceback."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    if any("Traceback" in line for line in lines):
        named = [line for before, line in itertools.pairwise(lines) if before[0] == " " and line[0] != " "]
        return named[-1].strip() if named else lines[-1].strip()
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__


def _read(spec: RunSpec, rank: int) -> RankReport:
    import torch.distributed

    store = f"file://{spec.folder}/rendezvous"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=spec.world_size)
    from shardtools.verify.delivery._loaders import open_loading

    loading = open_loading(spec, rank)
    run, num_stopped = _Run(spec, rank, loading), 0
    if spec.is_resume:
        run.resume()
    else:
        num_batches = [run.epoch(i, name) for i, name in enumerate(EPOCHS)]
        num_stopped = _least(0 if run.overrun else num_batches[0]) // 2 if loading.report.stateless is None else 0
        if num_stopped:
            run.stop(num_stopped)
    report = dataclasses.replace(loading.report, num_stopped=num_stopped, overrun=tuple(run.overrun), most_ids=run.most_ids)
    report.save(spec.report_path(rank))
    _together(torch.distributed.barrier)  # a rank that is through early stays for those that still talk to it
    return report


def _least(number: int) -> int:
    """The least of all ranks."""
    import torch

    value = torch.tensor([number])
    _together(lambda: torch.distributed.all_reduce(value, torch.distributed.ReduceOp.MIN))
    return int(value[0])


def _together(wait_for_all: Callable[[], object]) -> None:
    """Wait for the other ranks. When one of them dies this one has nothing to say."""
    try:
        wait_for_all()
    except RuntimeError:
        os._exit(ABANDONED)


_SPARE_IDS = 1000
"""What a rank may deliver above all that its readers could rightly be thought to read: padding, and a few batches."""


def _most_ids(spec: RunSpec, report: RankReport) -> int:
    """Above this a rank is stopped in an epoch: if every worker reads everything, a fault that can be told, it is not reached."""
    return (max(report.num_workers, 1) + 1) * spec.num_samples + _SPARE_IDS


class _Run:
    """The epochs of one rank."""

    def __init__(self, spec: RunSpec, rank: int, loading: Any) -> None:
        self._spec = spec
        self._rank = rank
        self._loading = loading
        self.most_ids = _most_ids(spec, loading.report)
        self.overrun: list[str] = []
        """Epochs that were stopped since they do not end."""

    def epoch(self, number: int, name: str) -> int:
        """Read a whole epoch. Returns the number of batches."""
        loader = self._loading.loader_of(number)
        _tell_epoch(loader, number)
        return self._deliver(iter(loader), name)

    def stop(self, num_batches: int) -> None:
        """Begin another epoch, and keep the state in the middle of it."""
        number = len(EPOCHS)
        loader = self._loading.loader_of(number)
        _tell_epoch(loader, number)
        batches = iter(loader)
        self._deliver(itertools.islice(batches, num_batches), STOPPED)
        with open(self._spec.state_path(self._rank), "wb") as file:
            pickle.dump(loader.state_dict(), file)

    def resume(self) -> None:
        """Go on from the state another process kept."""
        number = len(EPOCHS)
        loader = self._loading.loader_of(number)
        with open(self._spec.state_path(self._rank), "rb") as file:
            state = pickle.load(file)  # written by ``stop`` in a folder of this run alone
        _tell_epoch(loader, number)
        loader.load_state_dict(state)
        self._deliver(iter(loader), RESUMED)

    def _deliver(self, batches: Iterable[Any], name: str) -> int:
        """Write down what comes, unless it comes without end. Returns the number of batches."""
        log = LogWriter(self._spec.log_path(self._rank, name))
        num_batches = num_ids = 0
        for batch in batches:
            num_batches += 1
            for delivered in self._loading.deliveries(batch):
                log.write(*delivered)
                num_ids += max(len(delivered.ids), 1)  # batches of nothing must end too
            if num_ids > self.most_ids:
                self.overrun.append(name)
                break
        log.close()
        return num_batches


def _tell_epoch(loader: Any, number: int) -> None:
    """Call ``set_epoch`` wherever a training loop would."""
    for name in ("", "dataset", "sampler", "batch_sampler"):
        part = getattr(loader, name, None) if name else loader
        if callable(set_epoch := getattr(part, "set_epoch", None)):
            set_epoch(number)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

"""Worker processes on this machine, started once, fed one item at a time."""

import gc
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, ClassVar, NamedTuple

from shardtools.engines import GC_THRESHOLD, OnResult, Progress, Report, Task, ignore_result, num_cores
from shardtools.errors import ShardtoolsError

# Workers import these while the parent still plans.
_PRELOAD = ("shardtools.build.write", "shardtools.storage.local")
_STOP_SECONDS = 5.0


class _NewTask(NamedTuple):
    """Tells a worker what to run on the items that follow."""

    task: Task


class _Done(NamedTuple):
    """Tells the parent that an item is finished."""

    result: Any


@dataclass(frozen=True)
class Processes:
    """Spawned, not forked: forking copies locks that other threads hold, and with them deadlocks."""

    workers: int | None = None
    """None: one for each core this process may use."""
    _live: list["_Crew"] = field(default_factory=list, init=False, repr=False, compare=False)
    """The crews whose contexts are open, the innermost last."""

    spans_machines: ClassVar[bool] = False

    def __enter__(self) -> "_Crew":
        crew = _Crew(self.workers or num_cores()).__enter__()
        self._live.append(crew)
        return crew

    def __exit__(self, *exception: object) -> None:
        self._live.pop().__exit__(*exception)

    def run(self, task: Task, items: Sequence[Any], report: Report, on_result: OnResult = ignore_result) -> None:
        """On a crew that is there for this call alone."""
        with self as crew:
            crew.run(task, items, report, on_result)


class _Crew:
    """Live worker processes, each with a connection to give it work and a lifeline that tells it when to end."""

    spans_machines: ClassVar[bool] = False

    def __init__(self, num_workers: int) -> None:
        self._num_workers = num_workers
        self._processes: dict[Connection, BaseProcess] = {}
        self._lifelines: list[Connection] = []

    def __enter__(self) -> "_Crew":
        try:
            with _interrupts_held():
                for _ in range(self._num_workers):
                    self._start_worker()
        except BaseException as error:
            num_started = len(self._processes)
            self._stop(at_once=True)
            if isinstance(error, OSError):
                raise ShardtoolsError(
                    f"expected to start {self._num_workers:,} worker processes, but after {num_started:,} the system said: "
                    f"{error.strerror}; use fewer --workers or raise its limits (ulimit -n, ulimit -u)"
                ) from error
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop(at_once=exception[0] is not None)

    def _start_worker(self) -> None:
        context = multiprocessing.get_context("spawn")
        with ExitStack() as on_failure:
            ours, theirs = context.Pipe()
            on_failure.callback(ours.close)
            on_failure.callback(theirs.close)
            their_lifeline, our_lifeline = context.Pipe(duplex=False)
            on_failure.callback(their_lifeline.close)
            on_failure.callback(our_lifeline.close)
            process = context.Process(target=_work, args=(theirs, their_lifeline), daemon=True)
            process.start()
            on_failure.pop_all()
        theirs.close()
        their_lifeline.close()
        self._processes[ours] = process
        self._lifelines.append(our_lifeline)

    def _stop(self, *, at_once: bool) -> None:
        if at_once:
            for process in self._processes.values():
                process.kill()
        for connection in [*self._processes, *self._lifelines]:
            connection.close()
        for process in self._processes.values():
            process.join(_STOP_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
        self._processes.clear()
        self._lifelines.clear()

    def run(self, task: Task, items: Sequence[Any], report: Report, on_result: OnResult = ignore_result) -> None:
        waiting = list(reversed(items))
        busy: set[Connection] = set()
        for connection in self._processes:
            self._send(connection, _NewTask(task))
            if waiting:
                self._send(connection, waiting.pop())
                busy.add(connection)
        while busy:
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                message = self._receive(ready)
                if isinstance(message, Progress):
                    report(message)
                elif isinstance(message, BaseException):
                    raise message
                else:
                    if waiting:
                        self._send(ready, waiting.pop())
                    else:
                        busy.remove(ready)
                    on_result(message.result)

    def _send(self, connection: Connection, message: Any) -> None:
        try:
            connection.send(message)
        except OSError:
            raise self._lost(connection) from None

    def _receive(self, connection: Connection) -> Any:
        try:
            return connection.recv()
        except (EOFError, OSError):
            raise self._lost(connection) from None

    def _lost(self, connection: Connection) -> ShardtoolsError:
        process = self._processes[connection]
        process.join(_STOP_SECONDS)
        code = process.exitcode or 0
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        cut = code == -signal.SIGBUS
        why = "a file was cut short while it was read, or its disk failed" if cut else "if memory ran out, use fewer --workers"
        return ShardtoolsError(
            f"expected every worker process to finish its work, but one {how}; {why}; run the same command again, finished parts are kept"
        )


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits until the block is left, and processes started in it never see it.

    A child inherits the mask; without it, a press while its interpreter starts ends in its traceback, not in our sentence.
    """
    presses: list[int] = []
    answer = signal.getsignal(signal.SIGINT)
    # The mask is this thread's alone: a thread of a library may take the press, and Python then answers it here all the same.
    answers_here = callable(answer) and threading.current_thread() is threading.main_thread()
    if answers_here:
        signal.signal(signal.SIGINT, lambda number, _: presses.append(number))
    try:
        # It unblocks SIGINT when it starts its own process, so it must have done that before.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    finally:
        if answers_here:
            signal.signal(signal.SIGINT, answer)
    if callable(answer) and presses:
        answer(signal.SIGINT, None)


def _work(connection: Connection, lifeline: Connection) -> None:
    gc.set_threshold(GC_THRESHOLD)
    # The parent decides what an interrupt means, and tells its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, args=(lifeline,), daemon=True).start()
    for name in _PRELOAD:
        import_module(name)
    try:
        task: Task | None = None
        while True:
            message = connection.recv()
            if isinstance(message, _NewTask):
                task = message.task
            elif task is not None:
                connection.send(_attempt(task, message, connection))
    except (EOFError, OSError):
        # Nothing is left to be done or told; taking every library apart first costs a quarter of a second, for which the parent waits.
        os._exit(0)


def _attempt(task: Task, item: Any, connection: Connection) -> BaseException | _Done:
    try:
        return _Done(task(item, connection.send))
    except ShardtoolsError as error:
        return error
    except Exception:
        return RuntimeError(f"a worker process failed:\n{traceback.format_exc()}")


def _die_with_parent(lifeline: Connection) -> None:
    """A parent that was killed closes its end; work on a part nobody waits for would only be in the way of the next run."""
    try:
        lifeline.recv()
    except (EOFError, OSError):
        os._exit(1)

"""Worker processes on this machine, started once, fed one item at a time."""

import gc
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from shardtools.engines import OnResult, Progress, Report, Task, ignore_result
from shardtools.errors import ShardtoolsError

# Workers import these while the parent still plans.
_PRELOAD = ("shardtools.build.write", "shardtools.storage.local")
_STOP_SECONDS = 5.0
_GC_THRESHOLD = 200_000


class _NewTask(NamedTuple):
    """Tells a worker what to run on the items that follow."""

    task: Task


class _Done(NamedTuple):
    """Tells the parent that an item is finished."""

    result: Any


class Processes:
    """Spawned, not forked: forking copies locks that other threads hold, and with them deadlocks."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or len(os.sched_getaffinity(0))
        self._processes: dict[Connection, BaseProcess] = {}
        self._lifelines: list[Connection] = []

    def __enter__(self) -> "Processes":
        with _interrupts_held():
            for _ in range(self.workers):
                self._start_worker()
        return self

    def _start_worker(self) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        their_lifeline, our_lifeline = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(theirs, their_lifeline), daemon=True)
        process.start()
        theirs.close()
        their_lifeline.close()
        self._processes[ours] = process
        self._lifelines.append(our_lifeline)

    def __exit__(self, *exception: object) -> None:
        if exception[0] is not None:
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
        return ShardtoolsError(
            f"expected every worker process to finish its work, but one {how}; "
            "if memory ran out, use fewer --workers; run the same command again, finished parts are kept"
        )


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits until the block is left, and processes started in it never see it.

    A child inherits the mask; without it, a press while its interpreter starts ends in its traceback, not in our sentence.
    """
    # It unblocks SIGINT when it starts its own process, so it must have done that before.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(connection: Connection, lifeline: Connection) -> None:
    # What flows here has no cycles; looking for them among millions of short-lived objects costs a tenth of the time.
    gc.set_threshold(_GC_THRESHOLD)
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
        return


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

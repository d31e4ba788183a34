"""Tasks in flight: so many at a time, each again where its worker or its node was lost."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import shardtools
from shardtools.engines import OnResult, Report, Task, ignore_result
from shardtools.engines.ray._attempts import REPORT_SECONDS, Counted, Done, Inbox, attempt
from shardtools.errors import ShardtoolsError

_MAX_LOSSES = 5
"""So often an item may lose its worker. Cheap nodes go at any time, but an item that ends every worker must end the run."""
_MAX_SAID = 200


class Crew:
    """A live engine on the Ray that this process is connected to. What is in flight after an error ends with that connection.

    Not by ``ray.cancel``: it ends this process, without a word, where a task is done at that very moment.
    """

    def __init__(self, workers: int | None, *, spans_machines: bool) -> None:
        self._spans_machines = spans_machines
        self._workers = workers
        self._num_given = 0
        self._attempt = _remote(attempt, num_cpus=1, max_retries=_MAX_LOSSES, scheduling_strategy="SPREAD")
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._inbox = _remote(Inbox, num_cpus=0, max_restarts=-1, scheduling_strategy=here).remote()
        self._mail = self._inbox.take.remote()

    @property
    def spans_machines(self) -> bool:
        return self._spans_machines

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *exception: object) -> None:
        ray.kill(self._inbox)

    def run(self, task: Task, items: Sequence[Any], report: Report, on_result: OnResult = ignore_result) -> None:
        shared, counted = ray.put(task), Counted(report)
        waiting = list(reversed(items))
        in_flight: dict[Any, int] = {}
        limit, next_look = 0, 0.0
        while waiting or in_flight:
            if time.monotonic() >= next_look:
                limit, next_look = self._limit(), time.monotonic() + REPORT_SECONDS
                self._read_mail(counted)
            while waiting and len(in_flight) < limit:
                number = self._num_given = self._num_given + 1
                counted.begin(number)
                in_flight[self._attempt.remote(shardtools.__version__, shared, waiting.pop(), number, self._inbox)] = number
            for ended in ray.wait(list(in_flight), timeout=REPORT_SECONDS)[0]:
                done = _outcome(ended)
                counted.end(in_flight.pop(ended), done.total)
                on_result(done.result)

    def _limit(self) -> int:
        """Most tasks in flight. Nodes may come at any time, and each CPU should find its next task when it is done with one."""
        if self._workers is not None and self._spans_machines:
            return self._workers
        resources: Callable[[], dict[str, float]] = ray.cluster_resources
        return max(2, 2 * int(resources().get("CPU", 0)))

    def _read_mail(self, counted: Counted) -> None:
        if not ray.wait([self._mail], timeout=0)[0]:
            return
        with suppress(RayError):  # an actor that was lost is there again soon, and the end of an item says all it did
            for mail in ray.get(self._mail):
                counted.note(mail)
        self._mail = self._inbox.take.remote()


def _remote(what: Any, **options: Any) -> Any:
    """As Ray runs it, which no annotation describes."""
    return ray.remote(what).options(**options)


def said_by(error: Exception) -> str:
    """What an error of Ray says, in a line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    if isinstance(error, RayTaskError):
        return lines[-1]  # after a traceback of Ray's own
    return f"{type(error).__name__}: {lines[0][:_MAX_SAID]}"


def _outcome(ended: Any) -> Done:
    try:
        outcome = ray.get(ended)
    except RayError as error:
        raise ShardtoolsError(
            f"expected a worker of Ray to finish each partition, got {said_by(error)}; every node needs shardtools and "
            "enough memory; run the same command again, finished parts are kept"
        ) from error
    if isinstance(outcome, Exception):
        raise outcome
    assert isinstance(outcome, Done)
    return outcome

"""The main loop of a trial: wait for a batch, bring it to the device, compute. The same code for every device and mode."""

from collections.abc import Iterator
from typing import Any

from shardtools.bench.consumers import Step
from shardtools.bench.devices import Device
from shardtools.bench.prediction import MOST_AHEAD
from shardtools.bench.spec import Copy
from shardtools.bench.trial._marks import COMPUTE_BEGIN, COMPUTE_END, COPY_BEGIN, COPY_END, Marks


class Loop:
    """Consumes passes over a loader, numbering their steps through.

    ``blocking``: the host waits for each copy. ``async``: it does not, but the copy is queued behind the kernels of the step before.
    ``prefetch-stream``: the next batch is copied on a stream of its own while the device computes. None: batches are on the device.
    """

    def __init__(self, device: Device, step: Step | None, copy: Copy | None, marks: Marks | None = None) -> None:
        self._device = device
        self._step = step
        self._marks = marks
        self._non_blocking = copy != "blocking"
        self._copies = device.has_copies and step is not None and copy is not None
        self._side = device.side_stream() if copy == "prefetch-stream" and self._copies else None
        self._fences = [device.new_mark() for _ in range(MOST_AHEAD)]
        self.num_steps = 0
        self.wait_s: list[float] = []
        """By step: the host's time blocked in ``next()``. Empty without marks: nothing is timed then."""
        self.launch_s: list[float] = []
        """By step: the host's time to launch the computation."""

    def consumed(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Each batch as it was loaded, when its step is launched. Ends with the pass."""
        return self._in_turn(batches) if self._side is None else self._ahead(batches, self._side)

    def _in_turn(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in self._waited(batches):
            self._compute(self._brought(batch, self.num_steps))
            yield batch

    def _ahead(self, batches: Iterator[Any], side: Any) -> Iterator[Any]:
        """References to a batch on its way are kept until its step is launched: dropped earlier, its memory would be given away."""
        main = self._device.main_stream()
        waited = self._waited(batches)
        batch = next(waited, None)
        arriving = None if batch is None else self._brought_beside(batch, self.num_steps, side)
        while batch is not None:
            self._device.wait(main, side)
            self._device.hold(arriving, main)
            self._compute(arriving)
            following = next(waited, None)
            if following is not None:
                arriving = self._brought_beside(following, self.num_steps, side)
            yield batch
            batch = following

    def _waited(self, batches: Iterator[Any]) -> Iterator[Any]:
        if self._marks is None:
            yield from batches
            return
        while True:
            began = self._device.now()
            batch = next(batches, None)
            if batch is None:
                return
            self.wait_s.append(self._device.now() - began)
            yield batch

    def _brought(self, batch: Any, step: int) -> Any:
        if not self._copies:
            return batch
        self._mark(step, COPY_BEGIN)
        brought = self._device.copied(batch, self._non_blocking)
        self._mark(step, COPY_END)
        return brought

    def _brought_beside(self, batch: Any, step: int, side: Any) -> Any:
        with self._device.on(side):
            return self._brought(batch, step)

    def _compute(self, batch: Any) -> None:
        number = self.num_steps
        self.num_steps += 1
        if self._step is None:
            return
        fence = self._fences[number % MOST_AHEAD]
        if number >= MOST_AHEAD:
            self._device.wait_for(fence)
        self._mark(number, COMPUTE_BEGIN)
        if self._marks is None:
            self._step(batch)
        else:
            began = self._device.now()
            self._step(batch)
            self.launch_s.append(self._device.now() - began)
        self._mark(number, COMPUTE_END)
        self._device.record(fence)

    def _mark(self, step: int, place: int) -> None:
        if self._marks is not None:
            self._marks.mark(step, place)

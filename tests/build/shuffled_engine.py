"""Engines for tests: neither the order of work nor a run that was killed may reach the bytes."""

import random

from shardtools.engines.serial import Serial


class Shuffled:
    """Runs the items in an order of its own."""

    spans_machines = False

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __enter__(self):
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def run(self, task, items, *rest) -> None:
        mixed = list(items)
        random.Random(self._seed).shuffle(mixed)
        Serial().run(task, mixed, *rest)


class Killed:
    """Ends after so many items, without a word, as a job that is killed."""

    spans_machines = False

    def __init__(self, num_items: int) -> None:
        self._num_left = num_items

    def __enter__(self):
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def run(self, task, items, *rest) -> None:
        for item in items:
            if not self._num_left:
                raise KeyboardInterrupt
            self._num_left -= 1
            Serial().run(task, [item], *rest)

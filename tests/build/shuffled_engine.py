"""An engine for tests: submission order must not reach the bytes."""

import random

from shardtools.engines.serial import Serial


class Shuffled:
    """Runs the items in an order of its own."""

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

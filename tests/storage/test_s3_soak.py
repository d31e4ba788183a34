"""Stops what only a long run of many faults in a row finds: every result is compared with a dictionary, by a client of its own."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_proxy import PASSING, Schedule, drawn, flipped_on_the_way_there
from faulty_place import FaultyPlace

from shardtools.errors import StorageError
from shardtools.storage.s3 import S3

NUM_SCHEDULES = 320
NUM_STEPS = 12
NAMES = ("plan", "tmp/0.a", "tmp/0.b", "staged/0-0", "staged/0-1", "train-000000.tar", "train-000001.tar", "receipts/0")


class Run:
    """One schedule: steps on the storage and on a dictionary."""

    def __init__(self, seed: int, place: FaultyPlace, folder: Path) -> None:
        self.seed, self.place, self.folder = seed, place, folder
        self.numbers = random.Random(seed)
        self.storage = S3(f"{place.storage.uri}/{seed}")
        self.known: dict[str, bytes] = {}
        self.num_refused = 0

    def go(self) -> None:
        share = self.numbers.choice([0.1, 0.3, 0.7])
        self.place.proxy.tamper = Schedule(drawn(self.seed, share, [*PASSING.values(), flipped_on_the_way_there]))
        for _ in range(NUM_STEPS):
            self.numbers.choice(
                [self.write, self.write, self.put, self.create, self.move, self.move, self.delete, self.read, self.read_part, self.list]
            )()
        self.place.clear()
        assert self.found() == self.known
        self.storage.discard_unfinished()
        assert self.place.uploads() == []
        self.storage.delete("tmp")

    def found(self) -> dict[str, bytes]:
        """By a client that meets no faults."""
        below = f"{self.seed}/"
        return {name.removeprefix(below): data for name, data in self.place.objects(below).items()}

    def changes(self, call: Callable[[], object], after: dict[str, bytes]) -> None:
        """The call leaves ``after``; where it is refused, of every object what was before or is after."""
        before = self.known
        try:
            call()
            self.known = after
        except StorageError as error:
            self.num_refused += 1
            text = str(error)
            assert text.startswith("could not ") and "attempt" in text and "\n" not in text
            assert not [secret for secret in self.place.secrets if secret in text]
            tamper, self.place.proxy.tamper = self.place.proxy.tamper, None
            self.known = self.found()
            self.place.proxy.tamper = tamper
            for name in before.keys() | after.keys() | self.known.keys():
                assert self.known.get(name) in (before.get(name), after.get(name)), name

    def gives(self, call: Callable[[], object], expected: object) -> None:
        try:
            assert call() == expected
        except StorageError:
            self.num_refused += 1

    def name(self) -> str:
        return self.numbers.choice(NAMES)

    def data(self) -> bytes:
        return self.numbers.randbytes(self.numbers.choice([0, 1, 1000, 50_000, 200_000] * 3 + [5_500_000]))

    def write(self) -> None:
        name, data = self.name(), self.data()

        def call() -> None:
            writer = self.storage.writer(name)
            try:
                for begin in range(0, len(data), 1 << 20):
                    writer.write(data[begin : begin + (1 << 20)])
                writer.finish()
            except BaseException:
                writer.abort()
                raise

        self.changes(call, {**self.known, name: data})

    def put(self) -> None:
        name, data = self.name(), self.data()
        self.changes(lambda: self.storage.put(name, data), {**self.known, name: data})

    def create(self) -> None:
        name, data, given = self.name(), self.data()[:1000], []
        is_taken = name in self.known
        self.changes(lambda: given.append(self.storage.create(name, data)), self.known if is_taken else {**self.known, name: data})
        assert given in ([], [not is_taken]) or self.known[name] == data

    def move(self) -> None:
        source, target = self.name(), self.name()
        if source in self.known and source != target:
            after = {name: data for name, data in self.known.items() if name != source} | {target: self.known[source]}
            self.changes(lambda: self.storage.move(source, target), after)

    def delete(self) -> None:
        name = self.numbers.choice([*NAMES, "tmp", "staged"])
        after = {other: data for other, data in self.known.items() if other != name and not other.startswith(name + "/")}
        self.changes(lambda: self.storage.delete(name), after)

    def read(self) -> None:
        name = self.name()
        self.gives(lambda: self.storage.get(name), self.known.get(name))
        if name in self.known:
            path = self.folder / f"{self.numbers.random()}"
            self.gives(lambda: (self.storage.fetch(name, str(path)), path.read_bytes())[1], self.known[name])

    def read_part(self) -> None:
        name = self.name()
        data = self.known.get(name, b"")
        if not data:
            return
        begin = self.numbers.randrange(len(data))
        buffer = bytearray(self.numbers.randint(0, len(data) - begin))
        self.gives(lambda: (self.storage.read_into(name, memoryview(buffer), begin), bytes(buffer))[1], data[begin : begin + len(buffer)])
        self.gives(lambda: self.from_file(name, begin), data[begin:])

    def from_file(self, name: str, begin: int) -> bytes:
        with self.storage.open(name) as file:
            file.seek(begin)
            return file.read()

    def list(self) -> None:
        self.gives(lambda: sorted(self.storage.names()), sorted(self.known))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_random_faults_never_change_a_result(place, tmp_path):
    num_refused = 0
    for seed in range(NUM_SCHEDULES):
        run = Run(seed, place, tmp_path)
        try:
            run.go()
        except Exception as error:
            raise AssertionError(f"schedule {seed}") from error
        num_refused += run.num_refused
    print(f"{NUM_SCHEDULES} schedules of {NUM_STEPS} steps, {num_refused} refused")
    assert num_refused > NUM_SCHEDULES / 10, "faults that no attempt outlives must be among them"

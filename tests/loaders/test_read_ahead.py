"""Stops shards that are fetched too late, too many at a time, twice, or for nobody, and a reader that waits for what never comes."""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from watching import wait_until

pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it")

from shardtools.errors import StorageError
from shardtools.loaders._ahead import Note, ReadAhead
from shardtools.loaders._cache import ShardCache
from shardtools.loaders._order import Order
from shardtools.loaders._world import World

pytestmark = pytest.mark.train

MIB = 1 << 20


class Link:
    """Fetches a shard when it is told to; remembers the order, and what went on at the same time."""

    def __init__(self, is_slow: bool = False) -> None:
        self.began: list[int] = []
        self.ended: list[int] = []
        self.fails: set[int] = set()
        self.most_at_once = 0
        self._let = threading.Semaphore(0)
        self._is_slow = is_slow
        self._lock = threading.Lock()

    def __call__(self, shard: int, note: Note) -> None:
        with self._lock:
            self.began.append(shard)
            self.most_at_once = max(self.most_at_once, len(self.began) - len(self.ended))
        if self._is_slow:
            self._let.acquire()
        with self._lock:
            self.ended.append(shard)
        if shard in self.fails:
            raise StorageError(f"expected shard {shard}, got none")

    def let(self, num: int = 1) -> None:
        for _ in range(num):
            self._let.release()


@pytest.fixture
def reading() -> Iterator[Callable[..., ReadAhead]]:
    made: list[ReadAhead] = []

    def make(blocks: list[list[int]], link: Link, limit: int, num_bytes: int = 10) -> ReadAhead:
        made.append(ReadAhead(blocks, {shard: num_bytes for block in blocks for shard in block}, link, limit))
        return made[-1]

    yield make
    for ahead in made:
        ahead.close()


def made_twice(_: str) -> None:
    raise AssertionError("made twice")


def settled(link: Link) -> list[int]:
    """What was begun, once nothing more begins."""
    seen = -1
    while seen != len(link.began):
        seen = len(link.began)
        time.sleep(0.05)
    return link.began


def test_nothing_is_fetched_before_the_first_shard_was_begun(reading):
    link = Link()
    ahead = reading([[0], [1], [2]], link, 1000)
    ahead.wait_for(0)
    assert settled(link) == []
    ahead.begin(0)
    wait_until(lambda: link.ended == [1, 2] or link.ended == [2, 1])


def test_as_much_as_the_limit_lies_ahead_and_each_begun_shard_makes_room_for_one(reading):
    link = Link()
    ahead = reading([[i] for i in range(10)], link, 35)
    ahead.begin(0)
    wait_until(lambda: len(link.ended) == 3)
    assert sorted(settled(link)) == [1, 2, 3]
    for i in range(1, 7):
        ahead.wait_for(i)
        ahead.begin(i)
        wait_until(lambda i=i: len(link.ended) == i + 3)
        assert sorted(settled(link)) == list(range(1, i + 4))


def test_one_shard_is_fetched_also_where_it_is_larger_than_the_limit(reading):
    link = Link()
    ahead = reading([[i] for i in range(4)], link, 1)
    ahead.begin(0)
    wait_until(lambda: link.ended == [1])
    assert settled(link) == [1]
    ahead.begin(1)
    wait_until(lambda: link.ended == [1, 2])


def test_no_limit_at_all_fetches_nothing(reading):
    link = Link()
    ahead = reading([[0], [1]], link, 0)
    ahead.begin(0)
    assert settled(link) == [] and not ahead._threads


@pytest.mark.parametrize(("num_bytes", "at_once"), [(MIB, 8), (32 * MIB, 4), (64 * MIB, 2), (500 * MIB, 2)])
def test_memory_bounds_what_is_fetched_at_the_same_time(reading, num_bytes, at_once):
    link = Link(is_slow=True)
    ahead = reading([[i] for i in range(20)], link, 1 << 40, num_bytes)
    ahead.begin(0)
    wait_until(lambda: len(link.began) == at_once)
    assert len(settled(link)) == at_once
    link.let(30)
    wait_until(lambda: len(link.ended) == 19)
    assert link.most_at_once == at_once


def test_a_block_that_is_begun_ends_what_is_left_of_those_before(reading):
    link = Link()
    ahead = reading([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]], link, 25)
    ahead.begin(3)
    wait_until(lambda: len(link.ended) == 2)
    assert sorted(settled(link)) == [0, 1]
    ahead.begin(6)  # nobody came for 0, 1 and 2
    wait_until(lambda: len(link.ended) == 4)
    assert sorted(settled(link)[2:]) == [4, 5]


def test_a_shard_from_afar_in_place_of_a_bad_sample_ends_no_block(reading):
    link = Link()
    ahead = reading([[i] for i in range(10)], link, 25)
    ahead.begin(0)
    wait_until(lambda: len(link.ended) == 2)
    ahead.begin(9)
    assert sorted(settled(link)) == [1, 2]
    ahead.begin(1)
    wait_until(lambda: sorted(link.ended) == [1, 2, 3])
    ahead.begin(3)  # 2 was passed over
    wait_until(lambda: sorted(link.ended) == [1, 2, 3, 4, 5])


def test_a_worker_fetches_the_blocks_that_its_batches_lie_in_and_no_others():
    """Beside the positions of each batch, one by one."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    numbers = random.Random(seed)
    for _ in range(200):
        counts = [numbers.choice([0, 1, 3, 10, 40]) for _ in range(numbers.randrange(1, 30))] + [5]
        block = numbers.choice([None, 1, 3])
        order = Order(np.array(counts, np.int64), block, 7, 1)
        world = World(numbers.randrange(3), 3, numbers.choice([1, 2, 5]), "drop")
        num_workers, total = numbers.choice([1, 2, 4]), sum(counts)
        worker, start = numbers.randrange(num_workers), numbers.randrange(total)
        read = set()
        for batch in range(worker, (total - start) // world.global_batch_size, num_workers):
            first = start + batch * world.global_batch_size + world.rank * world.batch_size
            read |= set(order.locate(np.arange(first, first + world.batch_size))[0].tolist())
        blocks, begins, ends = order.blocks_from(start)
        is_read = world.touched(begins - start, ends - start, worker, num_workers)
        fetched = {shard for one, is_ours in zip(blocks, is_read.tolist(), strict=True) if is_ours for shard in one}
        assert read <= fetched
        places = [shard for one in blocks for shard in one]
        assert len(places) == len(set(places)) and all(counts[shard] for shard in places)
        whole = total - (total - start) % world.global_batch_size
        if block is None:  # the first may lie before the start, the last behind the last whole batch
            sizes = {shard: range(b, e) for (shard, *_), b, e in zip([one or [-1] for one in blocks], begins, ends, strict=True)}
            assert all(sizes[shard].start < start or sizes[shard].stop > whole for shard in fetched - read)


def test_a_shard_the_reader_had_first_is_not_fetched(reading):
    link = Link()
    ahead = reading([[0, 1, 2, 3, 4]], link, 25)
    ahead.begin(2)
    wait_until(lambda: sorted(link.ended) == [0, 1])
    ahead.begin(0)
    wait_until(lambda: sorted(link.ended) == [0, 1, 3])
    ahead.begin(4)
    ahead.begin(1)
    assert sorted(settled(link)) == [0, 1, 3]


def test_a_reader_waits_for_what_is_on_its_way_and_for_nothing_else(reading):
    link = Link(is_slow=True)
    ahead = reading([[0], [1], [2]], link, 10)
    ahead.begin(0)
    wait_until(lambda: link.began == [1])
    ahead.wait_for(2)
    waited = threading.Thread(target=ahead.wait_for, args=(1,), daemon=True)
    waited.start()
    waited.join(0.1)
    assert waited.is_alive()
    link.let()
    waited.join(30)
    assert not waited.is_alive()


def test_who_waited_for_a_failure_is_told_and_who_comes_later_may_try_again(reading):
    link = Link(is_slow=True)
    link.fails = {1, 2}
    ahead = reading([[0], [1], [2], [3]], link, 10)
    ahead.begin(0)
    wait_until(lambda: link.began == [1])
    threading.Timer(0.05, link.let).start()
    with pytest.raises(StorageError, match="shard 1"):
        ahead.wait_for(1)
    ahead.wait_for(1)
    wait_until(lambda: link.began == [1, 2])
    link.let()
    wait_until(lambda: link.began == [1, 2, 3])  # a failure fills no place
    ahead.wait_for(2)


def test_closing_waits_for_nothing_and_ends_all_threads(reading):
    link = Link(is_slow=True)
    ahead = reading([[i] for i in range(9)], link, 30)
    ahead.begin(0)
    wait_until(lambda: len(link.began) == 3)
    waited = threading.Thread(target=ahead.wait_for, args=(1,), daemon=True)
    waited.start()
    ahead.close()
    waited.join(30)
    assert not waited.is_alive()
    link.let(3)
    wait_until(lambda: not any(thread.is_alive() for thread in ahead._threads))
    assert len(link.began) == 3
    ahead.begin(1)
    ahead.close()


def test_what_is_being_written_is_gone_after_closing(tmp_path, reading):
    cache = ShardCache(str(tmp_path), 1000)
    goes_on = threading.Event()

    def fetch(shard: int, note: Note) -> None:
        def make(path: str) -> None:
            note(path)
            Path(path).write_bytes(b"half")
            goes_on.wait(30)

        cache.make_ahead(str(shard), make)

    ahead = reading([[0], [1], [2]], fetch, 100)
    ahead.begin(0)
    wait_until(lambda: sum(name.endswith(".part") for name in os.listdir(tmp_path)) == 2)
    ahead.close()
    assert os.listdir(tmp_path) == []
    cache.open("1", lambda path: Path(path).write_bytes(b"whole") and None).close()
    goes_on.set()
    wait_until(lambda: not any(thread.is_alive() for thread in ahead._threads))
    with cache.open("1", made_twice) as file:
        assert file.read() == b"whole"
    assert len(os.listdir(tmp_path)) == 1


def test_what_another_process_makes_is_left_to_it(tmp_path):
    cache = ShardCache(str(tmp_path), 1000)
    entered, goes_on = threading.Event(), threading.Event()

    def make(path: str) -> None:
        entered.set()
        goes_on.wait(30)
        Path(path).write_bytes(b"theirs")

    other = threading.Thread(target=lambda: cache.open("a", make).close())
    other.start()
    entered.wait(30)
    assert not cache.make_ahead("a", made_twice)
    goes_on.set()
    other.join()
    assert cache.make_ahead("a", made_twice)


def test_a_copy_in_a_forked_process_neither_waits_nor_takes_anything_away(reading):
    link = Link(is_slow=True)
    ahead = reading([[0], [1], [2]], link, 10)
    ahead.begin(0)
    wait_until(lambda: link.began == [1])
    own, ahead._pid = ahead._pid, -1  # as in a child, where the threads are not
    ahead.wait_for(1)
    ahead.begin(1)
    ahead.close()
    assert not ahead._closed.is_set()
    ahead._pid = own


def test_any_course_of_reading_has_each_shard_once_and_keeps_the_limit(reading):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    numbers = random.Random(seed)
    for _ in range(10):
        order = numbers.sample(range(40), 40)
        size = numbers.choice([1, 3, 8])
        blocks = [order[i : i + size] for i in range(0, 40, size)]
        limit = numbers.choice([10, 25, 80, 1000])
        link, begun = Link(), list[int]()
        ahead = reading(blocks, link, limit)
        for block in blocks:
            for shard in numbers.sample(block, len(block)):
                ahead.wait_for(shard)
                ahead.begin(shard)
                begun.append(shard)
                assert len(set(link.began) - set(begun)) * 10 <= limit
        assert len(set(link.began)) == len(link.began)
        ahead.close()

"""Stops calls made several at a time that give results out of order, run far ahead, or go on behind the back of whoever mends an error."""

import threading
import time

import pytest

from shardtools.threads import in_order


def test_results_come_in_the_order_of_the_items():
    def slow(number: int, _: threading.Event) -> int:
        time.sleep(0.02 if number % 4 == 0 else 0)
        return number * number

    for num_at_once in (1, 3, 16):
        assert list(in_order(slow, range(20), num_at_once)) == [number * number for number in range(20)]


def test_no_more_is_asked_for_than_is_worked_on():
    asked = []

    def items():
        for number in range(1000):
            asked.append(number)
            yield number

    coming = in_order(lambda number, _: number, items(), 4)
    assert [next(coming) for _ in range(3)] == [0, 1, 2]
    coming.close()
    assert len(asked) <= 3 + 4 + 1


def test_an_error_comes_in_order_and_when_what_had_begun_has_ended():
    ended = []
    both = threading.Barrier(2)

    def work(number: int, stop: threading.Event) -> int:
        if number == 1:
            both.wait(10)
            raise ValueError("the second")
        if number == 2:
            both.wait(10)
            assert stop.wait(10)
            time.sleep(0.05)
            ended.append(number)
        return number

    coming = in_order(work, range(3), 3)
    assert next(coming) == 0
    with pytest.raises(ValueError, match="the second"):
        next(coming)
    assert ended == [2]


def test_whoever_wants_no_more_does_not_wait():
    release = threading.Event()
    coming = in_order(lambda number, _: release.wait(30) if number else 0, range(3), 3)
    try:
        assert next(coming) == 0
        began = time.monotonic()
        coming.close()
        assert time.monotonic() - began < 10
    finally:
        release.set()

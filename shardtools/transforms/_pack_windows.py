"""Best-fit decreasing over windows of pieces: bounded memory, and what fits badly waits for the pieces of the next window."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shardtools.transforms import PartitionWork
from shardtools.transforms._pack_fit import best_fit_decreasing
from shardtools.transforms._pack_pieces import NO_PIECES, Ints, Pieces, joined
from shardtools.transforms._pack_refill import IN_POOL, refilled, row_tokens, with_fewer_rows

Flags = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]

_NEARLY_FULL = 1024
"""A row that lacks at most one token in so many need not wait: it is filled from those that do."""


@dataclass(frozen=True)
class WindowRules:
    """How far a window goes, and what becomes of its rows. Depends on the recipe alone, never on how batches are cut."""

    seq_len: int
    num_pieces: int
    num_tokens: int
    """A window also ends before it holds more, so that long pieces do not take more memory than planned."""
    seed: int
    drops_tail: bool


class PackedRows(NamedTuple):
    """Rows in order: the first ``row_sizes[0]`` pieces are row 0, and so on."""

    pieces: Pieces
    row_sizes: Ints


def packed_windows(arriving: Iterator[Pieces], rules: WindowRules, work: PartitionWork) -> Iterator[PackedRows]:
    """The rows of a partition, window by window, each window's in an order that (seed, partition, window) gives."""
    windows = 0
    waiting, num_carried = NO_PIECES, 0
    for part in _slices(arriving, rules):
        waiting = joined([waiting, part])
        while (end := _window_end(waiting, num_carried, rules)) < len(waiting):
            window, rest = waiting.take(slice(0, end)), waiting.take(slice(end, None))
            rows = best_fit_decreasing(window.lengths, rules.seq_len)
            rows = refilled(rows, window.lengths, rules.seq_len, _rows_that_wait(rows, window.lengths, rules))
            carried = window.take(np.flatnonzero(rows == IN_POOL)).copied()
            waiting, num_carried = joined([carried, rest.without_unused_chunks()]), len(carried)
            packed = _shuffled(window, rows, partial(_random_words, rules.seed, work.index, windows))
            windows += 1
            # Whoever takes the rows is then alone in holding the tokens of this window.
            del window, rest, carried
            yield packed
            del packed
    if len(waiting):
        rows = with_fewer_rows(best_fit_decreasing(waiting.lengths, rules.seq_len), waiting.lengths, rules.seq_len)
        _take_tail(rows, waiting.lengths, rules, work)
        yield _shuffled(waiting, rows, partial(_random_words, rules.seed, work.index, windows))


def _slices(arriving: Iterator[Pieces], rules: WindowRules) -> Iterator[Pieces]:
    """What arrives, gathered so that small batches do not cost a look at the whole window each, nor large ones at all of them."""
    few = max(1, rules.num_pieces // 4)
    gathered: list[Pieces] = []
    num_pieces = num_tokens = 0
    for batch in arriving:
        for part in batch.slices(rules.num_pieces):
            gathered.append(part)
            num_pieces += len(part)
            num_tokens += int(part.lengths.sum())
            if num_pieces >= few or num_tokens >= rules.num_tokens // 4:
                yield joined(gathered)
                gathered, num_pieces, num_tokens = [], 0, 0
    if gathered:
        yield joined(gathered)


def _window_end(pieces: Pieces, num_carried: int, rules: WindowRules) -> int:
    """How many pieces the window takes: at least one beyond those carried over, so that packing goes on."""
    by_tokens = int(np.searchsorted(np.cumsum(pieces.lengths), rules.num_tokens, "right"))
    return max(min(rules.num_pieces, by_tokens), num_carried + 1)


def _rows_that_wait(rows: Ints, lengths: Ints, rules: WindowRules) -> Flags:
    """Which rows are taken apart again and carried over: the emptiest, in at most half a window."""
    tokens = row_tokens(rows, lengths)
    emptiest = np.argsort(tokens, kind="stable")
    emptiest = emptiest[(rules.seq_len - tokens[emptiest]) * _NEARLY_FULL > rules.seq_len]
    by_pieces = np.searchsorted(np.cumsum(np.bincount(rows)[emptiest]), rules.num_pieces // 2, "right")
    by_tokens = np.searchsorted(np.cumsum(tokens[emptiest]), rules.num_tokens // 2, "right")
    waits = np.zeros(len(tokens), np.bool_)
    waits[emptiest[: int(min(by_pieces, by_tokens))]] = True
    return waits


def _take_tail(rows: Ints, lengths: Ints, rules: WindowRules, work: PartitionWork) -> None:
    """Count the emptiest row of the last window as the partition's tail unless it is full, and take it out by the policy."""
    tokens = row_tokens(rows, lengths)
    tail = int(np.argmin(tokens))
    if tokens[tail] == rules.seq_len:
        return
    work.counts["tail-rows"] += 1
    if rules.drops_tail:
        rows[rows == tail] = IN_POOL
        work.counts["tokens-dropped"] += int(tokens[tail])


def _shuffled(pieces: Pieces, rows: Ints, random_words: Callable[[int], Words]) -> PackedRows:
    """Rows in the order of their random words, without what is in the pool; the pieces of each in the order they came in."""
    kept = np.flatnonzero(rows != IN_POOL)
    numbers, row = np.unique(rows[kept], return_inverse=True)
    places = np.empty(len(numbers), np.int64)
    places[np.argsort(random_words(len(numbers)), kind="stable")] = np.arange(len(numbers))
    order = np.argsort(places[row], kind="stable")
    return PackedRows(pieces.take(kept[order]), np.bincount(places[row], minlength=len(numbers)).astype(np.int64))


def _random_words(seed: int, partition: int, window: int, count: int) -> Words:
    """Raw words of Philox, which numpy promises never to change, keyed by (seed, partition) and set apart by window."""
    counter = np.array([0, 0, 0, window], np.uint64)
    words: Words = np.random.Philox(key=np.array([seed, partition], np.uint64), counter=counter).random_raw(count)
    return words

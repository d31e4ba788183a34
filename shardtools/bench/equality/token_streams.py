"""Digests of tokens that do not depend on how documents were laid out in rows: runs are digested apart and joined later.

A run is told by four sums over ``(token + 1) * base ** place`` modulo 2**31 - 1 and its length; two runs that differ have the
same with a chance of about 2**-120. Joining digests gives the digest of the joined run.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

_PRIME = 2**31 - 1
_BASES = (1_073_741_827, 715_827_883, 1_500_450_271, 1_190_494_759)
_DIGEST_BITS = 128

Words = npt.NDArray[np.uint64]


class Run(NamedTuple):
    """Tokens in a row, by their digest."""

    length: int
    sums: tuple[int, ...]

    def then(self, other: "Run") -> "Run":
        """Both, one behind the other."""
        pairs = zip(_BASES, self.sums, other.sums, strict=True)
        return Run(
            self.length + other.length, tuple((first * pow(base, other.length, _PRIME) + second) % _PRIME for base, first, second in pairs)
        )

    @property
    def digest(self) -> int:
        """128 bits."""
        return xxhash.xxh3_128_intdigest(repr((self.length, self.sums)).encode())


NO_TOKENS = Run(0, (0,) * len(_BASES))


class Digester:
    """Runs of arrays; keeps powers as far as the longest had."""

    def __init__(self) -> None:
        self._powers: Words = np.ones((len(_BASES), 1), np.uint64)

    def run(self, tokens: npt.NDArray[Any]) -> Run:
        length = len(tokens)
        while self._powers.shape[1] < length:
            self._double()
        values = (tokens.astype(np.uint64) + np.uint64(1)) % np.uint64(_PRIME)
        # The first token has the highest power, as in a number the first digit.
        products = values * self._powers[:, :length][:, ::-1] % np.uint64(_PRIME)
        return Run(length, tuple(int(total) % _PRIME for total in products.sum(axis=1)))

    def _double(self) -> None:
        length = self._powers.shape[1]
        shift = np.array([[pow(base, length, _PRIME)] for base in _BASES], np.uint64)
        self._powers = np.concatenate([self._powers, self._powers * shift % np.uint64(_PRIME)], axis=1)


def runs_of_row(tokens: npt.NDArray[Any], seq_lens: npt.NDArray[Any], digester: Digester) -> list[Run]:
    """The pieces of a packed row; what lies behind them is padding."""
    ends = np.cumsum(seq_lens.astype(np.int64)).tolist()
    return [digester.run(tokens[begin:end]) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


class Part(NamedTuple):
    """A stretch of a document, no longer than what is left of a row's length from where it begins."""

    document: tuple[int, int]
    """File, and place in it: documents of a source in their order."""
    begin: int
    total: int
    """Tokens of the document."""
    run: Run


def parts_of_row(
    tokens: npt.NDArray[Any], pieces: Iterable[tuple[bytes, int, int, int]], cut: int | None, digester: Digester
) -> list[Part]:
    """The documents of a row made on the fly, cut at every ``cut`` tokens from where each document begins."""
    parts, at = [], 0
    for key, begin, total, length in pieces:
        file, _, place = key.partition(b"/")
        end = begin + length
        while begin < end:
            stop = end if cut is None else min(end, begin - begin % cut + cut)
            run = digester.run(tokens[at : at + stop - begin])
            parts.append(Part((int(file), int(place)), begin, total, run))
            at, begin = at + stop - begin, stop
    return parts


@dataclass
class Bag:
    """A multiset of runs by sums of their digests."""

    count: int = 0
    num_tokens: int = 0
    total: int = 0

    def add(self, run: Run) -> None:
        self.count += 1
        self.num_tokens += run.length
        self.total = (self.total + run.digest) % 2**_DIGEST_BITS

    def __str__(self) -> str:
        return f"{self.count}/{self.num_tokens}/{self.total:032x}"


def joined(runs: Iterable[Run]) -> Run:
    whole = NO_TOKENS
    for run in runs:
        whole = whole.then(run)
    return whole


@dataclass
class DocumentStreams:
    """What documents come to under every way of packing, as far as it can be compared: by pieces in any order, or as one stream."""

    cut: int | None
    """Tokens in a row."""
    num_repeated: int = 0
    """Parts that came again."""
    _done: set[tuple[int, int]] = field(default_factory=set)
    _waiting: dict[tuple[int, int], dict[int, Run]] = field(default_factory=dict)
    """Of documents that are not whole yet: each part by where it begins."""
    _bags: dict[str, Bag] = field(default_factory=dict)
    _streams: dict[str, list[tuple[tuple[int, int], Run]]] = field(default_factory=dict)

    def add(self, part: Part) -> None:
        """A part that was there before is counted and no more."""
        parts = self._waiting.setdefault(part.document, {}) if part.document not in self._done else {part.begin: NO_TOKENS}
        if part.begin in parts:
            self.num_repeated += 1
            return
        parts[part.begin] = part.run
        if sum(run.length for run in parts.values()) == part.total:
            self._done.add(part.document)
            self._finish(part.document, [parts[begin] for begin in sorted(parts)])
            del self._waiting[part.document]

    def digests(self) -> dict[str, str]:
        """By names that packed sides share. Raises ValueError where a document was delivered in part."""
        if self._waiting:
            raise ValueError(f"expected documents whole, got {len(self._waiting):,} in part")
        streams = {name: joined(run for _, run in sorted(documents)) for name, documents in self._streams.items()}
        return {name: str(bag) for name, bag in self._bags.items()} | {name: stream_text(run) for name, run in streams.items()}

    def _finish(self, document: tuple[int, int], parts: list[Run]) -> None:
        pieces = [joined(parts)] if self.cut is None else _merged(parts, self.cut)
        kept = {"split": pieces, "truncate": pieces[:1], "drop": pieces if len(pieces) == 1 else []}
        for policy, runs in kept.items() if self.cut is not None else [("split", pieces)]:
            for run in runs:
                self._bags.setdefault(pieces_name(self.cut, policy), Bag()).add(run)
            if runs:
                self._streams.setdefault(stream_name(self.cut, policy), []).append((document, joined(runs)))


def _merged(parts: list[Run], cut: int) -> list[Run]:
    """Parts, which end at multiples of ``cut`` at the latest, as pieces of ``cut`` tokens and the rest."""
    pieces: list[Run] = []
    for part in parts:
        if pieces and pieces[-1].length < cut:
            pieces[-1] = pieces[-1].then(part)
        else:
            pieces.append(part)
    return pieces


def pieces_name(cut: int | None, long_docs: str) -> str:
    """Pieces in any order: documents cut from their beginning at every ``cut`` tokens, by the policy on long ones."""
    return f"pieces of {cut} tokens, {long_docs}" if cut is not None else "whole documents"


def stream_name(cut: int | None, long_docs: str) -> str:
    """All tokens in the order of documents."""
    return "stream" if long_docs == "split" else f"stream of documents, {long_docs} above {cut} tokens"


def stream_text(run: Run) -> str:
    return f"1/{run.length}/{run.digest:032x}"

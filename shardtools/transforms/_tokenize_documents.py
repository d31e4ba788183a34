"""The documents of one partition to ids: which backend takes each, and the proof that it makes no difference."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt
import xxhash

from shardtools.errors import ShardtoolsError
from shardtools.transforms._tokenize_cuts import NoPlaceToCutError, pieces
from shardtools.transforms._tokenize_hf import HfEncoder, Ids
from shardtools.transforms._tokenize_texts import BadTextError, head_of
from shardtools.units import plural

SPLIT, PARSE, REJECT = "split", "parse", "reject"
CUT = "cut"
CHECKED_ONE_IN = 64
_SHOWN_IDS = 3

Tokens = npt.NDArray[Any]


class QuickEncoder(Protocol):
    """An encoder that is faster than the reference, for texts that spell no added token."""

    def encode(self, text: str) -> Ids | None:
        """None: leave this text to the reference."""


@dataclass(frozen=True)
class DocumentPolicy:
    """What is done with documents that are not plain sailing."""

    special_in_text: str
    """``split``: text that spells an added token is text; ``parse``: it becomes that token; ``reject``: its document is bad."""
    max_bytes: int
    """Longer documents are ``cut`` into pieces to encode, which takes less memory, or rejected."""
    oversized: str
    seed: int
    """Chooses the documents that are checked."""


class Document(NamedTuple):
    """A text that an encoder takes."""

    key: bytes
    text: str
    num_bytes: int
    """Of the text in UTF-8."""


@dataclass
class Documents:
    """Encodes the documents of one partition, in their order."""

    policy: DocumentPolicy
    reference: HfEncoder
    quick: QuickEncoder | None
    dtype: str
    """Of the tokens, which holds every id."""
    counts: Counter[str]
    has_checked: bool = False

    def encode(self, documents: Sequence[Document]) -> list[Tokens | BadTextError]:
        """The ids of each, without BOS and EOS, or why the policy refuses it. Raises ShardtoolsError where the backends differ."""
        found: list[Tokens | BadTextError | None] = [self._encode_one(document) for document in documents]
        waiting = [i for i, ids in enumerate(found) if ids is None]
        for i, ids in zip(waiting, self.reference.encode_all(documents[i].text for i in waiting), strict=True):
            found[i] = ids
        return cast(list[Tokens | BadTextError], found)

    def _encode_one(self, document: Document) -> Tokens | BadTextError | None:
        """None: the reference has to encode it, which it does quicker for many."""
        hits = self.reference.hits(document.text)
        for literal, count in hits.items():
            self.counts[f"special:{literal}"] += count
        if hits and self.policy.special_in_text == REJECT:
            return _spells_special(document.text, hits)
        try:
            if document.num_bytes <= self.policy.max_bytes:
                return None if hits else self._encode_quickly(document.key, document.text, 0)
            return self._encode_long(document, bool(hits))
        except BadTextError as error:
            return error

    def _encode_long(self, document: Document, spells_special: bool) -> Tokens:
        key, text, num_bytes = document
        limit = self.policy.max_bytes
        if self.policy.oversized != CUT:
            raise BadTextError(
                "document-too-long",
                f"expected at most {limit:,} bytes of text, got {num_bytes:,}; raise --max-doc-bytes, or use --oversized cut",
                head_of(text),
            )
        found: list[Tokens] = []
        try:
            for piece in pieces(text, limit, self.reference.encode):
                ids = None if spells_special else self._encode_quickly(key, piece, sum(map(len, found)))
                # Narrow at once: a large text has millions of them.
                found.append((self.reference.encode(piece) if ids is None else ids).astype(self.dtype))
        except NoPlaceToCutError:
            raise BadTextError(
                "no-place-to-cut",
                f"expected a place to cut a text of {num_bytes:,} bytes within each {limit:,} without other ids, got none; "
                "raise --max-doc-bytes (an encoder takes 100 to 300 bytes of memory for each)",
                head_of(text),
            ) from None
        self.counts["documents-cut"] += 1
        self.counts["pieces"] += len(found)
        return np.concatenate(found)

    def _encode_quickly(self, key: bytes, text: str, position: int) -> Ids | None:
        """Of a text that spells no added token: both encoders parse those, but only the reference can be told not to."""
        ids = None if self.quick is None else self.quick.encode(text)
        if ids is not None and (not self.has_checked or self._is_sampled(key)):
            self._check(key, ids, self.reference.encode(text), position)
        return ids

    def _is_sampled(self, key: bytes) -> bool:
        return xxhash.xxh3_64_intdigest(key, self.policy.seed) % CHECKED_ONE_IN == 0

    def _check(self, key: bytes, ids: Ids, expected: Ids, position: int) -> None:
        self.has_checked = True
        self.counts["gigatoken-checked"] += 1
        if np.array_equal(ids, expected):
            return
        shorter = min(len(ids), len(expected))
        differing = np.flatnonzero(ids[:shorter] != expected[:shorter])
        first = int(differing[0]) if len(differing) else shorter
        ours, theirs = (array[first : first + _SHOWN_IDS].tolist() for array in (ids, expected))
        raise ShardtoolsError(
            f"expected gigatoken to give the ids of tokenizers, but at position {position + first:,} of document {key.decode()!r} "
            f"it gives {ours} for {theirs}; use --backend hf"
        )


def _spells_special(text: str, hits: Counter[str]) -> BadTextError:
    literal, _ = hits.most_common(1)[0]
    places = plural(hits.total(), "place")
    sentence = f"expected text that spells no special token, got {literal!r} at character {text.find(literal):,} ({places} in all)"
    return BadTextError("special-in-text", f"{sentence}; use --special-in-text split or parse", head_of(text))

"""Documents as they arrive: checked, cut down to size by the policy on long ones, and copied out of the batch they came in."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shardtools.sample import Batch, Reject
from shardtools.transforms import PartitionWork
from shardtools.transforms._columns import LOSS_MASK, TOKENS
from shardtools.transforms._pack_pieces import PIECE, Chunk, Ints, Pieces


@dataclass(frozen=True)
class DocumentRules:
    """What becomes of a document before it is packed."""

    dtype: np.dtype[Any]
    has_mask: bool
    max_tokens: int | None
    """Documents above it are long; None: none is."""
    long_docs: str


class AdmittedDocuments(NamedTuple):
    """The documents of one batch that are to be packed, a piece each."""

    pieces: Pieces
    where: Callable[[int], str]
    """Names the place document ``i`` came from, for messages."""


def documents(batches: Iterator[Batch], rules: DocumentRules, work: PartitionWork) -> Iterator[AdmittedDocuments]:
    """Raises ValueError where a batch breaks the contract: a token outside the dtype, a mask of another length."""
    for batch in batches:
        lengths = np.fromiter(map(len, batch.columns[TOKENS]), np.int64, len(batch))
        if rules.has_mask:
            _check_masks(batch, lengths)
        stored = _stored_lengths(batch, lengths, rules, work)
        kept = np.flatnonzero(stored)
        if len(kept):
            yield _admitted(batch, lengths, stored, kept, rules)


def _stored_lengths(batch: Batch, lengths: Ints, rules: DocumentRules, work: PartitionWork) -> Ints:
    """How many tokens of each document are kept, 0 for those that are left out; the others are counted."""
    counts = work.counts
    counts["documents"] += len(lengths)
    counts["documents-empty"] += int((lengths == 0).sum())
    counts["tokens-in"] += int(lengths.sum())
    if rules.max_tokens is None or rules.long_docs == "split":
        return lengths
    is_long = lengths > rules.max_tokens
    if rules.long_docs == "drop":
        counts["documents-dropped"] += int(is_long.sum())
        counts["tokens-dropped"] += int(lengths[is_long].sum())
        return np.where(is_long, 0, lengths)
    stored = np.minimum(lengths, rules.max_tokens)
    if rules.has_mask:
        for i in np.flatnonzero(is_long).tolist():
            # The first token is predicted by nothing, so its mask does not count.
            if not np.any(batch.columns[LOSS_MASK][i][1 : rules.max_tokens]):
                work.reject(_no_loss_left(batch.where(i), int(lengths[i]), rules.max_tokens))
                counts["documents-rejected"] += 1
                counts["tokens-dropped"] += int(lengths[i])
                stored[i], is_long[i] = 0, False
    counts["documents-truncated"] += int(is_long.sum())
    counts["tokens-truncated"] += int((lengths - stored)[is_long].sum())
    return stored


def _no_loss_left(where: str, num_tokens: int, max_tokens: int) -> Reject:
    sentence = (
        f"expected tokens to train on among the first {max_tokens}, got none once the {num_tokens} tokens were truncated; "
        "raise --seq-len or take --long-docs drop"
    )
    return Reject("all-zero-mask", where, sentence)


def _admitted(batch: Batch, lengths: Ints, stored: Ints, kept: Ints, rules: DocumentRules) -> AdmittedDocuments:
    indices, ends = kept.tolist(), stored[kept]
    table = np.zeros(len(kept), PIECE)
    table["begin"] = np.cumsum(ends) - ends
    table["document"] = np.arange(len(kept))
    table["length"] = ends
    table["total"] = lengths[kept]
    ends_list = ends.tolist()
    tokens = [batch.columns[TOKENS][i][:end] for i, end in zip(indices, ends_list, strict=True)]
    mask = None
    if rules.has_mask:
        mask = np.concatenate([batch.columns[LOSS_MASK][i][:end] for i, end in zip(indices, ends_list, strict=True)]).astype(np.uint8)
    where = batch.where
    chunk = Chunk([batch.keys[i] for i in indices], _concatenated(tokens, rules.dtype), mask)
    return AdmittedDocuments(Pieces([chunk], table), lambda i: where(indices[i]))


def _concatenated(arrays: list[npt.NDArray[Any]], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """A copy of all arrays in one of ``dtype``. Raises ValueError rather than wrap a value around."""
    together: npt.NDArray[Any] = np.concatenate(arrays)
    if together.dtype == dtype:
        return together
    limits = np.iinfo(dtype)
    if together.dtype.kind not in "iu" or together.min() < limits.min or together.max() > limits.max:
        raise ValueError(f"expected tokens that {dtype.name} can hold, got {together.dtype.name} from {together.min()} to {together.max()}")
    return together.astype(dtype)


def _check_masks(batch: Batch, lengths: Ints) -> None:
    mask_lengths = np.fromiter(map(len, batch.columns[LOSS_MASK]), np.int64, len(batch))
    for i in np.flatnonzero(mask_lengths != lengths).tolist():
        raise ValueError(f"{batch.where(i)}: expected a loss mask of {lengths[i]} entries, one for each token, got {mask_lengths[i]}")

"""Packed rows to what a training step takes: everything follows from ``seq_lens``, the lengths of the pieces in a row.

One rule holds for padding everywhere: it is one more piece behind the others. So offsets cover the whole row, every token
attends to something (attention over nothing is NaN), and only ``labels`` leave padding out.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Int32s = npt.NDArray[np.int32]

IGNORED = -100
"""The label that losses of torch and transformers leave out."""


def cu_seqlens(seq_lens: npt.ArrayLike, seq_len: int | None = None) -> Int32s:
    """Where each piece begins, and the end of the last: int32 [n + 1], as variable-length attention takes it.

    With ``seq_len``, the padding up to it is one more piece: [n + 2] where there is any. Raises ValueError for lengths that are
    no positive whole numbers, or add up to more than ``seq_len``.
    """
    lengths = _lengths(seq_lens, seq_len)
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)


def position_ids(seq_lens: npt.ArrayLike, seq_len: int | None = None) -> Int32s:
    """The place of each token in its piece: int32 [seq_len], or without it as long as the pieces are."""
    lengths = _lengths(seq_lens, seq_len)
    return _positions(lengths).astype(np.int32)


def document_ids(seq_lens: npt.ArrayLike, seq_len: int | None = None) -> Int32s:
    """The number of the piece each token is in, from 0; padding has the next: int32 [seq_len]. FlexAttention masks by it."""
    lengths = _lengths(seq_lens, seq_len)
    return np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)


def block_diagonal_mask(seq_lens: npt.ArrayLike, seq_len: int | None = None, *, causal: bool) -> npt.NDArray[np.bool_]:
    """Which token (row) may attend to which (column): those of its own piece, with ``causal`` none behind it. bool [seq_len, seq_len].

    Of one row; ``attention_mask`` makes those of a batch. A model that predicts the next token needs ``causal``, or sees it.
    """
    ids = document_ids(seq_lens, seq_len)
    same: npt.NDArray[np.bool_] = ids[:, None] == ids[None, :]
    return np.tril(same) if causal else same


def attention_mask(batch: Mapping[str, Any], *, causal: bool) -> Any:
    """The block-diagonal masks of a batch of ``collate_packed``: torch bool [B, 1, T, T], one for all heads.

    ``scaled_dot_product_attention`` takes it as ``attn_mask``, and models of transformers as ``attention_mask``; costs B * T ** 2
    bytes, so prefer ``cu_seqlens`` for long rows.
    """
    import torch

    shape = batch["tokens"].shape
    pieces = batch["cu_seqlens"].diff()
    ids = torch.repeat_interleave(torch.arange(len(pieces), device=pieces.device), pieces).reshape(shape)
    same = ids[:, None, :, None] == ids[:, None, None, :]
    return same.tril() if causal else same


def collate_packed(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The ``collate_fn`` of a DataLoader over packed rows, whose ``seq_lens`` differ in length. Rows of B samples become

    * ``tokens`` int64 [B, T]; rows of different lengths (``--packing none``) are padded with 0 behind
    * ``labels`` int64 [B, T]: the tokens, not shifted; -100 at padding, at the first token of each piece, where ``loss_mask`` is 0
    * ``position_ids`` int64 [B, T]: restart at each piece
    * ``cu_seqlens`` int32 and ``max_seqlen`` int: of all pieces of the batch laid out as [B * T], each row's padding one more piece
    * ``seq_lens`` int32 of all rows, one behind the other, and ``num_seqs`` int64 [B], how many of them each row has
    * ``doc_ids`` and ``key`` (``__key__``): lists, where samples have them

    Values are arrays under the names of MDS columns, or of tar members as webdataset decodes them (``tokens.npy``). Attention over
    whole rows lets documents see each other, whatever the positions: give ``cu_seqlens`` to a kernel of variable length, or
    ``attention_mask`` to any other.
    Raises ValueError for an empty batch and for lengths that do not fit their row.
    """
    import torch

    if not samples:
        raise ValueError("expected at least one sample to collate, got none")
    tokens, trained, seq_lens = _stacked(samples)
    pieces = np.concatenate([_lengths(lengths, tokens.shape[1]) for lengths in seq_lens])
    positions = _positions(pieces).reshape(tokens.shape)
    collated: dict[str, Any] = {
        "tokens": torch.from_numpy(tokens),
        "labels": torch.from_numpy(np.where(trained & (positions > 0), tokens, IGNORED)),
        "position_ids": torch.from_numpy(positions),
        "cu_seqlens": torch.from_numpy(np.concatenate(([0], np.cumsum(pieces))).astype(np.int32)),
        "max_seqlen": int(pieces.max()),
        "seq_lens": torch.from_numpy(np.concatenate(seq_lens).astype(np.int32)),
        "num_seqs": torch.tensor([len(lengths) for lengths in seq_lens]),
    }
    return collated | _lists(samples)


def _stacked(samples: Sequence[Mapping[str, Any]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], list[npt.NDArray[np.int64]]]:
    """Tokens [B, T], which of them are neither padding nor masked [B, T], and the pieces of each row."""
    rows = [np.asarray(_value(sample, "tokens", ".npy")) for sample in samples]
    seq_lens = []
    tokens = np.zeros((len(rows), max(map(len, rows))), np.int64)
    trained = np.zeros(tokens.shape, np.bool_)
    for i, (sample, row) in enumerate(zip(samples, rows, strict=True)):
        given = _value(sample, "seq_lens", ".npy")
        _lengths(given, len(row))  # checked against its own row, which may be shorter than the widest
        lengths = np.asarray(given, np.int64)
        seq_lens.append(lengths)
        tokens[i, : len(row)] = row
        trained[i, : int(lengths.sum())] = True
        if (mask := _value(sample, "loss_mask", ".npy", None)) is not None:
            trained[i, : len(row)] &= np.asarray(mask) != 0
    return tokens, trained, seq_lens


def _lists(samples: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """What stays as it is, where every sample has it."""
    found = {
        "doc_ids": [_value(sample, "doc_ids", ".json", None) for sample in samples],
        "key": [sample.get("key", sample.get("__key__")) for sample in samples],
    }
    return {name: values for name, values in found.items() if all(value is not None for value in values)}


_REQUIRED = object()


def _value(sample: Mapping[str, Any], name: str, suffix: str, default: Any = _REQUIRED) -> Any:
    """The value of a column, or of the tar member of that name."""
    value = sample.get(name, sample.get(name + suffix, default))
    if value is _REQUIRED:
        raise ValueError(f"expected packed rows with {name!r} or {name + suffix!r}, got {', '.join(map(repr, sorted(sample)))}")
    return value


def _lengths(seq_lens: npt.ArrayLike, seq_len: int | None) -> npt.NDArray[np.int64]:
    """The pieces, with the padding as the last where there is any."""
    given = np.asarray(seq_lens)
    lengths = given.astype(np.int64)
    if given.ndim != 1 or not len(given) or given.dtype.kind not in "iu" or lengths.min() < 1:
        raise ValueError(f"expected the lengths of the pieces of one row, each 1 or more, got {given.tolist()!r:.60}")
    padding = 0 if seq_len is None else seq_len - int(lengths.sum())
    if padding < 0:
        raise ValueError(f"expected pieces that fit a row of {seq_len} tokens, got {int(lengths.sum())}")
    return np.append(lengths, padding) if padding else lengths


def _positions(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths)

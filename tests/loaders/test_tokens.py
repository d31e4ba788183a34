"""Stops documents that see each other or their padding in training, and losses on tokens that nothing predicts."""

import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from shardtools.loaders.tokens import attention_mask, block_diagonal_mask, collate_packed, cu_seqlens, document_ids, position_ids

torch = pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it")
pytestmark = pytest.mark.train

ROWS = [
    {"key": "000000/00000000", "tokens": np.array([9, 8, 7, 6, 5, 0], np.uint16), "seq_lens": np.array([3, 2], np.int32)},
    {"key": "000000/00000001", "tokens": np.array([65535, 1, 2, 3, 4, 0], np.uint16), "seq_lens": np.array([6], np.int32)},
]


def test_offsets() -> None:
    assert cu_seqlens([3, 2]).tolist() == [0, 3, 5]
    assert cu_seqlens(np.array([3, 2], np.int32), 6).tolist() == [0, 3, 5, 6]
    assert cu_seqlens([3, 3], 6).tolist() == [0, 3, 6]
    assert cu_seqlens([3]).dtype == np.int32


def test_positions_restart() -> None:
    assert position_ids([3, 2]).tolist() == [0, 1, 2, 0, 1]
    assert position_ids([3, 2], 8).tolist() == [0, 1, 2, 0, 1, 0, 1, 2]
    assert document_ids([3, 2]).tolist() == [0, 0, 0, 1, 1]
    assert document_ids([3, 2], 8).tolist() == [0, 0, 0, 1, 1, 2, 2, 2]


def test_the_mask_is_block_diagonal() -> None:
    assert block_diagonal_mask([2, 1], 4, causal=False).astype(int).tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    assert block_diagonal_mask([2, 2], causal=True).astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize("wrong", [[], [0], [2, -1], [2, 0], [1.0], [[1, 2]], [7], [4, 3]])
def test_lengths_that_are_none(wrong: Any) -> None:
    for derive in (cu_seqlens, position_ids, document_ids, partial(block_diagonal_mask, causal=True)):
        with pytest.raises(ValueError, match="expected"):
            derive(wrong, 6)
    with pytest.raises(ValueError, match="expected"):
        collate_packed([{"tokens": np.zeros(6, np.uint16), "seq_lens": np.array(wrong)}])


def test_a_batch() -> None:
    batch = collate_packed(ROWS)
    assert batch["tokens"].dtype == batch["labels"].dtype == batch["position_ids"].dtype == torch.int64
    assert batch["tokens"].tolist() == [[9, 8, 7, 6, 5, 0], [65535, 1, 2, 3, 4, 0]]
    # The last 0 of the first row is padding, that of the second a token.
    assert batch["labels"].tolist() == [[-100, 8, 7, -100, 5, -100], [-100, 1, 2, 3, 4, 0]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 4, 5]]
    assert batch["cu_seqlens"].dtype == torch.int32
    assert batch["cu_seqlens"].tolist() == [0, 3, 5, 6, 12]
    assert batch["max_seqlen"] == 6
    assert batch["seq_lens"].tolist() == [3, 2, 6]
    assert batch["num_seqs"].tolist() == [2, 1]
    assert batch["key"] == ["000000/00000000", "000000/00000001"]
    assert "doc_ids" not in batch


def test_a_loss_mask_and_tar_members() -> None:
    samples = [
        {
            "__key__": f"000000/{i:08d}",
            "tokens.npy": row["tokens"],
            "seq_lens.npy": row["seq_lens"],
            "loss_mask.npy": np.array([1, 0, 1, 1, 1, 1], np.uint8),
            "doc_ids.json": ["a", "b"],
        }
        for i, row in enumerate(ROWS)
    ]
    batch = collate_packed(samples)
    assert batch["labels"].tolist() == [[-100, -100, 7, -100, 5, -100], [-100, -100, 2, 3, 4, 0]]
    assert batch["doc_ids"] == [["a", "b"], ["a", "b"]]
    assert batch["key"] == ["000000/00000000", "000000/00000001"]


def test_rows_of_different_lengths_are_padded_behind() -> None:
    rows = [{"tokens": np.array(row, np.uint32), "seq_lens": np.array([len(row)])} for row in ([4, 5], [6], [7, 8, 9])]
    batch = collate_packed(rows)
    assert batch["tokens"].tolist() == [[4, 5, 0], [6, 0, 0], [7, 8, 9]]
    assert batch["labels"].tolist() == [[-100, 5, -100], [-100, -100, -100], [-100, 8, 9]]
    assert batch["cu_seqlens"].tolist() == [0, 2, 3, 4, 6, 9]


def test_pieces_that_fit_the_widest_row_but_not_their_own_are_refused() -> None:
    rows = [{"tokens": np.zeros(n, np.uint16), "seq_lens": np.array([4])} for n in (3, 5)]
    with pytest.raises(ValueError, match="expected pieces that fit a row of 3 tokens, got 4"):
        collate_packed(rows)


def test_what_is_no_packed_row() -> None:
    with pytest.raises(ValueError, match="expected at least one sample"):
        collate_packed([])
    with pytest.raises(ValueError, match=r"expected packed rows with 'tokens' or 'tokens.npy', got 'text'"):
        collate_packed([{"text": "a"}])
    with pytest.raises(ValueError, match=r"expected packed rows with 'seq_lens' or 'seq_lens.npy', got 'tokens'"):
        collate_packed([{"tokens": np.zeros(3, np.uint16)}])


def attention(query: Any, key: Any, value: Any, **options: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, **options)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_by_mask_is_attention_of_each_document_alone(causal: bool) -> None:
    torch.manual_seed(0)
    lengths, seq_len = [3, 7, 1, 4], 20
    query, key, value = (torch.randn(1, 2, seq_len, 8) for _ in range(3))
    mask = torch.from_numpy(block_diagonal_mask(lengths, seq_len, causal=causal))
    together = attention(query, key, value, attn_mask=mask)
    assert torch.isfinite(together).all()
    bounds = cu_seqlens(lengths).tolist()
    for begin, end in pairwise(bounds):
        alone = attention(query[:, :, begin:end], key[:, :, begin:end], value[:, :, begin:end], is_causal=causal)
        assert torch.allclose(together[:, :, begin:end], alone, atol=1e-6)


def test_offsets_make_nested_tensors_that_attend_alike() -> None:
    """torch's own reading of offsets: a jagged tensor over the flattened batch gives what the masks of its rows give."""
    torch.manual_seed(1)
    batch = collate_packed(ROWS)
    flat = torch.randn(12, 4)
    offsets = batch["cu_seqlens"].long()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pieces = torch.nested.nested_tensor_from_jagged(flat, offsets).unbind()
    assert [len(piece) for piece in pieces] == [3, 2, 1, 6]
    by_piece = torch.cat([attention(piece[None], piece[None], piece[None], is_causal=True)[0] for piece in pieces])
    rows = flat.reshape(2, 6, 4)
    masks = torch.stack([torch.from_numpy(block_diagonal_mask(row["seq_lens"], 6, causal=True)) for row in ROWS])
    assert torch.equal(attention_mask(batch, causal=True)[:, 0], masks)
    assert torch.allclose(attention(rows, rows, rows, attn_mask=masks).reshape(12, 4), by_piece, atol=1e-6)


class Table(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> Mapping[str, Any]:
        lengths = np.array([1 + i % 5, 2, 1 + i % 3][: 1 + i % 3], np.int32)
        tokens = np.zeros(16, np.uint16)
        tokens[: lengths.sum()] = i + 1
        return {"tokens": tokens, "seq_lens": lengths}


def test_a_data_loader_with_workers() -> None:
    loader = torch.utils.data.DataLoader(Table(), batch_size=8, num_workers=2, collate_fn=collate_packed)
    given = [Table()[i] for i in range(40)]
    counts: list[int] = []
    lengths: list[int] = []
    for batch in loader:
        assert batch["tokens"].shape == (8, 16)
        assert batch["cu_seqlens"][-1] == 8 * 16
        assert int((batch["labels"] != -100).sum()) == int((batch["seq_lens"] - 1).sum())
        counts += batch["num_seqs"].tolist()
        lengths += batch["seq_lens"].tolist()
    assert counts == [len(sample["seq_lens"]) for sample in given]
    assert lengths == [n for sample in given for n in sample["seq_lens"].tolist()]


def test_the_default_collate_fails_where_ours_does_not() -> None:
    """Why collate_packed is needed at all."""
    samples: Sequence[Mapping[str, Any]] = [Table()[0], Table()[1]]
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        torch.utils.data.default_collate([{"seq_lens": sample["seq_lens"]} for sample in samples])
    assert collate_packed(samples)["num_seqs"].tolist() == [1, 2]


def test_of_the_heavy_libraries_only_torch_is_imported() -> None:
    heavy = ("torchvision", "torchdata", "transformers", "webdataset", "streaming", "PIL", "pyarrow", "tokenizers", "boto3", "ray", "click")
    code = f"import sys, shardtools.loaders, shardtools.loaders.tokens; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"

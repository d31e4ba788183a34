"""Rows of tokens: that each is what packing makes, and that all of them come to what the ledger says."""

import io
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

from shardtools.datasets import Dataset, Shard
from shardtools.digests import DigestTable, together
from shardtools.duplicates import DIGEST_BYTES, key_digest
from shardtools.manifest import MANIFEST_NAME, Manifest
from shardtools.sample import Field, brief
from shardtools.transforms.packing import DocPiece
from shardtools.verify.findings import Findings

_PIECE = np.dtype([("digest", f"V{DIGEST_BYTES}"), ("offset", "<u8"), ("length", "<u8"), ("total", "<u8")])
_MAX_SHOWN = 5


@dataclass(frozen=True)
class TokenRules:
    """What the recipe says of every row; of a merged dataset, what its parts have in common."""

    seq_len: int | None
    """None: rows are as long as their documents."""
    dtype: str
    max_id: int
    has_mask: bool
    has_doc_ids: bool
    loses: bool
    """Tokens may be missing at the end of documents."""

    @classmethod
    def of(cls, manifest: Manifest | None) -> "TokenRules | None":
        """None where the dataset holds no packed tokens. Raises LookupError or TypeError for a recipe that is none."""
        recipes = {one["name"]: one for one in (manifest.transforms if manifest is not None else ())}
        packing = recipes.get("packing")
        if packing is None:
            return None
        encode = recipes.get("tokenize") or recipes["chat"]
        return cls(
            seq_len=None if packing["strategy"] == "none" else packing["seq_len"],
            dtype=packing["dtype"],
            max_id=encode["max_id"],
            has_mask=packing["has_mask"],
            has_doc_ids=packing["doc_ids"],
            loses=packing["long_docs"] != "split" or packing["tail"] != "pad",
        )


class TokenTally:
    """Looks at the rows of one shard."""

    def __init__(self, rules: TokenRules, dataset: Dataset, shard: Shard) -> None:
        self._rules = rules
        self._dataset = dataset
        self._shard = shard
        self._fields: dict[str, Field] = {}
        self.counts: Counter[str] = Counter()
        """``rows``, ``pieces``, ``tokens-stored``, ``padding``."""
        self.pieces = bytearray()
        """A record of ``stored.PIECE_BYTES`` for each piece; empty without document ids."""

    def add(self, values: Mapping[str, memoryview]) -> str | None:
        """Count a row. What is wrong with it, None for a sound one."""
        try:
            row = {name.removesuffix(".npy").removesuffix(".json"): self._decoded(name, value) for name, value in values.items()}
            tokens, seq_lens = row["tokens"], row["seq_lens"]
            mask = row["loss_mask"] if self._rules.has_mask else None
            ids = row["doc_ids"] if self._rules.has_doc_ids else None
        except (ValueError, KeyError, EOFError) as error:
            return f"expected every column of a packed row, got one without, or with other bytes: {error}"
        fault = self._fault(tokens, seq_lens)
        if fault is None and mask is not None:
            fault = _mask_fault(mask, seq_lens, len(tokens))
        if fault is not None:
            return fault
        self._count(tokens, seq_lens)
        return None if ids is None else self._take_pieces(ids, seq_lens.tolist())

    def _decoded(self, name: str, value: memoryview) -> Any:
        if name.endswith(".npy"):
            return _npy(value)
        if name not in self._fields:
            self._fields[name] = self._dataset.field(self._shard, name)
        return self._shard.format.decode(self._fields[name], bytes(value))

    def _fault(self, tokens: npt.NDArray[Any], seq_lens: npt.NDArray[Any]) -> str | None:
        rules = self._rules
        if tokens.ndim != 1 or tokens.dtype != np.dtype(rules.dtype):
            return f"expected one-dimensional tokens of {rules.dtype}, got {tokens.dtype} in the shape {tokens.shape}"
        if seq_lens.ndim != 1 or seq_lens.dtype != np.int32 or not len(seq_lens) or seq_lens.min() < 1:
            shown = seq_lens.ravel()[:_MAX_SHOWN].tolist()
            return f"expected one-dimensional seq_lens of int32, each 1 or more, got {shown} of {seq_lens.dtype}"
        expected = len(tokens) if rules.seq_len is None else rules.seq_len
        total = int(seq_lens.sum())
        if len(tokens) != expected or total > expected or (rules.seq_len is None and total != expected):
            return f"expected {expected:,} tokens and pieces that fit them, got {len(tokens):,} and pieces of {total:,} in all"
        if int(tokens.max()) > rules.max_id or int(tokens.min()) < 0:
            return f"expected ids from 0 to {rules.max_id:,}, got {int(tokens.min()):,} to {int(tokens.max()):,}"
        return None

    def _count(self, tokens: npt.NDArray[Any], seq_lens: npt.NDArray[Any]) -> None:
        total = int(seq_lens.sum())
        self.counts.update({"rows": 1, "pieces": len(seq_lens), "tokens-stored": total, "padding": len(tokens) - total})

    def _take_pieces(self, ids: Any, lengths: Sequence[int]) -> str | None:
        if not isinstance(ids, list) or len(ids) != len(lengths):
            return f"expected a document id for each of {len(lengths)} pieces, got {len(ids) if isinstance(ids, list) else brief(ids)}"
        for text, length in zip(ids, lengths, strict=True):
            try:
                piece = DocPiece.parse(text)
            except (ValueError, AttributeError) as error:
                return f"expected document ids as packing writes them: {error}"
            total = length if piece.total is None else piece.total
            self.pieces += key_digest(piece.key.encode()) + struct.pack("<3Q", piece.offset, length, total)
        return None


def _mask_fault(mask: npt.NDArray[Any], seq_lens: npt.NDArray[Any], num_tokens: int) -> str | None:
    if mask.shape != (num_tokens,) or mask.dtype != np.uint8 or mask.max() > 1:
        return f"expected a loss mask of {num_tokens:,} times 0 or 1 in uint8, got {mask.dtype} in the shape {mask.shape}"
    begins = np.concatenate(([0], np.cumsum(seq_lens)))
    if mask[begins[-1] :].any() or mask[begins[:-1]].any():
        return "expected a loss mask of 0 at padding and at the first token of each piece, got 1"
    if not np.logical_or.reduceat(mask, begins[:-1]).all():
        return "expected something in the loss of every piece, got a mask of zeros"
    return None


def _npy(value: memoryview) -> npt.NDArray[Any]:
    """The array, not copied. Raises ValueError for what is none, and for a pickle."""
    begin = 10 + int.from_bytes(value[8:10], "little")
    dtype, shape = _npy_header(bytes(value[:begin]))
    return np.frombuffer(value[begin:], dtype).reshape(shape)


@lru_cache(1 << 12)
def _npy_header(header: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Rows have few shapes, and reading a header takes longer than looking at its array."""
    file = io.BytesIO(header)
    version = npy_format.read_magic(file)  # type: ignore[no-untyped-call]
    if version != (1, 0):
        raise ValueError(f"version {version} of the .npy format, not 1.0")
    shape, _, dtype = npy_format.read_array_header_1_0(file)  # type: ignore[no-untyped-call]
    if dtype.hasobject:
        raise ValueError("an array of pickled objects")
    return dtype, shape


def check_ledger(manifest: Manifest, counted: Counter[str], findings: Findings) -> None:
    """Compare what the rows come to with what packing counted, and that with itself."""
    counts = {name: Counter(found) for name, found in manifest.ledger.transforms.items()}
    packing = counts.get("packing", Counter())
    encode = counts.get("tokenize") or counts.get("chat") or Counter()
    spent = packing["tokens-stored"] + packing["tokens-truncated"] + packing["tokens-dropped"]
    details = [
        f"expected {packing[name]:,} {name} as in the ledger, got {counted[name]:,} in the rows"
        for name in ("rows", "pieces", "tokens-stored", "padding")
        if packing[name] != counted[name]
    ]
    if packing["tokens-in"] != spent:
        details.append(f"expected tokens in = stored + truncated + dropped, got {packing['tokens-in']:,} and {spent:,}")
    passed_on = encode["tokens-in"] - encode["tokens-truncated"] - encode["tokens-dropped"]
    if packing["tokens-in"] != passed_on:
        details.append(f"expected the {passed_on:,} tokens that were encoded to be packed, got {packing['tokens-in']:,}")
    for detail in details:
        findings.add("token-ledger", detail, MANIFEST_NAME)


def check_documents(table: DigestTable, rules: TokenRules, num_documents: int, findings: Findings) -> None:
    """That the pieces of every document follow each other from its first token to its last, and that none is there twice."""
    num_found = 0
    broken = 0
    for (records,) in together([table]):
        pieces = np.ascontiguousarray(records).view(_PIECE).ravel()
        order = np.lexsort((pieces["offset"], *_halves(pieces["digest"])))
        pieces = pieces[order]
        is_first = np.ones(len(pieces), bool)
        is_first[1:] = pieces["digest"][1:] != pieces["digest"][:-1]
        num_found += int(is_first.sum())
        ends = pieces["offset"] + pieces["length"]
        is_last = np.roll(is_first, -1)
        follows = np.where(is_first, pieces["offset"] == 0, pieces["offset"] == np.roll(ends, 1))
        is_ended = ~is_last | (ends <= pieces["total"] if rules.loses else ends == pieces["total"])
        broken += int((~(follows & is_ended)).sum())
    if broken:
        detail = f"expected the pieces of a document to follow each other to its end, got {broken:,} that do not"
        findings.add("broken-document", detail, MANIFEST_NAME)
    if num_found != num_documents and not rules.loses:
        findings.add(
            "broken-document", f"expected {num_documents:,} documents as in the ledger, got {num_found:,} in the rows", MANIFEST_NAME
        )


def _halves(digests: npt.NDArray[np.void]) -> Iterator[npt.NDArray[np.uint64]]:
    words = np.ascontiguousarray(digests).view(">u8").reshape(-1, 2).astype(np.uint64)
    return iter((words[:, 0], words[:, 1]))

"""What packed tokens are checked against: shards read by struct, tarfile and numpy, ids as the tokenizers library gives them.

Only ``pack`` calls the code under test.
"""

import io
import json
import os
import struct
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from shardtools.build import run
from shardtools.build.order import OrderWords, order_of
from shardtools.build.run import RunOptions
from shardtools.build.write import BuildTask
from shardtools.engines.serial import Serial
from shardtools.sources import resolve_inputs
from shardtools.units import Budget

os.environ["TOKENIZERS_PARALLELISM"] = "false"

EOS, BOS, THINK = "<|endoftext|>", "<|bos|>", "<think>"
_TRAINING = ["the cat sat on the mat and the dog ate the log. " * 20, "def f(x):\n    return x + 12345\n" * 5, "ein Haus, zwei Häuser " * 9]
_TEMPLATE = (
    "{% for message in messages %}{{ '<|bos|>' + message['role'] + '\n' + message['content'] + '<|endoftext|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|bos|>assistant\n' }}{% endif %}"
)
_WIDTHS = {"uint16": "<u2", "uint32": "<u4", "int32": "<i4", "uint8": "<u1"}


def small_tokenizer(folder: Path, *, vocab_size: int = 400) -> Path:
    """A folder with a byte-level BPE, an EOS, a BOS, an added token that is not flagged, and a chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(
        _TRAINING, trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False, min_frequency=1)
    )
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in (EOS, BOS)])
    tokenizer.add_tokens([AddedToken(THINK, normalized=False, special=False)])
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": EOS, "chat_template": _TEMPLATE}))
    return folder


def pack(
    source: Path | str | Sequence[Path],
    destination: Path,
    format_: str = "mds",
    *,
    seed: int | None = None,
    shard_size: str | None = None,
    shard_samples: int | None = None,
    max_bad: str = "0",
    engine: Any = None,
    overwrite: bool = False,
    reader: str = "auto",
    source_options: Mapping[str, str] | None = None,
    listener: run.Listener | None = None,
    **tokens: str | Path,
) -> run.Result:
    """Pack as the command line does: ``pack(docs, out, tokenizer=path, seq_len="64", doc_ids="")``."""
    sources = [str(source)] if isinstance(source, str | Path) else [str(one) for one in source]
    words = OrderWords(
        format=format_,
        source=reader,
        seed=seed,
        shard_size=shard_size,
        shard_samples=shard_samples,
        source_options=source_options or {},
        token_options={name: str(value) for name, value in tokens.items()},
    )
    options = RunOptions(engine or Serial(), Budget.parse(max_bad), overwrite)
    return run.build(sources, str(destination), order_of(resolve_inputs(sources), words), options, listener or run.Listener())


class StopBeforePublishing(Serial):
    """Builds every partition, and is interrupted then."""

    def run(self, task: Any, items: Sequence[Any], *rest: Any) -> None:
        super().run(task, items, *rest)
        if isinstance(task, BuildTask):
            raise KeyboardInterrupt


def as_lines(records: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


# Ids.


def plain_ids(tokenizer: Path, text: str) -> list[int]:
    """The ids of a text in which no added token is looked for: the same file, with none in it."""
    return list(_loaded(tokenizer / "tokenizer.json", False).encode(text, add_special_tokens=False).ids)


def parsed_ids(tokenizer: Path, text: str) -> list[int]:
    return list(_loaded(tokenizer / "tokenizer.json", True).encode(text, add_special_tokens=False).ids)


def id_of(tokenizer: Path, token: str) -> int:
    found: int | None = _loaded(tokenizer / "tokenizer.json", True).token_to_id(token)
    assert found is not None
    return found


def text_of(tokenizer: Path, ids: Sequence[int]) -> str:
    return str(_loaded(tokenizer / "tokenizer.json", True).decode(ids, skip_special_tokens=False))


@lru_cache(maxsize=8)
def _loaded(path: Path, parses: bool) -> Tokenizer:
    plain = json.loads(path.read_text("utf-8"))
    if not parses:
        plain["added_tokens"] = [token for token in plain["added_tokens"] if not token["content"].strip()]
    return Tokenizer.from_str(json.dumps({**plain, "truncation": None, "padding": None}))


# Rows.


@dataclass(frozen=True)
class Row:
    """One stored sample."""

    key: str
    tokens: list[int]
    dtype: str
    seq_lens: list[int]
    doc_ids: list[str] | None
    loss_mask: list[int] | None

    @property
    def num_padding(self) -> int:
        return len(self.tokens) - sum(self.seq_lens)

    def pieces(self) -> list[list[int]]:
        """The tokens of each piece."""
        ends = np.cumsum([0, *self.seq_lens]).tolist()
        return [self.tokens[begin:end] for begin, end in pairwise(ends)]


def rows_of(folder: Path) -> list[Row]:
    """Every row of a dataset, in order."""
    return _mds_rows(folder) if (folder / "index.json").exists() else _wds_rows(folder)


def _mds_rows(folder: Path) -> list[Row]:
    rows = []
    for entry in json.loads((folder / "index.json").read_bytes())["shards"]:
        data = (folder / entry["raw_data"]["basename"]).read_bytes()
        (count,) = struct.unpack_from("<I", data)
        offsets = struct.unpack_from(f"<{count + 1}I", data, 4)
        for begin, end in pairwise(offsets):
            row, at = {}, begin + 4 * entry["column_sizes"].count(None)
            lengths = iter(struct.unpack_from(f"<{(at - begin) // 4}I", data, begin))
            for name, encoding, size in zip(entry["column_names"], entry["column_encodings"], entry["column_sizes"], strict=True):
                num_bytes = next(lengths) if size is None else size
                row[name] = _mds_value(encoding, data[at : at + num_bytes])
                at += num_bytes
            assert at == end
            rows.append(_row(row["key"], row))
    return rows


def _mds_value(encoding: str, data: bytes) -> Any:
    if encoding == "str":
        return data.decode()
    if encoding == "json":
        return json.loads(data)
    _, dtype, *shape = encoding.split(":")
    if not shape:
        width = 1 << (data[0] & 3)
        assert data[0] >> 2 == 1, "one dimension"
        count = int.from_bytes(data[1 : 1 + width], "little")
        data = data[1 + width :]
    else:
        count = int(shape[0])
    array = np.frombuffer(data, _WIDTHS[dtype])
    assert len(array) == count
    return array


def _wds_rows(folder: Path) -> list[Row]:
    samples: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as archive:
            for member in archive:
                key, _, name = member.name.partition(".")
                opened = archive.extractfile(member)
                assert opened is not None
                data = opened.read()
                field, _, kind = name.rpartition(".")
                assert field not in samples.setdefault(key, {})
                samples[key][field] = np.load(io.BytesIO(data), allow_pickle=False) if kind == "npy" else json.loads(data)
    return [_row(key, values) for key, values in samples.items()]


def _row(key: str, values: Mapping[str, Any]) -> Row:
    assert set(values) <= {"key", "tokens", "seq_lens", "doc_ids", "loss_mask"}, set(values)
    assert values["seq_lens"].dtype == np.int32
    mask = values.get("loss_mask")
    assert mask is None or mask.dtype == np.uint8
    return Row(
        key,
        values["tokens"].tolist(),
        values["tokens"].dtype.name,
        values["seq_lens"].tolist(),
        values.get("doc_ids"),
        None if mask is None else mask.tolist(),
    )


def documents_of(rows: Sequence[Row]) -> dict[str, tuple[list[int], int]]:
    """Each document's stored tokens, put together again from its pieces, and how many it came with.

    Fails where pieces overlap or leave a gap, where a row has no piece, or padding between them.
    """
    found: dict[str, list[tuple[int, int, list[int]]]] = defaultdict(list)
    for row in rows:
        assert row.doc_ids is not None
        assert len(row.doc_ids) == len(row.seq_lens) > 0
        assert min(row.seq_lens) > 0
        assert row.num_padding >= 0
        for text, tokens in zip(row.doc_ids, row.pieces(), strict=True):
            key, at, place = text.partition("@")
            offset, total = map(int, place.split(":")) if at else (0, len(tokens))
            found[key].append((offset, total, tokens))
    documents = {}
    for key, pieces in found.items():
        pieces.sort(key=lambda piece: piece[0])
        assert len({total for _, total, _ in pieces}) == 1, key
        tokens: list[int] = []
        for offset, _, part in pieces:
            assert offset == len(tokens), key
            tokens += part
        documents[key] = (tokens, pieces[0][1])
    return documents


def counts_of(folder: Path) -> dict[str, Any]:
    """The ledger as the manifest's JSON text has it."""
    found: dict[str, Any] = json.loads((folder / "shardtools.manifest").read_bytes())["ledger"]
    return found

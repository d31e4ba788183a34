"""Stops packed tokens that readers of the field decode to other rows, and real text that does not come back out of its tokens."""

import json
import unicodedata
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from token_oracle import as_lines, counts_of, documents_of, pack, parsed_ids, plain_ids, rows_of, small_tokenizer, text_of

from shardtools.engines.processes import Processes
from shardtools.loaders.tokens import collate_packed

WAYS = {
    "bfd": {"seq_len": "33", "doc_ids": ""},
    "concat": {"seq_len": "32", "packing": "concat"},
    "none": {"doc_ids": ""},
    "wide": {"seq_len": "33", "dtype": "uint32"},
    "chat": {"seq_len": "40", "chat": "", "doc_ids": ""},
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    return small_tokenizer(tmp_path_factory.mktemp("tokenizer") / "small")


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("source") / "docs.jsonl"
    texts = [f"{i} {'the cat sat ' * (i % 13)}Häuser 画像" for i in range(120)]
    messages = [[{"role": "user", "content": text[:30]}, {"role": "assistant", "content": "ok the cat"}] for text in texts]
    path.write_bytes(as_lines({"text": text, "messages": chat} for text, chat in zip(texts, messages, strict=True)))
    return path


def as_plain(sample):
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in sample.items()}


def expected_rows(folder):
    """What a reader has to give, from the rows as struct and tarfile find them."""
    for row in rows_of(folder):
        values = {"tokens": row.tokens, "seq_lens": row.seq_lens}
        yield row.key, {**values, **{n: v for n, v in (("doc_ids", row.doc_ids), ("loss_mask", row.loss_mask)) if v is not None}}


@pytest.mark.train
@pytest.mark.parametrize("way", WAYS)
def test_streaming_dataset_reads_the_rows(source, tokenizer, read_streaming, tmp_path, way):
    pack(source, tmp_path / "mds", "mds", tokenizer=tokenizer, **WAYS[way])
    samples = read_streaming(tmp_path / "mds")
    assert [(sample.pop("key"), as_plain(sample)) for sample in samples] == list(expected_rows(tmp_path / "mds"))
    assert {str(sample["tokens"].dtype) for sample in samples} == {"uint32" if way == "wide" else "uint16"}
    assert {str(sample["seq_lens"].dtype) for sample in samples} == {"int32"}
    assert len(samples) > 10


@pytest.mark.train
@pytest.mark.parametrize("way", WAYS)
def test_webdataset_decodes_the_rows(source, tokenizer, webdataset, tmp_path, way):
    pack(source, tmp_path / "wds", "wds", tokenizer=tokenizer, **WAYS[way])
    samples = read_decoded(webdataset, tmp_path / "wds")
    found = [
        (sample["__key__"], as_plain({name.partition(".")[0]: value for name, value in sample.items() if not name.startswith("__")}))
        for sample in samples
    ]
    assert found == list(expected_rows(tmp_path / "wds"))
    assert len(samples) > 10


def read_decoded(webdataset, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        urls = [str(path) for path in sorted(folder.glob("*.tar"))]
        return list(webdataset.WebDataset(urls, shardshuffle=False, empty_check=False).decode())


@pytest.mark.train
@pytest.mark.parametrize("way", ["bfd", "none", "chat"])
def test_both_formats_make_the_same_batches(source, tokenizer, read_streaming, webdataset, tmp_path, way):
    torch = pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it")
    for format_ in ("mds", "wds"):
        pack(source, tmp_path / format_, format_, tokenizer=tokenizer, **WAYS[way])
    batches = []
    for samples in (read_streaming(tmp_path / "mds"), read_decoded(webdataset, tmp_path / "wds")):
        loader = torch.utils.data.DataLoader(samples, batch_size=4, collate_fn=collate_packed)
        batches.append([{name: value.tolist() if torch.is_tensor(value) else value for name, value in batch.items()} for batch in loader])
    assert batches[0] == batches[1]
    tokens = Counter(token for batch in batches[0] for row in batch["labels"] for token in row if token != -100)
    # The first token of each piece, and with a mask what is not the assistant's, is in no label.
    trained = Counter[int]()
    for row in rows_of(tmp_path / "mds"):
        for begin, length in zip(np.cumsum([0, *row.seq_lens]).tolist(), row.seq_lens, strict=False):
            mask = [1] * len(row.tokens) if row.loss_mask is None else row.loss_mask
            trained.update(row.tokens[i] for i in range(begin + 1, begin + length) if mask[i])
    assert tokens == trained


# Real text.


@pytest.fixture(scope="module")
def texts(corpora):
    """Texts by document of both files."""
    found = {}
    for name in ("gsm8k", "mixed"):
        at = 0
        for line in (corpora / "text" / f"{name}.jsonl").read_bytes().splitlines(keepends=True):
            found[f"{name}/{at:012d}"] = json.loads(line)["text"]
            at += len(line)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("special", ["split", "parse"])
@pytest.mark.parametrize("name", ["gpt2", "qwen3"])
def test_real_text_comes_back_and_its_ids_are_those_of_the_library(corpora, texts, tmp_path, name, special):
    pytest.importorskip("gigatoken", reason="gigatoken is not installed: the extra `fast` has it")
    tokenizer = corpora / "tokenizers" / name
    sources = [corpora / "text" / "gsm8k.jsonl", corpora / "text" / "mixed.jsonl"]
    words = {"seq_len": "2048", "doc_ids": "", "special_in_text": special}
    encode = parsed_ids if special == "parse" else plain_ids
    expected = {key: encode(tokenizer, text) for key, text in texts.items()}
    for backend in ("hf", "gigatoken"):
        pack(sources, tmp_path / backend, engine=Processes(2), tokenizer=tokenizer, backend=backend, **words)
        stored = documents_of(rows_of(tmp_path / backend))
        assert {key: tokens[:-1] for key, (tokens, _) in stored.items()} == expected
        ends = {tokens[-1] for tokens, _ in stored.values()}
        assert [text_of(tokenizer, [end]) for end in ends] == [{"gpt2": "<|endoftext|>", "qwen3": "<|im_end|>"}[name]]
        ledger = counts_of(tmp_path / backend)
        packed = ledger["transforms"]["packing"]
        assert packed["tokens-stored"] == packed["tokens-in"] == sum(len(ids) + 1 for ids in expected.values())
        assert (ledger["read"], ledger["written"]) == (14742, 14742)
    for key, (tokens, _) in stored.items():
        text = unicodedata.normalize("NFC", texts[key]) if name == "qwen3" else texts[key]
        assert text_of(tokenizer, tokens[:-1]) == text, key


@pytest.mark.slow
@pytest.mark.parametrize(("seq_len", "most"), [(2048, 0.001), (8192, 0.005)])
@pytest.mark.parametrize("name", ["gpt2", "qwen3"])
def test_little_of_the_rows_is_padding(corpora, tmp_path, monkeypatch, name, seq_len, most):
    """All of the text in one partition; the row at its end that is not full counts."""
    monkeypatch.setattr("shardtools.partitions.MIN_PARTITION_BYTES", 1 << 30)
    sources = [corpora / "text" / "gsm8k.jsonl", corpora / "text" / "mixed.jsonl"]
    pack(sources, tmp_path / "out", tokenizer=corpora / "tokenizers" / name, seq_len=str(seq_len))
    rows = rows_of(tmp_path / "out")
    assert {row.key.partition("/")[0] for row in rows} == {"000000"}
    padding = sum(row.num_padding for row in rows)
    print(f"{padding / (len(rows) * seq_len):.4%} of {len(rows)} rows")
    assert padding < most * len(rows) * seq_len


@pytest.mark.slow
def test_compressed_text_gives_the_same_documents(corpora, tmp_path):
    """The same bytes under another name: keys differ by nothing, since the suffix is no part of them."""
    found = []
    for name in ("mixed.jsonl", "mixed.jsonl.zst"):
        pack(corpora / "text" / name, tmp_path / name, tokenizer=corpora / "tokenizers" / "gpt2", seq_len="2048", doc_ids="")
        found.append(documents_of(rows_of(tmp_path / name)))
    assert len(found[0]) == 5950
    assert found[0] == found[1]

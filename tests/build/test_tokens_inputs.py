"""Stops inputs of other shapes than one flat JSONL file from being read as other documents, or fewer, when they are tokenized."""

import gzip
import json
import random
from pathlib import Path

import pytest
import zstandard
from token_oracle import (
    EOS,
    THINK,
    as_lines,
    counts_of,
    documents_of,
    id_of,
    pack,
    parsed_ids,
    plain_ids,
    rows_of,
    small_tokenizer,
    text_of,
)

from shardtools.errors import BadSampleError, UsageError
from shardtools.transforms import _tokenize_gigatoken

TEXTS = ["the cat", "Häuser 画像 \u2028 a\u0085b\r\nc", "x" * 500, " ", "\n", "{}", "\x00\x7f\ufeff", "e\u0301 👩\u200d👧 \u202eabc"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    return small_tokenizer(tmp_path_factory.mktemp("tokenizer") / "small")


def stored_texts(folder: Path, tokenizer: Path) -> dict[str, str]:
    """Text by document, decoded by the library, with the EOS taken off."""
    eos = id_of(tokenizer, EOS)
    found = {}
    for key, (tokens, total) in documents_of(rows_of(folder)).items():
        assert len(tokens) == total
        assert tokens[-1] == eos
        found[key] = text_of(tokenizer, tokens[:-1])
    return found


# Where the text is.


@pytest.mark.parametrize("packing", ["none", "concat", "bfd"])
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson"])
def test_plain_and_compressed_lines_give_their_texts(tokenizer, tmp_path, suffix, packing):
    data = as_lines({"text": text} for text in TEXTS)
    # Two members or frames: readers that stop at the first lose half.
    half = data.index(b"\n", len(data) // 2) + 1
    made = {".gz": lambda part: gzip.compress(part, mtime=0), ".zst": zstandard.compress}.get(Path(suffix).suffix, bytes)
    (tmp_path / f"docs{suffix}").write_bytes(made(data[:half]) + made(data[half:]))
    seq_len = {} if packing == "none" else {"seq_len": "16"}
    pack(tmp_path / f"docs{suffix}", tmp_path / "out", tokenizer=tokenizer, packing=packing, doc_ids="", **seq_len)
    found = stored_texts(tmp_path / "out", tokenizer)
    assert [found[key] for key in sorted(found)] == TEXTS
    offsets = [len(as_lines({"text": text} for text in TEXTS[:i])) for i in range(len(TEXTS))]
    assert sorted(found) == [f"docs/{offset:012d}" for offset in offsets]


def test_a_dotted_key_leads_into_objects(tokenizer, tmp_path):
    records = [
        {"a": {"b": {"c": "deep"}}},
        {"a": {"b": {"c": "other"}, "c": "decoy"}, "a.b.c": "decoy"},
        {"a": {"b": {}}},
        {"a": {"b": [{"c": "in a list"}]}},
        {"a": "text"},
        {"a": {"b": {"c": None}}},
        {"a.b.c": "flat"},
    ]
    (tmp_path / "docs.jsonl").write_bytes(as_lines(records))
    pack(tmp_path / "docs.jsonl", tmp_path / "out", tokenizer=tokenizer, text_key="a.b.c", doc_ids="", max_bad="5")
    assert sorted(stored_texts(tmp_path / "out", tokenizer).values()) == ["deep", "other"]
    assert counts_of(tmp_path / "out")["rejects"] == {"no-text": 5}


def test_other_fields_may_be_anything(tokenizer, tmp_path):
    """They change type, come and go, hold numbers no format could store: they are not packed."""
    others = [1, "one", None, [1], {"a": 2**70}, 1.5, True]
    records = [{"body": f"text {i}", "other": other, f"only{i}": 1} for i, other in enumerate(others)]
    (tmp_path / "docs.jsonl").write_bytes(as_lines(records))
    pack(tmp_path / "docs.jsonl", tmp_path / "out", tokenizer=tokenizer, text_key="body", doc_ids="", seq_len="8")
    assert sorted(stored_texts(tmp_path / "out", tokenizer).values()) == [f"text {i}" for i in range(7)]


def test_keys_of_records_are_the_documents_ids(tokenizer, tmp_path):
    (tmp_path / "docs.jsonl").write_bytes(as_lines({"id": f"d.{i}@1", "text": text} for i, text in enumerate(TEXTS)))
    options = {"key": "id"}
    pack(tmp_path / "docs.jsonl", tmp_path / "out", tokenizer=tokenizer, doc_ids="", seq_len="16", source_options=options)
    # What a key may not hold is escaped, so that KEY@OFFSET:TOTAL can be taken apart.
    assert stored_texts(tmp_path / "out", tokenizer) == {f"d=2E{i}=401": text for i, text in enumerate(TEXTS)}


def test_a_folder_of_text_files(tokenizer, tmp_path, tree):
    source = tree({f"{'ab'[i % 2]}/{i:02d}.txt": text.encode() for i, text in enumerate(TEXTS)})
    pack(source, tmp_path / "out", tokenizer=tokenizer, doc_ids="", seq_len="16")
    assert stored_texts(tmp_path / "out", tokenizer) == {f"{'ab'[i % 2]}/{i:02d}": text for i, text in enumerate(TEXTS)}


def test_one_kind_of_file_is_chosen_of_several(tokenizer, tmp_path, tree):
    files = {f"{i:02d}.{kind}": f"{kind} {i}".encode() for i in range(6) for kind in ("txt", "md", "json")}
    source = tree(files)
    with pytest.raises(UsageError, match="--text-key"):
        pack(source, tmp_path / "out", tokenizer=tokenizer, doc_ids="")
    pack(source, tmp_path / "out", tokenizer=tokenizer, doc_ids="", text_key="md")
    assert stored_texts(tmp_path / "out", tokenizer) == {f"{i:02d}": f"md {i}" for i in range(6)}


def test_a_file_that_is_no_text_is_set_aside(tokenizer, tmp_path, tree):
    source = tree({"a.txt": b"one", "b.txt": b"\xff\xfe", "c.txt": b"", "d.txt": "zwei ä".encode()})
    pack(source, tmp_path / "out", tokenizer=tokenizer, doc_ids="", max_bad="1")
    assert stored_texts(tmp_path / "out", tokenizer) == {"a": "one", "d": "zwei ä"}
    ledger = counts_of(tmp_path / "out")
    assert ledger["rejects"] == {"not-utf8": 1}
    assert (ledger["read"], ledger["written"], ledger["filtered"]) == (4, 2, 1)
    (reject,) = [json.loads(line) for line in (tmp_path / "out" / ".shardtools" / "rejects").read_bytes().splitlines()]
    assert "b.txt" in reject["where"]


# Bad input.


def test_the_first_bad_document_stops_the_run_with_its_place(tokenizer, tmp_path, one_sentence):
    (tmp_path / "docs.jsonl").write_bytes(as_lines([{"text": "one"}, {"text": None}, {"text": 5}]))
    with pytest.raises(BadSampleError) as caught:
        pack(tmp_path / "docs.jsonl", tmp_path / "out", tokenizer=tokenizer)
    text = one_sentence(caught.value)
    assert "docs.jsonl, line 2 (byte 16)" in text and "expected text, got none" in text and "--max-bad" in text
    assert not (tmp_path / "out" / "shardtools.manifest").exists()


def test_too_many_bad_documents_end_the_run(tokenizer, tmp_path):
    (tmp_path / "docs.jsonl").write_bytes(as_lines([{"text": "one"}, *({"text": None} for _ in range(4)), {"text": "two"}]))
    with pytest.raises(BadSampleError, match="more than the 3"):
        pack(tmp_path / "docs.jsonl", tmp_path / "out", tokenizer=tokenizer, max_bad="3")
    pack(tmp_path / "docs.jsonl", tmp_path / "out", tokenizer=tokenizer, max_bad="4", doc_ids="")
    assert sorted(stored_texts(tmp_path / "out", tokenizer).values()) == ["one", "two"]


def test_a_run_that_would_store_no_token_is_an_error(tokenizer, tmp_path, one_sentence):
    """A dataset of nothing is what a wrong option gives."""
    (tmp_path / "docs.jsonl").write_bytes(as_lines([{"text": ""}, {"text": ""}]))
    with pytest.raises(Exception, match="expected") as caught:
        pack(tmp_path / "docs.jsonl", tmp_path / "out", tokenizer=tokenizer, seq_len="8")
    one_sentence(caught.value)
    assert not (tmp_path / "out" / "shardtools.manifest").exists()


# Text that spells special tokens.


@pytest.mark.parametrize("mode", ["split", "parse", "reject"])
def test_text_that_spells_special_tokens(tokenizer, tmp_path, mode):
    texts = ["plain", f"a{EOS}b", f"{THINK}c", f"d{EOS}", EOS, "<|end", f"{THINK}{THINK}"]
    (tmp_path / "docs.jsonl").write_bytes(as_lines({"text": text} for text in texts))
    pack(tmp_path / "docs.jsonl", tmp_path / "out", tokenizer=tokenizer, special_in_text=mode, doc_ids="", seq_len="8", max_bad="5")
    stored = documents_of(rows_of(tmp_path / "out"))
    eos = id_of(tokenizer, EOS)
    encode = parsed_ids if mode == "parse" else plain_ids
    expected = [encode(tokenizer, text) for text in (texts if mode != "reject" else ["plain", "<|end"])]
    assert [stored[key][0] for key in sorted(stored)] == [ids if ids[-1] == eos else [*ids, eos] for ids in expected]
    ledger = counts_of(tmp_path / "out")
    tokenize = ledger["transforms"]["tokenize"]
    assert (tokenize[f"special:{EOS}"], tokenize[f"special:{THINK}"]) == (3, 3)
    assert ledger["rejects"] == ({"special-in-text": 5} if mode == "reject" else {})
    assert tokenize.get("eos-present", 0) == (2 if mode == "parse" else 0)


# Sizes.


@pytest.mark.parametrize("seq_len", [2, 3, 7, 64, 8192])
@pytest.mark.parametrize("packing", ["concat", "bfd"])
@pytest.mark.parametrize("format_", ["mds", "wds"])
def test_rows_of_any_length(tokenizer, tmp_path, seq_len, packing, format_):
    numbers = random.Random(seq_len)
    texts = ["".join(numbers.choices("abc the\n", k=numbers.randint(1, 90))) for _ in range(60)]
    (tmp_path / "docs.jsonl").write_bytes(as_lines({"text": text} for text in texts))
    pack(tmp_path / "docs.jsonl", tmp_path / "out", format_, tokenizer=tokenizer, seq_len=str(seq_len), packing=packing, doc_ids="")
    rows = rows_of(tmp_path / "out")
    assert {len(row.tokens) for row in rows} == {seq_len}
    assert all(row.tokens[sum(row.seq_lens) :] == [0] * row.num_padding for row in rows)
    found = stored_texts(tmp_path / "out", tokenizer)
    assert [found[key] for key in sorted(found)] == texts


@pytest.mark.parametrize(
    ("dtype", "stored"), [("auto", "uint16"), ("uint16", "uint16"), ("uint32", "uint32"), ("int32", "int32")], ids=lambda word: word
)
@pytest.mark.parametrize("format_", ["mds", "wds"])
def test_the_type_is_in_the_data(tokenizer, tmp_path, dtype, stored, format_):
    (tmp_path / "docs.jsonl").write_bytes(as_lines({"text": text} for text in TEXTS))
    pack(tmp_path / "docs.jsonl", tmp_path / "out", format_, tokenizer=tokenizer, dtype=dtype, seq_len="16", doc_ids="")
    assert {row.dtype for row in rows_of(tmp_path / "out")} == {stored}
    assert sorted(stored_texts(tmp_path / "out", tokenizer).values()) == sorted(TEXTS)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["hf", "gigatoken"])
def test_a_document_of_ten_megabytes_is_whole(tokenizer, tmp_path, backend):
    if backend == "gigatoken":
        pytest.importorskip("gigatoken", reason="gigatoken is not installed: the extra `fast` has it")
    numbers = random.Random(1)
    words = ["the", "cat", "sat", "Häuser", "画像", "x + 1", "12345", "on\n", "\n\n"]
    large = " ".join(numbers.choices(words, k=2_000_000))
    assert len(large.encode()) > 10_000_000
    (tmp_path / "docs.jsonl").write_bytes(as_lines([{"text": "before"}, {"text": large}, {"text": "after"}]))
    pack(tmp_path / "docs.jsonl", tmp_path / "out", tokenizer=tokenizer, seq_len="2048", doc_ids="", backend=backend)
    stored = documents_of(rows_of(tmp_path / "out"))
    found = [stored[key][0] for key in sorted(stored)]
    assert found[1] == [*plain_ids(tokenizer, large), id_of(tokenizer, EOS)]
    assert [text_of(tokenizer, ids[:-1]) for ids in (found[0], found[2])] == ["before", "after"]


def test_shards_are_no_larger_than_asked_for(tokenizer, tmp_path):
    (tmp_path / "docs.jsonl").write_bytes(as_lines({"text": f"{i} {'the cat ' * (i % 50)}"} for i in range(400)))
    for format_, suffix in (("mds", "*.mds"), ("wds", "*.tar")):
        pack(tmp_path / "docs.jsonl", tmp_path / format_, format_, tokenizer=tokenizer, seq_len="64", shard_size="20KiB")
        sizes = [path.stat().st_size for path in (tmp_path / format_).glob(suffix)]
        assert len(sizes) > 2
        assert max(sizes) <= 20 << 10
    pack(tmp_path / "docs.jsonl", tmp_path / "ten", tokenizer=tokenizer, seq_len="64", shard_samples=10)
    counts = [entry["samples"] for entry in json.loads((tmp_path / "ten" / "index.json").read_bytes())["shards"]]
    assert set(counts[:-1]) == {10}


# Backends.


def test_without_gigatoken_the_library_encodes_and_says_so(tokenizer, tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise _tokenize_gigatoken.RefusedError("gigatoken is not installed (pip install 'shardtools[fast]')")

    monkeypatch.setattr("shardtools.transforms.tokenize.load_gigatoken", refuse)
    (tmp_path / "docs.jsonl").write_bytes(as_lines({"text": text} for text in TEXTS))
    result = pack(tmp_path / "docs.jsonl", tmp_path / "out", tokenizer=tokenizer, seq_len="16", doc_ids="")
    assert "backend: hf, since gigatoken is not installed (pip install 'shardtools[fast]')" in result.survey.notes
    assert result.manifest.recipe["transforms"][0]["backend"] == "hf"
    assert sorted(stored_texts(tmp_path / "out", tokenizer).values()) == sorted(TEXTS)


def test_both_backends_store_the_same_shards(tokenizer, tmp_path, digests):
    pytest.importorskip("gigatoken", reason="gigatoken is not installed: the extra `fast` has it")
    texts = [*TEXTS, f"a{EOS}b", THINK, "\n\n\n  x"] * 9
    (tmp_path / "docs.jsonl").write_bytes(as_lines({"text": text} for text in texts))
    for backend in ("hf", "gigatoken"):
        pack(tmp_path / "docs.jsonl", tmp_path / backend, tokenizer=tokenizer, seq_len="16", backend=backend)
    assert counts_of(tmp_path / "gigatoken")["transforms"]["tokenize"]["gigatoken-checked"] >= 1
    assert digests(tmp_path / "hf")["shard.00000.mds"] == digests(tmp_path / "gigatoken")["shard.00000.mds"]

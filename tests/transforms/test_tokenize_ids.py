"""Stops ids that differ from those of Hugging Face tokenizers on any text, by either backend, in either reading of special tokens."""

import json
import random
from pathlib import Path

import pytest
import tokenizer_files as files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

BACKENDS = ("hf", "gigatoken")
LITERALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "<|fim_prefix|>",
    "<|bos|>",
    "<think",
    "\n\n\n",
)
ODD = (
    "",
    " ",
    "\x00\x01\x7f\x85\u2028\ufeff",
    "cafe\u0301 \u0323\u0307q \u212a",
    *(f"a{late}a 1{late}1 !{late}! {late}{late}\n{late}\u0301 {late}" for late in "\u1aeb\u1df6\U0001e4ec"),
    "\u05d0\u05b0\u05d1 \u0627\u0644\u0639\u064e",
    "👩\u200d👩\u200d👧 🏽\ufe0f",
    "a\r\nb\n\n c\t\t d  \n",
    "<|endoftext|><|endoftext|> <think>x</think>",
    "<|endof<|endoftext|>text|>",
    "<<think>",
    "\U0009d199\U000945cb\ud1d4",
    "word " * 1000,
)


@pytest.fixture(scope="module", params=["small", "gpt2", "qwen3"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "small":
        return files.small_tokenizer(tmp_path_factory.mktemp("small"))
    corpora: Path = request.getfixturevalue("corpora")
    return corpora / "tokenizers" / request.param / "tokenizer.json"


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "gigatoken":
        pytest.importorskip("gigatoken", reason="gigatoken is not installed: the extra `fast` has it")
    return str(request.param)


@pytest.fixture(scope="module", params=["split", "parse"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def transform(tokenizer: Path, backend: str, mode: str) -> files.Tokenize:
    return files.settled(tokenizer, backend=backend, special_in_text=mode)


def expected_ids(path: Path, mode: str, texts: list[str]) -> list[list[int]]:
    ids = files.plain_ids(path, texts) if mode == "split" else files.parsed_ids(path, texts)
    return [found for found in ids if found]


def test_odd_texts(tokenizer: Path, transform: files.Tokenize, mode: str) -> None:
    texts = [*ODD, *(f"a{literal}b {literal}" for literal in LITERALS), "x" * 1_000_000]
    outcome = files.run(transform, texts)
    assert outcome.ids == expected_ids(tokenizer, mode, texts)
    assert not outcome.rejects


def pieces_of_text() -> st.SearchStrategy[str]:
    letters = st.characters(exclude_categories=["Cs"])
    marks = st.text(
        st.sampled_from("aàe\u0301\u0300\u0327\u0915\u093c\u094d\u200d\u05b0\u064b👩🏽\ufe0f\u1100\u1161\u11a8 \n\r\t'sS<|>"), max_size=12
    )
    return st.lists(st.one_of(st.text(letters, max_size=12), marks, st.sampled_from(LITERALS)), max_size=8).map("".join)


@given(st.lists(pieces_of_text(), min_size=1, max_size=12))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_text(tokenizer: Path, transform: files.Tokenize, mode: str, texts: list[str]) -> None:
    assert files.run(transform, texts).ids == expected_ids(tokenizer, mode, texts)


def corpus(corpora: Path, name: str) -> list[str]:
    with open(corpora / "text" / name, encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file]


def test_real_documents(corpora: Path, tokenizer: Path, transform: files.Tokenize, mode: str) -> None:
    rng = random.Random(5)
    texts = rng.sample(corpus(corpora, "mixed.jsonl"), 120) + rng.sample(corpus(corpora, "gsm8k.jsonl"), 120)
    outcome = files.run(transform, texts)
    assert outcome.ids == expected_ids(tokenizer, mode, texts)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixed.jsonl", "gsm8k.jsonl"])
def test_every_real_document(corpora: Path, tokenizer: Path, transform: files.Tokenize, mode: str, name: str) -> None:
    texts = corpus(corpora, name)
    outcome = files.run(transform, texts)
    assert outcome.ids == expected_ids(tokenizer, mode, texts)


def test_batch_cuts_do_not_matter(tmp_path: Path, backend: str) -> None:
    path = files.small_tokenizer(tmp_path)
    rng = random.Random(1)
    texts: list[object] = ["".join(rng.choices("ab \n<think>é", k=rng.randrange(400))) for _ in range(300)]
    texts[7], texts[40], texts[299] = None, "\ud800", b"\xff"
    transform = files.settled(path, backend=backend, eos="auto")
    one, whole = (files.run(transform, texts, size) for size in (1, 300))
    assert (one.keys, one.ids, one.rejects, one.counts) == (whole.keys, whole.ids, whole.rejects, whole.counts)
    assert len(one.keys) + len(one.rejects) + one.counts["documents-empty"] == 300


def test_many_small_and_some_large_documents_keep_their_places(tmp_path: Path, backend: str) -> None:
    path = files.small_tokenizer(tmp_path)
    texts = [f"number {i} " * (70_000 if i in (20, 30, 31) else 1) for i in range(60)]
    values: list[object] = [*texts]
    values[19] = values[32] = values[59] = None
    outcome = files.run(files.settled(path, backend=backend), values)
    kept = [i for i in range(60) if i not in (19, 32, 59)]
    assert outcome.keys == [b"d/%06d" % i for i in kept]
    assert outcome.ids == files.plain_ids(path, [texts[i] for i in kept])
    assert [reject.where for reject in outcome.rejects] == ["value 19", "value 32", "value 59"]
    assert outcome.counts["documents"] == 57
    assert outcome.counts["tokens-in"] == sum(map(len, outcome.ids))
    assert outcome.counts["bytes-in"] == sum(len(texts[i]) for i in kept)

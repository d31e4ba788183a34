"""Stops a faster backend that gives other ids from going unnoticed, and a choice of backend that nobody can retrace."""

import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tokenizer_files as files
import xxhash
from tokenizers import Tokenizer, models, pre_tokenizers

from shardtools.errors import ShardtoolsError, UsageError
from shardtools.transforms import _tokenize_gigatoken
from shardtools.transforms._tokenize_documents import CHECKED_ONE_IN, Document, DocumentPolicy, Documents
from shardtools.transforms.tokenize import settle_tokenizer

needs_gigatoken = pytest.mark.skipif(not files.has_gigatoken(), reason="gigatoken is not installed: the extra `fast` has it")


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    return files.small_tokenizer(tmp_path)


def documents(tokenizer: Path, quick: Any, mode: str = "split", seed: int = 0) -> Documents:
    policy = DocumentPolicy(mode, 1 << 20, "cut", seed)
    return Documents(policy, files.settled(tokenizer).vocabulary.encoder(mode == "parse"), quick, "uint16", Counter())


class WrongAt:
    """An encoder that is right, but for some texts."""

    def __init__(self, reference: Any, wrong: str) -> None:
        self.reference, self.wrong, self.seen = reference, wrong, list[str]()

    def encode(self, text: str) -> Any:
        self.seen.append(text)
        ids = self.reference.encode(text).copy()
        if text == self.wrong:
            ids[3] += 1
        return ids


def sampled_key(seed: int, is_sampled: bool) -> bytes:
    return next(b"k%d" % i for i in range(10_000) if (xxhash.xxh3_64_intdigest(b"k%d" % i, seed) % CHECKED_ONE_IN == 0) is is_sampled)


def test_a_mismatch_names_document_and_position(tokenizer: Path) -> None:
    reference = files.settled(tokenizer).vocabulary.encoder(False)
    text = "the cat sat on the mat"
    with pytest.raises(ShardtoolsError, match=r"at position 3 of document 'first' it gives \[\d+, \d+, \d+\] for \[.*use --backend hf"):
        documents(tokenizer, WrongAt(reference, text)).encode([Document(b"first", text, len(text))])


def test_missing_ids_are_a_mismatch(tokenizer: Path) -> None:
    reference = files.settled(tokenizer).vocabulary.encoder(False)
    quick = SimpleNamespace(encode=lambda text: reference.encode(text)[:-1])
    expected = len(reference.encode("the cat")) - 1
    with pytest.raises(ShardtoolsError, match=f"at position {expected} of document 'a'"):
        documents(tokenizer, quick).encode([Document(b"a", "the cat", 7)])


@pytest.mark.parametrize("seed", [0, 7_919])
def test_the_sample_is_the_first_document_and_those_the_seed_chooses(tokenizer: Path, seed: int) -> None:
    reference = files.settled(tokenizer).vocabulary.encoder(False)
    text = "the cat sat on the mat"
    quick = WrongAt(reference, text)
    found = documents(tokenizer, quick, seed=seed)
    found.encode([Document(b"first", "right", 5), Document(sampled_key(seed, False), text, 22)])
    assert found.counts["gigatoken-checked"] == 1
    with pytest.raises(ShardtoolsError, match="position 3"):
        found.encode([Document(sampled_key(seed, True), text, 22)])


@pytest.mark.parametrize("mode", ["split", "parse"])
def test_texts_that_spell_tokens_go_to_the_reference(tokenizer: Path, mode: str) -> None:
    reference = files.settled(tokenizer).vocabulary.encoder(False)
    quick = WrongAt(reference, "")
    documents(tokenizer, quick, mode).encode([Document(b"a", "x <think> y", 11), Document(b"b", "plain", 5)])
    assert quick.seen == ["plain"]


def test_without_gigatoken_auto_takes_hf_and_says_so(tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gigatoken", None)
    _tokenize_gigatoken.load_gigatoken.cache_clear()
    transform, notes = settle_tokenizer({"tokenizer": str(tokenizer)})
    assert (transform.gigatoken, transform.recipe()["backend"]) == (None, "hf")
    assert any(note.startswith("backend: hf, since gigatoken is not installed") for note in notes)
    with pytest.raises(UsageError, match="expected gigatoken to be usable, but gigatoken is not installed"):
        settle_tokenizer({"tokenizer": str(tokenizer), "backend": "gigatoken"})


@needs_gigatoken
def test_auto_takes_gigatoken_and_settles_it(tokenizer: Path) -> None:
    transform, notes = settle_tokenizer({"tokenizer": str(tokenizer)})
    assert transform.recipe()["backend"] == "gigatoken"
    assert transform.recipe()["gigatoken"] == transform.gigatoken
    assert any(note.startswith("backend: gigatoken") for note in notes)
    outcome = files.run(transform, [f"the cat {i}" for i in range(300)])
    assert 1 <= outcome.counts["gigatoken-checked"] <= 30


@needs_gigatoken
def test_a_tokenizer_that_gigatoken_refuses(tmp_path: Path) -> None:
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.save(str(tmp_path / "tokenizer.json"))
    transform, notes = settle_tokenizer({"tokenizer": str(tmp_path)})
    assert transform.gigatoken is None
    assert any(note.startswith("backend: hf, since gigatoken does not take this tokenizer") for note in notes)


@needs_gigatoken
def test_another_version_than_the_plans_is_refused(tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transform = files.settled(tokenizer, backend="gigatoken")
    monkeypatch.setattr(_tokenize_gigatoken, "version", lambda: "99.0")
    with pytest.raises(ShardtoolsError, match=r"expected gigatoken .*, which the plan was made with, got 99.0 here"):
        files.run(transform, ["a"])


@needs_gigatoken
def test_panics_and_odd_ids_leave_a_text_to_the_reference(tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = _tokenize_gigatoken.Gigatoken(files.settled(tokenizer).vocabulary.encoder(False))

    class PanicException(BaseException):
        pass

    def panics(_: str) -> Any:
        raise PanicException

    monkeypatch.setattr(quick, "_encode", panics)
    assert quick.encode("a") is None
    monkeypatch.setattr(quick, "_encode", lambda _: np.array([10**6], np.uint32))
    assert quick.encode("a") is None


def test_characters_that_libraries_may_see_differently() -> None:
    for text in ("a\u1df6", "\U0001e4ec", "\U000945cb", "x\u1aeb"):
        assert _tokenize_gigatoken._is_unsettled(text), ascii(text)
    for text in ("café", "e\u0301", "漢字", "👩🏽", "\u0915\u093c"):
        assert not _tokenize_gigatoken._is_unsettled(text), ascii(text)

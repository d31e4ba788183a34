"""Stops large documents from taking all memory, from other ids where they are cut, and from being lost without a word."""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tokenizer_files as files

from shardtools.transforms._tokenize_cuts import NoPlaceToCutError, pieces


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return files.small_tokenizer(tmp_path_factory.mktemp("small"))


def prose(num_words: int, seed: int, breaks: str) -> str:
    rng = random.Random(seed)
    words = [rng.choice(["the", "cat's", "sat", "café", "漢字", "12345", "x!=y", "-", "..."]) for _ in range(num_words)]
    return "".join(word + (rng.choice(breaks) * rng.randint(1, 3) if rng.random() < 0.3 else " ") for word in words)


@pytest.mark.parametrize("backend", ["hf", "gigatoken"])
@pytest.mark.parametrize("breaks", [" ", "\n", " \n\t", "\r\n"])
def test_cut_documents_have_the_ids_of_the_whole(tokenizer: Path, backend: str, breaks: str) -> None:
    if backend == "gigatoken":
        pytest.importorskip("gigatoken", reason="gigatoken is not installed: the extra `fast` has it")
    texts = [prose(4000, seed, breaks) for seed in range(3)]
    outcome = files.run(files.settled(tokenizer, backend=backend, max_doc_bytes="3000"), ["small", *texts])
    assert outcome.ids == files.plain_ids(tokenizer, ["small", *texts])
    assert outcome.counts["documents-cut"] == 3
    assert outcome.counts["pieces"] >= sum(len(text.encode()) for text in texts) / 3000
    assert outcome.counts["documents"] == 4


def test_cuts_never_split_what_spells_a_token(tokenizer: Path) -> None:
    text = "a <think>b </think> <|endoftext|>\n" * 200
    for mode, expected in (("parse", files.parsed_ids), ("split", files.plain_ids)):
        outcome = files.run(files.settled(tokenizer, max_doc_bytes="300", special_in_text=mode), [text])
        assert outcome.ids == expected(tokenizer, [text])


def test_pieces_are_the_text_and_no_larger_than_asked(tokenizer: Path) -> None:
    encode = files.settled(tokenizer).vocabulary.encoder(False).encode
    for text in (prose(3000, 1, " \n"), "é a" * 3000, "line\n" * 3000, "ab cd\n\n\n" * 1000):
        found = list(pieces(text, 1000, encode))
        assert "".join(found) == text
        assert max(len(piece.encode()) for piece in found) <= 1000
        assert min(map(len, found)) > 0


def test_a_place_that_changes_ids_is_not_taken(tokenizer: Path) -> None:
    encode = files.settled(tokenizer).vocabulary.encoder(False).encode
    with pytest.raises(NoPlaceToCutError):
        list(pieces("the" * 4000, 1000, encode))
    # An encoder whose ids depend on all of the text has no place at all; one that counts lines has one at each line.
    with pytest.raises(NoPlaceToCutError):
        list(pieces("a b\n" * 1000, 1000, lambda text: np.array([len(text)], np.uint32)))
    by_lines = pieces("a b\n" * 1000, 1001, lambda text: np.array([len(line) for line in text.splitlines()], np.uint32))
    assert {piece[-1] for piece in by_lines} == {"\n"}


def test_a_word_that_reaches_over_the_limit_is_kept_whole(tokenizer: Path) -> None:
    texts = ["some words " * 20 + "x" * 1100 + " and more words" * 50, "some words " * 20 + "x" * 1100]
    outcome = files.run(files.settled(tokenizer, max_doc_bytes="1000"), texts)
    assert outcome.ids == files.plain_ids(tokenizer, texts)
    assert not outcome.rejects


def test_one_endless_word_is_refused_by_name(tokenizer: Path) -> None:
    outcome = files.run(files.settled(tokenizer, max_doc_bytes="1000"), ["fine", "x" * 5000, "fine"])
    assert outcome.keys == [b"d/000000", b"d/000002"]
    assert [(reject.reason, reject.where) for reject in outcome.rejects] == [("no-place-to-cut", "value 1")]
    assert "--max-doc-bytes" in outcome.rejects[0].sentence


def test_too_long_is_refused_where_asked(tokenizer: Path) -> None:
    outcome = files.run(files.settled(tokenizer, max_doc_bytes="1000", oversized="reject"), ["a" * 1000, "é" * 501])
    assert outcome.keys == [b"d/000000"]
    assert [reject.reason for reject in outcome.rejects] == ["document-too-long"]
    assert "expected at most 1,000 bytes of text, got 1,002" in outcome.rejects[0].sentence


_CHILD = """
import random, re, sys
from collections import Counter
from shardtools.sample import Batch
from shardtools.transforms import PartitionWork
from shardtools.transforms.tokenize import settle_tokenizer
transform = settle_tokenizer({"tokenizer": sys.argv[1], "backend": sys.argv[2]})[0]
rng = random.Random(1)
words = [f"{rng.randrange(10**9):x}" for _ in range(100_000)]
def peak_kib():
    # Not ru_maxrss, which begins with that of the process it was started from.
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
before = peak_kib()
def batches():
    for i in range(2):
        text = " ".join(rng.choices(words, k=1_900_000))[: 16 << 20]
        yield Batch([b"k%d" % i], {"text": [text]}, str)
work = PartitionWork(0, lambda reject: sys.exit(str(reject)), Counter())
tokens = sum(len(batch.columns["tokens"][0]) for batch in transform.apply(batches(), work))
print(work.counts["documents-cut"], (peak_kib() - before) // 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["hf", "gigatoken"])
def test_memory_does_not_follow_the_document(tokenizer: Path, backend: str) -> None:
    if backend == "gigatoken":
        pytest.importorskip("gigatoken", reason="gigatoken is not installed: the extra `fast` has it")
    command = [sys.executable, "-c", _CHILD, str(tokenizer), backend]
    num_cut, grown_mb = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    assert int(num_cut) == 2
    assert int(grown_mb) < 600, grown_mb

"""Stops a bad document that costs its neighbours, forged control tokens, and tokenizer files that change ids on the sly."""

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizer_files as files
from tokenizer_files import EOS, THINK
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from shardtools.errors import ShardtoolsError, UsageError
from shardtools.sample import Field
from shardtools.transforms import _tokenize_hf
from shardtools.transforms.tokenize import Tokenize, settle_tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    return files.small_tokenizer(tmp_path)


def test_bad_texts_cost_nobody_else(tokenizer: Path) -> None:
    values = ["the cat", None, "x\ud800y", 7, b"caf\xc3\xa9", b"caf\xe9", ["a", "b"], "the dog"]
    outcome = files.run(files.settled(tokenizer), values)
    assert outcome.keys == [b"d/000000", b"d/000004", b"d/000007"]
    assert outcome.ids == files.plain_ids(tokenizer, ["the cat", "café", "the dog"])
    assert [(reject.reason, reject.where) for reject in outcome.rejects] == [
        ("no-text", "value 1"),
        ("lone-surrogate", "value 2"),
        ("not-text", "value 3"),
        ("not-utf8", "value 5"),
        ("not-text", "value 6"),
    ]
    assert outcome.rejects[1].head == b"x\\ud800y"
    assert "at character 1" in outcome.rejects[1].sentence
    assert "at byte 3" in outcome.rejects[3].sentence


@pytest.mark.parametrize(
    "model",
    [
        {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "<unk>"},
        {"type": "Unigram", "vocab": [["a", -1.0], ["b", -1.0]], "unk_id": None},
    ],
    ids=["WordLevel", "Unigram"],
)
@pytest.mark.parametrize("long_words", [{}, {"max_doc_bytes": "4"}], ids=["whole", "cut"])
def test_a_text_the_vocabulary_cannot_spell_costs_nobody_else(tmp_path: Path, model: dict[str, object], long_words: dict[str, str]) -> None:
    path = tmp_path / "tokenizer.json"
    splitter = {"type": "Whitespace"}
    path.write_text(json.dumps({"version": "1.0", "added_tokens": [], "pre_tokenizer": splitter, "model": model}), "utf-8")
    outcome = files.run(files.settled(path, eos="none", **long_words), ["a b", "a c", "b\nz", "b\na"])
    assert outcome.keys == [b"d/000000", b"d/000003"]
    assert outcome.ids == [[0, 1], [1, 0]]
    assert [(reject.reason, reject.where) for reject in outcome.rejects] == [
        ("not-in-vocabulary", "value 1"),
        ("not-in-vocabulary", "value 2"),
    ]
    assert outcome.rejects[0].head == b"a c"


def test_forged_tokens_are_text_and_counted(tokenizer: Path) -> None:
    reference = Tokenizer.from_file(str(tokenizer))
    text = f"a {THINK}b</think> {EOS}{EOS} <think"
    outcome = files.run(files.settled(tokenizer), [text, "plain"])
    assert not {reference.token_to_id(token) for token in (THINK, "</think>", EOS, "<think")} & set(outcome.ids[0])
    assert reference.decode(outcome.ids[0], skip_special_tokens=False) == text
    special = {name: count for name, count in outcome.counts.items() if name.startswith("special:")}
    assert special == {"special:<think>": 1, "special:</think>": 1, "special:<|endoftext|>": 2, "special:<think": 1}


def test_parse_makes_control_tokens_and_counts_them(tokenizer: Path) -> None:
    text = f"a {THINK}b {EOS}"
    outcome = files.run(files.settled(tokenizer, special_in_text="parse"), [text])
    assert outcome.ids == files.parsed_ids(tokenizer, [text])
    assert Tokenizer.from_file(str(tokenizer)).token_to_id(THINK) in outcome.ids[0]
    assert outcome.counts["special:<think>"] == 1


def test_reject_names_the_token(tokenizer: Path) -> None:
    outcome = files.run(files.settled(tokenizer, special_in_text="reject"), ["fine", f"abc {THINK} x", "\n\n\nfine"])
    assert outcome.keys == [b"d/000000", b"d/000002"]
    assert [reject.reason for reject in outcome.rejects] == ["special-in-text"]
    assert "'<think>' at character 4" in outcome.rejects[0].sentence
    assert outcome.counts["special:<think>"] == 1


def test_tokens_found_in_normalised_text_are_found_there(tokenizer: Path) -> None:
    reference = Tokenizer.from_file(str(tokenizer))
    reference.add_tokens([AddedToken("<Kelvin>", normalized=True, special=False)])
    reference.save(str(tokenizer))
    forged = "<\u212aelvin>"  # the Kelvin sign, which NFC makes a K
    assert reference.token_to_id("<Kelvin>") in reference.encode(forged).ids
    transform, notes = settle_tokenizer({"tokenizer": str(tokenizer), "special_in_text": "reject"})
    assert [reject.reason for reject in files.run(transform, [forged]).rejects] == ["special-in-text"]
    assert any("backend: hf" in note for note in notes)
    assert reference.token_to_id("<Kelvin>") not in files.run(files.settled(tokenizer), [forged]).ids[0]


def test_saved_truncation_padding_and_dropout_are_off(tokenizer: Path, tmp_path: Path) -> None:
    reference = Tokenizer.from_file(str(tokenizer))
    reference.enable_truncation(12)
    reference.enable_padding(length=16)
    reference.save(str(tmp_path / "saved.json"))
    saved = json.loads((tmp_path / "saved.json").read_text("utf-8"))
    saved["model"]["dropout"] = 0.9
    files.changed(tmp_path / "saved.json", tmp_path / "saved.json", saved)
    text = "the cat sat on the mat and the dog ate the log. " * 3
    for mode in ("split", "parse"):
        assert files.run(files.settled(tmp_path / "saved.json", special_in_text=mode), [text, "a"]).ids == files.plain_ids(
            tokenizer, [text, "a"]
        )


def words_tokenizer(path: Path, num_words: int, last_id: int | None = None) -> Path:
    """One id a word; ``last_id`` leaves a hole before the last."""
    vocabulary = {f"w{i}": i for i in range(num_words)}
    if last_id is not None:
        vocabulary[f"w{num_words - 1}"] = last_id
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(path))
    return path


@pytest.mark.parametrize(
    ("num_words", "last_id", "dtype"),
    [(65_535, None, "uint16"), (65_536, None, "uint16"), (65_537, None, "uint32"), (10, 65_535, "uint16"), (10, 65_536, "uint32")],
)
def test_dtype_of_the_largest_id(tmp_path: Path, num_words: int, last_id: int | None, dtype: str) -> None:
    path = words_tokenizer(tmp_path / "words.json", num_words, last_id)
    largest = num_words - 1 if last_id is None else last_id
    transform = files.settled(path)
    outcome = files.run(transform, [f"w{num_words - 1} w1"])
    assert outcome.ids == [[largest, 1]]
    files.assert_dtype(outcome, dtype)
    assert transform.recipe()["max_id"] == largest
    assert transform.fields((Field("text", "str"),)) == (Field("tokens", f"ndarray:{dtype}"),)


def test_a_dtype_that_is_too_small(tmp_path: Path) -> None:
    path = words_tokenizer(tmp_path / "words.json", 65_537)
    with pytest.raises(UsageError, match=r"expected --dtype to hold ids up to 65,536, got uint16"):
        files.settled(path, dtype="uint16")
    files.assert_dtype(files.run(files.settled(path, dtype="int32"), ["w65536"]), "int32")


def test_an_id_beyond_the_vocabulary_is_never_narrowed(tokenizer: Path) -> None:
    encoder = _tokenize_hf.load_hf(files.settled(tokenizer).vocabulary.file, False)
    with pytest.raises(ShardtoolsError, match="expected ids up to"):
        encoder.as_ids([1, 65_537])


def test_ids_of_added_tokens_that_the_library_would_move(tokenizer: Path) -> None:
    plain = json.loads(tokenizer.read_text("utf-8"))
    plain["added_tokens"][-1]["id"] += 7
    files.changed(tokenizer, tokenizer, plain)
    with pytest.raises(UsageError, match="expected the added token"):
        files.settled(tokenizer)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"model": 3}', '{"model": {"type": "BPE"}, "added_tokens": [1]}', "\x00"])
def test_files_that_are_no_tokenizer(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(UsageError, match=r"tokenizer\.json"):
        files.settled(tmp_path)


def test_a_path_with_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give --tokenizer its path"):
        files.settled(tmp_path / "gone")


def test_a_file_that_changed_after_the_plan(tokenizer: Path) -> None:
    transform = files.settled(tokenizer)
    files.changed(tokenizer, tokenizer, {"version": "1.0", "truncation": None, "x": 1})
    _tokenize_hf.load_hf.cache_clear()
    with pytest.raises(ShardtoolsError, match="expected the tokenizer the plan was made with"):
        files.run(transform, ["a"])


def test_the_recipe_says_what_determines_the_bytes(tokenizer: Path, tmp_path: Path) -> None:
    transform = files.settled(tokenizer)
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "tok.json").write_bytes(tokenizer.read_bytes())
    assert files.settled(other / "tok.json").recipe() == transform.recipe()
    assert str(tmp_path) not in json.dumps(transform.recipe())
    for words in (
        {"eos": EOS},
        {"special_in_text": "parse"},
        {"dtype": "int32"},
        {"max_doc_bytes": "5MiB"},
        {"oversized": "reject"},
        {"seed": "3"},
    ):
        assert files.settled(tokenizer, **words).recipe() != transform.recipe()


def test_other_columns_are_refused_by_name(tokenizer: Path) -> None:
    transform = files.settled(tokenizer)
    assert transform.fields((Field("text", "bytes"),)) == (Field("tokens", "ndarray:uint16"),)
    for given in ((), (Field("body", "str"),), (Field("text", "str"), Field("url", "str")), (Field("text", "json"),)):
        with pytest.raises(UsageError, match="expected"):
            transform.fields(given)


def test_wrong_words_are_refused(tokenizer: Path) -> None:
    for words in (
        {"special_in_text": "no"},
        {"backend": "fast"},
        {"oversized": "no"},
        {"dtype": "int8"},
        {"max_doc_bytes": "0"},
        {"seed": "-1"},
    ):
        with pytest.raises(UsageError, match="expected"):
            files.settled(tokenizer, **words)
    with pytest.raises(UsageError, match="expected --tokenizer"):
        Tokenize.from_options({})


def test_tokens_are_arrays_of_their_own(tokenizer: Path) -> None:
    outcome = files.run(files.settled(tokenizer), ["the cat", "the dog"])
    assert all(isinstance(array, np.ndarray) and array.base is None for array in outcome.columns["tokens"])

"""Stops documents that lose their BOS or EOS, have it twice, or get another than the tokenizer's configuration says."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizer_files as files
from tokenizer_files import BOS, EOS
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from shardtools.errors import UsageError
from shardtools.transforms.tokenize import settle_tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    return files.small_tokenizer(tmp_path)


def ids_of(path: Path, *tokens: str) -> list[int]:
    reference = Tokenizer.from_file(str(path))
    return [reference.token_to_id(token) for token in tokens]


def tokenized(path: Path, text: str, **words: str) -> tuple[list[int], files.Outcome, list[str]]:
    transform, notes = settle_tokenizer({"tokenizer": str(path), "backend": "hf", **words})
    outcome = files.run(transform, [text])
    return outcome.ids[0], outcome, notes


def configured(path: Path, config: dict[str, Any]) -> None:
    (path.parent / "tokenizer_config.json").write_text(json.dumps(config))


def test_both_when_both_are_asked_for(tokenizer: Path) -> None:
    bos, eos = ids_of(tokenizer, BOS, EOS)
    ids, outcome, notes = tokenized(tokenizer, "the cat", bos=BOS, eos=EOS)
    assert ids == [bos, *files.plain_ids(tokenizer, ["the cat"])[0], eos]
    assert outcome.counts["tokens-in"] == len(ids)
    assert any(BOS in note and "as asked" in note for note in notes)


def test_without_a_config_there_is_no_bos_and_the_usual_eos(tokenizer: Path) -> None:
    ids, _, notes = tokenized(tokenizer, "the cat")
    assert ids == [*files.plain_ids(tokenizer, ["the cat"])[0], *ids_of(tokenizer, EOS)]
    assert any(EOS in note and "the vocabulary has it" in note for note in notes)


@pytest.mark.parametrize(
    ("config", "begins"),
    [
        ({"bos_token": BOS, "add_bos_token": True}, True),
        ({"bos_token": {"content": BOS}, "add_bos_token": True}, True),
        ({"bos_token": BOS, "add_bos_token": False}, False),
        ({"bos_token": BOS}, False),
        ({"bos_token": None}, False),
    ],
)
def test_bos_as_the_config_says(tokenizer: Path, config: dict[str, Any], begins: bool) -> None:
    configured(tokenizer, config)
    ids, _, _ = tokenized(tokenizer, "the cat")
    assert (ids[0] == ids_of(tokenizer, BOS)[0]) is begins
    assert ids[-1] == ids_of(tokenizer, EOS)[0]


def test_bos_that_only_the_post_processor_adds(tokenizer: Path) -> None:
    reference = Tokenizer.from_file(str(tokenizer))
    reference.post_processor = TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, reference.token_to_id(BOS))])
    reference.save(str(tokenizer))
    configured(tokenizer, {"bos_token": BOS})
    ids, _, _ = tokenized(tokenizer, "the cat")
    assert ids[0] == ids_of(tokenizer, BOS)[0]
    assert ids.count(ids[0]) == 1


def test_the_configs_eos_goes_before_the_usual_one(tokenizer: Path) -> None:
    configured(tokenizer, {"eos_token": "</think>", "add_eos_token": False})
    ids, _, _ = tokenized(tokenizer, "the cat")
    assert ids[-1] == ids_of(tokenizer, "</think>")[0]


def test_none_is_none(tokenizer: Path) -> None:
    configured(tokenizer, {"bos_token": BOS, "add_bos_token": True, "eos_token": EOS})
    ids, _, _ = tokenized(tokenizer, "the cat", bos="none", eos="none")
    assert ids == files.plain_ids(tokenizer, ["the cat"])[0]


def test_what_the_text_spells_is_not_doubled(tokenizer: Path) -> None:
    text = f"{BOS}the cat{EOS}"
    ids, outcome, _ = tokenized(tokenizer, text, bos=BOS, eos=EOS, special_in_text="parse")
    assert ids == files.parsed_ids(tokenizer, [text])[0]
    assert (outcome.counts["bos-present"], outcome.counts["eos-present"]) == (1, 1)


def test_what_the_text_spells_is_no_bos_where_it_is_text(tokenizer: Path) -> None:
    bos, eos = ids_of(tokenizer, BOS, EOS)
    ids, outcome, _ = tokenized(tokenizer, f"{BOS}x{EOS}", bos=BOS, eos=EOS)
    assert (ids.count(bos), ids.count(eos)) == (1, 1)
    assert outcome.counts["bos-present"] == 0


def test_an_empty_document_is_no_lonely_eos(tokenizer: Path) -> None:
    outcome = files.run(settle_tokenizer({"tokenizer": str(tokenizer), "bos": BOS})[0], ["", "a", b""])
    assert outcome.keys == [b"d/000001"]
    assert (outcome.counts["documents"], outcome.counts["documents-empty"]) == (1, 2)


def test_an_unknown_token_names_candidates(tokenizer: Path) -> None:
    with pytest.raises(UsageError, match=r"expected --eos auto, none or a token of the vocabulary, got '<eos>'; it has <\|endoftext\|>"):
        tokenized(tokenizer, "x", eos="<eos>")


def test_a_vocabulary_without_a_usual_eos(tmp_path: Path) -> None:
    path = files.small_tokenizer(tmp_path)
    plain = json.loads(path.read_text("utf-8"))
    files.changed(path, path, {"added_tokens": [token for token in plain["added_tokens"] if token["content"] != EOS and token["id"] < 0]})
    ids, _, notes = tokenized(path, "the cat")
    assert ids == files.plain_ids(path, ["the cat"])[0]
    assert any("no EOS" in note for note in notes)

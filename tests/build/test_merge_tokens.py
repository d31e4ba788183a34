"""Stops a merge that joins tokens of two vocabularies, or forgets how the rows of a merged dataset were made."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from token_oracle import as_lines, counts_of, pack, small_tokenizer

from shardtools.build.merge import MergeOptions, merge
from shardtools.build.order import OrderWords, order_of
from shardtools.build.run import build
from shardtools.errors import DuplicateKeyError, ShardtoolsError, UsageError
from shardtools.manifest import Manifest
from shardtools.sources import resolve_inputs
from shardtools.verify import VerifyOptions, verify

SEQ_LEN = "32"


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory) -> dict[str, Path]:
    """``other`` has other ids than ``small``; ``chatty`` has only another template."""
    place = tmp_path_factory.mktemp("tokenizers")
    found = {"small": small_tokenizer(place / "small"), "other": small_tokenizer(place / "other", vocab_size=300)}
    found["chatty"] = small_tokenizer(place / "chatty")
    config = json.loads((place / "chatty" / "tokenizer_config.json").read_text())
    config["chat_template"] = config["chat_template"].replace("'<|bos|>' + message", "'<|bos|> ' + message")
    (place / "chatty" / "tokenizer_config.json").write_text(json.dumps(config))
    return found


@pytest.fixture
def part(tmp_path, tokenizers) -> Callable[..., Path]:
    """``part("a", tokenizer="other", eos="none")``: forty documents, or chats, in rows of tokens, without a key column."""

    def make(name: str, format_: str = "mds", *, key_column: str = "none", tokenizer: str = "small", **words: str) -> Path:
        source = tmp_path / f"{name}.jsonl"
        messages = [{"role": "user", "content": f"{name} asks"}, {"role": "assistant", "content": "the cat sat"}]
        field = {"messages": messages} if "chat" in words else {}
        source.write_bytes(as_lines({"text": f"{name} {i} the cat sat", **field} for i in range(40)))
        words = {"seq_len": SEQ_LEN, "backend": "hf", **words}
        if "chat" in words:
            del words["backend"]
        if format_ == "wds":
            pack(source, tmp_path / name, "wds", tokenizer=tokenizers[tokenizer], **words)
        else:
            pack_mds(source, tmp_path / name, key_column, {"tokenizer": str(tokenizers[tokenizer]), **words})
        return tmp_path / name

    return make


def pack_mds(source: Path, destination: Path, key_column: str, words: dict[str, str]) -> None:
    order = OrderWords(format="mds", format_options={"key_column": key_column}, token_options=words)
    build([str(source)], str(destination), order_of(resolve_inputs([str(source)]), order))


def run(*folders: Path) -> Any:
    *sources, out = folders
    return merge([str(source) for source in sources], str(out), MergeOptions(workers=1))


def manifest_of(folder: Path) -> Manifest:
    return Manifest.parse((folder / "shardtools.manifest").read_bytes())


DIFFERENT: dict[str, tuple[dict[str, str], str]] = {
    "tokenizer": ({"tokenizer": "other"}, r"the tokenizer \(SHA-256 [0-9a-f]{12}, [0-9a-f]{12}\)"),
    "EOS": ({"eos": "none"}, r"--eos \(id 313, none\)"),
    "BOS": ({"bos": "<|bos|>"}, r"--bos \(none, id 314\)"),
    "special tokens": ({"special_in_text": "parse"}, r"--special-in-text \(split, parse\)"),
    "chats": ({"chat": ""}, r"--chat \(no, yes\)"),
    "doc ids": ({"doc_ids": ""}, r"--doc-ids \(no, yes\)"),
    "lengths": ({"seq_len": "64"}, r"--seq-len \(32, 64\)"),
    "dtype": ({"dtype": "int32"}, r"--dtype \(uint16, int32\)"),
    "packing": ({"packing": "concat"}, r"--packing \(bfd, concat\)"),
}


@pytest.mark.parametrize("format_", ["mds", "wds"])
@pytest.mark.parametrize("case", DIFFERENT)
def test_tokens_that_were_made_otherwise_are_refused_with_both_places_and_what_differs(part, tmp_path, one_sentence, case, format_):
    words, says = DIFFERENT[case]
    a, b = part("a", format_), part("b", format_, **words)
    with pytest.raises(ShardtoolsError) as caught:
        run(a, b, tmp_path / "out")
    text = one_sentence(caught.value)
    assert re.search(rf"{a} and {b}, which differ in .*{says}", text), text
    assert not (tmp_path / "out").exists()


def test_chats_by_two_templates_are_refused(part, tmp_path):
    with pytest.raises(ShardtoolsError, match=r"differ in the chat template \(SHA-256"):
        run(part("a", chat=""), part("b", chat="", tokenizer="chatty"), tmp_path / "out")


def test_tokens_and_what_has_no_recipe_are_refused(part, tmp_path, one_sentence):
    a, b = part("a"), part("b")
    (b / "shardtools.manifest").unlink()
    for left in (b / "shardtools.offsets", b / ".shardtools" / "plan"):
        left.unlink()
    for sources in ((a, b), (b, a)):
        with pytest.raises(ShardtoolsError) as caught:
            run(*sources, tmp_path / "out")
        assert f"got {a}, which was packed with --tokenizer, and {b}, for which no manifest names a tokenizer" in one_sentence(caught.value)
    assert not (tmp_path / "out").exists()


# What the merged dataset says of itself.


def test_the_recipe_that_all_have_in_common_is_kept_where_it_cannot_be_taken_for_one_to_replay(part, tmp_path, tokenizers):
    a, b = part("a"), part("b", long_docs="drop")
    run(a, b, tmp_path / "out")
    manifest = manifest_of(tmp_path / "out")
    assert "transforms" not in manifest.recipe
    encode, packing = manifest.recipe["source"]["transforms"]
    assert encode == manifest_of(a).recipe["transforms"][0]
    assert packing == {**manifest_of(a).recipe["transforms"][1], "long_docs": None}
    with pytest.raises(UsageError, match="give another dataset to compare with"):
        verify(str(tmp_path / "out"), VerifyOptions(against=(str(tmp_path / "a.jsonl"),), tokenizer=str(tokenizers["small"])))


def test_the_rows_of_a_merged_dataset_are_counted_again(part, tmp_path):
    run(part("a", doc_ids=""), part("b", doc_ids="", key_column="none"), tmp_path / "out")
    whole = counts_of(tmp_path / "out")["transforms"]["packing"]
    parts = [counts_of(tmp_path / name)["transforms"]["packing"] for name in ("a", "b")]
    assert whole["tokens-stored"] == sum(part["tokens-stored"] for part in parts)
    verdict = verify(str(tmp_path / "out"))
    assert verdict.findings == ()
    assert any("counted again" in sentence for sentence in verdict.proved())
    manifest = manifest_of(tmp_path / "out")
    manifest.ledger.transforms["packing"]["tokens-stored"] -= 1
    (tmp_path / "out" / "shardtools.manifest").write_bytes(manifest.serialize())
    assert {finding.kind for finding in verify(str(tmp_path / "out")).findings} == {"token-ledger"}


def test_a_merge_of_merges_keeps_the_recipe(part, tmp_path):
    run(part("a"), part("b", seed="7"), tmp_path / "ab")
    run(part("c"), part("d"), tmp_path / "cd")
    run(tmp_path / "ab", tmp_path / "cd", tmp_path / "out")
    first, second = (manifest_of(tmp_path / name).recipe["source"]["transforms"] for name in ("ab", "out"))
    assert first == second
    part("e", eos="none")
    with pytest.raises(ShardtoolsError, match="differ in --eos"):
        run(tmp_path / "out", tmp_path / "e", tmp_path / "more")


# Keys.


@pytest.mark.parametrize(("format_", "other"), [("mds", ", or each with --key-column none"), ("wds", "")])
def test_rows_of_two_runs_have_the_same_keys_and_the_sentence_says_what_to_do(part, tmp_path, one_sentence, format_, other):
    a, b = part("a", format_, key_column="key"), part("b", format_, key_column="key")
    with pytest.raises(DuplicateKeyError) as caught:
        run(a, b, tmp_path / "out")
    text = one_sentence(caught.value)
    assert "'000000/00000000' in " in text
    assert text.endswith(f"; rows of tokens are numbered alike in every dataset: pack all sources in one run{other}")


def test_documents_that_are_rows_keep_their_own_keys(part, tmp_path):
    a, b = (part(name, packing="none", key_column="key", seq_len="64", long_docs="drop") for name in "ab")
    assert run(a, b, tmp_path / "out").manifest.ledger.num_stored == 80


def test_columns_that_differ_are_said_before_keys_that_clash(tmp_path):
    """Both are wrong, and only the columns tell why."""
    for name, field in (("a", "text"), ("b", "body")):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"id": "x", "{field}": "t"}}\n')
        sources = resolve_inputs([str(tmp_path / f"{name}.jsonl")])
        order = order_of(sources, OrderWords(format="mds", source_options={"key": "id"}))
        build(sources, str(tmp_path / name), order)
    with pytest.raises(ShardtoolsError, match="expected the same columns in every shard"):
        run(tmp_path / "a", tmp_path / "b", tmp_path / "out")

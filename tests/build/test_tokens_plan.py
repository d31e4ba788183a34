"""Stops a plan that hides what tokens depend on, so that a rerun mixes two kinds of rows; or that names the machine it was made on."""

import os
from pathlib import Path

import pytest
import zstandard
from token_oracle import StopBeforePublishing, as_lines, pack, small_tokenizer

from shardtools.errors import UsageError
from shardtools.plan import Plan


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    return small_tokenizer(tmp_path_factory.mktemp("tokenizer") / "small")


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("source")
    (folder / "docs.jsonl").write_bytes(as_lines({"text": f"the cat {i} sat on {'the mat ' * (i % 9)}"} for i in range(60)))
    return folder


OTHERS = {
    "another tokenizer": ({}, "tokenizer_sha256 was"),
    "another backend": ({"backend": "hf"}, "backend was 'gigatoken', is 'hf'"),
    "another seed": ({"seed": 7}, "seed was 0, is 7"),
    "another row": ({"seq_len": "66"}, "seq_len was 64, is 66"),
    "another packing": ({"packing": "concat"}, "strategy was 'bfd', is 'concat'"),
    "another end": ({"eos": "none"}, "eos_id was"),
    "another policy": ({"special_in_text": "parse"}, "special_in_text was 'split', is 'parse'"),
}


@pytest.mark.parametrize(("name", "finished"), [*((name, True) for name in OTHERS), ("another tokenizer", False), ("another seed", False)])
def test_a_rerun_with_other_tokens_is_refused_with_the_difference(source, tokenizer, tmp_path, digests, name, finished, one_sentence):
    other, says = OTHERS[name]
    if name == "another backend":
        pytest.importorskip("gigatoken", reason="gigatoken is not installed: the extra `fast` has it")
    words = {"tokenizer": tokenizer, "seq_len": "64", **({"backend": "gigatoken"} if name == "another backend" else {"backend": "hf"})}
    out = tmp_path / "out"
    if finished:
        pack(source, out, **words)
    else:
        with pytest.raises(KeyboardInterrupt):
            pack(source, out, engine=StopBeforePublishing(), **words)
    before = digests(out)
    if name == "another tokenizer":
        other = {"tokenizer": small_tokenizer(tmp_path / "other", vocab_size=300)}
    with pytest.raises(UsageError) as caught:
        pack(source, out, **{**words, **other})
    text = one_sentence(caught.value)
    assert says in text and "--overwrite" in text
    assert digests(out) == before


def test_the_same_tokenizer_under_another_path_is_the_same_plan(source, tokenizer, tmp_path):
    pack(source, tmp_path / "out", tokenizer=tokenizer, seq_len="64")
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    for path in tokenizer.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    assert pack(source, tmp_path / "out", tokenizer=copy, seq_len="64").already_complete
    assert pack(source, tmp_path / "out", tokenizer=copy / "tokenizer.json", seq_len="64").already_complete


@pytest.mark.parametrize("format_", ["mds", "wds"])
def test_no_path_of_this_machine_is_in_what_is_stored(source, tokenizer, tmp_path, format_):
    pack(source, tmp_path / "out", format_, tokenizer=tokenizer, seq_len="64", doc_ids="")
    stored = zstandard.decompress((tmp_path / "out" / ".shardtools" / "plan").read_bytes())
    assert Plan.digest_of((tmp_path / "out" / ".shardtools" / "plan").read_bytes()) in stored.decode()
    for data in (stored, (tmp_path / "out" / "shardtools.manifest").read_bytes()):
        for place in (tmp_path, source, tokenizer, Path.home()):
            assert str(place).encode() not in data
        assert os.uname().nodename.encode() not in data

"""Stops tables from being packed as one text each, and refusals from giving advice that leads nowhere where text is to be tokenized."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from token_oracle import as_lines, documents_of, pack, rows_of, small_tokenizer

from shardtools.errors import UsageError
from shardtools.verify import VerifyOptions, verify


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    return small_tokenizer(tmp_path_factory.mktemp("tokenizer") / "small")


@pytest.fixture
def refusal(tokenizer, tmp_path, one_sentence):
    """The sentence with which packing ends: ``refusal(source, "wds", text_key="md", reader="files")``."""

    def call(source: Path, format_: str = "mds", **words: Any) -> str:
        with pytest.raises(UsageError) as caught:
            pack(source, tmp_path / "out", format_, tokenizer=tokenizer, **words)
        assert not (tmp_path / "out").exists()
        text: str = one_sentence(caught.value)
        return text

    return call


# Tables.


READ_BY = {"csv": "csv", "tsv": "csv", "parquet": "parquet"}


@pytest.mark.parametrize("name", ["docs.csv", "docs.tsv", "docs.parquet", "docs.arrow", "DOCS.CSV", "docs.csv.gz", "v1.2.parquet"])
@pytest.mark.parametrize("words", [{}, {"seq_len": "8"}, {"text_key": "text"}])
def test_a_table_is_no_document(refusal, tree, name, words):
    text = refusal(tree({name: b"text\nthe cat\nthe dog\n"}), reader="files", **words)
    kind = name.lower().removesuffix(".gz").rpartition(".")[2]
    remedy = f"read their rows with --from {READ_BY[kind]}" if kind in READ_BY else "convert them to Parquet or JSON lines"
    assert f"got .{kind} files" in text and text.endswith(remedy)


def test_its_rows_are_documents(tokenizer, tmp_path, tree):
    pack(
        tree({"docs.csv": b"id,text\na,the cat\nb,the dog\n"}),
        tmp_path / "out",
        tokenizer=tokenizer,
        source_options={"key": "id"},
        doc_ids="",
    )
    assert sorted(documents_of(rows_of(tmp_path / "out"))) == ["a", "b"]


def test_tables_that_are_left_out_are_no_reason_to_stop(tokenizer, tmp_path, tree):
    source = tree({"a.txt": b"the cat", "a.csv": b"a,b", "b.txt": b"the dog", "c.parquet": b"PAR1"})
    pack(source, tmp_path / "out", tokenizer=tokenizer, reader="files", text_key="txt", doc_ids="")
    assert sorted(documents_of(rows_of(tmp_path / "out"))) == ["a", "b"]


def test_tables_are_packed_as_they_are_where_no_tokens_are_asked_for(tree, build, read_tars, tmp_path):
    build(tree({"a.csv": b"a,b"}), tmp_path / "out", "wds")
    assert read_tars(tmp_path / "out") == {"a.csv": b"a,b"}


# Records.


RECORDS = {
    "another field": ({"data": "t", "meta": 1}, {}, "expected a field 'text' in the records, got data, meta; choose with --text-key"),
    "chats": (
        {"id": 1, "messages": []},
        {},
        "expected a field 'text' in the records, got id, messages; choose with --text-key, or use --chat",
    ),
    "text for chats": ({"text": "t"}, {"chat": ""}, "expected a field 'messages' in the records, got text; choose with --text-key"),
    "a slip": ({"text": "t"}, {"text_key": "txt"}, "expected a field 'txt' in the records, got text; choose with --text-key"),
    "deep text": (
        {"id": 1, "data": {"content": "t", "n": 1, "more": {"body": "u"}}},
        {},
        "expected a field 'text' in the records, got data, data.content, data.more.body, id; choose with --text-key",
    ),
    "a slip in a path": (
        {"data": {"content": "t"}},
        {"text_key": "data.text"},
        "expected a field 'data.text' in the records, got data, data.content; choose with --text-key",
    ),
    "deep chats": (
        {"data": {"turns": [], "title": "t"}},
        {"chat": ""},
        "expected a field 'messages' in the records, got data, data.turns; choose with --text-key",
    ),
    "no field at all": ({}, {}, "expected a field 'text' in the records, got none; choose with --text-key"),
}


@pytest.mark.parametrize("case", RECORDS)
def test_a_field_that_is_not_there(refusal, tmp_path, case):
    record, words, says = RECORDS[case]
    (tmp_path / "docs.jsonl").write_bytes(as_lines([record] * 3))
    assert refusal(tmp_path / "docs.jsonl", **words) == says


def test_of_many_fields_a_few_are_named(refusal, tmp_path):
    (tmp_path / "docs.jsonl").write_bytes(as_lines([{f"f{i:02d}": {"a": "t"} for i in range(30)}]))
    text = refusal(tmp_path / "docs.jsonl")
    assert len(text) < 200 and "f00, f00.a, f01" in text and text.endswith("f03.a and 52 more; choose with --text-key")


# Folders of a program: some text of many kinds, names with any number of dots.

REPOSITORY = {
    "setup.py": b"import a",
    "setup.cfg": b"[a]",
    "README.md": b"# the cat",
    "Makefile": b"all:",
    "a/__init__.py": b"",
    "a/b.c.py": b"the dog",
    "a/data.json": b"{}",
    "a/logo.png": b"\x89PNG",
    "a/table.csv": b"a,b",
    "doc/index.rst": b"the log",
}
SOME = {name: REPOSITORY[name] for name in ("setup.py", "setup.cfg", "README.md", "Makefile", "a/table.csv")}
DOTTED = {"a.min.js": b"a", "a.js": b"b", "b.md": b"c"}


@pytest.mark.parametrize("format_", ["mds", "wds"])
@pytest.mark.parametrize(
    "names", [REPOSITORY, SOME, DOTTED, {"a.py": b"a", "a.md": b"b"}], ids=["repository", "no dotted names", "two readings", "one stem"]
)
def test_the_advice_for_files_of_several_kinds_packs_them(refusal, tokenizer, tmp_path, tree, names, format_):
    source = tree(names)
    text = refusal(source, format_, reader="files")
    command = re.search(r"--group file --fields '(text=[a-z|]+)'", text)
    assert command is not None, text
    assert "optional" not in text and "?" not in text
    kinds = command[1].removeprefix("text=").split("|")
    options = {"group": "file", "fields": command[1]}
    pack(source, tmp_path / "out", format_, tokenizer=tokenizer, reader="files", source_options=options, doc_ids="", seq_len="16")
    # An empty text has no token. Dots and what else not every reader takes are escaped.
    expected = [name.replace(".", "=2E") for name, data in names.items() if data and name.rpartition(".")[2] in kinds]
    assert len(expected) >= 2
    assert sorted(documents_of(rows_of(tmp_path / "out"))) == sorted(expected)


def test_kinds_that_hold_most_of_the_text_are_named_and_images_are_not(refusal, tree):
    text = refusal(tree(REPOSITORY), reader="files")
    assert "--fields 'text=py|" in text
    assert not re.search(r"text=[a-z|]*(png|csv|bin)", text)


def test_several_fields_that_were_asked_for_are_said_to_be_too_many(refusal, tree):
    source = tree({"a.py": b"a", "a.md": b"b", "b.py": b"c", "b.md": b"d"})
    for options, words in (({"fields": "py,md?"}, {}), ({}, {"text_key": "py,md"})):
        assert "--group file --fields 'text=md|py'" in refusal(source, source_options=options, **words)


def test_a_kind_that_is_not_there_is_named_beside_those_that_are(refusal, tree):
    text = refusal(tree({"a.py": b"a", "b.png": b"b", "c": b"c"}), text_key="text")
    assert text == "expected files of the kind text, got files without extension, png, py; --text-key names the extension of files"


def test_a_dataset_of_several_kinds_is_compared_with_its_source(tokenizer, tmp_path, tree):
    source = tree(REPOSITORY)
    options = {"group": "file", "fields": "text=py|md|rst"}
    pack(source, tmp_path / "out", tokenizer=tokenizer, reader="files", source_options=options, seq_len="16")
    asked = VerifyOptions(against=(str(source),), tokenizer=str(tokenizer))
    assert verify(str(tmp_path / "out"), asked).findings == ()
    (source / "setup.py").write_bytes(b"import b")
    assert verify(str(tmp_path / "out"), asked).findings != ()


def test_json_files_alone_are_text(tokenizer, tmp_path, tree):
    pack(tree({"a.json": json.dumps({"a": 1}).encode()}), tmp_path / "out", tokenizer=tokenizer, doc_ids="")
    assert list(documents_of(rows_of(tmp_path / "out"))) == ["a"]


def test_packed_text_is_not_taken_for_a_table(tokenizer, tmp_path):
    (tmp_path / "docs.jsonl.gz").write_bytes(gzip.compress(as_lines([{"text": "the cat"}])))
    pack(tmp_path / "docs.jsonl.gz", tmp_path / "out", tokenizer=tokenizer)

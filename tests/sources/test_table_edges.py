"""Stops tables that end a run without a sentence: endless numbers, folders that are no UTF-8, suffixes inside of names."""

import os

import pytest
from table_inputs import plain_table, write_parquet

from shardtools.build.run import Listener
from shardtools.formats.wds import Wds
from shardtools.sources.csv import Csv
from shardtools.sources.csv._cells import encoding_of
from shardtools.sources.csv._text import delimiter_of
from shardtools.sources.parquet import Parquet


@pytest.mark.parametrize(
    ("cells", "encoding"),
    [(["9" * 5000], "str"), (["-9223372036854775808", "9223372036854775807"], "int"), (["9223372036854775808"], "str")],
    ids=["thousands of digits", "the ends of int64", "one more"],
)
def test_whole_numbers_that_no_integer_holds_are_text(cells, encoding):
    assert encoding_of(cells) == encoding


@pytest.mark.parametrize(
    ("path", "delimiter"),
    [(b"a.tsv", "\t"), (b"A.TSV.gz", "\t"), (b"a.tsv.zst", "\t"), (b"a.csv", ","), (b"a.tsv.csv", ","), (b"a.tsv/b.csv", ",")],
)
def test_the_last_suffix_says_what_stands_between_cells(path, delimiter):
    assert delimiter_of(path) == delimiter


@pytest.mark.parametrize(
    ("name", "text", "mark"),
    [
        ("a.csv", "id;name\n1;a\n", "';'"),
        ("a.csv", "id\tname\n1\ta\n", "'\\t'"),
        ("a.tsv", "id,name\n1,a\n", "','"),
        ("a.csv", '"a,b"\n1\n', None),
    ],
)
def test_a_delimiter_that_is_none_here_is_told(build, tree, tmp_path, name, text, mark):
    """Cells that hold whole rows are packed without a fault."""
    notes: list[str] = []
    listener = Listener(on_plan=lambda planned: notes.extend(planned.survey.notes))
    build(tree({name: text.encode()}), tmp_path / "out", Wds(), source=Csv(), listener=listener)
    told = [note for note in notes if note.startswith("one column, ")]
    assert len(told) == (mark is not None) and all(f"if {mark} is meant to part them" in note for note in told)


def test_a_folder_that_is_no_utf8_spells_a_value_all_the_same(build, tmp_path):
    root = tmp_path / "src"
    write_parquet(root / "t" / "a.parquet", plain_table(1, 1))
    os.rename(os.fsencode(root / "t"), os.fsencode(root) + b"/name=\xff")
    build(root, tmp_path / "out", Wds(), source=Parquet())
    (shard,) = (tmp_path / "out").glob("*.tar")
    assert b'"name":"\\\\xff"' in shard.read_bytes()

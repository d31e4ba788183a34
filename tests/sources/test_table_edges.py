"""Stops tables that end a run without a sentence: endless numbers, folders that are no UTF-8, suffixes inside of names."""

import os

import pytest
from table_inputs import plain_table, write_parquet

from shardtools.formats.wds import Wds
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


def test_a_folder_that_is_no_utf8_spells_a_value_all_the_same(build, tmp_path):
    root = tmp_path / "src"
    write_parquet(root / "t" / "a.parquet", plain_table(1, 1))
    os.rename(os.fsencode(root / "t"), os.fsencode(root) + b"/name=\xff")
    build(root, tmp_path / "out", Wds(), source=Parquet())
    (shard,) = (tmp_path / "out").glob("*.tar")
    assert b'"name":"\\\\xff"' in shard.read_bytes()

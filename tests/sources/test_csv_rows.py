"""Stops cells that change their type or value, rows that vanish or are cut, and bad rows nobody is told of."""

import csv
import gzip
import io
import json
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard

from shardtools import plugins
from shardtools.build.order import Order, detect_source
from shardtools.build.planning import plan_build
from shardtools.build.run import Listener
from shardtools.errors import BadSampleError, DuplicateKeyError, StorageError, UsageError
from shardtools.formats.mds import Mds
from shardtools.sources import _streams, resolve_inputs
from shardtools.sources._record_layout import parse_mappings
from shardtools.sources.csv import Csv, _parse


def as_csv(rows: Sequence[Sequence[str]], delimiter: str = ",", quoting: int = csv.QUOTE_MINIMAL, end: str = "\n") -> bytes:
    """By Python's own writer."""
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, quoting=quoting, lineterminator=end).writerows(rows)
    return text.getvalue().encode()


@pytest.fixture
def pack(build, read_mds_raw, tree, tmp_path):
    """Pack one CSV text to MDS: rows, encodings and notes."""

    def call(text: bytes, *, encodings=None, max_bad="0", name="t.csv", **options):
        notes: list[str] = []
        listener = Listener(on_plan=lambda planned: notes.extend(planned.survey.notes))
        root, out = tree({name: text}), tmp_path / "out"
        if "map" in options:
            options["map"] = parse_mappings(options["map"])
        build(root, out, Mds(), source=Csv(**options), encodings=encodings, max_bad=max_bad, listener=listener, overwrite=True)
        entry = json.loads((out / "index.json").read_text())["shards"][0]
        return read_mds_raw(out), dict(zip(entry["column_names"], entry["column_encodings"], strict=True)), notes

    return call


def rejects(folder: Path) -> list[tuple[str, str]]:
    found = [json.loads(line) for line in (folder / ".shardtools" / "rejects").read_text().splitlines()]
    return [(reject["reason"], reject["where"]) for reject in found]


# Types.

TYPES: dict[str, tuple[list[str], str, bytes]] = {
    "whole": (["0", "-7", str(2**63 - 1)], "int", struct.pack("<q", 0)),
    "numbers": (["1", "-0.5", "1e3"], "float64", struct.pack("<d", 1)),
    "flags": (["true", "False", "true"], "uint8", b"\1"),
    "text": (["a", "", "画像"], "str", b"a"),
    "leading zero": (["007", "1", "2"], "str", b"007"),
    "plus": (["+1", "1", "2"], "str", b"+1"),
    "blank inside": (["1", "", "3"], "str", b"1"),
    "spaces": ([" 1", "2", "3"], "str", b" 1"),
    "underscore": (["1_0", "2", "3"], "str", b"1_0"),
    "other digits": (["٣", "2", "3"], "str", "٣".encode()),
    "not a number": (["NaN", "1", "2"], "str", b"NaN"),
    "above 64 bits": ([str(2**63), "1", "2"], "str", str(2**63).encode()),
    "flags and numbers": (["true", "1", "0"], "str", b"true"),
}


@pytest.mark.parametrize("kind", TYPES)
def test_a_column_has_the_type_that_all_its_first_cells_have(pack, kind):
    cells, encoding, first = TYPES[kind]
    rows, encodings, _ = pack(as_csv([["c", "d"], *([cell, "x"] for cell in cells)]))
    assert encodings == {"c": encoding, "d": "str", "key": "str"}
    assert rows[0]["c"] == first and len(rows) == len(cells)


def test_a_later_misfit_is_a_bad_sample_with_file_and_row(build, tree, tmp_path):
    root = tree(
        {"a/t.csv": as_csv([["n", "x", "ok"], *([["1", "1.5", "true"]] * 1000), ["1.5", "1", "true"], ["1", "", "true"], ["1", "2", "1"]])}
    )
    with pytest.raises(BadSampleError, match=r"a/t.csv, row 1000: column 'n': expected a whole number, as in the first rows, got '1.5'"):
        build(root, tmp_path / "out", "wds", source=Csv())
    result = build(root, tmp_path / "out", "wds", source=Csv(), max_bad="3")
    assert (result.manifest.ledger.num_read, result.manifest.ledger.num_written) == (1003, 1000)
    assert rejects(tmp_path / "out") == [("wrong-type", f"a/t.csv, row {row}") for row in (1000, 1001, 1002)]


def test_a_number_that_no_float_can_hold_is_a_bad_sample(build, tree, tmp_path):
    root = tree({"t.csv": as_csv([["x"], *([["1.5"]] * 1000), ["1e999"], [str(2**53 + 1)], [str(2**53)]])})
    build(root, tmp_path / "out", "mds", source=Csv(), max_bad="2")
    assert rejects(tmp_path / "out") == [("wrong-type", "t.csv, row 1000"), ("wrong-type", "t.csv, row 1001")]


def test_columns_in_place_of_types(pack):
    text = as_csv([["a", "b", "c", "d"], ["1", "1", '{"k": [1]}', "x"], ["2", "2.5", "null", "y"]])
    rows, encodings, _ = pack(text, encodings={"a": "int8", "b": "float32", "c": "json", "d": "bytes"})
    assert encodings == {"a": "int8", "b": "float32", "c": "json", "d": "bytes", "key": "str"}
    assert rows[0] == {"a": b"\1", "b": struct.pack("<f", 1), "c": b'{"k": [1]}', "d": b"x", "key": b"t/000000000000"}


def test_an_optional_column_is_absent_where_a_cell_is_empty(build, read_tars, tree, tmp_path):
    root = tree({"t.csv": as_csv([["n", "text"], ["1", "a"], ["", ""], ["3", "c"]])})
    build(root, tmp_path / "out", "wds", source=Csv(map=parse_mappings("cls=n?,txt=text")))
    assert read_tars(tmp_path / "out") == {
        "t/000000000000.cls": b"1",
        "t/000000000000.txt": b"a",
        "t/000000000001.txt": b"",
        "t/000000000002.cls": b"3",
        "t/000000000002.txt": b"c",
    }


# Rows as Python reads them.


@pytest.mark.parametrize("delimiter", [",", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_quotes_line_ends_and_blank_lines_are_read_as_python_reads_them(build, read_tars, tree, tmp_path, delimiter, end, quoting):
    cells = ["", "plain", 'say "hi"', "a,b", "a\tb", "two\nlines", "two\r\nlines", '"', '""', "画像\u2028", " x ", "\ufeffx"]
    rows = [["a b", "c,d", "e"], *([cell, "x", cells[-1 - i]] for i, cell in enumerate(cells))]
    text = b"\xef\xbb\xbf" + as_csv(rows, delimiter, quoting, end).replace(end.encode(), end.encode() * 2, 1) + end.encode() * 2
    build(tree({"t.tsv" if delimiter == "\t" else "t.csv": text}), tmp_path / "out", "wds", source=Csv())
    found = [json.loads(value) for value in read_tars(tmp_path / "out").values()]
    expected = list(csv.DictReader(io.StringIO(text.decode("utf-8-sig"), newline=""), delimiter=delimiter))
    assert found == expected and len(found) == len(cells)


def test_the_last_row_may_lack_its_line_end(pack):
    assert [row["c"] for row in pack(b"c,d\nx,1\ny,2")[0]] == [b"x", b"y"]


def test_what_looks_like_a_byte_order_mark_is_one_at_the_beginning_alone(pack):
    rows = pack("\ufeffc,d\n\ufeffx,1\n\ufeffy,2\n".encode())[0]
    assert [row["c"] for row in rows] == ["\ufeffx".encode(), "\ufeffy".encode()]


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.tsv.zst"])
def test_compressed_files_give_the_same_samples(build, read_tars, tree, tmp_path, name):
    text = as_csv([["n", "text"], *([str(i), f"row\n{i}"] for i in range(500))], "\t" if "tsv" in name else ",")
    packed = {"gz": gzip.compress, "zst": zstandard.compress}.get(name.rpartition(".")[2], bytes)(text)
    build(tree({name: packed}), tmp_path / "out", "wds", source=Csv())
    found = {key: json.loads(value) for key, value in read_tars(tmp_path / "out").items()}
    assert found == {f"t/{i:012d}.json": {"n": i, "text": f"row\n{i}"} for i in range(500)}


def test_a_row_longer_than_what_is_parsed_at_once(build, read_mds_raw, tree, tmp_path):
    short = [[str(i), "a" * 500] for i in range(12_000)]
    rows = [["n", "text"], *short[:9000], ["9000"], *short[9001:], ["12000", "b" * (9 << 20)], ["12001"], ["12002", "d"]]
    build(tree({"t.csv": as_csv(rows)}), tmp_path / "out", "mds", source=Csv(), max_bad="2")
    found = [(int(row["key"][-12:]), len(row["text"])) for row in read_mds_raw(tmp_path / "out")]
    assert found == [*((i, 500) for i in range(12_000) if i != 9000), (12_000, 9 << 20), (12_002, 1)]
    assert rejects(tmp_path / "out") == [("wrong-columns", "t.csv, row 9000"), ("wrong-columns", "t.csv, row 12001")]


@pytest.mark.train
def test_streaming_reads_what_python_reads(build, read_streaming, tree, tmp_path):
    text = as_csv([["n", "x", "text"], *([str(i), str(i / 8), f'"{i}",\n'] for i in range(300))])
    build(tree({"t.csv": text}), tmp_path / "out", "mds", source=Csv())
    found = [(row["n"], row["x"], row["text"]) for row in read_streaming(tmp_path / "out")]
    assert found == [(int(n), float(x), text) for n, x, text in list(csv.reader(io.StringIO(text.decode(), newline="")))[1:]]


# Bad rows.


def test_rows_of_another_length_are_bad_samples_by_row(build, read_mds_raw, tree, tmp_path):
    root = tree({"t.csv": b'a,b\n1,x\n2\n\n3,"y\nz"\n4,x,5\n,\n5,w\n6'})
    with pytest.raises(BadSampleError, match=r"t.csv, row 1: expected 2 cells as in the header, got 1"):
        build(root, tmp_path / "out", "mds", source=Csv())
    result = build(root, tmp_path / "out", "mds", source=Csv(), max_bad="3")
    assert rejects(tmp_path / "out") == [("wrong-columns", f"t.csv, row {row}") for row in (1, 3, 6)]
    assert [(row["key"][-1:], row["b"]) for row in read_mds_raw(tmp_path / "out")] == [
        (b"0", b"x"),
        (b"2", b"y\nz"),
        (b"4", b""),
        (b"5", b"w"),
    ]
    assert result.manifest.ledger.num_read == 7


def test_bytes_that_are_no_text_are_bad_samples(build, read_mds_raw, tree, tmp_path, capfd):
    good = [f"{i},é画\n".encode() for i in range(2000)]
    good[1500] = b"1500,\xff\xfe\n"
    good[1700] = b"17\xc300\n"
    root = tree({"t.csv": b"a,b\n" + b"".join(good)})
    build(root, tmp_path / "out", "mds", source=Csv(), max_bad="2")
    assert sorted(rejects(tmp_path / "out")) == [("invalid-utf8", "t.csv, row 1500"), ("wrong-columns", "t.csv, row 1700")]
    assert {row["b"] for row in read_mds_raw(tmp_path / "out")} == {"é画".encode()}
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("text", [b'a,b\n1,x\n"2,y\n3,z\n', b'a,b\n1,x\n2,"y\n3,z\n4,w', b'a,b\n1,x\n2,"', b'a,b\n1,x\n2,"y""\n'])
def test_a_quote_without_end_is_a_bad_sample(build, read_mds_raw, tree, tmp_path, text):
    """Also in the last column, where it would take all rows that follow into one cell that looks sound."""
    root = tree({"t.csv": text})
    with pytest.raises(BadSampleError, match=r"t.csv, row 1: expected the end of a quoted cell, got the end of the text"):
        build(root, tmp_path / "out", "mds", source=Csv())
    build(root, tmp_path / "out", "mds", source=Csv(), max_bad="1")
    assert rejects(tmp_path / "out") == [("unreadable-rows", "t.csv, row 1")]
    assert [row["b"] for row in read_mds_raw(tmp_path / "out")] == [b"x"]


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_what_comes_before_damage_is_read_to_the_last_whole_row(build, read_mds_raw, tree, tmp_path, compress, monkeypatch):
    monkeypatch.setattr(_streams, "_COMPRESSED_BYTES", 64)
    text = as_csv([["n", "text"], *([str(i), f"row {i * 7919 % 9973} is {i}"] for i in range(20000))])
    packed = compress(text)
    name = "t.csv.gz" if compress is gzip.compress else "t.csv.zst"
    root = tree({name: packed[: len(packed) * 2 // 3]})
    with pytest.raises(BadSampleError, match=r"row \d+: expected a sound compressed stream"):
        build(root, tmp_path / "out", "mds", source=Csv())
    result = build(root, tmp_path / "out", "mds", source=Csv(), max_bad="1")
    rows = read_mds_raw(tmp_path / "out")
    expected = [cells[1].encode() for cells in list(csv.reader(io.StringIO(text.decode(), newline="")))[1:]]
    assert [row["text"] for row in rows] == expected[: len(rows)]
    assert result.manifest.ledger.num_rejected == 1
    assert len(rows) > 1000


def test_text_that_the_parser_gives_up_on_is_a_bad_sample(tree, monkeypatch, one_sentence):
    planned = plan_build([str(tree({"t.csv": b"a,b\n" + b"1,x\n" * 50}))], Order(Csv(), Mds()))

    def give_up(*_):
        raise pa.ArrowInvalid("CSV parser got out of sync with chunker")

    monkeypatch.setattr(_parse.csv, "open_csv", give_up)
    found = []
    assert list(planned.plan.recipe.source.read(planned.roots, planned.plan.partitions[0].extents, found.append)) == []
    assert [(reject.reason, reject.where) for reject in found] == [("unreadable-rows", "t.csv, row 0")]
    assert "out of sync" in one_sentence(Exception(found[0].sentence))


ENDS_EARLY = """
from hashlib import sha256

from shardtools.sources.csv._parse import parsed_rows

def endless():
    while True:
        yield b"".join(b"1,%d\\n" % int(sha256(b"%d" % i).hexdigest(), 16) for i in range(300))

rows = parsed_rows(endless, ["a", "b"], ",")
next(rows)
rows.close()
"""


def test_python_may_end_when_rows_are_no_longer_wanted():
    """A thread that still reads then, or lets go of what it read, aborts the process, though not each time."""
    for _ in range(3):
        subprocess.run([sys.executable, "-c", ENDS_EARLY], check=True, capture_output=True)


# Headers and files.


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "expected a header in .*/t.csv, got an empty file"),
        (b"\n\n", "expected a header in .*/t.csv, got an empty file"),
        (b'a,"b\n1,2\n', "expected a header in .*/t.csv, got a quote without end"),
        (b"a,a\n1,2\n", "expected columns of different names in .*/t.csv, got two 'a'"),
        (b"a,\xff\n1,2\n", "expected a header in UTF-8 in .*/t.csv"),
        (b"a,b\n", "expected at least one row that can be read below the headers, got none in"),
    ],
)
def test_files_without_a_usable_header_are_refused(build, tree, tmp_path, one_sentence, text, sentence):
    with pytest.raises(UsageError, match=sentence) as error:
        build(tree({"t.csv": text}), tmp_path / "out", "wds", source=Csv())
    one_sentence(error.value)


def test_a_column_without_a_name_is_called_by_its_place(pack):
    assert pack(b",a\n0,x\n1,y\n")[1] == {"a": "str", "column_0": "int", "key": "str"}


def test_files_with_other_columns_are_refused_by_name_and_those_in_another_order_are_not(build, read_mds_raw, tree, tmp_path):
    root = tree({"a.csv": b"n,t\n1,x\n", "b.csv": b"t,n\ny,2\n"})
    build(root, tmp_path / "out", "mds", source=Csv())
    assert [(row["n"][0], row["t"]) for row in read_mds_raw(tmp_path / "out")] == [(1, b"x"), (2, b"y")]
    tree({"c.csv": b"n,t,more\n1,x,2\n"})
    with pytest.raises(UsageError, match=r"got 'more' only in .*c.csv of .*a.csv and .*c.csv"):
        build(root, tmp_path / "out2", "mds", source=Csv())


def test_files_that_differ_in_their_suffix_alone_would_have_the_same_keys(build, tree, tmp_path):
    root = tree({"a.csv": b"id\nx\n", "a.tsv": b"id\ny\n"})
    with pytest.raises(DuplicateKeyError, match=r"a.csv and .*a.tsv"):
        build(root, tmp_path / "out", "wds", source=Csv())
    build(root, tmp_path / "out", "wds", source=Csv(key="id"))


def test_a_row_without_a_key_is_a_bad_sample(build, read_tars, tree, tmp_path):
    root = tree({"t.csv": b"id,n\na/b,1\n,2\n7,3\n"})
    with pytest.raises(BadSampleError, match=r"t.csv, row 1: expected text or a whole number in the key column 'id', got ''"):
        build(root, tmp_path / "out", "wds", source=Csv(key="id"))
    build(root, tmp_path / "out", "wds", source=Csv(key="id", keep_path=True), max_bad="1")
    assert list(read_tars(tmp_path / "out")) == ["a/b.json", "a/b.path", "7.json", "7.path"]


def test_csv_is_found_by_its_suffix(tree):
    assert detect_source(resolve_inputs([str(tree({"a.csv": b"", "b.TSV.gz": b"", "c.tsv.zst": b""}))])) == "csv"


def test_the_recipe_restores_the_source(tree):
    root = tree({"a.csv": b"n,t,ok\n1,x,true\n"})
    for options in ({}, {"key": "t", "keep_path": True, "map": parse_mappings("cls=n,txt=t?")}):
        for name in ("wds", "mds"):
            planned = plan_build([str(root)], Order(Csv(**options), plugins.load("formats", name)()))
            plain = json.loads(json.dumps(planned.plan.recipe.as_json()))
            assert plugins.restored("sources", plain["source"]) == planned.plan.recipe.source


def test_another_header_after_planning_stops_the_run(tree, one_sentence):
    root = tree({"t.csv": b"n,t\n1,x\n"})
    planned = plan_build([str(root)], Order(Csv(), Mds()))
    (root / "t.csv").write_bytes(b"n,u\n1,x\n")
    with pytest.raises(StorageError, match=r"expected t.csv to keep the header it had") as error:
        list(planned.plan.recipe.source.read(planned.roots, planned.plan.partitions[0].extents, print))
    one_sentence(error.value)

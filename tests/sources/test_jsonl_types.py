"""Stops JSON values that change on their way into a column or member, types nobody was told of, and keys that name two records."""

import gzip
import json
import random
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shardtools import partitions as partitions_module
from shardtools.build.run import Listener
from shardtools.errors import BadSampleError, DuplicateKeyError, UsageError
from shardtools.formats.mds import Mds
from shardtools.sources._record_layout import parse_mappings
from shardtools.sources.jsonl import Jsonl

BIG = 123456789012345678901234567890


class Missing:
    """Stands for a field that a record lacks."""


MISSING = Missing()


@dataclass
class Packed:
    """One build: what is stored, and what the user was told."""

    rows: list[dict[str, bytes]]
    """The undecoded values of every row, in order."""
    encodings: dict[str, str]
    notes: list[str]
    rejects: list[dict[str, str]]


@pytest.fixture
def write_lines(tmp_path) -> Callable[..., Path]:
    """Records (or lines as they are) as a JSONL file in a folder of its own."""

    def write(records: Iterable[Any], name: str = "docs.jsonl", folder: str = "src") -> Path:
        path = tmp_path / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [line if isinstance(line, bytes) else json.dumps(line, ensure_ascii=False).encode() for line in records]
        data = b"".join(line + b"\n" for line in lines)
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return tmp_path / folder

    return write


@pytest.fixture
def pack(write_lines, build, read_mds_raw, tmp_path) -> Callable[..., Packed]:
    """Pack records to MDS; options are those of the source, ``encodings``, ``format`` and ``max_bad``."""
    count = 0

    def call(
        records: Iterable[Any],
        *,
        encodings: dict[str, str] | None = None,
        key_column: str | None = "key",
        max_bad: str = "0",
        **options: Any,
    ) -> Packed:
        nonlocal count
        count += 1
        source, out = write_lines(records, folder=f"src{count}"), tmp_path / f"out{count}"
        notes: list[str] = []
        listener = Listener(on_plan=lambda planned: notes.extend(planned.survey.notes))
        build(source, out, Mds(key_column=key_column), source=made(options), encodings=encodings, max_bad=max_bad, listener=listener)
        entry = json.loads((out / "index.json").read_text())["shards"][0]
        rejects = out / ".shardtools" / "rejects"
        return Packed(
            read_mds_raw(out),
            dict(zip(entry["column_names"], entry["column_encodings"], strict=True)),
            notes,
            [json.loads(line) for line in rejects.read_text().splitlines()] if rejects.exists() else [],
        )

    return call


@pytest.fixture
def pack_tar(write_lines, build, read_tars, tmp_path) -> Callable[..., dict[str, bytes]]:
    """Pack records to WDS and return the members of its tars."""
    count = 0

    def call(records: Iterable[Any], *, max_bad: str = "0", **options: Any) -> dict[str, bytes]:
        nonlocal count
        count += 1
        source, out = write_lines(records, folder=f"tar-src{count}"), tmp_path / f"tar-out{count}"
        build(source, out, source=made(options), max_bad=max_bad)
        members: dict[str, bytes] = read_tars(out)
        return members

    return call


def made(options: dict[str, Any]) -> Jsonl:
    if "map" in options:
        options = {**options, "map": parse_mappings(options["map"])}
    return Jsonl(**options)


def record(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not MISSING}


def stored(encoding: str, value: Any) -> bytes:
    """The bytes of a value by the format's own words."""
    if encoding == "str":
        return bytes(value.encode())
    if encoding == "json":
        return json.dumps(None if value is MISSING else value).encode()
    letter = {"int": "q", "uint8": "B", "float64": "d", "float32": "f"}[encoding]
    return struct.pack("<" + letter, value)


# Inference.

RULES: dict[str, tuple[list[Any], str, str | None]] = {
    "text": (["a", "", "画像\u2028"], "str", None),
    "whole numbers": ([0, -1, 2**63 - 1, -(2**63)], "int", None),
    "numbers": ([0.5, -1e300, 3.0, 1e16], "float64", None),
    "booleans": ([True, False], "uint8", None),
    "whole and other numbers": ([1, 2.5, -7], "float64", None),
    "null in one": (["a", None, "b"], "json", "null"),
    "null in a number": ([1, None], "json", "null"),
    "null everywhere": ([None, None], "json", "null"),
    "missing in one": ([1, MISSING, 3], "json", "missing in 1 of the first 3 records"),
    "missing text": ([MISSING, "a"], "json", "missing in 1 of the first 2 records"),
    "text and numbers": (["a", 1], "json", "mixed"),
    "booleans and whole numbers": ([True, 1], "json", "mixed"),
    "booleans and numbers": ([True, 1.5], "json", "mixed"),
    "text and objects": (["a", {"b": 1}], "json", "mixed"),
    "objects": ([{"b": 1}, {}], "json", "object or list"),
    "lists": ([[1, 2], []], "json", "object or list"),
    "objects and lists": ([[1], {"a": [None]}], "json", "object or list"),
    "just above 63 bits": ([2**63, 1], "json", "64 bits"),
    "just below minus 63 bits": ([-(2**63) - 1, 1], "json", "64 bits"),
    "above 64 bits": ([2**64, 5], "json", "64 bits"),
    "thirty digits": ([BIG, -BIG], "json", "64 bits"),
    "thirty digits and other numbers": ([BIG, 1.5], "json", "64 bits"),
}


@pytest.mark.parametrize("rule", RULES)
def test_columns_have_the_types_of_the_first_records(pack, rule):
    values, encoding, reason = RULES[rule]
    packed = pack([record(x=value, z="z") for value in values])
    assert packed.encodings == {"key": "str", "x": encoding, "z": "str"}
    assert [row["x"] for row in packed.rows] == [stored(encoding, value) for value in values]
    fields = next(note for note in packed.notes if note.startswith("fields: "))
    assert f"x {encoding}" in fields and "z str" in fields
    announced = [note for note in packed.notes if note.startswith("stored as json: ")]
    if encoding == "json":
        assert len(announced) == 1 and "x (" in announced[0] and reason in announced[0] and "z" not in announced[0].partition("x (")[0][15:]
    else:
        assert announced == []


def test_columns_are_sorted_and_keep_the_names_of_the_records(pack):
    packed = pack([{"Zeta": 1, "a.b": 2, "_x": 3, "größe": 4, "key2": 5}])
    assert list(packed.encodings) == ["Zeta", "_x", "a.b", "größe", "key", "key2"]
    assert packed.rows == [
        {
            **{name: struct.pack("<q", n) for name, n in zip(("Zeta", "a.b", "_x", "größe", "key2"), range(1, 6), strict=True)},
            "key": b"docs/000000000000",
        }
    ]


def test_only_the_first_thousand_records_settle_the_types(pack):
    assert pack([{"x": 1}] * 999 + [{"x": 1.5}]).encodings["x"] == "float64"
    assert pack([{"x": 1}] * 999 + [{"x": "a"}]).encodings["x"] == "json"
    late = pack([{"x": 1}] * 1000 + [{"x": 1.5}], max_bad="1")
    assert late.encodings["x"] == "int" and len(late.rows) == 1000


def test_the_first_thousand_records_may_lie_in_many_files(write_lines, build, tmp_path):
    for i in range(5):
        write_lines([{"x": 1}] * 150, f"{i}.jsonl")
    source = write_lines([{"x": None}], "5.jsonl.gz")
    result = build(source, tmp_path / "out", "mds", source=Jsonl())
    assert [(field["name"], field["encoding"]) for field in result.manifest.recipe["fields"]] == [("x", "json")]


def test_blank_and_bad_lines_do_not_count_as_first_records(pack):
    packed = pack([b"", b"[1]", b"nonsense"] * 50 + [{"x": i} for i in range(1000)] + [{"x": "late"}], max_bad="101")
    assert packed.encodings["x"] == "int" and len(packed.rows) == 1000


# Digits.

LONG = [BIG, -BIG, 2**64, 2**63, -(2**63) - 1, 10**19, -(10**19), 10**300, -9999999999999999999]


@pytest.mark.parametrize("number", LONG)
@pytest.mark.parametrize("nest", [lambda n: n, lambda n: [n], lambda n: {"a": [1, {"b": n}]}], ids=["bare", "in a list", "deep"])
def test_whole_numbers_above_64_bits_keep_every_digit(pack, number, nest):
    packed = pack([record(x=nest(number), text="e+20")])
    assert packed.encodings["x"] == "json"
    assert packed.rows[0]["x"] == json.dumps(nest(number)).encode()


def test_late_long_numbers_in_a_json_column_keep_every_digit(pack):
    values = [[1]] * 1500 + [[BIG], {"a": -BIG}, BIG]
    packed = pack([{"x": value} for value in values])
    assert [json.loads(row["x"]) for row in packed.rows] == values


@pytest.mark.parametrize("number", LONG)
def test_whole_records_keep_every_digit(pack_tar, number):
    line = b'{"x": %d , "y":[1.50, 1E5]}' % number
    assert list(pack_tar([line]).values()) == [line]


@pytest.mark.parametrize("value", [BIG, -BIG, [BIG], {"a": -BIG}], ids=repr)
def test_members_made_of_fields_keep_every_digit(pack_tar, value):
    members = pack_tar([{"x": value, "t": "a"}, {"x": value, "t": "b"}], map="num.json=x,txt=t")
    assert [json.loads(data) for name, data in members.items() if name.endswith(".num.json")] == [value, value]


def test_a_late_long_number_in_a_member_is_exact_or_bad(pack_tar):
    records = [{"x": 1}] * 1000 + [{"x": BIG}]
    try:
        members = pack_tar(records, map="num=x")
    except BadSampleError:
        return
    assert list(members.values())[-1] == str(BIG).encode()


# Later misfits.

MISFITS: dict[str, tuple[Any, Any, str, str]] = {
    "text for whole": (1, "one", "int64", "str 'one'"),
    "number for whole": (1, 1.5, "int64", "float 1.5"),
    "list for whole": (1, [1], "int64", "list [1]"),
    "long for whole": (1, 2**63, "int64", str(2**63)),
    "very long for whole": (1, BIG, "int64", str(BIG)),
    "boolean for whole": (1, True, "int64", "bool True"),
    "text for number": (1.5, "x", "float64", "str 'x'"),
    "object for number": (1.5, {"a": 1}, "float64", "dict {'a': 1}"),
    "boolean for number": (1.5, True, "float64", "bool True"),
    "inexact whole for number": (1.5, 2**53 + 1, "float64", str(2**53 + 1)),
    "inexact long for number": (1.5, BIG, "float64", str(BIG)),
    "number for boolean": (True, 0.5, "uint8", "float 0.5"),
    "whole for boolean": (True, 7, "uint8", "int 7"),
    "large whole for boolean": (True, 256, "uint8", "256"),
    "text for boolean": (False, "no", "uint8", "str 'no'"),
    "whole for text": ("a", 5, "str", "int 5"),
    "object for text": ("a", {}, "str", "dict {}"),
    "null for text": ("a", None, "str", "none"),
    "null for whole": (1, None, "int", "none"),
    "nothing for text": ("a", MISSING, "str", "none"),
    "nothing for number": (0.5, MISSING, "float64", "none"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_a_later_misfit_is_a_bad_sample_that_names_field_types_and_flag(pack, case, one_sentence):
    first, later, expected, got = MISFITS[case]
    records = [record(x=first, z=i) for i in range(1000)] + [record(x=later, z=-1), record(x=first, z=-2)]
    with pytest.raises(BadSampleError) as caught:
        pack(records)
    sentence = one_sentence(caught.value)
    offset = sum(len(json.dumps(item)) + 1 for item in records[:1000])
    assert f"docs.jsonl, line 1001 (byte {offset})" in sentence
    assert "field 'x'" in sentence and f"expected {expected}" in sentence and got in sentence and "--columns x=json" in sentence
    tolerant = pack(records, max_bad="1")
    assert [reject["where"] for reject in tolerant.rejects] == [f"docs.jsonl, line 1001 (byte {offset})"]
    assert [struct.unpack("<q", row["z"])[0] for row in tolerant.rows] == [*range(1000), -2]


@pytest.mark.parametrize("case", MISFITS)
def test_the_flag_that_the_message_names_takes_the_misfit(pack, case):
    first, later, *_ = MISFITS[case]
    packed = pack([record(x=first, z=1)] * 1000 + [record(x=later, z=1)], encodings={"x": "json"})
    assert packed.rows[-1]["x"] == stored("json", later)
    assert packed.rows[0]["x"] == stored("json", first)
    assert not any(note.startswith("stored as json") for note in packed.notes)


def test_a_json_column_takes_anything_later(pack):
    values = [{"a": 1}] * 1000 + [1, "x", None, True, 2.5, [None], MISSING]
    packed = pack([record(x=value, y=0) for value in values])
    assert [row["x"] for row in packed.rows] == [stored("json", value) for value in values]


def test_a_later_unknown_field_is_a_bad_sample_that_names_it(pack, one_sentence):
    records = [{"x": 1, "y": 2}] * 1000 + [{"x": 1, "y": 2, "new": 3}, {"x": 3, "y": 4}]
    with pytest.raises(BadSampleError) as caught:
        pack(records)
    sentence = one_sentence(caught.value)
    assert "line 1001 " in sentence and "'new'" in sentence and "--map" in sentence
    tolerant = pack(records, max_bad="1")
    assert [reject["reason"] for reject in tolerant.rejects] == ["unknown-field"] and len(tolerant.rows) == 1001
    mapped = pack(records, map="x=x,y=y")
    assert len(mapped.rows) == 1002 and set(mapped.encodings) == {"key", "x", "y"}


def test_a_field_in_place_of_another_is_seen(pack):
    with pytest.raises(BadSampleError, match="'Y'"):
        pack([{"x": 1, "y": 2}] * 1000 + [{"x": 1, "Y": 2}])


def test_whole_records_may_have_any_fields(pack_tar):
    lines = [b'{"x": 1}'] * 1000 + [b'{"y":{"new":[]}}', b"{}", b'{"x":"other", "x":2}']
    assert list(pack_tar(lines).values()) == lines


# --columns.


def test_columns_may_be_given(pack):
    records = [{"score": 0.1 * i, "n": i, "flag": True, "text": "t", "v": [i, 0.5, -1], "any": [[1, 2], [3, 4]]} for i in range(5)]
    encodings = {"score": "float32", "n": "uint16", "text": "json", "v": "ndarray:float32:3", "any": "ndarray", "flag": "int"}
    packed = pack(records, encodings=encodings)
    assert packed.encodings == {"key": "str", **encodings}
    for i, row in enumerate(packed.rows):
        assert row["score"] == struct.pack("<f", 0.1 * i) and row["n"] == struct.pack("<H", i)
        assert row["flag"] == struct.pack("<q", 1) and row["text"] == b'"t"'
        assert row["v"] == struct.pack("<3f", i, 0.5, -1)
        assert row["any"] == bytes([65, 2 << 2, 2, 2]) + struct.pack("<4q", 1, 2, 3, 4)
    index_sizes = {"v": 12, "score": 4, "n": 2, "flag": 8}
    assert all(len(packed.rows[0][name]) == num_bytes for name, num_bytes in index_sizes.items())


MISFIT_OVERRIDES: dict[str, tuple[Any, str, str]] = {
    "range": (70000, "uint16", "70000"),
    "negative": (-1, "uint8", "-1"),
    "fraction": (1.5, "int", "float 1.5"),
    "too large a float": (1e39, "float32", r"1e\+39"),
    "shape": ([1, 2], "ndarray:float32:3", r"shape \(2,\)"),
    "ragged": ([[1], [2, 3]], "ndarray:int32", "of one shape"),
    "loss": ([0.5], "ndarray:int32", r"\[0.5\]"),
    "words": (["a"], "ndarray", "numbers"),
    "text": ("ÿ", "int", "str 'ÿ'"),
}


@pytest.mark.parametrize("case", MISFIT_OVERRIDES)
def test_a_value_that_the_given_type_cannot_hold_is_bad(pack, case, one_sentence):
    value, encoding, got = MISFIT_OVERRIDES[case]
    with pytest.raises(BadSampleError, match=rf"line 1 \(byte 0\).*field 'x'.*{got}") as caught:
        pack([{"x": value}], encodings={"x": encoding})
    one_sentence(caught.value)


def test_columns_nobody_has_and_types_that_do_not_exist_are_refused(pack, one_sentence):
    with pytest.raises(UsageError, match=r"--columns among x, got 'y'") as caught:
        pack([{"x": 1}], encodings={"y": "int"})
    one_sentence(caught.value)
    with pytest.raises(UsageError, match=r"expected an MDS encoding .* got 'integer'") as caught:
        pack([{"x": 1}], encodings={"x": "integer"})
    one_sentence(caught.value)
    for encoding in ("ndarray:float33", "ndarray:float32:a", "ndarray:float32:0", "ndarray:int8:3:4"):
        with pytest.raises(UsageError, match=r"ndarray|shape"):
            pack([{"x": [1]}], encodings={"x": encoding})


# --map.


def test_members_are_made_of_the_fields_that_the_map_names(pack_tar):
    records = [{"text": "é\u2028 1", "label": 3, "meta": {"a": 1}, "rest": 0}, {"text": "", "label": -4, "meta": {"b": [1.5]}}]
    members = pack_tar(records, map="txt=text,cls=label,json=meta,text.txt=text")
    assert members == {
        "docs/000000000000.cls": b"3",
        "docs/000000000000.json": b'{"a":1}',
        "docs/000000000000.text.txt": "é\u2028 1".encode(),
        "docs/000000000000.txt": "é\u2028 1".encode(),
        "docs/000000000061.cls": b"-4",
        "docs/000000000061.json": b'{"b":[1.5]}',
        "docs/000000000061.text.txt": b"",
        "docs/000000000061.txt": b"",
    }


@pytest.mark.parametrize(
    ("value", "data"),
    [(True, b"true"), (False, b"false"), (3, b"3"), (-(2**63), b"-9223372036854775808"), (1.5, b"1.5"), (0.001, b"0.001"), (3.0, b"3.0")],
)
def test_numbers_and_truth_values_become_json_text(pack_tar, value, data):
    members = pack_tar([{"x": value}], map="flag=x,x.json=x")
    assert list(members.values()) == [data, data]


def test_optional_members_may_be_missing(pack_tar):
    records = [{"a": "x", "b": {"n": 1}}, {"a": "y"}, {"a": "z", "b": None}]
    members = pack_tar(records, map="txt=a,json=b?")
    assert [(name.partition(".")[2], data) for name, data in members.items()] == [
        ("json", b'{"n":1}'),
        ("txt", b"x"),
        ("txt", b"y"),
        ("txt", b"z"),
    ]


def test_optional_text_stays_text(pack_tar):
    members = pack_tar([{"a": 1, "b": 'say "hi"'}, {"a": 2}], map="cls=a,txt=b?")
    assert [(name.partition(".")[2], data) for name, data in members.items()] == [("cls", b"1"), ("txt", b'say "hi"'), ("cls", b"2")]


def test_a_member_that_is_missing_without_a_mark_is_bad(pack_tar, one_sentence):
    with pytest.raises(BadSampleError, match=r"line 1001 .*json.*optional with \?") as caught:
        pack_tar([{"a": "x", "b": {}}] * 1000 + [{"a": "y"}], map="txt=a,json=b")
    one_sentence(caught.value)


@pytest.mark.parametrize("value", [True, 1.0, "3", None, [3]], ids=repr)
def test_a_class_is_a_whole_number_or_bad(pack_tar, value, one_sentence):
    with pytest.raises(BadSampleError, match=r"line 1001 .*cls") as caught:
        pack_tar([{"c": 1, "t": "a"}] * 1000 + [{"c": value, "t": "b"}], map="cls=c,txt=t")
    one_sentence(caught.value)


@pytest.mark.parametrize("value", [True, 1.0, "3", [3]], ids=repr)
def test_a_class_that_never_is_a_whole_number_is_bad_from_the_first_record_on(pack_tar, value, one_sentence):
    with pytest.raises(BadSampleError, match=r"line 1 .*cls") as caught:
        pack_tar([{"c": value, "t": "a"}], map="cls=c,txt=t")
    one_sentence(caught.value)


def test_a_map_renames_and_picks_columns(pack):
    packed = pack(
        [{"text": "a", "n": 1, "junk": None}, {"text": "b", "n": 2, "more": 1}], map="Body=text,n=n,again=text", encodings={"n": "int16"}
    )
    assert packed.encodings == {"Body": "str", "again": "str", "key": "str", "n": "int16"}
    assert [(row["Body"], row["again"], row["n"]) for row in packed.rows] == [(b"a", b"a", b"\1\0"), (b"b", b"b", b"\2\0")]


def test_optional_columns_are_null_or_empty_where_a_record_lacks_them(pack):
    packed = pack([{"a": 1, "b": {"x": 1}}, {"a": 2}], map="a=a,b=b?")
    assert packed.encodings["b"] == "json" and [row["b"] for row in packed.rows] == [b'{"x": 1}', b"null"]


@pytest.mark.parametrize("text", ["a", "a=", "=b", "a=b,a=c", "a=b,,c=d", ",", "a=?"])
def test_a_map_that_is_none_is_refused(text, one_sentence):
    with pytest.raises(UsageError, match=r"--map as FIELD=RECORD_FIELD,\.\.\. with every field once") as caught:
        parse_mappings(text)
    one_sentence(caught.value)


def test_a_map_of_a_field_that_no_record_has_is_refused(pack, pack_tar, one_sentence):
    for packer in (pack, pack_tar):
        with pytest.raises(UsageError, match=r"record fields among label, text, got 'txt'") as caught:
            packer([{"text": "a", "label": 1}], map="x=txt")
        one_sentence(caught.value)


@pytest.mark.parametrize("name", ["Txt", "_x", "a/b", "a..b", "ä"])
def test_a_member_name_that_readers_cannot_take_is_refused(pack_tar, name):
    with pytest.raises(UsageError, match=r"expected a tar field .* rename it with --map"):
        pack_tar([{"text": "a"}], map=f"{name}=text")


# Whole records.


def test_a_whole_record_is_its_own_bytes(pack_tar):
    lines = [b'\xef\xbb\xbf{"a": 1.0,  "b":"\\u00e9"}\r', b'  {"A":1}  ', '\t{"z":"\u2028", "z":null}'.encode(), b'{"n":1E5}']
    kept = [b'{"a": 1.0,  "b":"\\u00e9"}', *lines[1:]]
    assert list(pack_tar(lines).values()) == kept


def test_columns_beside_whole_records_are_refused(write_lines, build, tmp_path):
    with pytest.raises(UsageError, match="--columns with MDS only"):
        build(write_lines([{"a": 1}]), tmp_path / "out", source=Jsonl(), encodings={"a": "json"})


# Keys.


def test_keys_are_path_and_offset_unless_told_otherwise(write_lines, build, read_tars, tmp_path):
    write_lines([{"a": 1}, {"a": 2}], "docs.jsonl")
    write_lines([{"a": 3}, {"a": 4}], "sub/more.ndjson.gz")
    source = write_lines([{"a": 5}], "sub/deep.er/x.v2.JSONL")
    build(source, tmp_path / "out", source=Jsonl())
    assert read_tars(tmp_path / "out") == {
        "docs/000000000000.json": b'{"a": 1}',
        "docs/000000000009.json": b'{"a": 2}',
        "sub/deep=2Eer/x=2Ev2/000000000000.json": b'{"a": 5}',
        "sub/more/000000000000.json": b'{"a": 3}',
        "sub/more/000000000009.json": b'{"a": 4}',
    }


def test_keys_of_a_very_long_path_are_short_and_different(write_lines, build, read_tars, tmp_path):
    source = write_lines([{"a": i} for i in range(50)], f"{'folder-' * 20}/{'ü' * 60}.jsonl")
    build(source, tmp_path / "out", source=Jsonl())
    names = list(read_tars(tmp_path / "out"))
    assert len(names) == 50 and all(len(name) <= 85 and name.isascii() for name in names)


def test_keys_may_be_a_field(pack):
    raw = ["plain", "a/b-c_d", 12, -5, "with space", "é", "a=b", ".hidden", "a//b", "x" * 80, 0, 2**63]
    packed = pack([{"id": value, "n": i} for i, value in enumerate(raw)], key="id")
    keys = [row["key"] for row in packed.rows]
    wanted = [
        b"plain",
        b"a/b-c_d",
        b"12",
        b"=2D5",
        b"with=20space",
        b"=C3=A9",
        b"a=3Db",
        b"=2Ehidden",
        b"a/=2Fb",
        b"x" * 80,
        b"0",
        b"9223372036854775808",
    ]
    assert keys == wanted
    assert packed.encodings == {"id": "json", "key": "str", "n": "int"}
    assert any("keys escaped" in note for note in packed.notes)


def test_two_long_keys_that_differ_at_the_end_stay_two(pack):
    packed = pack([{"id": "x" * 90 + "1"}, {"id": "x" * 90 + "2"}], key="id")
    one, two = (row["key"] for row in packed.rows)
    assert one != two and len(one) <= 80 >= len(two) and one.startswith(b"xxxxxxxxxx") and b"=x" in one
    assert [row["id"] for row in packed.rows] == [b"x" * 90 + b"1", b"x" * 90 + b"2"]


@pytest.mark.parametrize("to_tar", [False, True])
@pytest.mark.parametrize(
    ("value", "got"), [("", "''"), (None, "None"), (True, "True"), (1.5, "1.5"), ([1], r"\[1\]"), (MISSING, "none")], ids=repr
)
def test_a_record_without_a_usable_key_is_bad(pack, pack_tar, value, got, to_tar, one_sentence):
    records = [record(id=f"k{i}", n=i) for i in range(3)] + [record(id=value, n=3), record(id="last", n=4)]
    packer = pack_tar if to_tar else pack
    with pytest.raises(BadSampleError, match=rf"line 4 .* in the key field 'id', got {got}") as caught:
        packer(records, key="id")
    one_sentence(caught.value)
    packed = packer(records, key="id", max_bad="1")
    assert len(packed if to_tar else packed.rows) == 4


def test_a_key_number_of_any_length_keeps_its_digits(pack):
    packed = pack([{"id": BIG}, {"id": 2**64 - 1}, {"id": -BIG}], key="id")
    assert [row["key"] for row in packed.rows] == [b"%d" % BIG, b"%d" % (2**64 - 1), b"=2D%d" % BIG]


def test_a_key_field_named_like_the_key_column_is_that_column(pack):
    packed = pack([{"key": "b c", "n": 1}, {"key": 7, "n": 2}], key="key")
    assert packed.encodings == {"key": "str", "n": "int"}
    assert [row["key"] for row in packed.rows] == [b"b=20c", b"7"]


def test_a_field_named_like_the_key_column_is_refused_with_both_ways_out(pack, one_sentence):
    with pytest.raises(UsageError, match=r"no field named 'key' .*--key-column NAME .*--key") as caught:
        pack([{"key": "a", "n": 1}])
    one_sentence(caught.value)
    with pytest.raises(UsageError, match="'key'"):
        pack([{"key": "a", "id": "b"}], key="id")
    assert pack([{"key": "a", "n": 1}], key_column="name").encodings == {"key": "str", "n": "int", "name": "str"}
    assert pack([{"key": "a", "n": 1}], key_column=None).encodings == {"key": "str", "n": "int"}
    assert pack([{"key": "a", "n": 1}], map="id=key").encodings == {"id": "str", "key": "str"}


def test_the_key_before_escaping_may_be_kept(pack, pack_tar, one_sentence):
    packed = pack([{"id": "a b"}, {"id": "é"}], key="id", keep_path=True)
    assert [(row["key"], row["path"]) for row in packed.rows] == [(b"a=20b", b"a b"), (b"=C3=A9", "é".encode())]
    assert pack_tar([{"a": 1}], keep_path=True)["docs/000000000000.path"] == b"docs/000000000000"
    with pytest.raises(UsageError, match=r"'path' beside --keep-path.*--map") as caught:
        pack([{"path": "x"}], keep_path=True)
    one_sentence(caught.value)


# Keys that occur twice.


@pytest.mark.parametrize("format_name", ["wds", "mds"])
def test_a_key_in_two_files_is_named_with_both_places(write_lines, build, tmp_path, format_name, one_sentence):
    write_lines([{"id": f"a{i}"} for i in range(10)], "a.jsonl")
    source = write_lines([{"id": f"b{i}"} for i in range(6)] + [b"", {"id": "a3"}], "sub/b.jsonl.gz")
    with pytest.raises(DuplicateKeyError) as caught:
        build(source, tmp_path / "out", format_name, source=Jsonl(key="id"))
    sentence = one_sentence(caught.value)
    assert "'a3'" in sentence and "a.jsonl, line 4 (byte 39)" in sentence and "sub/b.jsonl.gz, line 8 (byte 79)" in sentence
    assert not (tmp_path / "out" / "shardtools.manifest").exists()


def test_a_key_twice_in_one_file_is_found_across_partitions(write_lines, build, tmp_path, monkeypatch, one_sentence):
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 4096)
    numbers = random.Random(5)
    records = [{"id": i, "text": "x" * numbers.randint(0, 60)} for i in range(3000)]
    records[2871] = {"id": "17", "text": "again"}
    lengths = [len(json.dumps(item)) + 1 for item in records]
    source = write_lines(records)
    partitions: list[int] = []
    listener = Listener(on_plan=lambda planned: partitions.append(len(planned.plan.partitions)))
    with pytest.raises(DuplicateKeyError) as caught:
        build(source, tmp_path / "out", source=Jsonl(key="id"), shard_bytes=20480, listener=listener)
    assert partitions[0] > 10
    sentence = one_sentence(caught.value)
    assert "'17'" in sentence
    assert f"docs.jsonl, line 18 (byte {sum(lengths[:17])})" in sentence
    assert f"docs.jsonl, line 2872 (byte {sum(lengths[:2871])})" in sentence


def test_a_key_twice_in_one_block_is_found(pack, one_sentence):
    with pytest.raises(
        DuplicateKeyError, match=r"'x' from docs\.jsonl, line 1 \(byte 0\) and from docs\.jsonl, line 3 \(byte 24\)"
    ) as caught:
        pack([{"id": "x"}, {"id": "y"}, {"id": "x"}], key="id")
    one_sentence(caught.value)


def test_a_text_and_a_number_that_read_alike_are_one_key(pack):
    with pytest.raises(DuplicateKeyError, match="'12'"):
        pack([{"id": "12"}, {"id": 12}], key="id")


@pytest.mark.parametrize("names", [("a.jsonl", "a.jsonl.gz"), ("a.jsonl", "a.ndjson"), ("x/a.ndjson", "x/a.JSONL")])
def test_files_whose_records_would_share_keys_are_named_before_anything_is_read(write_lines, build, tmp_path, names, one_sentence):
    for name in names:
        source = write_lines([{"id": name}], name)
    with pytest.raises(DuplicateKeyError) as caught:
        build(source, tmp_path / "out", source=Jsonl())
    sentence = one_sentence(caught.value)
    assert all(name in sentence for name in names) and "--key FIELD" in sentence
    result = build(source, tmp_path / "out", source=Jsonl(key="id"))
    assert result.manifest.ledger.num_written == 2


def fields_of(members: Mapping[str, bytes]) -> set[str]:
    return {name.rpartition("/")[2].partition(".")[2] for name in members}


def test_only_mapped_fields_become_members(pack_tar):
    assert fields_of(pack_tar([{"a": "x", "b": 1}, {"a": "y", "c": 1}], map="txt=a")) == {"txt"}

"""Options that take other fields, keys or values of shards than they name."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardtools.build.order import OrderWords, order_of
from shardtools.build.run import build as build_order
from shardtools.errors import BadSampleError, UsageError
from shardtools.manifest import Manifest
from shardtools.sources import resolve_inputs

JPEG, PNG = b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n"
Pack = Callable[..., Any]


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    """``pack(source, "name", "wds", fields="jpg", where="x = 1")`` as the command line takes words."""

    def call(source: Path | str, name: str, format_: str, *, columns: str | None = None, **words: str) -> Path:
        inputs = resolve_inputs([str(source)])
        select = {name: words.pop(name) for name in ("where", "limit") if name in words}
        embed = {name: words.pop(name) for name in ("embed", "media_root") if name in words}
        of_format = {"key_column": words.pop("key_column")} if "key_column" in words else {}
        options = OrderWords(format_, "auto", of_format, words, columns, select_options=select, embed_options=embed)
        build_order(inputs, str(tmp_path / name), order_of(inputs, options))
        return tmp_path / name

    return call


def samples(count: int) -> dict[str, bytes]:
    found = {}
    for i in range(count):
        image = {f"{i:03d}.jpg": JPEG + b"%d" % i} if i % 2 else {f"{i:03d}.png": PNG + b"%d" % i}
        record = {"id": i, "name": f"n {i}", "in": {"x": i * 1.5}, "maybe": None if i % 3 else i}
        found |= image | {f"{i:03d}.json": json.dumps(record).encode(), f"{i:03d}.txt": b"text %d" % i, f"{i:03d}.cls": b"%d" % (i % 4)}
    return found


@pytest.fixture
def tars(tree: Any, pack: Pack) -> Path:
    return pack(tree(samples(12)), "tars", "wds")


@pytest.fixture
def rows(tars: Path, pack: Pack) -> Path:
    return pack(tars, "rows", "mds")


def columns_of(folder: Path) -> dict[str, str]:
    entry = json.loads((folder / "index.json").read_text())["shards"][0]
    return dict(zip(entry["column_names"], entry["column_encodings"], strict=True))


def test_media_of_several_kinds_are_one_column(rows: Path, read_mds_raw: Any) -> None:
    assert columns_of(rows) == {"cls": "int", "image": "bytes", "json": "json", "key": "str", "txt": "str"}
    assert [row["image"] for row in read_mds_raw(rows)] == [(JPEG if i % 2 else PNG) + b"%d" % i for i in range(12)]


def test_fields_take_some_members_and_mark_those_that_may_be_missing(tars: Path, pack: Pack, read_tars: Any, read_mds_raw: Any) -> None:
    some = pack(tars, "some", "wds", fields="jpg?,png?,txt")
    assert {name.partition(".")[2] for name in read_tars(some)} == {"jpg", "png", "txt"}
    row = read_mds_raw(pack(tars, "columns", "mds", fields="picture=jpg|png,text=txt", columns="text=bytes"))[1]
    assert row == {"key": b"001", "picture": JPEG + b"1", "text": b"text 1"}
    with pytest.raises(BadSampleError, match="'jpg' in every sample, got none"):
        pack(tars, "all", "wds", fields="jpg,txt")
    with pytest.raises(UsageError, match="'webp', which no sample has"):
        pack(tars, "none", "wds", fields="webp")


def test_map_reaches_into_the_json_of_tars(tars: Path, pack: Pack, read_mds_raw: Any, read_tars: Any) -> None:
    found = pack(tars, "mapped", "mds", map="caption=json.name,x=in.x,n=json.id,maybe=json.maybe,txt=txt")
    assert columns_of(found) == {"caption": "str", "key": "str", "maybe": "json", "n": "int", "txt": "str", "x": "float64"}
    assert read_mds_raw(found)[1]["caption"] == b"n 1" and read_mds_raw(found)[0]["maybe"] == b"0"
    members = read_tars(pack(tars, "members", "wds", map="txt=json.name,cls=json.id,json=json.in"))
    assert members["003.txt"] == b"n 3" and members["003.cls"] == b"3" and json.loads(members["003.json"]) == {"x": 4.5}
    with pytest.raises(UsageError, match=r"json\.name"):
        pack(tars, "wrong", "mds", map="a=json.wrong")


def test_map_takes_columns_and_what_is_in_their_json(tmp_path: Path, rows: Path, pack: Pack, read_mds_raw: Any, read_tars: Any) -> None:
    found = pack(rows, "mapped", "mds", map="caption=json.name,label=cls,picture=image")
    assert columns_of(found) == {"caption": "str", "key": "str", "label": "int", "picture": "bytes"}
    assert read_mds_raw(found)[5] == {"key": b"005", "caption": b"n 5", "label": (1).to_bytes(8, "little"), "picture": JPEG + b"5"}
    members = read_tars(pack(rows, "members", "wds", map="cls=cls,x=json.id"))
    assert members["007.cls"] == b"3" and members["007.x"] == b"7"
    assert columns_of(pack(tmp_path / "members", "back", "mds")) == {"cls": "int", "key": "str", "x": "int"}
    with pytest.raises(UsageError, match="'wrong'"):
        pack(rows, "wrong", "mds", map="a=wrong")


@pytest.mark.parametrize("source", ["tars", "rows"])
def test_another_key_names_the_samples(source: str, request: Any, pack: Pack, read_mds_raw: Any) -> None:
    folder = request.getfixturevalue(source)
    by_text = read_mds_raw(pack(folder, "by-text", "mds", key="json.name", keep_path=""))
    assert [(row["key"], row["path"]) for row in by_text][:2] == [(b"n=200", b"n 0"), (b"n=201", b"n 1")]
    assert [row["key"] for row in read_mds_raw(pack(folder, "by-number", "mds", key="json.id"))] == [b"%d" % i for i in range(12)]
    with pytest.raises(BadSampleError, match="key field"):
        pack(folder, "by-null", "mds", key="json.maybe")
    with pytest.raises(UsageError, match="--key"):
        pack(folder, "wrong", "mds", key="wrong")


def test_a_key_column_may_have_another_name_or_none(rows: Path, pack: Pack, read_mds_raw: Any, read_tars: Any) -> None:
    named = pack(rows, "named", "mds", key_column="uid")
    assert [row["uid"] for row in read_mds_raw(named)] == [b"%03d" % i for i in range(12)]
    again = pack(named, "again", "mds")
    assert read_mds_raw(again) == read_mds_raw(rows)
    bare = pack(rows, "bare", "mds", key_column="none")
    keys = {name.partition(".")[0] for name in read_tars(pack(bare, "counted", "wds"))}
    assert keys == {f"00000/{i:08d}" for i in range(12)}


@pytest.mark.parametrize("source", ["tars", "rows"])
@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("json.id < 3", [0, 1, 2]),
        ("id >= 10", [10, 11]),
        ("cls = 2 and in.x > 5", [6, 10]),
        ("txt = 'text 7'", [7]),
        ("name = 'n 4' or key = '009'", [4, 9]),
    ],
)
def test_samples_are_chosen_by_columns_members_and_their_json(
    source: str, where: str, kept: list[int], request: Any, pack: Pack, read_mds_raw: Any
) -> None:
    if source == "rows" and not where.startswith(("json.", "cls = 2 and json", "txt")):
        where = where.replace("id >=", "json.id >=").replace("in.x", "json.in.x").replace("name", "json.name")
    found = pack(request.getfixturevalue(source), "chosen", "mds", where=where)
    assert [row["key"] for row in read_mds_raw(found)] == [b"%03d" % i for i in kept]
    ledger = Manifest.parse((found / "shardtools.manifest").read_bytes()).ledger
    assert ledger.num_read == 12 and ledger.filters == {"where": 12 - len(kept)}


def test_a_name_that_no_sample_has_is_refused(tars: Path, rows: Path, pack: Pack, one_sentence: Any) -> None:
    for source in (tars, rows):
        with pytest.raises(UsageError) as caught:
            pack(source, "chosen", "mds", where="json.idd < 3")
        assert "'json.idd'" in one_sentence(caught.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [("tars", {"group": "file"}), ("tars", {"allow_pickle": ""}), ("rows", {"fields": "jpg"}), ("rows", {"label_from": "dir"})],
)
def test_options_of_other_sources_are_refused_by_name(source: str, words: dict[str, str], request: Any, pack: Pack) -> None:
    (name,) = words
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')}"):
        pack(request.getfixturevalue(source), "out", "mds", **words)


def test_encodings_may_be_others(rows: Path, pack: Pack, read_mds_raw: Any) -> None:
    found = pack(rows, "other", "mds", columns="cls=uint8,txt=bytes")
    assert columns_of(found)["cls"] == "uint8"
    assert [row["cls"] for row in read_mds_raw(found)] == [bytes([i % 4]) for i in range(12)]
    with pytest.raises(UsageError, match="--columns among"):
        pack(rows, "wrong", "mds", columns="label=int")
    with pytest.raises(UsageError, match="without pkl"):
        pack(rows, "pickles", "mds", columns="txt=pkl")


def test_names_that_tars_cannot_have_become_members_and_come_back(rows: Path, pack: Pack, read_mds_raw: Any, read_tars: Any) -> None:
    odd = pack(rows, "odd", "mds", map="My Image=image,B.Json=image,Class=cls")
    tars = pack(odd, "members", "wds")
    assert {name.partition(".")[2] for name in read_tars(tars)} == {"my_image", "b.json.bin", "json"}
    assert read_mds_raw(pack(tars, "back", "mds")) == read_mds_raw(odd)


def test_members_beside_those_of_columns_are_columns_too(tmp_path: Path, pack: Pack, read_mds_raw: Any) -> None:
    """A step may have put them there: of the columns that tars were made of they are none."""
    (tmp_path / "media").mkdir()
    (tmp_path / "media" / "a.jpg").write_bytes(JPEG)
    (tmp_path / "r.jsonl").write_text('{"id": "x", "file": "a.jpg", "n": 1}\n')
    rows = pack(tmp_path / "r.jsonl", "from-records", "mds", key="id")
    tars = pack(rows, "with-media", "wds", embed="file", media_root=str(tmp_path / "media"))
    (row,) = read_mds_raw(pack(tars, "again", "mds"))
    assert row == {"key": b"x", "id": b"x", "file": b"a.jpg", "jpg": JPEG, "n": (1).to_bytes(8, "little")}


def test_media_of_several_inputs_are_below_their_own(tmp_path: Path, ustar: Any, read_mds_raw: Any) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "media").mkdir(parents=True)
        (tmp_path / name / "media" / "a.jpg").write_bytes(JPEG + name.encode())
        (tmp_path / name / "s.tar").write_bytes(ustar([(f"{name}.json", b'{"file": "media/a.jpg"}')]))
    inputs = resolve_inputs([str(tmp_path / name) for name in ("two", "one")])
    options = OrderWords("mds", "wds", source_options={"map": "file=json.file"}, embed_options={"embed": "file"})
    build_order([replace(one, paths=(b"s.tar",)) for one in inputs], str(tmp_path / "out"), order_of(inputs, options))
    assert [JPEG + row["key"] in row.values() for row in read_mds_raw(tmp_path / "out")] == [True, True]

"""Words and shards that cannot give what is asked for: found out sample by sample, or never, in place of one sentence at once."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from shardtools.build.order import OrderWords, detect_source, order_of
from shardtools.build.run import build as build_order
from shardtools.errors import BadSampleError, ShardtoolsError, UsageError
from shardtools.sources import resolve_inputs
from shardtools.sources.mds import Mds
from shardtools.sources.wds import Wds

Refused = Callable[..., str]
JPEG = b"\xff\xd8\xff\xe0"
RECORDS = [{"id": i, "a": {"b": f"k{i}"}} for i in range(6)]


@pytest.fixture
def refused(tmp_path: Path, one_sentence: Any) -> Refused:
    """The one sentence in which packing these sources, with options as the command line takes them, ends."""

    def call(sources: Path | Sequence[Path], to: str = "mds", **words: str) -> str:
        given = [sources] if isinstance(sources, Path) else sources
        select = {name: words.pop(name) for name in ("where", "split", "group_by") if name in words}
        with pytest.raises(UsageError) as caught:
            inputs = resolve_inputs(list(map(str, given)))
            build_order(inputs, str(tmp_path / "out"), order_of(inputs, OrderWords(to, "auto", {}, words, select_options=select)))
        assert not (tmp_path / "out").exists() or not list((tmp_path / "out").glob("*.*"))
        return str(one_sentence(caught.value))

    return call


@pytest.fixture
def tars(tmp_path: Path, ustar: Any) -> Path:
    members = {"jpg": lambda i: JPEG + b"%d" % i, "json": lambda i: json.dumps(RECORDS[i]).encode(), "txt": lambda i: b"text %d" % i}
    return folder(tmp_path / "tars", "s-0.tar", ustar([(f"{i:03d}.{name}", of(i)) for i in range(6) for name, of in members.items()]))


@pytest.fixture
def rows(tars: Path, build: Any, tmp_path: Path) -> Path:
    build(tars, tmp_path / "rows", "mds", source=Wds())
    return tmp_path / "rows"


def folder(path: Path, name: str, data: bytes) -> Path:
    path.mkdir()
    (path / name).write_bytes(data)
    return path


@pytest.mark.parametrize("words", [{"where": "jpg = 1"}, {"split": "a=0.5,b=0.5", "group_by": "jpg"}])
def test_members_without_a_value_are_nothing_to_choose_by(words: dict[str, str], tars: Path, rows: Path, refused: Refused) -> None:
    assert "'jpg' in the first records, got a, id, json, key, txt; name one of these" in refused(tars, **words)
    assert "'jpg' in the first records, got a, id, json, key, txt; name one of these" in refused(rows, "wds", **words)


def test_what_cannot_be_a_key_is_refused_before_any_sample_is(tars: Path, rows: Path, refused: Refused) -> None:
    assert "in --key, or a field of JSON, got .jpg" in refused(tars, key="jpg")
    assert "in --key, among json, txt, json.id, json.a, got 'jpg'" in refused(rows, key="jpg")
    for source, columns in ((tars, "jpg, json, txt, json.id, json.a"), (rows, "json, txt, json.id, json.a")):
        for name in ("json.c", "a.c", "json.a.c"):
            assert f"in --key, among {columns}, got {name!r}" in refused(source, key=name)
    assert "in --map, among jpg, json, txt, json.id, json.a, got 'json.c'" in refused(rows, map="x=json.c")


def test_a_dotted_key_leads_into_the_record_of_tars_and_of_rows(
    tars: Path, rows: Path, build: Any, tmp_path: Path, read_mds_raw: Any
) -> None:
    for name in ("a.b", "json.a.b"):
        for source, made in ((tars, Wds(key=name)), (rows, Mds(key=name))):
            build(source, tmp_path / "keyed", "mds", source=made, overwrite=True)
            assert [row["key"] for row in read_mds_raw(tmp_path / "keyed")] == [b"k%d" % i for i in range(6)]


def test_a_key_of_half_a_character_is_a_bad_sample(tmp_path: Path, ustar: Any, build: Any) -> None:
    source = folder(tmp_path / "half", "s.tar", ustar([("0.json", b'{"id": "x"}'), ("1.json", b'{"id": "\\ud800"}')]))
    with pytest.raises(BadSampleError, match=r"sample 1: expected text or a whole number in the key field 'json.id'"):
        build(source, tmp_path / "out", "wds", source=Wds(key="id"))


@pytest.mark.parametrize(("name", "text"), [("index.json", '{"shards": [], "version": 2}'), ("shardtools.manifest", "{}")])
def test_what_describes_shards_is_no_file_to_pack(name: str, text: str, tmp_path: Path, refused: Refused, tars: Path) -> None:
    empty = folder(tmp_path / "empty", name, text.encode())
    assert f"expected shards with samples, got {empty}/{name} and none that it describes" in refused(empty)
    assert f"got {empty}/{name}" in refused(empty / name)
    # Beside data that is named too it is what it always was.
    assert detect_source(resolve_inputs([str(empty), str(tars)])) == "wds"


def test_an_index_that_is_no_json_can_be_made_anew(rows: Path, refused: Refused) -> None:
    (rows / "index.json").write_text('{"shards": [')
    (rows / "shardtools.manifest").unlink()
    sentence = refused(rows, "wds")
    assert f"{rows}, got index.json with this fault: expected JSON text" in sentence
    assert sentence.endswith(f"make it anew with shardtools index {rows}")


def test_an_encoding_of_another_program_is_named_with_its_column(rows: Path, refused: Refused, read_mds_raw: Any) -> None:
    (rows / "shardtools.manifest").unlink()
    for path in (rows / "index.json", rows / "shard.00000.mds"):
        path.write_bytes(path.read_bytes().replace(b'"jpeg"', b'"webm"'))
    assert f"got 'jpg' of 'webm' in {rows}; --columns jpg=bytes" in refused(rows)
    inputs = resolve_inputs([str(rows)])
    build_order(inputs, f"{rows}-bytes", order_of(inputs, OrderWords("mds", columns="jpg=bytes")))
    assert read_mds_raw(Path(f"{rows}-bytes"))[5]["jpg"] == JPEG + b"5"
    with pytest.raises(UsageError, match="got 'webm' for the column 'txt'; choose another with --columns txt=ENCODING"):
        build_order(inputs, f"{rows}-out", order_of(inputs, OrderWords("mds", columns="jpg=bytes,txt=webm")))


def test_a_source_that_grew_is_told_how_to_add_what_is_new(tars: Path, rows: Path, build: Any, one_sentence: Any) -> None:
    (tars / "s-1.tar").write_bytes((tars / "s-0.tar").read_bytes())
    with pytest.raises(UsageError, match=r"1 input added: s-1\.tar; .* put the two together with shardtools merge$") as caught:
        build(tars, rows, "mds", source=Wds())
    one_sentence(caught.value)
    (tars / "s-0.tar").unlink()
    with pytest.raises(UsageError, match=r"or --overwrite to replace it$"):
        build(tars, rows, "mds", source=Wds())


def test_a_value_that_its_member_cannot_hold_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text('{"id": "a"}\n')
    inputs = resolve_inputs([str(tmp_path / "r.jsonl")])
    with pytest.raises(ShardtoolsError, match=r"from \.id, got str 'a'; correct it, or choose a member of another name with --map"):
        build_order(inputs, str(tmp_path / "out"), order_of(inputs, OrderWords("wds", source_options={"map": "id=id"})))

"""Stops lines of JSON files that are lost, doubled, cut or misplaced, whatever the window, the block, the compression or the damage."""

import gzip
import io
import itertools
import json
import os
import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtools.errors import BadSampleError, StorageError
from shardtools.extents import extent
from shardtools.sample import Reject
from shardtools.sources import _lines, _streams
from shardtools.sources._record_layout import RecordLayout
from shardtools.sources.jsonl import Jsonl

WHOLE_FILE = -1
BOM = b"\xef\xbb\xbf"
NEWLINE = b"\n"
AS_THEY_ARE = RecordLayout(None, (), None, keep_record=True, keep_path=False, exact=())
"""Every record is one field ``json``, its own bytes, and its key ends in its byte offset."""

SMALL = b"".join(
    [
        BOM + '{"a": "é画😀"}\r\n'.encode(),
        b"\r\n",
        '{"b": "x\u2028y\u2029z\x85"}\n'.encode(),
        b"  \t \n",
        b'{"c":1}\n',
        b"\n",
        b"\n",
        '{"d": "ü\\n\\u2028"}'.encode(),
    ]
)
assert b"\xe2\x80\xa8" in SMALL


class Line(NamedTuple):
    offset: int
    data: bytes


class Found(NamedTuple):
    lines: list[Line]
    rejects: list[Reject]


def deliver(folder: Path, name: str, begin: int = 0, end: int = WHOLE_FILE, max_line_bytes: int = 1 << 29) -> Found:
    """What the source gives for one window of a file."""
    file_bytes = (folder / name).stat().st_size
    numbers = [b"%d" % number for number in (begin, end, file_bytes)]
    packed = extent([b"one", b"0", name.encode(), *numbers], b"1")
    lines: list[Line] = []
    rejects: list[Reject] = []
    source = Jsonl(max_line_bytes=max_line_bytes, layout=AS_THEY_ARE)
    for batch in source.read([str(folder)], [packed], rejects.append):
        for key, data in zip(batch.keys, batch.columns["json"], strict=True):
            lines.append(Line(int(key.rpartition(b"/")[2]), data))
    return Found(lines, rejects)


def expected_lines(text: bytes) -> list[Line]:
    """Every line that is not blank, without byte order mark and carriage return, by splitting the whole text."""
    found, offset = [], 0
    for line in text.split(b"\n"):
        data = line.removesuffix(b"\r")
        if offset == 0:
            data = data.removeprefix(BOM)
        if data.strip(b" \t\r\n"):
            found.append(Line(offset, data))
        offset += len(line) + 1
    return found


def write(folder: Path, name: str, data: bytes) -> Path:
    (folder / name).write_bytes(data)
    return folder


# Windows.


def test_the_small_text_is_what_the_tests_below_need():
    assert [line.offset for line in expected_lines(SMALL)] == [0, 25, 51, 61]
    assert all(isinstance(json.loads(line.data), dict) for line in expected_lines(SMALL))


@pytest.mark.parametrize("block_bytes", [1, 5, 4 << 20])
def test_every_cut_of_a_file_gives_every_line_once_with_its_offset(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(_lines, "BLOCK_BYTES", block_bytes)
    write(tmp_path, "f.jsonl", SMALL)
    lines = expected_lines(SMALL)
    cuts = range(len(SMALL) + 1)
    windows = [(begin, end) for begin in cuts for end in cuts if begin <= end] + [(begin, WHOLE_FILE) for begin in cuts]
    for begin, end in windows:
        found = deliver(tmp_path, "f.jsonl", begin, end)
        assert found.lines == [line for line in lines if begin <= line.offset and (end == WHOLE_FILE or line.offset < end)], (begin, end)
        assert found.rejects == []


objects = st.dictionaries(
    st.text(max_size=4), st.none() | st.integers() | st.text(max_size=12) | st.lists(st.text(max_size=3), max_size=2), max_size=3
)
records = objects.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")).filter(
    lambda data: not any(0xD800 <= ord(c) <= 0xDFFF for c in data.decode("utf-8", "surrogatepass"))
)
blanks = st.sampled_from([b"", b" ", b"\t\t", b"   "])
texts = st.builds(
    lambda bom, lines, last: bom + b"".join(line + end for line, end in lines) + last,
    st.sampled_from([b"", BOM]),
    st.lists(st.tuples(records | blanks, st.sampled_from([b"\n", b"\r\n"])), max_size=8),
    st.just(b"") | records,
)


@settings(max_examples=150, deadline=None)
@given(text=texts, data=st.data())
def test_any_text_in_any_windows_and_blocks_gives_every_line_once(tmp_path_factory, text, data):
    folder = tmp_path_factory.getbasetemp()
    write(folder, "any.jsonl", text)
    inner = data.draw(st.lists(st.integers(0, len(text)), max_size=5).map(sorted))
    found: list[Line] = []
    sizes = {"BLOCK_BYTES": data.draw(st.integers(1, 40)), "_BLOCK_LINES": data.draw(st.integers(1, 4))}
    with mock.patch.multiple(_lines, **sizes):
        for begin, end in itertools.pairwise([0, *inner, WHOLE_FILE]):
            window = deliver(folder, "any.jsonl", begin, end)
            assert window.rejects == []
            assert all(begin <= line.offset and (end == WHOLE_FILE or line.offset < end) for line in window.lines)
            found += window.lines
    assert found == expected_lines(text)


def test_a_whole_file_larger_than_a_block_is_read_as_it_is(tmp_path):
    numbers = random.Random(3)
    rows = [json.dumps({"id": i, "text": "é" * numbers.randint(0, 400)}, ensure_ascii=False).encode() for i in range(15_000)]
    text = b"\n".join(rows) + b"\n"
    assert len(text) > 5 << 20
    found = deliver(write(tmp_path, "f.jsonl", text), "f.jsonl")
    assert found.lines == expected_lines(text)
    middle = len(text) // 2
    halves = deliver(tmp_path, "f.jsonl", 0, middle).lines + deliver(tmp_path, "f.jsonl", middle).lines
    assert halves == found.lines


@pytest.mark.parametrize("text", [b"", b"\n", b"\r\n\n  \n", BOM, BOM + b"\n"], ids=repr)
def test_a_file_without_records_gives_none(tmp_path, text):
    assert deliver(write(tmp_path, "f.jsonl", text), "f.jsonl") == Found([], [])


def test_a_file_that_changed_its_size_after_planning_stops_the_run(tmp_path):
    write(tmp_path, "f.jsonl", b'{"a":1}\n')
    packed = extent([b"one", b"0", b"f.jsonl", b"0", b"-1", b"7"], b"1")
    with pytest.raises(StorageError, match=r"expected f\.jsonl to keep the 7 bytes .* got 8"):
        list(Jsonl(layout=AS_THEY_ARE).read([str(tmp_path)], [packed], lambda _: None))


# Compression.

TEXT = b"".join(b'{"id": %d, "text": "%s"}\r\n' % (i, "é\u2028".encode() * (i % 9)) for i in range(60)) + b'{"last": true}'
FIRST, SECOND, THIRD = TEXT[:700], TEXT[700:701], TEXT[701:]
assert not FIRST.endswith(b"\n") and not SECOND.endswith(b"\n")


def gz_named(data: bytes) -> bytes:
    """One member whose header holds a file name, a comment and a time."""
    body = zlib.compressobj(9, zlib.DEFLATED, -15)
    deflated = body.compress(data) + body.flush()
    header = b"\x1f\x8b\x08\x18" + struct.pack("<I", 1_700_000_000) + b"\x02\x03" + b"a name.jsonl\0" + b"a comment\0"
    return header + deflated + struct.pack("<II", zlib.crc32(data), len(data))


def zst(data: bytes, with_size: bool = True, checksum: bool = False) -> bytes:
    if with_size:
        return zstandard.ZstdCompressor(write_checksum=checksum).compress(data)
    body = zstandard.ZstdCompressor(write_checksum=checksum).compressobj()
    return body.compress(data) + body.flush()


def skippable(payload: bytes) -> bytes:
    """Source: RFC 8878, section 3.1.2."""
    return struct.pack("<II", 0x184D2A50, len(payload)) + payload


STREAMS = {
    "one member.gz": gzip.compress(TEXT, mtime=0),
    "members cut inside lines.gz": b"".join(gzip.compress(part, mtime=0) for part in (FIRST, SECOND, THIRD)),
    "an empty member.gz": gzip.compress(FIRST) + gzip.compress(b"") + gzip.compress(SECOND + THIRD),
    "zeros at the end.gz": gzip.compress(TEXT) + bytes(1000),
    "zeros between members.gz": gzip.compress(FIRST) + bytes(77) + gzip.compress(SECOND + THIRD) + bytes(1),
    "a name in the header.gz": gz_named(TEXT),
    "stored.gz": gzip.compress(TEXT, 0),
    "capitals.GZ": gzip.compress(TEXT),
    "one frame.zst": zst(TEXT),
    "no content size.zst": zst(TEXT, with_size=False),
    "frames cut inside lines.zst": zst(FIRST) + zst(SECOND, with_size=False) + zst(THIRD, checksum=True),
    "an empty frame.zst": zst(b"") + zst(FIRST) + zst(b"", with_size=False) + zst(SECOND + THIRD),
    "a skippable frame first.zst": skippable(b"a note") + zst(TEXT),
    "a skippable frame between.zst": zst(FIRST) + skippable(b"") + zst(SECOND + THIRD),
    "a skippable frame last.zst": zst(TEXT) + skippable(bytes(500)),
    "capitals.ZST": zst(TEXT),
}


@pytest.mark.parametrize("compressed_bytes", [1, 7, 16 << 10])
@pytest.mark.parametrize("name", STREAMS)
def test_a_compressed_file_gives_the_lines_of_its_text(tmp_path, monkeypatch, name, compressed_bytes):
    monkeypatch.setattr(_streams, "_COMPRESSED_BYTES", compressed_bytes)
    monkeypatch.setattr(_lines, "BLOCK_BYTES", 100)
    found = deliver(write(tmp_path, name, STREAMS[name]), name)
    assert found.rejects == []
    assert found.lines == expected_lines(TEXT)


@pytest.mark.parametrize("block_bytes", [1, 100, 4 << 20])
@pytest.mark.parametrize("name", ["members cut inside lines.gz", "frames cut inside lines.zst"])
def test_windows_of_a_compressed_file_are_offsets_of_its_text(tmp_path, monkeypatch, name, block_bytes):
    monkeypatch.setattr(_lines, "BLOCK_BYTES", block_bytes)
    write(tmp_path, name, STREAMS[name])
    lines = expected_lines(TEXT)
    starts = [lines[i].offset for i in (0, 1, 17, 18, 59, 60)]
    for begin, end in itertools.combinations([*starts, WHOLE_FILE], 2):
        found = deliver(tmp_path, name, begin, end).lines
        assert found == [line for line in lines if begin <= line.offset and (end == WHOLE_FILE or line.offset < end)], (begin, end)


@pytest.mark.parametrize("name", ["empty.jsonl.gz", "empty.jsonl.zst"])
def test_an_empty_compressed_file_holds_nothing(tmp_path, name):
    assert deliver(write(tmp_path, name, b""), name) == Found([], [])


# Damage.


def sure_lines(decoder: Any, damaged: bytes) -> tuple[list[Line], bytes]:
    """The whole lines of what a decoder gets out of the bytes before the damage, and all of it."""
    text = decoder.decompress(damaged)
    return [line for line in expected_lines(TEXT) if line.offset + len(line.data) + 1 < len(text)], text


def gz_decoder() -> Any:
    return zlib.decompressobj(31)


def zst_decoder() -> Any:
    return zstandard.ZstdDecompressor().decompressobj()


def assert_one_damage(found: Found, name: str, text: bytes | None = None) -> None:
    """``text`` is what comes before the damage."""
    assert [reject.reason for reject in found.rejects] == ["damaged-stream"]
    where, sentence = found.rejects[0].where, found.rejects[0].sentence
    assert where.startswith(f"{name}, line ") and "compressed stream" in sentence and "rest of this file is not read" in sentence
    if text is not None:
        num_text_bytes = len(text)
        assert where == f"{name}, line {text.count(NEWLINE) + 1} (byte {num_text_bytes})"
        assert f"after {num_text_bytes} bytes" in found.rejects[0].sentence


@pytest.mark.parametrize(
    ("name", "data", "decoder"), [("f.jsonl.gz", gzip.compress(TEXT, mtime=0), gz_decoder), ("f.jsonl.zst", zst(TEXT), zst_decoder)]
)
def test_a_file_cut_anywhere_gives_every_whole_line_before_and_one_reject(tmp_path, name, data, decoder: Callable[[], Any]):
    for end in range(1, len(data)):
        found = deliver(write(tmp_path, name, data[:end]), name)
        lines, text = sure_lines(decoder(), data[:end])
        assert found.lines == lines, end
        assert_one_damage(found, name, text)


@pytest.mark.parametrize(
    ("name", "first", "rest"),
    [("f.jsonl.gz", gzip.compress(FIRST), gzip.compress(SECOND + THIRD)), ("f.jsonl.zst", zst(FIRST), zst(SECOND + THIRD))],
)
def test_a_cut_in_a_later_member_keeps_the_earlier_ones(tmp_path, name, first, rest):
    for end in (1, 2, 5, len(rest) - 1):
        found = deliver(write(tmp_path, name, first + rest[:end]), name)
        whole = [line for line in expected_lines(TEXT) if line.offset + len(line.data) + 1 < len(FIRST)]
        assert len(whole) > 10 and found.lines[: len(whole)] == whole
        assert_one_damage(found, name)


def large_text() -> bytes:
    """Text that needs many reads of the compressed file."""
    numbers = random.Random(11)
    return b"".join(b'{"id": %d, "noise": "%s"}\n' % (i, numbers.randbytes(60).hex().encode()) for i in range(4000))


@pytest.mark.parametrize("part", [0.0005, 0.02, 0.5, 0.97])
@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_overwritten_bytes_lose_no_line_that_lies_before_them(tmp_path, kind, part):
    text = large_text()
    data = gzip.compress(text, mtime=0) if kind == "gz" else zst(text, checksum=True)
    at = max(int(len(data) * part), 30)
    damaged = data[:at] + b"\xff" * 64 + data[at + 64 :]
    name = f"f.jsonl.{kind}"
    found = deliver(write(tmp_path, name, damaged), name)
    sure_text = (gz_decoder() if kind == "gz" else zst_decoder()).decompress(data[:at])
    sure = [line for line in expected_lines(text) if line.offset + len(line.data) < len(sure_text)]
    assert [reject.where.partition(",")[0] for reject in found.rejects if reject.reason == "damaged-stream"] == [name]
    assert len(found.lines) >= len(sure)
    assert found.lines[: len(sure)] == sure


@pytest.mark.parametrize("name", ["f.jsonl.gz", "f.jsonl.zst"])
def test_a_wrong_checksum_at_the_end_loses_no_line(tmp_path, name):
    data = bytearray(gzip.compress(TEXT) if name.endswith("gz") else zst(TEXT, checksum=True))
    data[-8 if name.endswith("gz") else -1] ^= 1
    found = deliver(write(tmp_path, name, bytes(data)), name)
    assert_one_damage(found, name)
    assert found.lines == expected_lines(TEXT)[:-1] or found.lines == expected_lines(TEXT)


@pytest.mark.parametrize("name", ["f.jsonl.gz", "f.jsonl.zst"])
def test_garbage_after_the_last_member_is_one_reject(tmp_path, name):
    data = gzip.compress(TEXT + b"\n") if name.endswith("gz") else zst(TEXT + b"\n")
    found = deliver(write(tmp_path, name, data + b"this is no member"), name)
    assert_one_damage(found, name)
    assert found.lines == expected_lines(TEXT)


@pytest.mark.parametrize("name", ["f.jsonl.gz", "f.jsonl.zst"])
def test_a_plain_file_with_a_compressed_name_is_one_reject(tmp_path, name):
    found = deliver(write(tmp_path, name, TEXT), name)
    assert_one_damage(found, name, b"")
    assert found.lines == []


def test_a_frame_with_a_window_no_reader_takes_says_how_to_compress(tmp_path):
    """Such a file is sound, so restoring it would not help."""
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=28, enable_ldm=True)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = zst(b'{"a": 1}\n{"b"') + stream.compress(b": 2}") + stream.flush()
    found = deliver(write(tmp_path, "f.jsonl.zst", packed), "f.jsonl.zst")
    assert found.lines == [Line(0, b'{"a": 1}')]
    (reject,) = found.rejects
    assert (reject.reason, reject.where) == ("window-too-large", "f.jsonl.zst, line 2 (byte 13)")
    assert "recompress the file without --long" in reject.sentence and "restore" not in reject.sentence


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_build_sets_a_damaged_rest_aside_within_the_budget(tmp_path, build, read_tars, kind):
    data = gzip.compress(large_text()) if kind == "gz" else zst(large_text())
    cut = data[: len(data) // 2]
    source = tmp_path / "src"
    source.mkdir()
    write(source, f"docs.jsonl.{kind}", cut)
    write(source, "next.jsonl", b'{"id": -1}\n')
    with pytest.raises(BadSampleError, match=rf"docs\.jsonl\.{kind}.* damaged after \d+ bytes of text"):
        build(source, tmp_path / "none", source=Jsonl())
    result = build(source, tmp_path / "out", source=Jsonl(), max_bad="1")
    text = (gz_decoder() if kind == "gz" else zst_decoder()).decompress(cut)
    lines = text.split(b"\n")[:-1]
    assert 1000 < len(lines) < 3000
    assert result.manifest.ledger.rejects == {"damaged-stream": 1}
    assert list(read_tars(tmp_path / "out").values()) == [*lines, b'{"id": -1}']


# Long lines.


@pytest.mark.parametrize("block_bytes", [1, 64, 4 << 20])
@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
def test_a_line_above_the_limit_is_rejected_and_the_next_one_is_right(tmp_path, monkeypatch, block_bytes, compression):
    monkeypatch.setattr(_lines, "BLOCK_BYTES", block_bytes)
    filler = [b'{"a":"%s"}' % (b"x" * (length - 8)) for length in (99, 100, 101, 100, 5000)]
    assert list(map(len, filler)) == [99, 100, 101, 100, 5000]
    text = b"\n".join([*filler, b'{"after":1}', b'{"x":"%s"}' % (b"y" * 300)])
    packed = {"": text, ".gz": gzip.compress(text), ".zst": zst(text)}[compression]
    name = "f.jsonl" + compression
    found = deliver(write(tmp_path, name, packed), name, max_line_bytes=100)
    lines = expected_lines(text)
    assert found.lines == [lines[i] for i in (0, 1, 3, 5)]
    assert [(reject.reason, reject.where) for reject in found.rejects] == [
        ("line-too-long", f"{name}, line 3 (byte 201)"),
        ("line-too-long", f"{name}, line 5 (byte 404)"),
        ("line-too-long", f"{name}, line 7 (byte 5417)"),
    ]
    for reject in found.rejects:
        assert "100 bytes" in reject.sentence and "--max-line-bytes" in reject.sentence
        assert text[int(reject.where.rpartition(" ")[2][:-1]) :].startswith(reject.head) and 0 < len(reject.head) <= 64


@pytest.mark.parametrize("block_bytes", [1, 7, 4 << 20])
def test_windows_around_a_line_above_the_limit_reject_it_once(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(_lines, "BLOCK_BYTES", block_bytes)
    text = b'{"a":1}\n' + b'{"b":"%s"}\n' % (b"x" * 60) + b'{"c":2}\n{"d":3}'
    write(tmp_path, "f.jsonl", text)
    long, *good = [Line(8, b""), Line(0, b'{"a":1}'), Line(77, b'{"c":2}'), Line(85, b'{"d":3}')]
    assert text.index(b'{"c"') == 77
    for begin in range(len(text) + 1):
        for end in (*range(begin, len(text) + 1, 3), WHOLE_FILE):
            found = deliver(tmp_path, "f.jsonl", begin, end, max_line_bytes=40)
            inside = [line for line in [*good, long] if begin <= line.offset and (end == WHOLE_FILE or line.offset < end)]
            assert found.lines == [line for line in inside if line is not long], (begin, end)
            wanted = ["f.jsonl, line 2 (byte 8)"] * (long in inside)
            assert [reject.where for reject in found.rejects] == wanted, (begin, end)


@pytest.mark.parametrize("compression", ["", ".gz"])
def test_a_line_above_the_limit_is_never_held_in_memory(tmp_path, compression):
    length = 96 << 20
    name = "f.jsonl" + compression
    with gzip.open(tmp_path / name, "wb", compresslevel=1) if compression else open(tmp_path / name, "wb") as file:
        file.write(b'{"a":"')
        for _ in range(length >> 20):
            file.write(b"x" * (1 << 20))
        file.write(b'"}\n{"next":1}\n')
    tracemalloc.start()
    try:
        found = deliver(tmp_path, name, max_line_bytes=1 << 20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.lines == [Line(length + 9, b'{"next":1}')]
    assert [reject.reason for reject in found.rejects] == ["line-too-long"]
    assert peak < 32 << 20


@pytest.mark.slow
def test_a_line_of_200_megabytes_is_a_sample_like_any_other(tmp_path, build, read_mds_raw):
    source = tmp_path / "src"
    source.mkdir()
    line = b'{"text": "%s", "id": 7}' % (b"0123456789abcde\xc3\xa9 " * (200_000_000 // 18))
    assert len(line) > 199_000_000
    with open(source / "f.jsonl", "wb") as file:
        file.writelines([b'{"text": "before", "id": 6}\n', line, b'\n{"text": "after", "id": 8}\n'])
    build(source, tmp_path / "out", "mds", source=Jsonl(), shard_bytes=1 << 30)
    rows = read_mds_raw(tmp_path / "out")
    assert [len(row["text"]) for row in rows] == [6, len(line) - 21, 5]
    assert rows[1]["text"] == line[10:-11] and rows[1]["id"] == struct.pack("<q", 7)


# Places in messages.


def bad_places(text: bytes) -> list[tuple[int, int]]:
    """Line number and byte offset of every line that is not blank, counted over the whole text."""
    numbered, offset = [], 0
    for number, line in enumerate(text.split(b"\n"), 1):
        if line.removeprefix(BOM).strip(b" \t\r\n"):
            numbered.append((number, offset))
        offset += len(line) + 1
    return numbered


BAD_TEXT = b"first\n\nthird\r\n \n5\n\xff sixth\n\n\n[9]\n{10\n11"


@pytest.mark.parametrize("block_lines", [1, 2, 16 << 10])
@pytest.mark.parametrize("block_bytes", [1, 5, 4 << 20])
def test_messages_in_any_window_count_lines_and_bytes_from_the_beginning_of_the_file(tmp_path, monkeypatch, block_bytes, block_lines):
    monkeypatch.setattr(_lines, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(_lines, "_BLOCK_LINES", block_lines)
    write(tmp_path, "f.jsonl", BAD_TEXT)
    places = bad_places(BAD_TEXT)
    assert [number for number, _ in places] == [1, 3, 5, 6, 9, 10, 11]
    for begin in range(len(BAD_TEXT) + 1):
        for end in (*range(begin, len(BAD_TEXT) + 1), WHOLE_FILE):
            wanted = [f"f.jsonl, line {n} (byte {at})" for n, at in places if begin <= at and (end == WHOLE_FILE or at < end)]
            assert [reject.where for reject in deliver(tmp_path, "f.jsonl", begin, end).rejects] == wanted, (begin, end)


@pytest.mark.parametrize("name", ["f.jsonl.gz", "f.jsonl.zst"])
def test_messages_of_compressed_files_count_in_the_text(tmp_path, monkeypatch, name):
    monkeypatch.setattr(_lines, "BLOCK_BYTES", 7)
    data = gzip.compress(BAD_TEXT[:9]) + gzip.compress(BAD_TEXT[9:]) if name.endswith("gz") else zst(BAD_TEXT[:9]) + zst(BAD_TEXT[9:])
    write(tmp_path, name, data)
    places = bad_places(BAD_TEXT)
    for i in range(len(places)):
        wanted = [f"{name}, line {n} (byte {at})" for n, at in places[i:]]
        assert [reject.where for reject in deliver(tmp_path, name, places[i][1]).rejects] == wanted


@pytest.mark.parametrize("text", [BOM + BAD_TEXT, BOM + b"{}\n\n{}\nbad\n{}\nworse"], ids=["bad lines", "good and bad lines"])
def test_a_byte_order_mark_moves_no_line_number(tmp_path, text):
    write(tmp_path, "f.jsonl", text)
    wanted = [f"f.jsonl, line {n} (byte {at})" for n, at in bad_places(text) if not text[at:].removeprefix(BOM).startswith(b"{}")]
    assert [reject.where for reject in deliver(tmp_path, "f.jsonl").rejects] == wanted


def test_a_name_that_is_no_utf8_is_shown_with_escapes(tmp_path):
    with open(bytes(tmp_path) + b"/\xff.jsonl", "wb") as file:
        file.write(b"bad\n")
    packed = extent([b"one", b"0", b"\xff.jsonl", b"0", b"-1", b"4"], b"1")
    rejects: list[Reject] = []
    assert list(Jsonl(layout=AS_THEY_ARE).read([str(tmp_path)], [packed], rejects.append)) == []
    assert [reject.where for reject in rejects] == ["\\xff.jsonl, line 1 (byte 0)"]


@pytest.mark.parametrize("end", [500_000, 500_001, 5_000_000, 2 * 4_194_304])
def test_little_is_read_beyond_a_window(tmp_path, monkeypatch, end):
    """Its last line ends there, and lines of 50 bytes need no block of 4 MiB for that."""
    (tmp_path / "a.jsonl").write_bytes(b'{"number": "%035d"}\n' % 7 * 400_000)
    num_read = [0]
    real_read = io.FileIO.read

    class Counted(io.FileIO):
        def read(self, size=-1):
            data = real_read(self, size)
            num_read[0] += len(data)
            return data

    @contextmanager
    def opened(root, window, _):
        with Counted(f"{root}/{os.fsdecode(window.path)}") as file:
            yield file

    monkeypatch.setattr(_lines, "opened", opened)
    window = _streams.Window(b"a.jsonl", 0, end, 20_000_000)
    lines = sum(len(block.lines) for block in _lines.line_blocks(str(tmp_path), window, 1 << 20))
    assert lines == -(-end // 50)
    assert end <= num_read[0] <= end + 65_536

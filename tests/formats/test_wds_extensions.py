"""Extension headers that the quick look at a tar passes over though they change what lies behind them, or a member that goes with them."""

import io
import tarfile
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from shardtools.formats import Audit, UnprovenError, _wds_columns, split_names
from shardtools.formats.wds import Wds

Make = Callable[..., bytes]


def archive(count: int, headers: Sequence[dict[str, str]] = ({"mtime": "1700000000.25"},), begin: int = 0) -> bytes:
    """Two members a sample, each with an extension header of the records that come round in turn."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for i in range(count):
            for j, field in enumerate(("bin", "txt")):
                info = tarfile.TarInfo(f"s{begin + i:03d}.{field}")
                info.size = 37 * i
                info.pax_headers = headers[(2 * i + j) % len(headers)]
                tar.addfile(info, io.BytesIO(bytes([i]) * info.size))
    return buffer.getvalue()


def refuse(fault: Any) -> None:
    raise AssertionError(fault)


def quick(shard: bytes) -> list[tuple[str, int, dict[str, bytes]]]:
    found = []
    for columns in Wds().columns(memoryview(shard), Audit(refuse)):
        for i, key in enumerate(columns.keys):
            names = split_names(columns.field_sets[i])
            spans = zip(columns.begins[columns.firsts[i] :], columns.ends[columns.firsts[i] :], strict=True)
            values = {name: shard[a:b] for name, (a, b) in zip(names, spans, strict=False)}
            found.append((key.decode(), columns.offsets[i], values))
    return found


def slow(shard: bytes) -> list[tuple[str, int, dict[str, bytes]]]:
    samples = Wds().audit(memoryview(shard), Audit(refuse))
    return [(sample.key, sample.offset, {name: bytes(value) for name, value in sample.values.items()}) for sample in samples]


@pytest.mark.parametrize("window", [8, 9, 1 << 14])
@pytest.mark.parametrize(
    "headers",
    [
        [{"mtime": "1700000000.25"}],
        [{"mtime": "1.5", "uname": "someone", "comment": "a = b"}],
        [{}, {"mtime": "2.5"}, {}],
    ],
)
def test_times_and_owners_change_nothing(headers: Any, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wds_columns, "_WINDOW_BLOCKS", window)
    shard = archive(40, headers)
    found = quick(shard)
    assert found == slow(shard)
    with tarfile.open(fileobj=io.BytesIO(shard)) as tar:
        expected = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    assert {f"{key}.{name}": data for key, _, values in found for name, data in values.items()} == expected


@pytest.mark.parametrize(
    "record", [{"path": "other.bin"}, {"size": "5"}, {"linkpath": "x"}, {"GNU.sparse.major": "1"}, {"hdrcharset": "BINARY"}]
)
def test_what_says_more_is_left_to_the_slow_look(record: dict[str, str]) -> None:
    for headers in ([record], [{"mtime": "1.5"} | record], [{"mtime": "1.5"}, record]):
        with pytest.raises(UnprovenError):
            quick(archive(6, headers))


@pytest.mark.train
def test_the_library_that_writes_them_is_read_quickly(webdataset: Any, tmp_path: Any) -> None:
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as sink:
        for i in range(30):
            sink.write({"__key__": f"{i:03d}", "txt": f"text {i}", "cls": i})
    shard = (tmp_path / "a.tar").read_bytes()
    assert [values for _, _, values in quick(shard)] == [{"cls": b"%d" % i, "txt": b"text %d" % i} for i in range(30)]


def blocks_of(shard: bytes) -> list[bytes]:
    return [shard[i : i + 512] for i in range(0, len(shard), 512)]


@pytest.mark.parametrize("edit", ["twice", "alone at the end", "bad length", "bad checksum", "padding"])
def test_headers_that_are_not_as_they_should_be(edit: str) -> None:
    blocks = blocks_of(archive(1))
    header, records = blocks[0], blocks[1]
    if edit == "twice":
        blocks = [header, records, *blocks]
    elif edit == "alone at the end":
        end = next(i for i, block in enumerate(blocks) if not any(block))
        blocks[end:end] = [header, records]
    elif edit == "bad length":
        blocks[1] = records.replace(b"23 mtime", b"24 mtime", 1)
        assert blocks[1] != records
    elif edit == "bad checksum":
        blocks[0] = header[:100] + b"1" + header[101:]
    else:
        blocks[1] = records[:-1] + b"x"
    with pytest.raises(UnprovenError):
        quick(b"".join(blocks))


def test_an_own_shard_has_none() -> None:
    with pytest.raises(UnprovenError):
        list(Wds().columns(memoryview(archive(3)), Audit(refuse, own=True)))

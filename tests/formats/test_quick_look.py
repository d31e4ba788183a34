"""Stops a quick look that passes what the slow one would find, or that sees other samples than it.

The slow look, byte by byte, is the oracle; it has tests of its own against GNU tar and the reference readers.
"""

import io
import random
import tarfile
from typing import Any

import pytest

from shardtools.formats import Audit, UnprovenError, _wds_columns, joined_names
from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds

BLOCK = 512


def quick(format_: Any, shard: bytes, **demands: Any) -> tuple[list[tuple[Any, ...]], int]:
    """Key, offset, fields and values of every sample, and where the data end."""
    view = memoryview(shard)
    audit = Audit(lambda fault: pytest.fail(f"the quick look reports nothing, got {fault}"), **demands)
    found = []
    for columns in format_.columns(view, audit):
        assert len(columns.keys) == len(columns.offsets) == len(columns.field_sets) == len(columns.firsts) - 1
        for i, key in enumerate(columns.keys):
            spans = range(columns.firsts[i], columns.firsts[i + 1])
            values = [bytes(view[int(columns.begins[j]) : int(columns.ends[j])]) for j in spans]
            found.append((key, columns.offsets[i], columns.field_sets[i], values))
    return found, audit.data_end


def slow(format_: Any, shard: bytes, **demands: Any) -> tuple[list[tuple[Any, ...]], int, list[str]]:
    faults: list[str] = []
    audit = Audit(lambda fault: faults.append(fault.kind), **demands)
    found = [
        (
            sample.key.encode(errors="surrogateescape"),
            sample.offset,
            joined_names(list(sample.values)),
            [*map(bytes, sample.values.values())],
        )
        for sample in format_.audit(memoryview(shard), audit)
    ]
    return found, audit.data_end, faults


def agree(format_: Any, shard: bytes, **demands: Any) -> list[tuple[Any, ...]]:
    """Both looks see the same, and nothing wrong."""
    seen, end, faults = slow(format_, shard, **demands)
    assert faults == []
    assert quick(format_, shard, **demands) == (seen, end)
    return seen


def tar_of(members: list[tuple[str, bytes]], kind: int = tarfile.USTAR_FORMAT, mode: int = 0o444) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=kind) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), mode
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.fixture(params=[1 << 14, 1, 3, 64], ids=lambda blocks: f"windows of {blocks}")
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_wds_columns, "_WINDOW_BLOCKS", request.param)


def some_members(seed: int, count: int) -> list[tuple[str, bytes]]:
    source = random.Random(seed)
    sizes = [0, 1, 511, 512, 513, 5000]
    fields = ["jpg", "json", "seg.png", "txt"]
    return [
        (f"d{i % 7}/k{i:04d}.{field}", source.randbytes(source.choice(sizes)))
        for i in range(count)
        for field in fields[: source.randint(1, len(fields))]
    ]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("window")
def test_both_looks_see_the_same_tar(seed):
    shard = tar_of(some_members(seed, 60))
    assert len(agree(Wds(), shard, own=True)) == 60
    agree(Wds(), shard)
    agree(Wds(), tar_of(some_members(seed, 60), mode=0o644))


@pytest.mark.usefixtures("window")
def test_tars_within_a_tar_are_payload():
    """Whatever looks like a header inside a value is none."""
    inner = tar_of(some_members(9, 5))
    members = [("a.tar", inner), ("b.json", b"{}"), ("b.tar", inner + bytes(100)), ("c.txt", b"ustar" * 400)]
    assert [key for key, *_ in agree(Wds(), tar_of(members), own=True)] == [b"a", b"b", b"c"]


@pytest.mark.usefixtures("window")
def test_foreign_names():
    members = [("d.1/a.jpg", b"1"), ("d.1/a.txt", b"2"), ("r.3/x.5.png", b"3"), ("Ä.JPG", b"4"), ("n" * 96 + ".jpg", b"5")]
    assert [key.decode() for key, *_ in agree(Wds(), tar_of(members, tarfile.GNU_FORMAT))] == ["d.1/a", "r.3/x", "Ä", "n" * 96]


def test_an_empty_archive():
    agree(Wds(), tar_of([]))


@pytest.mark.parametrize(
    "members",
    [
        [("noextension", b"x")],
        [("a.txt", b"x"), ("a.txt", b"y")],
        [("../a.txt", b"x")],
        [("/a.txt", b"x")],
        [("b/../../a.txt", b"x")],
        [("b.txt", b"x"), ("n" * 150 + ".txt", b"x")],
    ],
    ids=lambda members: members[-1][0][:12],
)
def test_what_is_out_of_the_ordinary_is_not_proven(members):
    with pytest.raises(UnprovenError):
        quick(Wds(), tar_of(members, tarfile.PAX_FORMAT))


@pytest.mark.parametrize(
    "members", [[("_a.txt", b"x")], [("a.TXT", b"x")], [("a b.txt", b"")], [("a.x", b""), ("a.b", b"")], [("k" * 81 + ".a", b"")]]
)
def test_own_shards_hold_no_foreign_names(members):
    with pytest.raises(UnprovenError):
        quick(Wds(), tar_of(members), own=True)


def test_own_shards_have_plain_headers():
    with pytest.raises(UnprovenError):
        quick(Wds(), tar_of([("a.txt", b"x")], mode=0o644), own=True)
    with pytest.raises(UnprovenError):
        quick(Wds(), tar_of([("a.txt", b"x")]) + bytes(10240), own=True)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.usefixtures("window")
def test_no_flipped_bit_passes_outside_of_values(own):
    shard = tar_of([("a.json", b"{}"), ("a.txt", b"t" * 600), ("b.json", b"[]")])
    payload = {*range(512, 514), *range(1536, 2136), *range(3072, 3074)}
    source = random.Random(11)
    for at in source.sample(sorted(set(range(len(shard))) - payload), 400):
        damaged = bytearray(shard)
        damaged[at] ^= 1 << source.randrange(8)
        with pytest.raises(UnprovenError):
            quick(Wds(), bytes(damaged), own=own)


@pytest.mark.usefixtures("window")
def test_no_cut_passes():
    shard = tar_of(some_members(3, 6))
    end = slow(Wds(), shard)[1]
    for length in [*range(0, end, 137), end, end + BLOCK]:
        with pytest.raises(UnprovenError):
            quick(Wds(), shard[:length])


def test_a_sample_of_very_many_members_is_left_to_the_slow_look(monkeypatch):
    monkeypatch.setattr(_wds_columns, "_MAX_MEMBERS", 20)
    monkeypatch.setattr(_wds_columns, "_WINDOW_BLOCKS", 8)
    agree(Wds(), tar_of([(f"a.f{i}", b"") for i in range(15)]))
    with pytest.raises(UnprovenError):
        quick(Wds(), tar_of([(f"a.f{i}", b"") for i in range(40)]))


@pytest.fixture
def mds_shard(write_shard, rows):
    """The bytes of a shard of 50 rows with every kind of column."""

    def make(format_: Mds) -> bytes:
        keys = [b"k%03d" % i for i in range(50)]
        columns = {
            "array": [list(range(i + 1)) for i in range(50)],
            "empty": [b""] * 50,
            "image": [b"\xff\xd8\xff" + b"i" * i for i in range(50)],
            "meta": [{"i": i} for i in range(50)],
            "number": list(range(50)),
            "text": ["t" * i for i in range(50)],
        }
        encodings = {"array": "ndarray:int32", "empty": "bytes", "image": "jpeg", "meta": "json", "number": "int", "text": "str"}
        return bytes(write_shard(format_, rows(keys, columns, encodings)).data)

    return make


@pytest.mark.parametrize("chunk", [1 << 14, 7])
@pytest.mark.parametrize("key_column", ["key", None])
def test_both_looks_see_the_same_mds(mds_shard, monkeypatch, chunk, key_column):
    monkeypatch.setattr("shardtools.formats._mds_columns._CHUNK_ROWS", chunk)
    format_ = Mds(key_column=key_column)
    assert len(agree(format_, mds_shard(format_), own=True)) == 50


def test_no_damage_passes_in_mds(mds_shard):
    shard = mds_shard(Mds())
    source = random.Random(5)
    num_found = 0
    for _ in range(400):
        damaged = bytearray(shard)
        damaged[source.randrange(len(shard))] ^= 1 << source.randrange(8)
        seen, _, faults = slow(Mds(), bytes(damaged), own=True)
        if faults:
            num_found += 1
            with pytest.raises(UnprovenError):
                quick(Mds(), bytes(damaged), own=True)
        else:
            assert quick(Mds(), bytes(damaged), own=True)[0] == seen
    assert num_found > 50

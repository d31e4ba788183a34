"""MDS shards and indexes damaged under a manifest that agrees with them; stops a verify that checks as little as readers do."""

import json
import random
import struct

import numpy as np
import pytest

from shardtools.verify import VerifyOptions, verify

NAME = "shard.00001.mds"
SECONDARY = ("wrong-size", "index-contradiction", "wrong-field-sets", "wrong-offsets", "wrong-count")


@pytest.fixture
def rewrite(mds, forge, findings, mds_parts):
    """Take the shard apart, change it, write it again; say what verify finds that is no mere difference in counts and sizes."""

    def call(change):
        parts = mds_parts((mds / NAME).read_bytes())
        change(parts)
        forge(mds, NAME, parts.data())
        return [found for found in findings(mds) if found.kind not in SECONDARY]

    return call


@pytest.fixture
def damage(mds, forge, findings):
    def call(change):
        forge(mds, NAME, bytes(change(bytearray((mds / NAME).read_bytes()))))
        return [found for found in findings(mds) if found.shard == NAME and found.kind not in SECONDARY]

    return call


def only(found, kind):
    assert {finding.kind for finding in found} == {kind}, found
    return found[0]


def test_the_same_parts_again_are_sound(rewrite):
    assert rewrite(lambda _: None) == []


def put(at, value):
    def change(data):
        data[at : at + 4] = struct.pack("<I", value)
        return data

    return change


HEADER_DAMAGES = {
    "one sample fewer": lambda data: put(0, struct.unpack_from("<I", data)[0] - 1)(data),
    "four billion samples": put(0, 2**32 - 1),
    "first offset": put(4, 3),
    "offset before the last": put(8, 5),
    "offset past the end": put(8, 2**32 - 1),
    "cut by 4 bytes": lambda data: data[:-4],
    "cut in the offsets": lambda data: data[:10],
    "no bytes": lambda _: b"",
    "longer": lambda data: data + b"x",
    "twice": lambda data: data + data,
    "no JSON": lambda data: data.replace(b'{"column', b"?column", 1),
    "nested": lambda data: put(4, len(data))(data[: 8 + 4 * struct.unpack_from("<I", data)[0]] + b"[" * 100_000),
}


@pytest.mark.parametrize("change", HEADER_DAMAGES.values(), ids=HEADER_DAMAGES)
def test_a_header_that_cannot_be_right(damage, change):
    only(damage(change), "damaged-shard")


def test_damage_in_one_sample_does_not_hide_the_others(rewrite):
    def change(parts):
        parts.rows[0] = struct.pack("<I", 10**6) + parts.rows[0][4:]
        parts.rows[2] = parts.rows[2][:3]

    found = rewrite(change)
    assert [finding.kind for finding in found] == ["damaged-shard", "damaged-shard"]


def columns_of(row):
    """The variable columns array, image, key, meta and text, and the fixed column number, which lies before text."""
    lengths = struct.unpack_from("<5I", row)
    at, values = 20, []
    for length in (*lengths[:4], 8, lengths[4]):
        values.append(row[at : at + length])
        at += length
    assert at == len(row)
    return dict(zip(("array", "image", "key", "meta", "number", "text"), values, strict=True))


def row_of(columns):
    lengths = [len(columns[name]) for name in ("array", "image", "key", "meta", "text")]
    return struct.pack("<5I", *lengths) + b"".join(columns.values())


@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [
        ("text", b"\xff", "undecodable-value"),
        ("meta", b"{", "undecodable-value"),
        ("meta", b"", "undecodable-value"),
        ("meta", b"[" * 100_000, "undecodable-value"),
        ("meta", b"1" * 5000, "undecodable-value"),
        ("meta", '{"x": 1}'.encode("utf-16"), "undecodable-value"),
        ("image", b"GIF89a", "undecodable-value"),
        ("array", b"", "undecodable-value"),
        ("array", b"\x04", "undecodable-value"),
        ("array", b"\x04\x02" + bytes(4), "undecodable-value"),
        ("array", b"\x0b" + b"\xff" * 16 + bytes(8), "undecodable-value"),
        ("array", b"\x04\x01\x01\x02\x03", "undecodable-value"),
        ("key", b"a b", "illegal-key"),
        ("key", b"", "illegal-key"),
        ("key", b"../x", "illegal-key"),
        ("key", b"x" * 81, "illegal-key"),
        ("key", b"\xff", "undecodable-value"),
    ],
)
def test_values_that_do_not_decode(rewrite, column, value, kind):
    def change(parts):
        parts.rows[1] = row_of(columns_of(parts.rows[1]) | {column: value})

    assert kind in {finding.kind for finding in rewrite(change)}


def test_nan_is_json_to_mds(rewrite):
    def change(parts):
        parts.rows[1] = row_of(columns_of(parts.rows[1]) | {"meta": b'{"x": NaN}'})

    assert rewrite(change) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config.update(version=1),
        lambda config: config.update(size_limit=None),
        lambda config: config.update(hashes=["sha1"]),
        lambda config: config.update(column_sizes=[None, None, None, None, 4, None]),
        lambda config: config["column_encodings"].__setitem__(5, "bytes"),
        lambda config: config["column_encodings"].__setitem__(5, "gibberish"),
        lambda config: config["column_names"].__setitem__(0, "zebra"),
    ],
    ids=["version", "size limit", "hashes", "sizes", "encoding", "unknown encoding", "names"],
)
def test_a_config_that_differs_from_the_index(rewrite, change):
    found = {finding.kind for finding in rewrite(lambda parts: change(parts.config))}
    assert "wrong-config" in found


@pytest.mark.parametrize("names", [["array"] * 6, [["array"], "image", "key", "meta", "number", "text"], []])
def test_a_config_whose_columns_are_none(rewrite, names):
    only(rewrite(lambda parts: parts.config.update(column_names=names)), "damaged-shard")


def test_a_config_with_other_spaces_is_not_canonical(mds, forge, findings, mds_parts):
    parts = mds_parts((mds / NAME).read_bytes())
    text = json.dumps(parts.config, sort_keys=True).encode()
    data = parts.data().replace(text, text.replace(b'"column_names": ', b'"column_names":  ', 1)[:-1] + b"}")
    shift = len(data) - len(parts.data())
    count = len(parts.rows)
    offsets = struct.unpack_from(f"<{count + 1}I", data, 4)
    data = data[:4] + struct.pack(f"<{count + 1}I", *(offset + shift for offset in offsets)) + data[8 + 4 * count :]
    forge(mds, NAME, data)
    only([found for found in findings(mds) if found.kind not in SECONDARY], "not-canonical")


def test_a_sample_less(mds, forge, kinds, mds_parts):
    parts = mds_parts((mds / NAME).read_bytes())
    parts.rows.pop()
    forge(mds, NAME, parts.data())
    assert kinds(mds)["wrong-count"] == 1


def test_a_key_twice_names_both_places(rewrite, mds, mds_parts):
    other = mds_parts((mds / "shard.00000.mds").read_bytes()).rows[3]
    found = only(rewrite(lambda parts: parts.rows.__setitem__(0, other)), "duplicate-key")
    assert found.key == "k003"
    assert "shard.00000.mds at byte" in found.detail
    assert f"{NAME} at byte" in found.detail


@pytest.mark.parametrize("name", ["mds", "zipped"])
def test_bytes_at_random_never_break_verify(name, request, forge):
    folder = request.getfixturevalue(name)
    shard = NAME if name == "mds" else f"{NAME}.zstd"
    numbers = random.Random(11)
    sound = (folder / shard).read_bytes()
    for _ in range(100):
        data = bytearray(sound)
        for _ in range(numbers.randrange(1, 4)):
            data[numbers.randrange(len(data))] = numbers.randrange(256)
        forge(folder, shard, bytes(data))
        verify(str(folder), VerifyOptions(workers=1))


def test_arrays_of_every_dtype_are_sound(build, rows, tmp_path):
    """The checks by decoding know every encoding the writer has."""
    dtypes = ["uint8", "int8", "uint16", "int16", "float16", "uint32", "int32", "float32", "uint64", "int64", "float64"]
    columns = {f"a_{name}": [np.ones((2, 300), name)] for name in dtypes} | {f"s_{name}": [1] for name in dtypes}
    encodings = {f"a_{name}": "ndarray" for name in dtypes} | {f"s_{name}": name for name in dtypes}
    (tmp_path / "src").mkdir()
    build(tmp_path / "src", tmp_path / "out", "mds", source=rows([b"a"], columns, encodings))
    assert verify(str(tmp_path / "out")).findings == ()

"""MDS shards and indexes made to do harm: stops a verify that believes a count, opens a file outside, or recurses to death."""

import json
import pickle
import struct

import pytest

pytestmark = pytest.mark.timeout(60)


def kinds(verdict):
    return {finding.kind for finding in verdict.findings}


@pytest.fixture
def write_index(folder):
    return lambda entries: (folder / "index.json").write_text(json.dumps({"shards": entries, "version": 2}, sort_keys=True))


def shard_of(entry, rows):
    """A shard of these rows under the entry's own description."""
    keys = ("column_encodings", "column_names", "column_sizes", "compression", "format", "hashes", "size_limit", "version")
    text = json.dumps({key: entry[key] for key in keys}, sort_keys=True).encode()
    offsets = [8 + 4 * len(rows) + len(text)]
    for row in rows:
        offsets.append(offsets[-1] + len(row))
    return struct.pack(f"<{len(offsets) + 1}I", len(rows), *offsets) + text + b"".join(rows)


def put_shard(folder, entry, data):
    entry["raw_data"]["bytes"] = len(data)
    (folder / "shard.00000.mds").write_bytes(data)


class Trap:
    """Touches a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_pickles_are_never_loaded(folder, mds_entry, write_index, verdict, tmp_path):
    trap = pickle.dumps(Trap(str(tmp_path / "sprung")))
    columns = {"a": "pkl", "b": "bytes", "c": "pil", "d": "jpegarray"}
    entry = mds_entry(columns, samples=1)
    put_shard(folder, entry, shard_of(entry, [struct.pack("<4I", *[len(trap)] * 4) + trap * 4]))
    write_index([entry])
    given = verdict()
    assert given.num_samples == 1
    assert "a" in given.unchecked_fields
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    "name", ["../secret.mds", "/etc/passwd", "a/../../secret.mds", "..", ".", "", "a//b", "a\0b", "./x", "..\\secret.mds", "C:\\x"]
)
@pytest.mark.parametrize("form", ["raw_data", "zip_data"])
def test_basenames_that_lead_outside(mds_entry, write_index, verdict, name, form):
    entry = mds_entry({"x": "bytes"}, compression="zstd" if form == "zip_data" else None)
    entry[form] = {"basename": name, "bytes": 7, "hashes": {}}
    write_index([entry])
    assert "index-damaged" in kinds(verdict())


@pytest.mark.parametrize("name", ["\x1b[2J.mds", "a\nb.mds", "\u2028.mds", "\ud800.mds", "x" * 5000 + ".mds", "\x9b.mds"])
def test_basenames_that_paint_the_terminal_or_are_no_file_names(mds_entry, write_index, command, name):
    entry = mds_entry({"\x1b[31m\n": "\x1b]0;owned\x07"}, samples=1)
    entry["raw_data"]["basename"] = name
    write_index([entry])
    assert command("verify").code in (1, 3)


@pytest.mark.parametrize("count", [2**32 - 1, 2**32 - 2, 2**30])
def test_counts_that_cannot_be(folder, mds_entry, write_index, command, count):
    entry = mds_entry({"x": "bytes"}, samples=count)
    data = struct.pack("<I", count) + shard_of(entry, [b"\0\0\0\0"])[4:]
    put_shard(folder, entry, data)
    write_index([entry])
    outcome = command("verify")
    assert (outcome.code, "damaged-shard" in outcome.stdout) == (1, True)
    assert outcome.peak_mib < 200


@pytest.mark.parametrize("length", [2**32 - 1, 2**31, 10**6])
def test_lengths_that_cannot_be(folder, mds_entry, write_index, verdict, length):
    entry = mds_entry({"x": "bytes", "y": "bytes"}, samples=1)
    put_shard(folder, entry, shard_of(entry, [struct.pack("<2I", length, 2**32 - length) + b"abc"]))
    write_index([entry])
    assert kinds(verdict()) == {"damaged-shard"}


@pytest.mark.parametrize("size", [-1, 2**31, 2**63, 2**64, 10**30, 1.5, True, "8", [8]])
def test_column_sizes_that_cannot_be(folder, mds_entry, write_index, verdict, size):
    entry = mds_entry({"x": "int"}, samples=1, column_sizes=[size])
    put_shard(folder, entry, shard_of(entry, [bytes(8)]))
    write_index([entry])
    assert verdict().exit_code == 1


ARRAYS = {
    "63 dimensions of 2^64 - 1": b"\xff" + b"\xff" * 8 * 63,
    "a shape whose product is zero modulo 2^64": b"\x0b" + struct.pack("<2Q", 2**32, 2**32),
    "a shape of 2^62": b"\x07" + struct.pack("<Q", 2**62) + bytes(8),
    "a dimension of zero": b"\x04\x00",
}


@pytest.mark.parametrize("value", ARRAYS.values(), ids=ARRAYS)
def test_arrays_that_cannot_be(folder, mds_entry, write_index, verdict, value):
    entry = mds_entry({"x": "ndarray:int32", "y": "ndarray:int32:4294967296,4294967296,4294967296"}, samples=1)
    put_shard(folder, entry, shard_of(entry, [struct.pack("<2I", len(value), 0) + value]))
    write_index([entry])
    assert verdict().exit_code == 1


DEEP = {"lists": b"[" * 200_000, "closed lists": b"[" * 200_000 + b"]" * 200_000, "objects": b'{"a":' * 200_000}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
@pytest.mark.parametrize("name", ["index.json", "shardtools.manifest"])
def test_descriptions_nested_too_deep(folder, tar, verdict, name, text):
    (folder / "x.tar").write_bytes(tar([("a.bin", b"1")]))
    (folder / name).write_bytes(b'{"shards": ' + text)
    assert verdict().exit_code == 1


def test_a_sealed_manifest_nested_too_deep(folder, tar, verdict):
    """The seal is right, so the text is parsed."""
    import hashlib

    (folder / "x.tar").write_bytes(tar([("a.bin", b"1")]))
    text = '{\n "format": "shardtools.manifest/1",\n "shards": ' + "[" * 100_000 + "]" * 100_000
    seal = hashlib.sha256(text.encode()).hexdigest()
    (folder / "shardtools.manifest").write_text(f'{text},\n "sha256": "{seal}"\n}}\n')
    assert "manifest-damaged" in kinds(verdict())


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_values_and_configs_nested_too_deep(folder, mds_entry, write_index, verdict, text):
    entry = mds_entry({"x": "json"}, samples=1)
    put_shard(folder, entry, shard_of(entry, [struct.pack("<I", len(text)) + text]))
    write_index([entry])
    assert "undecodable-value" in kinds(verdict())


def test_a_config_nested_too_deep(folder, mds_entry, write_index, verdict):
    entry = mds_entry({"x": "json"}, samples=0)
    put_shard(folder, entry, struct.pack("<2I", 0, 8 + 200_000) + b"[" * 200_000)
    write_index([entry])
    assert kinds(verdict()) == {"damaged-shard"}


NUMBERS = {"digits": "9" * 5000, "an exponent": "1e999999999", "not a number": "NaN", "infinity": "-Infinity", "a fraction": "1.0"}


@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
def test_numbers_in_the_index_that_are_none(folder, mds_entry, verdict, number):
    text = json.dumps({"shards": [mds_entry({"x": "bytes"}, samples=77)], "version": 2})
    (folder / "index.json").write_text(text.replace("77", number))
    assert "index-damaged" in kinds(verdict())


@pytest.mark.slow
def test_a_million_columns(folder, mds_entry, write_index, command):
    entry = mds_entry({}, samples=1)
    names = [f"c{i:07d}" for i in range(1_000_000)]
    entry |= {"column_names": names, "column_encodings": ["uint8"] * len(names), "column_sizes": [1] * len(names)}
    put_shard(folder, entry, shard_of(entry, [bytes(len(names))]))
    write_index([entry])
    outcome = command("verify")
    assert outcome.code in (0, 1)
    assert outcome.peak_mib < 1500


def test_five_thousand_shards_that_are_not_there(mds_entry, write_index, command):
    entries = []
    for i in range(5_000):
        entry = mds_entry({"x": "bytes"})
        entry["raw_data"]["basename"] = f"shard.{i:05d}.mds"
        entries.append(entry)
    write_index(entries)
    outcome = command("verify")
    assert outcome.code == 1
    assert outcome.peak_mib < 400

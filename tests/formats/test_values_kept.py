"""Stops numbers that change on the way into a column, values that fill a message, and names that run together."""

import os
import tempfile
from typing import Any

import numpy as np
import pytest
import zstandard

from shardtools.errors import StorageError
from shardtools.formats import _mds_shard, joined_names, split_names
from shardtools.formats._mds_arrays import MisfitError
from shardtools.formats._mds_values import codec
from shardtools.formats.mds import Mds
from shardtools.sample import MAX_NESTING, Batch, Field, Reject, brief, is_too_deep

LARGE = 10_000_000


@pytest.mark.parametrize(
    ("encoding", "value"),
    [
        ("float64", 2**53 + 1),
        ("float32", 2**24 + 1),
        ("float16", 2**11 + 1),
        ("ndarray:float64", [1, 2**53 + 1]),
        ("ndarray:float64", [0.5, 2**53 + 1]),
        ("ndarray:float32", [[1, 2], [3, 2**24 + 1]]),
        ("ndarray:float32:2", [0.25, 2**24 + 1]),
        ("ndarray:float16", [2**11 + 1]),
        ("ndarray:float64", [2**63 - 1]),
        ("ndarray:float64", np.array([2**53 + 1])),
        ("ndarray:float32", np.array([2**24 + 1], "u4")),
    ],
    ids=repr,
)
def test_a_whole_number_that_a_float_would_round_is_refused(encoding, value):
    with pytest.raises(MisfitError):
        codec(encoding).encode_one(value)


@pytest.mark.parametrize(
    ("encoding", "value", "given_back"),
    [
        ("float64", 2**53 + 2, 2.0**53 + 2),
        ("float32", 2**24 + 2, 2.0**24 + 2),
        ("float32", 0.1, float(np.float32(0.1))),
        ("ndarray:float32", [0.1, 2**24 + 2], [float(np.float32(0.1)), 2.0**24 + 2]),
        ("ndarray:float64", [float(2**60 + 1), 2**60], [2.0**60, 2.0**60]),
        ("ndarray:float32", np.array([2**24 + 1.0]), [2.0**24]),
    ],
    ids=repr,
)
def test_what_a_float_holds_is_taken_and_fractions_are_rounded(encoding, value, given_back):
    stored = codec(encoding)
    assert np.asarray(stored.decode(stored.encode_one(value))).tolist() == given_back


@pytest.mark.parametrize(
    "value",
    [b"x" * LARGE, "y" * LARGE, ["z"] * 1_000_000, dict.fromkeys(range(100000), "a" * 100), [["q" * LARGE] * 50] * 50],
    ids=["bytes", "text", "list", "object", "nested"],
)
def test_a_value_in_a_message_is_short_and_made_without_all_of_it(value):
    import tracemalloc

    tracemalloc.start()
    try:
        text = brief(value)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(text) <= 60 and "..." in text
    assert peak < 5_000_000


@pytest.mark.parametrize("encoding", ["str", "int", "json", "jpeg", "ndarray", "float32"])
def test_the_message_on_a_large_misfit_is_short(encoding):
    rejects: list[Reject] = []
    value: Any = b"\xff" * LARGE
    Mds().encoder([Field("x", encoding)], None).encode(Batch([b"a"], {"x": [value]}, lambda i: f"row {i}"), rejects.append)
    ((reason, where, sentence, head),) = rejects
    assert (reason, where) == ("wrong-type", "row 0") and len(sentence) < 400 and len(head) == 64


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_is_measured_at_any_depth():
    assert MAX_NESTING == 200
    assert [is_too_deep(nested(depth)) for depth in (0, 1, 200, 201, 100_000)] == [False, False, False, True, True]
    assert not is_too_deep([{"a": [i]} for i in range(1000)])


@pytest.mark.parametrize("inner", [b"", b"NaN", b'"]]]["'])
@pytest.mark.parametrize(("depth", "passes"), [(200, True), (201, False), (1500, False), (200_000, False)])
def test_json_text_of_files_has_the_same_limit(depth, passes, inner):
    data = b"[" * depth + inner + b"]" * depth
    if passes:
        assert codec("json").encode_one(data) == data
    else:
        with pytest.raises(MisfitError, match="at most 200 deep"):
            codec("json").encode_one(data)


NAMES = [["a"], ["a", "b"], ["a,b"], ["a%2Cb"], ["a", "b,c%", "%25"], [""], [",", ","], ["%2C", ","]]


def test_joined_names_come_apart_again_and_no_two_lists_are_alike():
    assert [split_names(joined_names(names)) for names in NAMES] == NAMES
    assert len({joined_names(names) for names in NAMES}) == len(NAMES)
    assert joined_names(["a", "b"]) == "a,b"


def test_the_library_is_named_where_it_decides_the_bytes():
    assert Mds() == Mds() and Mds().zstd_version is None and hash(Mds()) == hash(Mds(compression=None))
    assert Mds(compression="zstd:3").zstd_version == ".".join(map(str, zstandard.ZSTD_VERSION))


class Failing:
    """An output that remembers being aborted."""

    def __init__(self, folder: str) -> None:
        self.spool_folder = folder
        self.is_aborted = False

    def write(self, data: bytes) -> None: ...

    def finish(self) -> None: ...

    def abort(self) -> None:
        self.is_aborted = True


def fail(*_: Any) -> Any:
    raise OSError(28, "No space left on device")


class Spool:
    """A file that takes everything and can do nothing else."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.seek = self.close = fail

    def write(self, data: bytes) -> None:
        self.written.append(data)


def test_an_error_of_the_spool_is_one_sentence_and_hides_no_abort(tmp_path, monkeypatch):
    output = Failing(str(tmp_path))
    monkeypatch.setattr(_mds_shard, "_SPOOL_BYTES", 50)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Spool())
    shard = Mds().shard_file([Field("x", "bytes")], None, output)
    shard.append([b"x" * 100], [104])
    with pytest.raises(StorageError, match="No space left"):
        shard.finish()
    shard.abort()
    assert output.is_aborted


def test_a_large_sample_goes_to_disk_without_a_copy_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(_mds_shard, "_SPOOL_BYTES", 1 << 20)
    shard = Mds().shard_file([Field("x", "bytes")], None, Failing(str(tmp_path)))
    spool = Spool()
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: spool)
    large = os.urandom(2 << 20)
    shard.append([b"head", large, b"tail"], [len(large) + 12])
    assert [len(data) for data in spool.written] == [4, 2 << 20, 4]
    assert spool.written[1] is large
    shard.abort()

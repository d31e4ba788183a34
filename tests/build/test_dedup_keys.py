"""Stops samples that go though their content is their own, or stay though it is not, since a key is taken for content or the reverse."""

import io
import tarfile

import pytest

from shardtools.build.order import OrderWords, order_of
from shardtools.build.run import build
from shardtools.errors import UsageError
from shardtools.sources import resolve_inputs


def num_kept(source, format_: str, key: str) -> int:
    inputs = resolve_inputs([str(source)])
    words = OrderWords(format=format_, source_options={"key": key}, select_options={"dedup": "content"})
    done = build(inputs, str(source.parent / f"{format_}-{key}"), order_of(inputs, words))
    return done.manifest.ledger.num_written


def write_tar(path, members: dict[str, bytes]):
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def write_mds(folder, columns: dict[str, str], rows: list[dict]):
    from streaming import MDSWriter

    with MDSWriter(out=str(folder), columns=columns) as writer:
        for row in rows:
            writer.write(row)
    return folder


def test_a_member_that_is_the_key_is_no_content_and_json_beside_it_may_be_a_list(tmp_path):
    members = {"a.json": b"[1]", "a.txt": b"k1", "b.json": b"[1]", "b.txt": b"k2", "c.json": b"[2]", "c.txt": b"k3"}
    assert num_kept(write_tar(tmp_path / "in.tar", members), "wds", "txt") == 2


@pytest.mark.parametrize("key", ["id", "json.id"])
def test_a_key_in_the_json_of_a_member_is_no_content_however_it_is_named(tmp_path, key):
    members = {"a.json": b'{"id":"p","v":1}', "b.json": b'{"id":"q","v":1}', "c.json": b'{"id":"r","v":2}'}
    assert num_kept(write_tar(tmp_path / "in.tar", members), "wds", key) == 2


@pytest.mark.train
@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_a_field_called_like_the_key_column_in_json_of_another_column_is_content(tmp_path, format_):
    rows = [{"id": "a", "meta": {"id": 1}}, {"id": "b", "meta": {"id": 2}}, {"id": "c", "meta": {"id": 2}}]
    assert num_kept(write_mds(tmp_path / "in", {"id": "str", "meta": "json"}, rows), format_, "id") == 2


@pytest.mark.train
@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_a_json_column_beside_the_key_may_hold_lists(tmp_path, format_):
    rows = [{"id": "a", "meta": [1]}, {"id": "b", "meta": [1]}, {"id": "c", "meta": [2]}]
    assert num_kept(write_mds(tmp_path / "in", {"id": "str", "meta": "json"}, rows), format_, "id") == 2


@pytest.mark.train
@pytest.mark.parametrize("format_", ["wds", "mds"])
@pytest.mark.parametrize("key", ["meta.a.b", "meta.c"])
def test_a_key_inside_of_a_json_column_is_no_content(tmp_path, format_, key):
    rows = [
        {"x": 1, "meta": {"a": {"b": i}, "c": i, "d": max(i, 1)} | ({"c": 0} if key != "meta.c" else {"a": {"b": 0}})} for i in range(3)
    ]
    assert num_kept(write_mds(tmp_path / "in", {"x": "int", "meta": "json"}, rows), format_, key) == 2


@pytest.mark.parametrize("seed", [-1, 1 << 64])
def test_a_seed_that_no_generator_takes_is_refused(tmp_path, seed):
    (tmp_path / "in.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match="expected --seed of 0 to"):
        order_of(resolve_inputs([str(tmp_path / "in.jsonl")]), OrderWords(format="wds", shuffle=True, seed=seed))

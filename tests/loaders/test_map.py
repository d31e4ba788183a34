"""Stops random access that finds another sample than reading in order, in our shards and in those of others."""

import gzip
import io
import json
import subprocess
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra train")

from torch.utils.data import DataLoader, SequentialSampler, SubsetRandomSampler  # noqa: E402
from worlds import QUIET, few_open_files  # noqa: E402

from shardtools.errors import ShardtoolsError  # noqa: E402
from shardtools.loaders import LoaderOptions, MapDataset, open_dataset  # noqa: E402
from shardtools.sources.jsonl import Jsonl  # noqa: E402

pytestmark = QUIET

KEYS = [f"{folder}/{i:03d}" for folder in "ab" for i in range(8)]
VALUES = {key: {"txt": f"text of {key}".encode(), "bin": bytes([i]) * (i * 100)} for i, key in enumerate(KEYS)}
"""What the writers below store: 16 samples, in shards of 6."""
CUTS = [KEYS[:6], KEYS[6:12], KEYS[12:]]


def add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def pax_tars(folder: Path) -> None:
    """By Python's tarfile, with extended headers before every member, and folders in between."""
    for n, keys in enumerate(CUTS):
        with tarfile.open(folder / f"x-{n}.tar", "w", format=tarfile.PAX_FORMAT) as archive:
            for key in keys:
                place = tarfile.TarInfo(key.partition("/")[0])
                place.type = tarfile.DIRTYPE
                archive.addfile(place)
                for field, data in VALUES[key].items():
                    info = tarfile.TarInfo(f"{key}.{field}")
                    info.size, info.pax_headers = len(data), {"comment": "ä" * 300, "mtime": "1.5"}
                    archive.addfile(info, io.BytesIO(data))


def gnu_tars(folder: Path) -> None:
    """By GNU tar, of files on disk, whole folders of them."""
    for n, keys in enumerate(CUTS):
        for key in keys:
            (folder / f"src-{n}" / key).parent.mkdir(parents=True, exist_ok=True)
            for field, data in VALUES[key].items():
                (folder / f"src-{n}" / f"{key}.{field}").write_bytes(data)
        subprocess.run(["tar", "--sort=name", "-cf", folder / f"x-{n}.tar", "-C", folder / f"src-{n}", "."], check=True)


def gzipped_tars(folder: Path) -> None:
    for n, keys in enumerate(CUTS):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for key in keys:
                for field, data in VALUES[key].items():
                    add(archive, f"{key}.{field}", data)
        (folder / f"x-{n}.tar.gz").write_bytes(gzip.compress(packed.getvalue(), 1))


@pytest.fixture
def reference_tars(webdataset: ModuleType) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with webdataset.ShardWriter(str(folder / "x-%d.tar"), maxcount=6, verbose=0) as writer:
                for key in KEYS:
                    writer.write({"__key__": key, **VALUES[key]})

    return write


@pytest.fixture
def reference_mds(streaming: ModuleType) -> Callable[..., None]:
    def write(folder: Path, compression: str | None = None, key: str | None = "key") -> None:
        columns = {"txt": "str", "bin": "bytes"} | ({key: "str"} if key else {})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with streaming.MDSWriter(out=str(folder), columns=columns, compression=compression, size_limit=3000) as writer:
                for name in KEYS:
                    row = {"txt": VALUES[name]["txt"].decode(), "bin": VALUES[name]["bin"]}
                    writer.write(row | ({key: name} if key else {}))

    return write


def open_map(folder: Path, decode: Any = None) -> MapDataset:
    options = LoaderOptions(cache_folder=str(folder.parent / "cache"))
    dataset = open_dataset(str(folder), decode=decode, options=options)
    whole = list(dataset)
    found = dataset.as_map()
    assert [found[i] for i in range(len(found))] == whole, "not what reading in order gives"
    return found


def check(folder: Path, keys: list[str] = KEYS) -> None:
    """Every sample by index from both ends and by key, and what is asked for in vain."""
    found = open_map(folder)
    assert len(found) == len(KEYS)
    for i, (key, stored) in enumerate(zip(keys, KEYS, strict=True)):
        sample = {"__key__": key, **VALUES[stored]}
        assert found[i] == found[i - len(KEYS)] == found[key] == found[np.int64(i)] == sample
        assert found.index_of(key) == i
    for index in (len(KEYS), -len(KEYS) - 1):
        with pytest.raises(IndexError, match="expected an index from -16 to 15"):
            found[index]
    for key in ("c/000", "", keys[0] + "0", "\ud800"):
        with pytest.raises(KeyError):
            found[key]


@pytest.mark.parametrize("write", [pax_tars, gnu_tars, gzipped_tars])
def test_tars_of_others(write: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    write(tmp_path / "shards")
    # webdataset names the samples of GNU tar so, too.
    check(tmp_path / "shards", [f"./{key}" for key in KEYS] if write is gnu_tars else KEYS)


def test_tars_of_webdataset(reference_tars: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    reference_tars(tmp_path / "shards")
    check(tmp_path / "shards")


@pytest.mark.parametrize("compression", [None, "zstd", "zstd:7"])
def test_rows_of_mds_writer(compression: str | None, reference_mds: Callable[..., None], tmp_path: Path) -> None:
    reference_mds(tmp_path / "shards", compression)
    assert len(list((tmp_path / "shards").glob("shard.*"))) > 2
    check(tmp_path / "shards")


def test_a_damaged_copy_in_the_cache_is_made_anew(reference_mds: Callable[..., None], tmp_path: Path) -> None:
    reference_mds(tmp_path / "shards", "zstd")
    check(tmp_path / "shards")
    copies = sorted((tmp_path / "cache").glob("*.shard"))
    for copy in copies:
        copy.write_bytes(copy.read_bytes()[:-3])
    check(tmp_path / "shards")
    assert sorted((tmp_path / "cache").glob("*.shard")) == copies


def test_rows_without_keys_are_named_by_shard_and_row(reference_mds: Callable[..., None], tmp_path: Path) -> None:
    reference_mds(tmp_path / "shards", key=None)
    counts = [shard["samples"] for shard in json.loads((tmp_path / "shards" / "index.json").read_text())["shards"]]
    check(tmp_path / "shards", [f"{shard:05d}/{row:08d}" for shard, count in enumerate(counts) for row in range(count)])


@pytest.fixture
def files(tree: Callable[..., Path]) -> Path:
    return tree({f"{key}.{field}": data for key, fields in VALUES.items() for field, data in fields.items()})


@pytest.mark.parametrize("format_name", ["wds", "mds"])
def test_our_own_shards(format_name: str, files: Path, build: Callable[..., Any], tmp_path: Path) -> None:
    build(files, tmp_path / "shards", format_name, shard_samples=6)
    check(tmp_path / "shards")


@pytest.mark.parametrize("format_name", ["wds", "mds"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_chooses_in_any_order(format_name: str, workers: int, files: Path, build: Callable[..., Any], tmp_path: Path) -> None:
    build(files, tmp_path / "shards", format_name, shard_samples=6)
    found = open_map(tmp_path / "shards", "tokens")  # decoded alike
    torch.manual_seed(1)
    for sampler in (SequentialSampler(found), SubsetRandomSampler([15, 3, 3, 8, 0])):
        loader: Any = DataLoader(found, 3, sampler=sampler, num_workers=workers, collate_fn=list)
        samples = [sample for batch in loader for sample in batch]
        assert len(samples) == len(sampler)
        assert all(sample == {"__key__": sample["__key__"], **decoded(sample["__key__"])} for sample in samples)
    assert sorted(sample["__key__"] for sample in samples) == sorted(KEYS[i] for i in (15, 3, 3, 8, 0))


def decoded(key: str) -> dict[str, Any]:
    return {"txt": VALUES[key]["txt"].decode(), "bin": VALUES[key]["bin"]}


def test_keys_can_be_asked_for_by_workers(files: Path, build: Callable[..., Any], tmp_path: Path) -> None:
    build(files, tmp_path / "shards", "mds", shard_samples=6)
    loader: Any = DataLoader(open_map(tmp_path / "shards"), None, sampler=KEYS[::-1], num_workers=1)
    assert [sample["__key__"] for sample in loader] == KEYS[::-1]


@pytest.mark.parametrize("format_name", ["wds", "mds"])
@pytest.mark.parametrize("is_foreign", [False, True])
def test_more_shards_than_may_be_open(
    format_name: str, is_foreign: bool, tree: Callable[..., Path], build: Callable[..., Any], tmp_path: Path
) -> None:
    lines = b"".join(b'{"number": %d}\n' % i for i in range(100))
    build(tree({"a.jsonl": lines}) / "a.jsonl", tmp_path / "shards", format_name, source=Jsonl(), shard_samples=1)
    if is_foreign:
        (tmp_path / "shards" / "shardtools.manifest").unlink()
    with few_open_files(50):
        assert len(open_map(tmp_path / "shards")) == 100


def test_a_damaged_sample_is_named(tree: Callable[..., Path], build: Callable[..., Any], tmp_path: Path) -> None:
    lines = b"".join(b'{"number": %d}\n' % i for i in range(10))
    build(tree({"a.jsonl": lines}) / "a.jsonl", tmp_path / "shards", "wds", source=Jsonl(), shard_samples=5)
    path = tmp_path / "shards" / "train-000001.tar"
    data = bytearray(path.read_bytes())
    data[1024 * 2 + 130] ^= 1
    path.write_bytes(data)
    found = open_dataset(str(tmp_path / "shards"), options=LoaderOptions()).as_map()
    assert json.loads(found[8]["json"]) == {"number": 8}
    with pytest.raises(ShardtoolsError, match=r"expected a sound sample 2 in .*train-000001\.tar, got one with this fault"):
        found[7]

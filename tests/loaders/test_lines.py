"""Stops JSON lines that are read otherwise than they are packed: other lines, other keys, other bytes."""

import gzip
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

torch = pytest.importorskip("torch", reason="needs the extra train")

from torch.utils.data import DataLoader  # noqa: E402
from worlds import QUIET, epoch_places, few_open_files, keys_of  # noqa: E402

from shardtools.errors import DuplicateKeyError, ShardtoolsError, StorageError, UsageError  # noqa: E402
from shardtools.loaders import LoaderOptions, open_dataset  # noqa: E402
from shardtools.sources.jsonl import Jsonl  # noqa: E402
from shardtools.units import Budget  # noqa: E402

pytestmark = QUIET

RECORDS = [b'{"a": 1}', b'  {"a": [2, "\xe2\x80\xa8\xc2\x85"]} \t', b'{"a": {"b": "\xf0\x9f\x8e\x89"}}', b'{"a": 4}']
TEXTS = {
    "plain": b"\n".join(RECORDS) + b"\n",
    "no-final-newline": b"\n".join(RECORDS),
    "crlf": b"\r\n".join(RECORDS) + b"\r\n",
    "blank-lines": b"\n \n\t\r\n" + b"\n\n \r\n".join(RECORDS) + b"\n\n \n\r\n",
    "mark": b"\xef\xbb\xbf" + b"\n".join(RECORDS),
    "mark-alone": b"\xef\xbb\xbf\n" + b"\n".join(RECORDS),
    "blank": b"\n \n\r\n",
    "empty": b"",
    "one": b'{"a": 1}',
}
FILES = {f"{name}.jsonl": text for name, text in TEXTS.items()} | {
    "deep/er/B.NDJSON": TEXTS["plain"],
    "odd näme.v2.jsonl": TEXTS["crlf"],
    "packed.jsonl.gz": gzip.compress(RECORDS[0] + b"\n") + gzip.compress(b"\n" + RECORDS[1] + b"\n" + RECORDS[2]),
    "packed2.ndjson.zst": zstandard.compress(b"\n".join(RECORDS[:2]) + b"\n") + zstandard.compress(RECORDS[2]),
}
NUM_RECORDS = 6 * 4 + 1 + 2 * 4 + 2 * 3


def open_lines(place: Path, cache: Path, **options: Any) -> Any:
    return open_dataset(str(place), options=LoaderOptions(cache_folder=str(cache), **options))


@pytest.fixture
def packed(build: Callable[..., Any], tmp_path: Path) -> Callable[[Path], list[dict[str, Any]]]:
    """What packing makes of the same files, read by Python's tarfile."""

    def read(source: Path) -> list[dict[str, Any]]:
        build(source, tmp_path / "packed", "wds", source=Jsonl())
        samples = []
        for path in sorted((tmp_path / "packed").glob("*.tar")):
            with tarfile.open(path) as archive:
                for member in archive:
                    stored = archive.extractfile(member)
                    assert stored is not None
                    samples.append({"__key__": member.name.removesuffix(".json"), "json": stored.read()})
        return samples

    return read


def test_lines_are_what_packing_makes_of_them(tree: Callable[..., Path], packed: Callable[..., Any], tmp_path: Path) -> None:
    source = tree(FILES)
    samples = list(open_lines(source, tmp_path / "cache"))
    assert len(samples) == NUM_RECORDS
    assert samples == packed(source)
    assert {sample["json"] for sample in samples} == set(RECORDS)


@pytest.mark.parametrize("name", [name for name in FILES if name not in ("blank.jsonl", "empty.jsonl")])
def test_a_file_by_itself(name: str, tree: Callable[..., Path], packed: Callable[..., Any], tmp_path: Path) -> None:
    source = tree({name: FILES[name]}) / name
    samples = list(open_lines(source, tmp_path / "cache"))
    assert samples == packed(source)
    assert [sample["json"].strip(b" \t") for sample in samples] == [record.strip(b" \t") for record in RECORDS[: len(samples)]]


def test_by_index_and_key(tree: Callable[..., Path], tmp_path: Path) -> None:
    found = open_lines(tree(FILES), tmp_path / "cache").as_map()
    assert len(found) == NUM_RECORDS
    keys = [found[i]["__key__"] for i in range(len(found))]
    assert [found.index_of(key) for key in keys] == list(range(NUM_RECORDS))
    assert found["packed/000000000010"] == {"__key__": "packed/000000000010", "json": RECORDS[1]}
    assert found[-1]["__key__"] == keys[-1]
    with pytest.raises(KeyError):
        found["plain/000000000001"]  # inside a line
    with pytest.raises(IndexError):
        found[NUM_RECORDS]


@pytest.mark.parametrize("workers", [0, 2])
def test_files_are_shuffled_as_shards_are(tree: Callable[..., Path], tmp_path: Path, workers: int) -> None:
    source = tree({f"{i}.jsonl": b'{"a": 1}\n' * (3 + i) for i in range(4)} | {"4.jsonl.gz": gzip.compress(b'{"a": 1}\n' * 7)})
    options = LoaderOptions(cache_folder=str(tmp_path / "cache"), block_shards=2)
    dataset = open_dataset(str(source), batch_size=3, shuffle=True, seed=3, options=options)
    dataset.set_epoch(2)
    found = [key for batch in keys_of(DataLoader(dataset, 3, num_workers=workers)) for key in batch]
    assert found == [f"{shard}/{9 * row:012d}" for shard, row in epoch_places([3, 4, 5, 6, 7], 3, 2, 2)]


def test_decoded(tree: Callable[..., Path], tmp_path: Path) -> None:
    dataset = open_dataset(str(tree({"a.jsonl": TEXTS["mark"]})), decode="tokens", options=LoaderOptions(cache_folder=str(tmp_path)))
    assert [sample["json"] for sample in dataset][0::3] == [{"a": 1}, {"a": 4}]


def test_files_without_a_record(tree: Callable[..., Path], tmp_path: Path) -> None:
    for name in ("blank.jsonl", "empty.jsonl"):
        with pytest.raises(UsageError, match="expected at least one JSON line, got only blank ones"):
            open_lines(tree({name: FILES[name]}, name) / name, tmp_path / "cache")


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_a_stream_that_is_cut_off_is_named(name: str, tree: Callable[..., Path], tmp_path: Path) -> None:
    text = os.urandom(1 << 16).hex().encode()
    data = gzip.compress(text) if name.endswith("gz") else zstandard.compress(text)
    source = tree({name: data[: len(data) // 2]}) / name
    with pytest.raises(ShardtoolsError, match=r"expected sound JSON lines, got .*/a\.jsonl\.\w+ with this fault: .*; restore it"):
        open_lines(source, tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.suffix in (".part", ".shard")] == []


def test_a_file_that_is_gone_is_named(tree: Callable[..., Path], tmp_path: Path) -> None:
    source = tree({"a.jsonl": TEXTS["plain"]}) / "a.jsonl"
    dataset = open_lines(source, tmp_path / "cache", max_bad=Budget(4))
    source.unlink()
    with pytest.raises(StorageError, match=r"could not read .*a\.jsonl: No such file or directory"):
        list(dataset)


def test_more_files_than_may_be_open(tree: Callable[..., Path], tmp_path: Path) -> None:
    source = tree({f"{i:03d}.jsonl": b'{"a": 1}\n' for i in range(300)})
    with few_open_files(60):
        dataset = open_lines(source, tmp_path / "cache")
        assert len(list(dataset)) == len(list(dataset)) == 300
        assert dataset.as_map()["250/000000000000"]["json"] == b'{"a": 1}'


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize("num_lines", [1, 100, 3000])
def test_a_file_that_changed_after_opening_is_named(tmp_path: Path, name: str, num_lines: int) -> None:
    """Its lines are elsewhere now: what would be read are torn pieces of them."""

    def write(count: int, first: int) -> None:
        text = b"".join(b'{"number": %d}\n' % i for i in range(first, first + count))
        (tmp_path / "new").write_bytes(gzip.compress(text) if name.endswith("gz") else text)
        os.replace(tmp_path / "new", tmp_path / name)

    write(100, 0)
    dataset = open_lines(tmp_path / name, tmp_path / "cache")
    assert len(list(dataset)) == 100
    again = open_lines(tmp_path / name, tmp_path / "cache")
    write(num_lines, 1000)
    with pytest.raises(StorageError, match=f"expected .*{name} as it was when the dataset was opened, got it changed since; open it again"):
        list(again)


def test_files_whose_samples_would_have_the_same_keys_are_refused(tree: Callable[..., Path], tmp_path: Path) -> None:
    place = tree({"docs.jsonl": b'{"a": 1}\n', "docs.jsonl.gz": gzip.compress(b'{"a": 1}\n')})
    with pytest.raises(DuplicateKeyError, match="expected files whose paths differ before the suffix"):
        open_lines(place, tmp_path / "cache")


def test_a_pattern_of_files(tree: Callable[..., Path], tmp_path: Path) -> None:
    place = tree({"a.jsonl": b'{"a": 1}\n', "b.jsonl": b'{"a": 2}\n', "c.txt": b"no"})
    assert [sample["json"] for sample in open_lines(place / "*.jsonl", tmp_path / "cache")] == [b'{"a": 1}', b'{"a": 2}']

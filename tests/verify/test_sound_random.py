"""Sound datasets of random shapes have no findings; stops a verify that cries wolf over anything a writer may do.

Every dataset is made from one number, which a failure names.
"""

import gzip
import io
import json
import os
import random
import tarfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardtools import keys
from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds
from shardtools.sources._grouping import parse_field_rules
from shardtools.sources.jsonl import Jsonl
from shardtools.verify import Verdict, VerifyOptions, verify

SEED = 40_000
TEXTS = ("", "a", "tëxt", "日本語", "line\nline", "\u2028", "🦆" * 3, "'\"\\", "\x00nul", "null", "{}")
NAMES = ("a", "b/c", "b/d e", "ü/ö", "x=y", "-dash", "_under", "UPPER", "q" * 90, "deep/er/and/deeper", "%41", "a+b", "dots-no")


def num_bytes(numbers: random.Random) -> int:
    """Mostly small, often at an edge of a tar block, sometimes far above the shard size."""
    return numbers.choice((0, 0, 1, 2, 17, 511, 512, 513, 1023, 1024, numbers.randrange(3000), numbers.randrange(300), 30_000))


def sample_names(numbers: random.Random, count: int) -> list[str]:
    return [f"{numbers.choice(NAMES)}{i:03d}" for i in range(count)]


def num_samples(numbers: random.Random) -> int:
    return numbers.choice((1, 2, 3, numbers.randrange(4, 12), numbers.randrange(12, 40), numbers.randrange(12, 40)))


def limit(numbers: random.Random, least_bytes: int) -> dict[str, int]:
    """A shard size, one at an exact edge among them, or a number of samples, or the default."""
    sizes = (least_bytes, least_bytes + 1, 2 * least_bytes, 10 * least_bytes)
    samples = {"shard_samples": numbers.choice((1, 2, 3, 8))}
    return numbers.choice(({"shard_bytes": numbers.choice(sizes)}, {"shard_bytes": least_bytes}, samples, samples, {}))


def some_format(numbers: random.Random) -> Any:
    """WDS half of the time, else MDS with any of its options."""
    if numbers.random() < 0.5:
        return Wds()
    hashes = numbers.choice(((), ("sha1",), ("xxh64",), ("sha1", "xxh64")))
    return Mds(numbers.choice((None, None, "zstd", "zstd:1", "zstd:19")), hashes, numbers.choice(("key", "key", "id", None)))


def files(numbers: random.Random, root: Path) -> dict[str, Any]:
    """Small files of any names and lengths: grouped by the first dot with an optional field, or each by itself."""
    grouping = numbers.choice(("first-dot", "file"))
    labelled = numbers.random() < 0.2
    for name in sample_names(numbers, num_samples(numbers)):
        path = root / "src" / (numbers.choice(("cats/", "dogs/")) if labelled else "") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(path.name + ".bin").write_bytes(numbers.randbytes(num_bytes(numbers)))
        path.with_name(path.name + ".json").write_text(json.dumps({"v": numbers.choice(TEXTS)}))
        if numbers.random() < 0.5:
            path.with_name(path.name + ".meta.txt").write_text(numbers.choice(TEXTS), "utf-8")
    options: dict[str, Any] = {"group": grouping, "keep_path": numbers.random() < 0.3, "label_from_dir": labelled}
    if grouping == "first-dot":
        options["fields"] = parse_field_rules("bin,json,meta.txt?")
    return options | {"seed": numbers.choice((None, 0, 7))}


def lines(numbers: random.Random, root: Path) -> dict[str, Any]:
    """JSON lines of all types, plain or compressed, some of them missing or null."""
    records = []
    for i in range(num_samples(numbers)):
        record: dict[str, Any] = {"id_": i, "text": numbers.choice(TEXTS), "score": numbers.choice((0.5, -1e300, 3.0)), "flag": True}
        record["nested"] = numbers.choice((None, {"a": [1, {"b": None}]}, [], 2**60))
        if numbers.random() < 0.5:
            record["maybe"] = "x" * numbers.randrange(200)
        records.append(json.dumps(record, ensure_ascii=numbers.random() < 0.5).replace("\\u2028", " "))
    data = "\n".join(records).encode("utf-8", "surrogatepass") + numbers.choice((b"", b"\n"))
    (root / "src").mkdir()
    compressed = numbers.random() < 0.3
    (root / "src/some.jsonl.gz" if compressed else root / "src/some.jsonl").write_bytes(gzip.compress(data) if compressed else data)
    return {"source": Jsonl(keep_path=numbers.random() < 0.3)}


def values(numbers: random.Random, encoding: str) -> Callable[[], Any]:
    array = encoding.startswith("ndarray")
    if array:
        shape = (2, 3) if encoding.count(":") == 2 else None
        dtype = encoding.split(":")[1] if ":" in encoding else "int16"
        return lambda: np.ones(shape or tuple(numbers.randrange(1, 300) for _ in range(numbers.randrange(1, 3))), dtype)
    makers: dict[str, Callable[[], Any]] = {
        "bytes": lambda: numbers.randbytes(num_bytes(numbers)),
        "str": lambda: numbers.choice(TEXTS),
        "json": lambda: numbers.choice(({"a": "ü"}, [], None, 1.5, "x", {"deep": [[[]]]})),
        "jpeg": lambda: b"\xff\xd8\xff" + numbers.randbytes(numbers.randrange(50)),
        "png": lambda: b"\x89PNG\r\n\x1a\n" + numbers.randbytes(numbers.randrange(50)),
        "int": lambda: numbers.choice((0, -1, 2**63 - 1, -(2**63))),
        "float16": lambda: numbers.choice((0.0, 1.5, float("inf"))),
        "float32": lambda: numbers.choice((0.1, float("nan"))),
        "float64": lambda: numbers.random(),
    }
    return makers.get(encoding, lambda: numbers.randrange(100))


WDS_ENCODINGS = ("bytes", "str", "json", "jpeg", "png", "int")
MDS_ENCODINGS = (
    *WDS_ENCODINGS,
    *("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"),
    *("ndarray", "ndarray:float32", "ndarray:uint16", "ndarray:int32:2,3"),
)


def typed_rows(numbers: random.Random, shard_format: Any, make_rows: Callable[..., Any]) -> dict[str, Any]:
    """Rows of any encodings, some of their bytes, text and JSON missing."""
    count = num_samples(numbers)
    chosen = numbers.sample(WDS_ENCODINGS if isinstance(shard_format, Wds) else MDS_ENCODINGS, numbers.randrange(1, 6))
    columns: dict[str, list[Any]] = {}
    for i, encoding in enumerate(chosen):
        make = values(numbers, encoding)
        columns[f"c{i}"] = [make() for _ in range(count)]
        if i and encoding in ("bytes", "str", "json") and numbers.random() < 0.5:
            columns[f"c{i}"][numbers.randrange(count)] = None
    names = [keys.escape_key(name.encode()) for name in sample_names(numbers, count)]
    return {"source": make_rows(names, columns, {f"c{i}": encoding for i, encoding in enumerate(chosen)})}


def make_own(number: int, root: Path, build: Callable[..., Any], make_rows: Callable[..., Any]) -> Path:
    """One dataset of this package, all of it decided by ``number``."""
    numbers = random.Random(number)
    shard_format = some_format(numbers)
    kind = numbers.choice((files, lines, typed_rows))
    if kind is typed_rows:
        (root / "src").mkdir()
        options = typed_rows(numbers, shard_format, make_rows)
    else:
        options = kind(numbers, root)
    build(root / "src", root / "out", shard_format, **limit(numbers, 10_240 if isinstance(shard_format, Wds) else 1200), **options)
    return root / "out"


def make_foreign_tars(number: int, root: Path) -> Path:
    """One folder of tars by Python's tarfile, in any of its dialects."""
    numbers = random.Random(number)
    tar_format = numbers.choice((tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))
    names = [name for name in NAMES if tar_format != tarfile.USTAR_FORMAT or (name.isascii() and len(name) < 90)]
    is_zipped = numbers.random() < 0.3
    for n in range(numbers.randrange(1, 4)):
        folder = root / "out" / numbers.choice((".", "sub"))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"part-{n:03d}.tar{'.gz' if is_zipped else ''}"
        with tarfile.open(path, "w:gz" if is_zipped else "w", format=tar_format) as archive:
            if numbers.random() < 0.3:
                info = tarfile.TarInfo("b")
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            for i in range(num_samples(numbers)):
                key = f"{numbers.choice(names)}{n}-{i:03d}"
                for field in ("JPG", "seg.png", "cls")[: numbers.randrange(1, 4)]:
                    info = tarfile.TarInfo(f"{key}.{field}")
                    info.size = num_bytes(numbers)
                    info.mtime, info.uid, info.gname = numbers.choice((0, 1.5, 1_700_000_000)), numbers.randrange(3000), "staff"
                    archive.addfile(info, io.BytesIO(numbers.randbytes(info.size)))
        if not is_zipped and numbers.random() < 0.3:
            data = path.read_bytes()
            path.write_bytes(data.rstrip(b"\0") + bytes(-len(data.rstrip(b"\0")) % 512) + bytes(1024))
    return root / "out"


def verdicts(make: Callable[[int, Path], Path], tmp_path: Path, seeds: range) -> list[Verdict]:
    """Of the datasets of these numbers; none has a finding."""
    given, wrong = [], []
    for number in seeds:
        root = tmp_path / str(number)
        root.mkdir()
        verdict = verify(str(make(number, root)), VerifyOptions(workers=1))
        given.append(verdict)
        wrong += [f"seed {number}: {finding}" for finding in verdict.findings[:2]]
    assert wrong == []
    return given


@pytest.fixture
def no_fsync(monkeypatch):
    """Most of the time of a small build goes to the disk, which has no say in what is sound."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.usefixtures("no_fsync")
def test_datasets_of_this_package(build, rows, tmp_path):
    given = verdicts(lambda number, root: make_own(number, root, build, rows), tmp_path, range(SEED, SEED + 200))
    assert Counter(verdict.format_name for verdict in given).keys() == {"wds", "mds"}
    assert min(Counter(verdict.format_name for verdict in given).values()) >= 60
    assert sum(verdict.num_shards > 1 for verdict in given) >= 60
    assert sum(verdict.num_samples == 1 for verdict in given) >= 20
    assert sum(not verdict.has_keys for verdict in given) >= 10
    assert all(verdict.is_published for verdict in given)


def test_tars_of_other_writers(tmp_path):
    given = verdicts(make_foreign_tars, tmp_path, range(SEED, SEED + 60))
    assert not any(verdict.is_published for verdict in given)


def test_shards_that_are_exactly_full(build, rows, tmp_path):
    """The last sample that fits ends at the limit; a byte less of limit and it begins a shard of its own."""
    (tmp_path / "src").mkdir()
    row_source = rows([b"k%02d" % i for i in range(19)], {"bin": [b"x" * 512] * 19}, {"bin": "bytes"})
    for shard_format, name, num_bytes in ((Wds(), "train-000000.tar", 20_480), (Mds(), "shard.00000.mds", 10_208)):
        for n, num_shards in ((num_bytes, 1), (num_bytes - 1, 2)):
            if isinstance(shard_format, Mds) or num_shards == 1:
                out = tmp_path / f"out-{name}-{n}"
                build(tmp_path / "src", out, shard_format, source=row_source, shard_bytes=n)
                verdict = verify(str(out), VerifyOptions(workers=1))
                assert (verdict.findings, verdict.num_shards) == ((), num_shards)
                assert num_shards == 2 or (out / name).stat().st_size == n


@pytest.mark.train
def test_shards_of_the_reference_writer(streaming, tmp_path):
    def make(number: int, root: Path) -> Path:
        numbers = random.Random(number)
        chosen = numbers.sample([*MDS_ENCODINGS[:3], *MDS_ENCODINGS[5:], "str_int", "str_float", "pkl"], numbers.randrange(1, 6))
        columns = {f"c{i}": encoding for i, encoding in enumerate(chosen)} | ({"key": "str"} if numbers.random() < 0.5 else {})
        compression, hashes = numbers.choice((None, None, "zstd", "zstd:9")), numbers.choice(([], ["sha1"], ["md5", "xxh128"]))
        makers = {name: values(numbers, encoding) for name, encoding in columns.items()}
        parts = numbers.choice(([""], ["p0", "p1", "p2"]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for part in parts:
                out = str(root / "out" / part)
                options = {"compression": compression, "hashes": hashes, "size_limit": numbers.choice((600, 5000, None))}
                with streaming.MDSWriter(out=out, columns=columns, **options) as sink:
                    for i in range(num_samples(numbers)):
                        sample = {name: make_value() for name, make_value in makers.items()}
                        sample |= {"key": f"{part}/{i}"} if "key" in columns else {}
                        sink.write({name: stored(columns[name], value) for name, value in sample.items()})
            if len(parts) > 1:
                streaming.base.util.merge_index(str(root / "out"))
        return root / "out"

    def stored(encoding: str, value: Any) -> Any:
        return float(value) if encoding == "str_float" else value

    given = verdicts(make, tmp_path, range(SEED, SEED + 25))
    assert sum(bool(verdict.unchecked_fields) for verdict in given) >= 2, "pickles among them"

"""Shared fixtures: inputs made on the spot, builds in one call, and readers that owe nothing to the code under test."""

import hashlib
import io
import json
import os
import random
import struct
import subprocess
import tarfile
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from s3_stores import moto_store, moto_uri, s3_store, s3_uri  # noqa: F401 - fixtures for every test

from shardtools import plugins
from shardtools.build import run
from shardtools.build.order import Order
from shardtools.build.planning import PlannedBuild, plan_build
from shardtools.build.run import RunOptions
from shardtools.engines.serial import Serial
from shardtools.extents import extent, identity
from shardtools.formats import ShardFacts
from shardtools.plan import Partition, ShardLimit
from shardtools.sample import Batch, Field, Reject
from shardtools.sources import Survey, SurveyRequest
from shardtools.sources.files import Files
from shardtools.units import Budget


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder of real inputs."""
    where = os.environ.get("SHARDTOOLS_CORPORA")
    if not where:
        pytest.skip("SHARDTOOLS_CORPORA is not set: it names the folder of real inputs")
    return Path(where)


def import_quietly(name: str, reason: str) -> ModuleType:
    """A third-party module whose own warnings are not this suite's; skips the test where it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module: ModuleType = pytest.importorskip(name, reason=reason, exc_type=ImportError)
    return module


@pytest.fixture(scope="session")
def streaming() -> ModuleType:
    return import_quietly("streaming", "mosaicml-streaming is not installed: the extra `train` has it")


@pytest.fixture(scope="session")
def transformers() -> ModuleType:
    return import_quietly("transformers", "transformers is not installed: the extra `train` brings it")


@pytest.fixture(scope="session")
def webdataset() -> ModuleType:
    return import_quietly("webdataset", "webdataset is not installed: the extra `train` has it")


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., Path]:
    """Write files by relative path and return their folder; a second call with another name makes another folder."""

    def make(files: Mapping[str | bytes, bytes], name: str = "src") -> Path:
        root = tmp_path / name
        root.mkdir(exist_ok=True)
        for relative, data in files.items():
            path = os.path.join(os.fsencode(root), os.fsencode(relative))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
        return root

    return make


@pytest.fixture
def image_pairs(tmp_path: Path) -> Callable[..., Path]:
    """Real encoded images, each with a JSON file beside it: ``class/0001.jpg`` (or ``.png``) and ``class/0001.json``."""
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed: it makes the images")

    def make(count: int, kinds: Sequence[str] = ("jpg",), seed: int = 7, name: str = "pairs") -> Path:
        numbers = random.Random(seed)
        root = tmp_path / name
        for i in range(count):
            folder = root / ("cats", "dogs", "emus")[i % 3]
            folder.mkdir(parents=True, exist_ok=True)
            kind = kinds[i % len(kinds)]
            image = pillow.frombytes("RGB", (24, 18), numbers.randbytes(24 * 18 * 3))
            image.save(folder / f"{i:04d}.{kind}", "JPEG" if kind in ("jpg", "jpeg") else "PNG")
            (folder / f"{i:04d}.json").write_text(json.dumps({"id": i, "caption": "ein Bild, 画像" * (i % 5)}))
        return root

    return make


@pytest.fixture
def build() -> Callable[..., run.Result]:
    """Pack in one call: ``build(source, destination, "wds", group="file", shard_bytes=20480)``."""

    def call(
        sources: Path | str | Sequence[Path | str],
        destination: Path | str,
        format_: Any = "wds",
        *,
        source: Any = None,
        shard_bytes: int | None = None,
        shard_samples: int | None = None,
        seed: int | None = None,
        encodings: dict[str, str] | None = None,
        max_bad: str = "0",
        engine: Any = None,
        overwrite: bool = False,
        listener: run.Listener | None = None,
        **files_options: Any,
    ) -> run.Result:
        order = Order(
            source if source is not None else Files(**files_options),
            plugins.load("formats", format_)() if isinstance(format_, str) else format_,
            ShardLimit(shard_bytes, shard_samples) if shard_bytes or shard_samples else None,
            seed,
            encodings or {},
        )
        options = RunOptions(engine or Serial(), Budget.parse(max_bad), overwrite)
        arguments = [sources] if isinstance(sources, str | Path) else sources
        return run.build([str(argument) for argument in arguments], str(destination), order, options, listener or run.Listener())

    return call


@pytest.fixture
def plan() -> Callable[..., PlannedBuild]:
    """Plan without building: ``plan(source, "mds", group="file")``."""

    def call(
        sources: Any, format_: Any = "wds", *, seed: int | None = None, limit: ShardLimit | None = None, **files_options: Any
    ) -> PlannedBuild:
        chosen = plugins.load("formats", format_)() if isinstance(format_, str) else format_
        arguments = [sources] if isinstance(sources, str | Path) else sources
        return plan_build([str(argument) for argument in arguments], Order(Files(**files_options), chosen, limit, seed))

    return call


# Rows as a source: what formats and builds are fed when the input does not matter.


@dataclass(frozen=True)
class Rows:
    """A source of given rows, in one partition unless ``cuts`` say otherwise. Rejects the rows whose key begins with ``bad``."""

    rows: "RowTable"
    fields: tuple[Field, ...]
    cuts: tuple[int, ...] = ()

    file_suffixes: ClassVar[tuple[str, ...]] = ()

    def survey(self, request: SurveyRequest) -> Survey:
        bounds = [0, *self.cuts, len(self.rows.keys)]
        partitions = [
            Partition(n, [extent([b"%d" % i], b"1") for i in range(begin, end)], end - begin, end - begin, 1)
            for n, (begin, end) in enumerate(pairwise(bounds))
        ]
        return Survey(self, self.fields, partitions, [])

    def read(
        self, roots: Sequence[str], extents: Sequence[bytes], reject: Callable[[Reject], None], extras: Sequence[str] = ()
    ) -> Iterator[Batch]:
        good = []
        for i in (int(identity(packed)) for packed in extents):
            if self.rows.keys[i].startswith(b"bad"):
                reject(Reject("bad-row", f"row {i}", "expected a good row, got a bad one"))
            else:
                good.append(i)
        for begin in range(0, len(good), 7):
            some = good[begin : begin + 7]
            columns = {name: [values[i] for i in some] for name, values in self.rows.columns.items()}
            yield Batch([self.rows.keys[i] for i in some], columns, lambda i, some=some: f"row {some[i]}")


class RowTable:
    """Keys and columns. A recipe holds plain data, so the copy that goes into one is the number of rows alone."""

    def __init__(self, keys: Sequence[bytes], columns: Mapping[str, Sequence[Any]]) -> None:
        self.keys = list(keys)
        self.columns = dict(columns)

    def __deepcopy__(self, memo: object) -> int:
        return len(self.keys)


@pytest.fixture
def rows() -> Callable[..., Rows]:
    """``rows(keys, {"bin": [...]}, {"bin": "bytes"})`` as a source."""

    def make(keys: Sequence[bytes], columns: Mapping[str, Sequence[Any]], encodings: Mapping[str, str], cuts: Sequence[int] = ()) -> Rows:
        fields = tuple(Field(name, encoding, any(value is None for value in columns[name])) for name, encoding in sorted(encodings.items()))
        return Rows(RowTable(keys, columns), fields, tuple(cuts))

    return make


# One shard in memory.


@dataclass
class MemoryObject:
    """An ObjectWriter that keeps what it is given."""

    spool_folder: str
    data: bytearray = field(default_factory=bytearray)
    is_finished: bool = False
    is_aborted: bool = False

    def write(self, data: bytes) -> None:
        self.data += data

    def finish(self) -> None:
        self.is_finished = True

    def abort(self) -> None:
        self.is_aborted = True


@pytest.fixture
def memory_object(tmp_path: Path) -> Callable[[], MemoryObject]:
    return lambda: MemoryObject(str(tmp_path))


@dataclass
class Shard:
    """What ``write_shard`` made."""

    data: bytes
    facts: ShardFacts
    keys: list[bytes]
    rejects: list[Reject]


@pytest.fixture
def write_shard(tmp_path: Path) -> Callable[..., Shard]:
    """Encode batches into one shard: ``write_shard(Wds(), source)`` for a source made by ``rows``."""

    def write(format_: Any, source: Rows, shard_bytes: int | None = None) -> Shard:
        rejects: list[Reject] = []
        encoder = format_.encoder(source.fields, shard_bytes)
        output = MemoryObject(str(tmp_path))
        shard = format_.shard_file(source.fields, shard_bytes, output)
        keys: list[bytes] = []
        extents = [extent([b"%d" % i], b"1") for i in range(len(source.rows.keys))]
        try:
            for batch in source.read([], extents, rejects.append):
                chunk = encoder.encode(batch, rejects.append)
                keys += chunk.keys
                if chunk.keys:
                    shard.append(chunk.pieces, chunk.costs)
            facts = shard.finish()
        except BaseException:
            shard.abort()
            raise
        assert output.is_finished
        return Shard(bytes(output.data), facts, keys, rejects)

    return write


# Reading back, with nothing of the package.


@pytest.fixture
def read_tars() -> Callable[[Path], dict[str, bytes]]:
    """Every member of every tar of a folder, in order, by Python's tarfile; a name that occurs twice fails."""

    def read(folder: Path) -> dict[str, bytes]:
        members: dict[str, bytes] = {}
        for path in sorted(folder.glob("*.tar")):
            with tarfile.open(path, "r:") as archive:
                for member in archive:
                    assert member.name not in members, f"{member.name} occurs twice"
                    opened = archive.extractfile(member)
                    assert opened is not None
                    members[member.name] = opened.read()
        return members

    return read


@pytest.fixture
def read_mds_raw() -> Callable[[Path], list[dict[str, bytes]]]:
    """Every row of an uncompressed MDS folder as undecoded bytes, by struct and json alone."""

    def read(folder: Path) -> list[dict[str, bytes]]:
        rows = []
        for entry in json.loads((folder / "index.json").read_text())["shards"]:
            data = (folder / entry["raw_data"]["basename"]).read_bytes()
            assert len(data) == entry["raw_data"]["bytes"]
            (count,) = struct.unpack_from("<I", data)
            assert count == entry["samples"]
            offsets = struct.unpack_from(f"<{count + 1}I", data, 4)
            for begin, end in pairwise(offsets):
                sizes = entry["column_sizes"]
                num_variable = sizes.count(None)
                lengths = iter(struct.unpack_from(f"<{num_variable}I", data, begin))
                at, row = begin + 4 * num_variable, {}
                for name, size in zip(entry["column_names"], sizes, strict=True):
                    length = next(lengths) if size is None else size
                    row[name] = data[at : at + length]
                    at += length
                assert at == end
                rows.append(row)
        return rows

    return read


@pytest.fixture
def read_streaming(streaming: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], list[dict[str, Any]]]:
    """Every row of an MDS folder as StreamingDataset decodes it, in one process, with its lock files in a folder of this test."""

    def read(folder: Path) -> list[dict[str, Any]]:
        private = tmp_path / "streaming-tmp"
        private.mkdir(exist_ok=True)
        monkeypatch.setenv("TMPDIR", str(private))
        monkeypatch.setattr(tempfile, "tempdir", str(private))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dataset = streaming.StreamingDataset(local=str(folder), batch_size=1, shuffle=False)
            return list(dataset)

    return read


@pytest.fixture
def read_webdataset(webdataset: ModuleType) -> Callable[[Path], list[dict[str, bytes]]]:
    """Every sample of a folder of tars as the webdataset library groups them, undecoded, without its own ``__url__``."""

    def read(folder: Path) -> list[dict[str, bytes]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            urls = [str(path) for path in sorted(folder.glob("*.tar"))]
            samples = list(webdataset.WebDataset(urls, shardshuffle=False, empty_check=False))
        return [{name: value for name, value in sample.items() if name not in ("__url__", "__local_path__")} for sample in samples]

    return read


@pytest.fixture
def gnu_tar() -> Callable[..., str]:
    """Run GNU tar in UTC and the C locale."""

    def call(*arguments: str | Path) -> str:
        environment = {**os.environ, "TZ": "UTC", "LC_ALL": "C"}
        done = subprocess.run(["tar", *map(str, arguments)], capture_output=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr == b""
        return done.stdout.decode()

    return call


@pytest.fixture
def ustar() -> Callable[[Sequence[tuple[str, bytes]]], bytes]:
    """The archive Python's tarfile makes of (name, data) pairs, with every owner and time zero and mode 0444."""

    def make(members: Sequence[tuple[str, bytes]]) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name, data in members:
                info = tarfile.TarInfo(name)
                info.size, info.mode, info.mtime, info.uid, info.gid = len(data), 0o444, 0, 0, 0
                archive.addfile(info, io.BytesIO(data))
        return buffer.getvalue()

    return make


@pytest.fixture
def digests() -> Callable[[Path], dict[str, str]]:
    """SHA-256 of every file below a folder."""

    def read(folder: Path) -> dict[str, str]:
        found = (path for path in sorted(folder.rglob("*")) if path.is_file())
        return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}

    return read


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """A file system of so many KiB; calling it again resizes it. Only root can mount one."""
    folder = tmp_path / "disk"

    def make(kibibytes: int) -> Path:
        if os.geteuid() != 0:
            pytest.skip("only root can mount a small file system to fill")
        remount = ["-o", f"remount,size={kibibytes}k"] if os.path.ismount(folder) else ["-o", f"size={kibibytes}k"]
        folder.mkdir(exist_ok=True)
        done = subprocess.run(["mount", "-t", "tmpfs", *remount, "tmpfs", str(folder)], capture_output=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"mounting a small file system to fill is not possible here: {done.stderr.decode().strip()}")
        return folder

    yield make
    if os.path.ismount(folder):
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def one_sentence() -> Callable[[BaseException], str]:
    """The message of an error a user is shown: one line, no class names or traceback, within reason."""

    def check(error: BaseException) -> str:
        text = str(error)
        assert text and "\n" not in text and "Traceback" not in text and "Errno" not in text
        assert len(text) < 600
        return text

    return check

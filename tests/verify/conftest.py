"""Sound datasets to damage, and the tools to damage them so that only the deeper levels can see it."""

import hashlib
import io
import json
import struct
import tarfile
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds
from shardtools.verify import Finding, VerifyOptions, verify

COUNT = 40


@pytest.fixture
def wds(tmp_path: Path, build: Callable[..., Any], rows: Callable[..., Any]) -> Path:
    """40 samples of json and txt in five shards of at most 20 KiB, nine a shard."""
    keys = [b"k%03d" % i for i in range(COUNT)]
    columns = {"json": [b'{"i":%d}' % i for i in range(COUNT)], "txt": [b"t" * (i + 1) for i in range(COUNT)]}
    build_rows(tmp_path, build, rows(keys, columns, {"json": "json", "txt": "str"}), Wds())
    return tmp_path / "out"


@pytest.fixture
def mds(tmp_path: Path, build: Callable[..., Any], rows: Callable[..., Any]) -> Path:
    return mds_folder(tmp_path, build, rows, Mds())


@pytest.fixture
def zipped(tmp_path: Path, build: Callable[..., Any], rows: Callable[..., Any]) -> Path:
    return mds_folder(tmp_path, build, rows, Mds(compression="zstd", hashes=("sha1", "xxh64")))


def mds_folder(tmp_path: Path, build: Callable[..., Any], rows: Callable[..., Any], shard_format: Mds) -> Path:
    """40 rows of every kind of encoding in shards of at most 2 KiB."""
    keys = [b"k%03d" % i for i in range(COUNT)]
    columns = {
        "array": [list(range(i + 1)) for i in range(COUNT)],
        "image": [b"\xff\xd8\xff" + b"i" * i for i in range(COUNT)],
        "meta": [{"i": i} for i in range(COUNT)],
        "number": list(range(COUNT)),
        "text": ["t" * i for i in range(COUNT)],
    }
    encodings = {"array": "ndarray:int32", "image": "jpeg", "meta": "json", "number": "int", "text": "str"}
    build_rows(tmp_path, build, rows(keys, columns, encodings), shard_format, 2048)
    return tmp_path / "out"


def build_rows(tmp_path: Path, build: Callable[..., Any], source: Any, shard_format: Any, shard_bytes: int = 20480) -> None:
    (tmp_path / "src").mkdir(exist_ok=True)
    build(tmp_path / "src", tmp_path / "out", shard_format, source=source, shard_bytes=shard_bytes)


@pytest.fixture
def findings() -> Callable[[Path], list[Finding]]:
    """What verify finds, in this process."""
    return lambda folder: list(verify(str(folder), VerifyOptions(workers=1)).findings)


@pytest.fixture
def kinds(findings: Callable[[Path], list[Finding]]) -> Callable[[Path], dict[str, int]]:
    """How many findings of each kind verify has."""
    return lambda folder: dict(Counter(finding.kind for finding in findings(folder)))


def read_manifest(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "shardtools.manifest").read_text())
    return content


def seal(folder: Path, content: dict[str, Any]) -> None:
    """Write an edited manifest with a right seal, as its format says: JSON text that ends in the SHA-256 of the rest."""
    content.pop("sha256", None)
    text = json.dumps(content, indent=1).removesuffix("\n}")
    digest = hashlib.sha256(text.encode()).hexdigest()
    (folder / "shardtools.manifest").write_text(f'{text},\n "sha256": "{digest}"\n}}\n')


@pytest.fixture
def edit_manifest() -> Callable[[Path, Callable[[dict[str, Any]], object]], None]:
    """Change the manifest and seal it again."""

    def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
        content = read_manifest(folder)
        change(content)
        seal(folder, content)

    return edit


@pytest.fixture
def forge() -> Callable[[Path, str, bytes], None]:
    """Replace a file and make the manifest agree, so that levels 1 and 2 pass: what only a strict parser can see remains."""

    def replace(folder: Path, name: str, data: bytes) -> None:
        (folder / name).write_bytes(data)
        content = read_manifest(folder)
        for entry in content["shards"] + content["files"]:
            if entry["name"] == name:
                entry["bytes"], entry["sha256"] = len(data), hashlib.sha256(data).hexdigest()
        seal(folder, content)

    return replace


Members = Sequence[tuple[str, bytes] | tarfile.TarInfo]


@pytest.fixture
def tar_of() -> Callable[..., bytes]:
    """A tar by Python's tarfile, as this package would write it but for what is asked."""

    def make(members: Members, tar_format: int = tarfile.USTAR_FORMAT, mtime: float = 0) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tar_format) as archive:
            for member in members:
                if isinstance(member, tarfile.TarInfo):
                    archive.addfile(member)
                    continue
                info = tarfile.TarInfo(member[0])
                info.size, info.mode, info.mtime = len(member[1]), 0o444, mtime
                archive.addfile(info, io.BytesIO(member[1]))
        return buffer.getvalue()

    return make


@pytest.fixture
def members_of() -> Callable[[Path], list[tuple[str, bytes]]]:
    """The members of a tar by Python's tarfile."""

    def read(path: Path) -> list[tuple[str, bytes]]:
        with tarfile.open(path, "r:") as archive:
            return [(info.name, archive.extractfile(info).read()) for info in archive]  # type: ignore[union-attr]

    return read


class MdsParts:
    """An MDS shard taken apart by struct and json alone."""

    def __init__(self, data: bytes) -> None:
        (count,) = struct.unpack_from("<I", data)
        offsets = struct.unpack_from(f"<{count + 1}I", data, 4)
        self.config: Any = json.loads(data[8 + 4 * count : offsets[0]])
        self.rows = [data[a:b] for a, b in pairwise(offsets)]

    def data(self) -> bytes:
        config = json.dumps(self.config, sort_keys=True).encode()
        offsets = [8 + 4 * len(self.rows) + len(config)]
        for row in self.rows:
            offsets.append(offsets[-1] + len(row))
        return struct.pack(f"<{len(offsets) + 1}I", len(self.rows), *offsets) + config + b"".join(self.rows)


@pytest.fixture
def mds_parts() -> Callable[[bytes], MdsParts]:
    return MdsParts

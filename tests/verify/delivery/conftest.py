"""Small datasets written by tarfile and by the reference writer, and the delivery proof over them."""

import io
import tarfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shardtools.datasets import survey_dataset
from shardtools.digests import DigestTable
from shardtools.verify.delivery import check_delivery
from shardtools.verify.findings import Finding, Findings
from shardtools.verify.options import DeliveryOptions
from shardtools.verify.stored import Proof, Stored, digest_of

SHARDS, SHARD_SAMPLES = 6, 9
KEYS = [[f"k{shard * SHARD_SAMPLES + i:03d}" for i in range(SHARD_SAMPLES)] for shard in range(SHARDS)]
"""With 2 ranks and 2 workers, webdataset's rule gives shards 0 and 4 to rank 0 worker 0, 2 to rank 0 worker 1, 1 and 5 to
rank 1 worker 0, 3 to rank 1 worker 1."""


def write_tars(folder: Path, shards: Sequence[Sequence[str]]) -> Path:
    folder.mkdir(exist_ok=True)
    for i, keys in enumerate(shards):
        with tarfile.open(folder / f"train-{i:06d}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for key in keys:
                info = tarfile.TarInfo(f"{key}.txt")
                info.size = len(key)
                archive.addfile(info, io.BytesIO(key.encode()))
    return folder


@pytest.fixture
def tars(tmp_path: Path) -> Path:
    """54 samples, k000 to k053, in six shards of nine."""
    return write_tars(tmp_path / "tars", KEYS)


@pytest.fixture
def mosaic(tmp_path: Path, streaming: ModuleType) -> Callable[..., Path]:
    """``mosaic(41)``: that many samples by MDSWriter in shards of a few; ``keyed=False`` leaves the key out."""

    def make(count: int, keyed: bool = True, compression: str | None = None) -> Path:
        folder = tmp_path / "mosaic"
        columns = {"number": "int", **({"key": "str"} if keyed else {})}
        with streaming.MDSWriter(out=str(folder), columns=columns, size_limit=300, compression=compression) as writer:
            for i in range(count):
                writer.write({"number": i, **({"key": f"k{i:03d}"} if keyed else {})})
        return folder

    return make


@dataclass(frozen=True)
class Delivered:
    """What the delivery proof came to."""

    findings: tuple[Finding, ...]
    proof: Proof

    @property
    def kinds(self) -> dict[str, int]:
        return dict(Counter(finding.kind for finding in self.findings if not finding.is_note))

    @property
    def notes(self) -> dict[str, str]:
        """Notes of live runs and of the arithmetic, of which there is one of a kind at most."""
        notes = [finding for finding in self.findings if finding.is_note]
        assert len({note.kind for note in notes}) == len(notes)
        return {note.kind: note.detail for note in notes}

    def keys(self, kind: str) -> list[str | None]:
        return [finding.key for finding in self.findings if finding.kind == kind]

    def detail(self, kind: str, key: str | None) -> str:
        (detail,) = [finding.detail for finding in self.findings if (finding.kind, finding.key) == (kind, key)]
        return detail


@pytest.fixture
def deliver(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Delivered]:
    """``deliver(folder, shards, world_sizes=(2,), ...)`` for a dataset that stores the keys of ``shards``.

    The current folder is this one, where ``planted.py`` lies.
    """

    def call(folder: Path | str, shards: Sequence[Sequence[str]] = KEYS, limit: int = 100, **options: Any) -> Delivered:
        monkeypatch.chdir(Path(__file__).parent)
        keys = DigestTable()
        keys.add(b"".join(digest_of(key) for shard in shards for key in shard))
        stored = Stored(survey_dataset(str(folder)), tuple(len(shard) for shard in shards), keys)
        findings = Findings(limit)
        proof = check_delivery(stored, DeliveryOptions(**options), findings)
        return Delivered(findings.all(), proof)

    return call

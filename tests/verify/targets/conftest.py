"""Tars made to trip readers, and what the lints say of them."""

import io
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from shardtools.datasets import survey_dataset
from shardtools.verify.findings import Finding, Findings
from shardtools.verify.targets import check_targets


@pytest.fixture
def lint() -> Callable[..., list[Finding]]:
    """``lint(folder, "webdataset")``: the findings of these targets alone."""

    def check(folder: Path | str, *targets: str) -> list[Finding]:
        findings = Findings(100)
        check_targets(survey_dataset(str(folder)), targets, findings)
        return list(findings.all())

    return check


@pytest.fixture
def kinds_of(lint: Callable[..., list[Finding]]) -> Callable[..., list[str]]:
    return lambda folder, *targets: sorted(finding.kind for finding in lint(folder, *targets))


Members = Sequence[tuple[str | bytes, bytes] | str | tarfile.TarInfo]


@pytest.fixture
def shard(tmp_path: Path) -> Callable[..., Path]:
    """Write a tar of names (with a byte each) or (name, data) pairs into a folder, and return the folder."""

    def write(members: Members, name: str = "train-0.tar", tar_format: int = tarfile.USTAR_FORMAT, folder: str = "data") -> Path:
        path = tmp_path / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tar_format, encoding="utf-8", errors="surrogateescape") as archive:
            for member in members:
                if isinstance(member, tarfile.TarInfo):
                    archive.addfile(member)
                    continue
                raw, data = (member, b"1") if isinstance(member, str) else member
                info = tarfile.TarInfo(raw.decode("utf-8", "surrogateescape") if isinstance(raw, bytes) else raw)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        path.write_bytes(buffer.getvalue())
        return tmp_path / folder

    return write

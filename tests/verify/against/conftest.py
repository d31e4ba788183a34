"""Datasets to compare with their sources, and the forgery that only a comparison can see."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shardtools.build.order import OrderWords, order_of
from shardtools.build.run import RunOptions
from shardtools.build.run import build as run_build
from shardtools.engines.serial import Serial
from shardtools.sources import resolve_inputs
from shardtools.units import Budget
from shardtools.verify import Verdict, VerifyOptions, verify

Pack = Callable[..., Path]
Seen = list[tuple[str, str | None]]


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    """``pack(source, "wds", "out", shard_samples=7)`` as the command line would, in this process; returns the dataset's folder."""

    def call(source: Path, format_: str, name: str = "out", /, *, max_bad: str = "0", **words: Any) -> Path:
        inputs = resolve_inputs([str(source)])
        order = order_of(inputs, OrderWords(format=format_, **words))
        run_build(inputs, str(tmp_path / name), order, RunOptions(Serial(), Budget.parse(max_bad)))
        return tmp_path / name

    return call


@dataclass
class Comparison:
    """What a verification against a source came to."""

    verdict: Verdict

    @property
    def seen(self) -> Seen:
        """Kind and key of every finding of every level, sorted."""
        return sorted(((finding.kind, finding.key) for finding in self.verdict.findings), key=lambda seen: (seen[0], seen[1] or ""))

    def detail(self, kind: str) -> str:
        (finding,) = [finding for finding in self.verdict.findings if finding.kind == kind]
        return finding.detail

    @property
    def proved(self) -> str:
        return " ".join(sentence for proof in self.verdict.proofs for sentence in proof.proved)

    @property
    def not_proved(self) -> str:
        return " ".join(text for proof in self.verdict.proofs for text in proof.not_proved)


@pytest.fixture
def against() -> Callable[..., Comparison]:
    """Verify a dataset on all cheap levels and against a source; in this process unless ``workers`` says otherwise."""

    def call(folder: Path, *sources: Path | str, workers: int = 1, limit: int = 100) -> Comparison:
        options = VerifyOptions(workers=workers, max_findings=limit, against=tuple(map(str, sources)))
        return Comparison(verify(str(folder), options))

    return call


@pytest.fixture
def claim(edit_manifest: Callable[..., None]) -> Callable[[Path, Path], None]:
    """Let a sound dataset claim that it was made by the plan of another one: nothing but its samples can tell."""

    def forge(folder: Path, honest: Path) -> None:
        original = json.loads((honest / "shardtools.manifest").read_text())
        edit_manifest(folder, lambda content: content.update(plan=original["plan"], recipe=original["recipe"]))
        shutil.copy(honest / ".shardtools/plan", folder / ".shardtools/plan")

    return forge


def write_records(path: Path, records: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), "utf-8")
    return path


@pytest.fixture
def records(tmp_path: Path) -> Callable[[list[Any], str], Path]:
    """Write records as JSON lines."""
    return lambda values, name="in/records.jsonl": write_records(tmp_path / name, values)


def sample_records(count: int) -> list[dict[str, Any]]:
    """Records with every type a column is made of."""
    return [
        {
            "id": f"r{i:04d}",
            "text": "ein Täxt " * (i % 4),
            "count": i - 5,
            "score": i / 8,
            "good": i % 3 == 0,
            "meta": {"b": [1, 2.0, None], "a": {"i": i}},
            "note": None if i % 2 else "n",
            "mixed": i if i % 2 else i / 2,
        }
        for i in range(count)
    ]


@pytest.fixture
def many_records() -> Callable[[int], list[dict[str, Any]]]:
    return sample_records


@pytest.fixture
def pairs(tree: Callable[..., Path]) -> Callable[..., Path]:
    """Samples ``a/000`` and so on of json and txt; ``changes`` replace files, None leaves one out."""

    def make(count: int = 40, name: str = "src", **changes: bytes | None) -> Path:
        files: dict[str | bytes, bytes | None] = {}
        for i in range(count):
            files[f"a/{i:03d}.json"] = b'{"i":%d}' % i
            files[f"a/{i:03d}.txt"] = b"t" * (i * 37 % 400)
        files |= {f"a/{stem.removeprefix('s').replace('_', '.')}": data for stem, data in changes.items()}
        return tree({path: data for path, data in files.items() if data is not None}, name)

    return make

"""Fresh runs of identical and of slowed layouts: the tool finds no difference where there is none, and 1.3 times where it was planted.

What a run came to is kept by pytest's cache under the digest of the package, so that a broken-off session goes on where it was.
"""

import hashlib
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra train")

from shardtools.bench import rounds as bench_rounds  # noqa: E402
from shardtools.bench import run as bench_run  # noqa: E402
from shardtools.bench.blocks import BlockPlan  # noqa: E402
from shardtools.bench.request import BenchRequest  # noqa: E402
from shardtools.bench.spec import Settings, TrialSpec, Workload  # noqa: E402
from shardtools.bench.trial import TrialResult, run_trial  # noqa: E402

pytestmark = [pytest.mark.train, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
NUM_PAIRS = 4000
SECONDS = 3.0


def source_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted((ROOT / "shardtools").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The same shards twice."""
    folder = tmp_path_factory.mktemp("truth")
    script = [sys.executable, str(ROOT / "scripts/make_sample_data.py"), str(folder), "--pairs", str(NUM_PAIRS)]
    subprocess.run([*script, "--records", "1", "--chats", "1"], check=True, capture_output=True)
    pack = [
        sys.executable,
        "-m",
        "shardtools",
        "pack",
        str(folder / "images"),
        str(folder / "one"),
        "--to",
        "wds",
        "--shard-samples",
        "500",
    ]
    subprocess.run(pack, check=True, capture_output=True)
    shutil.copytree(folder / "one", folder / "other")
    return str(folder / "one"), str(folder / "other")


def measured(sides: tuple[str, str], seed: int) -> dict[str, Any]:
    workload = Workload(batch_size=16, transform="slowed_transforms:plain", seed=seed)
    settings = Settings(num_workers=1)
    request = BenchRequest(
        sides, ("shardtools",), workload, settings, cache="warm", plan=BlockPlan(seed), min_seconds=SECONDS, attribute="none"
    )
    (compared,) = bench_run.bench(request, print).data["comparisons"]
    return dict(compared)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("planted", [False, True], ids=["the same", "1.3 times slower"])
def test_what_is_true_is_found(
    planted: bool, number: int, sides: tuple[str, str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    cache = request.config.cache
    assert cache is not None
    place = f"bench/{source_digest()}/{planted}-{number}"
    found = cache.get(place, None)
    if found is None:
        monkeypatch.syspath_prepend(str(Path(__file__).parent))
        monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{ROOT}")
        if planted:
            monkeypatch.setattr(bench_rounds, "run_trial", slowed(sides[1]))
        found = measured(sides, seed=100 * planted + number)
        cache.set(place, found)
    print(found)
    _, high = found["ci"]
    if planted:
        assert found["is_clear"] and high < 1
        assert 1.15 < 1 / found["ratio"] < 1.45
    else:
        assert not found["is_clear"], found["sentence"]


def slowed(uri: str) -> Any:
    """Trials of one side whose transform costs 1.3 times as much: the work a fault of its own would add, after it was proved equal."""

    def run(spec: TrialSpec, *arguments: Any) -> TrialResult:
        if spec.layout.uri == uri:
            spec = replace(spec, workload=replace(spec.workload, transform="slowed_transforms:slower"))
        return run_trial(spec, *arguments)

    return run

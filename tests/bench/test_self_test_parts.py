"""The parts of a self-test; stops a fault that costs nothing, a table that calls a wrong class right, and data that stays behind.

Outcomes are made up here, and waits are recorded in place of waiting.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it", exc_type=ImportError)

from shardtools.bench.page_cache import PageCache  # noqa: E402
from shardtools.bench.self_test import plants  # noqa: E402
from shardtools.bench.self_test import run as self_test_run  # noqa: E402
from shardtools.bench.self_test.cases import CASES, CONTROLS, Case, cases_of, workload  # noqa: E402
from shardtools.bench.self_test.data import can_be_cold, small_files  # noqa: E402
from shardtools.bench.self_test.outcome import Outcome, SelfTest  # noqa: E402
from shardtools.bench.spec import TrialSpec, spec_of  # noqa: E402
from shardtools.errors import UsageError  # noqa: E402

pytestmark = pytest.mark.train

ROOT = Path(__file__).parents[2]
CLASSES = {"storage", "decode", "transform", "collate", "transfer", "shared_memory", "h2d_copy", "fed", "balanced"}


def test_every_class_is_planted_and_controls_of_both_kinds() -> None:
    assert {case.planted for case in CASES} == CLASSES
    assert len({case.name for case in CASES}) == len(CASES)
    assert {case.planted for case in CASES if case.is_control} == set(CONTROLS) == {"fed", "balanced"}


def test_cases_are_found_by_name_and_by_class() -> None:
    assert [case.name for case in cases_of(("balanced", "slow-decode"))] == ["slow-decode", "two-equal", "four-equal"]
    assert cases_of(()) == CASES
    with pytest.raises(UsageError, match=r"expected a planted class or a case as one of .*storage.*, got network"):
        cases_of(("network",))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_reaches_a_trial_as_json(case: Case) -> None:
    spec = case.spec("/data", seed=3)
    assert spec_of(json.loads(json.dumps(spec.as_json()))) == spec
    assert spec.workload.seed == 3


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_function_a_case_names_is_there(case: Case) -> None:
    spec = case.spec("/data")
    for name in (spec.workload.decode, spec.workload.transform, spec.workload.collate, spec.plant):
        assert name is None or callable(getattr(plants, name.removeprefix("shardtools.bench.self_test.plants:")))


def test_the_data_is_the_same_for_a_seed_and_cannot_be_shortened() -> None:
    def digest(seed: int) -> tuple[str, int]:
        with small_files(20, seed) as folder:
            data = b"".join(Path(folder, name).read_bytes() for name in sorted(os.listdir(folder)))
        import zlib

        return hashlib.sha256(data).hexdigest(), len(zlib.compress(data, 9))

    assert digest(1) == digest(1)
    assert digest(1)[0] != digest(2)[0]
    assert digest(1)[1] > 20 * 4096


@pytest.mark.parametrize("end", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_the_data_goes_however_it_ends(end: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("shardtools.bench.self_test.data._ON_DISK", str(tmp_path))
    with pytest.raises(end), small_files(3) as folder:
        assert len(os.listdir(folder)) == 3 and os.path.dirname(folder) == str(tmp_path)
        raise end()
    assert os.listdir(tmp_path) == []


def test_data_lies_where_it_can_be_cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        monkeypatch.setattr(tempfile, "tempdir", memory)
        monkeypatch.setattr("shardtools.bench.self_test.data._ON_DISK", str(tmp_path))
        with small_files(3) as folder:
            if not can_be_cold(folder):
                pytest.skip("pytest's folder is in memory, too")
            assert os.path.dirname(folder) == str(tmp_path)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Milliseconds the plants would have slept."""
    found: list[float] = []
    monkeypatch.setattr(plants, "_sleep", found.append)
    return found


def test_a_throttled_file_costs_only_while_it_is_not_in_the_page_cache(waits: list[float]) -> None:
    with small_files(4) as folder:
        if not can_be_cold(folder):
            pytest.skip("no file can be cold here")
        files = sorted(os.path.join(folder, name) for name in os.listdir(folder))
        opener = plants.ThrottledOpen(4.0)
        PageCache(files).evict()
        for path in files:
            with opener(os.fsencode(path), "rb") as file:
                assert file.read() == Path(path).read_bytes()
        assert waits == [4.0] * 3, "each cold file but the first, which is read to see how to look"
        for path in files:
            opener(os.fsencode(path), "rb").close()
        assert waits == [4.0] * 3, "warm files cost nothing"


def test_slow_stages_cost_what_they_say(waits: list[float]) -> None:
    sample = {"bin": b"abc"}
    assert bytes(plants.decode_sleep(sample)) == bytes(plants.decode_sleep_twice(sample)) == b"abc"
    samples = [plants.transform(plants.decode_share(sample))] * 8
    plants.transform_share(plants.decode(sample))
    assert waits == [4.0, 8.0, 2.0, 2.0]
    waits.clear()
    assert plants.collate_sleep(samples).shape == (8, 3)
    plants.collate_share(samples)
    assert waits == [32.0, 16.0]


@pytest.mark.parametrize("burn", [plants.decode_burn, lambda sample: plants.transform_burn(plants.decode(sample))])
def test_burning_takes_processor_time(burn: Any) -> None:
    began = time.thread_time()
    burn({"bin": b"abc"})
    assert time.thread_time() - began >= 0.004


def test_many_tensors_hold_the_batch() -> None:
    samples = [torch.full((4096,), i, dtype=torch.uint8) for i in range(8)]
    found = plants.collate_many(samples)
    assert len(found) == 256
    assert torch.cat(found[:-1]).tolist() == torch.stack(samples).flatten().tolist()
    assert len(found[-1]) == 8, "a trial counts the samples of a batch by its last tensor"


def outcome(planted: str, verdict: str | None, seconds: float = 1.0) -> Outcome:
    case = Case(f"a-{planted}"[:14], planted, "how", workload())
    return Outcome(case, verdict, "high", 8.7, (8.0, 9.1), seconds, "why")


@pytest.mark.parametrize(
    "planted, verdict, mark",
    [
        ("storage", "storage", "right"),
        ("storage", "decode", "wrong"),
        ("storage", "fed", "wrong"),
        ("storage", "balanced", "wrong"),
        ("storage", "inconclusive", "inconclusive"),
        ("storage", None, "not run"),
        ("fed", "fed", "right"),
        ("fed", "balanced", "right"),
        ("fed", "inconclusive", "right"),
        ("fed", "storage", "wrong"),
        ("balanced", "fed", "right"),
        ("balanced", "transfer", "wrong"),
    ],
)
def test_the_mark_of_an_outcome(planted: str, verdict: str | None, mark: str) -> None:
    assert outcome(planted, verdict).mark == mark


@pytest.mark.parametrize(
    "verdicts, code",
    [
        (["storage"] * 9 + ["inconclusive"], 0),
        (["storage"] * 8 + ["inconclusive"] * 2, 1),
        (["storage"] * 99 + ["decode"], 1),
        (["storage", None], 0),
        ([None], 1),
        ([], 1),
    ],
)
def test_the_exit_code(verdicts: list[str | None], code: int) -> None:
    assert SelfTest(tuple(outcome("storage", verdict) for verdict in verdicts), 1.0).exit_code == code


def test_the_json_has_an_entry_a_run() -> None:
    data = SelfTest((outcome("storage", "storage"), outcome("fed", None)), 61.26).as_json()
    assert data["schema"] == "shardtools.selftest/1"
    assert data["confusion"][0] == {
        "case": "a-storage",
        "planted": "storage",
        "how": "how",
        "verdict": "storage",
        "confidence": "high",
        "ratio": 8.7,
        "ci": [8.0, 9.1],
        "seconds": 1.0,
        "mark": "right",
        "sentence": "why",
        "evidence": [],
    }
    assert (data["num_run"], data["num_right"], data["seconds"], data["exit_code"]) == (1, 1, 61.3, 0)
    assert json.loads(json.dumps(data)) == data


def test_the_table_fits_a_terminal() -> None:
    runs = [outcome(case.planted, verdict, 119.6) for case in CASES for verdict in ("shared_memory", "inconclusive", None)]
    lines = list(SelfTest(tuple(runs), 600.0).lines())
    assert max(map(len, lines)) <= 80
    assert "a-storage      storage        shared_memory  high           8.70x   120  WRONG" in lines
    assert "6 of 24 right, in 10.0 minutes" in lines


def test_the_confusion_counts_what_was_taken_for_what() -> None:
    runs = [outcome("storage", "storage"), outcome("storage", "decode"), outcome("decode", "decode"), outcome("fed", "collate")]
    lines = list(SelfTest(tuple(runs), 60.0).lines())
    at = lines.index("planted / found       1   2   3   4")
    assert lines[at + 1 : at + 5] == [
        " 1 storage            1   1   .   .",
        " 2 decode             .   1   .   .",
        " 3 fed                .   .   .   1",
        " 4 collate         ",
    ]


def test_all_cases_are_run_as_often_as_asked_and_nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, said = [], []

    def run_case(case: Case, folder: str, _: Any, seed: int) -> Outcome:
        assert os.path.isdir(folder)
        asked.append((case.name, seed))
        return Outcome(case, case.planted)

    monkeypatch.setattr(self_test_run, "run_case", run_case)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = self_test_run.self_test(said.append, repeats=2, only=("fed", "storage"), seed=5)
    names = ["slow-storage", "slow-consumer", "hidden-storage"]
    assert asked == [(name, seed) for seed in (5, 6) for name in names]
    assert found.exit_code == 0 and len(found.outcomes) == 6
    assert "planting slow-storage (1 of 6): 4 ms of waiting for each file that is not in the page cache" in said
    assert os.listdir(tmp_path) == []


def test_storage_is_not_planted_where_no_file_can_be_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test_run, "can_be_cold", lambda _: False)
    (case,) = cases_of(("storage",))
    found = self_test_run.run_case(case, "/nowhere", print)
    assert found.mark == "not run" and "set TMPDIR to one on disk" in found.sentence


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has namespaces of mounts")
def test_shared_memory_is_small_for_one_process_alone() -> None:
    script = """
import os, sys
from shardtools.bench.self_test.confined import shrink_shared_memory
try:
    shrink_shared_memory(16 << 20)
except OSError as error:
    sys.exit(f"cannot: {error}")
found = os.statvfs("/dev/shm")
print(found.f_blocks * found.f_frsize, os.getuid())
"""
    before = os.statvfs("/dev/shm").f_blocks
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    if "cannot" in done.stderr:
        pytest.skip(f"this user may not mount: {done.stderr.strip()}")
    assert done.stdout.split() == [str(16 << 20), str(os.getuid())], done.stderr
    assert os.statvfs("/dev/shm").f_blocks == before


def test_without_small_shared_memory_the_setting_is_too_much_for_what_there_is() -> None:
    (case,) = cases_of(("small-shm",))
    spec: TrialSpec = case.spec("/data")
    settings = self_test_run._too_much(spec)
    free = os.statvfs("/dev/shm").f_bavail * os.statvfs("/dev/shm").f_frsize
    assert settings.num_workers == 1
    assert settings.prefetch_factor * 8 * (1 << 20) > free

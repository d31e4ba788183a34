"""Planted faults, found by fresh trials: every class three times, moved, doubled, hidden and removed again.

Stops an attribution that blames a stage for taking its share, for being named, or for what another stage costs. What a case came to
is kept by pytest's cache under the digest of the package, so that a broken-off session goes on where it was.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attribution_model import seconds_per_sample
from watching import processes_with, wait_until

torch = pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it", exc_type=ImportError)

from shardtools.bench.attribution import Attribution, Context, attribute  # noqa: E402
from shardtools.bench.page_cache import PageCache  # noqa: E402
from shardtools.bench.report.verdict_words import Situation, in_words  # noqa: E402
from shardtools.bench.self_test.cases import CASES, SMALL_SHM_BYTES, Case, cases_of, workload  # noqa: E402
from shardtools.bench.self_test.data import can_be_cold, small_files  # noqa: E402
from shardtools.bench.self_test.judge import trials_over  # noqa: E402
from shardtools.bench.self_test.outcome import Outcome, SelfTest  # noqa: E402
from shardtools.bench.self_test.run import run_case  # noqa: E402
from shardtools.bench.self_test.slow_disk import slow_disk  # noqa: E402
from shardtools.bench.spec import Consumer, TrialSpec  # noqa: E402

pytestmark = [
    pytest.mark.train,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="page cache, namespaces and processes are Linux's"),
]

ROOT = Path(__file__).parents[2]
REPEATS = 3
MIN_RIGHT_SHARE = 0.9
PLANTS = "shardtools.bench.self_test.plants"
LOADER_STAGES = ("storage", "decode", "transform", "collate", "transfer")
LONG = 240.0
"""Seconds an attribution may take on a busy machine."""


def source_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted((ROOT / "shardtools" / "bench").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    with small_files() as made:
        yield made


def once(case: Case, number: int, folder: str, request: pytest.FixtureRequest) -> Outcome:
    """One run of one case, or what it came to before."""
    cache = request.config.cache
    assert cache is not None
    place = f"bench/self-test/{source_digest()}/{case.name}-{number}"
    found = cache.get(place, None)
    if found is None:
        outcome = run_case(case, folder, print, seed=number)
        found = {name: getattr(outcome, name) for name in ("verdict", "confidence", "ratio", "ci", "seconds", "sentence", "evidence")}
        cache.set(place, found)
    return Outcome(case, **found)


@pytest.mark.parametrize("number", range(REPEATS))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_verdict_blames_what_was_not_planted(case: Case, number: int, folder: str, request: pytest.FixtureRequest) -> None:
    outcome = once(case, number, folder, request)
    print(json.dumps(outcome.as_json()))
    if outcome.mark == "not run":
        pytest.skip(outcome.sentence)
    assert outcome.mark != "wrong" or not case.is_control, outcome.sentence


def test_nine_of_ten_are_right(folder: str, request: pytest.FixtureRequest) -> None:
    """Runs of the test above are taken from the cache."""
    outcomes = [once(case, number, folder, request) for number in range(REPEATS) for case in CASES]
    found = SelfTest(tuple(outcomes), sum(outcome.seconds for outcome in outcomes))
    print("\n".join(found.lines()))
    assert found.num_right >= MIN_RIGHT_SHARE * len(found.run)


def drained(folder: str, plant: str | None = None, **stages: str) -> TrialSpec:
    (case,) = cases_of(("slow-storage",))
    named = None if plant is None else f"{PLANTS}:{plant}"
    return replace(case.spec(folder), workload=workload(**stages), consumer=Consumer(), plant=named, timeout_seconds=60.0, min_seconds=0.5)


def attributed(spec: TrialSpec) -> Attribution:
    return attribute(spec, trials_over(spec), Context(seconds=LONG, window_seconds=0.6, say=print))


def require_cold(folder: str) -> None:
    if not can_be_cold(folder):
        pytest.skip("the folder for temporary files is in memory, so no file can be cold")


def test_a_delay_that_moves_takes_the_verdict_with_it(folder: str) -> None:
    """4 ms a sample, asleep, in both places."""
    require_cold(folder)
    assert attributed(drained(folder, decode="decode_sleep")).verdict == "decode"
    assert attributed(drained(folder, plant="storage")).verdict == "storage"


def cost_of(found: Attribution, stage: str) -> float:
    (one,) = [one for one in found.ablation if one.stage == stage]
    return seconds_per_sample(one)


@pytest.mark.parametrize(
    "stage, doses",
    [
        ("storage", [{"plant": "storage"}, {"plant": "storage_twice"}]),
        ("decode", [{"decode": "decode_sleep"}, {"decode": "decode_sleep_twice"}]),
    ],
    ids=["storage", "decode"],
)
def test_twice_the_dose_has_twice_the_cost(stage: str, doses: list[dict[str, Any]], folder: str) -> None:
    """Two workers share 4 ms a sample, then 8 ms."""
    require_cold(folder)
    single, double = (cost_of(attributed(drained(folder, **dose)), stage) for dose in doses)
    print(f"{stage}: {1000 * single:.2f} ms, {1000 * double:.2f} ms")
    assert double / single == pytest.approx(2.0, rel=0.25)
    assert single == pytest.approx(0.004 / 2, rel=0.25)


def test_a_warm_cache_hides_slow_storage_and_the_verdict_says_so(folder: str) -> None:
    spec = replace(drained(folder, plant="storage"), cache="warm")
    found = attributed(spec)
    assert found.verdict != "storage"
    situation = Situation("it", spec.layout, spec.workload, spec.settings, spec.consumer, {})
    assert "the page cache was warm" in in_words(found, 0, situation)["sentence_en"]
    hidden = found.fact("storage_hidden")
    assert hidden is not None and hidden.values["reason"] == "warm"
    assert "storage" not in {one.stage for one in found.ablation}


def rate_of(spec: TrialSpec) -> float:
    rate = trials_over(spec)(spec, "cold-data").throughput
    assert rate
    return rate


def test_without_the_plant_the_rate_is_what_it_was(folder: str) -> None:
    """Both rates are waits, 2 ms a sample and 10 ms, since those of cores are the machine's to disturb."""
    require_cold(folder)
    before, slowed, after = (rate_of(drained(folder, plant, decode="decode_share")) for plant in (None, "storage_twice", None))
    print(before, slowed, after)
    assert 0.5 < after / before < 2
    assert min(before, after) > 2 * slowed


@pytest.mark.parametrize("case", [case for case in CASES if case.planted in LOADER_STAGES], ids=lambda case: case.name)
def test_a_plant_dominates(case: Case, folder: str) -> None:
    """At least 2.5 times all other stages together, else no verdict on it would be right or wrong."""
    spec = replace(case.spec(folder), consumer=Consumer(), timeout_seconds=60.0, min_seconds=0.5)
    without = replace(spec, workload=workload(), plant=None)
    assert rate_of(without) > 3.5 * rate_of(spec)


def test_the_kernels_own_throttle_is_found_as_storage(folder: str) -> None:
    """250 reads a second of the real disk, for the processes of a trial alone."""
    from shardtools.bench.not_measured import Unknown

    require_cold(folder)
    try:
        with slow_disk(folder, 250):
            found = attributed(drained(folder, plant="disk"))
    except Unknown as unknown:
        pytest.skip(f"no throttle here: {unknown}")
    assert found.verdict == "storage"


FORCED = """
import json, os, sys
from dataclasses import replace
from shardtools.bench.self_test.confined import shrink_shared_memory
try:
    shrink_shared_memory(int(sys.argv[1]))
except OSError as error:
    print("cannot", error)
    sys.exit()
import time
from shardtools.bench.self_test.cases import cases_of
from shardtools.bench.trial import run_trial
(case,) = cases_of(("small-shm",))
spec = replace(case.spec(sys.argv[2]), is_forced=True, timeout_seconds=28.0)
spec = replace(spec, workload=replace(spec.workload, collate=sys.argv[3] or None))
began = time.monotonic()
found = run_trial(spec)
print(found.status, time.monotonic() - began, found.message)
"""


@pytest.mark.parametrize("collate", ["", f"{PLANTS}:collate"], ids=["torch's collate", "a collate of one's own"])
def test_full_shared_memory_ends_in_thirty_seconds(collate: str, folder: str) -> None:
    """Also where it was not refused, and where the worker's message is lost, so that the loader would wait for ever."""
    arguments = [sys.executable, "-c", FORCED, str(SMALL_SHM_BYTES), folder, collate]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT, check=True)
    if done.stdout.startswith("cannot"):
        pytest.skip(done.stdout)
    status, seconds, message = done.stdout.split(maxsplit=2)
    assert status == "oom_shm", done.stdout
    assert float(seconds) < 30 + 10, "thirty seconds, and the time to import torch"
    assert message


INTERRUPTED = """
import sys
from shardtools.bench.self_test.run import self_test
self_test(lambda line: print(line, flush=True), only=(sys.argv[1],), repeats=9)
"""


@pytest.mark.parametrize("name", ["small-shm", "slow-collate"])
def test_an_interrupted_self_test_leaves_nothing(name: str) -> None:
    """Ctrl-C while a trial runs: here, or in the process whose shared memory is small."""
    with tempfile.TemporaryDirectory(prefix="st-", dir="/tmp") as temporary:  # short: sockets lie in folders of it
        command = [sys.executable, "-c", INTERRUPTED, name]
        environment = {**os.environ, "TMPDIR": temporary}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True, env=environment) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("planting")
            wait_until(lambda: len(processes_with(temporary, "environ")) >= 2)
            time.sleep(1.0)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        assert process.returncode not in (0, None)
        wait_until(lambda: not processes_with(temporary, "environ"), 10)
        assert os.listdir(temporary) == []


def test_evicted_files_are_really_cold_and_warm_ones_warm(folder: str) -> None:
    """What the storage plant charges for, seen by mincore alone."""
    from shardtools.bench.page_cache.resident import by_mincore

    require_cold(folder)
    pages = PageCache.of(folder)
    path = pages.files[len(pages.files) // 2]
    for act, resident in ((pages.evict, 0), (pages.warm, 1)):
        act()
        fd = os.open(path, os.O_RDONLY)
        try:
            assert by_mincore(fd).num_resident == resident
        finally:
            os.close(fd)

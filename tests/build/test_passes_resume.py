"""Stops a build in passes that was killed, not alone, or shared out from leaving other bytes, or a state no rerun gets out of."""

import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from scattering import SPLIT, make_records, pack, write_records

from shardtools import partitions as partitions_module
from shardtools.build.destination import Destination
from shardtools.build.planning import PlannedBuild
from shardtools.build.publish import Publisher
from shardtools.build.run import Listener
from shardtools.build.stages.advance import Built, Job, Share, advance
from shardtools.build.stages.assemble import AssembleTask
from shardtools.build.stages.look import LookTask
from shardtools.build.stages.scatter import ScatterTask
from shardtools.build.write import BuildTask
from shardtools.engines.serial import Serial
from shardtools.errors import StorageError, UsageError
from shardtools.selection import Selection
from shardtools.storage import open_storage
from shardtools.units import Budget

ALL = Selection(limit=800, dedup="key", split=SPLIT)


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch):
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 16_384)


@pytest.fixture
def source(tmp_path):
    return write_records(tmp_path / "src", make_records(1000))


class Recording:
    """A serial engine that notes how many items of each task it ran, and may stop before one of them."""

    spans_machines = False

    def __init__(self, stop_before: type | None = None, after: int = 0) -> None:
        self.ran: dict[type, int] = dict.fromkeys((LookTask, ScatterTask, AssembleTask, BuildTask), 0)
        self._stop_before, self._after = stop_before, after

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def run(self, task, items, *rest):
        for item in items:
            if isinstance(task, self._stop_before or ()) and self.ran[type(task)] == self._after:
                raise KeyboardInterrupt
            Serial().run(task, [item], *rest)
            if type(task) in self.ran:
                self.ran[type(task)] += 1


@pytest.mark.parametrize("stop_before", [LookTask, ScatterTask, AssembleTask])
def test_what_was_done_of_a_pass_is_not_done_again(source, tmp_path, digests, stop_before):
    whole = Recording()
    pack(source, tmp_path / "clean", seed=1, selection=ALL, engine=whole)
    stopped, resumed = Recording(stop_before, 2), Recording()
    with pytest.raises(KeyboardInterrupt):
        pack(source, tmp_path / "out", seed=1, selection=ALL, engine=stopped)
    pack(source, tmp_path / "out", seed=1, selection=ALL, engine=resumed)
    assert {task: stopped.ran[task] + resumed.ran[task] for task in whole.ran} == whole.ran
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")


def test_a_rerun_is_already_complete(source, tmp_path):
    pack(source, tmp_path / "out", seed=1, selection=ALL)
    engine = Recording()
    assert pack(source, tmp_path / "out", seed=1, selection=ALL, engine=engine).already_complete
    assert not any(engine.ran.values())


def test_nothing_but_the_dataset_is_left(source, tmp_path):
    result = pack(source, tmp_path / "out", seed=1, selection=ALL)
    names = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert names == {*result.manifest.names(), "shardtools.manifest", ".shardtools/plan"}


def test_changed_input_is_scattered_again_and_all_parts_are_built_anew(source, tmp_path, digests):
    with pytest.raises(KeyboardInterrupt):
        pack(source, tmp_path / "out", seed=1, engine=Recording(AssembleTask, 3))
    path = source / "0.jsonl"
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"n": 5,', b'"n": 6,', 1))
    os.utime(path, ns=(1, 1))
    engine = Recording()
    pack(source, tmp_path / "out", seed=1, engine=engine)
    assert 0 < engine.ran[ScatterTask] < 12 and engine.ran[AssembleTask] > 3
    pack(source, tmp_path / "clean", seed=1)
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")


@pytest.mark.parametrize("what", ["cut", "gone", "bits"])
def test_a_damaged_spill_is_made_anew_or_named(source, tmp_path, digests, what, one_sentence):
    with pytest.raises(KeyboardInterrupt):
        pack(source, tmp_path / "out", seed=1, engine=Recording(AssembleTask, 0))
    spill = min((tmp_path / "out").rglob("spills/*"))
    data = bytearray(spill.read_bytes())
    if what == "gone":
        spill.unlink()
    elif what == "cut":
        spill.write_bytes(data[:-9])
    else:
        data[len(data) // 2] ^= 255
        spill.write_bytes(data)
    if what == "bits":
        with pytest.raises(StorageError) as caught:
            pack(source, tmp_path / "out", seed=1)
        assert spill.name in one_sentence(caught.value) and "--overwrite" in str(caught.value)
    pack(source, tmp_path / "out", seed=1, overwrite=what == "bits")
    pack(source, tmp_path / "clean", seed=1)
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")


def test_another_recipe_is_refused_and_overwrites(source, tmp_path, digests):
    pack(source, tmp_path / "out", seed=1)
    with pytest.raises(UsageError, match="shuffle_seed was 1, is 2"):
        pack(source, tmp_path / "out", seed=2)
    with pytest.raises(UsageError, match=r"selection\.limit"):
        pack(source, tmp_path / "out", seed=1, selection=Selection(limit=3))
    pack(source, tmp_path / "out", seed=2, overwrite=True, selection=ALL)
    pack(source, tmp_path / "clean", seed=2, selection=ALL)
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")


def test_two_runs_at_once_give_what_one_gives(source, tmp_path, digests):
    pack(source, tmp_path / "clean", seed=1, selection=ALL)
    errors: list[BaseException] = []

    def run() -> None:
        try:
            pack(source, tmp_path / "out", seed=1, selection=ALL)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # One may find that the other has published and cleaned up; it is then no failure of the dataset.
    assert all(isinstance(error, StorageError) for error in errors) and len(errors) < 2
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")


# Shares of runs that do not wait for each other.


def planned_build(source, tmp_path, **given) -> PlannedBuild:
    plans: list[PlannedBuild] = []
    with pytest.raises(KeyboardInterrupt):
        pack(
            source,
            tmp_path / "never",
            listener=Listener(on_plan=plans.append),
            engine=Recording((LookTask, ScatterTask, BuildTask)),
            **given,
        )
    return plans[0]


@pytest.mark.parametrize(
    "given", [{}, {"seed": 1}, {"selection": ALL}, {"seed": 1, "selection": ALL}], ids=["plain", "shuffle", "all", "both"]
)
def test_shares_in_any_order_give_what_one_run_gives(source, tmp_path, digests, given):
    pack(source, tmp_path / "clean", **given)
    planned = planned_build(source, tmp_path, **given)
    storage = open_storage(str(tmp_path / "out"))
    publisher = Publisher(storage, planned.plan, planned.roots, Budget(), False)
    Destination(storage, planned.plan, publisher).prepare(False)
    ready = []
    for number in (2, 0, 1):
        built = advance(Job(storage, planned, Budget(), Serial(), lambda _: None, None, Share(number, 3)))
        ready.append(isinstance(built, Built))
    assert ready == [False, False, True] and isinstance(built, Built)
    publisher.publish(built.progress, built.reads)
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")


# Killed.


@pytest.mark.parametrize("num_kills", [4, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["shuffle", "all"])
def test_a_run_killed_at_any_step_is_finished_by_the_next_with_the_same_bytes(tmp_path, kind, num_kills):
    source = write_records(tmp_path / "src", make_records(320))
    (tmp_path / "work").mkdir()
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    script = Path(__file__).with_name("killed_passes.py")
    environment = {**os.environ, "PYTHONPATH": str(Path(partitions_module.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, script, source, tmp_path / "work", kind, str(num_kills), str(seed)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["steps"] > 100 and found["kills"] >= 4
    assert found["problems"] == [], f"{len(found['problems'])} of {found['kills']} kills"

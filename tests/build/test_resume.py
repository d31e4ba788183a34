"""Stops a run that was killed, short of disk or not alone from leaving half a dataset, other bytes, or a state no rerun gets out of."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shardtools import partitions as partitions_module
from shardtools.build.write import BuildTask
from shardtools.engines.serial import Serial
from shardtools.errors import ShardtoolsError, StorageError, UsageError
from shardtools.formats import _mds_shard
from shardtools.manifest import Manifest

SHARD_BYTES = 20480
PARTITION_BYTES = 48 << 10


@pytest.fixture(autouse=True)
def many_partitions(monkeypatch):
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", PARTITION_BYTES)


def files(count: int = 100, seed: int = 1) -> dict[str, bytes]:
    numbers = random.Random(seed)
    return {f"{'ab'[i % 2]}/{i:04d}.bin": numbers.randbytes(numbers.randint(0, 3000)) for i in range(count)}


class Recording(Serial):
    """Notes which partitions are built, and stops before publication if asked to."""

    def __init__(self, *, stop: bool = False) -> None:
        object.__setattr__(self, "built", [])
        object.__setattr__(self, "stop", stop)

    def run(self, task, items, *rest) -> None:
        super().run(task, items, *rest)
        if isinstance(task, BuildTask):
            self.built.extend(item.index for item in items)
            if self.stop:
                raise KeyboardInterrupt


# Reruns.


def test_a_rerun_is_already_complete_and_builds_nothing(tree, build, digests, tmp_path):
    source = tree(files())
    first = build(source, tmp_path / "out", shard_bytes=SHARD_BYTES)
    before = digests(tmp_path / "out")
    engine = Recording()
    second = build(source, tmp_path / "out", shard_bytes=SHARD_BYTES, engine=engine)
    assert not first.already_complete and second.already_complete
    assert second.manifest.serialize() == first.manifest.serialize() and engine.built == []
    assert digests(tmp_path / "out") == before


def test_nothing_but_the_dataset_is_left(tree, build, tmp_path):
    build(tree(files()), tmp_path / "out", shard_bytes=SHARD_BYTES)
    names = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    manifest = Manifest.parse((tmp_path / "out" / "shardtools.manifest").read_bytes())
    assert names == {*manifest.names(), "shardtools.manifest", ".shardtools/plan"}


def test_an_interrupted_run_is_gone_on_with(tree, build, digests, tmp_path):
    source = tree(files())
    build(source, tmp_path / "clean", shard_bytes=SHARD_BYTES)
    stopped, resumed = Recording(stop=True), Recording()
    with pytest.raises(KeyboardInterrupt):
        build(source, tmp_path / "out", shard_bytes=SHARD_BYTES, engine=stopped)
    assert len(stopped.built) > 2
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".shardtools"]
    build(source, tmp_path / "out", shard_bytes=SHARD_BYTES, engine=resumed)
    assert resumed.built == []
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("harm", [damage, cut, Path.unlink])
@pytest.mark.parametrize("name", ["staged/000001-000000", "receipts/000001"])
def test_a_part_that_is_not_as_it_was_left_is_built_again_alone(tree, build, digests, tmp_path, harm, name):
    source = tree(files())
    build(source, tmp_path / "clean", shard_bytes=SHARD_BYTES)
    with pytest.raises(KeyboardInterrupt):
        build(source, tmp_path / "out", shard_bytes=SHARD_BYTES, engine=Recording(stop=True))
    (part,) = (tmp_path / "out" / ".shardtools" / "build").glob(f"*/{name}")
    harm(part)
    resumed = Recording()
    build(source, tmp_path / "out", shard_bytes=SHARD_BYTES, engine=resumed)
    assert resumed.built == [1]
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")


def test_a_changed_input_rebuilds_its_partition_alone(tree, build, plan, digests, tmp_path):
    source = tree(files())
    planned = plan(source, limit=partitions_module.ShardLimit(SHARD_BYTES))
    with pytest.raises(KeyboardInterrupt):
        build(source, tmp_path / "out", shard_bytes=SHARD_BYTES, engine=Recording(stop=True))
    changed = next(path for path in sorted(source.rglob("b/*.bin")) if path.stat().st_size > 100)
    changed.write_bytes(b"z" * changed.stat().st_size)
    os.utime(changed, ns=(1, 1_234_567_890_123_456_789))
    (holder,) = [p.index for p in planned.plan.partitions if any(changed.name.encode() in e for e in p.extents)]
    resumed = Recording()
    build(source, tmp_path / "out", shard_bytes=SHARD_BYTES, engine=resumed)
    assert resumed.built == [holder]
    build(source, tmp_path / "clean", shard_bytes=SHARD_BYTES)
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")


def test_an_input_changed_after_publication_is_a_warning(tree, build, tmp_path):
    source = tree(files())
    build(source, tmp_path / "out", shard_bytes=SHARD_BYTES)
    assert build(source, tmp_path / "out", shard_bytes=SHARD_BYTES).warnings == []
    os.utime(source / "a" / "0000.bin", (4e9, 4e9))
    result = build(source, tmp_path / "out", shard_bytes=SHARD_BYTES)
    assert result.already_complete
    assert any("--overwrite" in warning for warning in result.warnings)


@pytest.mark.parametrize("finished", [True, False], ids=["finished", "unfinished"])
def test_another_plan_is_refused_with_the_differences(tree, build, digests, tmp_path, finished, one_sentence):
    source = tree(files())
    if finished:
        build(source, tmp_path / "out", shard_bytes=SHARD_BYTES)
    else:
        with pytest.raises(KeyboardInterrupt):
            build(source, tmp_path / "out", shard_bytes=SHARD_BYTES, engine=Recording(stop=True))
    before = digests(tmp_path / "out")
    (source / "a" / "new.bin").write_bytes(b"1")
    with pytest.raises(UsageError) as caught:
        build(source, tmp_path / "out", shard_bytes=30720, seed=4)
    text = one_sentence(caught.value)
    assert "shard_bytes was 20480, is 30720" in text and "shuffle_seed was None, is 4" in text and "a/new" in text and "--overwrite" in text
    assert digests(tmp_path / "out") == before


def test_overwriting_leaves_nothing_of_the_old_dataset(tree, build, digests, tmp_path):
    many, few = tree(files(200), "many"), tree(files(20, 9), "few")
    build(few, tmp_path / "clean", shard_bytes=SHARD_BYTES)
    build(many, tmp_path / "out", shard_bytes=SHARD_BYTES)
    result = build(few, tmp_path / "out", shard_bytes=SHARD_BYTES, overwrite=True)
    assert not result.already_complete
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")


def test_overwriting_with_the_other_format_leaves_nothing_of_the_first(tree, build, digests, tmp_path):
    source = tree(files())
    build(source, tmp_path / "clean", "mds", shard_bytes=SHARD_BYTES)
    build(source, tmp_path / "out", "wds", shard_bytes=SHARD_BYTES)
    build(source, tmp_path / "out", "mds", shard_bytes=SHARD_BYTES, overwrite=True)
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")


def test_overwriting_takes_up_inputs_of_the_same_size(tree, build, digests, tmp_path):
    source = tree({"a.txt": b"one"})
    build(source, tmp_path / "out")
    tree({"a.txt": b"two"})
    build(source, tmp_path / "out", overwrite=True)
    build(source, tmp_path / "clean")
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")


def test_a_failed_overwrite_leaves_the_old_dataset_whole(tree, build, digests, tmp_path):
    good, bad = tree(files(), "good"), tree({"a.txt": b"x" * 100, "a.TXT": b"y"}, "bad")
    build(good, tmp_path / "out", shard_bytes=SHARD_BYTES)
    before = digests(tmp_path / "out")
    with pytest.raises(ShardtoolsError):
        build(bad, tmp_path / "out", overwrite=True)
    after = digests(tmp_path / "out")
    assert {name: digest for name, digest in after.items() if not name.startswith(".shardtools/build/")} == before


def test_an_overwrite_after_a_failed_run_of_another_plan_works(tree, build, digests, tmp_path):
    one, two = tree(files(), "one"), tree(files(50, 3), "two")
    with pytest.raises(KeyboardInterrupt):
        build(one, tmp_path / "out", shard_bytes=SHARD_BYTES, engine=Recording(stop=True))
    build(two, tmp_path / "out", shard_bytes=SHARD_BYTES, overwrite=True)
    build(two, tmp_path / "clean", shard_bytes=SHARD_BYTES)
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")


@pytest.mark.parametrize("overwrite", [False, True])
def test_temporary_files_of_a_killed_run_are_removed_by_the_next(tree, build, digests, tmp_path, overwrite):
    source = tree(files())
    build(source, tmp_path / "clean", shard_bytes=SHARD_BYTES)
    build(source, tmp_path / "out", shard_bytes=SHARD_BYTES)
    left = tmp_path / "out" / ".shardtools" / "build" / "tmp" / "0123456789abcdef"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"{")
    build(source, tmp_path / "out", shard_bytes=SHARD_BYTES, overwrite=overwrite)
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")


def test_the_differences_are_named_after_a_run_killed_at_its_very_end(tree, build, tmp_path, one_sentence):
    """Between the manifest and the clean-up the plan lies where the unfinished build had it."""
    source = tree(files())
    build(source, tmp_path / "out", shard_bytes=SHARD_BYTES)
    private = tmp_path / "out" / ".shardtools"
    (private / "build").mkdir()
    (private / "plan").rename(private / "build" / "plan")
    assert build(source, tmp_path / "out", shard_bytes=SHARD_BYTES).already_complete
    with pytest.raises(UsageError) as caught:
        build(source, tmp_path / "out", shard_bytes=30720)
    assert "shard_bytes was 20480, is 30720" in one_sentence(caught.value)


# Killed at every step. The steps are the calls that change the disk; a child is killed before each in turn.

KILLER = r"""
import hashlib, itertools, json, os, shutil, signal, sys, traceback
from pathlib import Path
from shardtools import partitions
from shardtools.build import run
from shardtools.build.order import Order
from shardtools.engines.serial import Serial
from shardtools.manifest import Manifest
from shardtools.plan import ShardLimit
from shardtools.plugins import load
from shardtools.sources.files import Files

partitions.MIN_PARTITION_BYTES = 48 << 10
STEPS = ("replace", "link", "unlink", "write", "fsync", "rmdir", "mkdir")


def pack(source, destination, overwrite):
    order = Order(Files(), load("formats", FORMAT)(), ShardLimit(20480))
    run.build([source], destination, order, run.RunOptions(engine=Serial(), overwrite=overwrite))


def in_child(action, step=None):
    # Exit code and message of the action in a forked process, killed before its step-th change of the disk.
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        real_write = os.write
        left = itertools.count()

        def counted(real):
            def call(*arguments, **options):
                if next(left) == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **options)
            return call

        if step is not None:
            for name in STEPS:
                setattr(os, name, counted(getattr(os, name)))
        code = 0
        try:
            action()
        except BaseException as error:
            code = 1
            is_ours = hasattr(error, "exit_code")
            real_write(write_end, (type(error).__name__ + ": " + str(error) if is_ours else traceback.format_exc()).encode())
        os._exit(code)
    os.close(write_end)
    with open(read_end) as message:
        text = message.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


def digests(folder):
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*") if p.is_file()}


def half_published(folder):
    # What is wrong with the dataset a reader would see; nothing where there is none.
    path = folder / "shardtools.manifest"
    if not path.exists():
        index = folder / "index.json"
        return [f"index.json names {e['raw_data']['basename']}" for e in json.loads(index.read_bytes())["shards"]
                if not (folder / e["raw_data"]["basename"]).exists()] if index.exists() else []
    manifest, found = Manifest.parse(path.read_bytes()), digests(folder)
    entries = [*manifest.shards, *manifest.files]
    return [entry.name for entry in entries if found.get(entry.name) != entry.sha256]


FORMAT, source, old_source, work, overwrite, rerun = sys.argv[1:]
work, overwrite = Path(work), overwrite == "overwrite"
pack(source, str(work / "clean"), False)
clean = digests(work / "clean")
if overwrite:
    pack(old_source, str(work / "old"), False)
    old = digests(work / "old")
problems, num_kills = [], 0
for step in itertools.count():
    out = work / f"out"
    shutil.rmtree(out, ignore_errors=True)
    if overwrite:
        shutil.copytree(work / "old", out)
    code, text = in_child(lambda: pack(source, str(out), overwrite), step)
    if code == 0:
        break
    if code != -signal.SIGKILL:
        problems.append([step, "failed by itself", text])
        break
    num_kills += 1
    if wrong := half_published(out):
        problems.append([step, "half a dataset", wrong])
    there = out / "shardtools.manifest"
    old_is_there = overwrite and there.exists() and there.read_bytes() == (work / "old" / "shardtools.manifest").read_bytes()
    code, text = in_child(lambda: pack(source, str(out), overwrite and rerun == "same"))
    if old_is_there and rerun == "plain":
        # Without --overwrite a finished dataset of another plan is refused, and stays whole.
        if code != 1 or not text.startswith("UsageError") or half_published(out):
            problems.append([step, "not refused", text])
    elif code != 0:
        problems.append([step, "the rerun failed", text])
    else:
        after = digests(out)
        if after != clean:
            problems.append([step, "other files", sorted(set(after.items()) ^ set(clean.items()))])
print(json.dumps({"kills": num_kills, "problems": problems}))
"""


@pytest.mark.parametrize("format_", ["wds", "mds"])
@pytest.mark.parametrize(("mode", "rerun"), [("fresh", "same"), ("overwrite", "same"), ("overwrite", "plain")])
def test_a_run_killed_at_any_step_is_finished_by_the_next_with_the_same_bytes(tree, tmp_path, format_, mode, rerun):
    source, old = tree(files(60)), tree(files(90, 8), "old-src")
    script = tmp_path / "killer.py"
    script.write_text(KILLER)
    (tmp_path / "work").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(Path(partitions_module.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, script, format_, source, old, tmp_path / "work", mode, rerun],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] > 40
    assert found["problems"] == [], f"{len(found['problems'])} of {found['kills']} kills"


# Killed at random moments, all processes at once.

PACK = """
import sys, time
from shardtools import partitions
from shardtools.build import run
from shardtools.build.order import Order
from shardtools.engines.processes import Processes
from shardtools.errors import ShardtoolsError
from shardtools.formats.wds import Wds
from shardtools.plan import ShardLimit
from shardtools.sources.files import Files

if __name__ == "__main__":
    source, destination, overwrite, start = sys.argv[1:]
    partitions.MIN_PARTITION_BYTES = 48 << 10
    while time.time() < float(start):
        pass
    options = run.RunOptions(engine=Processes(2), overwrite=overwrite == "overwrite")
    try:
        run.build([source], destination, Order(Files(), Wds(), ShardLimit(20480)), options)
    except ShardtoolsError as error:
        sys.exit(f"refused: {error}")
"""


@pytest.fixture
def start_pack(tmp_path):
    """Start a run in a process group of its own."""
    script = tmp_path / "pack.py"
    script.write_text(PACK)
    environment = {**os.environ, "PYTHONPATH": str(Path(partitions_module.__file__).parents[1])}

    def start(source: Path, destination: Path, mode: str = "fresh", at: float = 0.0) -> subprocess.Popen[str]:
        command = [sys.executable, script, source, destination, mode, str(at)]
        return subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.PIPE, text=True)

    return start


def kill_at_random(start_pack, source, out, mode, moment) -> None:
    process = start_pack(source, out, mode)
    time.sleep(moment)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        assert process.poll() is not None
    process.communicate()


@pytest.mark.parametrize("rounds", [3, pytest.param(25, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", ["fresh", "overwrite"])
def test_a_killed_process_group_leaves_what_the_next_run_finishes(tree, build, digests, tmp_path, start_pack, mode, rounds):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    numbers = random.Random(seed)
    source, old = tree(files(1500)), tree(files(500, 8), "old-src")
    began = time.monotonic()
    process = start_pack(source, tmp_path / "clean")
    _, stderr = process.communicate()
    assert process.returncode == 0, stderr
    seconds = time.monotonic() - began
    clean = digests(tmp_path / "clean")
    for i in range(rounds):
        out = tmp_path / f"out{i}"
        if mode == "overwrite":
            build(old, out, shard_bytes=SHARD_BYTES)
        for _ in range(numbers.randint(1, 2)):
            kill_at_random(start_pack, source, out, mode, numbers.uniform(0.2 * seconds, 1.05 * seconds))
        build(source, out, shard_bytes=SHARD_BYTES, overwrite=mode == "overwrite")
        assert digests(out) == clean


@pytest.mark.parametrize("rounds", [2, pytest.param(15, marks=pytest.mark.slow)])
def test_two_runs_at_once_both_succeed_or_one_refuses(tree, digests, tmp_path, start_pack, rounds):
    source = tree(files(1200))
    process = start_pack(source, tmp_path / "clean")
    process.communicate()
    clean = digests(tmp_path / "clean")
    for i in range(rounds):
        out = tmp_path / f"out{i}"
        at = time.time() + 0.8
        pair = [start_pack(source, out, at=at + offset) for offset in (0.0, (i % 5) * 0.05)]
        endings = [(process.communicate()[1], process.returncode) for process in pair]
        assert any(code == 0 for _, code in endings), endings
        for stderr, code in endings:
            assert code == 0 or (code == 1 and stderr.startswith("refused: ") and stderr.count("\n") == 1), stderr
        published = {name: digest for name, digest in digests(out).items() if not name.startswith(".shardtools/build/")}
        assert published == clean


# The disk.


@pytest.mark.parametrize("format_", ["wds", "mds"])
def test_a_full_disk_is_one_sentence_and_no_dataset_and_room_is_enough_to_finish(
    tree, build, digests, small_disk, tmp_path, format_, one_sentence
):
    source = tree(files(400))
    build(source, tmp_path / "clean", format_, shard_bytes=SHARD_BYTES)
    out = small_disk(300) / "out"
    with pytest.raises(StorageError) as caught:
        build(source, out, format_, shard_bytes=SHARD_BYTES)
    text = one_sentence(caught.value)
    assert os.strerror(errno.ENOSPC) in text and "free some space" in text and str(out) in text
    assert not (out / "shardtools.manifest").exists() and not (out / "index.json").exists()
    assert [path.name for path in out.iterdir()] == [".shardtools"]
    small_disk(4000)
    resumed = Recording()
    build(source, out, format_, shard_bytes=SHARD_BYTES, engine=resumed)
    assert 0 not in resumed.built, "finished parts are kept"
    assert digests(out) == digests(tmp_path / "clean")


def test_a_disk_filled_by_what_waits_for_the_header_is_the_same_sentence(tree, build, small_disk, monkeypatch, one_sentence):
    monkeypatch.setattr(_mds_shard, "_SPOOL_BYTES", 10_000)
    monkeypatch.setattr(_mds_shard, "_BLOCK_BYTES", 4_000)
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 16 << 20)
    out = small_disk(300) / "out"
    with pytest.raises(StorageError) as caught:
        build(tree(files(400)), out, "mds")
    assert os.strerror(errno.ENOSPC) in one_sentence(caught.value)
    assert not list(out.glob("*"))[1:] and not (out / "index.json").exists()


def test_a_destination_that_cannot_be_made_is_one_sentence(tree, build, tmp_path, one_sentence):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError) as caught:
        build(tree({"a.txt": b"1"}), tmp_path / "file" / "out")
    assert "could not" in one_sentence(caught.value)

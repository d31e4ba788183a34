"""Runs of a part each publish what one run does, in any order, at once, killed and begun again; stops a part that waits, that takes
another's work from under it, or that ends as if something had been published.
"""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scattering import make_records, write_records
from shuffled_engine import Killed

from shardtools import partitions as partitions_module
from shardtools.build.order import OrderWords, order_of
from shardtools.build.run import Listener, PartDone, Result, RunOptions, build, build_part
from shardtools.build.stages.advance import Share
from shardtools.build.stages.assemble import AssembleTask
from shardtools.build.stages.look import LookTask
from shardtools.build.stages.scatter import ScatterTask
from shardtools.build.write import BuildTask
from shardtools.engines.serial import Serial
from shardtools.errors import BadSampleError, UsageError
from shardtools.sources import resolve_inputs
from shardtools.storage.local import Local
from shardtools.units import Budget

JSONL = {"source": "jsonl", "source_options": {"key": "id"}}
JOBS: dict[str, dict[str, Any]] = {
    "files to wds": {"format": "wds"},
    "files to mds, shuffled": {"format": "mds", "shuffle": True, "seed": 3},
    "records to mds": {"format": "mds", **JSONL},
    "records to wds, shuffled": {"format": "wds", **JSONL, "shuffle": True, "seed": 3},
    "records to mds, in splits": {"format": "mds", **JSONL, "select_options": {"split": "train=0.8,val=0.2"}},
    "records to wds, limited": {"format": "wds", **JSONL, "select_options": {"limit": "333", "dedup": "key"}},
    "three passes": {"format": "mds", **JSONL, "select_options": {"dedup": "content", "split": "a=0.5,b=0.5"}, "shuffle": True, "seed": 3},
}
NUM_PARTS = 3


@pytest.fixture(autouse=True)
def many_partitions(monkeypatch):
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 16 << 10)


@pytest.fixture
def source_of(tree, tmp_path):
    """The input that a job reads."""
    numbers = random.Random(2)

    def make(job: dict[str, Any]) -> Path:
        if "source" in job:
            return write_records(tmp_path / "records", make_records(800))
        return tree({f"{i % 5}/{i:03d}.bin": numbers.randbytes(numbers.randint(0, 2500)) for i in range(200)})

    return make


def run(source: Path, destination: Path | str, job: dict[str, Any], part: Share | None = None, **given: Any) -> Result | PartDone:
    inputs = resolve_inputs([str(source)])
    order = order_of(inputs, OrderWords(shard_size="20KiB", **job))
    options = RunOptions(given.get("engine", Serial()), Budget.parse(given.get("max_bad", "0")), part=part)
    return build_part(inputs, str(destination), order, options, given.get("listener", Listener()))


def parts(count: int = NUM_PARTS) -> list[Share]:
    return [Share.parse(f"{i}/{count}") for i in range(1, count + 1)]


@pytest.fixture(params=JOBS)
def job(request, source_of, tmp_path, digests):
    """A job, its input, and what one run publishes."""
    words = JOBS[request.param]
    source = source_of(words)
    run(source, tmp_path / "whole", words)
    expected = digests(tmp_path / "whole")
    assert len(expected) > 8
    return source, words, expected


def test_the_last_part_publishes_whatever_the_order(job, tmp_path, digests):
    source, words, expected = job
    out = tmp_path / "out"
    done = [run(source, out, words, part) for part in parts()[::-1]]
    assert [type(one) for one in done] == [PartDone, PartDone, Result]
    lefts = [one.num_left for one in done if isinstance(one, PartDone)]
    assert all(isinstance(one, PartDone) and one.num_partitions > 5 for one in done[:-1]) and lefts[0] > lefts[1] > 0
    assert digests(out) == expected
    again = run(source, out, words, parts()[0])
    assert isinstance(again, Result) and again.already_complete


def test_only_the_part_that_publishes_reads_what_others_built(source_of, tmp_path, monkeypatch):
    words, read = JOBS["records to mds"], list[str]()
    source, real = source_of(words), Local.sha256
    monkeypatch.setattr(Local, "sha256", lambda self, name: read.append(name) or real(self, name))
    shards: list[set[int]] = []
    for part in parts():
        read.clear()
        run(source, tmp_path / "out", words, part)
        shards.append({int(re.search(r"(\d+)-\d+$", name).group(1)) for name in read if "/staged/" in name})
    assert [{index % NUM_PARTS for index in own} for own in shards] == [{0}, {1}, {0, 1, 2}]


def test_parts_at_once_and_one_of_them_twice(job, tmp_path, digests):
    source, words, expected = job
    done: list[Any] = []

    def work(part: Share) -> None:
        try:
            done.append(run(source, tmp_path / "out", words, part))
        except BaseException as error:
            done.append(error)

    threads = [threading.Thread(target=work, args=(part,)) for part in [*parts(), parts()[1]]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(one, Result | PartDone) for one in done), done
    assert any(isinstance(one, Result) for one in done)  # who ends last has looked after everyone
    assert digests(tmp_path / "out") == expected


class Overtaken(Serial):
    """When its own work is done, another run does the rest, publishes and tidies up."""

    def __init__(self, rest: Callable[[], object]) -> None:
        object.__setattr__(self, "rest", rest)

    def run(self, task, items, *rest) -> None:
        super().run(task, items, *rest)
        if not isinstance(task, LookTask | ScatterTask | BuildTask | AssembleTask):
            return
        self.rest()


def test_a_part_whose_work_was_published_meanwhile_says_so_and_leaves_nothing(job, tmp_path, digests):
    source, words, expected = job
    out = tmp_path / "out"
    others = [lambda part=part: run(source, out, words, part) for part in parts()[1:]]
    done = run(source, out, words, parts()[0], engine=Overtaken(lambda: [other() for other in others]))
    assert isinstance(done, Result)
    assert digests(out) == expected


@pytest.mark.parametrize("num_items", [1, 6])
def test_parts_that_are_killed_and_begun_again(job, tmp_path, digests, num_items):
    source, words, expected = job
    out = tmp_path / "out"
    for part in [parts()[1], parts()[2], parts()[1]]:
        try:
            run(source, out, words, part, engine=Killed(num_items))
        except KeyboardInterrupt:
            continue
    done = [run(source, out, words, part) for part in parts(5)]  # another number of parts, too
    assert any(isinstance(one, Result) for one in done)
    assert digests(out) == expected


def test_more_parts_than_partitions_end_at_once(job, tmp_path, digests):
    source, words, expected = job
    done = [run(source, tmp_path / "out", words, part) for part in parts(20)]
    assert isinstance(done[-1], Result) and digests(tmp_path / "out") == expected
    assert isinstance(run(source, tmp_path / "other", words, Share.parse("20/20")), PartDone)


def test_what_the_others_built_stays_when_a_part_fails(tree, tmp_path, digests):
    source = tree({f"{i:03d}.txt": b"\xff" if i == 150 else b"x" * 1000 for i in range(160)})
    words: dict[str, Any] = {"format": "mds"}
    run(source, tmp_path / "whole", words, max_bad="1")
    out = tmp_path / "out"
    failed = 0
    for part in parts():
        try:
            run(source, out, words, part)
        except BadSampleError:
            failed += 1
    assert failed == 1
    kept = len(list(out.glob(".shardtools/build/*/receipts/*")))
    assert kept >= 5
    done = [run(source, out, words, part, max_bad="1") for part in parts()]
    assert isinstance(done[-1], Result) and digests(out) == digests(tmp_path / "whole")


def test_the_first_part_that_fails_leaves_the_plan_to_those_that_have_just_begun(tree, tmp_path):
    source = tree({f"{i:03d}.txt": b"\xff" if i == 0 else b"x" * 1000 for i in range(160)})
    with pytest.raises(BadSampleError):
        run(source, tmp_path / "out", {"format": "mds"}, Share.parse("1/3"))
    assert (tmp_path / "out" / ".shardtools" / "build" / "plan").exists()


def test_parts_into_a_bucket(source_of, s3_uri, tmp_path, digests):
    from shardtools.storage import open_storage

    for name in ("files to wds", "records to wds, shuffled"):
        words, uri = JOBS[name], f"{s3_uri}/{name[:5]}"
        source = source_of(words)
        run(source, tmp_path / name, words)
        done = [run(source, uri, words, part) for part in [*parts()[:2], parts()[0], *parts()]]
        assert [type(one) for one in done] == [PartDone, PartDone, PartDone, PartDone, PartDone, Result]
        storage = open_storage(uri)
        assert {name: storage.sha256(name) for name in storage.names()} == digests(tmp_path / name)


# What is refused.


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/3", "1/3/5", "²/3", ""])
def test_a_part_that_is_none_is_refused(text, one_sentence):
    with pytest.raises(UsageError, match="expected --part as I/N, from 1/N to N/N, got") as caught:
        Share.parse(text)
    one_sentence(caught.value)


def test_a_part_does_not_overwrite(one_sentence):
    with pytest.raises(UsageError, match="remove DST first") as caught:
        RunOptions(part=Share.parse("1/2"), overwrite=True)
    one_sentence(caught.value)


def test_build_is_for_everything(source_of, tmp_path):
    words = JOBS["files to wds"]
    inputs = resolve_inputs([str(source_of(words))])
    order = order_of(inputs, OrderWords(**words))
    with pytest.raises(UsageError, match="build_part"):
        build(inputs, str(tmp_path / "out"), order, RunOptions(part=Share.parse("1/2")))


# Processes of their own.


def started(source: Path, out: Path, part: Share) -> "subprocess.Popen[str]":
    words = ["--to", "wds", "--from", "jsonl", "--key", "id", "--shuffle", "--seed", "3", "--shard-size", "256KiB", "--workers", "1"]
    command = [sys.executable, "-m", "shardtools", "pack", str(source), str(out), *words, "--part", str(part)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_jobs_that_are_killed_at_any_moment(tmp_path, digests, monkeypatch, seed):
    monkeypatch.undo()
    numbers = random.Random(seed)
    source = write_records(tmp_path / "records", make_records(200_000), num_files=6)
    started(source, tmp_path / "whole", Share(0, 1)).communicate(timeout=200)
    out = tmp_path / "out"
    for _ in range(3):
        jobs = [started(source, out, part) for part in [*parts(), parts()[seed]]]
        time.sleep(numbers.uniform(0.5, 6))
        for job in jobs:
            if numbers.random() < 0.7:
                os.killpg(job.pid, signal.SIGKILL) if job.poll() is None else None
        said = [(job.communicate(timeout=200), job.returncode) for job in jobs]
        assert all(code in (0, -signal.SIGKILL) for _, code in said), said
    for _ in range(2):
        for part in parts():
            started(source, out, part).communicate(timeout=200)
    assert digests(out) == digests(tmp_path / "whole")

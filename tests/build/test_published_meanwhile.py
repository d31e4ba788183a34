"""Stops a run from taking anything away from a dataset that another run of the same plan published after the first look at it."""

import pytest
from scattering import make_records, write_records

from shardtools import partitions as partitions_module
from shardtools.build.destination import Destination
from shardtools.build.order import OrderWords, order_of
from shardtools.build.progress import BuildProgress
from shardtools.build.publish import Publisher
from shardtools.build.run import Result, RunOptions, build_part
from shardtools.build.stages.advance import Share
from shardtools.sources import resolve_inputs
from shardtools.storage import open_storage

JOBS = {
    "in order": {"format": "mds"},
    "in passes": {"format": "wds", "shuffle": True, "seed": 3, "select_options": {"limit": "250"}},
}


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch):
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 16_384)


@pytest.fixture(params=[None, "2/3"], ids=["whole", "part"])
def part(request):
    return request.param and Share.parse(request.param)


@pytest.fixture(params=JOBS)
def run(request, tmp_path):
    """``run(destination, part)`` of a job."""
    source = write_records(tmp_path / "src", make_records(300))
    words = OrderWords(source="jsonl", source_options={"key": "id"}, shard_size="20KiB", **JOBS[request.param])

    def call(destination, part=None):
        inputs = resolve_inputs([str(source)])
        return build_part(inputs, str(destination), order_of(inputs, words), RunOptions(part=part))

    return call


def stored(uri):
    """SHA-256 by name of all that lies there."""
    storage = open_storage(str(uri))
    return {name: storage.sha256(name) for name in storage.names()}


def once(monkeypatch, kind, name, action, is_after=False):
    """Before the method is called for the next time, or after that, and never again, the action is done."""
    real = getattr(kind, name)

    def call(self, *arguments):
        monkeypatch.setattr(kind, name, real)
        found = real(self, *arguments) if is_after else None
        action()
        return found if is_after else real(self, *arguments)

    monkeypatch.setattr(kind, name, call)


@pytest.fixture(params=["folder", "bucket"])
def out(request, tmp_path):
    """A destination."""
    return request.getfixturevalue("s3_uri") if request.param == "bucket" else tmp_path / "out"


def stop_amid_publication(monkeypatch, run, out):
    """A run that ends when it has given a few final names."""
    kind, num_left = type(open_storage(str(out))), [6]
    real = kind.place

    def place(self, *names):
        num_left[0] -= 1
        if not num_left[0]:
            raise KeyboardInterrupt
        return real(self, *names)

    monkeypatch.setattr(kind, "place", place)
    with pytest.raises(KeyboardInterrupt):
        run(out)
    monkeypatch.setattr(kind, "place", real)


@pytest.mark.parametrize("method", ["_given", "_built"])
def test_what_was_published_since_the_first_look_stays(run, out, part, tmp_path, monkeypatch, method):
    run(tmp_path / "clean")
    stop_amid_publication(monkeypatch, run, out)
    once(monkeypatch, BuildProgress, method, lambda: run(out))
    done = run(out, part)
    assert isinstance(done, Result)
    assert stored(out) == stored(tmp_path / "clean")


@pytest.mark.parametrize("is_after", [False, True], ids=["before the plan is there", "since then"])
def test_who_waited_for_a_publication_has_nothing_to_do_and_leaves_nothing(run, out, part, tmp_path, monkeypatch, is_after):
    run(tmp_path / "clean")
    once(monkeypatch, Destination, "prepare", lambda: run(out), is_after)
    done = run(out, part)
    assert isinstance(done, Result)
    assert stored(out) == stored(tmp_path / "clean")


@pytest.mark.parametrize("method", ["refuse_repeats", "_make_room"])
def test_two_that_publish_into_a_bucket_at_once_leave_one_dataset(run, part, s3_uri, tmp_path, monkeypatch, method):
    """Nothing there keeps one out while the other is at it."""
    run(tmp_path / "clean")
    for other in ("1/3", "3/3") if part else ():
        run(s3_uri, Share.parse(other))
    once(monkeypatch, Publisher, method, lambda: run(s3_uri))
    done = run(s3_uri, part)
    assert isinstance(done, Result)
    assert stored(s3_uri) == stored(tmp_path / "clean")

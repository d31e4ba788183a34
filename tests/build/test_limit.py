"""Stops a limit that takes other samples than the first, or that depends on how many partitions are looked at together."""

import pytest
from scattering import keys_in, make_records, pack, planned, write_records
from shuffled_engine import Shuffled

from shardtools import partitions as partitions_module
from shardtools.build.select_order import selection_of
from shardtools.build.stages import advance
from shardtools.engines.processes import Processes
from shardtools.errors import BadSampleError, UsageError
from shardtools.selection import Selection
from shardtools.sources.files import Files


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch):
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 16_384)


@pytest.fixture
def source(tmp_path):
    return write_records(tmp_path / "src", make_records(1500))


@pytest.mark.parametrize("limit", [1, 2, 99, 700, 1499, 1500, 1501, 10**12])
def test_the_first_samples_are_taken(source, tmp_path, limit):
    result = pack(source, tmp_path / "out", selection=Selection(limit=limit))
    num_kept = min(limit, 1500)
    assert keys_in(result, tmp_path / "out") == [f"k{i:07d}" for i in range(num_kept)]
    ledger = result.manifest.ledger
    assert (ledger.num_written, ledger.filters.total()) == (num_kept, ledger.num_read - num_kept)
    assert set(ledger.filters) <= {"limit"}


@pytest.mark.parametrize("limit", ["0", "-3", "x", ""])
def test_a_limit_that_is_none_is_refused(limit):
    with pytest.raises(UsageError, match=f"expected --limit of 1 or more, got '{limit}'"):
        selection_of({"limit": limit})


def test_partitions_behind_the_limit_are_not_read(source, tmp_path, monkeypatch):
    read = []
    from shardtools.build.reading import Reading

    plain = Reading._read
    monkeypatch.setattr(Reading, "_read", lambda self: read.append(self._partition.index) or plain(self))
    counts: list[int] = []
    result = pack(source, tmp_path / "out", selection=Selection(limit=100), listener=planned(counts))
    assert counts[0] > 10 and max(read) < 4
    assert result.manifest.ledger.num_read < 400


@pytest.mark.parametrize("first_wave", [1, 3, 100])
@pytest.mark.parametrize("selection", [Selection(limit=700), Selection(limit=500, dedup="content")], ids=["limit", "dedup"])
def test_how_many_are_looked_at_together_changes_nothing(source, tmp_path, digests, monkeypatch, first_wave, selection):
    pack(source, tmp_path / "one", selection=selection)
    monkeypatch.setattr(advance, "_FIRST_WAVE", first_wave)
    pack(source, tmp_path / "two", selection=selection, engine=Shuffled(1))
    assert digests(tmp_path / "two") == digests(tmp_path / "one")


def test_bad_samples_behind_the_limit_are_none(source, tmp_path, monkeypatch):
    (source / "2.jsonl").write_bytes(b"bad\n" + (source / "2.jsonl").read_bytes())
    monkeypatch.setattr(advance, "_FIRST_WAVE", 100)
    result = pack(source, tmp_path / "out", selection=Selection(limit=300))
    assert result.manifest.ledger.num_rejected == 0
    with pytest.raises(BadSampleError, match=r"2\.jsonl"):
        pack(source, tmp_path / "all", selection=Selection(limit=1400))


def test_bad_samples_take_no_place(source, tmp_path):
    (source / "0.jsonl").write_bytes(b"bad\n" + (source / "0.jsonl").read_bytes())
    result = pack(source, tmp_path / "out", selection=Selection(limit=10), max_bad="1")
    assert keys_in(result, tmp_path / "out") == [f"k{i:07d}" for i in range(10)]
    assert result.manifest.ledger.num_rejected == 1


def test_duplicates_take_no_place(tmp_path):
    records = [{"id": f"k{i // 3}", "n": i} for i in range(600)]
    source = write_records(tmp_path / "src", records)
    result = pack(source, tmp_path / "out", selection=Selection(limit=50, dedup="key"))
    assert keys_in(result, tmp_path / "out") == [f"k{i}" for i in range(50)]


def test_first_is_by_the_order_of_the_input_also_when_shuffled(source, tmp_path):
    result = pack(source, tmp_path / "out", selection=Selection(limit=400), seed=5)
    keys = keys_in(result, tmp_path / "out")
    assert sorted(keys) == [f"k{i:07d}" for i in range(400)] != keys


def test_small_files_are_limited_too(tree, tmp_path):
    source = tree({f"{i:04d}.txt": b"x" * 200 for i in range(400)})
    result = pack(source, tmp_path / "out", reader=Files(), selection=Selection(limit=123), engine=Processes(2))
    assert keys_in(result, tmp_path / "out") == [f"{i:04d}" for i in range(123)]

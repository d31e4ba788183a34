"""The table of settings says which would break what, at the very setting where the limit lies; stops a promise that ends in a bus error.

Expected numbers are worked out by hand from the rule: at most W·P + 2 batches live at once, in whole pages of 4,096 bytes; 80 % of
shared memory and descriptors, 70 % of memory may be taken.
"""

import json
from dataclasses import replace

import pytest
from doctor_machines import IN_DOCKER, SOUND

from shardtools.bench.doctor.batches import NamedBatch, batches_of, evenly
from shardtools.bench.doctor.request import DoctorRequest, numbers
from shardtools.bench.doctor.table import Cell, ProcessMemory, cells_of, table_findings
from shardtools.bench.prediction import Batch, Limits
from shardtools.errors import UsageError

MIB = 2**20
NO_LIMITS = Limits(None, None, None)
NAMED = NamedBatch("as given", "--batch-bytes", evenly(10 * MIB, 4, 64))
ASKED = DoctorRequest(batch_bytes=10 * MIB, num_workers=(1, 2, 4), prefetch_factors=(2, 4))


def cells(limits: Limits = NO_LIMITS, memory: ProcessMemory | None = None, asked: DoctorRequest = ASKED) -> list[Cell]:
    return cells_of(asked, [NAMED], memory or ProcessMemory(None, None), limits)


def broken(found: list[Cell]) -> dict[tuple[int, int], tuple[str, ...]]:
    return {(cell.num_workers, cell.prefetch_factor): cell.breaks for cell in found if cell.breaks}


def test_what_is_taken() -> None:
    found = {(cell.num_workers, cell.prefetch_factor): cell.predicted for cell in cells(memory=ProcessMemory(30 * MIB, 200 * MIB))}
    assert list(found) == [(1, 2), (1, 4), (2, 2), (2, 4), (4, 2), (4, 4)]
    most = found[4, 4]
    assert (most.shm_bound_bytes, most.fds) == (18 * 10 * MIB, 18 * 4)
    # Main, four workers with a batch each, and what is in shared memory.
    assert most.ram_bytes == (200 + 4 * (30 + 10) + 180) * MIB
    assert cells()[0].predicted.ram_bytes is None


def test_the_bound_is_where_it_breaks() -> None:
    """(4, 4) takes 180 MiB of shm: 225 MiB is just enough, a byte less is not."""
    assert broken(cells(Limits(225 * MIB, None, None))) == {}
    assert broken(cells(Limits(225 * MIB - 2, None, None))) == {(4, 4): ("shm",)}
    assert broken(cells(Limits(None, 90, None))) == {}
    assert broken(cells(Limits(None, 89, None))) == {(4, 4): ("fds",)}


def test_memory_is_judged_by_batches_alone_where_processes_are_not_known() -> None:
    assert broken(cells(Limits(None, None, 258 * MIB))) == {}
    assert broken(cells(Limits(None, None, 257 * MIB))) == {(4, 4): ("RAM",)}


def test_no_more_shared_memory_is_advised_than_memory_has_room_for() -> None:
    """256 MiB of memory, 70 % of it: (4, 2) takes 100 MiB, half as much again is 256m. (4, 4) takes 180 MiB: room for that in /dev/shm
    would only move the end."""
    for free, advised in ((60, ", or start the container with `docker run --shm-size=256m`"), (200, ": memory has no room")):
        limits = Limits(free * MIB, None, 256 * MIB)
        found = [one for one in table_findings(cells(limits), IN_DOCKER, limits) if "/dev/shm is" in one.sentence]
        assert len(found) == 1 and f"use smaller batches{advised}" in found[0].sentence, found


def test_ranks_share_memory_and_not_descriptors() -> None:
    asked = replace(ASKED, num_ranks=2)
    assert (4, 4) in broken(cells(Limits(225 * MIB, None, None), asked=asked))
    assert broken(cells(Limits(None, 90, None), asked=asked)) == {}


def test_without_workers_nothing_is_sent() -> None:
    (cell,) = cells(Limits(0, 1, None), asked=replace(ASKED, num_workers=(0,)))
    assert (cell.breaks, cell.predicted.shm_bound_bytes) == ((), 0)


def test_a_warning_names_the_first_that_breaks_the_last_that_fits_and_the_size_to_ask_for() -> None:
    limits = Limits(100 * MIB, None, None)  # 80 MiB: eight batches
    (found,) = table_findings(cells(limits), IN_DOCKER, limits)
    assert found.level == "warning"
    assert "from num_workers=2 prefetch_factor=4 on /dev/shm is too small (100.0 MiB of 100.0 MiB free" in found.sentence
    assert "num_workers=2 prefetch_factor=2 fits" in found.sentence
    assert "docker run --shm-size=512m" in found.sentence and "sizeLimit: 512Mi" in found.sentence


def test_a_limit_is_told_once_for_all_batches_with_what_is_enough_for_each() -> None:
    """18 batches of 40 MiB and half as much again are 1,080 MiB: 2 GiB."""
    names = [NAMED, NamedBatch("larger", "", evenly(40 * MIB, 4, 64))]
    limits = Limits(256 * MIB, None, None)  # 204.8 MiB: twenty batches of 10 MiB, five of 40
    found = list(table_findings(cells_of(ASKED, names, ProcessMemory(None, None), limits), IN_DOCKER, limits))
    assert [finding.level for finding in found] == ["warning", "ok"]
    assert found[0].sentence.startswith("Batches of 40.0 MiB (larger): from num_workers=1 prefetch_factor=4 on /dev/shm is too small")
    assert found[0].sentence.count("--shm-size=") == 1 and "--shm-size=2g" in found[0].sentence


def test_the_shm_size_is_half_as_much_again() -> None:
    big = NamedBatch("big", "", Batch.of_tensors([1024 * MIB], 64))
    limits = Limits(64 * MIB, None, None)
    found = list(table_findings(cells_of(ASKED, [big], ProcessMemory(None, None), limits), IN_DOCKER, limits))
    assert found[0].level == "fault" and "--shm-size=27g" in found[0].sentence  # (16 + 2) * 1 GiB * 1.5


def test_descriptors_are_asked_for_within_the_hard_limit() -> None:
    limits = Limits(None, 64, None)
    soft = replace(SOUND, descriptors=(64, 4096))
    (found,) = table_findings(cells(limits), soft, limits)
    assert "descriptors run out" in found.sentence and "`ulimit -n 1024`" in found.sentence
    (hard,) = table_findings(cells(limits), replace(SOUND, descriptors=(64, 64)), limits)
    assert "`* hard nofile 1024`" in hard.sentence


def test_settings_that_all_fit_are_said_to() -> None:
    (found,) = table_findings(cells(), SOUND, NO_LIMITS)
    assert (found.level, "up to num_workers=4 prefetch_factor=4" in found.sentence) == ("ok", True)


def test_each_cell_is_plain_data() -> None:
    limits = Limits(16 * MIB, 64, 2**30)
    for cell in cells(limits):
        told = json.loads(json.dumps(cell.as_json()))
        assert (told["refusal"] is None) == (told["breaks"] == [])
        assert set(told["predicted"]) == {"shm_bytes", "shm_bound_bytes", "fds", "pinned_bound_bytes", "ram_bytes"}


# Batches.


def test_images_are_assumed_where_nothing_is_known() -> None:
    small, large = batches_of(DoctorRequest(), [])
    assert (small.name, small.batch.bytes, small.batch.tensors) == ("uint8", 9633792, 1)
    assert (large.name, large.batch.bytes, large.batch.shm_bytes) == ("float32", 38535168, 38535168)
    assert large.batch.pinned_bytes == 67108864


def test_the_largest_of_the_first_batches_counts() -> None:
    side = {"uri": "data", "kind": "wds", "samples": 64, "batches": [[4096, 8], [9000, 8], [100, 8]], "error": None}
    (found,) = batches_of(DoctorRequest(("data",)), [side, {**side, "uri": "again"}])
    assert (found.name, found.batch.bytes, found.batch.tensors, found.batch.shm_bytes) == ("wds", 9008, 2, 4096 * 4)


def test_a_given_size_goes_before_the_datas() -> None:
    side = {"uri": "data", "kind": "wds", "samples": 64, "batches": [[4096]], "error": None}
    (found,) = batches_of(DoctorRequest(("data",), 1000, 3), [side])
    assert (found.batch.bytes, found.batch.tensors, found.batch.shm_bytes) == (1000, 3, 3 * 4096)


@pytest.mark.parametrize(("text", "found"), [("4,1, 2,2", (1, 2, 4)), ("16", (16,))])
def test_numbers(text: str, found: tuple[int, ...]) -> None:
    assert numbers(text, "--num-workers", 1) == found


@pytest.mark.parametrize("text", ["", "1,", "-1", "0", "1.5", "x", "2000", "²"])
def test_no_numbers(text: str) -> None:
    with pytest.raises(UsageError, match="--num-workers"):
        numbers(text, "--num-workers", 1)

"""Stops bad samples that pass in silence, that end a run which tolerates them, or that put ranks and counts out of step."""

import io
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra train")
stateful_dataloader = pytest.importorskip("torchdata.stateful_dataloader", reason="needs the extra train")

from torch.utils.data import DataLoader  # noqa: E402
from worlds import QUIET, raised_by  # noqa: E402

from shardtools.errors import BadSampleError, StorageError  # noqa: E402
from shardtools.loaders import LoaderOptions, open_dataset  # noqa: E402
from shardtools.sources.jsonl import Jsonl  # noqa: E402
from shardtools.units import Budget  # noqa: E402

pytestmark = QUIET

NUM_SAMPLES, SHARD_SAMPLES = 20, 5


def key(i: int) -> str:
    return f"a/{14 * min(i, 10) + 15 * max(i - 10, 0):012d}"


def keys(*indices: int) -> list[str]:
    return [key(i) for i in indices]


def damage(folder: Path, i: int) -> None:
    """Flips a bit of what says where sample ``i`` ends: the size in its tar header, the length of its value in its row."""
    shard, row = divmod(i, SHARD_SAMPLES)
    path = sorted([*folder.glob("*.tar"), *folder.glob("*.mds")])[shard]
    data = bytearray(path.read_bytes())
    at = 1024 * row + 130  # a header and less than a block of data each
    if path.suffix == ".mds":
        (at,) = struct.unpack_from("<I", data, 4 + 4 * row)
    data[at] ^= 1
    path.write_bytes(data)


@pytest.fixture(params=["wds", "mds"])
def folder(request: pytest.FixtureRequest, tree: Callable[..., Path], build: Callable[..., Any], tmp_path: Path) -> Path:
    lines = b"".join(b'{"number": %d}\n' % i for i in range(NUM_SAMPLES))
    build(tree({"a.jsonl": lines}) / "a.jsonl", tmp_path / "shards", request.param, source=Jsonl(), shard_samples=SHARD_SAMPLES)
    return tmp_path / "shards"


def dataset_of(folder: Path, budget: str = "0", decode: Any = None, batch_size: int = 4) -> Any:
    return open_dataset(str(folder), batch_size=batch_size, decode=decode, options=LoaderOptions(max_bad=Budget.parse(budget)))


def loader_of(dataset: Any, workers: int = 0, lives_on: bool = False) -> Any:
    return DataLoader(dataset, dataset._world.batch_size, num_workers=workers, persistent_workers=lives_on, collate_fn=list)


def indices(batches: Any) -> list[list[int]]:
    known = {key(i): i for i in range(NUM_SAMPLES)}
    return [[known[sample["__key__"]] for sample in batch] for batch in batches]


def substitutes(batches: list[list[int]], bad: set[int]) -> dict[int, int]:
    """What took the place of each bad sample of the whole set, once all others are seen to be where they belong."""
    assert [len(batch) for batch in batches[:-1]] == [len(batches[0])] * (len(batches) - 1)
    found = [i for batch in batches for i in batch]
    assert len(found) == NUM_SAMPLES
    assert [i for i in range(NUM_SAMPLES) if found[i] != i and i not in bad] == []
    taken = {i: found[i] for i in sorted(bad)}
    assert not bad & set(taken.values())
    return taken


@pytest.mark.parametrize("workers", [0, 2])
def test_the_first_ends_the_run_by_name(folder: Path, workers: int) -> None:
    damage(folder, 7)
    error = raised_by(lambda: list(loader_of(dataset_of(folder), workers)))
    assert isinstance(error, BadSampleError)
    shard = "train-000001.tar" if list(folder.glob("*.tar")) else "shard.00001.mds"
    assert f"got one that is damaged: sample 2 of {folder}/{shard}: DamagedShardError: " in str(error)
    assert "restore the shard, or tolerate some with max_bad" in str(error)


@pytest.mark.parametrize(("workers", "lives_on"), [(0, False), (2, True)])
def test_a_sound_one_takes_its_place_and_it_is_counted(folder: Path, workers: int, lives_on: bool) -> None:
    for i in (6, 7, 19):
        damage(folder, i)
    dataset = dataset_of(folder, "3")
    loader = loader_of(dataset, workers, lives_on)
    taken = []
    for epoch in (0, 0, 1):  # three a pass, not three in all
        dataset.set_epoch(epoch)
        taken.append(substitutes(indices(loader), {6, 7, 19}))
        assert dataset.bad == {"damaged": 3}
        assert dataset.state_at(5)["bad"] == {"damaged": 3}
    assert taken == taken[:1] * 3
    dataset.set_epoch(2)
    assert dataset.bad == {}


def test_the_sample_that_takes_its_place_is_the_same_in_any_world(folder: Path) -> None:
    damage(folder, 7)
    (taken,) = substitutes(indices(loader_of(dataset_of(folder, "1"))), {7}).values()
    options = [LoaderOptions(rank, 3, max_bad=Budget(1)) for rank in range(3)]
    ranks = [indices(loader_of(open_dataset(str(folder), batch_size=2, options=one), 1)) for one in options]
    assert [rank[:2] for rank in ranks] == [[[0, 1], [6, taken]], [[2, 3], [8, 9]], [[4, 5], [10, 11]]]


@pytest.mark.parametrize("workers", [0, 1])
def test_one_more_than_the_budget_ends_the_run(folder: Path, workers: int) -> None:
    for i in (6, 7, 19):
        damage(folder, i)
    dataset = dataset_of(folder, "2")
    stream = iter(loader_of(dataset, workers))
    assert [len(next(stream)) for _ in range(4)] == [4, 4, 4, 4]
    error = raised_by(lambda: next(stream))
    assert isinstance(error, BadSampleError)
    assert "sample 4 of" in str(error)
    assert dataset.bad == {"damaged": 3}


def test_a_percentage_is_of_all_samples(folder: Path) -> None:
    for i in (6, 7, 19):
        damage(folder, i)
    assert sum(map(len, loader_of(dataset_of(folder, "15%")))) == NUM_SAMPLES
    assert isinstance(raised_by(lambda: list(loader_of(dataset_of(folder, "14.9%")))), BadSampleError)


def test_batches_of_one_sample(folder: Path) -> None:
    damage(folder, 0)
    damage(folder, 4)
    found = indices(loader_of(dataset_of(folder, "2", batch_size=1)))
    substitutes(found, {0, 4})


@pytest.mark.parametrize("num_bytes", [20, -1, 10240], ids=["cut off", "a byte short", "longer"])
def test_a_shard_of_another_length_is_all_bad(folder: Path, num_bytes: int) -> None:
    """Another shard in its place would have its samples delivered twice, and its own never."""
    path = sorted([*folder.glob("*.tar"), *folder.glob("*.mds")])[1]
    data = path.read_bytes()
    path.write_bytes(data + bytes(num_bytes) if num_bytes > len(data) or num_bytes == 10240 else data[:num_bytes])
    dataset = dataset_of(folder, "5")
    taken = substitutes(indices(loader_of(dataset)), set(range(5, 10)))
    assert len(set(taken.values())) > 1
    assert dataset.bad == {"damaged": 5}


@pytest.mark.parametrize("bad", [range(20, 320), range(60), range(340, 400)], ids=["amid", "first", "last"])
def test_a_long_run_of_bad_samples_has_many_substitutes(
    tree: Callable[..., Path], build: Callable[..., Any], tmp_path: Path, bad: range
) -> None:
    """One that came hundreds of times would be learnt by heart."""
    lines = b"".join(b'{"number": %d}\n' % i for i in range(400))
    build(tree({"a.jsonl": lines}) / "a.jsonl", tmp_path / "shards", "mds", source=Jsonl())

    def decode(sample: dict[str, Any]) -> int:
        number = int.from_bytes(sample["number"], "little")
        if number in bad:
            raise ValueError("no")
        return number

    found = list(dataset_of(tmp_path / "shards", "300", decode))
    assert len(found) == 400
    assert [i for i in range(400) if i not in bad and found[i] != i] == []
    assert max(found.count(i) for i in set(found)) <= 1 + 3 * max(2, len(bad) // (400 - len(bad)))


def test_a_shard_that_is_not_there_is_no_bad_sample(folder: Path) -> None:
    dataset = dataset_of(folder, "100%")
    sorted([*folder.glob("*.tar"), *folder.glob("*.mds")])[1].unlink()
    with pytest.raises(StorageError):
        list(dataset)
    assert dataset.bad == {}


def test_nothing_but_bad_samples(folder: Path) -> None:
    def refuse(_: Any) -> Any:
        raise ValueError("no")

    with pytest.raises(BadSampleError, match=r"expected .* to take the place of sample 0 of .*, got none in 1,016 tries; verify"):
        list(dataset_of(folder, "100%", refuse))


def refuse_8_and_9(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["__key__"] in keys(8, 9):
        raise OSError("image file is truncated")  # as Pillow says it
    return sample


@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_decoder_refuses_is_undecodable(folder: Path, workers: int) -> None:
    damage(folder, 10)
    dataset = dataset_of(folder, "3", refuse_8_and_9)
    substitutes(indices(loader_of(dataset, workers)), {8, 9, 10})
    assert dataset.bad == {"damaged": 1, "undecodable": 2}
    error = raised_by(lambda: list(loader_of(dataset_of(folder, "1", refuse_8_and_9), workers)))
    assert isinstance(error, BadSampleError)
    assert "undecodable: sample 4 of" in str(error) or "damaged: sample 0 of" in str(error)


def test_images_that_are_cut_off(tree: Callable[..., Path], build: Callable[..., Any], tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    data = io.BytesIO()
    pillow.new("RGB", (64, 64), "red").save(data, "JPEG")
    whole = data.getvalue()
    source = tree({"0.jpg": whole, "1.jpg": whole[:300], "2.jpg": whole})
    build(source, tmp_path / "shards", "wds")
    with pytest.raises(BadSampleError, match=r"undecodable: sample 1 of .*; mend the decoder or the sample, or tolerate some with max_bad"):
        list(dataset_of(tmp_path / "shards", "0", "pil"))
    dataset = dataset_of(tmp_path / "shards", "1", "rgb")
    found = [(sample["__key__"], tuple(sample["jpg"].shape)) for sample in dataset]
    assert found in ([("0", (3, 64, 64)), (other, (3, 64, 64)), ("2", (3, 64, 64))] for other in "02")
    assert dataset.bad == {"undecodable": 1}


@pytest.mark.parametrize("workers", [0, 2])
def test_the_count_is_carried_by_states(folder: Path, workers: int) -> None:
    """Each bad sample once, though workers had read ahead of the batch behind which the run was broken off."""
    for i in (1, 6, 7, 19):
        damage(folder, i)
    had = [0, 1, 3, 3, 3, 4]
    dataset = dataset_of(folder, "4")
    loader = stateful_dataloader.StatefulDataLoader(dataset, 4, num_workers=workers, collate_fn=list)
    states = [json.loads(json.dumps(loader.state_dict()))]
    states += [json.loads(json.dumps(loader.state_dict())) for _ in loader]
    assert dataset.bad == {"damaged": 4}
    for num_batches, state in enumerate(states):
        resumed = dataset_of(folder, "4")
        resumed.load_state_dict(state)
        assert resumed.bad.get("damaged", 0) == had[num_batches]
        assert sum(map(len, loader_of(resumed))) == NUM_SAMPLES - 4 * num_batches
        assert resumed.bad == {"damaged": 4}

        # By the dataset, in a loader whose own state is carried on; then by the loader.
        resumed = dataset_of(folder, "4")
        resumed.load_state_dict(state)
        loader = stateful_dataloader.StatefulDataLoader(resumed, 4, num_workers=workers, collate_fn=list)
        stream = iter(loader)
        last = [loader.state_dict() for _ in stream][-1:]
        for later in last:
            resumed.load_state_dict(later)
            assert resumed.bad == {"damaged": 4}

        resumed = dataset_of(folder, "4")
        loader = stateful_dataloader.StatefulDataLoader(resumed, 4, num_workers=workers, collate_fn=list)
        loader.load_state_dict(state)
        assert sum(map(len, loader)) == NUM_SAMPLES - 4 * num_batches
        assert resumed.bad == {"damaged": 4}
        assert sum(map(len, loader)) == NUM_SAMPLES
        assert resumed.bad == {"damaged": 4}
    spent = dataset_of(folder, "3")
    spent.load_state_dict(states[2])
    assert isinstance(raised_by(lambda: list(loader_of(spent))), BadSampleError)


def test_what_was_set_aside_is_told(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    damage(folder, 7)
    assert len(list(dataset_of(folder, "1"))) == NUM_SAMPLES
    message, _ = [record.message for record in caplog.records]
    assert "sample 2 of" in message
    assert message.endswith("; set aside, another sample takes its place in the batch")


def test_the_end_of_a_pass_says_what_was_set_aside(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    damage(folder, 2)
    damage(folder, 11)
    assert len(list(dataset_of(folder, budget="2"))) == NUM_SAMPLES
    assert caplog.messages[-1] == "epoch 0 is read out: this process set aside bad samples, 2 damaged"


def test_a_sample_that_cannot_be_decoded_is_named_by_the_map_too(folder: Path) -> None:
    def decode(sample: dict[str, Any]) -> Any:
        raise ValueError(f"no picture in {sorted(sample)[0]}")

    shard = sorted([*folder.glob("*.tar"), *folder.glob("*.mds")])[1]
    expected = (
        f"expected a sample that can be decoded, got sample 2 of {shard}: ValueError: no picture in __key__; mend the decoder or the sample"
    )
    with pytest.raises(BadSampleError) as raised:
        dataset_of(folder, decode=decode).as_map()[SHARD_SAMPLES + 2]
    assert str(raised.value) == expected


def test_only_the_shards_that_are_read_are_opened(folder: Path) -> None:
    """Opening thousands of shards for the first batch would take longer than reading it."""
    dataset = dataset_of(folder)
    next(samples := iter(dataset))
    with open("/proc/self/maps") as maps:
        mapped = {line.split()[-1] for line in maps if str(folder) in line and line.rstrip().endswith((".tar", ".mds"))}
    assert len(mapped) == 1
    del samples

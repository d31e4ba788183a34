"""Stops a shuffle that is no uniform permutation of the whole dataset, that loses or doubles samples, or that depends on who did it."""

import json
import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from scattering import SHARD_BYTES, keys_in, make_records, pack, planned, shuffled, write_records
from shuffled_engine import Shuffled

from shardtools import partitions as partitions_module
from shardtools.build.stages import assemble, layout, spill
from shardtools.build.stages.layout import OrderWords
from shardtools.engines.processes import Processes
from shardtools.errors import BadSampleError, DuplicateKeyError
from shardtools.formats.mds import Mds
from shardtools.formats.wds import Wds
from shardtools.sources import jsonl


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch):
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 16_384)


@pytest.fixture
def source(tmp_path):
    return write_records(tmp_path / "src", make_records(1500))


def partition_keys(source, tmp_path) -> list[list[str]]:
    """The keys of each partition of an unshuffled build of the same input, by its receipts' number of samples."""
    found: list[int] = []
    from shardtools.build.run import Listener

    def on_plan(plan):
        for partition in plan.plan.partitions:
            batches = plan.plan.recipe.source.read(plan.roots, partition.extents, lambda _: None)
            found.append(sum(len(batch) for batch in batches))

    result = pack(source, tmp_path / "plain", listener=Listener(on_plan=on_plan))
    keys = keys_in(result, tmp_path / "plain")
    bounds = np.cumsum([0, *found]).tolist()
    assert bounds[-1] == len(keys) and len(found) > 10
    return [keys[begin:end] for begin, end in pairwise(bounds)]


def test_the_order_is_that_of_the_words(source, tmp_path):
    expected = shuffled(partition_keys(source, tmp_path), 7)
    result = pack(source, tmp_path / "out", seed=7)
    assert keys_in(result, tmp_path / "out") == expected
    assert sorted(expected) == [f"k{i:07d}" for i in range(1500)] != expected


@pytest.mark.parametrize("format_", [Wds(), Mds(compression="zstd", hashes=("sha1",))], ids=["wds", "mds"])
def test_every_engine_and_order_of_work_gives_the_same_files(source, tmp_path, digests, format_):
    for i, engine in enumerate([None, Shuffled(1), Processes(3)]):
        pack(source, tmp_path / str(i), format_, seed=7, engine=engine)
    found = [digests(tmp_path / str(i)) for i in range(3)]
    assert len(found[0]) > 20
    assert found[1] == found[0] == found[2]


def test_another_seed_gives_another_order(source, tmp_path):
    orders = [keys_in(pack(source, tmp_path / str(seed), seed=seed), tmp_path / str(seed)) for seed in (0, 1, 2**64 - 1)]
    assert len(set(map(tuple, orders))) == 3 and len(set(map(frozenset, orders))) == 1


@pytest.mark.parametrize(("name", "value"), [("RUN_BYTES", 5000), ("BUCKET_BYTES", 3000), ("HELD_BYTES", 30_000), ("_SLICE_BYTES", 40_000)])
def test_how_spills_are_cut_changes_no_sample(source, tmp_path, monkeypatch, name, value):
    """How much memory may be taken decides on runs, buckets and turns, and none of them on the order."""
    expected = keys_in(pack(source, tmp_path / "one", seed=7), tmp_path / "one")
    module = next(module for module in (spill, layout, assemble) if hasattr(module, name))
    monkeypatch.setattr(module, name, value)
    if name == "HELD_BYTES":
        monkeypatch.setattr(layout, "BUCKET_BYTES", 200_000)
    assert keys_in(pack(source, tmp_path / "two", seed=7), tmp_path / "two") == expected


def test_the_size_of_blocks_that_are_read_changes_nothing(source, tmp_path, digests, monkeypatch):
    pack(source, tmp_path / "one", seed=7)
    from shardtools.sources import _lines

    monkeypatch.setattr(_lines, "BLOCK_BYTES", 777)
    pack(source, tmp_path / "two", seed=7)
    assert digests(tmp_path / "two") == digests(tmp_path / "one")


def chi_square(counts: np.ndarray) -> tuple[float, int]:
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2 / expected).sum()), counts.size - 1


def refuse_uneven(order: np.ndarray) -> None:
    """Where samples come from by where they came to, in 20 x 20 cells; neighbours; and how far each is from the next.

    The bounds are five standard deviations of chi-square with (20 - 1)^2, or 99, degrees of freedom: 361 + 5 sqrt(2 * 361).
    """
    count = len(order)
    places = np.empty(count, np.int64)
    places[order] = np.arange(count)
    cells = np.zeros((20, 20))
    np.add.at(cells, (np.arange(count) * 20 // count, places * 20 // count), 1)
    statistic, _ = chi_square(cells)
    assert 361 - 5 * math.sqrt(722) < statistic < 361 + 5 * math.sqrt(722), statistic
    steps = (order[1:] - order[:-1]) % count  # uniform over 1 .. count - 1
    statistic, freedom = chi_square(np.bincount(steps * 100 // count, minlength=100))
    assert freedom - 5 * math.sqrt(2 * freedom) < statistic < freedom + 5 * math.sqrt(2 * freedom), statistic


def test_positions_are_uniform_over_100_000_samples(tmp_path, monkeypatch):
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 200_000)
    monkeypatch.setattr(layout, "BUCKET_BYTES", 300_000)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "n.jsonl").write_text("".join(f'{{"n": {i}}}\n' for i in range(100_000)))
    counts: list[int] = []
    result = pack(
        tmp_path / "src",
        tmp_path / "out",
        Mds(key_column=None),
        reader=jsonl.Jsonl(),
        seed=3,
        shard_bytes=1 << 20,
        listener=planned(counts),
    )
    assert counts[0] > 5
    values = []
    for shard in result.manifest.shards:
        data = (tmp_path / "out" / shard.name).read_bytes()
        rows = int.from_bytes(data[:4], "little")
        begin = int.from_bytes(data[4:8], "little")
        values.append(np.frombuffer(data, "<i8", rows, begin))
    order = np.concatenate(values)
    assert np.array_equal(np.sort(order), np.arange(100_000))
    refuse_uneven(order)


def test_the_test_of_uniformity_sees_what_is_not():
    """Orders that a shuffle within buffers, within partitions, or of partitions alone would leave."""
    numbers = np.random.default_rng(1)
    order = np.arange(100_000)
    within = numbers.permuted(order.reshape(10, -1), axis=1).ravel()
    between = order.reshape(100, -1)[numbers.permutation(100)].ravel()
    for bad in (order, within, between):
        with pytest.raises(AssertionError):
            refuse_uneven(bad)
    refuse_uneven(numbers.permutation(100_000))


def test_words_are_these_for_ever():
    """Words of Philox-4x64-10, as numpy 2.1.3 gave them: others would be other datasets of the same command."""
    assert OrderWords(7, 3).take(2).tolist() == [4984240537714540297, 16159351496983298522]
    words = OrderWords(7, 3)
    assert [*words.take(1), *words.take(4)] == [*OrderWords(7, 3).take(5)]


@pytest.mark.parametrize(("count", "shard_samples"), [(1, 10), (2, 1), (1500, 64), (1500, 5000)])
def test_every_shard_but_the_last_has_exactly_so_many(tmp_path, count, shard_samples):
    source = write_records(tmp_path / "src", make_records(count), 1)
    result = pack(source, tmp_path / "out", seed=7, shard_samples=shard_samples)
    counts = [shard.num_samples for shard in result.manifest.shards]
    full, rest = divmod(count, shard_samples)
    assert counts == [shard_samples] * full + ([rest] if rest else [])


def test_shards_are_filled(source, tmp_path):
    for format_ in (Wds(), Mds()):
        out = tmp_path / format_.suffix
        result = pack(source, out, format_, seed=7, shard_bytes=10_240 if format_ == Mds() else SHARD_BYTES)
        limit = 10_240 if format_ == Mds() else SHARD_BYTES
        sizes = [shard.num_bytes for shard in result.manifest.shards]
        assert len(sizes) > 20 and max(sizes) <= limit
        assert sum(sizes) / len(sizes) / limit > 0.9


def test_bad_samples_are_set_aside_and_counted_once(source, tmp_path, digests):
    text = (source / "1.jsonl").read_bytes().split(b"\n")
    text[3:300:90] = [b'{"cut": '] * len(text[3:300:90])
    (source / "1.jsonl").write_bytes(b"\n".join(text))
    with pytest.raises(BadSampleError, match=r"1\.jsonl"):
        pack(source, tmp_path / "out", seed=7)
    for i, engine in enumerate([None, Shuffled(2)]):
        result = pack(source, tmp_path / str(i), seed=7, max_bad="1%", engine=engine)
    assert result.manifest.ledger.as_json() == {
        "read": 1500,
        "written": 1496,
        "rejected": 4,
        "filtered": 0,
        "rejects": {"invalid-json": 4},
    }
    rejects = [json.loads(line) for line in (tmp_path / "1" / ".shardtools" / "rejects").read_text().splitlines()]
    assert len(rejects) == 4 and all("1.jsonl" in reject["where"] for reject in rejects)
    assert digests(tmp_path / "0") == digests(tmp_path / "1")


def test_too_many_bad_samples_fail_before_shards_are_built(source, tmp_path):
    (source / "1.jsonl").write_bytes(b"bad\n" * 40)
    with pytest.raises(BadSampleError):
        pack(source, tmp_path / "out", seed=7, max_bad="1%")
    assert not list((tmp_path / "out").rglob("staged/*"))


def test_a_repeated_key_is_refused_with_both_places(tmp_path):
    records = make_records(200)
    records[150]["id"] = records[20]["id"]
    source = write_records(tmp_path / "src", records)
    with pytest.raises(DuplicateKeyError, match=r"k0000020.*0\.jsonl.*2\.jsonl"):
        pack(source, tmp_path / "out", seed=7)


def test_a_sample_above_the_shard_size_gets_its_own_shard(tmp_path):
    records = make_records(50)
    records[7]["text"] = "x" * 30_000
    result = pack(write_records(tmp_path / "src", records), tmp_path / "out", seed=7)
    assert any("k0000007" in warning for warning in result.warnings)
    assert Counter(keys_in(result, tmp_path / "out")) == Counter(record["id"] for record in records)


def test_samples_count_once_for_those_who_watch(source, tmp_path):
    from shardtools.build.run import Listener

    seen: list[int] = []
    pack(source, tmp_path / "out", seed=7, listener=Listener(on_progress=lambda progress: seen.append(progress.num_samples)))
    assert sum(seen) == 1500

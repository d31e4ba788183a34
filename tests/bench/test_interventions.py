"""Each intervention takes away the calls of its stage and of no other, whoever reads and however workers start; stops a gain that
comes from work which was left out elsewhere, and a sample that is spoilt because it is given twice."""

import pickle
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import counted_stages
import pytest
from bench_sides import QUIET, as_files, as_lines, as_mds, as_tars, pack_tokens, pictures, small_tokenizer
from counted_stages import calls

torch = pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it", exc_type=ImportError)

from torch.utils.data import DataLoader  # noqa: E402

from shardtools.bench.readers import open_side, settle_workload  # noqa: E402
from shardtools.bench.readers._again import Again, DocumentsAgain, copied, num_bytes  # noqa: E402
from shardtools.bench.readers.counted import Counted, Counting, Sent  # noqa: E402
from shardtools.bench.spec import Layout, Settings, Workload  # noqa: E402
from shardtools.bench.timers import StageTimers  # noqa: E402
from shardtools.errors import UsageError  # noqa: E402
from shardtools.sample import Batch  # noqa: E402

pytestmark = [
    *QUIET,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"),
]

NUM_SAMPLES, BATCH_SIZE, KEPT = 120, 6, 16
SAMPLES = pictures(NUM_SAMPLES)
TRUE_ROWS = Counter((len(data), sum(data)) for data in (fields["json"] + fields["png"] for fields in SAMPLES.values()))
WORKLOAD = Workload(BATCH_SIZE, "counted_stages:decode", "counted_stages:transform", "counted_stages:collate")
READERS = [("files", "torch"), ("wds", "webdataset"), ("wds", "shardtools"), ("mds", "shardtools"), ("mds", "streaming")]
INTERVENTIONS = ["storage", "decode", "transform", "collate", "transfer"]


@pytest.fixture(scope="module", autouse=True)
def quiet_libraries(streaming: Any, webdataset: Any) -> None:
    """Imported once, with their own warnings."""


@pytest.fixture(scope="module")
def uris(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("sides")
    encodings = {"json": "bytes", "png": "png"}
    return {
        "files": as_files(folder / "files", SAMPLES),
        "wds": as_tars(folder / "wds", SAMPLES, per_shard=10),
        "mds": as_mds(folder / "mds", SAMPLES, encodings),
    }


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv(counted_stages.VARIABLE, str(tmp_path / "calls"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    return


def sent_of(layout: Layout, settings: Settings, intervention: Any = None, timers: StageTimers | None = None) -> list[Sent]:
    """All batches of an epoch, as a trial gets them."""
    side = open_side(layout, WORKLOAD, settings, timers, intervention)
    kwargs = side.loader_kwargs | {"collate_fn": Counting(side.loader_kwargs["collate_fn"])}
    context = settings.start_method if settings.num_workers else None
    try:
        return list(DataLoader(side.dataset, num_workers=settings.num_workers, multiprocessing_context=context, **kwargs))
    finally:
        side.close()


def rows_of(sent: list[Sent]) -> Counter[tuple[int, int]]:
    return Counter((int(count), int(total)) for batch, _ in sent for count, total in batch[0])


def require(intervention: str | None, sent: list[Sent], num_workers: int, true_rows: Counter[tuple[int, int]] = TRUE_ROWS) -> None:
    """What was called and what came, by the definition of the intervention."""
    workers, found, num_batches = max(1, num_workers), calls(), len(sent)
    assert sum(one.num_samples for one in sent) == NUM_SAMPLES
    most = KEPT * workers
    expected = {"d": NUM_SAMPLES, "t": NUM_SAMPLES, "c": num_batches}
    for stage, letter in (("decode", "d"), ("transform", "t")):
        if intervention == stage:
            assert found[letter] == most < NUM_SAMPLES
            del expected[letter]
    if intervention == "collate":
        assert found["c"] == workers < num_batches
        del expected["c"]
    assert {letter: found[letter] for letter in expected} == expected
    if intervention == "transfer":
        assert [one.batch for one in sent] == [one.num_samples for one in sent]
        return
    rows = rows_of(sent)
    if intervention in (None, "storage"):
        assert rows == true_rows
    else:
        assert rows.keys() <= true_rows.keys()  # none is spoilt, though stages change what they are given


@pytest.mark.parametrize("intervention", [None, *INTERVENTIONS])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_of_files_only_calls_of_that_stage_go(uris: dict[str, str], intervention: Any, num_workers: int) -> None:
    settings = Settings(num_workers, start_method="fork")
    require(intervention, sent_of(Layout(uris["files"], "files", "torch"), settings, intervention), num_workers)


@pytest.mark.parametrize("intervention", ["decode", "collate", "transfer"])
@pytest.mark.parametrize(("kind", "reader"), READERS[1:])
def test_of_shards_only_calls_of_that_stage_go(uris: dict[str, str], kind: Any, reader: Any, intervention: Any) -> None:
    require(intervention, sent_of(Layout(uris[kind], kind, reader), Settings(0), intervention), 0)


@pytest.mark.parametrize("intervention", ["decode", "transform", "collate", "transfer"])
@pytest.mark.parametrize("reader", ["torch", "shardtools"])
def test_of_lines_only_calls_of_that_stage_go(tmp_path: Path, reader: Any, intervention: Any) -> None:
    uri = as_lines(tmp_path / "lines.jsonl", [{"n": i, "fill": "x" * (i % 7)} for i in range(NUM_SAMPLES)])
    lines = Counter((len(line), sum(line)) for line in Path(uri).read_bytes().splitlines())
    require(intervention, sent_of(Layout(uri, "jsonl", reader), Settings(0), intervention), 0, lines)


@pytest.mark.slow
@pytest.mark.parametrize("intervention", INTERVENTIONS)
@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_workers_may_start_in_any_way(uris: dict[str, str], start_method: str, intervention: Any) -> None:
    settings = Settings(2, start_method=start_method)
    require(intervention, sent_of(Layout(uris["files"], "files", "torch"), settings, intervention), 2)


@pytest.mark.parametrize("intervention", INTERVENTIONS)
def test_what_workers_are_given_can_be_pickled(uris: dict[str, str], intervention: Any) -> None:
    side = open_side(Layout(uris["files"], "files", "torch"), WORKLOAD, Settings(2), intervention=intervention)
    dataset, collate = pickle.loads(pickle.dumps((side.dataset, Counting(side.loader_kwargs["collate_fn"]))))
    assert collate([dataset[i] for i in range(3)]).num_samples == 3


@pytest.mark.parametrize("intervention", INTERVENTIONS)
@pytest.mark.parametrize(("kind", "reader"), READERS[:4])
def test_everything_is_still_read_and_parsed(uris: dict[str, str], kind: Any, reader: Any, intervention: Any) -> None:
    found = []
    for one in (None, intervention):
        timers = StageTimers(0)
        sent_of(Layout(uris[kind], kind, reader), Settings(0), one, timers)
        totals = timers.totals()
        found.append([(totals[stage]["bytes"], totals[stage]["count"]) for stage in ("storage", "parse")])
        assert totals["storage"]["bytes"] > 0
    assert found[0] == found[1]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_lines_that_are_tokenized_on_the_fly_are_not_tokenized_again(tmp_path: Path, num_workers: int) -> None:
    """As many rows come, of the same length, by a fraction of the calls of the tokenizer."""
    tokenizer = small_tokenizer(tmp_path / "tokenizer")
    text = "the cat sat on the mat and the dog ate the log. " * 40
    uri = as_lines(tmp_path / "docs.jsonl", [{"text": text} for _ in range(400)])
    packed = pack_tokens(uri, tmp_path / "packed", tokenizer, "mds", {"seq_len": "64", "packing": "concat"})
    layouts = [Layout(uri, "jsonl", "torch"), Layout(packed, "mds", "shardtools")]
    workload = settle_workload(layouts, Workload(BATCH_SIZE, tokenizer=tokenizer))
    found = []
    for intervention in (None, "decode"):
        side = open_side(layouts[0], workload, Settings(num_workers), intervention=intervention)  # type: ignore[arg-type]
        encode = side.dataset._encode
        if intervention:
            assert isinstance(encode, DocumentsAgain)
        batches = list(DataLoader(side.dataset, num_workers=num_workers, **side.loader_kwargs))
        assert {batch.shape[1] for batch in batches} == {64}
        found.append(sum(map(len, batches)))
    assert found[0] == pytest.approx(found[1], rel=0.05)


def test_documents_are_tokenized_twice_and_then_given_again() -> None:
    class Encode:
        column = "text"
        num_calls = 0

        def apply(self, batches: Iterator[Batch], _: Any) -> Iterator[Batch]:
            for batch in batches:
                self.num_calls += 1
                yield Batch(batch.keys, {"tokens": [len(text) for text in batch.columns["text"]]}, str)

    def batch(texts: list[str]) -> Batch:
        return Batch([b"key"] * len(texts), {"text": texts}, str)

    encode: Any = Encode()
    given = [batch(["a", "ab", "abc"]), batch(["abcd"] * 3), batch(["x"] * 3), batch(["x"] * 5), batch(["x"])]
    found = [one.columns["tokens"] for one in DocumentsAgain(encode).apply(iter(given), None)]  # type: ignore[arg-type]
    assert found == [[1, 2, 3], [4, 4, 4], [4, 4, 4], [1, 2, 3], [1, 2], [4]]
    assert encode.num_calls == 2


def test_a_plant_is_there_before_a_cost_is_taken_away(uris: dict[str, str]) -> None:
    layout, settings = Layout(uris["files"], "files", "torch"), Settings(0)
    side = open_side(layout, WORKLOAD, settings, plant="counted_stages:without_last")
    assert sum(len(batch[0]) for batch in DataLoader(side.dataset, **side.loader_kwargs)) == NUM_SAMPLES - NUM_SAMPLES // BATCH_SIZE
    assert calls()["s"] == NUM_SAMPLES // BATCH_SIZE
    planted = open_side(layout, WORKLOAD, settings, intervention="collate", plant="counted_stages:without_last")
    assert len(list(DataLoader(planted.dataset, **planted.loader_kwargs))) == NUM_SAMPLES // BATCH_SIZE
    assert calls()["s"] == NUM_SAMPLES // BATCH_SIZE + 1


@pytest.mark.parametrize("fault", [{"plant": "counted_stages:nothing"}, {"collate": "counted_stages:nothing"}])
def test_a_function_that_is_not_there_is_told(uris: dict[str, str], fault: dict[str, str]) -> None:
    workload = Workload(BATCH_SIZE, "none", collate=fault.get("collate"))
    with pytest.raises(UsageError, match="nothing"):
        open_side(Layout(uris["files"], "files", "torch"), workload, Settings(0), plant=fault.get("plant"))


def test_kept_samples_are_few_and_small() -> None:
    made: list[int] = []

    def make(value: int) -> Any:
        made.append(value)
        return torch.zeros(1 << 20, dtype=torch.uint8).fill_(value)

    again = Again(make)
    found = [int(again(i)[0]) for i in range(100)]
    assert (made, set(found)) == (list(range(16)), set(range(16)))

    def large(value: int) -> Any:
        made.append(value)
        return torch.zeros(40 << 20, dtype=torch.uint8)

    made.clear()
    again = Again(large)
    for i in range(10):
        again(i)
    assert made == [0, 1]  # two are above 64 MiB


def test_copies_share_nothing_with_what_is_kept() -> None:
    import numpy as np
    from PIL import Image

    class Own:
        def __init__(self) -> None:
            self.values = [1]

    class Unwilling(Own):
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("no copies of me")

    image = Image.new("RGB", (4, 2), (1, 2, 3))
    value = {"t": torch.ones(2), "a": [np.ones(3), (image, Own())], "n": None, "s": "text"}
    made = copied(value)
    made["t"].zero_()
    made["a"][0][:] = 0
    made["a"][1][0].paste((0, 0, 0), (0, 0, 4, 2))
    made["a"][1][1].values.append(2)
    assert (value["t"].sum(), value["a"][0].sum()) == (2, 3)  # type: ignore[index, union-attr]
    assert image.getpixel((0, 0)) == (1, 2, 3)
    assert value["a"][1][1].values == [1]  # type: ignore[index]
    unwilling = Unwilling()
    assert copied(unwilling) is unwilling
    assert num_bytes(value) == 8 + 24 + 24 + 4  # two floats, three doubles, 4 x 2 pixels, four letters


def test_the_samples_of_each_batch_are_counted_as_they_were_collated() -> None:
    counting = Counting(lambda samples: sum(samples))
    counted = Counted()
    bare = counted.bare(iter([counting([1, 2, 3]), counting([4])]))
    assert [(batch, counted.num_samples(batch)) for batch in bare] == [(6, 3), (4, 1)]

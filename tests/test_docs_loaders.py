"""The page on formats and loaders tells the truth; stops code in it that fails or loses samples, and claims that no longer hold."""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra train")

from shardtools.errors import BadSampleError, UsageError  # noqa: E402
from shardtools.loaders import LoaderOptions, open_dataset  # noqa: E402
from shardtools.units import Budget  # noqa: E402

pytestmark = pytest.mark.train

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "loaders.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
COLLATE, WEBDATASET, STREAMING, OURS, AS_MAP, DECODING, RANKS = BLOCKS
NUM_PAIRS = 40
COMMANDS = (
    "pack images/ shards/wds --to wds --shard-samples 5",
    "pack images/ shards/mds --to mds --shard-samples 5",
    "pack docs.jsonl shards/tokens --to mds --tokenizer tokenizer/ --seq-len 512",
)
NUM_IDS, IDS_A_SHARD, NUM_EPOCHS = 40_000, 1_000, 5
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def pack(command: str, folder: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "shardtools", *shlex.split(command)], cwd=folder, env=ENVIRONMENT, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the inputs and the shards the page speaks of."""
    folder = tmp_path_factory.mktemp("page")
    script = [sys.executable, str(ROOT / "scripts/make_sample_data.py"), str(folder), "--pairs", str(NUM_PAIRS)]
    subprocess.run([*script, "--records", "60", "--chats", "1"], check=True, capture_output=True)
    for command in COMMANDS:
        pack(command, folder)
    return folder


@pytest.fixture
def here(packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same as the current folder; StreamingDataset keeps its lock files in a folder of this test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(packed)
    return packed


@contextmanager
def warnings_of_others() -> Iterator[None]:
    """The other readers, and what they import, warn on their own account."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def labels(folder: Path) -> dict[str, int]:
    """Of each key, from the source."""
    found = sorted((folder / "images").rglob("*.json"))
    return {path.relative_to(folder / "images").with_suffix("").as_posix(): json.loads(path.read_text())["label"] for path in found}


@pytest.mark.usefixtures("webdataset", "streaming")
def test_each_reader_of_the_page_delivers_every_sample_once(here: Path) -> None:
    expected, names = labels(here), dict[str, Any]()
    assert len(expected) == NUM_PAIRS
    for block in (COLLATE, WEBDATASET, STREAMING, OURS, AS_MAP):
        with warnings_of_others():
            exec(block, names)
            batches = list(names.pop("loader", []))
        if block is COLLATE:
            continue
        found = [pair for batch in batches for pair in zip(batch["key"], batch["label"].tolist(), strict=True)]
        assert sorted(found) == sorted(expected.items()), block
        assert all(batch["image"].shape[1:] == (224, 224, 3) and batch["image"].float().std() > 1 for batch in batches)
    assert names["first"]["__key__"] == min(expected)
    assert names["named"]["__key__"] == "00/000007"


def test_decoding_gives_what_the_page_says(here: Path) -> None:
    names: dict[str, Any] = {}
    exec(COLLATE + OURS + DECODING, names)
    keys, crops = zip(*names["crops"], strict=True)
    assert sorted(chain(*keys)) == sorted(labels(here))
    assert all(crop.shape[1:] == (3, 64, 64) for crop in crops)
    num_rows = sum(shard["samples"] for shard in json.loads((here / "shards/tokens/index.json").read_text())["shards"])
    batches = list(names["tokens"])
    assert sum(len(batch["tokens"]) for batch in batches) == num_rows
    assert all(batch["tokens"].shape[1] == 512 for batch in batches)

    for shards in ("shards/wds", "shards/mds"):
        images = {decode: open_dataset(shards, decode=decode).as_map()[0]["jpg"] for decode in (None, "pil", "rgb", "tokens")}
        stored = (here / "images/00/000000.jpg").read_bytes()
        assert images[None] == images["tokens"] == stored
        assert images["rgb"].dtype == torch.uint8
        assert images["rgb"].shape == (3, images["pil"].height, images["pil"].width)
        assert isinstance(open_dataset(shards, decode="tokens").as_map()[0]["json"], dict)


RANKS_TRAIN = """
keys = []

def train(model, batch):
    model(batch["label"].float()[:, None]).sum().backward()
    keys.append((dataset.epoch, batch["key"]))
"""
RANKS_TAIL = """
with open(f"rank-{torch.distributed.get_rank()}.json", "w") as file:
    json.dump(keys, file)
torch.distributed.destroy_process_group()
"""
NUM_RANKS, NUM_RANKS_EPOCHS = 3, 2
# Five global batches of nine, of which 40 samples fill four; the last has four.
DELIVERED = {"pad": [15, 15, 15], "drop": [12, 12, 12], "short": [14, 13, 13]}


@pytest.mark.parametrize(
    ("last_batch", "join"),
    [
        ("pad", "contextlib.nullcontext()"),
        pytest.param("drop", "contextlib.nullcontext()", marks=pytest.mark.slow),
        pytest.param("short", "model.join()", marks=pytest.mark.slow),
    ],
)
def test_ranks_under_ddp_get_what_the_page_says(packed: Path, tmp_path: Path, last_batch: str, join: str) -> None:
    (tmp_path / "shards").symlink_to(packed / "shards")
    assert RANKS.count('"pad"') == RANKS.count("\nfor epoch") == 1
    block = RANKS.replace('"pad"', f'"{last_batch}"').replace("model = ", "model = torch.nn.Linear(1, 1)\nmodel = ")
    setup, loop = block.split("\nfor epoch")
    joined = f"\nwith {join}:\n" + "".join(f"    {line}\n" for line in ("for epoch" + loop).splitlines())
    head = "import contextlib, json\nfrom shardtools.loaders import open_dataset\n"
    (tmp_path / "ranks.py").write_text(head + COLLATE + RANKS_TRAIN + setup + joined + RANKS_TAIL)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(NUM_RANKS), "ranks.py"]
    for is_resumed in (False, True):
        done = subprocess.run(launch, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(NUM_RANKS)]
        # The last checkpoint is one of the second epoch, behind its fourth step of five.
        for epoch in range(is_resumed, NUM_RANKS_EPOCHS):
            keys = [list(chain.from_iterable(keys for of, keys in rank if of == epoch)) for rank in ranks]
            had = 4 * 3 if is_resumed else 0
            assert [len(one) for one in keys] == [count - had for count in DELIVERED[last_batch]]
            times = Counter(Counter(chain(*keys)).values())
            if not is_resumed:
                assert times == {"pad": {1: 35, 2: 5}, "drop": {1: 36}, "short": {1: 40}}[last_batch]


# The loop of the README.

README = (ROOT / "README.md").read_text()
TRAIN = README.partition("\n## Train\n")[2].partition("```python\n")[2].partition("```\n")[0]


def train_for(num_steps: int | None, loop: str) -> list[tuple[bytes, ...]]:
    """The batches of a run of the loop that is killed after so many, each image as its bytes."""
    seen: list[tuple[bytes, ...]] = []

    def train(batch: dict[str, Any]) -> None:
        if len(seen) == num_steps:
            raise SystemExit
        seen.append(tuple(image.numpy().tobytes() for image in batch["image"]))

    with suppress(SystemExit):
        exec(loop, {"train": train})
    return seen


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("num_steps", "num_saved"), [(3, 2), (8, 7), (9, 9), (10, 9)])
def test_the_loop_of_the_readme_goes_on_after_a_kill(tmp_path: Path, num_steps: int, num_saved: int) -> None:
    """Saves at every second step of an epoch of five."""
    assert TRAIN.count("1000") == 1 and TRAIN.count("num_workers=2") == 1
    loop = TRAIN.replace("1000", "2").replace("checkpoint.pt", str(tmp_path / "checkpoint.pt"))
    whole = train_for(None, loop)
    assert [len(batch) for batch in whole] == [8] * 15
    epochs = [list(chain(*whole[i : i + 5])) for i in (0, 5, 10)]
    assert all(len(set(epoch)) == NUM_PAIRS for epoch in epochs) and epochs[0] != epochs[1]

    (tmp_path / "checkpoint.pt").unlink()
    assert train_for(num_steps, loop) == whole[:num_steps]
    assert train_for(None, loop.replace("num_workers=2", "num_workers=1")) == whole[num_saved:]


# What is said of settings.


def test_what_is_said_of_webdataset(here: Path, webdataset: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = [str(path) for path in sorted((here / "shards/wds").glob("*.tar"))]
    assert len(shards) == 8

    def read(rank: int = 0, world: int = 1, worker: int = 0, workers: int = 1, **arguments: Any) -> list[str]:
        for name, value in {"RANK": rank, "WORLD_SIZE": world, "WORKER": worker, "NUM_WORKERS": workers}.items():
            monkeypatch.setenv(name, str(value))
        with warnings_of_others():
            return [sample["__key__"] for sample in webdataset.WebDataset(shards, **{"shardshuffle": False, **arguments})]

    with pytest.raises(ValueError, match="nodesplitter"):
        read(0, 2)
    ranks = [read(rank, 3, nodesplitter=webdataset.split_by_node) for rank in range(3)]
    assert [len(keys) for keys in ranks] == [15, 15, 10]
    assert sorted(chain(*ranks)) == sorted(labels(here))
    with pytest.raises(ValueError, match="fewer shards than workers"):
        read(worker=8, workers=9)
    first, second = (set(read(worker=1, workers=2, shardshuffle=100, seed=seed)) for seed in (1, 2))
    assert first == second and len(first) == NUM_PAIRS / 2
    with pytest.raises(ValueError, match="does not exist"):
        read(cache_dir="no-such-folder")


def test_what_is_said_of_streaming(here: Path, streaming: ModuleType, tmp_path: Path) -> None:
    largest = max(path.stat().st_size for path in (here / "shards/mds").glob("*.mds"))

    def fetching(local: str, **arguments: Any) -> Any:
        return streaming.StreamingDataset(remote="shards/mds", local=str(tmp_path / local), batch_size=4, **arguments)

    with warnings_of_others():
        with pytest.raises(ValueError, match="four times"):
            fetching("refused", cache_limit=3 * largest)
        dataset = fetching("unread", shuffle=True)
        assert dataset.predownload == 8 * 4
        # Where more is fetched ahead than fits, it may evict for ever what it is about to read.
        dataset = fetching("local", cache_limit=5 * largest, predownload=4)
        most = 0
        for _ in dataset:
            most = max(most, len(list((tmp_path / "local").glob("*.mds"))))
        assert most < 8
        assert dataset.shuffle_block_size >= 262_144
        with pytest.raises(ValueError, match="batch_size"):
            next(iter(streaming.StreamingDataset(local="shards/mds")))

        columns = {"a": "pkl", "b": "pil"}
        with streaming.MDSWriter(out=str(tmp_path / "others"), columns=columns) as writer:
            writer.write({"a": [1], "b": open_dataset("shards/mds", decode="pil").as_map()[0]["jpg"].copy()})
    sample = open_dataset(str(tmp_path / "others"), decode="pil").as_map()[0]
    assert isinstance(sample["a"], bytes) and isinstance(sample["b"], bytes)


def test_what_is_said_of_ours(here: Path) -> None:
    options = LoaderOptions()
    assert (options.block_shards, options.cache_bytes, options.last_batch) == (8, 64 << 30, "short")
    assert f"`block_shards` ({options.block_shards})" in PAGE and "`cache_bytes` (64 GiB)" in PAGE

    lines = [json.loads(sample["json"]) for sample in open_dataset("docs.jsonl")]
    assert lines == [json.loads(line) for line in (here / "docs.jsonl").read_text("utf-8").splitlines()]

    dataset = open_dataset("shards/wds", batch_size=16, shuffle=True)
    loader = torch.utils.data.DataLoader(dataset, batch_size=16, num_workers=2)
    assert [len(batch["__key__"]) for batch in loader] == [16, 16, 8]

    forgotten = open_dataset("shards/wds")
    forgotten.load_state_dict(forgotten.state_at(3))
    assert len(list(forgotten)) == NUM_PAIRS - 3  # of 24 samples that a loader with batches of 8 gave, 21 come again


@pytest.mark.usefixtures("here")
def test_what_the_readme_says_of_bad_samples(caplog: pytest.LogCaptureFixture) -> None:
    def decode(sample: dict[str, Any]) -> str:
        if sample["__key__"] == "00/000007":
            raise ValueError("no image")
        return str(sample["__key__"])

    with pytest.raises(BadSampleError, match=r"sample 2 of .*train-000001\.tar: ValueError: no image"):
        list(open_dataset("shards/wds", decode=decode))
    assert 'LoaderOptions(max_bad=Budget.parse("0.1%"))' in README
    tolerant = open_dataset("shards/wds", decode=decode, options=LoaderOptions(max_bad=Budget.parse("2.5%")))
    keys = list(tolerant)
    assert len(keys) == NUM_PAIRS and len(set(keys)) == NUM_PAIRS - 1 and "00/000007" not in keys
    assert tolerant.bad == tolerant.state_dict()["bad"] == {"undecodable": 1}
    assert "train-000001.tar" in caplog.text
    with pytest.raises(UsageError, match=r"Budget\(10\)"):
        LoaderOptions(max_bad=10)  # type: ignore[arg-type]


# The table of shuffles.


@pytest.fixture(scope="module")
def sorted_ids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ids")
    (folder / "ids.jsonl").write_text("".join(f'{{"id":"{i:06d}"}}\n' for i in range(NUM_IDS)))
    for kind in ("wds", "mds"):
        pack(f"pack ids.jsonl {kind} --to {kind} --shard-samples {IDS_A_SHARD} --key id", folder)
    return folder


def figures(epochs: Iterable[list[int]]) -> tuple[float, float]:
    """Mean size of the rank correlation with the order of the shards, and mean number of shards among 256 samples in a row."""
    correlations, shards = [], []
    for epoch in epochs:
        assert sorted(epoch) == list(range(NUM_IDS))
        correlations.append(abs(np.corrcoef(np.arange(NUM_IDS), epoch)[0, 1]))
        shards += [len({i // IDS_A_SHARD for i in epoch[begin : begin + 256]}) for begin in range(0, NUM_IDS - 256, 256)]
    return float(np.mean(correlations)), float(np.mean(shards))


def printed(row: str) -> list[tuple[float, float]]:
    """The figures of one row of the page."""
    (cells,) = re.findall(rf"^\| {row}.* \| ([\d.; ]+) \| ([\d.; ]+) \|$", PAGE, re.MULTILINE)
    return list(zip(*([float(number) for number in cell.split(";")] for cell in cells), strict=True))


def test_the_figures_of_our_shuffle(sorted_ids: Path) -> None:
    def epochs(block_shards: int) -> Iterator[list[int]]:
        dataset = open_dataset(str(sorted_ids / "wds"), shuffle=True, seed=3, options=LoaderOptions(block_shards=block_shards))
        for epoch in range(NUM_EPOCHS):
            dataset.set_epoch(epoch)
            yield [int(sample["__key__"]) for sample in dataset]

    generator = np.random.default_rng(0)
    permutations = (generator.permutation(NUM_IDS).tolist() for _ in range(NUM_EPOCHS))
    found = [figures(epochs(8)), figures(epochs(32)), figures(permutations)]
    expected = [*printed("ours"), *printed("a true permutation")]
    assert [correlation for correlation, _ in expected] == pytest.approx([correlation for correlation, _ in found], abs=0.006)
    assert [shards for _, shards in expected] == pytest.approx([shards for _, shards in found], abs=0.051)


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_the_figures_of_the_others(sorted_ids: Path, webdataset: ModuleType, streaming: ModuleType) -> None:
    """One epoch of each: how many shards mix hardly varies, the correlation does."""
    shards = [str(path) for path in sorted((sorted_ids / "wds").glob("*.tar"))]

    def one(read: Callable[[], Iterator[int]]) -> tuple[float, float]:
        with warnings_of_others():
            return figures([list(read())])

    def by_webdataset(shardshuffle: Any) -> tuple[float, float]:
        dataset = webdataset.WebDataset(shards, shardshuffle=shardshuffle, seed=1).shuffle(1000)
        return one(lambda: (int(sample["__key__"]) for sample in dataset))

    def by_streaming(**arguments: Any) -> tuple[float, float]:
        dataset = streaming.StreamingDataset(local=str(sorted_ids / "mds"), batch_size=1, shuffle=True, **arguments)
        return one(lambda: (int(sample["key"]) for sample in dataset))

    with warnings_of_others():
        found = [by_webdataset(False), by_webdataset(40), by_streaming(), by_streaming(shuffle_block_size=8000)]
    expected = printed("webdataset, `.shuffle")
    expected += printed(r"StreamingDataset \(`py1e`\)")
    assert [shards for _, shards in found] == pytest.approx([shards for _, shards in expected], abs=0.5)
    assert found[0][0] > 0.98 and found[2][0] < 0.05
    assert max(found[1][0], found[3][0]) < 0.6

"""Stops shards in a bucket that are read otherwise than the same shards in a folder, fetched twice, one by one, late, or by halves."""

import gzip
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zstandard

torch = pytest.importorskip("torch", reason="needs the extra train")

from s3_stores import BUCKET, client_of, use  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from watching import wait_until  # noqa: E402
from worlds import QUIET  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from s3_proxy import Connection, Message, Proxy  # noqa: E402

from shardtools.errors import BadSampleError, StorageError  # noqa: E402
from shardtools.formats.mds import Mds  # noqa: E402
from shardtools.loaders import Budget, LoaderOptions, open_dataset  # noqa: E402
from shardtools.storage.s3 import _attempts  # noqa: E402

pytestmark = QUIET

NUM_SAMPLES, SHARD_SAMPLES, NUM_SHARDS = 60, 7, 9
KINDS = ["wds", "mds", "zstd", "foreign-wds", "foreign-gz", "foreign-mds", "lines"]


class Bucket:
    """A place in a real store behind a proxy that writes down every request, of this process and its workers."""

    def __init__(self, uri: str, client: Any, proxy: Proxy, cache: Path) -> None:
        self.uri, self._client, self.proxy, self.cache = uri, client, proxy, cache
        self.requests: list[tuple[str, str]] = []
        """The operation, and the object's name."""
        self.is_gone = threading.Event()
        proxy.tamper = self._tamper

    def _tamper(self, connection: Connection, request: Message) -> bool:
        key = request.line.split(" ")[1].partition("?")[0].removeprefix(f"/{BUCKET}/")
        self.requests.append((request.operation, key.removeprefix(self._prefix)))
        if self.is_gone.is_set():
            connection.reset()
        return self.is_gone.is_set()

    @property
    def _prefix(self) -> str:
        return self.uri.removeprefix(f"s3://{BUCKET}/") + "/"

    def lay(self, folder: Path) -> None:
        for path in sorted(folder.rglob("*")):
            name = str(path.relative_to(folder))
            if path.is_file() and not name.startswith("."):
                self.put(name, path.read_bytes())

    def put(self, name: str, data: bytes) -> None:
        self._client.put_object(Bucket=BUCKET, Key=self._prefix + name, Body=data)

    def delete(self, name: str) -> None:
        self._client.delete_object(Bucket=BUCKET, Key=self._prefix + name)

    def open(self, **arguments: Any) -> Any:
        options = {"cache_folder": str(self.cache), **arguments.pop("options", {})}
        return open_dataset(self.uri, options=LoaderOptions(**options), **arguments)

    def fetched(self) -> Counter[str]:
        """How often each shard was got; all are small enough for one request."""
        return Counter(name for operation, name in self.requests if operation == "GetObject" and is_shard(name))


def is_shard(name: str) -> bool:
    return re.search(r"\.(tar|tar\.gz|mds|mds\.zstd|jsonl|jsonl\.gz|jsonl\.zst)$", name) is not None


@pytest.fixture
def bucket(s3_store: dict[str, Any], s3_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    monkeypatch.setattr(_attempts, "PATIENCE", _attempts.Patience(attempts=3, first_wait=0.01, longest_wait=0.05))
    environment = s3_store["environment"]
    proxy = Proxy(environment["AWS_ENDPOINT_URL"]).start()
    use({**environment, "AWS_ENDPOINT_URL": proxy.endpoint, "AWS_ENDPOINT_URL_S3": proxy.endpoint}, monkeypatch)
    yield Bucket(s3_uri, client_of(environment), proxy, tmp_path / "cache")
    proxy.close()


@pytest.fixture
def make(tree: Callable[..., Path], build: Callable[..., Any], tmp_path: Path) -> Callable[[str], Path]:
    """A folder with the same 60 samples in one of the kinds."""

    def call(kind: str) -> Path:
        folder = tmp_path / kind
        if kind == "lines":
            lines = [b'{"number": %d}\n' % i for i in range(NUM_SAMPLES)]
            parts = [b"".join(lines[i : i + 20]) for i in (0, 20, 40)]
            return tree({"a.jsonl": parts[0], "b.jsonl.gz": gzip.compress(parts[1]), "c.jsonl.zst": zstandard.compress(parts[2])}, kind)
        source = tree({f"{i:03d}.{kind}": b"%d " % i * (i + 1) for i in range(NUM_SAMPLES) for kind in ("txt", "bin")})
        formats = {"zstd": Mds(compression="zstd"), "mds": Mds(), "foreign-mds": Mds()}
        build(source, folder, formats.get(kind, "wds"), shard_samples=SHARD_SAMPLES)
        if kind.startswith("foreign"):
            for name in ("shardtools.manifest", "shardtools.offsets"):
                (folder / name).unlink()
        if kind == "foreign-gz":
            for path in folder.glob("*.tar"):
                Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
                path.unlink()
        return folder

    return call


def read(dataset: Any, workers: int = 0, epoch: int = 0, context: str | None = None) -> list[list[dict[str, Any]]]:
    dataset.set_epoch(epoch)
    return list(DataLoader(dataset, 4, num_workers=workers, collate_fn=list, multiprocessing_context=context))


def once(kind: str) -> Counter[str]:
    """Every shard, got once. The expansion of compressed lines is measured before they are read."""
    if kind == "lines":
        return Counter({"a.jsonl": 1, "b.jsonl.gz": 2, "c.jsonl.zst": 2})
    suffix = {"zstd": "mds.zstd", "mds": "mds", "foreign-mds": "mds", "foreign-gz": "tar.gz"}.get(kind, "tar")
    named = "shard.{:05d}.{}" if "mds" in suffix else "train-{:06d}.{}"
    return Counter(named.format(i, suffix) for i in range(NUM_SHARDS))


def of_folder(folder: Path, cache: Path, shuffle: bool, epoch: int = 0) -> list[list[dict[str, Any]]]:
    options = LoaderOptions(cache_folder=str(cache), block_shards=2)
    return read(open_dataset(folder, batch_size=4, shuffle=shuffle, seed=3, options=options), epoch=epoch)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_samples_in_the_same_order_as_from_a_folder(bucket, make, tmp_path, kind, shuffle):
    folder = make(kind)
    bucket.lay(folder)
    expected = of_folder(folder, tmp_path / "other", shuffle, 2)
    dataset = bucket.open(batch_size=4, shuffle=shuffle, seed=3, options={"block_shards": 2})
    assert len(dataset) == NUM_SAMPLES and sum(map(len, expected)) == NUM_SAMPLES
    assert read(dataset, epoch=2) == expected
    assert bucket.fetched() == once(kind)
    assert {path.suffix for path in bucket.cache.iterdir()} == {".shard"}
    assert read(dataset, epoch=2) == expected
    assert bucket.fetched() == once(kind)


@pytest.mark.parametrize("kind", ["wds", "zstd", "lines"])
def test_workers_give_the_same_and_share_what_they_fetched(bucket, make, tmp_path, kind):
    folder = make(kind)
    bucket.lay(folder)
    dataset = bucket.open(batch_size=4, shuffle=True, seed=3, options={"block_shards": 2})
    assert read(dataset, workers=2) == of_folder(folder, tmp_path / "other", True)
    assert bucket.fetched() == once(kind) and {path.suffix for path in bucket.cache.iterdir()} == {".shard"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wds", "mds", "lines"])
def test_spawned_workers_give_the_same(bucket, make, tmp_path, kind):
    folder = make(kind)
    bucket.lay(folder)
    assert read(bucket.open(batch_size=4), workers=2, context="spawn") == of_folder(folder, tmp_path / "other", False)


@pytest.mark.parametrize("kind", ["wds", "mds", "lines"])
def test_a_run_is_gone_on_with_where_nothing_is_cached(bucket, make, tmp_path, kind):
    folder = make(kind)
    bucket.lay(folder)
    expected = of_folder(folder, tmp_path / "other", True)
    first = bucket.open(batch_size=4, shuffle=True, seed=3, options={"block_shards": 2})
    batches = iter(DataLoader(first, 4, collate_fn=list))
    had = [next(batches) for _ in range(9)]
    state = first.state_at(9)
    del batches
    wait_until(lambda: {path.suffix for path in bucket.cache.iterdir()} <= {".shard"})  # what it was fetching ends behind it
    bucket.cache = tmp_path / "empty"
    bucket.requests.clear()
    again = bucket.open(batch_size=4, shuffle=True, seed=3, options={"block_shards": 2})
    again.load_state_dict(state)
    assert had + list(DataLoader(again, 4, num_workers=2, collate_fn=list)) == expected
    if kind != "lines":
        assert len(bucket.fetched()) < NUM_SHARDS  # those that were read out are not fetched again


def test_by_index_and_by_key(bucket, make):
    folder = make("wds")
    bucket.lay(folder)
    here, there = open_dataset(folder).as_map(), bucket.open().as_map()
    assert [there[i] for i in (59, 0, 30)] == [here[i] for i in (59, 0, 30)] and there["017"] == here["017"]


@pytest.mark.parametrize("kind", ["wds", "mds"])
def test_opening_asks_for_no_shard_and_the_first_sample_for_one(bucket, make, kind):
    bucket.lay(make(kind))
    dataset = bucket.open(options={"predownload_bytes": 0})
    assert not any(is_shard(name) for _, name in bucket.requests) and len(bucket.requests) <= 6
    next(iter(dataset))
    assert Counter(name for _, name in bucket.requests if is_shard(name)).keys() == {next(iter(bucket.fetched()))}


def test_later_shards_come_while_the_first_is_read(bucket, make):
    bucket.lay(make("wds"))
    names = [f"train-{i:06d}.tar" for i in range(NUM_SHARDS)]
    num_bytes = (bucket.cache.parent / "wds" / names[0]).stat().st_size
    samples = iter(bucket.open(options={"predownload_bytes": 3 * num_bytes + num_bytes // 2}))
    next(samples)
    wait_until(lambda: len(bucket.fetched()) >= 3)
    time.sleep(0.2)
    fetched = list(bucket.fetched())
    assert fetched[0] == names[0] and sorted(fetched) == names[: len(fetched)] and 3 <= len(fetched) <= 5
    rest = list(samples)
    assert len(rest) == NUM_SAMPLES - 1 and bucket.fetched() == Counter(names)


def test_without_predownload_each_shard_comes_when_it_is_needed(bucket, make):
    bucket.lay(make("wds"))
    seen = []
    for sample in bucket.open(options={"predownload_bytes": 0}):
        seen.append((int(sample["__key__"]) // SHARD_SAMPLES + 1, len(bucket.fetched())))
    assert all(needed == fetched for needed, fetched in seen)


def size_if_there(path: Path) -> int:
    """Bytes; 0 where it has just been evicted."""
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def test_the_cache_keeps_its_limit(bucket, make, tmp_path):
    folder = make("wds")
    bucket.lay(folder)
    largest = max(path.stat().st_size for path in folder.glob("*.tar"))
    dataset = bucket.open(batch_size=4, options={"cache_bytes": 3 * largest})
    expected, most = [sample for batch in of_folder(folder, tmp_path / "other", False) for sample in batch], 0
    for sample, other in zip(dataset, expected, strict=True):
        assert sample == other
        most = max(most, sum(size_if_there(path) for path in list(bucket.cache.glob("*.shard"))))
    assert most <= 3 * largest and set(bucket.fetched().values()) == {1}


def test_a_shard_that_is_missing_is_named_where_it_is_needed(bucket, make, one_sentence):
    bucket.lay(make("wds"))
    bucket.delete("train-000003.tar")
    had, samples = 0, iter(bucket.open())
    with pytest.raises(StorageError) as caught:
        for _ in samples:
            had += 1
    assert had == 3 * SHARD_SAMPLES
    assert f"{bucket.uri}/train-000003.tar" in one_sentence(caught.value)


@pytest.mark.parametrize("fault", ["cut", "other bytes"])
def test_a_damaged_shard_is_bad_samples_and_not_fetched_for_each_of_them(bucket, make, one_sentence, fault):
    folder = make("wds")
    bucket.lay(folder)
    data = (folder / "train-000003.tar").read_bytes()
    bucket.put("train-000003.tar", data[:-512] if fault == "cut" else b"\xff" * len(data))
    with pytest.raises(BadSampleError) as caught:
        list(bucket.open())
    assert f"{bucket.uri}/train-000003.tar" in one_sentence(caught.value)
    tolerant = bucket.open(options={"max_bad": Budget(SHARD_SAMPLES)})
    bucket.requests.clear()
    assert len(list(tolerant)) == NUM_SAMPLES and tolerant.bad == {"damaged": SHARD_SAMPLES}
    assert bucket.fetched()["train-000003.tar"] <= 2


def test_an_object_of_lines_that_was_replaced_is_named(bucket, make, one_sentence):
    bucket.lay(make("lines"))
    dataset = bucket.open()
    shutil.rmtree(bucket.cache)
    bucket.put("a.jsonl", b'{"number": 1}\n' * 20)
    with pytest.raises(StorageError, match=r"a\.jsonl to be the object that was listed, got another") as caught:
        list(dataset)
    one_sentence(caught.value)


def test_shards_of_another_version_are_not_those_in_the_cache(bucket, make):
    """Same names, same lengths."""
    folder = make("foreign-wds")
    bucket.lay(folder)
    before = [sample["txt"] for sample in bucket.open()]
    for path in folder.glob("*.tar"):
        bucket.put(path.name, path.read_bytes().replace(b"1 ", b"7 "))
    assert [sample["txt"] for sample in bucket.open()] == [text.replace(b"1 ", b"7 ") for text in before] != before


def test_a_server_that_is_gone_for_a_while_is_waited_for(bucket, make, monkeypatch):
    monkeypatch.setattr(_attempts, "PATIENCE", _attempts.Patience(attempts=50, first_wait=0.05, longest_wait=0.1))
    bucket.lay(make("wds"))
    keys = []
    for sample in bucket.open(options={"predownload_bytes": 1}):
        keys.append(sample["__key__"])
        if len(keys) == 10:
            bucket.is_gone.set()
            threading.Timer(0.5, bucket.is_gone.clear).start()
    assert keys == [f"{i:03d}" for i in range(NUM_SAMPLES)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_server_that_stays_away_ends_the_pass_with_one_sentence(bucket, make, one_sentence, workers):
    bucket.lay(make("wds"))
    batches = iter(DataLoader(bucket.open(batch_size=1, options={"predownload_bytes": 1}), 1, num_workers=workers, collate_fn=list))
    next(batches)
    bucket.is_gone.set()
    with pytest.raises(StorageError, match=r"could not read s3://.*attempts") as caught:
        list(batches)
    if not workers:  # torch puts a worker's traceback before it
        one_sentence(caught.value)
    assert not list(bucket.cache.glob("*.part"))


CHILD = """
import sys
from shardtools.loaders import LoaderOptions, open_dataset
from torch.utils.data import DataLoader, _utils
_utils.MP_STATUS_CHECK_INTERVAL = 30.0  # so long torch waits for a worker before it ends it, with a signal
if __name__ == "__main__":
    uri, cache, workers = sys.argv[1:]
    loader = DataLoader(open_dataset(uri, options=LoaderOptions(cache_folder=cache)), num_workers=int(workers), collate_fn=list)
    samples = iter(loader)
    next(samples)
    print("one", flush=True)
    sys.stdin.readline()
    started = samples._workers if int(workers) else []
    del samples
    print([worker.exitcode for worker in started], flush=True)
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_process_that_ends_waits_for_no_shard_and_leaves_no_part(bucket, make, workers):
    """The server takes the requests for later shards, and does not answer."""
    bucket.lay(make("wds"))
    first, hangs, stuck = "train-000000.tar", threading.Event(), threading.Event()
    tamper = bucket._tamper

    def hang(connection: Connection, request: Message) -> bool:
        if request.operation == "GetObject" and ".tar" in request.line and first not in request.line:
            stuck.set()
            hangs.wait(60)
            return False
        return tamper(connection, request)

    bucket.proxy.tamper = hang
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", CHILD, bucket.uri, str(bucket.cache), workers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    try:
        assert child.stdin and child.stdout and child.stdout.readline() == "one\n"
        assert stuck.wait(60)
        child.stdin.write("\n")
        child.stdin.close()
        assert child.wait(55) == 0  # before the server answers
        assert child.stdout.readline() == str([0] * int(workers)) + "\n"  # ended by itself
        assert not [path.name for path in bucket.cache.iterdir() if path.suffix != ".shard"]
    finally:
        hangs.set()
        child.kill()
        child.wait()
        child.stdout.close()

"""What users are told to type; stops a call that torch refuses, copies that lose their memory, and a container with too little of it."""

import builtins
import re
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import pytest

from shardtools.bench.search.snippet import Call, shared_memory_lines, snippet
from shardtools.bench.spec import Layout, Settings, Workload

torch = pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it", exc_type=ImportError)

pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")]

FILES, WDS = Layout("photos", "files", "torch"), Layout("shards", "wds", "webdataset")
GIB, MIB = 1 << 30, 1 << 20
Pair = namedtuple("Pair", "first second")


class Toy(torch.utils.data.Dataset):  # type: ignore[misc,name-defined]
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        return torch.full((3,), float(index)), index


class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc,name-defined]
    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        yield from range(10)[info.id :: info.num_workers] if info else range(10)


_NAMES: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def let_go() -> Iterator[None]:
    """A snippet's functions refer to its names, the loader among them. Found by the collector, kept workers are waited for in vain."""
    yield
    for names in _NAMES:
        names.clear()
    _NAMES.clear()


def run(call: Call, dataset: Any) -> dict[str, Any]:
    names: dict[str, Any] = {"dataset": dataset, "__name__": "snippet"}
    _NAMES.append(names)
    exec(compile(snippet(call), "snippet", "exec"), names)
    return names


@pytest.mark.parametrize(
    "settings",
    [
        Settings(0),
        Settings(0, prefetch_factor=8, persistent_workers=True, in_order=False),
        Settings(2, 4),
        Settings(2, 2, persistent_workers=False, in_order=False),
    ],
)
@pytest.mark.parametrize("start_method", [None, "fork"])
def test_the_snippet_runs_and_delivers_everything(settings: Settings, start_method: str | None) -> None:
    call = Call(settings, Workload(batch_size=4), FILES, start_method=start_method)
    loader = run(call, Toy())["loader"]
    got = sorted(int(i) for _, numbers in loader for i in numbers)
    assert got == list(range(10))
    assert (loader.num_workers, loader.batch_size, loader.drop_last) == (settings.num_workers, 4, False)
    if settings.num_workers:
        assert (loader.prefetch_factor, loader.persistent_workers, loader.timeout) == (
            settings.prefetch_factor,
            settings.persistent_workers,
            120,
        )


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_stream_is_not_asked_to_shuffle(num_workers: int) -> None:
    """torch refuses ``shuffle`` for an iterable dataset."""
    loader = run(Call(Settings(num_workers), Workload(batch_size=4, shuffle=True), WDS), Stream())["loader"]
    assert sorted(int(i) for batch in loader for i in batch) == list(range(10))


def test_order_is_as_it_was_measured() -> None:
    assert "shuffle=True" in snippet(Call(Settings(0), Workload(shuffle=True), FILES))
    assert "shuffle=False" in snippet(Call(Settings(0), Workload(shuffle=False), FILES))


def test_the_users_own_collate_is_used() -> None:
    call = Call(Settings(0), Workload(batch_size=3, collate="builtins:len"), FILES)
    names = run(call, Toy())
    assert names["len"] is builtins.len
    assert list(names["loader"]) == [3, 3, 3, 1]


@pytest.mark.parametrize("copy", ["blocking", "async"])
def test_batches_are_brought_as_they_were_measured(copy: Any) -> None:
    text = snippet(Call(Settings(0, pin_memory=False), Workload(batch_size=4), FILES, copy))
    assert f"non_blocking={copy == 'async'}" in text
    names: dict[str, Any] = {"dataset": Toy()}
    exec(text.replace('"cuda"', '"cpu"'), names)
    assert [numbers.tolist() for _, numbers in names["batches_on"]("cpu", [(torch.zeros(1), torch.ones(1))])] == [[1.0]]
    nested = names["moved"]({"a": [torch.ones(2)], "b": Pair(torch.ones(1), "name")}, "cpu", False)
    assert (nested["b"].second, type(nested["b"])) == ("name", Pair)


def test_the_stream_of_copies_keeps_what_it_reads() -> None:
    """CUDA alone can run it; here it is compiled, and what makes it safe is there, in its order."""
    text = snippet(Call(Settings(2, pin_memory=True), Workload(), FILES, "prefetch-stream"))
    compile(text, "snippet", "exec")
    order = [
        text.index(words)
        for words in ("wait_stream(copies)", "hold(batch, torch.cuda", "next(batches, None)\n        arriving", "yield batch")
    ]
    assert order == sorted(order)
    assert "record_stream" in text


def test_opencv_is_mentioned_only_where_it_is() -> None:
    assert "cv2" not in snippet(Call(Settings(2), Workload(), FILES))
    with_it = snippet(Call(Settings(2), Workload(), FILES, has_cv2=True))
    assert "import cv2" in with_it and "cv2.setNumThreads(0)" in with_it
    assert "cv2" not in snippet(Call(Settings(0), Workload(), FILES, has_cv2=True))


def test_what_spawned_workers_need_is_said() -> None:
    assert '__name__ == "__main__"' in snippet(Call(Settings(2), Workload(), FILES, start_method="spawn"))
    assert "__main__" not in snippet(Call(Settings(2), Workload(), FILES, start_method="fork"))


@pytest.mark.parametrize(("bound_bytes", "docker", "kubernetes"), [(40 * MIB, "64m", "64Mi"), (3 * GIB, "5g", "5Gi"), (0, "64m", "64Mi")])
def test_containers_are_told_in_their_own_units(bound_bytes: int, docker: str, kubernetes: str) -> None:
    lines = shared_memory_lines(bound_bytes)
    assert f"docker run --shm-size={docker} " in lines["docker"]
    assert re.search(rf"emptyDir: \{{medium: Memory, sizeLimit: {kubernetes}\}}", lines["kubernetes"])
    assert "mountPath: /dev/shm" in lines["kubernetes"]
    assert ("needs none" in lines["docker"]) == (bound_bytes == 0)

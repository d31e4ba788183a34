"""Readers as users write them, sound and with one fault each; the tests name them by ``--dataset planted:...``."""

import os
import random
import signal
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch.distributed
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, get_worker_info

Item = dict[str, Any]


class Place(NamedTuple):
    rank: int
    world_size: int
    worker: int
    num_workers: int


def place() -> Place:
    info = get_worker_info()
    worker = (0, 1) if info is None else (info.id, info.num_workers)
    return Place(torch.distributed.get_rank(), torch.distributed.get_world_size(), *worker)


def member_names(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        return archive.getnames()


class Reader(IterableDataset[Item]):
    """Sound: whole shards by rank, then by worker."""

    def __init__(self, uri: str) -> None:
        self.shards = [member_names(path) for path in sorted(Path(uri).glob("*.tar"))]
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def own_shards(self) -> list[list[str]]:
        here = place()
        return self.shards[here.rank :: here.world_size][here.worker :: here.num_workers]

    def __iter__(self) -> Iterator[Item]:
        for names in self.own_shards():
            yield from ({"__key__": name.removesuffix(".txt"), "txt": b"x"} for name in names)


def sound(uri: str) -> Reader:
    return Reader(uri)


class EveryWorkerReadsAll(Reader):
    def own_shards(self) -> list[list[str]]:
        return self.shards


class SplitByRankOnly(Reader):
    def own_shards(self) -> list[list[str]]:
        return self.shards[place().rank :: place().world_size]


class SplitByWorkerOnly(Reader):
    def own_shards(self) -> list[list[str]]:
        return self.shards[place().worker :: place().num_workers]


class UnseededShuffle(Reader):
    """Each process shuffles the list its own way before it takes its share. The numbers stand for what time would give."""

    def own_shards(self) -> list[list[str]]:
        here = place()
        shards = unseeded_order(self.shards, here.rank, here.worker)
        return shards[here.rank :: here.world_size][here.worker :: here.num_workers]


def unseeded_order(shards: list[list[str]], rank: int, worker: int) -> list[list[str]]:
    return random.Random(10 * rank + worker).sample(shards, len(shards))


class DropsAtShardEnd(Reader):
    def own_shards(self) -> list[list[str]]:
        return [names[:-1] for names in super().own_shards()]


class ShuffledAlike(Reader):
    """Shuffles, but knows nothing of epochs."""

    def own_shards(self) -> list[list[str]]:
        return [random.Random(1).sample(names, len(names)) for names in super().own_shards()]


class ShuffledAnew(Reader):
    def own_shards(self) -> list[list[str]]:
        return [random.Random(self.epoch).sample(names, len(names)) for names in super().own_shards()]


class Resumable(Reader):
    """Sound; its state is how far it came."""

    shift = 0

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.position = 0

    def __iter__(self) -> Iterator[Item]:
        items = list(super().__iter__())
        begin, self.position = self.position, 0
        for i in range(begin, len(items)):
            self.position = i + 1
            yield items[i]
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = max(state["position"] + self.shift, 0)


class ResumeRepeats(Resumable):
    shift = -1


class ResumeSkips(Resumable):
    shift = 1


def items(batch: list[Item]) -> list[Item]:
    return batch


def drop_last(uri: str) -> "DataLoader[Item]":
    return DataLoader(Reader(uri), batch_size=4, num_workers=2, drop_last=True, collate_fn=items)


def drops_at_shard_end(uri: str) -> "DataLoader[Item]":
    """Eight samples a shard are left: every batch is full, as if the last were dropped."""
    return DataLoader(DropsAtShardEnd(uri), batch_size=4, num_workers=2, collate_fn=items)


def default_collated(uri: str) -> "DataLoader[Item]":
    return DataLoader(Reader(uri), batch_size=4, num_workers=2)


class FullBatchesOnly(Reader):
    """Batches by itself, and leaves out what fills none."""

    def __iter__(self) -> Iterator[Any]:
        keys = [item["__key__"] for item in super().__iter__()]
        yield from ({"__key__": keys[i : i + 4]} for i in range(0, len(keys) - 3, 4))


class MapStyle(Dataset[Item]):
    def __init__(self, uri: str) -> None:
        self.keys = [name.removesuffix(".txt") for shard in Reader(uri).shards for name in shard]

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> Item:
        return {"key": self.keys[index]}


def sampler_drops(uri: str) -> "DataLoader[Item]":
    dataset = MapStyle(uri)
    return DataLoader(dataset, batch_size=5, sampler=DistributedSampler(dataset, drop_last=True), collate_fn=items)


class Numbers(Reader):
    """Without anything that is called an id."""

    def __iter__(self) -> Iterator[Any]:
        return (int(item["__key__"][1:]) for item in super().__iter__())


def key_of_number(number: int) -> bytes:
    return b"k%03d" % number


def wrong_key_of_number(number: int) -> str:
    return f"number-{number}"


class Raises(Reader):
    def __iter__(self) -> Iterator[Item]:
        yield from super().__iter__()
        if place().rank == 1:
            raise ValueError("a shard went\naway")


def raises_at_once(uri: str) -> Reader:
    raise RuntimeError(f"no disk today for {os.path.basename(uri)}")


class Dies(Reader):
    def __iter__(self) -> Iterator[Item]:
        print("something is wrong", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        return super().__iter__()


class Hangs(Reader):
    def __iter__(self) -> Iterator[Item]:
        yield from super().__iter__()
        if place().rank == 1:
            time.sleep(3600)


class Nones(Reader):
    def __iter__(self) -> Iterator[Any]:
        return (None for _ in super().__iter__())


class Pairs(Reader):
    def __iter__(self) -> Iterator[Any]:
        return ((b"x", 3) for _ in super().__iter__())


class Texts(Reader):
    def __iter__(self) -> Iterator[Any]:
        return (item["__key__"] for item in super().__iter__())


class NoText(Reader):
    """Its ids are no Unicode, so they cannot be keys."""

    def __iter__(self) -> Iterator[Any]:
        return ({"__key__": "\ud800"} for _ in super().__iter__())


class Nothing(Reader):
    """Batches of nothing, without end."""

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield []


def no_id(_: Any) -> None:
    return None


def id_raises(_: Any) -> str:
    raise LookupError("no id here")


def returns_none(_: str) -> None:
    return None


def returns_a_number(_: str) -> int:
    return 3


def resampled(uri: str) -> Any:
    """A reader that never ends, as it is meant for training by steps."""
    import webdataset

    paths = sorted(str(path) for path in Path(uri).glob("*.tar"))
    return webdataset.WebDataset(paths, resampled=True, nodesplitter=webdataset.split_by_node)


def no_reader(uri: str) -> list[str]:
    return [uri]


def every_worker_reads_all(uri: str) -> Reader:
    return EveryWorkerReadsAll(uri)


def streaming_dataset(uri: str) -> Any:
    from streaming import StreamingDataset

    return StreamingDataset(local=uri, batch_size=4)


def tells_its_number(uri: str) -> Any:
    raise RuntimeError(f"number {streaming_dataset(uri)._shm_prefix_int}")


def streaming_loader(uri: str) -> Any:
    from streaming import StreamingDataLoader

    return StreamingDataLoader(streaming_dataset(uri), batch_size=4, num_workers=2)


def webdataset_batches(uri: str) -> Any:
    """A usual pipeline that leaves out the last, smaller batch of every worker."""
    import webdataset

    paths = sorted(str(path) for path in Path(uri).glob("*.tar"))
    dataset = webdataset.WebDataset(paths, shardshuffle=False, nodesplitter=webdataset.split_by_node)
    return dataset.shuffle(100).batched(4, partial=False)


def web_loader(uri: str) -> Any:
    import webdataset

    paths = sorted(str(path) for path in Path(uri).glob("*.tar"))
    dataset = webdataset.WebDataset(paths, shardshuffle=False, nodesplitter=webdataset.split_by_node).batched(4)
    return webdataset.WebLoader(dataset, batch_size=None, num_workers=2)

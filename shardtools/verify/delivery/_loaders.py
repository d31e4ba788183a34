"""The loaders of a rank: by reference readers, or by the user's own factory."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

from shardtools.loaders import LoaderOptions, open_dataset
from shardtools.verify.delivery._batches import CollateIds, CollateTagged, Delivered, collated
from shardtools.verify.delivery._ids import MisuseError, ids_finder, named_object
from shardtools.verify.delivery._spec import RankReport, RunSpec


@dataclass(frozen=True)
class Loading:
    """How one rank reads."""

    loader_of: Callable[[int], Any]
    """The loader of an epoch; the same object where it lasts for all."""
    deliveries: Callable[[Any], Iterator[Delivered]]
    """What a batch of the loader delivers."""
    report: RankReport


def open_loading(spec: RunSpec, rank: int) -> Loading:
    """The reader that was asked for. Raises MisuseError, and whatever the user's factory raises."""
    if spec.reader == "webdataset":
        return _webdataset(spec)
    if spec.reader == "streaming":
        return _dataset_loading(_streaming_dataset(spec), spec, rank)
    if spec.reader == "shardtools":
        # Rank and world are those of the group.
        options = LoaderOptions(split=spec.split)
        return _dataset_loading(open_dataset(spec.uri, batch_size=spec.batch_size, shuffle=True, seed=1, options=options), spec, rank)
    assert spec.factory is not None
    factory = named_object(spec.factory, "--dataset")
    if spec.is_mosaic and importlib.util.find_spec("streaming") is not None:
        importlib.import_module("streaming")  # likely what the factory uses, and then too late
    keep_shared_memory_apart(spec)
    made = factory(spec.uri)
    inner = _inner_loader(made)
    if inner is not None:
        return _loader_loading(made, inner, spec)
    if isinstance(made, Dataset):
        return _dataset_loading(made, spec, rank)
    got = f"a {type(made).__module__}.{type(made).__qualname__}"
    raise MisuseError(f"expected a torch Dataset, IterableDataset or DataLoader from {spec.factory}, got {got}")


def keep_shared_memory_apart(spec: RunSpec) -> None:
    """Let StreamingDataset begin its names at a number of this run alone: the first free one is a race between jobs of a host."""
    prefix = sys.modules.get("streaming.base.shared.prefix")
    if prefix is not None and hasattr(prefix, "_each_prefix_int"):
        begin = spec.shared_memory_begin
        vars(prefix)["_each_prefix_int"] = lambda: iter(range(begin, begin + 1000))


def _webdataset(spec: RunSpec) -> Loading:
    import webdataset

    urls = [_as_url(path) for path in spec.shards]

    def loader_of(epoch: int) -> Any:
        dataset = webdataset.WebDataset(
            urls, shardshuffle=len(urls), detshuffle=True, seed=epoch, nodesplitter=webdataset.split_by_node, empty_check=False
        )
        return DataLoader(dataset, spec.batch_size, num_workers=spec.num_workers, collate_fn=CollateIds(spec))

    report = RankReport(num_workers=spec.num_workers, stateless="it keeps no state")
    return Loading(loader_of, collated, report)


def _as_url(path: str) -> str:
    """webdataset takes a path for a URL, and cuts it at these characters unless they are in a file URL's path."""
    if any(mark in path for mark in "#?;"):
        raise MisuseError(f"expected a path without #, ? and ;, which webdataset cuts it at, got {path}; rename or move it")
    return path


def _streaming_dataset(spec: RunSpec) -> Any:
    from streaming import StreamingDataset

    keep_shared_memory_apart(spec)

    class KeyedByPlace(StreamingDataset):
        """Samples without a key are named as this package names them: by shard and row."""

        def __getitem__(self, at: Any) -> Any:
            shard, row = self.spanner[at]
            return {"key": f"{spec.first_shard + shard:05d}/{row:08d}"} | {name: None for name in super().__getitem__(at) if name != "key"}

    reader = KeyedByPlace if spec.is_keyless and spec.id_of is None else StreamingDataset
    # Compressed shards are unpacked where they are read: never in the user's folder.
    local, remote = (spec.uri, None) if spec.is_unpacked else (f"{spec.folder}/unpacked", spec.uri)
    return reader(remote=remote, local=local, split=spec.split, batch_size=spec.batch_size, shuffle=True, shuffle_seed=1)


def _dataset_loading(dataset: Any, spec: RunSpec, rank: int) -> Loading:
    """A loader of ours over a dataset: the one its kind asks for, where its state can be kept."""
    collate = CollateIds(spec)
    report = _streaming_report(dataset, spec)
    if report is not None:
        from streaming import StreamingDataLoader

        # Without a batch size of its own the dataset says so itself.
        return _lasting(StreamingDataLoader(dataset, dataset.batch_size, num_workers=spec.num_workers, collate_fn=collate), report)
    if not isinstance(dataset, IterableDataset):
        sampler: Any = DistributedSampler(dataset, spec.world_size, rank, shuffle=False)
        report = _sampler_report(sampler, RankReport(num_workers=spec.num_workers, stateless="a map-style dataset keeps no state"))
        return _lasting(DataLoader(dataset, spec.batch_size, sampler=sampler, num_workers=spec.num_workers, collate_fn=collate), report)
    stateless = _why_stateless(dataset)
    report = RankReport(num_workers=spec.num_workers, stateless=stateless)
    if stateless is not None:
        return _lasting(DataLoader(dataset, spec.batch_size, num_workers=spec.num_workers, collate_fn=collate), report)
    from torchdata.stateful_dataloader import StatefulDataLoader

    return _lasting(StatefulDataLoader(dataset, spec.batch_size, num_workers=spec.num_workers, collate_fn=collate), report)


def _lasting(loader: Any, report: RankReport) -> Loading:
    """One loader for all epochs."""
    return Loading(lambda _: loader, collated, report)


def _why_stateless(dataset: Any) -> str | None:
    if not _keeps_state(dataset):
        return "the dataset keeps no state (state_dict and load_state_dict)"
    if importlib.util.find_spec("torchdata") is None:
        return "torchdata, whose loader keeps a dataset's state, is not installed"
    return None


def _loader_loading(made: Any, inner: Any, spec: RunSpec) -> Loading:
    """The user's loader as it is, but for a collate function that tells the worker."""
    find = ids_finder(spec.id_of, spec.id_names)
    inner.collate_fn = CollateTagged(inner.collate_fn)

    def deliveries(batch: Any) -> Iterator[Delivered]:
        worker = getattr(batch, "shardtools_worker", 0 if inner.num_workers < 2 else None)
        yield Delivered(worker, find(batch), True)

    report = RankReport(
        num_workers=inner.num_workers,
        is_own_loader=True,
        drops_last=bool(inner.drop_last or getattr(inner.batch_sampler, "drop_last", False)),
        stateless=None if _keeps_state(made) else "the loader keeps no state (state_dict and load_state_dict)",
    )
    report = _sampler_report(getattr(inner, "sampler", None), report)
    streaming = _streaming_report(inner.dataset, spec)
    if streaming is not None:
        report = replace(report, canonical_nodes=streaming.canonical_nodes)
    return Loading(lambda _: made, deliveries, report)


def _inner_loader(made: Any) -> Any | None:
    """The DataLoader itself, also where webdataset's WebLoader wraps it."""
    if isinstance(made, DataLoader):
        return made
    first = (getattr(made, "pipeline", None) or [None])[0]
    return first if isinstance(first, DataLoader) else None


def _keeps_state(thing: Any) -> bool:
    return callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))


def _streaming_report(dataset: Any, spec: RunSpec) -> RankReport | None:
    """For a StreamingDataset of any make."""
    streaming = sys.modules.get("streaming")
    if streaming is None or not isinstance(dataset, streaming.StreamingDataset):
        return None
    delivers_all = dataset.epoch_size == dataset.num_samples and dataset.replication is None and dataset.batching_method == "random"
    by_default = 64 if dataset.shuffle_algo in ("py1s", "py2s") else 1
    return RankReport(num_workers=spec.num_workers, canonical_nodes=(dataset.num_canonical_nodes or by_default) if delivers_all else None)


def _sampler_report(sampler: Any, report: RankReport) -> RankReport:
    """torch's DistributedSampler repeats or drops samples so that all ranks get equally many."""
    if not isinstance(sampler, DistributedSampler):
        return report
    dataset: Any = sampler.dataset
    extra = sampler.total_size - len(dataset)
    return replace(report, num_padding=max(extra, 0), num_dropped=max(-extra, 0))

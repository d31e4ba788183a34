"""From a URI to a dataset that torch can iterate."""

import glob
import logging
import os
from dataclasses import replace

import torch.distributed

from shardtools import datasets
from shardtools.errors import UsageError
from shardtools.loaders._cache import ShardCache
from shardtools.loaders._catalog import Catalog, Shards
from shardtools.loaders._dataset import ShardedDataset
from shardtools.loaders._lines import ShardedJsonl
from shardtools.loaders._options import LoaderOptions
from shardtools.loaders._whole import whole
from shardtools.loaders._world import World
from shardtools.loaders.decoders import Decode, decoder_of
from shardtools.manifest import MANIFEST_NAME
from shardtools.sources import resolve_inputs
from shardtools.sources.jsonl import LINE_SUFFIXES, text_files
from shardtools.storage import Storage, open_storage

_LOG = logging.getLogger("shardtools.loaders")
_MAX_SEED = 2**64 - 1
_INDICES = (MANIFEST_NAME, "index.json")


def open_dataset(
    uri: str | os.PathLike[str],
    *,
    batch_size: int = 1,
    shuffle: bool = False,
    seed: int = 0,
    decode: str | Decode | None = None,
    options: LoaderOptions | None = None,
) -> ShardedDataset:
    """A dataset for a ``DataLoader`` with the same ``batch_size``, from shards or JSON lines.

    ``uri`` is a folder of shards with or without a manifest, one shard, a pattern of shards, or a file or folder of JSON lines, on this
    machine or in a bucket (``s3://bucket/prefix``); what is not here is fetched before its turn, into a cache. Of a dataset with splits
    all are read unless ``LoaderOptions(split="train")`` names one.
    Items are dicts of ``__key__`` (str) and the fields, as bytes or as ``decode`` makes them: ``pil``, ``rgb``, ``tokens``, or a
    function of the whole item. Every sample is read once an epoch, by one rank and one worker, in an order that (seed, epoch)
    fixes for every world. Open it after ``init_process_group``.

    Raises UsageError, StorageError, and ShardtoolsError where foreign tars have to be read to count their samples and are damaged.
    """
    options = options or LoaderOptions()
    if not isinstance(options, LoaderOptions):
        raise UsageError(f"expected options as LoaderOptions, got {options!r}")
    seed = whole("a seed", seed, 0, _MAX_SEED)
    if not isinstance(uri, (str, os.PathLike)) or not os.fspath(uri):
        raise UsageError(f"expected a path or URI to read, got {uri!r}")
    uri = str(os.fspath(uri))
    world = _world(batch_size, options)
    # The decoders of this package take what they need; those of others may keep what they are given.
    catalog, format_name = _catalog(uri, options, isinstance(decode, str), is_first=world.rank == 0)
    decoder = decoder_of(decode, format_name, catalog.field_encodings)
    if options.rank is None and world.rank == 0:
        _warn_of_unequal_ranks(world, int(catalog.counts.sum()))
    return ShardedDataset(catalog, world, seed if shuffle else None, decoder, options)


def _world(batch_size: int, options: LoaderOptions) -> World:
    rank, world_size = options.rank, options.world_size
    if rank is None or world_size is None:
        rank, world_size = 0, 1
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        elif torch.distributed.is_available() and torch.distributed.is_torchelastic_launched():
            raise UsageError(
                "expected a process group, or rank and world_size in LoaderOptions, since torchrun started this process, got neither; "
                "call torch.distributed.init_process_group before the dataset is opened, or every rank reads everything"
            )
    return World(rank, world_size, batch_size, options.last_batch)


def _warn_of_unequal_ranks(world: World, num_samples: int) -> None:
    first, last = (replace(world, rank=rank).num_samples(num_samples) for rank in (0, world.world_size - 1))
    if first != last:
        _LOG.warning(
            "the first of %d ranks reads %d samples an epoch, the last %d: DistributedDataParallel needs as many batches on each; "
            'LoaderOptions(last_batch="drop" or "pad") makes them equal, "short" is right for evaluation without it',
            *(world.world_size, first, last),
        )


def _catalog(uri: str, options: LoaderOptions, views: bool, is_first: bool) -> tuple[Catalog, str]:
    path = uri.removeprefix("file://")
    cache = ShardCache(options.cache_folder, options.cache_bytes, min(options.predownload_bytes, options.cache_bytes // 2))
    if path.lower().endswith(LINE_SUFFIXES) or _holds_lines_alone(path):
        is_pattern = glob.has_magic(path) and not os.path.exists(path) and "://" not in path
        paths = sorted(glob.glob(path)) if is_pattern else [path]
        if options.split is not None:
            raise UsageError(f"expected shards with a split, got JSON lines in {uri}; leave the split out, or pack them with --split")
        return ShardedJsonl(text_files(resolve_inputs(paths)), cache, options.block_shards), "wds"
    dataset = datasets.open_dataset(uri, options.split)
    if is_first and dataset.split is None and dataset.manifest is not None and dataset.manifest.splits:
        splits = ", ".join(dataset.manifest.splits)
        _LOG.warning('all splits of %s are read (%s): LoaderOptions(split="%s") reads one', uri, splits, dataset.manifest.splits[0])
    return Shards(dataset, cache, options.block_shards, views), dataset.format_name


def _holds_lines_alone(path: str) -> bool:
    """Whether it is a folder and no dataset, but JSON lines lie right in it."""
    if "://" in path:
        names = [] if datasets.is_pattern(path) else _names_right_in(open_storage(path))
    else:
        names = os.listdir(path) if os.path.isdir(path) else []
    is_dataset = any(name in _INDICES or datasets.is_shard_name(name) for name in names)
    return not is_dataset and any(name.lower().endswith(LINE_SUFFIXES) for name in names)


def _names_right_in(storage: Storage) -> list[str]:
    """Of a dataset that says so itself its index alone, since all else would have to be listed."""
    found = [name for name in _INDICES if storage.num_bytes(name) is not None]
    return found or [name for name in storage.names() if "/" not in name]

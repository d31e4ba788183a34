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

_LOG = logging.getLogger("shardtools.loaders")
_MAX_SEED = 2**64 - 1


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

    ``uri`` is a folder of shards with or without a manifest, one shard, a pattern of shards, or a file or folder of JSON lines.
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
    if "://" in uri and not uri.startswith("file://"):
        raise UsageError(f"expected a path on this machine, got {uri}; mount it or copy it, or use a reader that fetches")
    world = _world(batch_size, options)
    # The decoders of this package take what they need; those of others may keep what they are given.
    catalog, format_name = _catalog(uri, options, views=isinstance(decode, str))
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


def _catalog(uri: str, options: LoaderOptions, views: bool) -> tuple[Catalog, str]:
    path, cache = uri.removeprefix("file://"), ShardCache(options.cache_folder, options.cache_bytes)
    if path.lower().endswith(LINE_SUFFIXES) or (os.path.isdir(path) and _holds_lines_alone(path)):
        paths = sorted(glob.glob(path)) if glob.has_magic(path) and not os.path.exists(path) else [path]
        return ShardedJsonl(text_files(resolve_inputs(paths)), cache, options.block_shards), "wds"
    dataset = datasets.open_dataset(uri)
    return Shards(dataset, cache, options.block_shards, views), dataset.format_name


def _holds_lines_alone(folder: str) -> bool:
    """Whether a folder is no dataset, but JSON lines lie right in it."""
    with os.scandir(folder) as found:
        names = [entry.name for entry in found]
    is_dataset = any(name in (MANIFEST_NAME, "index.json") or datasets.is_shard_name(name) for name in names)
    return not is_dataset and any(name.lower().endswith(LINE_SUFFIXES) for name in names)

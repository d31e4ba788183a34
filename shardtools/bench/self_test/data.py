"""The data of a self-test: small files that nothing can shorten, in a folder that goes when the test is over, however it ends."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from shardtools.bench.page_cache import PageCache
from shardtools.errors import StorageError
from shardtools.storage import sentence_of

NUM_FILES = 2400
FILE_BYTES = 4096
_MAX_SHARE = 0.01
_ON_DISK = "/var/tmp"
"""The usual folder for temporary files that outlive a restart, so that it is hardly ever in memory."""


@contextmanager
def small_files(num_files: int = NUM_FILES, seed: int = 0) -> Iterator[str]:
    """A folder of ``num_files`` files of 4 KiB of random bytes, the same for the same seed; removed at the end, also of an interrupt.

    In the usual folder for temporary files, or in ``/var/tmp`` where the usual one is in memory. Raises StorageError.
    """
    parent = _parent()
    folder = tempfile.mkdtemp(prefix="shardtools-self-test-", dir=parent)
    try:
        try:
            _write(folder, num_files, seed)
        except OSError as error:
            raise StorageError(sentence_of("write", folder, error)) from error
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def can_be_cold(folder: str) -> bool:
    """Whether its files can be dropped from the page cache and seen to be gone."""
    share = PageCache.of(folder).evict().share
    return share is not None and share <= _MAX_SHARE


def _parent() -> str:
    usual = tempfile.gettempdir()
    for parent in (usual, _ON_DISK):
        try:
            with tempfile.TemporaryDirectory(prefix="shardtools-self-test-", dir=parent) as folder:
                _write(folder, 1, 0)
                if can_be_cold(folder):
                    return parent
        except OSError:
            continue
    return usual


def _write(folder: str, num_files: int, seed: int) -> None:
    rng = np.random.Generator(np.random.Philox(seed))
    for i in range(num_files):
        with open(os.path.join(folder, f"{i:06d}.bin"), "wb") as file:
            file.write(rng.bytes(FILE_BYTES))

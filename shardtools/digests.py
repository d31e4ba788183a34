"""Fixed-length records that begin with a 16-byte digest, brought together by it in memory that does not grow with their number."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import IO

import numpy as np
import numpy.typing as npt

from shardtools.duplicates import DIGEST_BYTES
from shardtools.errors import StorageError

Records = npt.NDArray[np.uint8]
"""[n, record_bytes] uint8; the first 16 bytes of a row are its digest."""

_NUM_PREFIXES = 1 << 12
_BUCKET_RECORDS = 1 << 20
_MEMORY_BYTES = 64 << 20


class DigestTable:
    """A bag of records. Above ``memory_bytes`` they go to an unnamed file, already parted by the digest's first bits.

    Memory: at most about four times ``memory_bytes`` while adding, and 100 MB while reading, or more where so many records share
    one digest and ``together`` gives them all; disk: the records themselves.
    """

    def __init__(self, record_bytes: int = DIGEST_BYTES, memory_bytes: int = _MEMORY_BYTES) -> None:
        assert record_bytes >= DIGEST_BYTES
        self.record_bytes = record_bytes
        self._memory_bytes = memory_bytes
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._num_records = 0
        self._file: IO[bytes] | None = None
        self._runs: list[tuple[int, npt.NDArray[np.int64]]] = []

    def __len__(self) -> int:
        return self._num_records

    def add(self, records: bytes) -> None:
        """Add records laid end to end. Raises StorageError where the disk cannot take what memory should not hold."""
        self._pending.append(records)
        self._pending_bytes += len(records)
        self._num_records += len(records) // self.record_bytes
        if self._pending_bytes > self._memory_bytes:
            self._spill()

    def close(self) -> None:
        """Give the disk space back."""
        if self._file is not None:
            self._file.close()

    def slices(self, bounds: Sequence[int]) -> Iterator[Iterator[Records]]:
        """For each two neighbouring prefixes of ``bounds`` the records between them, in pieces, each in no order."""
        held, held_bounds = _parted(b"".join(self._pending), self.record_bytes)
        for low, high in pairwise(bounds):
            stored = (self._read(begin, run_bounds[low], run_bounds[high]) for begin, run_bounds in self._runs)
            yield chain([held[held_bounds[low] : held_bounds[high]]], stored)

    def _spill(self) -> None:
        records, bounds = _parted(b"".join(self._pending), self.record_bytes)
        self._pending = []
        self._pending_bytes = 0
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by close()
            self._runs.append((self._file.seek(0, os.SEEK_END), bounds))
            data = memoryview(records.data).cast("B")
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            place = tempfile.gettempdir()
            raise StorageError(
                f"could not write {len(records):,} digests to {place}: {error.strerror}; free some space or set TMPDIR to another place"
            ) from error

    def _read(self, run: int, begin: int, end: int) -> Records:
        assert self._file is not None
        begin_byte, num_bytes = run + int(begin) * self.record_bytes, int(end - begin) * self.record_bytes
        data = os.pread(self._file.fileno(), num_bytes, begin_byte)
        return np.frombuffer(data, np.uint8).reshape(-1, self.record_bytes)


def together(tables: Sequence[DigestTable]) -> Iterator[tuple[Records, ...]]:
    """All records of the tables, slice by slice of the digest space; each table's records of a slice sorted by digest."""
    bounds = _bounds(sum(map(len, tables)))
    for slices in zip(*(table.slices(bounds) for table in tables), strict=True):
        yield tuple(_sorted(np.concatenate(list(pieces))) for pieces in slices)


def thinned(table: DigestTable, most: int) -> Iterator[tuple[Records, int]]:
    """For each slice of the digest space its records sorted by digest, of each digest the ``most`` at most; and how many all are.

    Memory does not grow with the number of records that share a digest either.
    """
    for pieces in table.slices(_bounds(len(table))):
        kept: list[Records] = []
        num_records = num_kept = 0
        for piece in pieces:
            kept.append(piece)
            num_records += len(piece)
            num_kept += len(piece)
            if num_kept > 2 * _BUCKET_RECORDS:
                kept = [_first_of_each(_sorted(np.concatenate(kept)), most)]
                num_kept = len(kept[0])
        yield _first_of_each(_sorted(np.concatenate(kept)), most), num_records


def as_digests(records: Records) -> npt.NDArray[np.void]:
    """[n] 16-byte values that compare as equal or not."""
    return np.ascontiguousarray(records[:, :DIGEST_BYTES]).view(f"V{DIGEST_BYTES}").ravel()


def grouped(records: Records) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The order that sorts records of n times 8 bytes by all of these, and where in it each distinct one begins."""
    words = np.ascontiguousarray(records).view(">u8").astype(np.uint64)
    order = np.lexsort(words.T[::-1])
    words = words[order]
    is_first = np.ones(len(words), bool)
    is_first[1:] = (words[1:] != words[:-1]).any(axis=1)
    return order, np.flatnonzero(is_first)


def _bounds(num_records: int) -> list[int]:
    """The prefixes between which a slice of all records is small enough to hold, unless many share a digest."""
    num_slices = min(1 + num_records // _BUCKET_RECORDS, _NUM_PREFIXES)
    return [i * _NUM_PREFIXES // num_slices for i in range(num_slices + 1)]


def _first_of_each(records: Records, most: int) -> Records:
    """Of sorted records, the first ``most`` of each digest."""
    words = np.ascontiguousarray(records[:, :DIGEST_BYTES]).view(np.uint64)
    is_kept = np.ones(len(words), bool)
    is_kept[most:] = (words[most:] != words[:-most]).any(axis=1)
    kept: Records = records if is_kept.all() else records[is_kept]
    return kept


def _parted(data: bytes, record_bytes: int) -> tuple[Records, npt.NDArray[np.int64]]:
    """The records in order of their prefix, and where each prefix begins: [_NUM_PREFIXES + 1]."""
    records = np.frombuffer(data, np.uint8).reshape(-1, record_bytes)
    prefixes = (records[:, 0].astype(np.uint16) << 4) | (records[:, 1] >> 4)
    order = np.argsort(prefixes, kind="stable")
    bounds = np.searchsorted(prefixes[order], np.arange(_NUM_PREFIXES + 1))
    return records[order], bounds


def _sorted(records: Records) -> Records:
    words = np.ascontiguousarray(records[:, :DIGEST_BYTES]).view(">u8").astype(np.uint64)
    order = np.argsort(words[:, 0], kind="stable")
    high = words[order, 0]
    if (high[1:] == high[:-1]).any():
        order = np.lexsort((words[:, 1], words[:, 0]))
    sorted_records: Records = records[order]
    return sorted_records

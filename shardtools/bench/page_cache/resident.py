"""Which pages of a file are in the page cache, asked of the kernel, and how they are dropped.

Source: cachestat(2), Linux 6.5 and later; mincore(2); posix_fadvise(2).
"""

import ctypes
import errno
import mmap
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shardtools.bench.not_measured import Unknown

PAGE_BYTES = mmap.PAGESIZE
_CACHESTAT = 451
"""The system call's number, the same on every architecture but alpha."""
_MANY_FILES = 16
_PROT_READ, _MAP_SHARED = 1, 1
_MAP_FAILED = ctypes.c_void_p(-1).value


@dataclass(frozen=True)
class Pages:
    """Of one file."""

    num_pages: int
    num_resident: int
    is_dirty: bool
    """Some of it is not on the device yet, or it is not known: fadvise would leave it."""


Look = Callable[[int], Pages]
"""Of an open file. Raises Unknown where the kernel does not tell."""


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Counts(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted"))


def by_cachestat(fd: int) -> Pages:
    """Raises Unknown on kernels before 6.5, and for files that are another user's and cannot be written."""
    counts = _Counts()
    # A length of 0 means up to the end.
    if _libc().syscall(ctypes.c_long(_CACHESTAT), ctypes.c_uint(fd), ctypes.byref(_Range(0, 0)), ctypes.byref(counts), ctypes.c_uint(0)):
        raise Unknown(_refusal("cachestat", ctypes.get_errno()))
    num_pages = num_pages_of(os.fstat(fd).st_size)
    # A large folio may reach beyond the end of the file.
    return Pages(num_pages, min(num_pages, counts.cached), counts.dirty + counts.writeback > 0)


def by_mincore(fd: int) -> Pages:
    """Raises Unknown for files that are another user's and cannot be written: of these the kernel says that all is there."""
    status = os.fstat(fd)
    if os.geteuid() not in (0, status.st_uid) and not os.access(f"/proc/self/fd/{fd}", os.W_OK):
        raise Unknown(_refusal("mincore", errno.EPERM))
    num_pages = num_pages_of(status.st_size)
    if num_pages == 0:
        return Pages(0, 0, True)
    libc = _libc()
    address = libc.mmap(None, ctypes.c_size_t(status.st_size), _PROT_READ, _MAP_SHARED, fd, ctypes.c_long(0))
    if address == _MAP_FAILED:
        raise Unknown(_refusal("mmap", ctypes.get_errno()))
    try:
        found = np.zeros(num_pages, np.uint8)
        if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(status.st_size), found.ctypes.data_as(ctypes.c_void_p)):
            raise Unknown(_refusal("mincore", ctypes.get_errno()))
        # Only the lowest bit of each byte has a meaning.
        return Pages(num_pages, int((found & 1).sum()), True)
    finally:
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(status.st_size))


def num_pages_of(num_bytes: int) -> int:
    return -(-num_bytes // PAGE_BYTES)


def choose_look(path: str) -> tuple[str, Look]:
    """The name and the function of the way that works on the file system of ``path``, which holds at least one byte.

    Each is tried on a page that was just read: an overlay's files have no pages of their own that cachestat could count, and ZFS and
    others cache elsewhere. Raises Unknown, saying why each failed.
    """
    said = []
    fd = os.open(path, os.O_RDONLY)
    try:
        for name, look in (("cachestat", by_cachestat), ("mincore", by_mincore)):
            os.pread(fd, 1, 0)
            try:
                if look(fd).num_resident:
                    return name, look
                said.append(f"{name} does not see a page that was just read")
            except Unknown as unknown:
                said.append(str(unknown))
    finally:
        os.close(fd)
    raise Unknown("; ".join(said))


class Cleaner:
    """Puts dirty pages on stable storage, which makes them clean: a few files one by one, many all at once."""

    def __init__(self) -> None:
        self._num_done: Counter[int] = Counter()
        """Of files, by file system."""

    def clean(self, fd: int) -> None:
        """The file that is open. Where all of its file system was cleaned before, nothing is left to do."""
        device = os.fstat(fd).st_dev
        self._num_done[device] += 1
        if self._num_done[device] < _MANY_FILES:
            _fsync(fd)
        elif self._num_done[device] == _MANY_FILES and _libc().syncfs(fd):
            self._num_done[device] = 0
            _fsync(fd)


def drop(fd: int) -> None:
    """Asks the kernel to drop the file's clean pages. Raises Unknown where the system has no such call."""
    if not hasattr(os, "posix_fadvise"):
        raise Unknown("this system has no posix_fadvise")
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def _fsync(fd: int) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EROFS, errno.ENOTSUP):
            raise


def _refusal(call: str, number: int) -> str:
    if number == errno.EPERM:
        return f"{call} tells this user nothing about files that are another's and cannot be written"
    if number == errno.ENOSYS:
        return f"this kernel has no {call}"
    return f"{call} says: {os.strerror(number)}"


def _libc() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(None, use_errno=True)
        library.syscall.restype = ctypes.c_long
        library.mmap.restype = ctypes.c_void_p
        library.mincore.restype = ctypes.c_int
    except (OSError, AttributeError, TypeError):
        raise Unknown("this system has no such call") from None
    return library

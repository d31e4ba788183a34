"""Inputs in an object store, listed as folders of files are: the same names give the same plan."""

import re
from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice

from shardtools.errors import UsageError
from shardtools.places import at_once
from shardtools.sources._inputs import LISTED_TWICE, Input
from shardtools.sources._scanned import Scan, skip_reason
from shardtools.storage import Storage, Stored, is_safe_name, open_storage
from shardtools.units import printable

_LOOKED_AT = 10_000
_NO_FILE_NAME = "not a file name"
_MAY_BE_SKIPPED = re.compile(rb"(?:^|/)(?:[./]|$|__pycache__|Thumbs)|[\\\0]")
"""For a key among millions, quickly: a part that begins as no data does, or that is empty; what no file name holds."""


def scan_bucket(given: Input) -> Scan:
    """Every object of an input that may be data. Raises StorageError where it cannot be listed."""
    found = Scan()
    storage = open_storage(given.root)
    objects = storage.entries() if given.paths is None else _listed_objects(storage, given.paths)
    left_out: set[bytes] = set()
    for stored in objects:
        path = path_of(stored.name)
        if given.paths is None and (skipped := _skipped(path)) is not None:
            # A folder that is left out counts once, as it does where it is not even looked into.
            place, reason = skipped
            found.skipped[reason] += place not in left_out
            left_out.add(place)
            continue
        folder, _, name = path.rpartition(b"/")
        found.folders.setdefault(folder, []).append(b"%b\0%d\0%b" % (name, stored.num_bytes, stored.version.encode()))
        found.newest_ns = max(found.newest_ns, stored.modified_ns)
        found.has_dotted_stems |= name.count(b".") > 1
    found.sort()
    return found


def first_objects(given: Input, count: int) -> list[bytes]:
    """Paths of the first files of an input that is a folder, as ``first_files`` orders them, among the first 10,000 listed."""
    listed = (path_of(stored.name) for stored in islice(open_storage(given.root).entries(), _LOOKED_AT))
    return nsmallest(count, (path for path in listed if _skipped(path) is None), key=_files_before_folders)


def path_of(name: str) -> bytes:
    """An object's name as the path of a file."""
    return name.encode("utf-8", "surrogateescape")


def name_of(path: bytes) -> str:
    """The object's name; the other way round."""
    return path.decode("utf-8", "surrogateescape")


def _skipped(path: bytes) -> tuple[bytes, str] | None:
    """What is left out, the object or a folder it lies in, and why; None for what may be data."""
    if _MAY_BE_SKIPPED.search(path) is None:
        return None
    parts = path.split(b"/")
    for number, part in enumerate(parts, 1):
        reason = skip_reason(part) if part else _NO_FILE_NAME
        if reason is not None:
            return b"/".join(parts[:number]), reason
    return None if is_safe_name(name_of(path)) else (path, _NO_FILE_NAME)


def _files_before_folders(path: bytes) -> list[tuple[bool, bytes]]:
    *folders, name = path.split(b"/")
    return [*((True, folder) for folder in folders), (False, name)]


def _listed_objects(storage: Storage, paths: tuple[bytes, ...]) -> Iterator[Stored]:
    """The listed objects, in their order."""
    if len(set(paths)) < len(paths):
        raise UsageError(LISTED_TWICE)
    for path, found in zip(paths, at_once(storage, storage.entry, map(name_of, paths)), strict=True):
        if found is None:
            raise UsageError(f"expected a readable object in the list of paths, got {printable(path)}: none in {storage.uri}")
        yield found

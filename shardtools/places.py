"""Places as users name them: paths of this machine, and ``scheme://bucket/prefix`` of storages elsewhere.

A place is what ``open_storage(word).uri`` makes of a word: an absolute path or a URI, ``/`` between its parts and none at its end.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from shardtools.errors import StorageError, UsageError
from shardtools.storage import Storage, Stored, is_safe_name, open_storage
from shardtools.threads import in_order

_FEW_NAMES = 100
"""So many requests, several at a time, are no slower than the listing of a folder that may hold much else."""
_I = TypeVar("_I")
_T = TypeVar("_T")


def place_of(word: str) -> str:
    """Raises UsageError for a word that no storage serves."""
    return open_storage(word).uri


def is_here(place: str) -> bool:
    """It is a path of this machine."""
    return place.startswith("/")


def join(place: str, name: str) -> str:
    """The place of what is named below a folder; the folder itself for no name."""
    return f"{place.rstrip('/')}/{name}" if name else place


def split(place: str) -> tuple[str, str]:
    """The folder that a place lies in, and its name there; no name for the root of a file system or a bucket."""
    folder, _, name = place.rpartition("/")
    if is_here(place):
        return folder or "/", name
    return (folder, name) if place.count("/") > 2 else (place, "")


def below(folder: str, place: str) -> str:
    """The name of a place below a folder that it lies in; empty for the folder itself."""
    return place[len(folder) :].lstrip("/")


def is_below(place: str, folder: str) -> bool:
    """It lies in the folder, or is it."""
    return place == folder or place.startswith(folder.rstrip("/") + "/")


def common_folder(folders: Iterable[str]) -> str:
    """The lowest folder that holds them all, or is one of them. Raises UsageError for folders of different storages."""
    first, *others = sorted(set(folders))
    common = first.split("/")
    for other in others:
        parts = other.split("/")
        num_equal = next((i for i, pair in enumerate(zip(common, parts, strict=False)) if pair[0] != pair[1]), min(len(common), len(parts)))
        common = common[:num_equal]
        if num_equal < (1 if is_here(first) else 3):
            raise UsageError(f"expected shards of one bucket, or of this machine, got {first} and {other}; name those of one")
    return "/".join(common) or "/"


def is_file(place: str) -> bool:
    """A regular file, or an object of that very name."""
    if is_here(place):
        return os.path.isfile(place)
    folder, name = split(place)
    return bool(name) and open_storage(folder).num_bytes(name) is not None


def is_folder(place: str) -> bool:
    """A folder, or what names of objects begin with."""
    return os.path.isdir(place) if is_here(place) else next(open_storage(place).names(), None) is not None


def is_there(word: str) -> bool:
    """Whether a word, which may also be a pattern, is the name of something."""
    if "://" not in word or word.startswith("file://"):
        return os.path.lexists(word.removeprefix("file://"))
    try:
        place = place_of(word)
    except UsageError:
        return False
    return is_file(place) or is_folder(place)


def at_once(storage: Storage, function: Callable[[_I], _T], items: Iterable[_I]) -> Iterator[_T]:
    """What the function gives for each item, in their order; as many at a time as the storage takes with profit."""
    return in_order(lambda item, _: function(item), items, storage.num_at_once)


class Listing:
    """The files of a storage: each looked up on this machine, elsewhere listed once, since a request for each takes too long.

    Nothing is listed before it is asked for. Memory elsewhere: the names.
    """

    def __init__(self, storage: Storage, folder: str = "", only: Iterable[str] | None = None) -> None:
        """``folder``: what will be asked for lies in it. ``only``: these alone will be asked for."""
        self._storage = storage
        self._folder = folder
        self._only = None if only is None else list(dict.fromkeys(only))
        self._found: dict[str, Stored] | None = None

    @property
    def is_here(self) -> bool:
        return self._storage.is_local

    def entry(self, name: str) -> Stored | None:
        """The file as it was listed; None if there is none, and where nothing is listed. Raises StorageError."""
        return None if self._storage.is_local else self._listed().get(name)

    def num_bytes(self, name: str) -> int | None:
        """The length of the file, None if there is no regular one of that name. Raises StorageError."""
        if self._storage.is_local:
            return self._storage.num_bytes(name)
        found = self._listed().get(name)
        return None if found is None else found.num_bytes

    def names(self) -> Iterator[str]:
        """Every file, in no promised order."""
        return self._storage.names(self._folder) if self._storage.is_local else iter(self._listed())

    def _listed(self) -> dict[str, Stored]:
        if self._found is None:
            self._found = self._ask_each() if self._only is not None and len(self._only) <= _FEW_NAMES else self._list()
        return self._found

    def _list(self) -> dict[str, Stored]:
        wanted = None if self._only is None else set(self._only)
        entries = self._storage.entries(self._folder)
        return {entry.name: entry for entry in entries if wanted is None or entry.name in wanted}

    def _ask_each(self) -> dict[str, Stored]:
        names = [name for name in self._only or () if is_safe_name(name)]
        return {found.name: found for found in at_once(self._storage, self._storage.entry, names) if found is not None}


def length_of(listing: Listing, name: str) -> int | None:
    """The file's length, None also where a name cannot be looked at because of what it is."""
    try:
        return listing.num_bytes(name)
    except StorageError:
        if not listing.is_here:
            raise  # it is the listing that failed
        return None

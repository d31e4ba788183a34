"""Copies of buckets on this machine that outlive a trial: what readers keep, and whole ones to measure without the store."""

import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType

from shardtools.bench.not_measured import Unknown
from shardtools.bench.places import is_remote, objects_of
from shardtools.bench.processes.keeper import kept_folder
from shardtools.bench.spec import CacheState, Layout
from shardtools.places import at_once
from shardtools.signals import ends_tidily
from shardtools.storage import Stored, is_safe_name, open_storage
from shardtools.units import format_bytes

_READERS = ("shardtools", "streaming")
"""They keep what they fetched, so that a second epoch need not fetch it again."""
_MOST_BYTES = 8 << 30
_MOST_SHARE = 0.5
"""Of the free space."""


def keeps_copies(layout: Layout) -> bool:
    """Whether its reader keeps local copies of what it fetches from a bucket."""
    return is_remote(layout.uri) and layout.reader in _READERS


def fetches_anew(layout: Layout) -> bool:
    """Whether each reading of the same sample is fetched from a bucket again."""
    return is_remote(layout.uri) and layout.reader not in _READERS


class Copies:
    """As a context; its folder is made when it is needed, and goes at the end."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._folder: str | None = None
        self._whole: dict[str, str | Unknown] = {}

    def __enter__(self) -> "Copies":
        self._stack.enter_context(ends_tidily())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, where)

    def kept(self, layouts: list[Layout], cache: CacheState) -> list[Layout]:
        """The same; where trials are to begin warm, with a folder for what their readers keep."""
        if cache != "warm":
            return layouts
        return [
            replace(layout, cache_folder=self._new(f"kept-{i}")) if keeps_copies(layout) else layout for i, layout in enumerate(layouts)
        ]

    def whole(self, layout: Layout, say: Callable[[str], None]) -> Layout:
        """The same data on this machine, copied when it is first asked for. Raises Unknown where there is no room for it."""
        uri = layout.uri
        if uri not in self._whole:
            try:
                self._whole[uri] = self._copied(uri, say)
            except Unknown as unknown:
                self._whole[uri] = unknown
        found = self._whole[uri]
        if isinstance(found, Unknown):
            raise found
        return replace(layout, uri=found, cache_folder=None)

    def _copied(self, uri: str, say: Callable[[str], None]) -> str:
        objects = list(objects_of(uri))
        num_bytes = sum(entry.num_bytes for _, entry in objects)
        folder = self._new(f"whole-{len(self._whole)}")
        room = min(_MOST_BYTES, int(_MOST_SHARE * shutil.disk_usage(folder).free))
        if num_bytes > room:
            what = f"{uri} holds {format_bytes(num_bytes)}, and a copy here, to measure without the store,"
            raise Unknown(f"{what} may take {format_bytes(room)} at most")
        say(f"copying {uri} here, {format_bytes(num_bytes)}, to measure without the store")
        list(at_once(open_storage(uri), lambda found: _fetch(found[0], found[1], folder), objects))
        roots = {root for root, _ in objects}
        # What is named by itself, one object or a pattern of them, is named so here.
        return folder if roots == {open_storage(uri).uri} else os.path.join(folder, uri.rpartition("/")[2])

    def _new(self, name: str) -> str:
        if self._folder is None:
            self._folder = self._stack.enter_context(kept_folder())
        folder = os.path.join(self._folder, name)
        os.mkdir(folder)
        return folder


def _fetch(root: str, entry: Stored, folder: str) -> None:
    if not is_safe_name(entry.name):
        return
    path = os.path.join(folder, entry.name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open_storage(root).fetch(entry.name, path, entry.version)

"""``--embed``: records that point at media take the bytes in, as members or columns of their sample."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

from shardtools import plugins
from shardtools.errors import UsageError
from shardtools.sample import Batch, Field, Reject, brief
from shardtools.transforms import PartitionWork
from shardtools.transforms._embed_media import Media, extension_of, member_fields, parse_media, paths_in
from shardtools.transforms._embed_paths import Refusal, name_below
from shardtools.transforms._embed_read import MediaFolder, media_folder

_BATCH_BYTES = 1 << 20
_BATCH_SAMPLES = 256
_WEIGHED = 200
"""So many files are looked at to tell how large they are."""


class _Wanted(NamedTuple):
    """One file of a sample: its name below the folder of media, and the field it becomes."""

    name: str
    field: str


@dataclass(frozen=True)
class Embed:
    """The paths are relative to the input that the record is of, or to ``media_root``."""

    media: tuple[Media, ...]
    members: bool = False
    """Each file is a tar member by its own extension; otherwise a field of the records becomes a column of the same name."""
    media_root: str | None = None
    """A place; no part of the recipe, as little as where the input lies."""
    encodings: Mapping[str, str] = field(default_factory=dict)
    """The user's, by column; no part of the recipe, which has the fields."""

    @classmethod
    def of(cls, typed: str, members: bool, media_root: str | None, encodings: Mapping[str, str]) -> "Embed":
        return cls(parse_media(typed), members, media_root, dict(encodings))

    @property
    def extras(self) -> tuple[str, ...]:
        return tuple(one.field for one in self.media)

    @property
    def replaced(self) -> frozenset[str]:
        return frozenset() if self.members else frozenset(self.extras)

    @property
    def note(self) -> str:
        """As it can be typed."""
        return f"media: {','.join(one.typed for one in self.media)}"

    def recipe(self) -> dict[str, Any]:
        plain = plugins.options(self)
        return {name: value for name, value in plain.items() if name not in ("media_root", "encodings")}

    def settled(self, first: Sequence[Batch], roots: Sequence[str]) -> tuple["Embed", int]:
        """Raises UsageError where they point at none, or none of it is there."""
        values = {one.field: [value for batch in first for value in batch.extras[one.field]] for one in self.media}
        step = replace(self, media=tuple(one.settled(values[one.field]) for one in self.media))
        names = [(step._root_of(batch, roots), name) for batch in first for name in step._first_names(batch, roots)]
        weighed = [size for root in dict.fromkeys(root for root, _ in names) for size in _sizes(root, names)]
        if names and not any(weighed):
            root, name = names[0]
            raise UsageError(
                f"expected the media of the first records below {root}, got none of them there, {brief(name)} for one; "
                "name their folder with --media-root"
            )
        return step, round(sum(weighed) / max(len(weighed), 1) * len(names))

    def fields(self, given: tuple[Field, ...]) -> tuple[Field, ...]:
        if any(one.count is None for one in self.media):
            raise UsageError("expected --embed with records, as JSON lines, CSV and Parquet hold them, got another source; leave it out")
        kept = [one for one in given if one.name not in self.replaced]
        made = [*self._fields()]
        names = [one.name for one in (*kept, *made)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UsageError(f"expected media beside fields of other names, got {twice!r} twice; rename one with --map or --fields")
        return tuple(sorted((*kept, *made), key=lambda one: one.name))

    def given(self, made: tuple[Field, ...]) -> tuple[Field, ...]:
        own = {one.name for one in self._fields()}
        return tuple(one for one in made if one.name not in own)

    def apply(self, batches: Iterator[Batch], work: PartitionWork) -> Iterator[Batch]:
        folders: dict[str, MediaFolder] = {}
        names = [one.name for one in self._fields()]
        for batch in batches:
            root = self._root_of(batch, work.roots)
            if root not in folders:
                folders[root] = media_folder(root)
            yield from self._embedded(batch, root, folders[root], names, work)

    def _embedded(self, batch: Batch, root: str, folder: MediaFolder, names: Sequence[str], work: PartitionWork) -> Iterator[Batch]:
        """The batch in pieces: media are large, and a batch has room for thousands of records."""
        wanted = [self._wanted(batch, i, root) for i in range(len(batch))]
        kept, columns, num_bytes = list[int](), {name: list[Any]() for name in names}, 0
        with closing(folder.contents(file.name for files in wanted if not isinstance(files, Refusal) for file in files)) as contents:
            for i, files in enumerate(wanted):
                found = files if isinstance(files, Refusal) else _taken(files, list(islice(contents, len(files))))
                if isinstance(found, Refusal):
                    work.reject(Reject(found.reason, batch.where(i), found.sentence))
                    continue
                kept.append(i)
                for name, column in columns.items():
                    column.append(found.get(name))
                num_bytes += sum(map(len, found.values()))
                if num_bytes >= _BATCH_BYTES or len(kept) >= _BATCH_SAMPLES:
                    yield _joined(batch, kept, columns)
                    kept, columns, num_bytes = [], {name: [] for name in names}, 0
        if kept:
            yield _joined(batch, kept, columns)

    def _wanted(self, batch: Batch, i: int, root: str) -> list[_Wanted] | Refusal:
        """The files of one sample."""
        files: list[_Wanted] = []
        for one in self.media:
            found = self._files_of(one, batch.extras[one.field][i], root)
            if isinstance(found, Refusal):
                return found
            files += found
        return files

    def _files_of(self, one: Media, value: Any, root: str) -> list[_Wanted] | Refusal:
        paths = value if type(value) is list and one.count else [value]
        if value is None and one.optional:
            return []
        if not all(type(path) is str and path for path in paths):
            kind = "a list of paths" if one.count else "a path"
            got = "none" if value is None else brief(value)
            remedy = "correct the record" if value is not None else f"{one.field}? in --embed takes records without one"
            return Refusal("no-media", f"expected {kind} in the field {one.field!r}, got {got}; {remedy}")
        most = one.count or 1
        if len(paths) > most or (len(paths) < most and not one.optional):
            more = f"{one.field}:{len(paths)} in --embed takes so many" if len(paths) > most else f"{one.field}? in --embed takes fewer"
            return Refusal(
                "media-count", f"expected {most} paths in the field {one.field!r}, as in the first records, got {len(paths)}; {more}"
            )
        files = []
        for i, path in enumerate(paths):
            name, extension = name_below(path, root), extension_of(path)
            if isinstance(name, Refusal):
                return name
            if extension not in one.extensions:
                shown = "|".join((*one.extensions, extension))
                return Refusal(
                    "media-extension",
                    f"expected a file of the kinds {', '.join(one.extensions)} in the field {one.field!r}, as in the first records, "
                    f"got {brief(path)}; {one.field}={shown} in --embed takes it",
                )
            files.append(_Wanted(name, self._name(one, i, extension)))
        return files

    def _name(self, one: Media, i: int, extension: str) -> str:
        """What a file is called in the dataset."""
        return one.member(i, extension, len(self.media) == 1) if self.members else one.column(i)

    def _fields(self) -> list[Field]:
        return list(member_fields(self.media)) if self.members else [one for part in self.media for one in part.columns(self.encodings)]

    def columns_of_members(self) -> dict[str, str]:
        """The column of MDS for each tar member that a file may be."""
        is_only = len(self.media) == 1
        return {
            one.member(i, extension, is_only): one.column(i)
            for one in self.media
            for i in range(one.count or 1)
            for extension in one.extensions
        }

    def _root_of(self, batch: Batch, roots: Sequence[str]) -> str:
        if self.media_root is not None:
            return self.media_root
        if batch.root is None and len(roots) != 1:
            raise UsageError("expected --media-root DIR with several inputs of this kind, got none; name the folder that paths are below")
        return roots[batch.root or 0]

    def _first_names(self, batch: Batch, roots: Sequence[str]) -> Iterator[str]:
        root = self._root_of(batch, roots)
        for one in self.media:
            for value in batch.extras[one.field]:
                yield from (name for name in (name_below(path, root) for path in paths_in(value)) if not isinstance(name, Refusal))


def _taken(files: Sequence[_Wanted], contents: Sequence[bytes | Refusal]) -> dict[str, bytes] | Refusal:
    """The bytes by field, or the first reason against it."""
    found = {}
    for file, content in zip(files, contents, strict=True):
        if isinstance(content, Refusal):
            return content
        found[file.field] = content
    return found


def _joined(batch: Batch, kept: Sequence[int], columns: Mapping[str, list[Any]]) -> Batch:
    taken = batch.take(kept)
    taken.columns |= columns
    return taken


def _sizes(root: str, names: Sequence[tuple[str, str]]) -> list[int]:
    """Of some of the files below one root, spread over all of them."""
    own = [name for folder, name in names if folder == root]
    return list(media_folder(root).sizes(own[:: max(len(own) // _WEIGHED, 1)]))

"""``--embed`` as it is typed and as the first records settle it: which fields point at media, and what the media are called."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardtools.errors import UsageError
from shardtools.formats import FILE_ENCODINGS
from shardtools.keys import is_legal_field
from shardtools.sample import Field, brief

_SPEC = re.compile(r"(?P<field>[^:=?,]+)(?::(?P<count>[1-9]\d{0,3}))?(?:=(?P<extensions>[^:=?,]+))?(?P<optional>\?)?")
_NO_EXTENSION = "bin"
"""Of a file without one: readers drop members that have none."""
_MAY_BE_EMPTY = ("bytes", "str", "json")
"""Encodings of MDS that have a value for nothing."""


@dataclass(frozen=True)
class Media:
    """One field of the records that holds a path, or a list of paths."""

    field: str
    """As records call it; dots lead into objects."""
    extensions: tuple[str, ...] = ()
    """Lower-case, sorted: those that paths may have. Empty until the first records settled them."""
    count: int | None = None
    """Most paths of a list, 0 for a path by itself. None until settled."""
    optional: bool = False
    """The field may be null or missing, and a list shorter."""

    @property
    def typed(self) -> str:
        """As a user can type it."""
        count = f":{self.count}" if self.count else ""
        extensions = f"={'|'.join(self.extensions)}" if self.extensions else ""
        return f"{self.field}{count}{extensions}{'?' * self.optional}"

    def settled(self, values: Sequence[Any]) -> "Media":
        """With what was left open as the values of the first records show it. Raises UsageError where they hold no path."""
        found = [paths for paths in map(paths_in, values) if paths]
        if not found:
            shown = brief(next((value for value in values if value is not None), None))
            raise UsageError(f"expected paths of media in the field {self.field!r} of the first records, got {shown}; name another field")
        are_lists = any(type(value) is list for value in values)
        lengths = {len(value) if type(value) is list else 1 for value in values if value is not None}
        count = self.count if self.count is not None else max(lengths) * are_lists
        extensions = self.extensions or tuple(sorted({extension_of(path) for paths in found for path in paths}))
        return replace(self, extensions=extensions, count=count, optional=self.optional or (are_lists and lengths != {count}))

    def members(self, is_only: bool) -> Iterator[tuple[str, str]]:
        """Name and extension of every tar member that there may be. ``is_only``: no other field is embedded."""
        for i in range(self.count or 1):
            for extension in self.extensions:
                yield self.member(i, extension, is_only), extension

    def member(self, i: int, extension: str, is_only: bool) -> str:
        """The tar member of a file, by its place in the list and its extension."""
        if self.count:
            return f"{self.field.lower()}.{i}.{extension}"
        return extension if is_only else f"{self.field.lower()}.{extension}"

    def columns(self, encodings: Mapping[str, str]) -> Iterator[Field]:
        """The MDS columns: one, or one for each place in the list. ``encodings`` are the user's, in place of those of the extensions."""
        kinds = {FILE_ENCODINGS.get(extension, "bytes") for extension in self.extensions}
        encoding = kinds.pop() if len(kinds) == 1 else "bytes"
        encoding = encoding if not self.optional or encoding in _MAY_BE_EMPTY else "bytes"
        for i in range(self.count or 1):
            name = self.column(i)
            yield Field(name, encodings.get(name, encoding), self.optional)

    def column(self, i: int) -> str:
        return f"{self.field}.{i}" if self.count else self.field


def parse_media(text: str) -> tuple[Media, ...]:
    """``image,masks:2=png|webp?``: fields, how many paths their lists hold at most, the files' extensions, ``?`` for what may be missing.

    Raises UsageError.
    """
    media = []
    for part in text.split(","):
        found = _SPEC.fullmatch(part.strip())
        extensions = [] if found is None else [one.strip().lower().removeprefix(".") for one in (found["extensions"] or "").split("|")]
        if found is None or (found["extensions"] and not all(map(is_legal_field, extensions))):
            raise UsageError(f"expected --embed like image or masks:2=png|webp?, got {part!r} in {text!r}")
        count = None if found["count"] is None else int(found["count"])
        media.append(Media(found["field"].strip(), tuple(sorted(set(filter(None, extensions)))), count, found["optional"] is not None))
    names = [one.field for one in media]
    if len(set(names)) < len(names):
        raise UsageError(f"expected every field once in --embed, got {text!r}")
    return tuple(media)


def member_fields(media: Sequence[Media]) -> Iterator[Field]:
    """The tar members of media, each by its own extension, as readers decode it. Raises UsageError for a name that no member can have."""
    for one in media:
        for name, extension in one.members(len(media) == 1):
            if not is_legal_field(name):
                raise UsageError(
                    f"expected a field whose name can be that of a tar member, of letters, digits and _, got {one.field!r}; "
                    "rename it in the records, or pack --to mds"
                )
            yield Field(name, FILE_ENCODINGS.get(extension, "bytes"), one.optional or len(one.extensions) > 1)


def paths_in(value: Any) -> list[str]:
    """The paths of a field's value, of those in it that are text."""
    return [path for path in (value if type(value) is list else [value]) if type(path) is str and path]


def extension_of(path: str) -> str:
    """What follows the last dot of the file's name, in lower case, where it can be that of a member."""
    extension = os.path.splitext(path)[1].removeprefix(".").lower()
    return extension if is_legal_field(extension) else _NO_EXTENSION

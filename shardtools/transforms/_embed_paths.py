"""A record's path to a name below the folder of the media, or why it is none."""

import os
import posixpath
import re
from typing import NamedTuple

from shardtools.sample import brief
from shardtools.storage import is_safe_name

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

# Which folder it is, is not said: what is rejected is published, and holds no path of this machine.
_ANOTHER = "--media-root DIR names another folder"


class Refusal(NamedTuple):
    """Why a record's media cannot be taken."""

    reason: str
    sentence: str


def outside(path: str) -> Refusal:
    """The path leads out of the folder, by itself or by a link."""
    return Refusal("media-outside", f"expected a file below the folder of media, got {brief(path)}, which leads out of it; {_ANOTHER}")


def missing(path: str) -> Refusal:
    return Refusal("media-missing", f"expected a file in the folder of media, got {brief(path)}, which is not there; {_ANOTHER}")


def unreadable(path: str, got: str) -> Refusal:
    return Refusal("media-unreadable", f"expected a readable file, got {brief(path)}: {got}")


def name_below(path: str, root: str) -> str | Refusal:
    """The name of a file below ``root``, a folder of this machine or ``s3://bucket/prefix``.

    A path is relative to the root, or is the root's own and goes on; ``..`` may be in it as long as it stays below.
    """
    below = root.rstrip("/") + "/"
    relative = path.removeprefix(below)
    if _URL.match(relative) is not None:
        return Refusal(
            "media-outside", f"expected a path below the folder of media, got the address {brief(path)}; fetch the file, or {_ANOTHER}"
        )
    name = posixpath.normpath(relative)
    if name in (".", "..") or name.startswith(("/", "../")):
        return outside(path)
    if not (is_safe_name(name) if _URL.match(root) is not None else _can_be_named(name)):
        return unreadable(path, "no file has such a name; correct the record")
    return name


def _can_be_named(name: str) -> bool:
    try:
        return b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        return False

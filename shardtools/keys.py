"""The names of samples and fields that every reader of WDS and MDS accepts.

A legal key is components joined by ``/``, each ``[A-Za-z0-9=][A-Za-z0-9_=-]*``, at most 80 bytes in all.
Anything else is escaped injectively, so two different sources never share a key by accident.
"""

import hashlib
import re
import unicodedata
from collections.abc import Sequence

MAX_KEY_BYTES = 80
MAX_MEMBER_BYTES = 100
"""Longest ``key.field``: the name field of a tar header, the only part all tar readers look at."""

KEY = re.compile(rb"[A-Za-z0-9=][A-Za-z0-9_=-]*(?:/[A-Za-z0-9=][A-Za-z0-9_=-]*)*")
FIELD = re.compile(r"[a-z0-9][a-z0-9_]*(?:\.[a-z0-9][a-z0-9_]*)*")

_PLAIN_KEY = re.compile(rb"[A-Za-z0-9][A-Za-z0-9_-]*(?:/[A-Za-z0-9][A-Za-z0-9_-]*)*")
_TO_ESCAPE = re.compile(rb"[^A-Za-z0-9_/-]|(?:(?<=/)|^)[_/-]|/\Z")
_ESCAPED = re.compile(rb"=([0-9A-F]{2})")
# Escapes use upper-case hex, so "=x" can only announce a digest.
_DIGEST_MARK = b"=x"
_DIGEST_BYTES = 16
_FOLDS = re.compile(rb"[A-Z=]")


def escape_key(raw: bytes) -> bytes:
    """The legal key for ``raw``, any non-empty bytes; ``raw`` itself where it is legal already.

    Each byte outside ``[A-Za-z0-9_-]`` becomes ``=XX``, as do a ``_`` or ``-`` that begins a component and a
    ``/`` that leaves one empty. A key over 80 bytes keeps its beginning and ends in ``=x`` and 32 hex digits of BLAKE2b.
    """
    if len(raw) <= MAX_KEY_BYTES and _PLAIN_KEY.fullmatch(raw):
        return raw
    escaped = _TO_ESCAPE.sub(lambda match: b"=%02X" % match[0][0], raw)
    if len(escaped) <= MAX_KEY_BYTES:
        return escaped
    digest = hashlib.blake2b(raw, digest_size=_DIGEST_BYTES).hexdigest().encode()
    kept = escaped[: MAX_KEY_BYTES - len(_DIGEST_MARK) - len(digest)]
    # Half an escape at the cut would be read as something else.
    kept = re.sub(rb"=[0-9A-F]?$", b"", kept).rstrip(b"/")
    return kept + _DIGEST_MARK + digest


def unescape_key(key: bytes) -> bytes:
    """The bytes ``escape_key`` was given, unless it had to shorten them."""
    return _ESCAPED.sub(lambda match: bytes([int(match[1], 16)]), key)


def fold_key(key: bytes) -> bytes | None:
    """What the key becomes on a file system that folds case and Unicode forms; None if nothing changes."""
    if not _FOLDS.search(key):
        return None
    text = unescape_key(key).decode("utf-8", "surrogateescape")
    folded = unicodedata.normalize("NFC", text).casefold().encode("utf-8", "surrogateescape")
    return None if folded == key else folded


def folded_keys(keys: Sequence[bytes]) -> list[bytes]:
    """What those of the keys become that ``fold_key`` changes."""
    # One look at all of them: most datasets have none.
    if not _FOLDS.search(b"".join(keys)):
        return []
    return [folded for folded in map(fold_key, keys) if folded is not None]


def is_legal_field(name: str) -> bool:
    """Whether ``name`` can be a tar member's field: lower case, dots only between words, no leading ``_``."""
    return FIELD.fullmatch(name) is not None

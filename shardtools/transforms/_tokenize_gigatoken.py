"""gigatoken: an encoder some ten times as fast, used where it is proved to give the same ids."""

import os
import re
import time
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from importlib import metadata

import numpy as np

from shardtools.errors import UsageError
from shardtools.transforms._tokenize_file import TokenizerFile
from shardtools.transforms._tokenize_hf import HfEncoder, Ids, load_hf
from shardtools.transforms._tokenize_texts import BadTextError

_PROBES = (
    "",
    " ",
    "\n",
    "  \n\n\n   \t x  y\r\n\r\n z ",
    "Don't we'LL they'Ve I'M 'tis 'S'\u017f",
    "x1 12 123 1234 12345.678,9 ٣٤ ½ Ⅷ",
    "def f(x):\n    return x != 0  # <b> {}[]()!!??...\n",
    "cafe\u0301 caf\u00e9 A\u030a \u0323\u0307q \u1e9b\u0323 \u212a\u2126\ufb01",
    "\u0915\u093c\u094d\u200d\u0937 \u0e01\u0e33 \u05d0\u05b0\u05d1 \u0627\u064b\u0651",
    "漢字かなカナ\u3000가각\u1100\u1161\u11a8",
    "👩\u200d👩\u200d👧 🏽🇩🇪 \U0001d400\U00010400",
    "\x00\x01\x1f\x7f\x85\xa0\u2028\ufeff\ufffd",
    "a" * 300 + " " * 300 + "\n" * 9 + "=" * 99,
    " camelCase HTTPServer iPhone ÀÉ Straße ǅ",
)


_LOOKED_CHARACTERS = 2 << 20
_GROWN_BYTES = 200 << 20


class RefusedError(Exception):
    """gigatoken is not used; the message says why."""


class Gigatoken:
    """Ids of texts that spell no added token. ``None`` from ``encode``: leave that text to the reference.

    Memory: its cache of words, which grows with their number, is let go when the process has grown by 200 MB.
    """

    def __init__(self, reference: HfEncoder) -> None:
        """Raises RefusedError."""
        if reference.finds_literals_late:
            raise RefusedError("this tokenizer looks for added tokens in normalised text")
        self._reference = reference
        self._load()
        for text in _PROBES:
            ids = self.encode(text)
            if ids is not None and not reference.hits(text) and not _are_ids_of(text, ids, reference):
                raise RefusedError(f"gigatoken gives other ids than tokenizers for {text[:30]!r}")

    def _load(self) -> None:
        try:
            import gigatoken
        except ImportError:
            raise RefusedError("gigatoken is not installed (pip install 'shardtools[fast]')") from None
        self._encode: Callable[[str], Ids] | None = None  # before the next one takes its own room
        try:
            self._encode = gigatoken.Tokenizer.from_json(self._reference.parsed.data).backend.encode
        except Exception as error:
            raise RefusedError(f"gigatoken does not take this tokenizer: {error}") from None
        self._loaded_bytes = resident_bytes()
        self._num_characters = 0

    def _let_go(self, num_characters: int) -> None:
        """Its cache cannot be emptied, only thrown away with all the rest, which is loaded again in less than a tenth of a second."""
        self._num_characters += num_characters
        if self._num_characters > _LOOKED_CHARACTERS:
            self._num_characters = 0
            if resident_bytes() > self._loaded_bytes + _GROWN_BYTES:
                self._load()

    def encode(self, text: str) -> Ids | None:
        """``[n] uint32``."""
        self._let_go(len(text))
        assert self._encode is not None, "loaded"
        if not text.isascii() and _is_unsettled(text):
            return None
        try:
            ids: Ids = self._encode(text)
        except Exception:
            return None
        except BaseException as error:
            # A panic of compiled code is no Exception, so that nobody takes it for an error of the text; here it is one.
            if type(error).__name__ == "PanicException":
                return None
            raise
        if len(ids) and int(ids.max()) > self._reference.max_id:
            return None
        return ids


def _are_ids_of(text: str, ids: Ids, reference: HfEncoder) -> bool:
    try:
        return np.array_equal(ids, reference.encode(text))
    except BadTextError:  # the vocabulary cannot spell it: no ids are right
        return False


def resident_bytes() -> int:
    """Memory of this process. Where the system does not tell, a number that makes every look find growth."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return int(time.monotonic() * (1 << 40))


@lru_cache(maxsize=1)
def load_gigatoken(file: TokenizerFile, parses: bool) -> Gigatoken:
    """One per process. Raises RefusedError."""
    return Gigatoken(load_hf(file, parses))


def require_gigatoken(file: TokenizerFile, parses: bool) -> Gigatoken:
    """Raises UsageError where it cannot be used."""
    try:
        return load_gigatoken(file, parses)
    except RefusedError as error:
        raise UsageError(f"expected gigatoken to be usable, but {error}; use --backend hf, or auto") from None


def version() -> str:
    return metadata.version("gigatoken")


_ABOVE_BMP = re.compile("[\U00010000-\U0010ffff]")


def _is_unsettled(text: str) -> bool:
    """Whether libraries with tables of different Unicode versions may see different classes or normal forms in it.

    Normal forms never change once a character has one (Source: unicode.org/policies/stability_policy.html), so only what
    is unassigned here, or has been given one late, is a danger. ``tokenizers`` has the tables of Unicode 9.
    """
    return _unsettled_below().search(text) is not None or any(map(_is_unsettled_character, set(_ABOVE_BMP.findall(text))))


@lru_cache(maxsize=1)
def _unsettled_below() -> re.Pattern[str]:
    """Of the first 65,536 characters alone: a class that reaches above them is searched a hundred times as slowly."""
    below = map(chr, [*range(0x300, 0xD800), *range(0xE000, 0x10000)])
    return re.compile(f"[{''.join(re.escape(character) for character in below if _is_unsettled_character(character))}]")


@lru_cache(maxsize=1 << 12)
def _is_unsettled_character(character: str) -> bool:
    category = unicodedata.category(character)
    has_form = unicodedata.combining(character) or unicodedata.decomposition(character)
    return category == "Cn" or bool(has_form and unicodedata.ucd_3_2_0.category(character) == "Cn")

"""How a tokenizer is used, settled: what tokens of documents and of chats have in common, and how words of options are read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardtools.errors import UsageError
from shardtools.sample import brief
from shardtools.transforms import _tokenize_hf
from shardtools.transforms._tokenize_file import TokenizerFile
from shardtools.transforms._tokenize_hf import HfEncoder, load_hf

_LARGEST = {"uint16": 2**16 - 1, "int32": 2**31 - 1, "uint32": 2**32 - 1}
DTYPES = ("auto", *_LARGEST)
_MOST_DIGITS = 20


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer, the version of the library that reads it, and the type its ids are stored in."""

    file: TokenizerFile
    version: str
    """Of the library ``tokenizers``."""
    dtype: str
    max_id: int
    """The largest id; the number of tokens says nothing, as ids may have holes."""

    @classmethod
    def settle(cls, file: TokenizerFile, encoder: HfEncoder, dtype: str) -> "Vocabulary":
        """``auto`` is uint16 where every id fits, else uint32. Raises UsageError where a type cannot hold the largest id."""
        max_id = encoder.max_id
        if dtype == "auto":
            dtype = "uint16" if max_id <= _LARGEST["uint16"] else "uint32"
        if max_id > _LARGEST[dtype]:
            raise UsageError(f"expected --dtype to hold ids up to {max_id:,}, got {dtype}, which ends at {_LARGEST[dtype]:,}; use auto")
        return cls(file, _tokenize_hf.version(), dtype, max_id)

    def encoder(self, parses: bool) -> HfEncoder:
        """The reference encoder of this process. Raises ShardtoolsError where file or library are not those of the plan."""
        _tokenize_hf.refuse_other_version(self.version, "tokenizers", _tokenize_hf.version())
        return load_hf(self.file, parses)

    @property
    def id_bytes(self) -> int:
        """Of each id as it is stored."""
        return np.dtype(self.dtype).itemsize

    @property
    def note(self) -> str:
        """What was chosen, for people."""
        return f"tokens are stored as {self.dtype}: the largest id is {self.max_id:,}"

    def recipe(self) -> dict[str, Any]:
        return {"tokenizer_sha256": self.file.sha256, "tokenizers": self.version, "dtype": self.dtype, "max_id": self.max_id}


def choice(words: Mapping[str, str], option: str, known: tuple[str, ...]) -> str:
    """The word given for an option, else the first of those it knows. Raises UsageError for another."""
    word = words.get(option, known[0])
    if word not in known:
        raise UsageError(f"expected --{option.replace('_', '-')} {'|'.join(known)}, got {word!r}")
    return word


def whole_number(words: Mapping[str, str], option: str, least: int = 0) -> int | None:
    """The number given for an option, None where it was not. Raises UsageError for another word, and for less than ``least``."""
    word = words.get(option)
    if word is None:
        return None
    # Python itself refuses to read a number of thousands of digits.
    if not (word.isascii() and word.isdigit() and len(word) <= _MOST_DIGITS and int(word) >= least):
        raise UsageError(f"expected --{option.replace('_', '-')} as a whole number from {least}, got {brief(word)}")
    return int(word)

"""A tokenizer's files: read, digested, and freed of what would change ids behind the user's back."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from shardtools.errors import ShardtoolsError, UsageError

TOKENIZER_NAME = "tokenizer.json"
CONFIG_NAME = "tokenizer_config.json"
TEMPLATE_NAME = "chat_template.jinja"


@dataclass(frozen=True)
class TokenizerFile:
    """One ``tokenizer.json`` on this machine, and what it held when the plan was made."""

    path: str
    sha256: str

    @classmethod
    def at(cls, path: str) -> "TokenizerFile":
        """Of a file, or of a folder as Hugging Face lays it out. Raises UsageError where there is none."""
        if os.path.isdir(path):
            path = os.path.join(path, TOKENIZER_NAME)
        return cls(path, hashlib.sha256(_read(path)).hexdigest())

    def data(self) -> bytes:
        """The bytes it had when the plan was made. Raises ShardtoolsError where they have changed since."""
        data = _read(self.path)
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise ShardtoolsError(
                f"expected the tokenizer the plan was made with (sha256 {self.sha256[:16]}...), got another in {self.path}; "
                "put it back, or plan anew"
            )
        return data

    def config(self) -> dict[str, Any]:
        """``tokenizer_config.json`` beside it, empty where there is none; the template of a ``chat_template.jinja`` goes before its own."""
        folder = os.path.dirname(self.path)
        config: dict[str, Any] = {}
        if os.path.exists(path := os.path.join(folder, CONFIG_NAME)):
            config = parse_object(_read(path), path)
        if os.path.exists(path := os.path.join(folder, TEMPLATE_NAME)):
            config["chat_template"] = _read(path).decode()
        return config


@dataclass(frozen=True)
class AddedToken:
    """A token that is looked for in the text before the model sees it."""

    id: int
    content: str
    normalized: bool
    """It is looked for in the normalised text."""
    lstrip: bool
    rstrip: bool
    """White space beside it belongs to it."""

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> "AddedToken":
        flags = (bool(plain.get(flag)) for flag in ("normalized", "lstrip", "rstrip"))
        return cls(int(plain["id"]), str(plain["content"]), *flags)

    @property
    def is_literal(self) -> bool:
        """Whether text that spells it forges a control token; one of white space alone is a word like any other."""
        return self.content.strip() != ""


@dataclass(frozen=True)
class TokenizerJson:
    """What of a ``tokenizer.json`` is used here."""

    data: bytes
    """The file without truncation, padding and dropout, each of which would change ids."""
    plain_data: bytes
    """The same with every literal flagged as special: the only tokens that ``encode_special_tokens`` takes as plain text.

    Source: huggingface/tokenizers, tokenizers/src/tokenizer/added_vocabulary.rs, find_matches.
    """
    added: tuple[AddedToken, ...]
    normalizes: bool

    @classmethod
    def parse(cls, data: bytes, path: str) -> "TokenizerJson":
        """Raises UsageError for what is not the JSON of a tokenizer."""
        plain = parse_object(data, path)
        try:
            added = tuple(AddedToken.of(token) for token in plain.get("added_tokens") or ())
            model = plain["model"]
            plain["truncation"] = plain["padding"] = None
            if model.get("dropout") is not None:
                model["dropout"] = None
            normal = orjson.dumps(plain)
            for token, known in zip(plain.get("added_tokens") or (), added, strict=True):
                token["special"] = token.get("special", False) or known.is_literal
            return cls(normal, orjson.dumps(plain), added, _normalizes(plain.get("normalizer")))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"expected the tokenizer.json of a Hugging Face tokenizer, got another file: {path} ({error!r})") from None

    @property
    def literals(self) -> tuple[AddedToken, ...]:
        return tuple(token for token in self.added if token.is_literal)


def _normalizes(normalizer: Any) -> bool:
    """Whether it may change a text; some files have a sequence of none."""
    return normalizer is not None and (normalizer.get("type") != "Sequence" or any(map(_normalizes, normalizer["normalizers"])))


def parse_object(data: bytes, path: str) -> dict[str, Any]:
    """The JSON object in a file. Raises UsageError that names the file."""
    try:
        plain = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"expected JSON, got other text in {path} ({error})") from None
    if not isinstance(plain, dict):
        raise UsageError(f"expected a JSON object, got {type(plain).__name__} in {path}")
    return plain


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(
            f"expected a tokenizer.json, or a folder that holds one, at {path}, but the system said: {error.strerror}; "
            "give --tokenizer its path"
        ) from None

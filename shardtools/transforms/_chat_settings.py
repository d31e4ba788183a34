"""What a ``tokenizer_config.json`` says of chats."""

from collections.abc import Mapping
from typing import Any

from shardtools.errors import UsageError
from shardtools.transforms._tokenize_ends import token_text

_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_DEFAULT = "default"


def find_template(config: Mapping[str, Any]) -> str:
    """The chat template; of several the one named ``default``. Raises UsageError where there is none."""
    given = config.get("chat_template")
    if isinstance(given, list):
        named = {entry.get("name"): entry.get("template") for entry in given if isinstance(entry, Mapping)}
        given = named.get(_DEFAULT)
        if given is None:
            names = ", ".join(map(str, named)) or "no names"
            raise UsageError(f"expected a chat template named {_DEFAULT!r} in tokenizer_config.json, got {names}; name one so")
    if not isinstance(given, str):
        raise UsageError(
            "expected a chat_template in the tokenizer_config.json beside the tokenizer, got none; "
            "give --tokenizer the folder of a model for chats, or pack text without --chat"
        )
    return given


def find_variables(config: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The special tokens that a template may name, as ``transformers`` hands them to it."""
    found: list[tuple[str, Any]] = [(name, text) for name in _NAMED_TOKENS if (text := token_text(config.get(name))) is not None]
    more = config.get("additional_special_tokens")
    if isinstance(more, list):
        found.append(("additional_special_tokens", tuple(text for token in more if (text := token_text(token)) is not None)))
    return tuple(found)

"""What a user asks for with ``--tokenizer``, in words, made into the transforms that turn documents into rows of tokens."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardtools import plugins
from shardtools.errors import UsageError
from shardtools.plan import ShardLimit
from shardtools.sample import Field
from shardtools.sources import SurveyRequest, Wanted
from shardtools.transforms import Transform

_TEXT, _MESSAGES = "text", "messages"
_TEXT_BYTES_PER_TOKEN = 4
"""About; it is for plans alone."""


@dataclass(frozen=True)
class TokenOrder:
    """How documents, or chats, become tokens, and tokens become rows."""

    encode: Any
    """A Tokenize or a Chat, but for the column it reads."""
    packing: Any
    """A Packing, but for what follows from the tokens."""
    wanted: Wanted
    notes: tuple[str, ...]

    def transforms(self, given: tuple[Field, ...], npy: bool) -> tuple[tuple[Transform, ...], tuple[Field, ...]]:
        """The transforms for what the source gives, and the fields they end in; ``npy``: for tar members."""
        if len(given) != 1:
            names = ", ".join(field.name for field in given) or "none"
            raise UsageError(f"expected one kind of text to tokenize, got {names}; choose it with --text-key")
        encode = replace(self.encode, column=given[0].name)
        tokens = encode.fields(given)
        packing = self.packing.settled(tokens, npy)
        return (encode, packing), packing.fields(tokens)


def request_for(encode: Any, request: SurveyRequest) -> SurveyRequest:
    """What the source is asked where ``encode`` reads its text: how many rows come of it, only reading tells."""
    ratio = encode.vocabulary.id_bytes / _TEXT_BYTES_PER_TOKEN
    size = ShardLimit(num_bytes=request.limit.num_bytes or request.format.default_shard_bytes)
    return replace(request, limit=size, stored_ratio=ratio, is_slow=True)


def restored_transforms(recipes: Sequence[Mapping[str, Any]], tokenizer: str | None) -> tuple[Transform, ...]:
    """The transforms whose ``recipe`` gave this plain data, with the tokenizer that they name by its digest.

    Raises UsageError where it is not given, is another, or where the libraries are of other versions.
    """
    if not recipes:
        return ()
    if tokenizer is None:
        raise UsageError("expected --tokenizer FILE with a dataset of tokens, got none; name the tokenizer.json it was packed with")
    first, *others = recipes
    _refuse_other_tokenizer(first, tokenizer)
    encode = _restored_encode(first, tokenizer)
    if json.loads(json.dumps(encode.recipe())) != dict(first):
        differing = [name for name, value in encode.recipe().items() if value != first.get(name)]
        raise UsageError(
            f"expected the tokenizer and libraries the dataset was packed with, got others: {', '.join(differing)} of {tokenizer}; "
            "name that tokenizer, and install those versions"
        )
    return (encode, *(plugins.restored("transforms", one) for one in others))


def _refuse_other_tokenizer(recipe: Mapping[str, Any], tokenizer: str) -> None:
    """Before it is loaded: what another one cannot do is of no interest."""
    from shardtools.transforms.tokenize import tokenizer_sha256

    packed_with, given = recipe.get("tokenizer_sha256"), tokenizer_sha256(tokenizer)
    if packed_with != given:
        raise UsageError(
            f"expected the tokenizer the dataset was packed with (SHA-256 {str(packed_with)[:16]}...), "
            f"got another (SHA-256 {given[:16]}...) in {tokenizer}; name that one"
        )


def _restored_encode(recipe: Mapping[str, Any], tokenizer: str) -> Any:
    from shardtools.transforms.chat import settle_chat
    from shardtools.transforms.tokenize import settle_tokenizer

    words = {"tokenizer": tokenizer, "bos": "none", "eos": "none", "column": recipe["column"], "dtype": recipe["dtype"]}
    words["special_in_text"] = recipe["special_in_text"]
    settled: Any
    if recipe["name"] == "chat":
        seq_len = {} if recipe["seq_len"] is None else {"seq_len": str(recipe["seq_len"])}
        settled = settle_chat({**words, **seq_len, "long_docs": recipe["long_docs"]})[0]
    else:
        policy = {"max_doc_bytes": str(recipe["max_doc_bytes"]), "oversized": recipe["oversized"], "seed": str(recipe["check_seed"])}
        settled = settle_tokenizer({**words, **policy, "backend": recipe["backend"]})[0]
    ends = replace(settled.ends, bos_id=recipe["bos_id"], eos_id=recipe["eos_id"])
    return replace(settled, ends=ends)


def token_order_of(words: Mapping[str, str], seed: int | None) -> TokenOrder | None:
    """None without ``--tokenizer``. Raises UsageError for words that do not fit each other."""
    if "tokenizer" not in words:
        if words:
            raise UsageError(f"expected --tokenizer FILE with --{next(iter(words)).replace('_', '-')}, got none")
        return None
    words = dict(words) if seed is None else {**words, "seed": str(seed)}
    return _order_of_chats(words) if "chat" in words else _order_of_text(words)


def _order_of_text(words: Mapping[str, str]) -> TokenOrder:
    from shardtools.transforms.packing import Packing
    from shardtools.transforms.tokenize import Tokenize, settle_tokenizer

    encode, notes = settle_tokenizer(_taken(words, Tokenize.option_names))
    packing = Packing.from_options(_taken(words, Packing.option_names))
    return TokenOrder(encode, packing, Wanted(Field(_TEXT, "str"), words.get("text_key")), tuple(notes))


def _order_of_chats(words: Mapping[str, str]) -> TokenOrder:
    from shardtools.transforms.chat import Chat, settle_chat
    from shardtools.transforms.packing import Packing

    _refuse_unfit_for_chats(words)
    encode, notes = settle_chat(_taken(words, Chat.option_names))
    # No chat that comes to packing is longer than a row.
    packing_words = {**_taken(words, Packing.option_names), "long_docs": "drop"}
    if packing_words.get("packing") == "none" or "seq_len" not in words:
        packing_words.pop("seq_len", None)
        packing_words.pop("long_docs")
    packing = Packing.from_options(packing_words)
    return TokenOrder(encode, packing, Wanted(Field(_MESSAGES, "json"), words.get("text_key")), tuple(notes))


def _refuse_unfit_for_chats(words: Mapping[str, str]) -> None:
    for name in ("backend", "max_doc_bytes", "oversized"):
        if name in words:
            raise UsageError(f"expected no --{name.replace('_', '-')} with --chat, got it; leave it out")
    if words.get("long_docs") == "split":
        raise UsageError("expected --long-docs truncate or drop with --chat, got split: half a chat teaches nothing")
    if "long_docs" in words and "seq_len" not in words:
        raise UsageError(f"expected --seq-len N with --long-docs {words['long_docs']}, got none; it says what is long")
    if words.get("packing") == "concat":
        raise UsageError("expected --packing none or bfd with --chat, got concat, which cuts chats in two")


def _taken(words: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    return {name: words[name] for name in names if name in words}

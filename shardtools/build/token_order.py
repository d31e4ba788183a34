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

_TOKENIZE_WORDS = ("tokenizer", "bos", "eos", "special_in_text", "backend", "max_doc_bytes", "oversized", "dtype")
_CHAT_WORDS = ("tokenizer", "bos", "eos", "special_in_text", "dtype", "seq_len")
_PACKING_WORDS = ("packing", "seq_len", "long_docs", "tail", "doc_ids")
_TEXT, _MESSAGES = "text", "messages"
# About four bytes of text make a token.
_TEXT_BYTES_PER_TOKEN = 4


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
    widths = {"uint16": 2, "uint32": 4, "int32": 4}
    ratio = widths[encode.vocabulary.dtype] / _TEXT_BYTES_PER_TOKEN
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
    encode = _restored_encode(first, tokenizer)
    if json.loads(json.dumps(encode.recipe())) != dict(first):
        differing = [name for name, value in encode.recipe().items() if value != first.get(name)]
        raise UsageError(
            f"expected the tokenizer and libraries the dataset was packed with, got others: {', '.join(differing)} of {tokenizer}; "
            "name that tokenizer, and install those versions"
        )
    return (encode, *(plugins.restored("transforms", one) for one in others))


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
    from shardtools.transforms.packing import Packing

    seed_word = {} if seed is None else {"seed": str(seed)}
    path = words.get("text_key")
    if "chat" in words:
        encode, notes = _chat(words)
        packing_words = {**_taken(words, _PACKING_WORDS), **seed_word}
        if packing_words.get("packing") == "concat":
            raise UsageError("expected --packing none or bfd with --chat, got concat, which cuts chats in two")
        # No chat that comes to packing is longer than a row.
        packing_words["long_docs"] = "drop"
        if packing_words.get("packing") == "none" or "seq_len" not in words:
            packing_words.pop("seq_len", None)
            packing_words.pop("long_docs")
        return TokenOrder(encode, Packing.from_options(packing_words), Wanted(Field(_MESSAGES, "json"), path), tuple(notes))
    encode, notes = _tokenize({**words, **seed_word})
    packing = Packing.from_options({**_taken(words, _PACKING_WORDS), **seed_word})
    return TokenOrder(encode, packing, Wanted(Field(_TEXT, "str"), path), tuple(notes))


def _tokenize(words: Mapping[str, str]) -> tuple[Any, Sequence[str]]:
    from shardtools.transforms.tokenize import settle_tokenizer

    return settle_tokenizer(_taken(words, (*_TOKENIZE_WORDS, "seed")))


def _chat(words: Mapping[str, str]) -> tuple[Any, Sequence[str]]:
    from shardtools.transforms.chat import settle_chat

    for name in ("backend", "max_doc_bytes", "oversized"):
        if name in words:
            raise UsageError(f"expected no --{name.replace('_', '-')} with --chat, got it; leave it out")
    taken = _taken(words, _CHAT_WORDS)
    long_docs = words.get("long_docs", "drop")
    if long_docs == "split":
        raise UsageError("expected --long-docs truncate or drop with --chat, got split: half a chat teaches nothing")
    if "long_docs" in words and "seq_len" not in words:
        raise UsageError(f"expected --seq-len N with --long-docs {long_docs}, got none; it says what is long")
    return settle_chat({**taken, "long_docs": long_docs})


def _taken(words: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    return {name: words[name] for name in names if name in words}

"""Chats to token ids and loss masks, by the template of ``tokenizer_config.json``: as ``apply_chat_template`` has them, safely."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shardtools.errors import UsageError
from shardtools.sample import Batch, Field
from shardtools.transforms import PartitionWork
from shardtools.transforms._chat_encode import ChatEncoder, Mask
from shardtools.transforms._chat_render import ChatRenderer
from shardtools.transforms._chat_settings import find_template, find_variables
from shardtools.transforms._chat_template import TemplateRefusedError, load_template, marks_generation
from shardtools.transforms._chat_turns import TurnMarks, settle_turns
from shardtools.transforms._columns import LOSS_MASK, TOKENS
from shardtools.transforms._tokenize_documents import PARSE, REJECT, SPLIT, Tokens
from shardtools.transforms._tokenize_ends import AUTO, NONE, Ends, settle_ends
from shardtools.transforms._tokenize_file import TokenizerFile
from shardtools.transforms._tokenize_hf import load_hf
from shardtools.transforms._tokenize_options import DTYPES, Vocabulary, choice, whole_number
from shardtools.transforms._tokenize_texts import BadTextError

DROP, TRUNCATE = "drop", "truncate"


@dataclass(frozen=True)
class Chat:
    """One chat a sample: its messages become ``tokens``, ``[n] dtype``, and ``loss_mask``, ``[n] uint8``.

    The ids are those of ``apply_chat_template``, but text in messages that spells a control token is text. The mask is 1
    on what the assistant writes: where the template has ``{% generation %}``, what that holds; else each turn of the
    assistant with its end-of-turn token (``_chat_turns.written_spans`` says where a turn begins). A token that lies
    across such a border counts. The first token of a chat is never in the loss.

    Chats are never split: those longer than ``seq_len`` are dropped or lose their end. ``PartitionWork.counts``:
    ``documents``, ``tokens-in`` (before that), ``loss-tokens``, ``chats-dropped``, ``tokens-dropped``,
    ``chats-truncated``, ``tokens-truncated``, ``special:{literal}`` (in messages), ``bos-present``, ``eos-present``.
    """

    vocabulary: Vocabulary
    template: str
    variables: tuple[tuple[str, Any], ...]
    """What the template is given beside the messages: the names of special tokens."""
    turns: TurnMarks
    special_in_text: str
    ends: Ends
    """Nothing by default: the template writes what begins and ends a chat."""
    seq_len: int | None = None
    """How many tokens a chat may have, None for any number."""
    long_docs: str = DROP
    column: str = "messages"

    option_names: ClassVar[tuple[str, ...]] = (*("tokenizer", "column", "bos", "eos", "special_in_text", "dtype", "seq_len", "long_docs"),)

    @classmethod
    def from_options(cls, words: Mapping[str, str]) -> "Chat":
        return settle_chat(words)[0]

    def recipe(self) -> dict[str, Any]:
        return {
            "name": "chat",
            **self.vocabulary.recipe(),
            "column": self.column,
            "template_sha256": hashlib.sha256(self.template.encode()).hexdigest(),
            "variables": dict(self.variables),
            "end_of_turn": self.turns.end_of_turn,
            "special_in_text": self.special_in_text,
            "bos_id": self.ends.bos_id,
            "eos_id": self.ends.eos_id,
            "seq_len": self.seq_len,
            "long_docs": self.long_docs,
        }

    def fields(self, given: tuple[Field, ...]) -> tuple[Field, ...]:
        names = ", ".join(field.name for field in given) or "none"
        if [field.name for field in given] != [self.column]:
            raise UsageError(f"expected one field, the messages {self.column!r}, got {names}; choose it with --text-key, or with --map")
        if given[0].encoding != "json":
            raise UsageError(f"expected field {self.column!r} to be a list of messages, got {given[0].encoding}; choose another")
        return (Field(TOKENS, f"ndarray:{self.vocabulary.dtype}"), Field(LOSS_MASK, "ndarray:uint8"))

    def apply(self, batches: Iterator[Batch], work: PartitionWork) -> Iterator[Batch]:
        tokenizer = self.vocabulary.encoder(parses=False)
        renderer = ChatRenderer(load_template(self.template, self.variables), self.template, tokenizer.pattern)
        encoder = ChatEncoder(tokenizer, self.special_in_text, self.turns, marks_generation(self.template))
        for batch in batches:
            kept: list[int] = []
            tokens: list[Tokens] = []
            masks: list[Mask] = []
            for i, messages in enumerate(batch.columns[self.column]):
                try:
                    found = self._fitted(*self._encoded(messages, renderer, encoder, work.counts), work.counts)
                except BadTextError as error:
                    work.reject(error.reject(batch.where(i)))
                    continue
                if found is not None:
                    kept.append(i)
                    tokens.append(found[0])
                    masks.append(found[1])
            work.counts["documents"] += len(kept)
            work.counts["loss-tokens"] += sum(int(mask.sum()) for mask in masks)
            if kept:
                whole = batch.take(kept)
                yield Batch(whole.keys, {TOKENS: tokens, LOSS_MASK: masks}, whole.where)

    def _encoded(self, messages: Any, renderer: ChatRenderer, encoder: ChatEncoder, counts: Counter[str]) -> tuple[Tokens, Mask]:
        chat = renderer.render(messages)
        ids, mask = encoder.encode(chat, counts)
        tokens = self.ends.around(ids, self.vocabulary.dtype, counts)
        counts["tokens-in"] += len(tokens)
        before, behind = self.ends.missing(ids)
        # An EOS after an answer is how the model learns to stop.
        return tokens, np.concatenate([np.zeros(before, np.uint8), mask, np.full(behind, chat.ends_in_answer, np.uint8)])

    def _fitted(self, tokens: Tokens, mask: Mask, counts: Counter[str]) -> tuple[Tokens, Mask] | None:
        """At most ``seq_len`` tokens; None for a chat that is dropped. Raises BadTextError where no answer is left."""
        too_many = len(tokens) - self.seq_len if self.seq_len is not None else 0
        if too_many <= 0:
            return tokens, mask
        if self.long_docs == DROP:
            counts["chats-dropped"] += 1
            counts["tokens-dropped"] += len(tokens)
            return None
        kept, kept_mask = tokens[: self.seq_len], mask[: self.seq_len]
        if not kept_mask.any():
            counts["tokens-dropped"] += len(tokens)
            raise BadTextError(
                "no-assistant-turn",
                f"expected something an assistant says in the first {self.seq_len:,} tokens, got none; "
                "use a longer --seq-len or --long-docs drop",
            )
        counts["chats-truncated"] += 1
        counts["tokens-truncated"] += too_many
        return kept, kept_mask


def settle_chat(words: Mapping[str, str]) -> tuple[Chat, list[str]]:
    """The transform that a user's words ask for, every choice made, and the choices as sentences. Raises UsageError."""
    if "tokenizer" not in words:
        raise UsageError(
            "expected --tokenizer FILE or DIR with --chat, got none; name a tokenizer.json with a tokenizer_config.json beside it"
        )
    special = choice(words, "special_in_text", (SPLIT, PARSE, REJECT))
    long_docs = choice(words, "long_docs", (DROP, TRUNCATE))
    dtype = choice(words, "dtype", DTYPES)
    seq_len = whole_number(words, "seq_len", 2)
    file = TokenizerFile.at(words["tokenizer"])
    config = file.config()
    template, variables = find_template(config), find_variables(config)
    encoder = load_hf(file, parses=False)
    if encoder.finds_literals_late:
        raise UsageError("expected a tokenizer that looks for its added tokens in the text as it stands, got one that normalises it first")
    vocabulary = Vocabulary.settle(file, encoder, dtype)
    bos, eos = ({AUTO: NONE}.get(word, word) for word in (words.get("bos", AUTO), words.get("eos", AUTO)))
    ends, end_notes = settle_ends(encoder, config, bos, eos)
    try:
        compiled = load_template(template, variables)
    except TemplateRefusedError as error:
        raise UsageError(f"expected a chat template that jinja2 takes, but it says: {error}") from None
    turns = settle_turns(ChatRenderer(compiled, template, encoder.pattern))
    notes = [vocabulary.note, _mask_note(template, turns)]
    notes += end_notes if ends != Ends() else []
    chat = Chat(vocabulary, template, variables, turns, special, ends, seq_len, long_docs, words.get("column", "messages"))
    return chat, notes


def _mask_note(template: str, turns: TurnMarks) -> str:
    if marks_generation(template):
        return "the loss is on what the template marks as generated"
    end = (
        f"with {turns.end_of_turn} after each"
        if turns.end_of_turn is not None
        else "without any token after them, as the template has none"
    )
    return f"the loss is on the turns of the assistant, {end}"

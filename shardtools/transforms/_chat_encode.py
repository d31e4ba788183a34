"""A rendered chat to ids and a loss mask: control tokens where the template spells them, nowhere else."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardtools.transforms._chat_origins import TEMPLATE
from shardtools.transforms._chat_render import RenderedChat
from shardtools.transforms._chat_turns import Span, TurnMarks, written_spans
from shardtools.transforms._tokenize_documents import PARSE, REJECT
from shardtools.transforms._tokenize_file import AddedToken
from shardtools.transforms._tokenize_hf import HfEncoder, Ids
from shardtools.transforms._tokenize_texts import BadTextError, head_of

Mask = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]
_HARMLESS = "x"


@dataclass(frozen=True)
class ChatEncoder:
    """A tokenizer, and what is done where a message spells a control token."""

    tokenizer: HfEncoder
    special_in_text: str
    turns: TurnMarks
    has_generation: bool
    """The template says itself what the model writes."""

    def encode(self, chat: RenderedChat, counts: Counter[str]) -> tuple[Ids, Mask]:
        """``[n]`` ids and ``[n]`` 1 for what the assistant wrote. Raises BadTextError where the policy refuses the chat."""
        controls, forged = self._literals(chat)
        counts.update(f"special:{chat.text[begin:end]}" for begin, end in forged)
        if forged and self.special_in_text == REJECT:
            begin, end = forged[0]
            raise BadTextError(
                "special-in-text",
                f"expected messages that spell no special token, got {chat.text[begin:end]!r}; use --special-in-text split or parse",
                head_of(chat.text),
            )
        if forged and self.special_in_text != PARSE:
            ids, offsets = self._encode_apart(chat.text, controls, forged)
        else:
            ids, offsets = self.tokenizer.encode_with_offsets(chat.text, parses=True)
        spans = chat.generated if self.has_generation else written_spans(chat, self.turns, controls)
        mask = _mask(len(chat.text), spans, offsets)
        # Nothing comes before the first token that could predict it.
        mask[:1] = 0
        if not mask.any():
            raise BadTextError(
                "no-assistant-turn", "expected a chat with something an assistant says, got none; leave it out", head_of(chat.text)
            )
        return ids, mask

    def _literals(self, chat: RenderedChat) -> tuple[list[Span], list[Span]]:
        """Where the template spells control tokens, and where messages have a part in spelling one."""
        controls: list[Span] = []
        forged: list[Span] = []
        at = 0
        while (found := self.tokenizer.pattern.search(chat.text, at)) is not None:
            begin, end = found.span()
            is_control = bool((chat.origins[begin:end] == TEMPLATE).all())
            (controls if is_control else forged).append((begin, end))
            at = end if is_control else begin + 1
        return controls, forged

    def _encode_apart(self, text: str, controls: Sequence[Span], forged: Sequence[Span]) -> tuple[Ids, Offsets]:
        """Control tokens as ids, all that lies between them as plain text.

        Raises BadTextError for a tokenizer that does not treat the text between two control tokens on its own.
        """
        harmless = list(text)
        for begin, _ in forged:
            harmless[begin] = _HARMLESS
        proof = "".join(harmless)
        if not np.array_equal(self._between(proof, controls)[0], self.tokenizer.encode_with_offsets(proof, parses=True)[0]):
            raise BadTextError(
                "special-in-text",
                "expected messages that spell no special token, as this tokenizer cannot encode the text between two on its own; "
                "repair the chat, or use --special-in-text parse",
                head_of(text),
            )
        return self._between(text, controls)

    def _between(self, text: str, controls: Sequence[Span]) -> tuple[Ids, Offsets]:
        added = {token.content: token for token in self.tokenizer.parsed.added}
        ids: list[Ids] = []
        offsets: list[Offsets] = []
        at = 0
        for begin, end in [*controls, (len(text), len(text))]:
            token = added.get(text[begin:end])
            low, high = _stripped(text, at, begin, token)
            run_ids, run_offsets = self.tokenizer.encode_with_offsets(text[low:high], parses=False)
            ids.append(run_ids)
            offsets.append(run_offsets + low)
            at = end
            if token is not None:
                ids.append(np.array([token.id], np.uint32))
                offsets.append(np.array([[begin, end]], np.int64))
                at = len(text) - len(text[end:].lstrip()) if token.rstrip else end
        return np.concatenate(ids), np.concatenate(offsets)


def _stripped(text: str, low: int, high: int, token: AddedToken | None) -> Span:
    """The bounds of a run of text before a token that may take the white space before it."""
    return (low, low + len(text[low:high].rstrip())) if token is not None and token.lstrip else (low, max(low, high))


def _mask(num_chars: int, spans: Sequence[Span], offsets: Offsets) -> Mask:
    """1 for each token that holds a character of a span."""
    steps = np.zeros(num_chars + 1, np.int64)
    for begin, end in spans:
        steps[begin] += 1
        steps[end] -= 1
    inside = np.concatenate([[0], np.cumsum(np.cumsum(steps[:-1]) > 0)])
    begins, ends = offsets[:, 0], offsets[:, 1]
    # Tokenizers may say of white space that it has no width: it is where it ends.
    begins = np.where((begins == ends) & (begins > 0), begins - 1, begins)
    mask: Mask = (inside[ends] > inside[begins]).astype(np.uint8)
    return mask

"""Which characters of a rendered chat the model is to learn to write."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardtools.errors import UsageError
from shardtools.transforms._chat_origins import ANSWER, OTHERS, TAGGED_ANSWER, TEMPLATE
from shardtools.transforms._chat_render import ChatRenderer, RenderedChat
from shardtools.transforms._chat_template import TemplateRefusedError
from shardtools.transforms._tokenize_texts import BadTextError

Span = tuple[int, int]
_PROBES = (
    (("user", "one"), ("assistant", "two"), ("user", "three"), ("assistant", "four")),
    (("system", "zero"), ("user", "one"), ("assistant", "two"), ("user", "three"), ("assistant", "four")),
    (("user", "one"), ("assistant", "two")),
)


@dataclass(frozen=True)
class TurnMarks:
    """How a template frames what the assistant says."""

    prompt: str
    """What stands before it: the template's generation prompt, empty where it has none."""
    end_of_turn: str | None
    """The control token after it, None where there is none."""


def settle_turns(renderer: ChatRenderer) -> TurnMarks:
    """Found by rendering a small chat. Raises UsageError where the template takes none."""
    refusal = ""
    for probe in _PROBES:
        messages = [{"role": role, "content": content} for role, content in probe]
        try:
            chat = renderer.render(messages)
            return TurnMarks(_prompt(renderer, messages), _end_of_turn(chat, renderer.pattern))
        except BadTextError as error:
            refusal = error.sentence
    raise UsageError(f"expected a chat template that takes a user's and an assistant's message, but: {refusal}")


def _prompt(renderer: ChatRenderer, messages: list[dict[str, str]]) -> str:
    asked = messages[: [message["role"] for message in messages].index("assistant")]
    try:
        before = renderer.template.render(asked)
        after = renderer.template.render(asked, add_generation_prompt=True)
    except TemplateRefusedError:
        return ""
    return after[len(before) :] if after.startswith(before) else ""


def _end_of_turn(chat: RenderedChat, pattern: re.Pattern[str]) -> str | None:
    answers = np.flatnonzero(chat.origins == ANSWER)
    if not len(answers):
        return None
    after = answers[0]
    others = np.flatnonzero(chat.origins[after:] == OTHERS)
    found = pattern.search(chat.text, int(after), int(after + others[0]) if len(others) else len(chat.text))
    return found[0] if found else None


def written_spans(chat: RenderedChat, marks: TurnMarks, controls: Sequence[Span]) -> list[Span]:
    """Begin and end of what the assistant says, in characters, where the template does not say it itself.

    A turn begins with the first character of its message, or, where the template writes tags around parts of it (tool
    calls, reasoning), right after the generation prompt, as the model has to write those too. It ends with the
    end-of-turn token, or with the last character of the message where there is none before the next message.
    ``controls`` are the control tokens of the template.
    """
    ends = np.array([end for begin, end in controls if chat.text[begin:end] == marks.end_of_turn], np.int64)
    is_answer = (chat.origins == ANSWER) | (chat.origins == TAGGED_ANSWER)
    answers, others = np.flatnonzero(is_answer), np.flatnonzero(chat.origins == OTHERS)
    spans: list[Span] = []
    at = 0
    while (k := int(np.searchsorted(answers, at))) < len(answers):
        begin = int(answers[k])
        limit = _first(others, begin, len(chat.text))
        end = _first(ends, begin, limit + 1)
        if end > limit:
            end = int(answers[np.searchsorted(answers, limit) - 1]) + 1
        spans.append((_begin(chat, marks, at, begin), end))
        at = end
    return spans


def _first(sorted_places: "np.typing.NDArray[np.int64]", least: int, otherwise: int) -> int:
    k = int(np.searchsorted(sorted_places, least, "right"))
    return min(int(sorted_places[k]), otherwise) if k < len(sorted_places) else otherwise


def _begin(chat: RenderedChat, marks: TurnMarks, least: int, begin: int) -> int:
    if chat.origins[begin] != TAGGED_ANSWER or not marks.prompt:
        return begin
    found = chat.text.rfind(marks.prompt, least, begin)
    after = found + len(marks.prompt)
    return after if found >= 0 and (chat.origins[found:after] == TEMPLATE).all() else begin

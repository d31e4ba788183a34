"""A chat as text, with the origin of every character."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from shardtools.sample import brief, is_too_deep
from shardtools.transforms._chat_origins import ANSWER, OTHERS, TAGGED_ANSWER, PrivateCharacters, TooManyCharactersError, traced
from shardtools.transforms._chat_template import ChatTemplate, TemplateRefusedError
from shardtools.transforms._tokenize_texts import BadTextError, text_of

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class RenderedChat:
    """The text of a chat as its template makes it."""

    text: str
    origins: npt.NDArray[np.uint8]
    """[characters of text]: TEMPLATE, OTHERS, ANSWER or TAGGED_ANSWER."""
    generated: tuple[tuple[int, int], ...]
    """Begin and end, in characters, of what the template says the model writes."""

    @property
    def ends_in_answer(self) -> bool:
        written = np.flatnonzero(self.origins)
        return len(written) > 0 and self.origins[written[-1]] in (ANSWER, TAGGED_ANSWER)


@dataclass(frozen=True)
class ChatRenderer:
    """Renders chats with one template."""

    template: ChatTemplate
    source: str
    pattern: re.Pattern[str]
    """Matches what spells a control token."""

    @cached_property
    def _letters(self) -> frozenset[str]:
        return frozenset(self.source)

    def render(self, messages: Any) -> RenderedChat:
        """Raises BadTextError for what is no chat, and for one that the template refuses or changes beyond recognition."""
        self._check(messages)
        expected = self._run(messages)
        text_of(expected)
        private = PrivateCharacters(self._letters.union(*_strings(messages)))
        try:
            marks = private.one(), private.one()
            given = [self._traced(message, private) for message in messages]
            marked = self._run(given, marks)
            text, generated = _without_marks(marked, marks)
        except TooManyCharactersError:
            raise BadTextError("too-many-characters", "expected a chat of fewer different characters; leave it out") from None
        if private.real(text) != expected:
            raise BadTextError(
                "template-changes-text",
                "expected a template that puts the text of messages where it belongs, but this one changes it "
                "in a way that cannot be followed; simplify the template, or change the messages as it does",
            )
        origins = np.frombuffer(private.origins(text).encode("latin-1"), np.uint8)
        return RenderedChat(expected, origins, generated)

    def _run(self, messages: list[Any], marks: tuple[str, str] = ("", "")) -> str:
        try:
            return self.template.render(messages, marks=marks)
        except TemplateRefusedError as error:
            raise BadTextError("chat-template", f"expected a chat that its template takes, but the template says: {error}") from None

    def _traced(self, message: Mapping[str, Any], private: PrivateCharacters) -> dict[Any, Any]:
        """Roles stay as they are: templates build control tokens of them."""
        given: dict[Any, Any] = {}
        for name, value in message.items():
            origin = OTHERS
            if message["role"] == "assistant":
                has_tags = name != "content" or any(map(self.pattern.search, _strings(value)))
                origin = TAGGED_ANSWER if has_tags else ANSWER
            given |= {"role": value} if name == "role" else traced({name: value}, private, origin)
        return given

    def _check(self, messages: Any) -> None:
        if not isinstance(messages, list) or not messages:
            raise BadTextError("not-a-chat", f"expected a list of messages, got {type(messages).__name__} {brief(messages)}")
        if is_too_deep(messages):
            raise BadTextError("not-a-chat", "expected messages of a few levels, got too many objects and lists in each other")
        for message in messages:
            role = message.get("role") if isinstance(message, dict) else None
            if not isinstance(role, str):
                raise BadTextError("not-a-chat", f"expected messages with a role and content, got {brief(message)}")
            if role not in ROLES and not (_ROLE.fullmatch(role) and re.search(rf"['\"]{role}['\"]", self.source)):
                raise BadTextError(
                    "unknown-role", f"expected a role of {', '.join(ROLES)}, or one that the template names, got {brief(role)}"
                )


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.items() for inner in item for text in _strings(inner)]
    return [text for inner in value for text in _strings(inner)] if isinstance(value, list) else []


def _without_marks(marked: str, marks: tuple[str, str]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The text, and where the marks stood in it."""
    begin_mark, end_mark = marks
    pieces = re.split(f"([{begin_mark}{end_mark}])", str.__str__(marked))
    text: list[str] = []
    spans: list[tuple[int, int]] = []
    at = begin = 0
    for piece in pieces:
        if piece == begin_mark:
            begin = at
        elif piece == end_mark:
            spans.append((begin, at))
        else:
            text.append(piece)
            at += len(piece)
    return "".join(text), tuple(spans)

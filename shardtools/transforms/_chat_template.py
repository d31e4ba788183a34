"""Chat templates, run as ``transformers`` runs them: the text that a model was trained on and is asked with.

Source: huggingface/transformers 4.57, src/transformers/utils/chat_template_utils.py, _compile_jinja_template. What differs:
``strftime_now`` is not there, since a date would make other bytes every day; templates that ask for it first whether it is
there use the date they have.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from shardtools.transforms._chat_origins import joined, to_json

_MARKS = "generation_marks"


class TemplateRefusedError(Exception):
    """The template raised, or cannot be run; the message is one line."""


class _Generation(Extension):
    """``{% generation %}`` ... ``{% endgeneration %}``: what the model writes."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_marked"), [], [], body).set_lineno(line)

    @jinja2.pass_context
    def _marked(self, context: Context, caller: Callable[[], str]) -> str:
        begin, end = context.get(_MARKS, ("", ""))
        return joined([begin, caller(), end])


class ChatTemplate:
    """A compiled template with the variables that are the same for all chats."""

    def __init__(self, source: str, variables: Mapping[str, Any]) -> None:
        """Raises TemplateRefusedError."""
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        environment.filters["tojson"] = to_json
        environment.globals["raise_exception"] = _raise
        environment.concat = joined  # type: ignore[method-assign]
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise TemplateRefusedError(_line(error)) from None
        self._variables = {"tools": None, "documents": None, **variables}

    def render(self, messages: list[Any], *, marks: tuple[str, str] = ("", ""), add_generation_prompt: bool = False) -> str:
        """The chat as text; ``marks`` are put around what the model writes. Raises TemplateRefusedError."""
        given = {**self._variables, _MARKS: marks, "messages": messages, "add_generation_prompt": add_generation_prompt}
        try:
            return str(self._template.render(given))
        except RecursionError:
            raise TemplateRefusedError("it calls itself without end") from None
        except Exception as error:
            raise TemplateRefusedError(_line(error)) from None


@lru_cache(maxsize=2)
def load_template(source: str, variables: tuple[tuple[str, Any], ...]) -> ChatTemplate:
    """One per process. Raises TemplateRefusedError."""
    return ChatTemplate(source, dict(variables))


def marks_generation(source: str) -> bool:
    """Whether the template says what the model writes."""
    tokens = jinja2.Environment(extensions=[_Generation, loopcontrols]).lex(source)
    previous = ""
    for _, kind, value in tokens:
        if kind == "name" and value == "generation" and previous == "block_begin":
            return True
        previous = previous if kind == "whitespace" else kind
    return False


def _raise(message: str) -> str:
    raise jinja2.TemplateError(message)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__

"""Printing: results on standard output, everything else on standard error."""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import click

from shardtools.errors import ShardtoolsError
from shardtools.units import printable

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True)
class Answer:
    """What a command ends with: lines for standard output and an exit code, known before the first line is printed."""

    lines: Iterable[str] = ()
    code: int = 0
    remark: str = ""
    """Said on standard error, after the lines."""


class AnsweredError(Exception):
    """Ends the parsing of a command line that is answered already, by its help."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


def give(answer: Answer) -> int:
    """Print an answer. Its code stays what it is when the reader has seen enough and is gone."""
    try:
        for line in answer.lines:
            click.echo(line)
        if sys.stdout is not None:  # whoever closed it wants no result
            sys.stdout.flush()
    except BrokenPipeError:
        _detach_output()
    except OSError as error:
        _detach_output()
        say(f"error: could not write the result to standard output: {error.strerror}; send it to another place")
        return ShardtoolsError.exit_code
    if answer.remark:
        say(answer.remark)
    return answer.code


def _detach_output() -> None:
    # Python would try once more while it exits, and complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(message: str) -> None:
    """A line for people, on standard error. What cannot be said is no reason to stop."""
    with suppress(OSError):
        click.echo(shown(message), err=True)


def shown(text: str) -> str:
    """Text in one line that a terminal takes as text: names of files may hold anything."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), printable(text))


def json_lines(value: Any) -> Iterator[str]:
    """A result for programs."""
    yield json.dumps(value, indent=2)


def table_lines(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A result for people: names and values in two columns."""
    pairs = [(shown(name), shown(value)) for name, value in rows]
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        yield f"{name:<{width}}  {value}".rstrip()

"""Printing: results on standard output, everything else on standard error."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import click


def say(message: str) -> None:
    """A line for people, on standard error."""
    click.echo(message.encode("utf-8", "backslashreplace").decode(), err=True)


def print_json(value: Any) -> None:
    """A result for programs, on standard output."""
    click.echo(json.dumps(value, indent=2))


def print_table(rows: Iterable[tuple[str, str]]) -> None:
    """A result for people: names and values in two columns, on standard output."""
    pairs = list(rows)
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        click.echo(f"{name:<{width}}  {value}".encode("utf-8", "backslashreplace").decode().rstrip())


def print_columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table with a header, as wide as its cells."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in (header, *rows):
        click.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())

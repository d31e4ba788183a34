"""Options in named groups, and examples under each command."""

from collections.abc import Callable, Sequence
from typing import Any

import click


class GroupedOption(click.Option):
    """An option that says under which heading of the help it belongs."""

    def __init__(self, *args: Any, heading: str = "Options", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.heading = heading


class GroupedCommand(click.Command):
    """A command whose help shows options by heading and ends in examples."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(parameter, "heading", "Help"), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write_text(example)


def options(heading: str, *declarations: tuple[Sequence[str], dict[str, Any]]) -> Callable[[Any], Any]:
    """A decorator that adds options under one heading, in the order they are given."""

    def decorate(function: Any) -> Any:
        for names, settings in reversed(declarations):
            function = click.option(*names, cls=GroupedOption, heading=heading, **settings)(function)
        return function

    return decorate


def option(*names: str, **settings: Any) -> tuple[Sequence[str], dict[str, Any]]:
    """One option for ``options``."""
    return names, settings

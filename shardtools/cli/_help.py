"""Options in named groups, gathered into the values that commands take, and examples under each command."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from shardtools.cli._output import Answer, AnsweredError


class GroupedOption(click.Option):
    """An option that knows its heading in the help, the parameter it goes into, and the plug-in that reads it."""

    def __init__(
        self, *args: Any, heading: str, into: str | None = None, of: str | None = None, instead_of: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.heading = heading
        self.into = into
        """A parameter of the command that ``GroupedCommand.gathers`` makes of several options; None: one of its own name."""
        self.of = of
        """``source``, ``format`` or ``engine``: its word goes into ``{of}_options``, if it was given."""
        self.instead_of = instead_of
        """The parameter of the option that says the same in another unit: typed, it wins over this one in a recipe."""

    def handle_parse_result(self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]) -> tuple[Any, list[str]]:
        if self.instead_of in opts and ctx.default_map is not None:
            ctx.default_map.pop(str(self.name), None)
        return super().handle_parse_result(ctx, opts, args)


class GroupedCommand(click.Command):
    """A command whose help shows options by heading and ends in examples."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), gathers: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples
        self.gathers = gathers or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click's parser does not know which command's help would help
            raise

    def invoke(self, ctx: click.Context) -> Any:
        ctx.obj = dict(ctx.params)  # every option's value before they are gathered
        for name, kind in self.gathers.items():
            ctx.params[name] = kind(**self._gathered(ctx, name))
        return super().invoke(ctx)

    def _gathered(self, ctx: click.Context, into: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for parameter in self.params:
            if not isinstance(parameter, GroupedOption) or parameter.into != into:
                continue
            if parameter.name is None or not parameter.expose_value:
                continue
            value = ctx.params.pop(parameter.name)
            if parameter.of is None:
                values[parameter.name] = value
                continue
            words = values.setdefault(f"{parameter.of}_options", {})
            if value is not None and value is not False:
                words[parameter.name] = "" if value is True else str(value)
        return values

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        return answering(super().get_help_option(ctx))

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
                formatter.write(f"{'':{formatter.current_indent}}{example}\n")


def answering(option: click.Option | None) -> click.Option | None:
    """A help option that leaves the printing to whoever called the command."""

    def show(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            raise AnsweredError(Answer([ctx.get_help()]))

    if option is not None:
        option.callback = show
    return option


def options(heading: str, *declarations: tuple[Sequence[str], dict[str, Any]], into: str | None = None) -> Callable[[Any], Any]:
    """A decorator that adds options under one heading, in the order they are given."""

    def decorate(function: Any) -> Any:
        for names, settings in reversed(declarations):
            function = click.option(*names, cls=GroupedOption, heading=heading, into=into, **settings)(function)
        return function

    return decorate


def option(*names: str, **settings: Any) -> tuple[Sequence[str], dict[str, Any]]:
    """One option for ``options``."""
    return names, settings

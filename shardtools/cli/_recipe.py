"""``--recipe FILE.toml``: options of a command by their names in a file, and the writing of one.

The file holds no SRC and DST. A key is an option's name without its dashes, by itself or under the heading it has in the help
(``[output]``); a value is what the option takes: ``true`` for a flag, a number, or text. Paths are what they are on the command
line: relative to the current folder.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import click
from click.core import ParameterSource

from shardtools.cli._help import GroupedOption, option
from shardtools.errors import StorageError, UsageError
from shardtools.sample import brief

_OF_THE_COMMAND = ("recipe", "write-recipe", "dry-run")
"""No part of any recipe."""
_OF_ONE_RUN = ("json", "overwrite", "part", "endpoint-url")
"""May stand in a recipe, but are not written into one: the next run may want to do without."""


def recipe_options() -> tuple[Any, Any]:
    """For ``options``: the one to read and the one to write."""
    read = option(
        "--recipe",
        metavar="FILE.toml",
        is_eager=True,
        expose_value=False,
        callback=_use,
        help="Take options from a file, by their names; those of the command line win.",
    )
    return read, option("--write-recipe", metavar="FILE.toml", help="With --dry-run: write such a file of the options given.")


def write_recipe(path: str, context: click.Context) -> None:
    """Write the options that were given to the command of a context, on the command line or in a recipe, as a new file.

    Raises UsageError where there is such a file.
    """
    lines = [f"# {context.command_path} SRC... DST --recipe THIS_FILE"]
    for heading, options in _by_heading(context.command).items():
        chosen = {key: context.obj[one.name] for key, one in options.items() if key not in _OF_ONE_RUN and _is_given(context, one)}
        if chosen:
            lines += ["", f"[{heading}]", *(f"{key} = {_toml(value)}" for key, value in chosen.items())]
    try:
        data = "\n".join([*lines, ""]).encode()
        with open(path, "xb") as file:
            file.write(data)
    except FileExistsError:
        raise UsageError(f"expected a new file with --write-recipe, got {path}, which is there; remove it or name another") from None
    except UnicodeEncodeError:
        raise UsageError("expected options of UTF-8 text with --write-recipe, got others, which no TOML file holds; leave it out") from None
    except OSError as error:
        raise StorageError(f"could not write {path}: {error.strerror}; name another file with --write-recipe") from None


def _use(ctx: click.Context, _: click.Parameter, path: str | None) -> None:
    """Make what the file says the defaults of this command line."""
    if path is None or ctx.resilient_parsing:
        return
    options = {key: (heading, one) for heading, found in _by_heading(ctx.command).items() for key, one in found.items()}
    values: dict[str, Any] = {}
    text = _text(path)
    for heading, key, value in _entries(_parsed(text, path), {heading for heading, _ in options.values()}):
        where = f"{path}{_line(text, heading, key)}, {key!r}"
        if key not in options:
            near = difflib.get_close_matches(key, options, 1)
            advice = f"did you mean {near[0]!r}?" if near else f"see {ctx.command_path} --help"
            raise UsageError(f"{where}: expected an option of {ctx.command_path}, got another name; {advice}")
        right, one = options[key]
        if heading not in (None, right):
            raise UsageError(f"{where}: expected it under [{right}] or above all headings, got it under [{heading}]; move it")
        if one.name in values:
            raise UsageError(f"{where}: expected it once, got it twice; remove one")
        values[str(one.name)] = _checked(ctx, one, value, where)
    ctx.default_map = values


def _by_heading(command: click.Command) -> dict[str, dict[str, GroupedOption]]:
    """The options that a recipe may hold, by heading and by name."""
    found: dict[str, dict[str, GroupedOption]] = {}
    for one in command.params:
        if isinstance(one, GroupedOption) and (key := max(one.opts, key=len).removeprefix("--")) not in _OF_THE_COMMAND:
            found.setdefault(one.heading.lower(), {})[key] = one
    return found


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise UsageError(f"expected a recipe at {path}, got none: {error.strerror}; correct --recipe") from None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"expected {path} to be UTF-8 text, got the byte {data[error.start]:#04x} in line {line}; correct it") from None


def _parsed(text: str, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"expected {path} to be TOML text, got an error in it: {error}; correct it") from None
    except RecursionError:
        raise UsageError(f"expected {path} to be options and their values, got values nested too deep; correct it") from None


def _line(text: str, heading: str | None, key: str) -> str:
    """Where an entry stands, for people; empty where it is spelled in a way that only a TOML parser reads."""
    under = None
    for number, line in enumerate(text.split("\n"), 1):
        table, word = re.match(r"\s*\[\s*(.*?)\s*\]", line), re.match(r"\s*([\"']?)(.*?)\1\s*=", line)
        under = table[1] if table else under
        if (heading, key) == ((None, under) if table else (under, word[2] if word else None)):
            return f", line {number}"
    return ""


def _entries(content: Mapping[str, Any], headings: set[str]) -> Iterator[tuple[str | None, str, Any]]:
    """Heading, key and value of every entry."""
    for key, value in content.items():
        if key in headings and isinstance(value, dict):
            yield from ((key, inner, inner_value) for inner, inner_value in value.items())
        else:
            yield None, key, value


def _checked(ctx: click.Context, one: GroupedOption, value: Any, where: str) -> Any:
    """The value as the command line would have it."""
    if one.multiple:
        if not isinstance(value, list):
            raise UsageError(f"{where}: expected a list, got {brief(value)}; put it in brackets")
        return [_one_value(ctx, one, element, where) for element in value]
    return _one_value(ctx, one, value, where)


def _one_value(ctx: click.Context, one: GroupedOption, value: Any, where: str) -> Any:
    is_number = isinstance(one.type, click.types.IntParamType)
    kind, name = (bool, "true or false") if one.is_flag else (int, "a whole number") if is_number else (str, "text")
    if kind is str and type(value) is int:
        value = str(value)  # what a text is read from may be a number: seq-len = 2048
    if type(value) is not kind:
        raise UsageError(f"{where}: expected {name}, got {brief(value)}; correct it")
    try:
        one.type.convert(value, one, ctx)
    except click.BadParameter as error:
        raise UsageError(
            f"{where}: expected a value that the option takes, got {brief(value)}: {error.message.rstrip('.')}; correct it"
        ) from None
    return value


def _is_given(context: click.Context, one: GroupedOption) -> bool:
    return context.get_parameter_source(str(one.name)) in (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    text = str(value)
    if isinstance(value, int) or (text.isdecimal() and text.isascii() and str(int(text)) == text):
        return text
    # A JSON string is a TOML string, but for this one character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

"""Writes the table of every option with its default into the README, or checks that it is current.

python scripts/options_table.py            # rewrite README.md
python scripts/options_table.py --check    # exit 1 if it would change
"""

import argparse
import sys
from importlib import import_module
from pathlib import Path

import click

from shardtools.cli._group import group

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- options: begin -->\n", "<!-- options: end -->\n"


def option_rows(command: click.Command) -> list[str]:
    """A Markdown table row for each option; defaults are what the help says."""
    rows = []
    for parameter in command.params:
        if not isinstance(parameter, click.Option):
            continue
        text, _, default = (parameter.help or "").partition("[default: ")
        value = default.removesuffix("]") or ("required" if parameter.required else "off" if parameter.is_flag else "none")
        names = ", ".join(f"`{name}`" for name in parameter.opts)
        argument = "" if parameter.is_flag else f" `{argument_of(parameter)}`"
        rows.append(f"| {names}{argument.replace('|', chr(92) + '|')} | {value} | {text.strip().replace('|', chr(92) + '|')} |")
    return rows


def argument_of(option: click.Option) -> str:
    """What the option takes: the choices there are, or a word for it; ``[a|b]`` in the help are choices too."""
    choices = getattr(option.type, "choices", None)
    word = "|".join(choices) if choices else option.metavar or option.type.name.upper()
    return word[1:-1] if word.startswith("[") else word


def table() -> str:
    """The tables of all commands."""
    parts = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = import_module(f"shardtools.cli.{name}").command
        parts += [f"**{name}**\n", "| option | default | what it does |", "|---|---|---|", *option_rows(command), ""]
    return "\n".join(parts)


def main() -> None:
    """Exits with 1 when ``--check`` finds the README out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    text = README.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    new = f"{before}{BEGIN}\n{table()}\n{END}{after}"
    if parser.parse_args().check:
        sys.exit(0 if new == text else "README.md is out of date: run python scripts/options_table.py")
    README.write_text(new)


if __name__ == "__main__":
    main()

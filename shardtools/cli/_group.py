"""The command group: imports a command only when it is called, and turns errors into exit codes."""

import gc
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from shardtools import __version__
from shardtools.cli._help import answering
from shardtools.cli._interrupt import ends_at_once
from shardtools.cli._output import Answer, AnsweredError, give, say
from shardtools.engines import GC_THRESHOLD
from shardtools.errors import ShardtoolsError, UsageError

_COMMANDS = {
    "pack": "Pack files, JSON lines, tables or shards into WDS or MDS shards.",
    "verify": "Prove that a dataset is whole and sound.",
    "bench": "Measure small files against shards, up to the GPU.",
    "doctor": "Tell what will break on this machine, and watch it.",
    "inspect": "Show what a dataset is and what is in it.",
    "extract": "Turn shards back into files.",
    "index": "Make index, manifest and sidecars again from sound shards.",
    "merge": "Make one dataset of several.",
}


class _LazyGroup(click.Group):
    """Knows its commands' names and one-line helps without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        with ends_at_once():
            command: click.Command = import_module(f"shardtools.cli.{cmd_name}").command
        return command

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        return answering(super().get_help_option(ctx))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


def _answer_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        raise AnsweredError(Answer([f"shardtools, version {__version__}"]))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_answer_version, help="Show the version and exit.")
def group() -> None:
    """Pack training data into shards, prove that nothing was lost or doubled.

    Exit codes: 0 done, 1 verify found something or bench missed a bound, 2 wrong use, 3 failed at run time, 130 interrupted.
    """


def run() -> NoReturn:
    """Exits with the command's code; a user's mistake is one line on standard error, never a traceback."""
    gc.set_threshold(GC_THRESHOLD)
    sys.exit(give(_answer(sys.argv[1:])))


def _answer(arguments: Sequence[str]) -> Answer:
    try:
        # Not click's own main(): it ends with codes of its own when it is interrupted or a pipe closes.
        with group.make_context("shardtools", list(arguments)) as context:
            answer: Answer = group.invoke(context)
            return answer
    except AnsweredError as answered:
        return answered.answer
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else str(error), err=True)
        return Answer(code=UsageError.exit_code)
    except click.ClickException as error:
        context_path = getattr(getattr(error, "ctx", None), "command_path", "shardtools")
        message = " ".join(error.format_message().split()).rstrip(".")
        say(f"error: {message}; see {context_path} --help")
        return Answer(code=UsageError.exit_code)
    except ShardtoolsError as error:
        say(f"error: {error}")
        return Answer(code=error.exit_code)

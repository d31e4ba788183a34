"""The command group: imports a command only when it is called, and turns errors into exit codes."""

import gc
import os
import sys
from importlib import import_module
from typing import NoReturn

import click

from shardtools import __version__
from shardtools.errors import ShardtoolsError, UsageError

_COMMANDS = {
    "pack": "Pack files or JSON lines into WDS or MDS shards.",
    "verify": "Prove that a dataset is whole and sound.",
    "inspect": "Show what a dataset is and what is in it.",
    "extract": "Turn shards back into files.",
}
INTERRUPTED = 130
_GC_THRESHOLD = 200_000


class _LazyGroup(click.Group):
    """Knows its commands' names and one-line helps without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(f"shardtools.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="shardtools")
def group() -> None:
    """Pack training data into shards, prove that nothing was lost or doubled.

    Exit codes: 0 done, 1 verify found something, 2 wrong use, 3 failed at run time, 130 interrupted.
    """


def run() -> NoReturn:
    """Exits with the command's code; a user's mistake is one line on standard error, never a traceback."""
    # Plans hold millions of objects and no cycles; the default would walk them all again and again.
    gc.set_threshold(_GC_THRESHOLD)
    try:
        # Not click's own main(): it ends with codes of its own when it is interrupted or a pipe closes.
        with group.make_context("shardtools", sys.argv[1:]) as context:
            code = group.invoke(context) or 0
        sys.stdout.flush()
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else str(error), err=True)
        code = UsageError.exit_code
    except click.ClickException as error:
        context_path = getattr(getattr(error, "ctx", None), "command_path", "shardtools")
        message = " ".join(error.format_message().split()).rstrip(".")
        _say_error(f"{message}; see {context_path} --help")
        code = UsageError.exit_code
    except ShardtoolsError as error:
        _say_error(str(error))
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        _say_error("interrupted; run the same command again to go on, finished parts are kept")
        code = INTERRUPTED
    except BrokenPipeError:
        code = 0
    sys.exit(_close_output(code))


def _close_output(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read standard output has seen enough; Python would complain once more while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _say_error(message: str) -> None:
    # Names of files may hold bytes that are no text at all.
    printable = message.encode("utf-8", "backslashreplace").decode()
    click.echo(f"error: {printable}", err=True)

"""The command line: parse, call the library, print. One file per command."""


def main() -> None:
    """Run the command line and exit with its code."""
    # Worker processes import this module too, and need nothing of what follows.
    from shardtools.cli._group import run

    run()

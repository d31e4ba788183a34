"""The command line: parse, call the library, print. One file per command."""


def main() -> None:
    """Run the command line and exit with its code."""
    # Worker processes import this module too, and need nothing of what follows.
    try:
        from shardtools.cli._interrupt import ends_at_once, is_never_ignored

        with ends_at_once():
            from shardtools.cli._group import run
        is_never_ignored()
        run()
    except KeyboardInterrupt:
        from shardtools.cli._interrupt import end

        end()

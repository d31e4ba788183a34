"""What all jobs have: SRC and DST, how the work is run, what is said of it, and one exit code."""

import sys
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable

from shardtools import plugins
from shardtools.build.order import OrderWords, order_of
from shardtools.build.planning import PlannedBuild
from shardtools.build.run import Listener, PartDone, Result, RunOptions, build_part
from shardtools.build.stages.advance import Share
from shardtools.engines import Progress
from shardtools.errors import ShardtoolsError
from shardtools.signals import EndedError, ends_tidily
from shardtools.sources import resolve_inputs
from shardtools.units import Budget, format_bytes, plural

_INTERRUPTED = 130
_SAY_SECONDS = 30.0
"""Between two lines of progress: a log is read afterwards."""


def parser_of(text: str | None) -> ArgumentParser:
    """The arguments of every job; ``text`` is its docstring."""
    parser = ArgumentParser(description=text, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="SRC", help="what is packed: a folder, a file, or s3://BUCKET/PREFIX")
    parser.add_argument("destination", metavar="DST", help="where the dataset goes; all machines must see it")
    parser.add_argument("--engine", choices=plugins.names("engines"), default="processes", help="who does the work (default: %(default)s)")
    parser.add_argument("--workers", metavar="N", help="worker processes (default: one per core)")
    parser.add_argument(
        "--ray-address", metavar="ADDRESS", help="of a cluster's head, or auto on one of its nodes (default: Ray is started here)"
    )
    parser.add_argument("--part", metavar="I/N", help="do this share of the work and leave the rest to other runs; the last publishes")
    parser.add_argument("--max-bad", metavar="N|P%", default="0", help="bad samples to set aside before the run fails (default: 0)")
    parser.add_argument("--overwrite", action="store_true", help="replace the dataset at DST once the new one is built")
    return parser


def given(asked: Namespace, *names: str) -> dict[str, str]:
    """Of these options, those that were given; all jobs call them what ``shardtools pack`` does, so that its messages fit."""
    return {name: getattr(asked, name) for name in names if getattr(asked, name) is not None}


def pack(asked: Namespace, words: OrderWords) -> Result | None:
    """Build what ``words`` order, or finish it, and say what was done. None where work is left to other parts, and no dataset there yet.

    Raises ShardtoolsError.
    """
    engine = plugins.make("engines", asked.engine, given(asked, "workers", "ray_address"), "--engine")
    inputs = resolve_inputs([asked.source])
    part = None if asked.part is None else Share.parse(asked.part)
    options = RunOptions(engine, Budget.parse(asked.max_bad), asked.overwrite, part)
    done = build_part(inputs, asked.destination, order_of(inputs, words), options, Listener(_say_plan, _Log()))
    if isinstance(done, PartDone):
        print(f"part {done.part} done; {done.num_left:,} of {plural(done.num_partitions, 'partition')} left to other parts", flush=True)
        return None
    for warning in done.warnings:
        say(f"warning: {warning}")
    print(summary(done), flush=True)
    return done


def run(job: Callable[[], int]) -> int:
    """The exit code of a job, as of a command of shardtools: a fault is one sentence, and the same job goes on where it stopped."""
    try:
        with ends_tidily():
            return _told(job)
    except ShardtoolsError as error:
        say(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        say("error: interrupted; the same job goes on where it stopped")
        return _INTERRUPTED


def _told(job: Callable[[], int]) -> int:
    try:
        return job()
    except EndedError as ended:
        say(f"error: interrupted by {ended}; the same job goes on where it stopped")
        raise


def packed(asked: Namespace, words: OrderWords) -> int:
    """The whole job of those that only pack: its exit code."""

    def job() -> int:
        pack(asked, words)
        return 0

    return run(job)


def summary(result: Result) -> str:
    """One line of a finished build."""
    manifest, ledger = result.manifest, result.manifest.ledger
    num_bytes = sum(shard.num_bytes for shard in manifest.shards)
    done = "already complete" if result.already_complete else f"{result.seconds:,.1f} s"
    return (
        f"{plural(ledger.num_stored, ledger.stored_noun)} in {plural(len(manifest.shards), 'shard')}, {format_bytes(num_bytes)}; "
        f"{plural(ledger.num_read, ledger.read_noun)} read, {ledger.num_rejected:,} rejected, {ledger.num_filtered:,} left out; {done}"
    )


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _say_plan(planned: PlannedBuild) -> None:
    for note in planned.survey.notes:
        say(f"note: {note}")


class _Log:
    """A line of progress now and then."""

    def __init__(self) -> None:
        self._num_samples = self._num_bytes = 0
        self._said = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        self._num_samples += progress.num_samples
        self._num_bytes += progress.num_bytes
        if time.monotonic() - self._said >= _SAY_SECONDS:
            self._said = time.monotonic()
            say(f"{self._num_samples:,} samples, {format_bytes(self._num_bytes)} so far")

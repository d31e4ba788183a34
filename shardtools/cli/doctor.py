"""``shardtools doctor``: what will break on this machine before it breaks, and what happens on it now."""

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import click

from shardtools.bench.doctor.diagnosis import Diagnosis, diagnose
from shardtools.bench.doctor.live import columns
from shardtools.bench.doctor.live.look import Watch
from shardtools.bench.doctor.request import DoctorRequest, numbers
from shardtools.bench.doctor.terminal import lines
from shardtools.cli._help import GroupedCommand, option, options
from shardtools.cli._output import Answer, json_lines, shown
from shardtools.errors import UsageError
from shardtools.units import parse_bytes

_EXAMPLES = ("shardtools doctor images/ shards/", "shardtools doctor --batch-bytes 38MB --num-workers 8,16 --ranks 8 --json")
_ONE_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class LoaderWords:
    """The options that say what a loader would be."""

    batch_bytes: str | None
    tensors: int
    num_workers: str
    prefetch_factor: str
    ranks: int


@click.command("doctor", cls=GroupedCommand, examples=_EXAMPLES, gathers={"loader": LoaderWords})
@click.argument("uris", metavar="[PATH...]", nargs=-1)
@options(
    "Loader",
    option("--batch-bytes", metavar="SIZE", help="Of a batch. [default: as PATH has, else 64 images]"),
    option("--tensors", type=click.IntRange(1, 1_000_000), default=1, metavar="N", help="Of a batch. [default: 1, or as PATH has]"),
    option("--num-workers", default="1,2,4,8", metavar="W,...", help="Workers to judge. [default: 1,2,4,8]"),
    option("--prefetch-factor", default="2,4,8", metavar="P,...", help="Batches each makes ahead. [default: 2,4,8]"),
    option("--ranks", type=click.IntRange(1, 4096), default=1, metavar="N", help="Training processes on this machine. [default: 1]"),
    into="loader",
)
@options(
    "Watching",
    option("--pid", type=click.IntRange(1), metavar="PID", help="It and all it starts. [default: yours that have torch loaded]"),
    option(
        "--watch",
        is_flag=False,
        flag_value="2",
        default=None,
        metavar="[SECONDS]",
        help="Go on looking, each 2 seconds, until Ctrl-C. [default: one look of a second]",
    ),
    option("--json", "as_json", is_flag=True, help="Print the result as JSON; with --watch a line for each look."),
)
def command(uris: tuple[str, ...], loader: LoaderWords, pid: int | None, watch: str | None, as_json: bool) -> Answer:
    """Tell what breaks at which number of workers before it does, and show disks, processes and memory as they are now.

    Shared memory, descriptors, control groups, libraries, the disk under each PATH, or how its bucket answers; batches are measured
    on the first samples of PATH where torch is installed. Below stand the columns of iostat -xz, pidstat -ru, ipcs -m,
    df -h /dev/shm and nvidia-smi dmon.
    Changes nothing. Exit code 0 with warnings and faults too.
    """
    seconds = None if watch is None else _seconds(watch)
    request = DoctorRequest(
        uris,
        None if loader.batch_bytes is None else parse_bytes(loader.batch_bytes),
        loader.tensors,
        numbers(loader.num_workers, "--num-workers", 0),
        numbers(loader.prefetch_factor, "--prefetch-factor", 1),
        loader.ranks,
        pid,
    )
    found = diagnose(request)
    watching = Watch(found.scope)
    if seconds is not None:
        return Answer(_looks(found, watching, seconds, as_json))
    time.sleep(_ONE_LOOK_SECONDS)
    now = watching.now()
    watching.close()
    return Answer(json_lines(found.as_json(now)) if as_json else map(shown, chain(lines(found), ["", *columns.lines(now)])))


def _looks(found: Diagnosis, watching: Watch, seconds: float, as_json: bool) -> Iterator[str]:
    """Without end but for Ctrl-C, or that of the process that is watched."""
    try:
        yield from [json.dumps(found.as_json(None))] if as_json else map(shown, lines(found))
        while not watching.has_ended:
            time.sleep(seconds)
            now = watching.now()
            stamp = time.strftime("%H:%M:%S")
            yield from [json.dumps({"time": stamp, **now.as_json()})] if as_json else map(shown, ["", stamp, *columns.lines(now)])
    finally:
        watching.close()


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.1 <= seconds <= 86_400:
        raise UsageError(f"expected --watch with seconds from 0.1 to 86400, got {text!r}; put paths before it")
    return seconds

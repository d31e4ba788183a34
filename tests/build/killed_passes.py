"""Builds in passes that are killed before changes of the disk, and gone on with. Run as a script by the tests.

``killed_passes.py SOURCE WORK KIND NUM_KILLS SEED``: so many kills, each before another step of all that a run makes, spread over
them at random. Prints ``{"kills": N, "steps": M, "problems": [...]}``.
"""

import hashlib
import itertools
import json
import os
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from scattering import SPLIT, pack

from shardtools import partitions
from shardtools.build.stages import advance
from shardtools.formats.mds import Mds
from shardtools.selection import Selection

partitions.MIN_PARTITION_BYTES = 16_384
KINDS = {
    "shuffle": {"seed": 3},
    "all": {"seed": 3, "selection": Selection(limit=250, dedup="content", split=SPLIT), "format_": Mds()},
}
STEPS = ("replace", "link", "unlink", "write", "fsync", "rmdir", "mkdir")


def in_child(action: Callable[[], object], step: int | None = None) -> tuple[int, str]:
    """Exit code and message of the action in a forked process, killed before its ``step``-th change of the disk.

    Without a step, the message is the number of changes.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        real_write, left, code = os.write, itertools.count(), 0

        def counted(real):
            def call(*arguments, **options):
                if next(left) == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **options)

            return call

        for name in STEPS:
            setattr(os, name, counted(getattr(os, name)))
        try:
            action()
            real_write(write_end, str(next(left)).encode())
        except BaseException:
            code = 1
            real_write(write_end, traceback.format_exc().encode())
        os._exit(code)
    os.close(write_end)
    with open(read_end) as message:
        text = message.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


def digests(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*") if p.is_file()}


def main(source: Path, work: Path, kind: str, num_kills: int, seed: int) -> None:
    advance._FIRST_WAVE = 2
    _, num_steps = in_child(lambda: pack(source, work / "clean", **KINDS[kind]))
    clean = digests(work / "clean")
    problems = []
    chosen = sorted(random.Random(seed).sample(range(int(num_steps)), min(num_kills, int(num_steps))))
    for step in chosen:
        out = work / "out"
        shutil.rmtree(out, ignore_errors=True)
        code, text = in_child(lambda out=out: pack(source, out, **KINDS[kind]), step)
        if code != -signal.SIGKILL:
            problems.append([step, "was not killed", text])
        if (out / "shardtools.manifest").exists() and any(
            digests(out).get(name) != digest for name, digest in clean.items() if name[0] != "."
        ):
            problems.append([step, "half a dataset", ""])
        code, text = in_child(lambda out=out: pack(source, out, **KINDS[kind]))
        if code != 0:
            problems.append([step, "the rerun failed", text])
        elif digests(out) != clean:
            problems.append([step, "other files", sorted(set(digests(out).items()) ^ set(clean.items()))])
    print(json.dumps({"kills": len(chosen), "steps": int(num_steps), "problems": problems}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))

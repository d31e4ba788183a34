"""Measure shardtools beside its peers, and each claim on its speed and memory against its bound.

Every side is a fresh process, start-up included. A round runs every side of a case once; one round that is not counted
warms the page cache and shows that all sides stored the same samples. Before each run the destination is removed and
``sync`` waits until the last run's bytes are on disk. Medians over rounds, with the least and the greatest.

Takes about ten minutes and 8 GB of disk, most of it for a million small files.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _measure import DESTINATION, Case, Claim, Contents, Round, Side, measure, remove, say
from _peers import DOCS_COLUMNS
from _report import report, tables

SCRIPTS = Path(__file__).resolve().parent
SHARDTOOLS = (sys.executable, "-m", "shardtools")
NUM_PAIRS = 60_000
NUM_RECORDS = 520_000
"""At 1 KB each, a little over 500 MB."""
NUM_FEW_FILES, NUM_MANY_FILES = 10_000, 1_000_000
FILES_PER_FOLDER = 1000
MEMORY_BOUND_BYTES = 300_000_000
MEMORY_BOUND_BYTES_PER_FILE = 300
STARTUP_BOUND_SECONDS = 0.060


def files_case(work: Path, scale: float) -> Case:
    """JPEG and JSON pairs to WDS, beside a ShardWriter loop and beside GNU tar."""
    count = scaled(NUM_PAIRS, scale)
    source = str(sample_data(work, "--pairs", count) / "images")
    contents = Contents(tar_members, 2 * count)
    ours = Side("shardtools", (*SHARDTOOLS, "pack", source, DESTINATION, "--to", "wds"), count, contents)
    loop = Side("ShardWriter", peer("pairs-to-wds", source), count, contents)
    tar = Side("GNU tar", ("tar", "--sort=name", "-C", source, "-cf", DESTINATION, "."), count, contents)
    claims = [
        faster("samples/s, times webdataset.ShardWriter", ours, loop, 8.0),
        faster("the same, ShardWriter's imports not counted", ours, loop, 8.0, loop_only=True),
        faster("samples/s, times GNU tar --sort=name", ours, tar, 0.7),
    ]
    return Case("files", [ours, loop, tar], claims)


def jsonl_case(work: Path, scale: float) -> Case:
    """JSONL records to MDS, beside a ``json.loads`` and MDSWriter loop, and with two workers beside one."""
    count = scaled(NUM_RECORDS, scale)
    source = str(sample_data(work, "--records", count) / "docs.jsonl")
    columns = [[name, encoding] for name, encoding in sorted(DOCS_COLUMNS.items())]
    contents = Contents(mds_contents, {"samples": count, "columns": columns})
    pack = (*SHARDTOOLS, "pack", source, DESTINATION, "--to", "mds")
    ours = Side("shardtools", pack, count, contents)
    loop = Side("MDSWriter", peer("jsonl-to-mds", source), count, contents)
    one, two = (Side(f"--workers {n}", (*pack, "--workers", str(n)), count, contents) for n in (1, 2))
    claims = [
        faster("samples/s, times json.loads + MDSWriter", ours, loop, 3.0),
        faster("the same, MDSWriter's imports not counted", ours, loop, 3.0, loop_only=True),
        faster("samples/s, --workers 2 times --workers 1", two, one, 1.6),
    ]
    return Case("jsonl", [ours, loop, one, two], claims)


def memory_case(work: Path, scale: float) -> Case:
    """Single small files, few and many: memory and time must not grow faster than the dataset."""
    sides = []
    for count in (scaled(NUM_FEW_FILES, scale), scaled(NUM_MANY_FILES, scale)):
        source = str(tiny_files(work, count))
        command = (*SHARDTOOLS, "pack", source, DESTINATION, "--to", "wds")
        sides.append(Side(f"{count:,} files", command, count, Contents(tar_members, count)))
    few, many = sides

    def per_sample(round_: Round) -> float:
        return (round_[many.name].wall_seconds / many.num_samples) / (round_[few.name].wall_seconds / few.num_samples)

    claims = [Claim(f"seconds a sample, {many.name} over {few.name}", per_sample, 1.3, at_most=True)]
    claims += [small_enough(side) for side in sides]
    return Case("memory", sides, claims)


def startup_case(_work: Path, _scale: float) -> Case:
    """``--help`` beside the import of the one library it cannot do without."""
    ours = Side("shardtools --help", (*SHARDTOOLS, "--help"), 1)
    bare = Side("import click", (sys.executable, "-c", "import click"), 1)

    def above(round_: Round) -> float:
        return round_[ours.name].wall_seconds - round_[bare.name].wall_seconds

    return Case("startup", [ours, bare], [Claim("seconds above a bare import of click", above, STARTUP_BOUND_SECONDS, at_most=True)])


CASES = {"files": files_case, "jsonl": jsonl_case, "memory": memory_case, "startup": startup_case}


def faster(text: str, ours: Side, peer: Side, bound: float, loop_only: bool = False) -> Claim:
    def value(round_: Round) -> float:
        theirs = round_[peer.name]
        seconds = theirs.loop_seconds if loop_only and theirs.loop_seconds is not None else theirs.wall_seconds
        return seconds / round_[ours.name].wall_seconds

    return Claim(text, value, bound)


def small_enough(side: Side) -> Claim:
    bound = MEMORY_BOUND_BYTES + MEMORY_BOUND_BYTES_PER_FILE * side.num_samples
    return Claim(f"peak MB of a process, {side.name}", lambda round_: round_[side.name].peak_rss_bytes / 1e6, bound / 1e6, at_most=True)


def peer(name: str, source: str) -> tuple[str, ...]:
    return (sys.executable, str(SCRIPTS / "_peers.py"), name, source, DESTINATION)


def scaled(count: int, scale: float) -> int:
    return max(100, round(count * scale))


def sample_data(work: Path, option: str, count: int) -> Path:
    """The folder that make_sample_data.py fills, made once."""
    folder = work / f"data{option}-{count}"
    if not folder.exists():
        say(f"making {count:,} {option.strip('-')}")
        counts = {"--pairs": 0, "--records": 0, option: count}
        unfinished = folder.with_suffix(".unfinished")
        options = [str(part) for pair in counts.items() for part in pair]
        # In a process of its own, for the sake of this one's peak memory.
        subprocess.run([sys.executable, str(SCRIPTS / "make_sample_data.py"), str(unfinished), *options], check=True, stdout=sys.stderr)
        unfinished.rename(folder)
    return folder


def tiny_files(work: Path, count: int) -> Path:
    """``count`` files of 100 bytes, 1,000 a folder, removed when the case is done."""
    folder = work / f"tiny-{count}"
    say(f"making {count:,} files")
    for begin in range(0, count, FILES_PER_FOLDER):
        subfolder = folder / f"{begin // FILES_PER_FOLDER:04d}"
        subfolder.mkdir(parents=True)
        for i in range(begin, min(begin + FILES_PER_FOLDER, count)):
            fd = os.open(f"{subfolder}/{i:07d}.txt", os.O_WRONLY | os.O_CREAT, 0o644)
            os.write(fd, f"{i:0100d}".encode())
            os.close(fd)
    return folder


def tar_members(destination: Path) -> int:
    """How many files all tar files at the destination hold, as GNU tar lists them."""
    shards = [destination] if destination.is_file() else sorted(destination.glob("*.tar"))
    listings = [subprocess.run(["tar", "-tf", shard], check=True, capture_output=True).stdout for shard in shards]
    return sum(not name.endswith(b"/") for listing in listings for name in listing.splitlines())


def mds_contents(destination: Path) -> dict[str, Any]:
    shards = json.loads((destination / "index.json").read_bytes())["shards"]
    columns = [[name, encoding] for name, encoding in zip(shards[0]["column_names"], shards[0]["column_encodings"], strict=True)]
    return {"samples": sum(shard["samples"] for shard in shards), "columns": columns}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="counted rounds (default: %(default)s)")
    parser.add_argument("--only", action="append", choices=CASES, metavar="CASE", help=f"one of {', '.join(CASES)}; may be repeated")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full size, for a dry run; a missed bound is then no failure")
    parser.add_argument("--work-dir", type=Path, help="where data is made and kept for the next time (default: a temporary folder)")
    parser.add_argument("--json", action="store_true", help="the result as JSON on standard output, the tables on standard error")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shardtools-bench-") as temporary:
        work = arguments.work_dir or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        cases = []
        for name in arguments.only or CASES:
            try:
                case = CASES[name](work, arguments.scale)
                measure(case, work, arguments.runs)
            finally:
                for folder in work.glob("tiny-*"):
                    remove(folder)
            cases.append(case)
    result = report(cases, arguments.scale)
    if arguments.json:
        say(tables(result))
        print(json.dumps(result, indent=1))
    else:
        print(tables(result))
    # A dry run shows that the script works, not that a bound is kept.
    return 0 if arguments.scale != 1 or all(row["met"] for row in result["claims"]) else 1


if __name__ == "__main__":
    raise SystemExit(main())

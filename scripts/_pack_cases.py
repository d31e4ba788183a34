"""``shardtools pack`` beside the loops users write with the reference writers, and beside GNU tar."""

import sys
from pathlib import Path

from _claims import faster, small_enough
from _inputs import SCRIPTS, SHARDTOOLS, mds_contents, sample_data, scaled, tar_members, tiny_files
from _measure import DESTINATION, Case, Claim, Contents, Round, Side
from _peers import DOCS_COLUMNS

NUM_PAIRS = 60_000
NUM_RECORDS = 520_000
"""At 1 KB each, a little over 500 MB."""
NUM_FEW_FILES, NUM_MANY_FILES = 10_000, 1_000_000


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


def peer(name: str, source: str) -> tuple[str, ...]:
    return (sys.executable, str(SCRIPTS / "_peers.py"), name, source, DESTINATION)

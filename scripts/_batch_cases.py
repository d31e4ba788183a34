"""What a team runs every night, beside the loops users write for it, and beside the same job without its expensive part."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from _claims import faster
from _inputs import SCRIPTS, SHARDTOOLS, mds_contents, sample_data, scaled
from _measure import DESTINATION, Case, Claim, Contents, Round, Side, say
from _pack_cases import NUM_PAIRS, NUM_RECORDS

NUM_COPIES = 20
"""Of the records, for more than 10 GiB."""
TABLES = """
import sys
from pathlib import Path
import pyarrow.json
import pyarrow.parquet
source, destination = map(Path, sys.argv[1:])
table = pyarrow.json.read_json(source).drop_columns(["tags"])
rows = -(-len(table) // 4)
for i in range(4):
    pyarrow.parquet.write_table(table.slice(i * rows, rows), destination / f"part-{i}.parquet", row_group_size=10_000)
"""
"""In a process of its own, for the sake of this one's peak memory. Without the lists, which ``dataframe_to_mds`` does not take."""


NUM_PARTITIONS = 1000
TINY = f"""
import sys
from shardtools import partitions
from shardtools.cli import main
partitions.MIN_PARTITION_BYTES, partitions._PARTITIONS_AT_LEAST = 1, {NUM_PARTITIONS}
if __name__ == "__main__":
    main()
"""
"""The command, but for parts of the input of no least size: else a thousand take 16 GiB, whose work hides what a part itself costs."""


def convert_case(work: Path, scale: float) -> Case:
    """JPEG and JSON pairs in WDS to MDS, beside a loop of ``webdataset`` and MDSWriter."""
    count = scaled(NUM_PAIRS, scale)
    source = work / f"pairs-{count}.shards"
    if not (source / "shardtools.manifest").exists():
        pairs = sample_data(work, "--pairs", count) / "images"
        subprocess.run([*SHARDTOOLS, "pack", str(pairs), str(source), "--to", "wds"], check=True, stdout=sys.stderr)
    contents = Contents(_names_and_samples, {"samples": count, "names": ["jpg", "json", "key"]})
    pack = (*SHARDTOOLS, "pack", str(source), DESTINATION, "--from", "wds", "--to", "mds")
    ours, one = Side("shardtools", pack, count, contents), Side("--workers 1", (*pack, "--workers", "1"), count, contents)
    loop = Side("webdataset to MDSWriter", _peer("wds-to-mds", source), count, contents)
    claims = [
        faster("samples/s, times a loop of webdataset and MDSWriter", ours, loop, 5.0),
        faster("the same, its imports not counted", ours, loop, 5.0, loop_only=True),
        faster("--workers 1, times that loop", one, loop, 5.0),
    ]
    return Case("convert", [ours, one, loop], claims)


def parquet_case(work: Path, scale: float) -> Case:
    """Tables of records of 1 KB to MDS, a core beside a core."""
    count = scaled(NUM_RECORDS, scale)
    source = work / f"tables-{count}"
    if not source.exists():
        say(f"making {source.name}")
        unfinished = source.with_suffix(".unfinished")
        unfinished.mkdir(exist_ok=True)
        records = sample_data(work, "--records", count) / "docs.jsonl"
        subprocess.run([sys.executable, "-c", TABLES, str(records), str(unfinished)], check=True)
        unfinished.rename(source)
    contents = Contents(_names_and_samples, {"samples": count, "names": ["id", "key", "lang", "num_characters", "score", "text", "url"]})
    pack = (*SHARDTOOLS, "pack", str(source), DESTINATION, "--from", "parquet", "--to", "mds")
    ours, one = Side("shardtools", pack, count, contents), Side("--workers 1", (*pack, "--workers", "1"), count, contents)
    loop = Side("rows to MDSWriter", _peer("parquet-to-mds", source), count, contents)
    claims = [
        faster("samples/s a core, times a loop as of dataframe_to_mds", one, loop, 3.0),
        faster("the same, its imports not counted", one, loop, 3.0, loop_only=True),
        faster("samples/s on all cores, times that loop", ours, loop, 3.0),
    ]
    return Case("parquet", [ours, one, loop], claims)


def shuffle_case(work: Path, scale: float) -> Case:
    """Records packed in one permutation of all, beside the plain run."""
    count = scaled(NUM_RECORDS, scale)
    source = str(sample_data(work, "--records", count) / "docs.jsonl")
    sides = []
    for to in ("mds", "wds"):
        pack = (*SHARDTOOLS, "pack", source, DESTINATION, "--to", to)
        contents = Contents(_num_samples, count)
        sides += [
            Side(f"plain, {to}", pack, count, contents),
            Side(f"--shuffle, {to}", (*pack, "--shuffle", "--seed", "1"), count, contents),
        ]
    claims = [
        _times_as_long(f"seconds of --shuffle over the plain run, {to}", sides[i + 1], sides[i], 2.5) for i, to in ((0, "mds"), (2, "wds"))
    ]
    return Case("shuffle", sides, claims)


def shuffle_memory_case(work: Path, scale: float) -> Case:
    """One permutation of 10 GiB and more: the same records many times over, each time under other keys."""
    count = scaled(NUM_RECORDS, scale)
    records = sample_data(work, "--records", count) / "docs.jsonl"
    source = work / f"shuffled-{count}"
    source.mkdir(exist_ok=True)
    for i in range(NUM_COPIES):
        path = source / f"{i:02d}.jsonl"
        if not path.exists():
            path.hardlink_to(records)
    num_samples = NUM_COPIES * count
    pack = (*SHARDTOOLS, "pack", str(source), DESTINATION, "--to", "mds", "--shuffle", "--seed", "1")
    side = Side("--shuffle", pack, num_samples, Contents(_num_samples, num_samples))

    def peak(round_: Round) -> float:
        return round_[side.name].peak_rss_bytes / 2**20

    return Case("shuffle-memory", [side], [Claim("peak MiB of a process", peak, 1024, at_most=True)])


def ray_case(work: Path, scale: float) -> Case:
    """Records to rows of tokens, a minute of work, on Ray beside the processes engine."""
    count = scaled(NUM_RECORDS, scale)
    source = str(sample_data(work, "--records", count) / "docs.jsonl")
    # By hf, since 1.3 times is promised of jobs of a minute: next to less, what starting Ray takes is much.
    options = ("--to", "mds", "--tokenizer", str(_tokenizer(work)), "--seq-len", "2048", "--backend", "hf", "--engine")
    pack = (*SHARDTOOLS, "pack", source, DESTINATION, *options)
    contents = Contents(_num_read, count)
    ray, processes = (Side(name, (*pack, name), count, contents) for name in ("ray", "processes"))
    claim = _times_as_long("seconds of --engine ray over --engine processes", ray, processes, 1.3)
    return Case("ray", [processes, ray], [claim])


def ray_tiny_case(work: Path, scale: float) -> Case:
    """A thousand partitions of a few records, each with a shard and a receipt of its own, beside the same records in a few."""
    count = scaled(10 * NUM_PARTITIONS, scale)
    pack = ("pack", str(sample_data(work, "--records", count) / "docs.jsonl"), DESTINATION, "--to", "mds", "--engine")
    contents = Contents(_num_samples, count)
    sides, claims = [], []
    for name in ("ray", "processes", "serial"):
        many = Side(f"{name}, {NUM_PARTITIONS:,} partitions", (sys.executable, "-c", TINY, *pack, name), count, contents)
        one = Side(f"{name}, as it is", (*SHARDTOOLS, *pack, name), count, contents)
        sides += [many, one]
        claims.append(_milliseconds_each(f"milliseconds a partition, --engine {name}", many, one, 20))
    return Case("ray-tiny", sides, claims)


def _milliseconds_each(text: str, many: Side, one: Side, bound: float) -> Claim:
    def value(round_: Round) -> float:
        return (round_[many.name].wall_seconds - round_[one.name].wall_seconds) / NUM_PARTITIONS * 1e3

    return Claim(text, value, bound, at_most=True)


def _tokenizer(work: Path) -> Path:
    """A small one, trained on a few records of the same words."""
    folder = work / "words"
    if not (folder / "tokenizer").exists():
        counts = ("--pairs", "0", "--records", "3000", "--chats", "100")
        subprocess.run([sys.executable, str(SCRIPTS / "make_sample_data.py"), str(folder), *counts], check=True, stdout=sys.stderr)
    return folder / "tokenizer"


def _times_as_long(text: str, side: Side, plain: Side, bound: float) -> Claim:
    def value(round_: Round) -> float:
        return round_[side.name].wall_seconds / round_[plain.name].wall_seconds

    return Claim(text, value, bound, at_most=True)


def _peer(name: str, source: Path) -> tuple[str, ...]:
    return (sys.executable, str(SCRIPTS / "_batch_peers.py"), name, str(source), DESTINATION)


def _names_and_samples(destination: Path) -> dict[str, Any]:
    found = mds_contents(destination)
    return {"samples": found["samples"], "names": [name for name, _ in found["columns"]]}


def _num_samples(destination: Path) -> int:
    return int(_ledger(destination)["written"])


def _num_read(destination: Path) -> int:
    return int(_ledger(destination)["read"])


def _ledger(destination: Path) -> dict[str, Any]:
    ledger: dict[str, Any] = json.loads((destination / "shardtools.manifest").read_bytes())["ledger"]
    return ledger

"""``pack`` to and from buckets, and the loaders on them, beside `aws s3 cp`, a boto3 loop, webdataset and StreamingDataset.

The store is SeaweedFS on the same cores, its objects in memory.
"""

import random
import subprocess
import sys
from pathlib import Path

from _claims import faster, faster_loop, more_samples
from _inputs import SCRIPTS, SHARDTOOLS, large_shards, sample_data, scaled
from _measure import DESTINATION, Case, Contents, Side
from _s3_peers import Facts, told
from _s3_rig import BUCKET, Rig, aws_program

NUM_LARGE = 5_000
"""1 GB."""
NUM_RECORDS = 400_000
NUM_OBJECTS = 30_000
OBJECT_BYTES = 4_000
LOOPED_OBJECTS = 1_500
"""Of a loop that reads one at a time, and whose rate they show."""
LATENCY_MS = 20
_SHARDS = ("--shard-size", "64MiB")


def s3_upload_case(work: Path, scale: float) -> Case:
    """Files of 200 KB, packed into a bucket, beside the upload of the finished shards. The plan fixes the shards' names."""
    count = scaled(NUM_LARGE, scale)
    large_shards(work, count)
    return _upload_case("s3-upload", work, work / f"large-{count}", count, 0.8)


def s3_copied_case(work: Path, scale: float) -> Case:
    """Records, whose shards have their names when all are built: the store copies them."""
    count = scaled(NUM_RECORDS, scale)
    return _upload_case("s3-copied", work, sample_data(work, "--records", count) / "docs.jsonl", count, 0.45)


def _upload_case(name: str, work: Path, source: Path, count: int, bound: float) -> Case:
    aws, rig = aws_program(work), Rig()
    finished = _packed(source, work / f"{name}-{count}", "wds")
    stored = sorted((path.name, path.stat().st_size) for path in finished.glob("*.tar"))

    def side(title: str, prefix: str, *command: str) -> Side:
        contents = Contents(lambda _: rig.sizes(prefix, ".tar"), stored)
        return Side(title, command, count, contents, lambda: rig.empty(prefix))

    ours = side("shardtools", "ours", *SHARDTOOLS, "pack", str(source), f"s3://{BUCKET}/ours", "--to", "wds", *_SHARDS)
    copied = side("aws s3 cp", "cp", aws, "s3", "cp", "--recursive", "--only-show-errors", str(finished), f"s3://{BUCKET}/cp")
    claims = [faster("speed, times aws s3 cp --recursive of the finished shards", ours, copied, bound)]
    return Case(name, [ours, copied], claims, close=rig.close)


def s3_objects_case(_work: Path, scale: float) -> Case:
    """Small objects packed into local shards, beside a loop that gets one after the other."""
    return _objects_case("s3-objects", scale, 0, 1.5)


def s3_objects_latency_case(_work: Path, scale: float) -> Case:
    """The same where every request waits 20 ms."""
    return _objects_case("s3-objects-latency", scale, LATENCY_MS, 5.0)


def _objects_case(name: str, scale: float, latency_ms: int, bound: float) -> Case:
    rig, noise = Rig(), random.Random(1)
    count = scaled(NUM_OBJECTS, scale)
    rig.put((f"small/{i // 1000:03d}/{i:06d}.bin", noise.randbytes(OBJECT_BYTES)) for i in range(count))
    endpoint = rig.through_proxy(latency_ms) if latency_ms else rig.endpoint
    source = f"s3://{BUCKET}/small"
    ours = Side("shardtools", (*SHARDTOOLS, "pack", source, DESTINATION, "--to", "wds", "--endpoint-url", endpoint), count)
    looped = min(count, LOOPED_OBJECTS)
    loop = Side(f"boto3, {looped:,} objects", _peer("objects", source, endpoint, str(looped)), looped)
    return Case(name, [ours, loop], [more_samples("samples/s, times a boto3 loop", ours, loop, bound)], close=rig.close)


def s3_read_case(work: Path, scale: float) -> Case:
    """Every sample of shards in a bucket, nothing of it on this machine before."""
    count = scaled(NUM_LARGE, scale)
    large_shards(work, count)
    source, aws, rig = work / f"large-{count}", aws_program(work), Rig()
    for kind in ("wds", "mds"):
        rig.upload(_packed(source, work / f"s3-read-{count}-{kind}", kind), kind)
    uri = f"s3://{BUCKET}"
    whole: Facts = {"samples": count, "bytes": count * 200_000}
    sides = [
        Side(title, _peer(peer, f"{uri}/{kind}", aws), count, Contents(told, whole))
        for title, peer, kind in (
            ("ours, WDS", "read-ours", "wds"),
            ("ours, MDS", "read-ours", "mds"),
            ("webdataset, pipe:aws s3 cp", "read-webdataset", "wds"),
            ("StreamingDataset", "read-streaming", "mds"),
        )
    ]
    wds, mds, piped, streamed = sides
    copied = Side("aws s3 cp", (aws, "s3", "cp", "--recursive", "--only-show-errors", f"{uri}/wds", DESTINATION), count)
    claims = [
        faster_loop("WDS, imports not counted, times aws s3 cp of the same shards", wds, copied, 0.8),
        faster_loop("WDS, imports not counted, times webdataset", wds, piped, 1.5),
        faster_loop("MDS, imports not counted, times StreamingDataset", mds, streamed, 1.5),
    ]
    return Case("s3-read", [*sides, copied], claims, close=rig.close)


def _packed(source: Path, folder: Path, kind: str) -> Path:
    """Made once."""
    if not (folder / "shardtools.manifest").exists():
        columns = ("--columns", "jpg=bytes") if kind == "mds" else ()
        subprocess.run([*SHARDTOOLS, "pack", str(source), str(folder), "--to", kind, *_SHARDS, *columns], check=True, stdout=sys.stderr)
    return folder


def _peer(name: str, source: str, *options: str) -> tuple[str, ...]:
    return (sys.executable, str(SCRIPTS / "_s3_peers.py"), name, "::".join([source, *options]), DESTINATION)

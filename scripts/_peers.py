"""The other side of each comparison: the plain loop a user writes with the reference library.

Each prints the seconds its loop took, its imports not counted, as the last line of standard output.
"""

import glob
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping

WDS_SHARD_BYTES = 256 << 20
"""What shardtools takes by default; MDSWriter's own default is shardtools' too."""

DOCS_COLUMNS = {
    "id": "str",
    "key": "str",
    "lang": "str",
    "num_characters": "int",
    "score": "float64",
    "tags": "json",
    "text": "str",
    "url": "str",
}
"""The columns of ``docs.jsonl``, as shardtools infers them, and its key column."""


def pairs_to_wds(source: str, destination: str) -> Callable[[], None]:
    """JPEG and JSON pairs through ``webdataset.ShardWriter``, the bytes passed through as they are."""
    import webdataset

    def loop() -> None:
        pattern = os.path.join(destination, "train-%06d.tar")
        with webdataset.ShardWriter(pattern, maxcount=10**9, maxsize=WDS_SHARD_BYTES, verbose=0) as sink:
            for stem in _stems(source):
                with open(f"{source}/{stem}.jpg", "rb") as jpg, open(f"{source}/{stem}.json", "rb") as meta:
                    sink.write({"__key__": stem, "jpg": jpg.read(), "json": meta.read()})

    return loop


def jsonl_to_mds(source: str, destination: str) -> Callable[[], None]:
    """Records through ``json.loads`` and ``MDSWriter``, with the key column that shardtools writes too."""
    from streaming import MDSWriter

    prefix = os.path.basename(source).removesuffix(".jsonl")

    def loop() -> None:
        offset = 0
        with MDSWriter(out=destination, columns=DOCS_COLUMNS) as writer, open(source, "rb") as file:
            for line in file:
                record = json.loads(line)
                record["key"] = f"{prefix}/{offset:012d}"
                writer.write(record)
                offset += len(line)

    return loop


def iterate_wds(source: str, _: str) -> Callable[[], None]:
    """Every sample of every shard through ``webdataset.WebDataset``, undecoded."""
    import webdataset

    shards = sorted(glob.glob(f"{source}/*.tar"))

    def loop() -> None:
        for _ in webdataset.WebDataset(shards, shardshuffle=False):
            pass

    return loop


def _stems(source: str) -> Iterator[str]:
    """Relative paths without their extension, sorted."""
    for folder, subfolders, names in os.walk(source):
        subfolders.sort()
        relative = os.path.relpath(folder, source)
        for name in sorted(names):
            stem, extension = os.path.splitext(name)
            if extension == ".jpg":
                yield os.path.join(relative, stem)


PEERS = {"pairs-to-wds": pairs_to_wds, "jsonl-to-mds": jsonl_to_mds, "iterate-wds": iterate_wds}


def main(peers: Mapping[str, Callable[[str, str], Callable[[], None]]] = PEERS) -> None:
    name, source, destination = sys.argv[1:]
    os.makedirs(destination, exist_ok=True)
    loop = peers[name](source, destination)
    began = time.perf_counter()
    loop()
    print(f"loop_seconds={time.perf_counter() - began:.4f}")


if __name__ == "__main__":
    main()

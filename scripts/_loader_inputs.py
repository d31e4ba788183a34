"""What loaders read: each set of samples in every form its sides want, with ``facts.json``, what each of them must find in it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

from _inputs import SCRIPTS, SHARDTOOLS, sample_data
from _loader_peers import SEQ_LEN, Facts, picture
from _measure import remove, run_command, say

NUM_IMAGE_SHARDS = 8
"""Readers that split shards over workers have the same work for two of them."""
NUM_DISTINCT_IMAGES = 64
NUM_SHORT_SHARDS = 100
"""Many more than are shuffled into one another, and than are kept open."""
_VOCABULARY = 50_257


def pairs(work: Path, count: int) -> Path:
    """JPEG and JSON pairs of about 3 KB, as ``wds`` and as ``mds`` of plain bytes, which are not decoded on the way."""

    def make(folder: Path) -> Facts:
        source = sample_data(folder, "--pairs", count)
        sizes = [os.stat(os.path.join(parent, name)).st_size for parent, _, names in os.walk(source) for name in names]
        _pack(source / "images", folder / "wds", "--to", "wds")
        _pack(source / "images", folder / "mds", "--to", "mds", "--columns", "jpg=bytes,json=bytes")
        remove(source)
        return {"samples": len(sizes) // 2, "bytes": sum(sizes)}

    return _made(work / f"pairs-{count}", make)


def rows(work: Path, count: int) -> Path:
    """Rows of token ids, as ``mds`` by MDSWriter, and one behind the other in ``tokens.bin``."""
    return _made(work / f"rows-{count}", lambda folder: _by_child("rows", folder, count))


def photos(work: Path, count: int) -> Path:
    """JPEG images of about 100 KB and 640 x 480 pixels with a label, as ``wds`` and as ``mds`` of bytes, in shards of equal length."""

    def make(folder: Path) -> Facts:
        facts = _by_child("photos", folder, count)
        shards = ("--shard-samples", str(count // NUM_IMAGE_SHARDS))
        _pack(folder / "source", folder / "wds", "--to", "wds", *shards)
        _pack(folder / "source", folder / "mds", "--to", "mds", "--columns", "jpg=bytes,cls=bytes", *shards)
        remove(folder / "source")
        return facts

    return _made(work / f"photos-{count}", make)


def short_records(work: Path, count: int, num_shards: int) -> Path:
    """Samples of a short text and a number, in so many shards, as ``wds`` and as ``mds``."""

    def make(folder: Path) -> Facts:
        source = folder / "records.jsonl"
        with open(source, "w") as file:
            file.writelines(f'{{"id":"k{i:08d}","text":"a short text {i * 7919 % 1_000_003}","label":{i % 1000}}}\n' for i in range(count))
        shards = ("--key", "id", "--shard-samples", str(-(-count // num_shards)))
        _pack(source, folder / "wds", "--to", "wds", "--map", "txt=text,cls=label", *shards)
        _pack(source, folder / "mds", "--to", "mds", *shards)
        source.unlink()
        return {"samples": count}

    return _made(work / f"short-{count}-in-{num_shards}", make)


def facts(folder: Path) -> Facts:
    found: Facts = json.loads((folder / "facts.json").read_text())
    return found


def _made(folder: Path, make: Callable[[Path], Facts]) -> Path:
    """Made once."""
    if not folder.exists():
        say(f"making {folder.name}")
        unfinished = folder.with_suffix(".unfinished")
        remove(unfinished)
        unfinished.mkdir()
        (unfinished / "facts.json").write_text(json.dumps(make(unfinished)))
        unfinished.rename(folder)
    return folder


def _pack(source: Path, destination: Path, *options: str) -> None:
    subprocess.run([*SHARDTOOLS, "pack", str(source), str(destination), *options], check=True, stdout=subprocess.DEVNULL)


def _by_child(name: str, folder: Path, count: int) -> Facts:
    """In a process of its own, for the sake of this one's peak memory."""
    told = folder / "told.json"
    run_command([sys.executable, str(SCRIPTS / "_loader_inputs.py"), name, str(folder), str(count)])
    found: Facts = json.loads(told.read_text())
    told.unlink()
    return found


def _write_rows(folder: Path, count: int) -> Facts:
    import numpy as np
    from streaming import MDSWriter

    random = np.random.default_rng(1)
    total = 0
    with (
        MDSWriter(out=str(folder / "mds"), columns={"tokens": f"ndarray:uint16:{SEQ_LEN}"}) as writer,
        open(folder / "tokens.bin", "wb") as file,
    ):
        for _ in range(count):
            row = random.integers(0, _VOCABULARY, SEQ_LEN, np.uint16)
            writer.write({"tokens": row})
            file.write(row.tobytes())
            total += int(row.sum(dtype=np.uint64))
    return {"samples": count, "sum": total}


def _write_photos(folder: Path, count: int) -> Facts:
    import numpy as np

    images = [_photo(np.random.default_rng(i)) for i in range(NUM_DISTINCT_IMAGES)]
    sums = [int(picture({"jpg": image}).numpy().sum(dtype=np.uint64)) for image in images]
    (folder / "source").mkdir()
    for i in range(count):
        (folder / "source" / f"{i:06d}.jpg").write_bytes(images[i % len(images)])
        (folder / "source" / f"{i:06d}.cls").write_text(str(i % 1000))
    return {"samples": count, "sum": sum(sums[i % len(sums)] for i in range(count))}


def _photo(random: Any) -> bytes:
    """Gradients and noise, about as hard to decode as a photograph of this size."""
    import numpy as np
    from PIL import Image

    y, x = np.mgrid[0:480, 0:640]
    smooth = np.stack([x * 255 / 640, y * 255 / 480, (x + y) * 255 / 1120], -1)
    pixels = (smooth + random.normal(0, 23, smooth.shape)).clip(0, 255).astype(np.uint8)
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=80)
    return buffer.getvalue()


def main() -> None:
    name, folder, count = sys.argv[1:]
    write = {"rows": _write_rows, "photos": _write_photos}[name]
    Path(folder, "told.json").write_text(json.dumps(write(Path(folder), int(count))))


if __name__ == "__main__":
    main()

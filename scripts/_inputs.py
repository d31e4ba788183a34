"""What the sides of a comparison read: made once in the work folder, and looked at to see that all wrote the same."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _measure import say

SCRIPTS = Path(__file__).resolve().parent
SHARDTOOLS = (sys.executable, "-m", "shardtools")
FILES_PER_FOLDER = 1000
_LARGE_BYTES = 200_000


def scaled(count: int, scale: float) -> int:
    return max(100, round(count * scale))


def sample_data(work: Path, option: str, count: int) -> Path:
    """The folder that make_sample_data.py fills, made once."""
    folder = work / f"data{option}-{count}"
    if not folder.exists():
        say(f"making {count:,} {option.strip('-')}")
        counts = {"--pairs": 0, "--records": 0, "--chats": 0, option: count}
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


def large_shards(work: Path, count: int) -> Path:
    """A published WDS dataset of ``count`` values of 200 KB that do not compress, made once."""

    def make(source: Path) -> None:
        noise = random.Random(1)
        for i in range(count):
            path = source / f"{i // FILES_PER_FOLDER:04d}" / f"{i:07d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"\xff\xd8\xff" + noise.randbytes(_LARGE_BYTES - 3))

    return packed(work / f"large-{count}", make, "--to", "wds")


def tiny_shards(work: Path, count: int) -> Path:
    """A published WDS dataset of ``count`` samples of a short text and a number, made once."""

    def make(source: Path) -> None:
        with open(source, "w") as file:
            for i in range(count):
                file.write(f'{{"id":"k{i:08d}","text":"a short text {i * 7919 % 1_000_003}","label":{i % 1000}}}\n')

    return packed(work / f"short-{count}.jsonl", make, "--to", "wds", "--key", "id", "--map", "txt=text,cls=label")


def many_keys(work: Path, count: int) -> Path:
    """A published MDS dataset of ``count`` rows of a key and a number, made once."""

    def make(source: Path) -> None:
        with open(source, "w") as file:
            file.writelines(f'{{"id":"k{i:010d}","n":{i}}}\n' for i in range(count))

    return packed(work / f"many-{count}.jsonl", make, "--to", "mds", "--key", "id")


def packed(source: Path, make: Callable[[Path], None], *options: str) -> Path:
    """The dataset packed from what ``make`` writes at ``source``; both are made again unless the dataset is complete."""
    folder = source.with_suffix(".shards")
    if not (folder / "shardtools.manifest").exists():
        say(f"making {folder.name}")
        make(source)
        subprocess.run([*SHARDTOOLS, "pack", str(source), str(folder), *options], check=True, stdout=subprocess.DEVNULL)
    return folder

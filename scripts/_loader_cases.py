"""``shardtools.loaders`` beside ``webdataset``, ``StreamingDataset`` and a bare ``np.memmap``; its start-up and its memory.

The page cache is warm, and imports do not count. Only the rates inside the loops are compared: where a side makes several
passes, its samples are those of all of them.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _inputs import SCRIPTS, scaled
from _loader_inputs import NUM_DISTINCT_IMAGES, NUM_SHORT_SHARDS, facts, pairs, photos, rows, short_records
from _loader_peers import RAW_PASSES, TOKEN_PASSES, Facts
from _measure import DESTINATION, Case, Claim, Contents, Round, Side

PEERS, ALONE = SCRIPTS / "_loader_peers.py", SCRIPTS / "_loader_alone.py"
NUM_PAIRS = 200_000
NUM_ROWS = 25_600
"""105 MB."""
NUM_PHOTOS = 3_200
"""320 MB."""
NUM_SHARDS = 10_000
NUM_SHORT = 1_000_000
STARTUP_BOUND_SECONDS = 1.0
MEMORY_BOUND_MB = 20.0


def loader_wds_case(work: Path, scale: float) -> Case:
    """Pairs of 3 KB from tars, undecoded, in one process."""
    folder = pairs(work, scaled(NUM_PAIRS, scale))
    ours = _side("ours", "pairs-ours", folder / "wds", _passes(folder, RAW_PASSES))
    peer = _side("webdataset", "pairs-webdataset", folder / "wds", _passes(folder, 1))
    return Case("loader-wds", [ours, peer], [_times("samples/s, times webdataset.WebDataset", ours, peer, 12.0)])


def loader_mds_case(work: Path, scale: float) -> Case:
    """The same pairs from MDS."""
    folder = pairs(work, scaled(NUM_PAIRS, scale))
    ours = _side("ours", "pairs-ours", folder / "mds", _passes(folder, RAW_PASSES))
    peer = _side("StreamingDataset", "pairs-streaming", folder / "mds", _passes(folder, 1))
    return Case("loader-mds", [ours, peer], [_times("samples/s, times StreamingDataset", ours, peer, 20.0)])


def loader_tokens_case(work: Path, scale: float) -> Case:
    """Rows of 2,048 ids as tensors uint16 [32, 2048], through a DataLoader without workers."""
    folder = rows(work, scaled(NUM_ROWS, scale))
    ours, bare = (
        _side(name, peer, folder, _warmed_up(folder, TOKEN_PASSES))
        for name, peer in (("ours", "tokens-ours"), ("np.memmap", "tokens-memmap"))
    )
    peer = _side("StreamingDataset", "tokens-streaming", folder, _warmed_up(folder, 1))
    claims = [
        _times("samples/s, times StreamingDataset and its DataLoader", ours, peer, 5.0),
        _times("samples/s, times a bare loop over np.memmap", ours, bare, 0.7),
    ]
    return Case("loader-tokens", [ours, peer, bare], claims)


def loader_decode_case(work: Path, scale: float) -> Case:
    """JPEG of 100 KB, decoded and resized by two workers: the decoder is everybody's, and most of the work."""
    count = max(1, round(NUM_PHOTOS * scale / NUM_DISTINCT_IMAGES)) * NUM_DISTINCT_IMAGES
    folder = photos(work, count)
    found = _warmed_up(folder, 1)
    wds = _side("ours, WDS", "images-ours", folder / "wds", found)
    webdataset = _side("webdataset", "images-webdataset", folder / "wds", found)
    mds = _side("ours, MDS", "images-ours", folder / "mds", found)
    streaming = _side("StreamingDataset", "images-streaming", folder / "mds", found)
    claims = [
        _times("WDS, images/s, times webdataset.WebDataset", wds, webdataset, 1.0),
        _times("MDS, images/s, times StreamingDataset", mds, streaming, 1.0),
    ]
    return Case("loader-decode", [wds, webdataset, mds, streaming], claims)


def loader_startup_case(work: Path, scale: float) -> Case:
    """Many shards: from opening to the first sample of a shuffled epoch."""
    count = scaled(NUM_SHARDS, scale)
    folder = short_records(work, count, count)
    wds = _side("ours, WDS", "first-sample", folder / "wds", [{"samples": 1, "fields": 3}], ALONE)
    mds = _side("ours, MDS", "first-sample", folder / "mds", [{"samples": 1, "fields": 4}], ALONE)
    claims = [
        Claim(f"seconds to the first sample of {count:,} shards, {side.name}", _loop_of(side), STARTUP_BOUND_SECONDS, at_most=True)
        for side in (wds, mds)
    ]
    return Case("loader-startup", [wds, mds], claims)


def loader_memory_case(work: Path, scale: float) -> Case:
    """A shuffled epoch of many small samples."""
    folder = short_records(work, scaled(NUM_SHORT, scale), NUM_SHORT_SHARDS)
    sides = [_side(f"ours, {name}", "private-memory", folder / name.lower(), [facts(folder)], ALONE) for name in ("WDS", "MDS")]
    claims = []
    for side in sides:
        claims += [
            _told_megabytes(f"MB that private memory varies by, {side.name}", side, "private_bytes"),
            _told_megabytes(f"the same without pages of mapped shards, {side.name}", side, "own_bytes"),
        ]
    return Case("loader-memory", sides, claims)


def _side(name: str, peer: str, source: Path, found: list[Facts], script: Path = PEERS) -> Side:
    """``found``: what it must tell of each pass; of several kinds of passes the last is the timed one."""
    count = sum(told["samples"] for told in found if told.keys() == found[-1].keys())
    command = (sys.executable, str(script), peer, str(source), DESTINATION)
    return Side(name, command, count, Contents(_read_told, found))


def _read_told(destination: Path) -> Any:
    return json.loads((destination / "told.json").read_text())


def _passes(folder: Path, num_passes: int) -> list[Facts]:
    return [facts(folder)] * num_passes


def _warmed_up(folder: Path, num_passes: int) -> list[Facts]:
    """One pass that is not timed and finds everything, then those that only count."""
    return [facts(folder), *[{"samples": facts(folder)["samples"]}] * num_passes]


def _times(text: str, ours: Side, peer: Side, bound: float) -> Claim:
    """How many times as many samples a second."""

    def value(round_: Round) -> float:
        return (ours.num_samples / _loop_of(ours)(round_)) / (peer.num_samples / _loop_of(peer)(round_))

    return Claim(text, value, bound)


def _loop_of(side: Side) -> Callable[[Round], float]:
    def value(round_: Round) -> float:
        seconds = round_[side.name].loop_seconds
        assert seconds is not None, f"{side.name} tells what its loop took"
        return seconds

    return value


def _told_megabytes(text: str, side: Side, name: str) -> Claim:
    return Claim(text, lambda round_: round_[side.name].told[name] / 1e6, MEMORY_BOUND_MB, at_most=True)

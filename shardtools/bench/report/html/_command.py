"""Commands to type next, with what was asked this time."""

import shlex
from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]

_BATCH_SIZE, _NUM_WORKERS, _PREFETCH = 64, 2, 2
"""Defaults of the command line, which need not be said."""


def bench(data: Json, *more: str) -> str:
    """The same data again, with more options."""
    uris = list(dict.fromkeys(side["uri"] for side in data["sides"]))
    asked: list[str] = []
    if data["workload"].get("batch_size") not in (None, _BATCH_SIZE):
        asked += ["--batch-size", str(data["workload"]["batch_size"])]
    if data["settings"].get("num_workers") not in (None, _NUM_WORKERS) and "--matrix" not in more:
        asked += ["--num-workers", str(data["settings"]["num_workers"])]
    if data["settings"].get("prefetch_factor") not in (None, _PREFETCH) and "--matrix" not in more:
        asked += ["--prefetch-factor", str(data["settings"]["prefetch_factor"])]
    if data["consumer"].get("device") == "cuda":
        asked.append("--gpu")
    return " ".join(["shardtools", "bench", *map(shlex.quote, uris), *asked, *more])

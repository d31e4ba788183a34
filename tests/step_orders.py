"""Packing with steps as the command line orders them, in one call."""

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shardtools.build import run
from shardtools.build.order import OrderWords, order_of
from shardtools.build.run import RunOptions
from shardtools.engines.serial import Serial
from shardtools.sources import resolve_inputs
from shardtools.units import Budget

SELECT = ("where", "limit", "dedup", "split", "group_by")
EMBED = ("embed", "media_root")


def pack(sources: Path | str | Sequence[Any], destination: Path | str, to: str = "wds", **words: Any) -> run.Result:
    """``pack(src, dst, "mds", where="a > 1", embed="image", columns="image=bytes")``; ``engine`` and ``max_bad`` say how it is done."""
    engine, max_bad = words.pop("engine", None) or Serial(), words.pop("max_bad", "0")
    groups: dict[str, dict[str, str]] = {name: {} for name in ("select", "embed", "source", "token", "image", "format")}
    for name in list(words):
        group, _, option = name.rpartition("__")
        group = "select" if name in SELECT else "embed" if name in EMBED else group
        if group:
            groups[group][option] = str(words.pop(name))
    inputs = resolve_inputs([str(one) for one in ([sources] if isinstance(sources, str | Path) else sources)])
    order = order_of(inputs, OrderWords(to, **{f"{name}_options": options for name, options in groups.items()}, **words))
    return run.build(inputs, str(destination), order, RunOptions(engine, Budget.parse(max_bad)))


def tar_samples(folder: Path) -> dict[str, dict[str, bytes]]:
    """Every sample of a folder of tars by key, as tarfile reads them."""
    samples: dict[str, dict[str, bytes]] = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as archive:
            for member in archive:
                key, _, field = member.name.partition(".")
                file = archive.extractfile(member)
                assert file is not None
                samples.setdefault(key, {})[field] = file.read()
    return samples

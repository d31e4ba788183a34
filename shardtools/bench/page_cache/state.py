"""The state of the page cache a trial begins in: made, proved, and labelled with what it really is."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from shardtools.bench.counters.device import Roots, device_under, is_memory, mount_under
from shardtools.bench.not_measured import Unknown
from shardtools.bench.page_cache import PageCache, Residency
from shardtools.bench.page_cache.bucket import KEPT_CAVEAT, STORE_CAVEAT, Bucket
from shardtools.bench.spec import CacheState, Kind
from shardtools.errors import ShardtoolsError

CacheLabel = Literal["cold-full", "cold-data", "warm", "mixed", "unknown"]
MAX_COLD_SHARE = 0.01
"""Of pages in the cache, at most, for a trial to be called cold."""
MIN_WARM_SHARE = 0.99
NAMES_CAVEAT = (
    "names and inodes were not dropped, and opening each file to evict it reads them in, which flatters small files: "
    "as root, --cache cold-full --allow-drop-caches drops them too"
)


@dataclass(frozen=True)
class CacheProof:
    """What a trial began with."""

    wanted: CacheState
    label: CacheLabel
    """What it is; never better than what was proved."""
    before: Residency
    """Of the files of the side on trial. Where names were dropped too it is from just before: a later look would read them in again."""
    why: str
    """Why it is not as wanted; empty where it is."""
    caveats: tuple[str, ...]
    """What the label does not say."""

    def require(self) -> None:
        """Raises ShardtoolsError unless the state is as wanted."""
        if self.label != self.wanted:
            raise ShardtoolsError(f"expected a page cache that is {self.wanted}, got {self.label}: {self.why}")

    def as_json(self, after: Residency | None = None) -> dict[str, Any]:
        """With shares of resident pages; None where unknown, the reason then in ``not_measured``."""
        resident = {"resident_before": self.before, "resident_after": after}
        missing = [
            {"metric": name, "reason": found.reason if found else self.before.reason or "nobody looked after the trial"}
            for name, found in resident.items()
            if found is None or found.share is None
        ]
        shares = {name: found.share if found else None for name, found in resident.items()}
        texts = {"wanted": self.wanted, "label": self.label, "method": self.before.method, "why": self.why, "caveats": list(self.caveats)}
        return texts | shares | {"not_measured": missing}


@dataclass(frozen=True)
class Side:
    """One side's pages, and what kind of data it is."""

    pages: PageCache
    kind: Kind
    bucket: Bucket | None = None
    """Where the data is not on this machine."""


def prepare(wanted: CacheState, side: Side, others: Sequence[Side], allows_drop: bool, roots: Roots | None = None) -> CacheProof:
    """Brings the cache to ``wanted`` as far as it goes for the side on trial.

    Cold: every side is evicted, so that none profits from the order of trials. ``cold-full`` needs root and ``allows_drop``, since
    it empties the cache of the whole machine; else the state is ``cold-data``, with the reason. Never raises for a state that could
    not be reached.
    """
    roots = roots or Roots()
    if side.bucket is not None:
        return _of_bucket(wanted, side.bucket, others)
    if not side.pages.files:
        nothing = Residency(0, None, "", "the data is not on this machine")
        return CacheProof(wanted, "unknown", nothing, nothing.reason, ())
    if wanted == "warm":
        before = side.pages.warm()
        label, why = _warm_label(before)
        return CacheProof(wanted, label, before, why, ())
    for other in others:
        other.pages.evict()
    before = side.pages.evict()
    label, why = _cold_label(before, side, roots)
    if wanted == "cold-full" and label == "cold-data":
        try:
            drop_caches(allows_drop, roots)
            label = "cold-full"
        except Unknown as unknown:
            why = str(unknown)
    return CacheProof(wanted, label, before, why, caveats(label, side, roots))


def _of_bucket(wanted: CacheState, bucket: Bucket, others: Sequence[Side]) -> CacheProof:
    if wanted != "warm":
        for other in others:
            other.pages.evict()
        why = "" if wanted == "cold-data" else "names of objects are looked up in the store, and nothing of them is kept here"
        return CacheProof(wanted, "cold-data", bucket.cold(), why, (STORE_CAVEAT,))
    before, why = bucket.warm()
    if bucket.folder is None:
        return CacheProof(wanted, "cold-data", before, why, (STORE_CAVEAT,))
    label, of_pages = _warm_label(before)
    return CacheProof(wanted, "mixed" if why and label == "warm" else label, before, why or of_pages, (KEPT_CAVEAT,))


def drop_caches(allows_drop: bool, roots: Roots) -> None:
    """Empties the caches of pages, names and inodes of the whole machine. Raises Unknown, saying why, where it may not or cannot."""
    if not allows_drop:
        raise Unknown("dropping the caches of the whole machine was not allowed (--allow-drop-caches)")
    if os.geteuid() != 0:
        raise Unknown("only root can drop names and inodes from the cache")
    path = f"{roots.proc}/sys/vm/drop_caches"
    os.sync()
    try:
        with open(path, "w") as file:
            file.write("3\n")
    except OSError as error:
        raise Unknown(f"{path} cannot be written, as in most containers: {os.strerror(error.errno or 0)}") from None


def caveats(label: CacheLabel, side: Side, roots: Roots) -> tuple[str, ...]:
    """What a cold label leaves open: names of small files, and caches below this machine."""
    if label not in ("cold-data", "cold-full"):
        return ()
    path = side.pages.files[0]
    found = [NAMES_CAVEAT] if label == "cold-data" and side.kind == "files" else []
    try:
        device = device_under(path, roots)
    except Unknown as unknown:
        return (*found, f"guest-cold; what caches lie below is unknown: {unknown}")
    if device.virtual is not False:
        found.append(f"guest-cold; device cache unknown: {device.virtual_reason}")
    return tuple(found)


def _cold_label(before: Residency, side: Side, roots: Roots) -> tuple[CacheLabel, str]:
    if before.share is None:
        return "unknown", f"what is in the page cache cannot be told: {before.reason}"
    if before.share <= MAX_COLD_SHARE:
        return "cold-data", ""
    if _is_memory(side.pages.files[0], roots):
        return "warm", "the files are on a file system in memory, which cannot be cold"
    held = f"{100 * before.share:.1f} % of the pages stayed, of {', '.join(before.examples)} among others"
    return "mixed", f"{held}; a program that maps the files or writes them holds their pages: end it first"


def _warm_label(before: Residency) -> tuple[CacheLabel, str]:
    if before.share is None:
        return "unknown", f"what is in the page cache cannot be told: {before.reason}"
    if before.share >= MIN_WARM_SHARE:
        return "warm", ""
    return "mixed", f"of the files just read, {100 * before.share:.1f} % stayed in the page cache: memory does not hold them all"


def _is_memory(path: str, roots: Roots) -> bool:
    try:
        return is_memory(mount_under(path, roots))
    except Unknown:
        return False

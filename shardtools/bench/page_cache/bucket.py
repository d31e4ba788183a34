"""Data in a bucket, of which this machine's page cache holds nothing: what a trial of it begins with."""

import os
from dataclasses import dataclass

from shardtools.bench.page_cache import PageCache, Residency

STORE_CAVEAT = (
    "data in a bucket comes over the network, no page cache of this machine holds it; what the store itself has in memory is unknown"
)
KEPT_CAVEAT = "warm data of a bucket is the local copies that the reader keeps; nothing is fetched again"
_IN_BUCKET = "the data is in a bucket, which has no pages in this machine's cache"


@dataclass(frozen=True)
class Bucket:
    """A side whose data is in an object store."""

    reader: str
    keeps_copies: bool
    """The reader keeps what it fetches."""
    folder: str | None = None
    """Where it finds what it kept; None: each trial begins without."""
    is_filled: bool = False
    """All of it was read into that folder."""

    def cold(self) -> Residency:
        """Nothing is here: every trial's folder for copies is new and its own."""
        return Residency(0, None, "", _IN_BUCKET)

    def warm(self) -> tuple[Residency, str]:
        """The local copies read into the page cache; with it why not all of the data is here, empty where it is."""
        if self.folder is None:
            return self.cold(), f"the reader {self.reader} keeps no local copies, so every trial fetches everything"
        files = [os.path.join(folder, name) for folder, _, names in os.walk(self.folder) for name in names]
        why = "" if self.is_filled else "only a part of the data was read before, so the rest is fetched"
        return PageCache([path for path in files if os.path.isfile(path)]).warm(), why

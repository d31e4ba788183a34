"""Files that lie beside shards and are taken for shards, since any part of a name counts as its extension.

Source: datasets 5.2.0, data_files.py.
"""

from shardtools.datasets import Dataset
from shardtools.places import Listing
from shardtools.verify.targets._complaints import At, Complaints
from shardtools.verify.targets.hf import BESIDE

_ENERGON_INDEX = ".idx"


def check_beside(dataset: Dataset, complaints: Complaints) -> None:
    """Complain of files such as ``x.tar.idx`` beside ``x.tar``. Of shards named by a pattern, only Energon's index is looked for."""
    known = {shard.name for shard in dataset.shards}
    if dataset.is_selection:
        asked = [shard.name + _ENERGON_INDEX for shard in dataset.shards]
        listing = Listing(dataset.storage, only=asked)
        names = [name for name in asked if listing.num_bytes(name) is not None]
    else:
        names = [name for name in dataset.storage.names() if ".tar." in name[name.rfind("/") + 1 :] and not _is_hidden(name)]
    for name in sorted(names):
        if name not in known:
            complaints.add(BESIDE, At(name))


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "__")) or "/." in name or "/__" in name

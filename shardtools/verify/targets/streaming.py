"""What mosaicml-streaming makes of MDS. Source: mosaicml-streaming 0.13.0, base/stream.py, base/format/mds/, base/compression.py."""

import re

from shardtools.datasets import Dataset, Shard
from shardtools.formats import MDS_INDEX_NAME
from shardtools.verify.targets._complaints import At, Complaints, Rule

PICKLES = Rule("target-rejects", "with pickled columns (pkl), which it refuses unless allow_unsafe_types is given", "shard")
UNKNOWN = Rule("target-rejects", "with columns of an encoding it does not know", "shard")
CODEC = Rule("target-rejects", "of a compression it does not know", "shard")
NO_INDEX = Rule(
    "target-rejects", f"that the {MDS_INDEX_NAME} of the dataset's or the split's own folder does not name, where alone it looks", "shard"
)
NO_SAMPLES = Rule("target-rejects", f"without a sample: {MDS_INDEX_NAME} lists none, where it stops", "dataset")
EMPTY = Rule("target-rejects", "without a sample, by which it divides", "shard")

_DTYPE = r"(?:u?int(?:8|16|32|64)|float(?:16|32|64))"
_ENCODING = re.compile(
    rf"bytes|str|int|{_DTYPE}|str_int|str_float|str_decimal|ndarray(?::{_DTYPE}(?::[0-9]+(?:,[0-9]+)*)?)?"
    r"|json|pkl|pil|jpeg|png|jpegarray|jpeg_array|list\[(?:pil|jpeg|png)\]"
)
_CODEC = re.compile(r"(?:br|bz2|gz|zstd)(?::[0-9]+)?|snappy")


def check_streaming(dataset: Dataset, complaints: Complaints) -> tuple[str, ...]:
    """Complain of what StreamingDataset refuses; returns what else is worth knowing, as sentences. Reads no shard."""
    index_text = dataset.storage.get(MDS_INDEX_NAME)
    for shard in dataset.shards:
        _check_shard(shard, complaints)
        if (index_text is None and not shard.split) or shard.entry is None:
            complaints.add(NO_INDEX, At(shard.name))
    if dataset.num_samples == 0:
        complaints.add(NO_SAMPLES, At(MDS_INDEX_NAME))
    if any(shard.compression is not None for shard in dataset.shards):
        return ("LocalDataset of streaming does not read compressed shards; StreamingDataset unpacks them beside the compressed ones.",)
    return ()


def _check_shard(shard: Shard, complaints: Complaints) -> None:
    columns = {} if shard.entry is None else shard.entry.columns
    if "pkl" in columns.values():
        complaints.add(PICKLES, At(shard.name))
    if any(_ENCODING.fullmatch(encoding) is None for encoding in columns.values()):
        complaints.add(UNKNOWN, At(shard.name))
    if shard.compression is not None and _CODEC.fullmatch(shard.compression) is None:
        complaints.add(CODEC, At(shard.name))
    if shard.num_samples == 0:
        complaints.add(EMPTY, At(shard.name))

"""What the first rows of tables, records or samples of shards show, and the survey that follows from them."""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from shardtools.keys import unescape_key
from shardtools.plan import Partition, ShardLimit
from shardtools.sample import Batch
from shardtools.sources import PREVIEW_KEYS, Survey, SurveyRequest, escape_note
from shardtools.sources._extras import ratios

FIRST_ROWS = 1000
FIRST_BYTES = 32 << 20


@dataclass(frozen=True)
class Sampled:
    """What the first rows show."""

    keys: list[bytes]
    stored_ratio: float
    """Stored bytes per byte of input."""
    beside_ratio: float
    """Bytes read beside each byte of input."""


def sampled(
    first: Iterable[tuple[Batch, float]], fields_of: Sequence[str], request: SurveyRequest, encode: Callable[[Batch], Sequence[int]]
) -> Sampled:
    """``first`` are batches with the bytes of input each takes, ``encode`` gives the stored bytes of each sample.

    Raises UsageError where the columns, ``fields_of``, lack what is asked for beside the fields.
    """
    input_bytes, stored_bytes = 0.0, 0
    keys: list[bytes] = []
    beside: list[Batch] = []
    for batch, num_bytes in first:
        input_bytes += num_bytes
        stored_bytes += sum(encode(batch))
        keys += batch.keys
        beside.append(replace(batch, columns={}))
    return Sampled(keys, *ratios(request, beside, fields_of, stored_bytes, input_bytes))


@dataclass(frozen=True)
class PartitionInput:
    """What one partition reads."""

    extents: list[bytes]
    num_bytes: int
    num_rows: int | None


def partitions(inputs: Iterable[PartitionInput], ratio: float, limit: ShardLimit) -> Iterator[Partition]:
    """The partitions, with their numbers of shards as estimated."""
    for index, one in enumerate(inputs):
        if limit.num_bytes is not None:
            num_shards = max(1, ceil(one.num_bytes * ratio / limit.num_bytes))
        else:
            num_shards = ceil((one.num_rows or 1) / (limit.num_samples or 1))
        yield Partition(index, one.extents, one.num_bytes, one.num_rows, num_shards)


def with_keys(survey: Survey, keys: Sequence[bytes], stored: Container[bytes] = ()) -> Survey:
    """The survey with what the first keys say; those among ``stored`` are as they were."""
    escaped = [(unescape_key(key), key) for key in keys if b"=" in key and key not in stored]
    survey.preview = [key.decode() for key in keys[:PREVIEW_KEYS]]
    survey.notes += [f"of the first {len(keys)}: {note}" for note in escape_note(len(escaped), escaped)]
    return survey

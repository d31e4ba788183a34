"""The batches that settings are judged by: as given, as measured on the data, or two of images."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardtools.bench.doctor.request import BATCH_SIZE, DoctorRequest
from shardtools.bench.prediction import Batch

_IMAGE_VALUES = 3 * 224 * 224


@dataclass(frozen=True)
class NamedBatch:
    """A batch and where its size comes from."""

    name: str
    """Short, for a heading."""
    source: str
    batch: Batch

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "source": self.source, **self.batch.as_json()}


def batches_of(request: DoctorRequest, sides: Sequence[Mapping[str, Any]]) -> list[NamedBatch]:
    """``sides``: what was learnt of each URI. A size that is given goes before all others."""
    if request.batch_bytes is not None:
        return [NamedBatch("as given", "--batch-bytes", evenly(request.batch_bytes, request.num_tensors, BATCH_SIZE))]
    return list(_measured(sides)) or [
        _images("uint8", 1, request.num_tensors),
        _images("float32", 4, request.num_tensors),
    ]


def _measured(sides: Sequence[Mapping[str, Any]]) -> Iterator[NamedBatch]:
    """The largest of the first batches of each side; sides with the same are shown once."""
    seen = set()
    for side in sides:
        made = [Batch.of_tensors(tensors, side["samples"]) for tensors in side["batches"]]
        if not made:
            continue
        largest = max(made, key=lambda batch: batch.shm_bytes)
        if largest not in seen:
            seen.add(largest)
            made_of = f"the largest of the first {len(made)} batches" if len(made) > 1 else "one batch"
            source = f"{made_of} of {side['samples']} samples of {side['uri']}"
            yield NamedBatch(side["kind"], source, largest)


def _images(name: str, value_bytes: int, num_tensors: int) -> NamedBatch:
    num_bytes = BATCH_SIZE * _IMAGE_VALUES * value_bytes
    return NamedBatch(name, f"{BATCH_SIZE} images of 3 x 224 x 224 as {name}", evenly(num_bytes, num_tensors, BATCH_SIZE))


def evenly(num_bytes: int, num_tensors: int, num_samples: int) -> Batch:
    """A batch whose tensors are of one size, but for the first, which has what is left over."""
    each, rest = divmod(num_bytes, num_tensors)
    return Batch.of_tensors([each + rest, *[each] * (num_tensors - 1)], num_samples)

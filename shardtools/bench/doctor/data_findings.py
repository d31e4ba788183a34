"""What the data itself means for loader workers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardtools.bench.doctor.finding import Finding
from shardtools.bench.doctor.request import DoctorRequest
from shardtools.units import plural


def data_findings(sides: Sequence[Mapping[str, Any]], request: DoctorRequest) -> Iterator[Finding]:
    """``sides``: what was learnt of each URI."""
    for side in sides:
        uri, num_shards = side["uri"], side["num_shards"]
        if not side["batches"]:
            why = side["error"] or "it holds no samples"
            yield Finding("note", "data", f"No batch of {uri} could be measured, so sizes are assumed: {why}.")
        num_readers = request.num_ranks * max(request.num_workers)
        if num_shards is not None and num_shards < num_readers:
            most = num_shards // request.num_ranks
            yield Finding(
                "warning",
                "data",
                f"{uri} has {plural(num_shards, 'shard')} for {num_readers:,} workers, and a reader that hands whole shards out leaves the "
                f"others idle: use num_workers={most}, or pack it with a smaller --shard-size.",
            )

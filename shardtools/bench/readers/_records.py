"""Records of JSON lines, read map-style in random order: lines are indexed when the side is opened."""

from typing import Any

import numpy as np
from torch.utils.data import Dataset

from shardtools.bench.readers._random import sampled_kwargs
from shardtools.bench.readers._stopwatch import Stopwatch, now
from shardtools.bench.readers.lines import index_lines, key_of, line_files, record_key_field, record_of
from shardtools.bench.readers.opened import open_text, read_at
from shardtools.bench.readers.side import KEY, Delivery, Side
from shardtools.bench.spec import Layout, Workload
from shardtools.errors import UsageError
from shardtools.sources.jsonl import TextFile


class Records(Dataset[Any]):
    """Record ``i``: a seek and a line, of an object one GET of its range; each worker keeps its files open."""

    def __init__(self, files: list[TextFile], key_field: str | None, delivery: Delivery) -> None:
        self._files = files
        self._key_field = key_field
        self._delivery = delivery
        self._offsets = [np.frombuffer(index_lines(file), np.int64) for file in files]
        self._firsts = np.concatenate(([0], np.cumsum([len(offsets) for offsets in self._offsets])))
        self._open: dict[int, Any] = {}

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def __getitem__(self, i: int) -> Any:
        which = int(np.searchsorted(self._firsts, i, side="right")) - 1
        offset = int(self._offsets[which][i - self._firsts[which]])
        timers = self._delivery.timers
        began, storage = now(), Stopwatch()
        line = self._line(which, offset, self._end(which, i))
        if timers is not None:
            storage.add(began, len(line))
            storage.flush(timers, "storage")
        record = record_of(line, offset)
        key = key_of(self._files[which], offset, record, self._key_field) if self._delivery.is_proof else ""
        return self._delivery.finish({KEY: key, "json": record})

    def close(self) -> None:
        """Of the process that opened them."""
        while self._open:
            self._open.popitem()[1].close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}

    def _end(self, which: int, i: int) -> int:
        """Where the next record begins, or the file ends."""
        return self._files[which].num_bytes if i + 1 == self._firsts[which + 1] else int(self._offsets[which][i + 1 - self._firsts[which]])

    def _line(self, which: int, offset: int, end: int) -> bytes:
        file = self._open.get(which)
        if file is None:
            file = self._open[which] = open_text(self._files[which].path)
        return read_at(file, offset, end - offset).partition(b"\n")[0]


def open_layout(layout: Layout, workload: Workload, delivery: Delivery) -> Side:
    files = line_files(layout.uri)
    compressed = next((file.path for file in files if file.is_compressed), None)
    if compressed is not None:
        raise UsageError(
            f"expected plain JSON lines for random access, got {compressed}, which is compressed; unpack it, or use --reader shardtools"
        )
    dataset = Records(files, record_key_field(workload), delivery)
    order = "random lines" if workload.shuffle else "lines in file order"
    return Side(dataset, sampled_kwargs(dataset, workload, delivery), len(dataset), order, close=dataset.close)

"""One partition's samples on their way into spills: encoded, each with the split that it goes to."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from shardtools.build.reading import Reading, Route, Selected, split_names
from shardtools.build.stages.spill import Numbers
from shardtools.formats import Chunk
from shardtools.manifest import Ledger
from shardtools.plan import Recipe
from shardtools.sample import Batch, Reject


class CountedRejects(Protocol):
    """A sink that knows how many of each reason it was given."""

    def __call__(self, reject: Reject, /) -> None: ...

    def by_reason(self) -> Counter[str]: ...


class RoutedChunk(NamedTuple):
    """Some samples in order."""

    batch: Batch
    """What they were encoded from; longer where some were rejected."""
    chunk: Chunk
    splits: Numbers
    """The number of each sample's split in the recipe; 0 without splits."""


class Routed:
    """Reads a partition, once for each split where rows are made: a row holds documents of one split alone.

    ``ledger`` and ``document_digests`` are those of the partition when ``chunks`` has ended.
    """

    def __init__(self, recipe: Recipe, roots: Sequence[str], item: Selected, rejects: CountedRejects) -> None:
        self._recipe = recipe
        self._roots = roots
        self._item = item
        self._rejects = rejects
        self._numbers = {name: i for i, (name, _) in enumerate(recipe.selection.split)}
        self.ledger = Ledger()
        self.document_digests: list[bytes] = []

    def chunks(self) -> Iterator[RoutedChunk]:
        """All samples in their order. Raises ShardtoolsError where one was lost on the way."""
        recipe, rejects = self._recipe, self._rejects
        num_splits = len(recipe.selection.split)
        splits: Sequence[int | None] = range(num_splits) if recipe.transforms and num_splits else [None]
        encoder = recipe.format.encoder(recipe.fields, recipe.limit.num_bytes)
        for split in splits:
            reading = Reading(recipe, self._roots, self._item.partition, rejects, Route(self._item.cut, split))
            num_stored = 0
            for batch in reading.batches():
                chunk = encoder.encode(batch, reading.reject_stored)
                num_stored += len(chunk.keys)
                if chunk.keys:
                    yield RoutedChunk(batch, chunk, self._splits(chunk, batch, split))
            self.document_digests += reading.digests
            self.ledger += reading.ledger(num_stored, rejects.by_reason() - self.ledger.rejects)

    def _splits(self, chunk: Chunk, batch: Batch, split: int | None) -> Numbers:
        selection = self._recipe.selection
        if split is not None or not selection.split:
            return np.full(len(chunk.keys), split or 0, np.int64)
        names = selection.split_of(split_names(selection, batch))
        return np.array([self._numbers[names[chunk.index_in_batch(i)]] for i in range(len(chunk.keys))], np.int64)

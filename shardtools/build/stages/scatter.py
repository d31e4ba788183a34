"""The pass that writes every encoded sample of a partition to its spill."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardtools.build.attempts import Meter, Rejects, Terms
from shardtools.build.progress import listing, missing_receipt
from shardtools.build.reading import Selected
from shardtools.build.receipts import BuildNames, Receipt
from shardtools.build.stages.layout import OrderWords, ScatterLayout
from shardtools.build.stages.routed import Routed
from shardtools.build.stages.scattered import Scattered
from shardtools.build.stages.sizes import Tally
from shardtools.build.stages.spill import SpillFacts, SpillWriter
from shardtools.duplicates import DigestRun, KeyDigests
from shardtools.engines import Report
from shardtools.places import at_once
from shardtools.storage import Storage, open_storage


@dataclass(frozen=True)
class ScatterTask:
    """Scatters partitions of one plan."""

    terms: Terms
    layout: ScatterLayout

    def __call__(self, item: Selected, report: Report) -> None:
        terms, storage, names = self.terms, open_storage(self.terms.destination), self.terms.names
        # Each attempt has a spill of its own, and the receipt names it: what another one writes cannot get between the two.
        name = names.spill(item.index, os.urandom(8).hex())
        output = SpillWriter(name, storage.writer(name), self.layout.num_segments)
        attempt = _Attempt(self, item, Rejects(terms.budget), output)
        try:
            # Samples count when they come to their shards.
            attempt.run(lambda progress: report(progress._replace(num_samples=0)))
            spill = output.finish()
        except BaseException:
            output.abort()
            raise
        terms.leave(storage, names.scattered(item.index), attempt.scattered(spill).serialize())


class _Attempt:
    """One partition on its way into one spill."""

    def __init__(self, task: ScatterTask, item: Selected, rejects: Rejects, output: SpillWriter) -> None:
        self._task = task
        self._item = item
        self._rejects = rejects
        self._output = output
        self._words = OrderWords(task.layout.seed, item.index)
        self._tally = Tally(task.layout)
        self._digests = KeyDigests()
        self._routed = Routed(task.terms.recipe, task.terms.roots, item, rejects)

    def run(self, report: Report) -> None:
        meter = Meter(report, self._rejects)
        for _, chunk, splits in self._routed.chunks():
            words, costs = self._words.take(len(chunk.keys)), np.array(chunk.costs, np.int64)
            self._tally.add(words, splits, costs)
            self._output.add(chunk, words, self._task.layout.segments(words, splits))
            self._digests.add(chunk.keys)
            meter.add(len(chunk.keys), int(costs.sum()))
        meter.flush()

    def scattered(self, spill: SpillFacts) -> Scattered:
        receipt = Receipt(
            partition=self._item.index,
            plan_digest=self._task.terms.plan_digest,
            inputs_digest=self._item.inputs_digest(),
            ledger=self._routed.ledger,
            rejects=tuple(self._rejects.found),
            keys=DigestRun.of(self._routed.document_digests if self._task.terms.recipe.transforms else self._digests.plain),
            folded_keys=DigestRun.of(self._digests.folded),
        )
        return Scattered(receipt, spill, self._tally.sizes(), self._task.layout)


class ScatterProgress:
    """Which partitions are scattered."""

    def __init__(self, storage: Storage, plan_digest: str, layout: ScatterLayout, items: Sequence[Selected]) -> None:
        self._storage = storage
        self._plan_digest = plan_digest
        self._layout = layout
        self._names = BuildNames(plan_digest)
        self._items = items
        self._known: dict[int, Scattered] = {}

    def missing(self) -> list[Selected]:
        """Those that must be scattered: no receipt, changed inputs, another layout, or a spill that is not there."""
        there = listing(self._storage)

        def look(item: Selected) -> Scattered | None:
            known = self._known.get(item.index)
            if known is not None or self._names.scattered(item.index) not in there:
                return known
            data = self._storage.get(self._names.scattered(item.index))
            found = None if data is None else Scattered.parse(data)
            if found is None or (found.receipt.plan_digest, found.receipt.inputs_digest) != (self._plan_digest, item.inputs_digest()):
                return None
            spill = there.get(found.spill.name) if found.layout == self._layout else None
            # The frames of a spill have checksums of their own.
            return found if spill is not None and spill.num_bytes == found.spill.num_bytes else None

        found = list(at_once(self._storage, look, self._items))
        self._known = {item.index: one for item, one in zip(self._items, found, strict=True) if one is not None}
        return [item for item in self._items if item.index not in self._known]

    def scattered(self) -> list[Scattered]:
        """All of them, in dataset order. Raises StorageError where one is missing."""
        if missing := self.missing():
            raise missing_receipt(self._storage, self._names.scattered(missing[0].index))
        return [self._known[item.index] for item in self._items]

"""One worker's work: build one partition, leave its shards staged and a receipt."""

from dataclasses import dataclass

from shardtools.build.attempts import Meter, Rejects, StagedNames, Terms
from shardtools.build.numbering import Planned
from shardtools.build.reading import Reading, Route, Selected
from shardtools.build.receipts import Receipt
from shardtools.build.rolling import ShardRoller
from shardtools.duplicates import DigestRun, KeyDigests
from shardtools.engines import Report
from shardtools.plan import Partition
from shardtools.storage import open_storage


@dataclass(frozen=True)
class BuildTask:
    """Builds partitions of one plan."""

    terms: Terms
    final: Planned | None = None
    """Names that shards get at once; None: those they have until publication."""

    def __call__(self, item: Partition | Selected, report: Report) -> None:
        taken = Selected(item) if isinstance(item, Partition) else item
        terms, recipe, storage = self.terms, self.terms.recipe, open_storage(self.terms.destination)
        rejects, digests = Rejects(terms.budget), KeyDigests()
        encoder = recipe.format.encoder(recipe.fields, recipe.limit.num_bytes)
        staged = StagedNames(terms, storage, taken.index, self.final)
        roller = ShardRoller(staged, encoder.budget_bytes, Meter(report, rejects))
        reading = Reading(recipe, terms.roots, taken.partition, rejects, Route(taken.cut))
        with roller.staging():
            for batch in reading.batches():
                chunk = encoder.encode(batch, reading.reject_stored)
                roller.add(chunk)
                digests.add(chunk.keys)
        receipt = Receipt(
            partition=taken.index,
            plan_digest=terms.plan_digest,
            inputs_digest=taken.inputs_digest(),
            shards=tuple(roller.shards),
            ledger=reading.ledger(roller.num_samples, rejects.by_reason()),
            rejects=tuple(rejects.found),
            oversize_keys=tuple(roller.oversize_keys),
            keys=DigestRun.of(reading.digests if recipe.transforms else digests.plain),
            folded_keys=DigestRun.of(digests.folded),
        )
        terms.leave(storage, terms.names.receipt(taken.index), receipt.serialize())

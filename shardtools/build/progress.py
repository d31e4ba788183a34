"""How far the build of a plan has come: which partitions are built, and which final names were given already."""

from collections.abc import Iterator, Sequence

from shardtools.build.receipts import PUBLISHING_NAME, BuildNames, Receipt, StagedShard
from shardtools.errors import StorageError
from shardtools.plan import Partition, Plan
from shardtools.storage import Storage

Numbered = tuple[str, str, StagedShard]
"""A shard's staged name, its final name, and what it is."""


class BuildProgress:
    """What lies at the destination of one plan that is not published."""

    def __init__(self, storage: Storage, plan: Plan) -> None:
        self._storage = storage
        self._plan = plan
        self._names = BuildNames(plan.digest)

    def receipts(self) -> list[Receipt]:
        """The receipts of all partitions, in dataset order. Raises StorageError where one is missing."""
        found = []
        for partition in self._plan.partitions:
            receipt = self._receipt(partition)
            if receipt is None:
                raise StorageError(
                    f"expected a receipt in {self._storage.uri}/{self._names.receipt(partition.index)}, got none; "
                    "another run may be overwriting this destination: let it finish, then run again"
                )
            found.append(receipt)
        return found

    def has_receipts(self) -> bool:
        """Whether any partition is built."""
        return any(self._storage.num_bytes(self._names.receipt(partition.index)) is not None for partition in self._plan.partitions)

    def missing(self) -> list[Partition]:
        """The partitions that must be built: no receipt, changed inputs, or a shard that is not there as received.

        Where a publication had begun and must be repeated with other shards, its final names are taken back first.
        """
        moved = self._moved()
        missing = [partition for partition in self._plan.partitions if not self._is_built(partition, moved)]
        if missing and moved:
            with self._storage.exclusive():
                self._take_back(moved)
        return missing

    def _take_back(self, moved: dict[str, str]) -> None:
        # Another number of shards shifts every number after it: none may stay under its old one.
        for staged, final in moved.items():
            if self._storage.num_bytes(final) is not None and self._storage.num_bytes(staged) is None:
                self._storage.move(final, staged)
        self._storage.delete(PUBLISHING_NAME)

    def numbered(self, receipts: Sequence[Receipt]) -> Iterator[Numbered]:
        """Every shard in dataset order; numbers are contiguous, of one width."""
        width = len(str(max(sum(len(receipt.shards) for receipt in receipts) - 1, 0)))
        number = 0
        for receipt in receipts:
            for k, shard in enumerate(receipt.shards):
                name = self._plan.recipe.format.shard_name(number, width)
                # Shards that were packed elsewhere may be compressed though the dataset as a whole is not.
                suffix = shard.facts.details.get("name_suffix", "")
                yield self._names.staged(receipt.partition, k), f"{name}{suffix}", shard
                number += 1

    def is_right(self, name: str, shard: StagedShard) -> bool:
        """Whether the object of this name has the shard's very bytes; reads all of it."""
        try:
            return self._storage.num_bytes(name) == shard.facts.num_bytes and self._storage.sha256(name) == shard.facts.sha256
        except StorageError:
            # Another run of the same plan moved it between the two looks.
            return False

    def _receipt(self, partition: Partition) -> Receipt | None:
        data = self._storage.get(self._names.receipt(partition.index))
        receipt = None if data is None else Receipt.parse(data)
        return receipt if receipt is not None and receipt.plan_digest == self._plan.digest else None

    def _is_built(self, partition: Partition, moved: dict[str, str]) -> bool:
        receipt = self._receipt(partition)
        if receipt is None or receipt.inputs_digest != partition.inputs_digest():
            return False
        return all(self._is_there(self._names.staged(partition.index, k), moved, shard) for k, shard in enumerate(receipt.shards))

    def _is_there(self, staged: str, moved: dict[str, str], shard: StagedShard) -> bool:
        return self.is_right(staged, shard) or (staged in moved and self.is_right(moved[staged], shard))

    def _moved(self) -> dict[str, str]:
        """The final name by staged name, of a publication of this plan that has begun."""
        pairs = (line.split("\t") for line in read_publishing(self._storage))
        return {staged: final for staged, final in pairs if staged.startswith(self._names.folder + "/")}


def read_publishing(storage: Storage) -> list[str]:
    """The lines of the list that a publication leaves before it moves the first shard."""
    data = storage.get(PUBLISHING_NAME)
    return [] if data is None else data.decode().splitlines()

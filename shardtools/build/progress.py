"""How far the build of a plan has come: which partitions are built, and which final names were given already."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from shardtools.build.numbering import OwnPart, Planned, final_names
from shardtools.build.receipts import FINAL_NAMES_NAME, PUBLISHING_NAME, BuildNames, Receipt, StagedShard
from shardtools.errors import StorageError
from shardtools.manifest import MANIFEST_NAME
from shardtools.places import at_once
from shardtools.plan import Plan
from shardtools.storage import Storage, Stored

Numbered = tuple[str, str, StagedShard]
"""A shard's staged name, its final name, and what it is."""
_IsThere = Callable[[Stored | None, StagedShard], bool]


class Item(Protocol):
    """What shards are built from in one go: a partition, or something in its place."""

    @property
    def index(self) -> int:
        """Its place in the dataset."""

    def inputs_digest(self) -> str:
        """Another value means that it is not what its receipt was given for."""


class BuildProgress:
    """What lies at the destination of one plan that is not published; its partitions are ``items`` where there are any."""

    def __init__(self, storage: Storage, plan: Plan, final: Planned | None = None, items: Sequence[Item] | None = None) -> None:
        self._items: Sequence[Item] = plan.partitions if items is None else items
        self._storage = storage
        self._plan = plan
        self._final = final
        self._names = BuildNames(plan.digest)
        self._found_right: set[tuple[Stored, str]] = set()

    def receipts(self) -> list[Receipt]:
        """The receipts of all partitions, in dataset order. Raises StorageError where one is missing."""
        return list(at_once(self._storage, self._demanded_receipt, self._items))

    def has_receipts(self) -> bool:
        """Whether any pass is done with any partition."""
        return any(True for folder in self._names.passes for _ in self._storage.names(folder))

    def missing(self, is_own: Callable[[int], bool] = lambda _: True) -> list[Item]:
        """The partitions that must be built: no receipt, changed inputs, or a shard that is not there as received.

        Shards of partitions that are not this run's own are read only once nothing else is missing: or each of N runs that share
        a build would read what all of them built.

        Where other shards than before are to be published, or the same under other names, the final names that were given are
        taken back first. Nothing is missing where a dataset was published meanwhile; ``Publisher`` tells whose it is.
        """
        given = self._given()
        if self._final is not None and given != (planned := self._planned(self._final)):
            if given:
                if self._is_published():
                    return []
                self._take_back(given)
            self._storage.put(PUBLISHING_NAME, listed(planned))
            given = planned
        built = self._built(given, is_own)
        if self._final is not None:
            self._final.allow(self._storage)
        elif self._is_other(given, built):
            with self._storage.exclusive():
                # Another run may have been giving them meanwhile, and in a bucket may be at it now.
                given = self._given()
                built = self._built(given, is_own)
                if self._is_published():
                    return []
                if self._is_other(given, built):
                    self._take_back(given)
                    built = self._built({}, is_own)
        return [item for item, found in zip(self._items, built, strict=True) if found is None]

    def numbered(self, receipts: Sequence[Receipt]) -> list[Numbered]:
        """Every shard in dataset order: split by split as the recipe names them, partition by partition in each."""
        names = self._final_names([_own_parts(receipt) for receipt in receipts])
        shards = (shard for receipt in receipts for shard in receipt.shards)
        found = [(staged, final, shard) for (staged, final), shard in zip(names.items(), shards, strict=True)]
        order = {split: i for i, split in enumerate(self._plan.recipe.selection.splits)}
        return sorted(found, key=lambda numbered: order.get(numbered[2].split, 0))

    def is_right(self, found: Stored | None, shard: StagedShard) -> bool:
        """Whether a stored object has the shard's very bytes; reads all of it where its version does not say so."""
        if found is None or not _has_length(found, shard):
            return False
        if shard.version and found.version == shard.version:
            return True
        look = found, shard.facts.sha256
        try:
            # A run that shares a build looks before its work and after it.
            if look not in self._found_right and self._storage.sha256(found.name) == shard.facts.sha256:
                self._found_right.add(look)
        except StorageError:
            # Another run of the same plan moved it between the two looks.
            return False
        return look in self._found_right

    def _final_names(self, parts: Sequence[Sequence[OwnPart]]) -> dict[str, str]:
        """The final name by staged name of all shards, partition by partition."""
        names = final_names(self._plan.recipe.format, parts)
        return {self._names.staged(partition, k): name for partition, its in enumerate(names) for k, name in enumerate(its)}

    def _planned(self, final: Planned) -> dict[str, str]:
        return self._final_names([[OwnPart()] * final.numbering.count(item.index) for item in self._items])

    def _is_published(self) -> bool:
        """Names are given when there is no manifest any more, or not yet: where there is one, they are those of a dataset."""
        return self._storage.num_bytes(MANIFEST_NAME) is not None

    def _is_other(self, given: Mapping[str, str], built: Sequence[tuple[OwnPart, ...] | None]) -> bool:
        """Whether shards that have final names are not those that will be published under them."""
        return bool(given) and (None in built or given != self._final_names([found or () for found in built]))

    def _take_back(self, given: Mapping[str, str]) -> None:
        """Another number of shards shifts every number after it: none may stay under its old one."""
        # First of all nobody may give any more.
        self._storage.delete(FINAL_NAMES_NAME)
        there = listing(self._storage)

        def take(names: tuple[str, str]) -> None:
            staged, final = names
            if final in there and staged in there:
                self._storage.delete(final)
            elif final in there:
                self._storage.move(final, staged)

        list(at_once(self._storage, take, given.items()))
        self._storage.delete(PUBLISHING_NAME)

    def _built(self, given: Mapping[str, str], is_own: Callable[[int], bool]) -> list[tuple[OwnPart, ...] | None]:
        """For each partition what its shards' final names have of their own; None where it must be built."""
        there = listing(self._storage)

        def look(item: Item, is_read: bool) -> tuple[OwnPart, ...] | None:
            receipt = self._receipt(item) if self._names.receipt(item.index) in there else None
            is_there = self.is_right if is_read else _has_length
            return _own_parts(receipt) if receipt is not None and self._is_built(item, receipt, given, there, is_there) else None

        built = list(at_once(self._storage, lambda item: look(item, is_own(item.index)), self._items))
        if None in built or all(is_own(item.index) for item in self._items):
            return built
        return list(at_once(self._storage, lambda item: look(item, True), self._items))

    def _is_built(self, item: Item, receipt: Receipt, given: Mapping[str, str], there: Mapping[str, Stored], is_there: _IsThere) -> bool:
        if receipt.inputs_digest != item.inputs_digest():
            return False
        if self._final is not None and len(receipt.shards) != self._final.numbering.count(item.index):
            return False
        staged = [self._names.staged(item.index, k) for k in range(len(receipt.shards))]
        return all(
            is_there(there.get(name), shard) or (name in given and is_there(there.get(given[name]), shard))
            for name, shard in zip(staged, receipt.shards, strict=True)
        )

    def _receipt(self, item: Item) -> Receipt | None:
        data = self._storage.get(self._names.receipt(item.index))
        receipt = None if data is None else Receipt.parse(data)
        return receipt if receipt is not None and receipt.plan_digest == self._plan.digest else None

    def _demanded_receipt(self, item: Item) -> Receipt:
        receipt = self._receipt(item)
        if receipt is None:
            raise missing_receipt(self._storage, self._names.receipt(item.index))
        return receipt

    def _given(self) -> dict[str, str]:
        """The final name by staged name, of a publication of this plan that has begun."""
        pairs = (line.split("\t") for line in read_publishing(self._storage))
        return {staged: final for staged, final in pairs if staged.startswith(self._names.folder + "/")}


def _has_length(found: Stored | None, shard: StagedShard) -> bool:
    return found is not None and found.num_bytes == shard.facts.num_bytes


def _own_parts(receipt: Receipt) -> tuple[OwnPart, ...]:
    # Shards that were packed elsewhere may be compressed though the dataset as a whole is not.
    return tuple(OwnPart(shard.split, str(shard.facts.details.get("name_suffix", ""))) for shard in receipt.shards)


def missing_receipt(storage: Storage, name: str) -> StorageError:
    """The error where what a finished pass left is not there any more."""
    return StorageError(
        f"expected a receipt in {storage.uri}/{name}, got none; "
        "another run may be overwriting this destination: let it finish, then run again"
    )


def listing(storage: Storage) -> dict[str, Stored]:
    """Every object by its name: one look at a store in place of one for each object."""
    return {found.name: found for found in storage.entries()}


def listed(names: Mapping[str, str]) -> bytes:
    """What ``read_publishing`` reads, of final names by staged names."""
    return "".join(f"{staged}\t{final}\n" for staged, final in names.items()).encode()


def read_publishing(storage: Storage) -> list[str]:
    """The lines of the list that a publication leaves before it gives the first final name."""
    data = storage.get(PUBLISHING_NAME)
    return [] if data is None else data.decode().splitlines()

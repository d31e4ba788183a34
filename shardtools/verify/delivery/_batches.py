"""Batches that know their ids and the worker they come from."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from torch.utils.data import get_worker_info

from shardtools.verify.delivery._ids import MisuseError, ids_finder
from shardtools.verify.delivery._spec import RunSpec


class Delivered(NamedTuple):
    """Ids that came together."""

    worker: int | None
    """None where the batch does not tell."""
    ids: list[str]
    is_batch: bool
    """The reader itself put them together."""


def worker_number() -> int:
    """Of this process among the workers of its rank; 0 in the rank's own."""
    info = get_worker_info()
    return 0 if info is None else int(info.id)


class CollateIds:
    """Collates items to their ids alone, so that nothing else travels between processes.

    A dict whose first value is as long as the batch: StreamingDataLoader counts what it delivered by it.
    """

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec

    def __call__(self, items: list[Any]) -> dict[str, Any]:
        batch: dict[str, Any] = {"items": [[] for _ in items], "worker": worker_number()}
        try:
            find = ids_finder(self._spec.id_of, self._spec.id_names)
            batch["items"] = [find(item) for item in items]
        except MisuseError as error:
            batch["misuse"] = str(error)  # raised where it can be told from what readers raise
        return batch


class CollateTagged:
    """The user's own collate function; what it returns is told its worker wherever it can hold that."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate = collate

    def __call__(self, items: Any) -> Any:
        batch = self._collate(items)
        tagged = _TAGGED.get(type(batch), type(batch))
        # A batch that holds no attribute, such as a bare tensor, goes on without its worker.
        with suppress(AttributeError, TypeError):
            if tagged is not type(batch):
                batch = tagged(batch)
            batch.shardtools_worker = worker_number()
        return batch


class _TaggedDict(dict[Any, Any]):
    shardtools_worker: int


class _TaggedList(list[Any]):
    shardtools_worker: int


class _TaggedTuple(tuple[Any, ...]):
    shardtools_worker: int


_TAGGED: dict[type, type] = {dict: _TaggedDict, list: _TaggedList, tuple: _TaggedTuple}


def collated(batch: dict[str, Any]) -> Iterator[Delivered]:
    """What a batch by CollateIds delivers: one by one the items that are batches themselves."""
    if "misuse" in batch:
        raise MisuseError(batch["misuse"])
    if all(len(ids) == 1 for ids in batch["items"]):
        yield Delivered(batch["worker"], [ids[0] for ids in batch["items"]], False)
    else:
        yield from (Delivered(batch["worker"], ids, True) for ids in batch["items"])

"""What the destination holds before a build: nothing, this plan's dataset or build, or something else that is left alone."""

import os
from collections.abc import Sequence
from contextlib import suppress
from secrets import token_hex

import zstandard

from shardtools.build.numbering import TAKEN_OVER, Planned
from shardtools.build.progress import BuildProgress, listing
from shardtools.build.publish import Publisher
from shardtools.build.receipts import KEPT_PLAN_NAME, PLAN_NAME, PUBLISHING_NAME, REPLACED_NAME, RUNS_FOLDER
from shardtools.errors import StorageError, UsageError
from shardtools.manifest import BUILD_FOLDER, MANIFEST_NAME, PRIVATE_FOLDER, Manifest
from shardtools.places import is_below, is_here, join
from shardtools.plan import ADDED, Plan
from shardtools.sources import Input
from shardtools.storage import Storage, Stored
from shardtools.units import plural

_MAX_DIFFERENCES = 5


class Destination:
    """A destination as one plan finds it."""

    def __init__(self, storage: Storage, plan: Plan, publisher: Publisher) -> None:
        self._storage = storage
        self._plan = plan
        self._publisher = publisher
        self._is_new_here = False
        self._is_prepared = False
        self._mark = f"{RUNS_FOLDER}/{token_hex(8)}"

    def finished(self) -> Manifest | None:
        """The dataset of this very plan, if it is there already, whole as far as sizes tell.

        Raises UsageError where the destination holds another dataset, or this one with files missing.
        """
        manifest, there = self._finished()
        if manifest is not None and any(name.startswith(BUILD_FOLDER + "/") for name in there):
            with self._storage.exclusive():
                self._publisher.clean_up()
        return manifest

    def _finished(self) -> tuple[Manifest | None, dict[str, Stored]]:
        """The same with all that lies there, and nothing is changed."""
        manifest = self._publisher.read_manifest()
        if manifest is None:
            return None, {}
        if manifest.plan_digest != self._plan.digest:
            raise self._refusal(KEPT_PLAN_NAME, "a finished dataset", "to replace it", or_add=True)
        there = listing(self._storage)
        for name, num_bytes in manifest.sizes().items():
            if name not in there or there[name].num_bytes != num_bytes:
                raise UsageError(
                    f"expected the finished dataset in {self._storage.uri} to be whole, got {name} missing or of another size; "
                    "restore the file, or --overwrite to pack it again"
                )
        return manifest, there

    def foreseen(self, overwrite: bool) -> str:
        """What a run would do with what it finds there, in a few words. Changes nothing.

        Raises what the run would: UsageError where the destination holds something else, StorageError where it cannot be written.
        """
        stored = self._storage.get(PLAN_NAME)
        if not overwrite and self._finished()[0] is not None:
            return "already complete"
        refuse_unwritable(self._storage)
        if not overwrite and stored is not None:
            self._refuse_other_plan(stored)
            return "goes on with what an earlier run built"
        # A publication that was killed has given final names to what will be removed.
        if self._storage.num_bytes(PUBLISHING_NAME) is None:
            self._refuse_foreign()
        return "new" if stored is None and self._publisher.read_manifest() is None else "replaces what is there"

    def prepare(self, overwrite: bool) -> None:
        """Leave this plan at the destination, and nothing that does not belong to it.

        Raises UsageError where the destination holds something else.
        """
        with self._storage.exclusive():
            self._prepare(overwrite)
            self._is_prepared = True
            if self._storage.finishes_at_once:
                self._storage.put(self._mark, b"")

    def planned_names(self) -> Planned | None:
        """The final names that workers may give at once, where the plan fixes them and that spares copies; None: they may not.

        For a destination that is prepared, and a run that neither replaces a dataset nor sets a sample aside.
        """
        if not self._storage.finishes_at_once or self._storage.num_bytes(REPLACED_NAME) is not None:
            return None
        return Planned.of(self._plan)

    def _prepare(self, overwrite: bool) -> None:
        if overwrite:
            self._publisher.remove_replaced()
            self._publisher.remove_unfinished()
            self._storage.discard_unfinished()
            self._storage.delete(BUILD_FOLDER)
        stored = self._storage.get(PLAN_NAME)
        if stored is None:
            if not overwrite and self._publisher.published() is not None:
                raise StorageError("another run of the same plan was faster")
            self._refuse_foreign()
            if self._storage.create(PLAN_NAME, self._plan.serialize()):
                self._is_new_here = True
                return
            stored = self._storage.get(PLAN_NAME)
        if stored is not None:
            self._refuse_other_plan(stored)

    def _refuse_other_plan(self, stored: bytes) -> None:
        if _digest_of(stored) != self._plan.digest:
            raise self._refusal(PLAN_NAME, "an unfinished build", "to discard what it has built")

    def taken_over(self, overwrite: bool) -> Manifest | None:
        """After a storage error: the dataset of this plan, if another run published it and cleaned up meanwhile.

        Raises StorageError where another run took the destination for another plan.
        """
        try:
            if self._publisher.holds_plan() or (overwrite and not self._is_prepared):
                return None
            manifest = self._publisher.published()
        except StorageError:
            # It cannot be asked any more: what went wrong before says why, and nothing can be tidied up.
            self._is_prepared = False
            return None
        if manifest is None and self._is_prepared:
            raise StorageError(TAKEN_OVER.format(self._storage.uri))
        if manifest is not None:
            with self._storage.exclusive():
                if self._storage.get(PLAN_NAME) is None:
                    # What this run's workers wrote since.
                    self._storage.delete(BUILD_FOLDER)
        return manifest

    def forget_if_empty(self) -> None:
        """After a failed run: what it left unfinished goes, unless another run is under way.

        A plan of which nothing is built yet must not stand in the way of the corrected command.
        """
        if not self._is_prepared:
            return
        # What went wrong before matters more than what may go wrong here.
        with suppress(StorageError), self._storage.exclusive():
            if self._has_company():
                return
            self._storage.discard_unfinished()
            if not self._is_new_here or not self._publisher.holds_plan():
                return
            if not BuildProgress(self._storage, self._plan).has_receipts():
                self._publisher.remove_unfinished()
                self._storage.delete(BUILD_FOLDER)

    def leave(self) -> None:
        """After a run that did its part: it is not under way any more."""
        if self._storage.finishes_at_once:
            self._storage.delete(self._mark)

    def _has_company(self) -> bool:
        """Whether another run may be under way: one that was killed looks like it."""
        if not self._storage.finishes_at_once:
            return False
        self._storage.delete(self._mark)
        return any(True for _ in self._storage.names(RUNS_FOLDER))

    def stale_warning(self, newest_ns: int) -> list[str]:
        """A warning where inputs were modified after this plan's dataset was published, though names and sizes are the same."""
        published = self._storage.entry(MANIFEST_NAME)
        if published is None or newest_ns <= published.modified_ns:
            return []
        return ["inputs of the same names and sizes were modified after the dataset was published; --overwrite packs them anew"]

    def _refuse_foreign(self) -> None:
        old = self._publisher.read_manifest()
        known = {MANIFEST_NAME, *(old.names() if old is not None else ())}
        foreign = [name for name in self._storage.names() if name not in known and not name.startswith(PRIVATE_FOLDER + "/")]
        if not foreign:
            return
        if old is None and self._publisher.published() is not None:
            raise StorageError("another run of the same plan was faster")
        raise UsageError(
            f"expected {self._storage.uri} to be empty, got {plural(len(foreign), 'file')} that no manifest names, such as {min(foreign)}; "
            "choose another destination or move the files away"
        )

    def _refusal(self, name: str, what: str, purpose: str, *, or_add: bool = False) -> UsageError:
        stored = self._storage.get(name)
        try:
            differences = ["its plan is not there to compare"] if stored is None else self._plan.differences(stored)
        except (zstandard.ZstdError, ValueError):
            differences = ["its plan cannot be read"]
        is_grown = or_add and all(f" {ADDED}: " in text for text in differences)
        merge = ", or pack what was added by itself and put the two together with shardtools merge" if is_grown else ""
        return UsageError(
            f"expected {self._storage.uri} to be empty or of the same plan, got {what} of another: "
            f"{'; '.join(differences[:_MAX_DIFFERENCES])}; choose another destination, or --overwrite {purpose}{merge}"
        )


def _digest_of(stored: bytes) -> str | None:
    try:
        return Plan.digest_of(stored)
    except (zstandard.ZstdError, ValueError):
        return None


def refuse_unwritable(storage: Storage) -> None:
    """Raises StorageError where this user may not write there, as far as that shows without writing."""
    folder = storage.uri
    while storage.is_local and not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if storage.is_local and not os.path.isdir(folder):
        raise StorageError(f"expected a folder, or none yet, at {storage.uri}, got {folder}, which is a file; choose another place")
    if storage.is_local and not os.access(folder, os.W_OK | os.X_OK):
        raise StorageError(f"expected a place that can be written, got {folder}; give this user the permission or choose another place")


def refuse_inside(inputs: Sequence[Input], storage: Storage) -> None:
    """Raises UsageError where the destination lies in a source, whose next scan would find the shards.

    A source that is an object of that name would be a folder as well from then on.
    """
    for given in inputs:
        objects = [] if storage.is_local else [join(given.root, os.fsdecode(path)) for path in given.paths or ()]
        roots = [given.root] if given.paths is None else objects
        inside = next((root for root in roots if _is_inside(storage, root)), None)
        if inside is not None:
            raise UsageError(f"expected a destination outside the source {inside}, got {storage.uri}; its shards would become input")


def _is_inside(storage: Storage, root: str) -> bool:
    if not storage.is_local or not is_here(root):
        return is_below(storage.uri, root)
    real = os.path.realpath(root)
    return os.path.commonpath([real, os.path.realpath(storage.uri)]) == real

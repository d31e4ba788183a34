"""What the destination holds before a build: nothing, this plan's dataset or build, or something else that is left alone."""

import os
from collections.abc import Sequence
from contextlib import suppress

import zstandard

from shardtools.build.progress import BuildProgress
from shardtools.build.publish import TAKEN_OVER, Publisher
from shardtools.build.receipts import KEPT_PLAN_NAME, PLAN_NAME
from shardtools.errors import StorageError, UsageError
from shardtools.manifest import BUILD_FOLDER, MANIFEST_NAME, PRIVATE_FOLDER, Manifest
from shardtools.plan import Plan
from shardtools.sources import Input
from shardtools.storage import Storage
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

    def finished(self) -> Manifest | None:
        """The dataset of this very plan, if it is there already, whole as far as sizes tell.

        Raises UsageError where the destination holds another dataset, or this one with files missing.
        """
        manifest = self._publisher.read_manifest()
        if manifest is None:
            return None
        if manifest.plan_digest != self._plan.digest:
            raise self._refusal(KEPT_PLAN_NAME, "a finished dataset", "to replace it")
        for name, num_bytes in manifest.sizes().items():
            if self._storage.num_bytes(name) != num_bytes:
                raise UsageError(
                    f"expected the finished dataset in {self._storage.uri} to be whole, got {name} missing or of another size; "
                    "restore the file, or --overwrite to pack it again"
                )
        with self._storage.exclusive():
            self._publisher.clean_up()
        return manifest

    def prepare(self, overwrite: bool) -> None:
        """Leave this plan at the destination, and nothing that does not belong to it.

        Raises UsageError where the destination holds something else.
        """
        with self._storage.exclusive():
            self._prepare(overwrite)
            self._is_prepared = True

    def _prepare(self, overwrite: bool) -> None:
        if overwrite:
            self._publisher.remove_replaced()
            self._publisher.remove_unfinished()
            self._storage.delete(BUILD_FOLDER)
        stored = self._storage.get(PLAN_NAME)
        if stored is None:
            self._refuse_foreign()
            if self._storage.create(PLAN_NAME, self._plan.serialize()):
                self._is_new_here = True
                return
            stored = self._storage.get(PLAN_NAME)
        if stored is not None and _digest_of(stored) != self._plan.digest:
            raise self._refusal(PLAN_NAME, "an unfinished build", "to discard what it has built")

    def taken_over(self, overwrite: bool) -> Manifest | None:
        """After a storage error: the dataset of this plan, if another run published it and cleaned up meanwhile.

        Raises StorageError where another run took the destination for another plan.
        """
        if self._publisher.holds_plan() or (overwrite and not self._is_prepared):
            return None
        manifest = self._publisher.published()
        if manifest is None and self._is_prepared:
            raise StorageError(TAKEN_OVER.format(self._storage.uri))
        if manifest is not None:
            with self._storage.exclusive():
                if self._storage.get(PLAN_NAME) is None:
                    # What this run's workers wrote since.
                    self._storage.delete(BUILD_FOLDER)
        return manifest

    def forget_if_empty(self) -> None:
        """After a failed run: a plan of which nothing is built yet must not stand in the way of the corrected command."""
        if not self._is_new_here:
            return
        # What went wrong before matters more than what may go wrong here.
        with suppress(StorageError), self._storage.exclusive():
            if self._publisher.holds_plan() and not BuildProgress(self._storage, self._plan).has_receipts():
                self._storage.delete(BUILD_FOLDER)

    def stale_warning(self, newest_ns: int) -> list[str]:
        """A warning where inputs were modified after this plan's dataset was published, though names and sizes are the same."""
        published_ns = self._storage.modified_ns(MANIFEST_NAME)
        if published_ns is None or newest_ns <= published_ns:
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

    def _refusal(self, name: str, what: str, purpose: str) -> UsageError:
        stored = self._storage.get(name)
        try:
            differences = ["its plan is not there to compare"] if stored is None else self._plan.differences(stored)
        except (zstandard.ZstdError, ValueError):
            differences = ["its plan cannot be read"]
        return UsageError(
            f"expected {self._storage.uri} to be empty or of the same plan, got {what} of another: "
            f"{'; '.join(differences[:_MAX_DIFFERENCES])}; choose another destination, or --overwrite {purpose}"
        )


def _digest_of(stored: bytes) -> str | None:
    try:
        return Plan.digest_of(stored)
    except (zstandard.ZstdError, ValueError):
        return None


def refuse_inside(inputs: Sequence[Input], storage: Storage) -> None:
    """Raises UsageError where the destination lies in a source, whose next scan would find the shards."""
    for given in inputs:
        root = os.path.realpath(given.root)
        if given.paths is None and os.path.commonpath([root, os.path.realpath(storage.uri)]) == root:
            raise UsageError(f"expected a destination outside the source {given.root}, got {storage.uri}; its shards would become input")

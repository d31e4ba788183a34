"""What describes a dataset, made again from its shards: index, offsets, sidecars and manifest. Shards are only ever read."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from shardtools.build.existing.admit import admit
from shardtools.build.existing.descriptions import Descriptions
from shardtools.build.existing.examine import Candidate, Examined
from shardtools.build.existing.schema import Group, one_schema
from shardtools.build.existing.undescribed import undescribed_manifest, undescribed_shards
from shardtools.build.receipts import PLAN_NAME
from shardtools.build.sidecars import SidecarFile, refuse_unfit
from shardtools.build.workers import fitting_engine
from shardtools.datasets import is_safe_name, survey_dataset
from shardtools.engines import Progress
from shardtools.errors import ShardtoolsError, UsageError
from shardtools.formats import MDS_INDEX_NAME
from shardtools.manifest import BUILD_FOLDER, MANIFEST_NAME, OFFSETS_NAME, PRIVATE_FOLDER, FileEntry, Manifest
from shardtools.places import Listing, is_folder
from shardtools.sample import Field
from shardtools.storage import Storage, open_storage
from shardtools.units import plural

DAMAGED_MANIFEST_NAME = f"{PRIVATE_FOLDER}/manifest.damaged"
"""What ``index`` keeps of a manifest that it has to replace."""


@dataclass(frozen=True)
class ReindexOptions:
    """What is made beside what every dataset has, and how the work is done."""

    sidecars: tuple[str, ...] = ()
    """Of ``sidecars.KINDS``."""
    workers: int | None = None
    """Worker processes; None: all cores where there is enough to read, else none."""


@dataclass(frozen=True)
class ReindexListener:
    """Callbacks into whoever shows what happens."""

    on_shards: Callable[[int], None] = lambda _: None
    """The bytes that will be read."""
    on_progress: Callable[[Progress], None] = lambda _: None


@dataclass(frozen=True)
class Reindexed:
    """What there is now, and what was done for it."""

    manifest: Manifest
    made: tuple[str, ...]
    """Files that were not there."""
    replaced: tuple[str, ...]
    """Files that were there, and were damaged or not what the shards say."""
    adopted: tuple[str, ...]
    """Other files that the new manifest names as they are: they belong to the dataset from now on."""
    seconds: float


def reindex(uri: str, options: ReindexOptions = ReindexOptions(), listener: ReindexListener = ReindexListener()) -> Reindexed:
    """Make whatever describes the sound shards at ``uri`` sound again; what is sound already stays byte for byte.

    With a sound manifest its other files are made again as it has them. Without one, one is made of what lies there: its recipe has
    the source ``index``, its ledger counts every sample as read and written. Can be repeated; the manifest is written last.

    Raises UnsoundShardsError, DuplicateKeyError, UsageError and ShardtoolsError, before anything is written, where shards are damaged
    or missing, or where a sound file means something else.
    """
    began = time.monotonic()
    storage = open_storage(uri)
    if not is_folder(storage.uri):
        raise UsageError(f"expected the folder of a dataset at {storage.uri}, got none; give the folder that holds the shards")
    with storage.exclusive():
        job = _Job(storage, options, listener)
        manifest = job.sound_manifest()
        reindexed = job.rebuild() if manifest is None else job.restore(manifest)
        if storage.num_bytes(PLAN_NAME) is None:
            storage.delete(BUILD_FOLDER)
    return replace(reindexed, seconds=time.monotonic() - began)


@dataclass(frozen=True)
class _Job:
    storage: Storage
    options: ReindexOptions
    listener: ReindexListener

    def sound_manifest(self) -> Manifest | None:
        """None for one that is missing or damaged. Raises ShardtoolsError where a build is under way."""
        has_manifest = self.storage.num_bytes(MANIFEST_NAME) is not None
        manifest = survey_dataset(self.storage.uri).manifest if has_manifest else None
        if manifest is None and self.storage.num_bytes(PLAN_NAME) is not None:
            raise ShardtoolsError(
                f"expected a dataset in {self.storage.uri}, got a build that is not finished; run the command that began it again"
            )
        return manifest

    def restore(self, manifest: Manifest) -> Reindexed:
        """Make the files again that the manifest names and that are not as it says."""
        found = self._published(manifest)
        wanted = found.sidecar_names(self.options.sidecars)
        self._refuse_extra(manifest, wanted)
        damaged = [file for file in manifest.files if not self._is_intact(file)]
        made, replaced = self._write(chain(self._remade(found, damaged), found.sidecars(self.options.sidecars)))
        kept = [self._entry(file.name) if file.name in wanted else file for file in manifest.files]
        new_names = wanted - {file.name for file in manifest.files}
        new = replace(manifest, files=(*kept, *(self._entry(name) for name in found.ordered(new_names))))
        if new.files != manifest.files:
            # It says the same as before, and names the new sidecars too.
            self.storage.put(MANIFEST_NAME, new.serialize())
        return Reindexed(new, tuple(made), tuple(replaced), (), 0.0)

    def rebuild(self) -> Reindexed:
        """Make everything of shards that no manifest names."""
        undescribed = undescribed_shards(self.storage)
        examined = self._examined(undescribed.candidates)
        schema = one_schema([Group(examined)])
        refuse_unfit(self.options.sidecars, schema.format)
        found = Descriptions(self.storage.uri, schema.format, schema.fields, None, examined)
        self._refuse_more_offsets(found)
        wanted = {OFFSETS_NAME} | found.sidecar_names(self.options.sidecars)
        wanted |= set() if undescribed.has_index else found.index_names
        others = self._others({*found.shard_names, *wanted, MANIFEST_NAME})
        made, replaced = self._write(found.files_named(wanted))
        entries = [self._entry(name) for name in found.ordered(wanted)] + [self._entry(name) for name in others]
        manifest = undescribed_manifest(found, undescribed.rule, entries)
        old = self.storage.get(MANIFEST_NAME)
        (made if old is None else replaced).append(MANIFEST_NAME)
        if old is not None:
            # Its recipe and ledger are known from nowhere else, and a person may still read them in it.
            self.storage.put(DAMAGED_MANIFEST_NAME, old)
        self.storage.put(MANIFEST_NAME, manifest.serialize())
        adopted = tuple(name for name in others if name != MDS_INDEX_NAME or not undescribed.has_index)
        return Reindexed(manifest, tuple(made), tuple(replaced), adopted, 0.0)

    def _published(self, manifest: Manifest) -> Descriptions:
        dataset = survey_dataset(self.storage.uri)
        for problem in dataset.problems:
            if problem.kind != "index-damaged":
                raise ShardtoolsError(f"expected a sound manifest in {self.storage.uri}, got one with this fault: {problem.detail}")
        if not dataset.shards:
            raise ShardtoolsError(f"expected a manifest in {self.storage.uri} that names shards, got one that names none")
        # What the manifest says is compared, not what an index says that may be damaged.
        candidates = [
            Candidate(dataset.uri, replace(shard, entry=None), manifest.shards[shard.index], manifest.is_canonical)
            for shard in dataset.shards
        ]
        shard_format = dataset.shards[0].format
        refuse_unfit(self.options.sidecars, shard_format)
        fields = tuple(Field(one["name"], one["encoding"], one["optional"]) for one in manifest.recipe["fields"])
        return Descriptions(dataset.uri, shard_format, fields, manifest.recipe.get("shard_bytes"), self._examined(candidates))

    def _examined(self, candidates: Sequence[Candidate]) -> list[Examined]:
        listing = Listing(self.storage)
        shard_bytes = [listing.num_bytes(candidate.shard.name) or 0 for candidate in candidates]
        self.listener.on_shards(sum(shard_bytes))
        with fitting_engine(self.options.workers, shard_bytes) as engine:
            return admit(candidates, engine, self.listener.on_progress)

    def _remade(self, found: Descriptions, damaged: Sequence[FileEntry]) -> list[SidecarFile]:
        """The damaged files as they were. Raises ShardtoolsError for one that cannot be made of shards alone."""
        files = dict(found.files_named({file.name for file in damaged}))
        for file in damaged:
            if file.name not in files:
                raise ShardtoolsError(
                    f"expected {file.name} in {self.storage.uri} as the manifest has it, which no shard tells; restore it"
                )
            if FileEntry.of(file.name, files[file.name]) != file:
                raise ShardtoolsError(
                    f"expected the {file.name} that the manifest in {self.storage.uri} has the SHA-256 of, and the shards give another; "
                    "restore the file"
                )
        return list(files.items())

    def _refuse_extra(self, manifest: Manifest, wanted: set[str]) -> None:
        known = {*manifest.names(), *wanted, MANIFEST_NAME}
        extra = [name for name in self.storage.names() if name not in known and not name.startswith(PRIVATE_FOLDER + "/")]
        if extra:
            raise ShardtoolsError(
                f"expected only files in {self.storage.uri} that its manifest names, got {plural(len(extra), 'more file')} such as "
                f"{min(extra)}; move what does not belong to it away"
            )

    def _refuse_more_offsets(self, found: Descriptions) -> None:
        """Offsets are of all shards: where they go on after those of the last one, shards are missing at the end."""
        old, new = self.storage.get(OFFSETS_NAME) or b"", found.offsets()
        if len(old) > len(new) and old.startswith(new):
            raise ShardtoolsError(
                f"expected every shard that {OFFSETS_NAME} in {self.storage.uri} knows, got none after {found.shard_names[-1]}; "
                f"restore the others, or move {OFFSETS_NAME} away"
            )

    def _others(self, known: Iterable[str]) -> list[str]:
        names = (name for name in self.storage.names() if not name.startswith(PRIVATE_FOLDER + "/"))
        return sorted(set(names) - set(known))

    def _write(self, files: Iterable[SidecarFile]) -> tuple[list[str], list[str]]:
        """Put the files that are not there as they should be. Returns the names of those that were not there, and of those that were."""
        made: list[str] = []
        replaced: list[str] = []
        for name, data in files:
            if self.storage.get(name) == data:
                continue
            (made if self.storage.num_bytes(name) is None else replaced).append(name)
            self.storage.put(name, data)
        return made, replaced

    def _is_intact(self, file: FileEntry) -> bool:
        return is_safe_name(file.name) and self.storage.num_bytes(file.name) == file.num_bytes and self._entry(file.name) == file

    def _entry(self, name: str) -> FileEntry:
        return FileEntry(name, self.storage.num_bytes(name) or 0, self.storage.sha256(name))

"""The manifest: what a dataset is, published last. JSON text that ends in the SHA-256 of the rest."""

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from shardtools.errors import ShardtoolsError
from shardtools.selection import Selection

MANIFEST_NAME = "shardtools.manifest"
OFFSETS_NAME = "shardtools.offsets"
PRIVATE_FOLDER = ".shardtools"
BUILD_FOLDER = f"{PRIVATE_FOLDER}/build"
"""Everything of a build that is not published yet; removed afterwards."""
REJECTS_NAME = f"{PRIVATE_FOLDER}/rejects"
FORMAT = "shardtools.manifest/1"
_SEAL = ',\n "sha256": "'
_END = '"\n}\n'


class ManifestError(ShardtoolsError):
    """A manifest's text is damaged or of a kind this version does not know."""


@dataclass(frozen=True)
class Ledger:
    """Where every sample went; ``num_read = num_written + num_rejected + num_filtered``."""

    num_written: int = 0
    num_filtered: int = 0
    rejects: Counter[str] = field(default_factory=Counter)
    """Bad samples by reason."""
    num_blank: int = 0
    """Blank lines, which are no samples."""
    num_rows: int | None = None
    """How many samples the shards hold, where transforms made them of what was read; None: as many as were written."""
    transforms: dict[str, Counter[str]] = field(default_factory=dict)
    """What each transform counted, by its name."""
    filters: Counter[str] = field(default_factory=Counter)
    """Samples that were left out by choice, by the option that chose so; part of ``num_filtered``."""

    @property
    def num_rejected(self) -> int:
        return self.rejects.total()

    @property
    def num_stored(self) -> int:
        """Samples in the shards."""
        return self.num_written if self.num_rows is None else self.num_rows

    @property
    def read_noun(self) -> str:
        """What is read, written, rejected and filtered, for people."""
        return "chat" if "chat" in self.transforms else "document" if self.transforms else "sample"

    @property
    def stored_noun(self) -> str:
        """What the shards hold, for people."""
        return "row" if self.transforms else "sample"

    @property
    def num_read(self) -> int:
        return self.num_written + self.num_rejected + self.num_filtered

    def __add__(self, other: "Ledger") -> "Ledger":
        has_rows = self.num_rows is not None or other.num_rows is not None
        return Ledger(
            self.num_written + other.num_written,
            self.num_filtered + other.num_filtered,
            self.rejects + other.rejects,
            self.num_blank + other.num_blank,
            self.num_stored + other.num_stored if has_rows else None,
            {
                name: self.transforms.get(name, Counter()) + other.transforms.get(name, Counter())
                for name in self.transforms | other.transforms
            },
            self.filters + other.filters,
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "read": self.num_read,
            "written": self.num_written,
            "rejected": self.num_rejected,
            "filtered": self.num_filtered,
            "rejects": dict(sorted(self.rejects.items())),
            # Only where there are any: most datasets have none.
            **({"filters": dict(sorted(self.filters.items()))} if self.filters else {}),
            **({"blank": self.num_blank} if self.num_blank else {}),
            **({"rows": self.num_rows} if self.num_rows is not None else {}),
            **({"transforms": {name: dict(sorted(counts.items())) for name, counts in self.transforms.items()}} if self.transforms else {}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Ledger":
        transforms = {name: Counter(counts) for name, counts in data.get("transforms", {}).items()}
        blank, rows, filters = data.get("blank", 0), data.get("rows"), Counter(data.get("filters", {}))
        return cls(data["written"], data["filtered"], Counter(data["rejects"]), blank, rows, transforms, filters)


@dataclass(frozen=True)
class ShardEntry:
    """One shard as the manifest names it."""

    name: str
    num_bytes: int
    sha256: str
    num_samples: int
    field_sets: dict[str, int]
    """How many samples have which fields, by comma-joined names."""
    split: str = ""
    """Which split it belongs to; empty where the dataset has none."""

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "bytes": self.num_bytes,
            "sha256": self.sha256,
            "samples": self.num_samples,
            "field_sets": dict(sorted(self.field_sets.items())),
            **({"split": self.split} if self.split else {}),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "ShardEntry":
        return cls(data["name"], data["bytes"], data["sha256"], data["samples"], data["field_sets"], data.get("split", ""))


@dataclass(frozen=True)
class FileEntry:
    """A published file that is no shard."""

    name: str
    num_bytes: int
    sha256: str

    @classmethod
    def of(cls, name: str, data: bytes) -> "FileEntry":
        return cls(name, len(data), hashlib.sha256(data).hexdigest())


@dataclass(frozen=True)
class Manifest:
    """A published dataset."""

    plan_digest: str
    recipe: dict[str, Any]
    ledger: Ledger
    shards: tuple[ShardEntry, ...]
    files: tuple[FileEntry, ...]

    @property
    def format_name(self) -> str:
        return str(self.recipe["format"]["name"])

    @property
    def is_canonical(self) -> bool:
        """Whether every shard is demanded to be byte for byte what this package writes: true but for shards that came from elsewhere."""
        source = self.recipe.get("source")
        return not (isinstance(source, dict) and source.get("canonical") is False)

    @property
    def transforms(self) -> tuple[dict[str, Any], ...]:
        """The recipes of what made the samples of what was read; of a merged dataset what those of its parts have in common."""
        found, source = self.recipe.get("transforms"), self.recipe.get("source")
        if found is None and isinstance(source, dict):
            found = source.get("transforms")
        return tuple(found or ())

    @property
    def selection(self) -> Selection:
        """Which samples of the input were taken, and by what rule each came to its split."""
        return Selection.from_json(self.recipe.get("selection", {}))

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits in order, those without a shard too; none where the dataset has none."""
        return tuple(dict.fromkeys([*self.selection.splits, *(shard.split for shard in self.shards if shard.split)]))

    @property
    def samples_by_split(self) -> dict[str, int]:
        """How many samples each split has, in order; empty where the dataset has none."""
        counts = dict.fromkeys(self.splits, 0)
        for shard in self.shards if counts else ():
            counts[shard.split] = counts.get(shard.split, 0) + shard.num_samples
        return counts

    def names(self) -> list[str]:
        """Every file of the dataset but the manifest itself."""
        return [shard.name for shard in self.shards] + [file.name for file in self.files]

    def sizes(self) -> dict[str, int]:
        """The length of every file of the dataset but the manifest itself, by name."""
        entries: list[ShardEntry | FileEntry] = [*self.shards, *self.files]
        return {entry.name: entry.num_bytes for entry in entries}

    def serialize(self) -> bytes:
        content = {
            "format": FORMAT,
            "plan": self.plan_digest,
            "recipe": self.recipe,
            "ledger": self.ledger.as_json(),
            "shards": [shard.as_json() for shard in self.shards],
            "files": [{"name": file.name, "bytes": file.num_bytes, "sha256": file.sha256} for file in self.files],
        }
        text = json.dumps(content, indent=1).removesuffix("\n}")
        return f"{text}{_SEAL}{hashlib.sha256(text.encode()).hexdigest()}{_END}".encode()

    @classmethod
    def parse(cls, data: bytes) -> "Manifest":
        """Raises ManifestError where the text is not what ``serialize`` wrote."""
        text, seal, rest = data.decode("utf-8", "replace").rpartition(_SEAL)
        if not seal or rest != hashlib.sha256(text.encode()).hexdigest() + _END:
            raise ManifestError(
                f"expected {MANIFEST_NAME} to end in the SHA-256 of its text, got a text that was cut or edited; restore the file"
            )
        try:
            content = json.loads(text + "\n}")
        except (ValueError, RecursionError) as error:
            raise ManifestError(f"expected {MANIFEST_NAME} to be JSON text, got {error}; restore the file") from None
        kind = content.get("format") if isinstance(content, dict) else None
        if kind != FORMAT:
            raise ManifestError(f"expected a manifest of format {FORMAT}, got {kind!r}; use a matching version")
        try:
            return cls(
                content["plan"],
                content["recipe"],
                Ledger.from_json(content["ledger"]),
                tuple(ShardEntry.from_json(shard) for shard in content["shards"]),
                tuple(FileEntry(file["name"], file["bytes"], file["sha256"]) for file in content["files"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ManifestError(f"expected a manifest as {FORMAT} describes it, got one without {error}; restore the file") from None

"""What a dataset is, as plain data: counts, sizes, schema, and where it came from."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shardtools.datasets import Dataset
from shardtools.formats import joined_names, split_names
from shardtools.manifest import Manifest
from shardtools.places import is_here
from shardtools.units import format_bytes, plural

SCAN_SAMPLES = 1000
"""How many samples of a foreign WDS dataset are looked at to learn its fields."""
_SCAN_BYTES = 8 << 20
"""How much of their values is fetched for that from elsewhere."""


@dataclass(frozen=True)
class FieldSummary:
    """One field of the schema."""

    name: str
    encoding: str
    """In MDS's words; for foreign WDS as the name suggests."""
    num_samples: int | None
    """How many of the samples behind ``Description.field_sets`` have it; None where that is not known."""

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "encoding": self.encoding, "samples": self.num_samples}


@dataclass(frozen=True)
class SplitSummary:
    """What one split holds."""

    name: str
    num_shards: int
    num_samples: int
    num_bytes: int

    def as_json(self) -> dict[str, int]:
        return {"shards": self.num_shards, "samples": self.num_samples, "bytes": self.num_bytes}

    def text(self, noun: str) -> str:
        return f"{plural(self.num_samples, noun)} in {plural(self.num_shards, 'shard')}, {format_bytes(self.num_bytes)}"


@dataclass(frozen=True)
class Description:
    """A dataset in a few numbers. What nobody recorded, and only reading every shard would tell, is None."""

    uri: str
    format_name: str
    is_published: bool
    """It has a manifest of this package."""
    num_shards: int
    num_samples: int | None
    num_bytes: int
    """Stored bytes of all shards that are there."""
    smallest_shard_bytes: int
    largest_shard_bytes: int
    fields: tuple[FieldSummary, ...]
    field_sets: dict[str, int]
    """How many samples have which fields, by comma-joined names; empty where not known."""
    field_sets_samples: int
    """How many samples that counts; below ``num_samples`` where only the first were looked at."""
    plan_digest: str | None
    ledger: dict[str, Any] | None
    """Samples read, written, rejected and filtered, and rejects by reason; of the whole dataset."""
    recipe: dict[str, Any] | None
    """The source's name and options, the shard limit, the shuffle seed, the format's options."""
    splits: tuple[SplitSummary, ...] = ()
    """In order; none for a dataset without, and for one that is a split itself."""
    split: str | None = None
    """The split that is described; None: the whole dataset."""

    @property
    def mean_sample_bytes(self) -> float | None:
        """Stored bytes a sample, all overhead included."""
        return self.num_bytes / self.num_samples if self.num_samples else None

    def as_json(self) -> dict[str, Any]:
        return {
            "uri": self.uri,
            "format": self.format_name,
            "published": self.is_published,
            "shards": self.num_shards,
            "samples": self.num_samples,
            "bytes": self.num_bytes,
            "smallest_shard_bytes": self.smallest_shard_bytes,
            "largest_shard_bytes": self.largest_shard_bytes,
            "mean_sample_bytes": self.mean_sample_bytes,
            "fields": [field.as_json() for field in self.fields],
            "field_sets": self.field_sets,
            "field_sets_samples": self.field_sets_samples,
            "plan": self.plan_digest,
            "ledger": self.ledger,
            "recipe": self.recipe,
            **({"splits": {split.name: split.as_json() for split in self.splits}} if self.splits else {}),
            **({"split": self.split} if self.split is not None else {}),
        }

    @property
    def stored_noun(self) -> str:
        """What people call a sample of it: documents were made into rows."""
        return "row" if self.ledger is not None and self.ledger.get("transforms") else "sample"

    def rows(self) -> list[tuple[str, str]]:
        """Label and text, for a table."""
        sizes = f"{format_bytes(self.smallest_shard_bytes)} to {format_bytes(self.largest_shard_bytes)}"
        mean = self.mean_sample_bytes
        rows = [
            ("dataset", self.uri + ("" if self.split is None else f", split {self.split}")),
            ("format", self.format_name + ("" if self.is_published else ", not published by shardtools (no manifest)")),
            ("shards", f"{self.num_shards:,}" + (f" of {sizes}" if self.num_shards else "")),
            (f"{self.stored_noun}s", "not recorded" if self.num_samples is None else f"{self.num_samples:,}"),
            ("size", format_bytes(self.num_bytes) + ("" if mean is None else f", {format_bytes(mean)} a {self.stored_noun}")),
        ]
        rows += [(f"split {split.name}", split.text(self.stored_noun)) for split in self.splits]
        rows += [(f"field {field.name}", self._field_text(field)) for field in self.fields]
        if self.ledger is not None:
            rows.append(("ledger" if self.split is None else "ledger of all splits", _ledger_text(self.ledger)))
        if self.recipe is not None:
            rows.append(("source", str(self.recipe["source"]["name"])))
        if self.plan_digest is not None:
            rows.append(("plan", self.plan_digest))
        return rows

    def _field_text(self, field: FieldSummary) -> str:
        if field.num_samples is None or field.num_samples == self.num_samples:
            return field.encoding
        scope = "" if self.field_sets_samples == self.num_samples else f" the first {self.field_sets_samples:,}"
        return f"{field.encoding}, in {field.num_samples:,} of{scope or f' {self.field_sets_samples:,}'} {self.stored_noun}s"


def describe(dataset: Dataset) -> Description:
    """The dataset's description. Opens no shard, except the first of a foreign WDS dataset, to learn its fields."""
    listing = dataset.listing()
    sizes = [num_bytes for shard in dataset.shards if (num_bytes := listing.num_bytes(shard.name)) is not None]
    field_sets, is_whole = _field_sets(dataset)
    num_samples = field_sets.total() if dataset.num_samples is None and is_whole and len(dataset.shards) == 1 else dataset.num_samples
    manifest = dataset.manifest
    return Description(
        uri=dataset.uri,
        format_name=dataset.format_name,
        is_published=manifest is not None,
        num_shards=len(dataset.shards),
        num_samples=num_samples,
        num_bytes=sum(sizes),
        smallest_shard_bytes=min(sizes, default=0),
        largest_shard_bytes=max(sizes, default=0),
        fields=tuple(_fields(dataset, field_sets)),
        field_sets=dict(sorted(field_sets.items())),
        field_sets_samples=field_sets.total(),
        plan_digest=None if manifest is None else manifest.plan_digest,
        ledger=None if manifest is None else manifest.ledger.as_json(),
        recipe=None if manifest is None else {name: value for name, value in manifest.recipe.items() if name != "fields"},
        splits=() if manifest is None or dataset.split is not None else tuple(_splits(manifest)),
        split=dataset.split,
    )


def _splits(manifest: Manifest) -> Iterator[SplitSummary]:
    for name in manifest.splits:
        shards = [shard for shard in manifest.shards if shard.split == name]
        yield SplitSummary(name, len(shards), sum(one.num_samples for one in shards), sum(one.num_bytes for one in shards))


def _field_sets(dataset: Dataset) -> tuple[Counter[str], bool]:
    """How many samples have which fields, and whether these are all there are."""
    counts: Counter[str] = Counter()
    if dataset.manifest is None and dataset.format_name == "wds":
        return _scanned(dataset)
    if dataset.manifest is not None:
        for shard in dataset.shards:
            counts.update(dataset.manifest.shards[shard.index].field_sets)
    else:
        for shard in dataset.shards:
            if shard.entry is not None:
                counts[joined_names(list(shard.entry.columns))] += shard.entry.num_samples
    return counts, True


def _scanned(dataset: Dataset) -> tuple[Counter[str], bool]:
    counts: Counter[str] = Counter()
    num_bytes = 0
    for _, sample in dataset.all_samples():
        if counts.total() == SCAN_SAMPLES or num_bytes > _SCAN_BYTES:
            return counts, False
        counts[joined_names(sorted(sample.values))] += 1
        num_bytes += 0 if is_here(dataset.uri) else sum(map(len, sample.values.values()))
    return counts, True


def _fields(dataset: Dataset, field_sets: Counter[str]) -> list[FieldSummary]:
    present: Counter[str] = Counter()
    for field_set, count in field_sets.items():
        present.update(dict.fromkeys(split_names(field_set), count))
    names = [field.name for field in dataset.fields] or sorted(present)
    return [FieldSummary(name, _encoding(dataset, name), present[name] if field_sets else None) for name in names]


def _encoding(dataset: Dataset, name: str) -> str:
    for field in dataset.fields:
        if field.name == name:
            return field.encoding
    return dataset.field(dataset.shards[0], name).encoding


def _ledger_text(ledger: dict[str, Any]) -> str:
    transforms = ledger.get("transforms", {})
    read, written, filtered = f"{ledger['read']:,} read", "written", "filtered"
    if transforms:
        read = f"{plural(ledger['read'], 'chat' if 'chat' in transforms else 'document')} read"
        written, filtered = "packed", "left out"
    text = f"{read} = {ledger['written']:,} {written} + {ledger['rejected']:,} rejected + {ledger['filtered']:,} {filtered}"
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in ledger["rejects"].items())
    return f"{text} ({reasons})" if reasons else text

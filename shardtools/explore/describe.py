"""What a dataset is, as plain data: counts, sizes, schema, and where it came from."""

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import Any

from shardtools.datasets import Dataset
from shardtools.formats import joined_names, split_names
from shardtools.units import format_bytes, plural

SCAN_SAMPLES = 1000
"""How many samples of a foreign WDS dataset are looked at to learn its fields."""


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
    """Samples read, written, rejected and filtered, and rejects by reason."""
    recipe: dict[str, Any] | None
    """The source's name and options, the shard limit, the shuffle seed, the format's options."""

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
            ("dataset", self.uri),
            ("format", self.format_name + ("" if self.is_published else ", not published by shardtools (no manifest)")),
            ("shards", f"{self.num_shards:,}" + (f" of {sizes}" if self.num_shards else "")),
            (f"{self.stored_noun}s", "not recorded" if self.num_samples is None else f"{self.num_samples:,}"),
            ("size", format_bytes(self.num_bytes) + ("" if mean is None else f", {format_bytes(mean)} a {self.stored_noun}")),
        ]
        rows += [(f"field {field.name}", self._field_text(field)) for field in self.fields]
        if self.ledger is not None:
            rows.append(("ledger", _ledger_text(self.ledger)))
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
    sizes = [num_bytes for shard in dataset.shards if (num_bytes := dataset.storage.num_bytes(shard.name)) is not None]
    field_sets = _field_sets(dataset)
    num_samples = dataset.num_samples
    if dataset.manifest is None and dataset.format_name == "wds" and field_sets.total() < SCAN_SAMPLES and len(dataset.shards) == 1:
        num_samples = field_sets.total()
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
    )


def _field_sets(dataset: Dataset) -> Counter[str]:
    counts: Counter[str] = Counter()
    if dataset.manifest is not None:
        for entry in dataset.manifest.shards:
            counts.update(entry.field_sets)
    elif dataset.format_name == "wds":
        counts.update(joined_names(sorted(sample.values)) for _, sample in islice(dataset.all_samples(), SCAN_SAMPLES))
    else:
        for shard in dataset.shards:
            if shard.entry is not None:
                counts[joined_names(list(shard.entry.columns))] += shard.entry.num_samples
    return counts


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

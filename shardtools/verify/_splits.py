"""That every sample is in the split which the rule of the recipe gives it, as far as the shards themselves can tell."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardtools.datasets import Dataset, Shard
from shardtools.formats import MEMBER_ENCODINGS
from shardtools.manifest import Manifest
from shardtools.selection import Selection, canonical_text
from shardtools.verify.stored import Proof, Stored

_EXACT = ("str", "json", "int", "uint", "float64")
"""Encodings that keep a value as it was; those of fewer bits round it."""
_RECORD_FIELD = "json"


@dataclass(frozen=True)
class SplitRule:
    """What decides on a sample's split, where that is stored."""

    selection: Selection
    field: str | None = None
    """The stored field that tells; None: the key."""
    path: tuple[str, ...] = ()
    """Where the group is within the field's value."""
    holds_documents: bool = False
    """The field names the documents of a row, whose keys decide."""

    def of_keys(self, keys: Sequence[bytes], split: str) -> Iterator[tuple[int, str]]:
        """Which keys belong to another split, and in words to which."""
        for i, wanted in enumerate(self.selection.split_of(keys)):
            if wanted != split:
                yield i, _sentence(wanted, "its key", split)

    def of_values(self, dataset: Dataset, shard: Shard, key: str, values: Mapping[str, memoryview]) -> str | None:
        """The same for one sample by its stored values; None where it is in its split, or no value tells."""
        try:
            value = dataset.decode(shard, self.field or "", values[self.field or ""])
        except (KeyError, ValueError):
            return None  # a value that does not decode is a finding of its own
        names, noun = [key.encode("utf-8", "surrogateescape")], "its group"
        if self.holds_documents:
            names, noun = [str(text).partition("@")[0].encode() for text in value], "a document of it"
        elif (group := _at(value, self.path)) is not None:
            names = [*names, canonical_text(group)] if group == "" else [canonical_text(group)]  # absent text is stored as none
        wanted = self.selection.split_of(names)
        is_right = shard.split in wanted if not self.holds_documents else all(one == shard.split for one in wanted)
        return None if is_right else _sentence(next(one for one in wanted if one != shard.split), noun, shard.split)


def split_rule(manifest: Manifest | None) -> SplitRule | None:
    """None where there are no splits, or where nothing that is stored decides on them."""
    if manifest is None or not manifest.selection.split:
        return None
    try:
        return _rule(manifest, manifest.selection)
    except (AttributeError, LookupError, TypeError):
        return None  # a recipe that is sealed but was not written by this package


def _rule(manifest: Manifest, selection: Selection) -> SplitRule | None:
    packing = next((one for one in manifest.transforms if one["name"] == "packing"), None)
    if packing is not None and packing["strategy"] != "none":
        names = [one["name"] for one in manifest.recipe["fields"] if one["name"].partition(".")[0] == "doc_ids"]
        return SplitRule(selection, names[0], holds_documents=True) if names and selection.group_by is None else None
    if selection.group_by is None:
        return None if manifest.recipe["format"].get("key_column", "key") is None else SplitRule(selection)
    return None if packing is not None else _group_rule(manifest, selection, tuple(selection.group_by.split(".")))


def _group_rule(manifest: Manifest, selection: Selection, path: tuple[str, ...]) -> SplitRule | None:
    source = manifest.recipe["source"]
    layout = source.get("layout") or {}
    encodings = {one["name"]: one["encoding"] for one in manifest.recipe["fields"]}
    if layout.get("keep_record") or (source.get("name") == "files" and _is_in_record_files(layout, encodings, ".".join(path))):
        return SplitRule(selection, _RECORD_FIELD, path)
    for column in layout.get("columns") or ():
        is_whole = column.get("kind") is None and not column.get("nested")
        if column.get("column") == path[0] and is_whole and column.get("encoding", "").startswith(_EXACT):
            in_record = layout.get("has_record") and column["field"] == _RECORD_FIELD
            return SplitRule(selection, column["field"], path if in_record else path[1:])
    for mapping in layout.get("mappings") or ():
        own = path if mapping.get("nested") else path[:1]
        if mapping.get("record_field") == ".".join(own) and encodings.get(mapping["name"], "").startswith(_EXACT):
            return SplitRule(selection, mapping["name"], path[len(own) :])
    return None


def _is_in_record_files(layout: Mapping[str, Any], encodings: Mapping[str, str], name: str) -> bool:
    """Whether only the samples' JSON files, stored as they are, can say what has this name."""
    is_stored = encodings.get(_RECORD_FIELD) == "json" and any(rule["name"] == _RECORD_FIELD for rule in layout.get("rules") or ())
    return is_stored and name not in (*MEMBER_ENCODINGS, "path")


def split_proof(stored: Stored) -> Proof:
    """What was looked at, in words; nothing for a dataset without splits."""
    manifest = stored.dataset.manifest
    if manifest is None or not manifest.splits:
        return Proof()
    counts: Counter[str] = Counter(dict.fromkeys(manifest.splits, 0))
    for shard, num_samples in zip(stored.dataset.shards, stored.counts, strict=True):
        counts[shard.split] += num_samples
    told = ", ".join(f"{split} {count:,}" for split, count in counts.items())
    rule = split_rule(manifest)
    if rule is None:
        by = "their keys" if manifest.selection.group_by is None else f"their groups ({manifest.selection.group_by})"
        not_proved = f"that samples are in the splits that {by} give them, which the shards alone do not tell (--against SRC)"
        return Proof((f"The splits are {told}.",), (not_proved,))
    by = "documents give it" if rule.holds_documents else "key gives it" if rule.field is None else "group gives it"
    return Proof((f"Every {manifest.ledger.stored_noun} is in the split that its {by}: {told}.",))


def _at(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        value = value.get(name) if type(value) is dict else None
    return value


def _sentence(wanted: str, noun: str, split: str) -> str:
    return f"expected it in the split {wanted}, to which {noun} belongs, got it in {split}"

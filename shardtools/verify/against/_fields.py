"""The fields of one dataset as they are stored and as they were made, and the rule by which values of two datasets are compared."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from shardtools import plugins
from shardtools.datasets import Dataset
from shardtools.errors import ShardtoolsError, UsageError
from shardtools.formats import MEMBER_ENCODINGS
from shardtools.sources.wds import ColumnMember, kept_columns
from shardtools.transforms.embed import Embed
from shardtools.verify.against._canonical import ABSENT, FLOATS, Form, canonical_array, canonical_json, canonical_number, kind_of

RECORD_FIELD = "json"
"""The member that holds a whole record, or all columns that are no members of their own."""
_PEEKED_SAMPLES = 100


@dataclass(frozen=True)
class Schema:
    """The fields of one side, without its key."""

    format_name: str
    encodings: Mapping[str, str]
    """By field; of foreign WDS those of the first samples."""
    key_name: str | None
    is_open: bool = False
    """There may be other fields, whose extension says what they hold."""
    columns: tuple[ColumnMember, ...] | None = None
    """Of which tar members were made, where the manifest says so."""
    media: Mapping[str, str] = field(default_factory=dict)
    """The column that each member of an embedded file is in MDS."""
    media_paths: frozenset[str] = frozenset()
    """The fields of records that pointed at them, in whose place MDS has those columns."""

    def encoding(self, name: str) -> str | None:
        """None for a field that no sample has."""
        if name in self.encodings or not self.is_open:
            return self.encodings.get(name)
        return member_encoding(name)


def member_encoding(name: str) -> str:
    """What a tar member of a foreign dataset holds by its extension."""
    return MEMBER_ENCODINGS.get(name.rpartition(".")[2].lower(), "bytes")


def schema_of(dataset: Dataset) -> Schema:
    key_names = {shard.format.key_name for shard in dataset.shards if not shard.is_keyless}
    key_name = next(iter(key_names), None)
    encodings = {known.name: known.encoding for known in dataset.fields if known.name != key_name}
    if dataset.format_name != "wds":
        return Schema(dataset.format_name, encodings, key_name)
    is_open = not encodings
    if is_open:
        encodings = {name: member_encoding(name) for name in _first_names(dataset)}
    embedded = _embedded(dataset)
    return Schema(
        "wds",
        encodings,
        key_name,
        is_open,
        kept_columns(dataset),
        {} if embedded is None else embedded.columns_of_members(),
        frozenset() if embedded is None else frozenset(embedded.extras),
    )


def _first_names(dataset: Dataset) -> Iterator[str]:
    try:
        for _, sample in islice(dataset.all_samples(), _PEEKED_SAMPLES):
            yield from sample.values
    except ShardtoolsError:
        return  # the comparison itself will say that it cannot be read


def _embedded(dataset: Dataset) -> Embed | None:
    """What ``--embed`` took in; a recipe of another kind has nothing of it."""
    steps = [] if dataset.manifest is None else dataset.manifest.recipe.get("steps", [])
    try:
        found = [plugins.restored("transforms", one) for one in steps if one["name"] == "embed"]
    except (UsageError, LookupError, TypeError):
        return None
    return found[0] if found else None


@dataclass(frozen=True)
class Rule:
    """How two values of one field are brought to one form."""

    kind: str
    """``number``, ``json``, ``array``, ``text`` of which one side makes JSON strings, or ``bytes``."""
    detail: str | None = None
    """Of numbers, the float type that one side rounds to; of arrays, their type."""

    def form(self, value: Any) -> Form:
        """``value`` is what ``parsed`` made of the stored bytes. Raises ValueError where it is none of the kind."""
        if self.kind == "number":
            return canonical_number(value, self.detail)
        if self.kind == "json":
            return canonical_json(value)
        if self.kind == "array":
            return canonical_array(value, self.detail)
        if value is None:
            return ABSENT[1]
        if not isinstance(value, str | bytes | memoryview):
            raise ValueError("expected text or bytes")
        return b"b", value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def rule_of(ours: str | None, theirs: str | None) -> Rule:
    """The rule for a field with these encodings; None where a side does not say."""
    known = [encoding for encoding in (ours, theirs) if encoding is not None]
    kinds = [kind_of(encoding) for encoding in known]
    if "array" in kinds:
        types = [encoding.split(":")[1] for encoding in known if encoding.startswith("ndarray:")]
        return Rule("array", types[0] if len(set(types)) == 1 else None)
    if "number" in kinds:
        return Rule("number", next((name for name in FLOATS[:2] if name in known), None))
    if set(known) == {"json", "str"}:
        return Rule("text")
    return Rule("json" if set(kinds) == {"json"} else "bytes")


def aliases_of(dataset: Dataset) -> dict[str, str]:
    """The field each file extension counts as, where the dataset was packed from files: tar members keep their extension."""
    try:
        rules = dataset.manifest.recipe["source"]["layout"]["rules"] if dataset.manifest is not None else []
        return {alias: rule["name"] for rule in rules for alias in rule["aliases"]}
    except (LookupError, TypeError):
        return {}

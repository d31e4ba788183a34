"""Which field of one dataset is which of the other, and the rule by which their values are compared."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from shardtools.datasets import Dataset
from shardtools.errors import ShardtoolsError
from shardtools.formats import MEMBER_ENCODINGS
from shardtools.verify.against._canonical import ABSENT, FLOATS, Form, canonical_array, canonical_json, canonical_number, kind_of

RECORD_FIELD = "json"
"""The WDS member that holds a whole record; MDS has a column for each of its members."""
_PATH_FIELD = "path"
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
    is_open = dataset.format_name == "wds" and not encodings
    if is_open:
        encodings = {name: member_encoding(name) for name in _first_names(dataset)}
    return Schema(dataset.format_name, encodings, key_name, is_open)


def _first_names(dataset: Dataset) -> Iterator[str]:
    try:
        for _, sample in islice(dataset.all_samples(), _PEEKED_SAMPLES):
            yield from sample.values
    except ShardtoolsError:
        return  # the comparison itself will say that it cannot be read


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
    """The rule for a field with these encodings; None where a side does not have the field."""
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


@dataclass(frozen=True)
class Mapped:
    """How the samples of one side become fields that compare with those of the other."""

    own: Schema
    other: Schema
    renames: Mapping[str, str] = field(default_factory=dict)
    """What some of its fields are called on the other side."""
    has_records: bool = False
    """The member ``json`` is a record, whose members are the fields."""
    meets_records: bool = False
    """The other side has such records."""

    @property
    def drops_absent(self) -> bool:
        """MDS has every column in every row, so it cannot tell what is empty from what is absent."""
        return self.own.format_name != self.other.format_name

    def name(self, own_name: str) -> str:
        return self.renames.get(own_name, own_name)

    def rule(self, own_name: str) -> Rule | None:
        """None where the stored bytes are compared as they are."""
        # The extensions of tar members say nothing of a record's members.
        theirs = None if self.meets_records else self.other.encoding(self.name(own_name))
        ours = self.own.encoding(own_name)
        if not self.drops_absent and (ours == theirs or ours is None or theirs is None):
            return None
        return rule_of(ours, theirs)

    def member_rule(self, name: str) -> Rule:
        """For a member of a record: what the other side's column demands."""
        encoding = self.other.encoding(name)
        return Rule("json") if encoding is None else rule_of(encoding, None)


def mapped(ours: Dataset, theirs: Dataset) -> tuple[Mapped, Mapped]:
    """Both sides, each as seen from the other."""
    a, b = schema_of(ours), schema_of(theirs)
    aliases = _aliases(ours) | _aliases(theirs)
    return _mapped(a, b, aliases), _mapped(b, a, aliases)


def _mapped(own: Schema, other: Schema, aliases: Mapping[str, str]) -> Mapped:
    renames = {
        name: aliases[name]
        for name in own.encodings
        if name in aliases and aliases[name] in other.encodings and name not in other.encodings
    }
    return Mapped(own, other, renames, _has_records(own, other), _has_records(other, own))


def _has_records(own: Schema, other: Schema) -> bool:
    """Whether tar members ``json`` hold what the other side has as columns."""
    members, columns = ({name for name in side.encodings if name != _PATH_FIELD} for side in (own, other))
    return own.format_name == "wds" and other.format_name == "mds" and members == {RECORD_FIELD} and columns != {RECORD_FIELD}


def _aliases(dataset: Dataset) -> dict[str, str]:
    """The field each file extension counts as, where the dataset was packed from files: tar members keep their extension."""
    try:
        rules = dataset.manifest.recipe["source"]["layout"]["rules"] if dataset.manifest is not None else []
        return {alias: rule["name"] for rule in rules for alias in rule["aliases"]}
    except (LookupError, TypeError):
        return {}

"""How records become samples: their keys, which record field becomes which field, and what makes a record bad."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter, methodcaller
from typing import Any

from shardtools.errors import UsageError
from shardtools.sample import HEAD_BYTES, Batch, Reject, RejectSink, brief
from shardtools.sources import PATH_FIELD
from shardtools.sources._json_records import Record, Records, with_all_digits
from shardtools.sources._lines import Place
from shardtools.sources._record_keys import key_bytes, keys_of

RECORD_FIELD = "json"


@dataclass(frozen=True)
class FieldMapping:
    """One field of the dataset and the record field it is made of."""

    name: str
    record_field: str
    optional: bool = False
    nested: bool = False
    """Dots in ``record_field`` lead into objects."""


@dataclass(frozen=True)
class Scalar:
    """A field of booleans or numbers, whose types JSON tells apart and MDS stores alike."""

    record_field: str
    name: str
    encoding: str
    has_columns: bool
    """The format takes ``--columns``."""

    def misfit(self, value: Any) -> str:
        """The sentence for a boolean among numbers, or the reverse."""
        wanted = {"uint8": "uint8 from true or false", "int": "int64"}.get(self.encoding, self.encoding)
        remedy = (
            f"--columns {self.name}=json takes any value" if self.has_columns else "correct the record, or leave the field out of --map"
        )
        return f"field {self.name!r}: expected {wanted}, got {type(value).__name__} {brief(value)}; {remedy}"


@dataclass(frozen=True)
class RecordLayout:
    """Everything about fields that planning settled; part of the recipe."""

    key: str | None
    """The record field that is the key. None: ``{path without suffix}/{byte offset, 12 digits}``."""
    mappings: tuple[FieldMapping, ...]
    known: tuple[str, ...] | None
    """The record fields there may be; None: any, those that are not mapped are left out."""
    keep_record: bool
    """A field ``json`` holds the record's own bytes."""
    keep_path: bool
    """A field ``path`` holds the key before it was escaped."""
    exact: tuple[str, ...]
    """The record fields in which whole numbers outside 64 bits must stay exact: all that may hold numbers."""
    scalars: tuple[Scalar, ...] = ()
    """Where true and false must stay apart from 1 and 0."""

    def batch(self, records: Records, prefix: bytes, place: Place, reject: RejectSink, extras: Sequence[str] = ()) -> Batch:
        """The records that are sound; ``prefix`` is their file's part of keys made of offsets, ``extras`` as ``Source.read`` has them."""
        for name in {*self.exact, *(extra.partition(".")[0] for extra in extras)}:
            records = with_all_digits(records, name)
        raw_keys = self._raw_keys(records, prefix)
        if not self._all_sound(records, raw_keys):
            kept = []
            for i, raw in enumerate(raw_keys):
                fault = self._fault(records.values[i], raw)
                if fault is None:
                    kept.append(i)
                else:
                    # Only here, since finding a place takes time.
                    reason, sentence = fault
                    reject(Reject(reason, place(records.offsets[i]), sentence, records.lines[i][:HEAD_BYTES]))
            records = records.take(kept)
            raw_keys = [raw_keys[i] for i in kept]
        columns: dict[str, list[Any]] = {}
        for mapping in self.mappings:
            read = nested_column if mapping.nested else _column
            columns[mapping.name] = read(records.values, mapping.record_field)
        if self.keep_record:
            columns[RECORD_FIELD] = [line.removesuffix(b"\r") for line in records.lines]
        if self.keep_path:
            columns[PATH_FIELD] = [(raw or b"").decode("utf-8", "backslashreplace") for raw in raw_keys]
        offsets = records.offsets
        beside = {name: nested_column(records.values, name) for name in extras}
        return Batch(keys_of(raw_keys, None if self.key is not None else prefix), columns, lambda i: place(offsets[i]), extras=beside)

    def _raw_keys(self, records: Records, prefix: bytes) -> Sequence[bytes | None]:
        if self.key is None:
            return [b"%b/%012d" % (prefix, offset) for offset in records.offsets]
        return [key_bytes(record.get(self.key)) for record in records.values]

    def _all_sound(self, records: Records, raw_keys: Sequence[bytes | None]) -> bool:
        if self.key is not None and None in raw_keys:
            return False
        for scalar in self.scalars:
            kinds = set(map(type, _column(records.values, scalar.record_field)))
            if (kinds - {bool}) if scalar.encoding == "uint8" else (bool in kinds):
                return False
        if self.known is None:
            return True
        # With as many fields as there are known ones, a record that has all of these has no other.
        if set(map(len, records.values)) - {len(self.known)}:
            return False
        return all(all(map(methodcaller("__contains__", name), records.values)) for name in self.known)

    def _fault(self, record: Record, raw: bytes | None) -> tuple[str, str] | None:
        """Why the record is bad: a reason to count by and a sentence."""
        if raw is None:
            got = brief(record[self.key]) if self.key in record else "none"
            return "no-key", f"expected text or a whole number in the key field {self.key!r}, got {got}"
        if self.known is not None and (unknown := sorted(record.keys() - set(self.known))):
            return (
                "unknown-field",
                f"expected only the fields of the first records, got {brief(unknown[0])} too; --map names the fields to take",
            )
        for scalar in self.scalars:
            value = record.get(scalar.record_field)
            if value is not None and (type(value) is bool) != (scalar.encoding == "uint8"):
                return "wrong-type", scalar.misfit(value)
        return None


def parse_mappings(text: str) -> tuple[FieldMapping, ...]:
    """``txt=text,cls=label?``: the field, the record field it is made of, ``?`` where records may lack it."""
    mappings = []
    for part in text.split(","):
        name, separator, record_field = (piece.strip() for piece in part.partition("="))
        optional = record_field.endswith("?")
        mappings.append(FieldMapping(name, record_field.removesuffix("?"), optional))
        if not (name and separator and mappings[-1].record_field) or name in [mapping.name for mapping in mappings[:-1]]:
            raise UsageError(f"expected --map as FIELD=RECORD_FIELD,... with every field once, got {text!r}")
    return tuple(sorted(mappings, key=lambda mapping: mapping.name))


def _column(records: Sequence[Record], name: str) -> list[Any]:
    try:
        return list(map(itemgetter(name), records))
    except KeyError:
        return [record.get(name) for record in records]


def nested_column(records: Sequence[Record], path: str) -> list[Any]:
    """What the dotted path leads to in each record, None where it leads nowhere."""
    values: list[Any] = list(records)
    for name in path.split("."):
        values = [value.get(name) if type(value) is dict else None for value in values]
    return values

"""A block of samples through a layout: the values of each field, and why a sample is bad."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from shardtools import keys
from shardtools.formats import ShardFormat
from shardtools.sample import HEAD_BYTES, brief
from shardtools.sources import _shard_values as convert
from shardtools.sources._record_keys import key_bytes
from shardtools.sources._shard_blocks import Block, Values
from shardtools.sources._shard_fields import RECORD_MEMBER, ShardField, ShardLayout


class ShardView:
    """A block through a layout: values of fields, and ``bad``, by sample: reason, sentence and first bytes."""

    def __init__(self, layout: ShardLayout, block: Block, shard_format: ShardFormat) -> None:
        self._layout = layout
        self._block = block
        self._format = shard_format
        self.bad: dict[int, tuple[str, str, bytes]] = {}
        self._by_field: dict[str, list[str]] = {}
        for name in block.names:
            self._by_field.setdefault(name if layout.is_table else name.lower(), []).append(name)

    def keys(self, prefix: bytes) -> Sequence[bytes | None]:
        if self._layout.key is None:
            return [prefix + key for key in self._block.keys] if prefix else self._block.keys
        origin, path = self._layout.key
        values = self._json(origin)
        found = values if path is None else convert.inner(values, path)
        raw = [key_bytes(value) for value in found]
        if None in raw:
            for i, key in enumerate(raw):
                if key is None:
                    name = origin if path is None else f"{origin}.{path}"
                    self._refuse(i, "no-key", f"expected text or a whole number in the key field {name!r}, got {brief(found[i])}")
        return raw

    def values(self, part: ShardField) -> list[Any]:
        """Of one field; None where a sample lacks it. Those that are bad are noted."""
        if part.form == "record":
            made = self._converted(self._record_rows(part), self._records(part), part)
        else:
            stored = self._origin(part.origins)
            if part.empty is not None:
                absent = part.empty.encode()
                stored = [None if value == absent else value for value in stored]
            made = self._converted(stored, self._decoder(part), part)
        if not part.optional:
            for i, value in enumerate(made):
                if value is None:
                    remedy = "? after its name in --fields or --map allows it"
                    remedy += f", in MDS also --columns {part.name}=json" if part.path is not None else ""
                    self._refuse(i, "missing-field", f"expected the field {part.name!r} in every sample, got none; {remedy}")
        return made

    def refuse_names(self) -> None:
        """Members that are of no field, and fields that a sample has twice or not at all."""
        known = self._layout.known
        unknown = [] if known is None else sorted(set(self._by_field) - set(known))
        for field in unknown:
            reason = "unknown-field" if keys.is_legal_field(field) else "illegal-field"
            fault = f"expected only the members {', '.join(known or ())}, got .{field} too; --fields names the members to take"
            self._refuse_all(self._present([field]), reason, fault)
        for rule in self._layout.rules:
            present = [name for alias in rule.aliases for name in self._by_field.get(alias, ())]
            if self._block.is_dense and len(present) == 1:
                continue  # as nearly always: without a look at each sample
            if not rule.optional:
                missing = f"expected a member .{rule.name}, got none; --fields marks one that may be missing with {rule.name}?"
                self._refuse_all(
                    [not any(has) for has in zip(*map(self._has, present), strict=True)] or self._none(), "missing-field", missing
                )
            if len(present) > 1:
                twice = f"expected one member for the field {rule.name!r} of a sample, got two; rename one or choose with --fields"
                self._refuse_all([sum(has) > 1 for has in zip(*map(self._has, present), strict=True)], "two-files-one-field", twice)

    def extra(self, name: str) -> list[Any]:
        """Values that are asked for beside the fields, as JSON has them: of a column or member of that name, or of a field in JSON.

        Of each sample the first of these that it has, whatever its neighbours have.
        """
        origins = [(origin, path) for origin, path in split_path(name) if origin in self._by_field]
        candidates = [values if path is None else convert.inner(values, path) for values, path in ((self._json(o), p) for o, p in origins)]
        if RECORD_MEMBER in self._by_field:
            candidates.append(convert.inner(self._json(RECORD_MEMBER), name))
        found: list[Any] = [None] * len(self._block.keys)
        for values in candidates:
            found = [value if first is None else first for first, value in zip(found, values, strict=True)]
        return found

    def _origin(self, origins: Sequence[str]) -> Values:
        names = [name for origin in origins for name in self._by_field.get(origin, ())]
        if len(names) == 1:
            return self._block.column(names[0])
        merged: Values = [None] * len(self._block.keys)
        for name in names:
            merged = [value if first is None else first for first, value in zip(merged, self._block.column(name), strict=True)]
        return merged

    def _decoder(self, part: ShardField) -> convert.Decode:
        if part.form == "column":
            return convert.of_column(part.encoding, self._format)
        if part.form == "npy":
            return convert.as_npy(part.encoding, self._format)
        if part.form == "array":
            return convert.of_npy
        if part.form == "json":
            decode, path = self._json_of(part), part.path
            return decode if path is None else lambda values: convert.inner(decode(values), path)
        if part.form == "dumped":
            return lambda values: convert.inner_texts(values, part.path or "", part.optional)
        return convert.unchanged

    def _json(self, origin: str) -> list[Any]:
        encoding = self._layout.encodings.get(origin, "bytes") if self._layout.is_table else "bytes"
        decode, values = self._json_of(ShardField("", (origin,), encoding=encoding)), self._origin([origin])
        try:
            return decode(values)
        except Exception:  # any misfit at all: the others have values
            return [self._one(decode, value) for value in values]

    def _json_of(self, part: ShardField) -> convert.Decode:
        if self._layout.is_table or part.encoding != "bytes":
            return convert.as_json(part.encoding, self._format)
        return convert.of_member(part.origins[0])

    def _one(self, decode: convert.Decode, value: bytes | None) -> Any:
        try:
            return decode([value])[0]
        except Exception:  # what cannot be decoded has no value
            return None

    def _record_rows(self, part: ShardField) -> list[Any]:
        """Of the columns of the JSON member, what each sample has, as one value for each sample."""
        stored = [self._origin([name]) for name in part.origins]
        empty = {column.name: column for column in self._layout.schema or () if column.optional}
        for j, name in enumerate(part.origins):
            if name in empty:
                absent = b"null" if empty[name].encoding == "json" else b""
                stored[j] = [None if value == absent else value for value in stored[j]]
        return list(zip(*stored, strict=True))

    def _records(self, part: ShardField) -> Callable[[list[Any]], list[Any]]:
        encodings = self._layout.encodings

        def dump(rows: list[Any]) -> list[Any]:
            columns = zip(*rows, strict=True)
            return convert.records(
                {name: (encodings[name], list(column)) for name, column in zip(part.origins, columns, strict=True)}, self._format
            )

        return dump

    def _converted(self, stored: list[Any], decode: Callable[[list[Any]], list[Any]], part: ShardField) -> list[Any]:
        try:
            return decode(stored) if stored else []
        except Exception:  # any misfit at all: look at each value to say which and why
            made = []
            for i, value in enumerate(stored):
                try:
                    made += decode([value])
                except Exception as error:
                    head = value[:HEAD_BYTES] if type(value) is bytes else b""
                    self._refuse(i, "wrong-type", f"field {part.name!r}: {error}; correct the sample, or leave the field out", head)
                    made.append(b"")
            return made

    def _has(self, name: str) -> list[bool]:
        return [value is not None for value in self._block.column(name)]

    def _present(self, fields: Sequence[str]) -> list[bool]:
        return [value is not None for value in self._origin(fields)]

    def _none(self) -> list[bool]:
        return [True] * len(self._block.keys)

    def _refuse_all(self, are_bad: Sequence[bool], reason: str, sentence: str) -> None:
        for i, is_bad in enumerate(are_bad):
            if is_bad:
                self._refuse(i, reason, sentence)

    def _refuse(self, i: int, reason: str, sentence: str, head: bytes = b"") -> None:
        self.bad.setdefault(i, (reason, sentence, head))


def split_path(name: str) -> Iterator[tuple[str, str | None]]:
    """A dotted name as member or column and path in it, the longest member first."""
    yield name, None
    parts = name.split(".")
    for i in range(len(parts) - 1, 0, -1):
        yield ".".join(parts[:i]), ".".join(parts[i:])

"""Samples by the meaning of their fields, so that datasets of two formats or of other encodings compare."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import xxhash

from shardtools.datasets import Dataset, Shard
from shardtools.formats import StoredSample
from shardtools.npy import array_of_npy
from shardtools.sample import Field
from shardtools.verify.against._canonical import ABSENT, Form, canonical_json, json_value
from shardtools.verify.against._fields import RECORD_FIELD, Rule
from shardtools.verify.against._samples import Value, shown_value
from shardtools.verify.against._stored import Content
from shardtools.verify.against._views import Mapped

_BY_NAME = itemgetter(0)


class _Formed(NamedTuple):
    """One field, under the name that both sides have for it."""

    name: str
    form: Form
    stored: bytes | memoryview
    shown: Any
    """None: what the stored bytes decode to."""


@dataclass(frozen=True)
class Canonical:
    """A sample is the set of its fields, each by name and form; in any order."""

    mapped: Mapped

    def contents(self, dataset: Dataset, shard: Shard) -> Content:
        forms = _Forms(self.mapped, dataset, shard)

        def content(_: memoryview, sample: StoredSample) -> bytes:
            hasher = xxhash.xxh3_128()
            for field in sorted(forms(sample), key=_BY_NAME):
                _update(hasher.update, field.name, field.form)
            return hasher.digest()

        return content

    def values(self, dataset: Dataset, shard: Shard, sample: StoredSample) -> dict[str, Value]:
        found = {}
        for name, form, stored, shown in _Forms(self.mapped, dataset, shard)(sample):
            hasher = xxhash.xxh3_128()
            _update(hasher.update, name, form)
            data = bytes(stored)
            value = shown if shown is not None else shown_value(shard.format, dataset.field(shard, name), data)
            found[name] = Value.of(data, value, hasher.digest())
        return found


def _update(update: Callable[[bytes | memoryview], None], name: str, form: Form) -> None:
    """Name and form with their lengths, so that no two samples run together in the same way."""
    text = name.encode("utf-8", "surrogateescape")
    kind, data = form
    update(b"%d %d %d " % (len(text), len(kind), len(data)) + text + kind)
    update(data)


class _Forms:
    """The fields of one shard's samples."""

    def __init__(self, mapped: Mapped, dataset: Dataset, shard: Shard) -> None:
        self._mapped = mapped
        self._dataset = dataset
        self._shard = shard
        self._key_name = None if shard.is_keyless else shard.format.key_name
        self._rules: dict[str, tuple[str, Rule | None, Field]] = {}
        self._member_rules: dict[str, Rule | None] = {}

    def __call__(self, sample: StoredSample) -> Iterator[_Formed]:
        for own_name, stored in sample.values.items():
            if own_name == self._key_name:
                continue
            if own_name == RECORD_FIELD and self._mapped.has_records and (record := _record(stored)) is not None:
                fields = self._members(record)
            else:
                fields = iter((self._field(own_name, stored),))
            for field in fields:
                if not (self._mapped.drops_absent and field.form in ABSENT):
                    yield field

    def _field(self, own_name: str, stored: memoryview) -> _Formed:
        known = self._rules.get(own_name)
        if known is None:
            mapped = self._mapped
            known = self._rules[own_name] = (mapped.name(own_name), mapped.rule(own_name), self._dataset.field(self._shard, own_name))
        name, rule, field = known
        return _Formed(name, (b"b", stored) if rule is None else self._form(rule, field, stored), stored, None)

    def _form(self, rule: Rule, field: Field, stored: memoryview) -> Form:
        """The stored bytes themselves where they are no value of their encoding."""
        try:
            if rule.kind == "bytes":
                return b"b", stored
            data = bytes(stored)
            if rule.kind == "array" and field.encoding == "bytes":
                return rule.form(array_of_npy(data))
            is_json = "json" in (field.encoding, rule.kind)
            return rule.form(json_value(data) if is_json else self._shard.format.decode(field, data))
        except (ValueError, ArithmeticError, TypeError):
            return b"b", stored

    def _members(self, record: dict[str, Any]) -> Iterator[_Formed]:
        rules = self._member_rules
        for name, value in record.items():
            if name not in rules:
                rules[name] = self._mapped.member_rule(name)
            rule = rules[name]
            if rule is not None:
                yield _Formed(name, _member_form(rule, value), canonical_json(value)[1], value)


def _member_form(rule: Rule, value: Any) -> Form:
    try:
        return rule.form(value)
    except (ValueError, ArithmeticError, TypeError):
        return canonical_json(value)


def _record(stored: memoryview) -> dict[str, Any] | None:
    try:
        value = json_value(bytes(stored))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None

"""What samples of files have beside their fields, for ``--where`` and the like: fields of the JSON file, text, label, path."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from shardtools.formats import MEMBER_ENCODINGS
from shardtools.sample import HEAD_BYTES
from shardtools.sources import PATH_FIELD
from shardtools.sources._grouping import FieldRule
from shardtools.sources._layout import LABEL_FIELD, Layout
from shardtools.sources._planned import Planned, RefusedSampleError, join, shown

_RECORD_KIND = "json"
"""The extension of the file that holds a sample's record, whatever its field is called."""
# orjson reads whole numbers outside 64 bits as floats; json keeps every digit.
_LONG_NUMBER = re.compile(rb"\d{19}")


class FileValues:
    """The values of these names, of one sample after the other.

    A name is first a field of the sample's JSON file, whose dots lead into objects; where that has none, ``path`` is the path of
    its first file, ``cls`` its label, and the name of a field that is text, ``txt``, that text.
    """

    def __init__(self, names: Sequence[str], layout: Layout) -> None:
        self._layout = layout
        self._record_field = record_field(layout)
        self._names = [(name, self._beside_record(name)) for name in names]

    def of(self, sample: Planned, stored: Mapping[str, bytes]) -> dict[str, Any]:
        """``stored`` are the sample's files by field. Raises RefusedSampleError where its JSON is none."""
        record = self._record(sample, stored)
        found = {name: _inner(record, name) for name, _ in self._names}
        return {name: found[name] if found[name] is not None else beside(sample, stored) for name, beside in self._names}

    def _record(self, sample: Planned, stored: Mapping[str, bytes]) -> Any:
        """Of the sample's JSON file; None without one, since other kinds of file may share its field."""
        name = sample.name_of(_RECORD_KIND.encode())
        if name is None or self._record_field not in stored:
            return None
        return _parsed(stored[self._record_field], join(sample.folder, name))

    def _beside_record(self, name: str) -> Callable[[Planned, Mapping[str, bytes]], Any]:
        encoding = MEMBER_ENCODINGS.get(name)
        if name == PATH_FIELD:
            return lambda sample, _: shown(join(sample.folder, sample.names[0]))
        if name == LABEL_FIELD and self._layout.labels is not None:
            return lambda sample, _: self._layout.label_of[sample.folder.partition(b"/")[0]]
        if encoding in ("str", "int"):
            return lambda _, stored: _text(stored[name], encoding == "int") if name in stored else None
        return lambda _, __: None


def record_field(layout: Layout) -> str:
    """The field of the JSON files; no name where there are none."""
    return layout.stored_names.get(_RECORD_KIND, "")


def looked_into(rule: FieldRule) -> bool:
    """Whether a field's files are read for values beside the fields."""
    return _RECORD_KIND in rule.aliases or MEMBER_ENCODINGS.get(rule.name) in ("str", "int")


def record_names(stored: bytes | None) -> set[str]:
    """The fields of a JSON file's object."""
    try:
        record = orjson.loads(stored or b"{}")
    except orjson.JSONDecodeError:
        return set()
    return set(record) if type(record) is dict else set()


def _parsed(data: bytes, path: bytes) -> Any:
    try:
        return json.loads(data) if _LONG_NUMBER.search(data) else orjson.loads(data)
    except ValueError as error:
        raise RefusedSampleError("invalid-json", path, f"expected valid JSON, got: {error}", data[:HEAD_BYTES]) from None


def _inner(record: Any, name: str) -> Any:
    for part in name.split("."):
        record = record.get(part) if type(record) is dict else None
    return record


def _text(data: bytes, is_number: bool) -> Any:
    text = data.decode("utf-8", "replace")
    try:
        return int(text) if is_number else text
    except ValueError:
        return text

"""The ids in what a reader delivers: items, batches, and tuples or lists of either."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

ID_NAMES = ("__key__", "key", "id")

IdsOf = Callable[[Any], list[str]]


class MisuseError(Exception):
    """What the user asked for cannot be carried out; the message is one sentence."""


class AbsentError(MisuseError):
    """What the user named is not there, whoever looks."""


def named_object(text: str, flag: str) -> Any:
    """What ``pkg.mod:name`` names. Raises AbsentError, and MisuseError where importing it fails otherwise: a rank may fare better."""
    module_name, _, name = text.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), name]):
        raise AbsentError(f"expected {flag} as pkg.mod:name, got {text!r}")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        kind = AbsentError if isinstance(error, ImportError | SyntaxError) else MisuseError
        raise kind(
            f"expected to import {module_name} for {flag}, got {type(error).__name__}: {error}; run where it can be imported"
        ) from error
    if not callable(found := getattr(module, name, None)):
        got = "none" if found is None else f"one that is a {type(found).__name__}"
        raise AbsentError(f"expected a function {name} in {module_name} for {flag}, got {got}")
    return found


def ids_finder(id_of: str | None, names: Sequence[str] = ID_NAMES) -> IdsOf:
    """How to find the ids of an item or batch: by a function of the user, or under the first of ``names`` there is.

    Raises MisuseError, here and when the finder is called.
    """
    if id_of is None:
        return lambda item: _ids_by_name(item, names)
    function = named_object(id_of, "--id")

    def found(item: Any) -> list[str]:
        ids = _flat(value := function(item))
        if ids is None:
            raise MisuseError(f"expected text, a whole number or a list of them from {id_of}, got {_described(value)}")
        return ids

    return found


def _ids_by_name(item: Any, names: Sequence[str]) -> list[str]:
    ids = _find(item, names)
    if ids is None:
        expected = f"{', '.join(names[:-1])} or {names[-1]}"
        raise MisuseError(f"expected {expected} in each item, got {_described(item)}; name a function that finds the id with --id")
    return ids


def _find(item: Any, names: Sequence[str]) -> list[str] | None:
    """The ids of an item or batch, None where there are none."""
    for name in names:
        value = item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
        if value is not None and not callable(value) and (ids := _flat(value)) is not None:
            return ids
    if not isinstance(item, list | tuple):
        return None
    parts = [_find(part, names) for part in item]
    found = [ids for ids in parts if ids is not None]
    if isinstance(item, list) and len(found) == len(parts):
        return [each for ids in found for each in ids]
    return found[0] if found and all(ids == found[0] for ids in found) else None


def _flat(value: Any) -> list[str] | None:
    """Text, bytes, whole numbers, arrays and tensors of them, and lists of all that; None for anything else."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, str):
        return [value]
    if isinstance(value, bytes):
        return [value.decode("utf-8", "surrogateescape")]
    if isinstance(value, int):
        return [str(value)]
    if not isinstance(value, list | tuple):
        return None
    parts = [_flat(part) for part in value]
    return None if None in parts else [each for part in parts if part is not None for each in part]


def _described(item: Any) -> str:
    if isinstance(item, Mapping):
        return f"a {type(item).__name__} with {', '.join(str(name) for name in list(item)[:8]) or 'nothing'}"
    if isinstance(item, list | tuple) and item:
        return f"a {type(item).__name__} of {len(item)} that begins with {_described(item[0])}"
    return f"a {type(item).__name__}"

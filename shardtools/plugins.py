"""Finding sources, formats, storages and engines by name: one file each, the file's name is its registration.

A file ``sources/jsonl.py``, or a package of that name, is the source ``jsonl``, its class is ``Jsonl``, a frozen dataclass; its
fields are its options. Files that begin with ``_`` are parts of their siblings.

Options come as words, the way a user typed them. A plug-in whose fields are text, numbers or names needs nothing more. One
whose options are richer says what it knows in ``option_names: ClassVar[tuple[str, ...]]`` and reads it in a classmethod
``from_options(words: Mapping[str, str])``; an option that was not given is not among the words, a flag's word is empty.
"""

import dataclasses
import importlib
import os
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import shardtools
from shardtools.errors import UsageError


def names(package: str) -> list[str]:
    """The names registered under ``shardtools.{package}``, sorted; imports nothing."""
    return list(_names(package, tuple(shardtools.__path__)))


@cache  # every place that is opened asks
def _names(package: str, paths: tuple[str, ...]) -> tuple[str, ...]:
    modules = pkgutil.iter_modules([os.path.join(path, package) for path in paths])
    return tuple(sorted(module.name for module in modules if not module.name.startswith("_")))


def load(package: str, name: str) -> Any:
    """The class registered as ``name``. Raises UsageError naming what there is instead."""
    known = names(package)
    if name not in known:
        raise UsageError(f"expected one of {', '.join(known)} in {package}, got {name!r}")
    module = importlib.import_module(f"shardtools.{package}.{name}")
    return getattr(module, "".join(part.capitalize() for part in name.split("_")))


def make(package: str, name: str, words: Mapping[str, str], flag: str) -> Any:
    """The plug-in with the options a user gave, beside the ``flag`` that chose it.

    Raises UsageError that names the first option it does not know, or whose word is none of its type.
    """
    plugin = load(package, name)
    fields = {field.name: field for field in dataclasses.fields(plugin) if field.init}
    known = _option_names(plugin)
    for word in words:
        if word not in known:
            others = [other for other in _chosen_by_flag(package) if word in _option_names(load(package, other))]
            remedy = f"leave it out: it goes with {flag} {' or '.join(others)}" if others else "leave it out"
            raise UsageError(f"expected no --{word.replace('_', '-')} with {flag} {name}, got it; {remedy}")
    if hasattr(plugin, "from_options"):
        return plugin.from_options(words)
    return plugin(**{word: _parsed(fields[word], text) for word, text in words.items()})


def _chosen_by_flag(package: str) -> list[str]:
    """The plug-ins a flag may name; what chooses a transform is an option of its own."""
    return [] if package == "transforms" else names(package)


def _option_names(plugin: Any) -> tuple[str, ...]:
    if hasattr(plugin, "from_options"):
        return tuple(plugin.option_names)
    return tuple(field.name for field in dataclasses.fields(plugin) if field.init)


def restored(package: str, plain: Mapping[str, Any]) -> Any:
    """The plug-in of which ``options`` made this plain data, also after a way through JSON.

    What a plug-in settles by itself is settled anew. Raises UsageError for data of which no plug-in can be made.
    """
    try:
        return _restored(load(package, plain["name"]), {name: value for name, value in plain.items() if name != "name"})
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"expected the options of one of shardtools.{package}, got others ({type(error).__name__}: {error})") from None


def _restored(kind: Any, plain: Any) -> Any:
    """The value of an annotated type: a dataclass, a tuple of one kind, one of them or None, or what JSON has itself."""
    kinds = [inner for inner in get_args(kind) if inner is not NoneType]
    if plain is None or (not kinds and not dataclasses.is_dataclass(kind)):
        return plain
    if get_origin(kind) is tuple:
        return tuple(_restored(kinds[0], value) for value in plain)
    if kinds:
        return _restored(kinds[0], plain)
    hints = get_type_hints(kind)
    settled = {field.name for field in dataclasses.fields(kind) if not field.init}
    return kind(**{name: _restored(hints[name], value) for name, value in plain.items() if name not in settled})


def _parsed(field: "dataclasses.Field[Any]", text: str) -> Any:
    """A word as the field's type; ``none`` switches off what is on by default. Numbers are counts."""
    kinds = get_args(field.type) or (field.type,)
    if get_origin(field.type) is tuple:
        return tuple(text.split(","))
    if NoneType in kinds and field.default is not None and text == "none":
        return None
    if int not in kinds:
        return text
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise UsageError(f"expected --{field.name.replace('_', '-')} of 1 or more, got {text!r}")
    return int(text)


def name_of(plugin: object) -> str:
    """The name a plugin object is registered under."""
    return type(plugin).__module__.rpartition(".")[2]


def options(plugin: Any) -> dict[str, Any]:
    """A plugin as plain data for recipes: its name and every dataclass field."""
    return {"name": name_of(plugin), **dataclasses.asdict(plugin)}

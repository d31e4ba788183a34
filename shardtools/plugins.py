"""Finding sources, formats, storages and engines by name: one file each, the file's name is its registration.

A file ``sources/jsonl.py`` is the source ``jsonl``, its class is ``Jsonl``, a frozen dataclass; its fields are its options.
Files that begin with ``_`` are parts of their siblings.

Options come as words, the way a user typed them. A plug-in whose fields are text, numbers or names needs nothing more. One
whose options are richer says what it knows in ``option_names: ClassVar[tuple[str, ...]]`` and reads it in a classmethod
``from_options(words: Mapping[str, str])``; an option that was not given is not among the words, a flag's word is empty.
"""

import dataclasses
import importlib
import os
import pkgutil
from collections.abc import Mapping
from types import NoneType
from typing import Any, get_args, get_origin

import shardtools
from shardtools.errors import UsageError


def names(package: str) -> list[str]:
    """The names registered under ``shardtools.{package}``, sorted; imports nothing."""
    folders = [os.path.join(path, package) for path in shardtools.__path__]
    return sorted(module.name for module in pkgutil.iter_modules(folders) if not module.name.startswith("_"))


def load(package: str, name: str) -> Any:
    """The class registered as ``name``. Raises UsageError naming what there is instead."""
    known = names(package)
    if name not in known:
        raise UsageError(f"expected one of {', '.join(known)} in {package}, got {name!r}")
    module = importlib.import_module(f"shardtools.{package}.{name}")
    return getattr(module, "".join(part.capitalize() for part in name.split("_")))


def make(package: str, name: str, words: Mapping[str, str], flag: str) -> Any:
    """The plug-in with the options a user gave, beside the ``flag`` that chose it.

    Raises UsageError that names the first option it does not know.
    """
    plugin = load(package, name)
    fields = {field.name: field for field in dataclasses.fields(plugin) if field.init}
    known = plugin.option_names if hasattr(plugin, "from_options") else fields
    for word in words:
        if word not in known:
            raise UsageError(f"expected no --{word.replace('_', '-')} with {flag} {name}, got it; leave it out")
    if hasattr(plugin, "from_options"):
        return plugin.from_options(words)
    return plugin(**{word: _parsed(fields[word], text) for word, text in words.items()})


def _parsed(field: "dataclasses.Field[Any]", text: str) -> Any:
    """A word as the field's type; ``none`` switches off what is on by default."""
    kinds = get_args(field.type) or (field.type,)
    if get_origin(field.type) is tuple:
        return tuple(text.split(","))
    if NoneType in kinds and field.default is not None and text == "none":
        return None
    return int(text) if int in kinds else text


def name_of(plugin: object) -> str:
    """The name a plugin object is registered under."""
    return type(plugin).__module__.rpartition(".")[2]


def options(plugin: Any) -> dict[str, Any]:
    """A plugin as plain data for recipes: its name and every dataclass field."""
    return {"name": name_of(plugin), **dataclasses.asdict(plugin)}

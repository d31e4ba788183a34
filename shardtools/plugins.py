"""Finding sources, formats, storages and engines by name: one file each, the file's name is its registration.

A file ``sources/jsonl.py`` is the source ``jsonl``, its class is ``Jsonl``. Files that begin with ``_`` are parts of
their siblings.
"""

import dataclasses
import importlib
import pkgutil
from typing import Any

from shardtools.errors import UsageError


def names(package: str) -> list[str]:
    """The names registered under ``shardtools.{package}``, sorted; imports none of them."""
    path = importlib.import_module(f"shardtools.{package}").__path__
    return sorted(module.name for module in pkgutil.iter_modules(path) if not module.name.startswith("_"))


def load(package: str, name: str) -> Any:
    """The class registered as ``name``. Raises UsageError naming what there is instead."""
    known = names(package)
    if name not in known:
        raise UsageError(f"expected one of {', '.join(known)} in {package}, got {name!r}")
    module = importlib.import_module(f"shardtools.{package}.{name}")
    return getattr(module, "".join(part.capitalize() for part in name.split("_")))


def name_of(plugin: object) -> str:
    """The name a plugin object is registered under."""
    return type(plugin).__module__.rpartition(".")[2]


def options(plugin: Any) -> dict[str, Any]:
    """A plugin as plain data for recipes: its name and every dataclass field."""
    return {"name": name_of(plugin), **dataclasses.asdict(plugin)}

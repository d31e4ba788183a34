"""The tensors of a batch, whatever holds them: found by path, mapped in place, and judged as the pinning thread sees them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Leaf:
    """One tensor of a batch."""

    path: str
    """As Python would reach it from ``batch``: ``batch['image']``, ``batch[0].tokens``."""
    tensor: torch.Tensor
    is_reached: bool
    """Whether ``DataLoader(pin_memory=True)`` finds it: through dicts, lists, tuples and objects with a ``pin_memory`` of their own.

    Source: torch/utils/data/_utils/pin_memory.py, ``pin_memory``.
    """


def leaves(batch: Any) -> list[Leaf]:
    """Every tensor, in order; those inside objects of the user's own types too."""
    return list(_leaves(batch, "batch", True, frozenset()))


def _leaves(value: Any, path: str, is_reached: bool, above: frozenset[int]) -> Iterator[Leaf]:
    if isinstance(value, torch.Tensor):
        yield Leaf(path, value, is_reached)
        return
    if id(value) in above:
        return  # an object that holds itself
    above |= {id(value)}
    for step, inner in _inside(value):
        yield from _leaves(inner, path + step, is_reached and not _hides(value), above)


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", inner) for key, inner in value.items())
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from ((f".{name}", getattr(value, name)) for name in value._fields)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        yield from ((f"[{i}]", inner) for i, inner in enumerate(value))
    elif is_custom(value):
        yield from ((f".{name}", inner) for name, inner in _attributes(value))


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    names = [*getattr(value, "__dict__", ())]
    names += [name for kind in type(value).__mro__ for name in _slots(kind) if hasattr(value, name)]
    yield from ((name, getattr(value, name)) for name in names)


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(name for name in slots if not name.startswith("__"))


def is_custom(value: Any) -> bool:
    """An object of a type that no collate of torch makes."""
    if isinstance(value, torch.Tensor | Mapping | Sequence | int | float | complex | bytes | bytearray) or value is None:
        return False
    return bool(_slots(type(value)) or hasattr(value, "__dict__")) and not isinstance(value, type) and not callable(value)


def _hides(value: Any) -> bool:
    return is_custom(value) and not hasattr(value, "pin_memory")


def hidden_types(batch: Any) -> dict[str, str]:
    """Objects with tensors in them that pinning passes by, since their type has no ``pin_memory()``: path to type name."""
    passed_by = [leaf.path for leaf in leaves(batch) if not leaf.is_reached]
    return {path: name for path, name in _hiding(batch, "batch", frozenset()) if any(leaf.startswith(path) for leaf in passed_by)}


def _hiding(value: Any, path: str, above: frozenset[int]) -> Iterator[tuple[str, str]]:
    if isinstance(value, torch.Tensor) or id(value) in above:
        return
    if _hides(value):
        yield path, type(value).__name__
        return
    for step, inner in _inside(value):
        yield from _hiding(inner, path + step, above | {id(value)})


def mapped(batch: Any, function: Callable[[torch.Tensor], torch.Tensor], of_other: Callable[[Any], Any] = lambda value: value) -> Any:
    """The same batch with ``function`` of each tensor and ``of_other`` of everything else that is no container.

    Mappings become dicts, tuples with names keep their type, other tuples become tuples and other sequences lists.
    """
    if isinstance(batch, torch.Tensor):
        return function(batch)
    if isinstance(batch, Mapping):
        return {key: mapped(value, function, of_other) for key, value in batch.items()}
    if isinstance(batch, Sequence) and not isinstance(batch, str | bytes | bytearray):
        values = [mapped(value, function, of_other) for value in batch]
        if not isinstance(batch, tuple):
            return values
        return type(batch)(*values) if hasattr(batch, "_fields") else tuple(values)
    return of_other(batch)


def moved(batch: Any, device: Any, non_blocking: bool) -> Any:
    """The batch on another device; the user's own types by their own ``to``, which every training loop would call."""

    def by_itself(value: Any) -> Any:
        return value.to(device) if callable(getattr(value, "to", None)) else value

    return mapped(batch, lambda tensor: tensor.to(device, non_blocking=non_blocking), by_itself)

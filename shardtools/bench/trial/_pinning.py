"""Whether a loaded batch lies in page-locked memory, tensor by tensor, and what to do where it does not."""

from typing import Any

from shardtools.bench.devices import Device
from shardtools.bench.leaves import hidden_types, leaves

_MOST_NAMED = 10


def pinning(batch: Any, device: Device, is_asked: bool) -> dict[str, Any]:
    """``is_asked``: the loader was to pin. ``custom_types`` are found on any device, ``unpinned`` only where pinning exists.

    ``unpinned`` and ``num_pinned`` are None where there is no accelerator: pinning then has no effect.
    """
    found = leaves(batch)
    states = [(leaf.path, device.is_pinned(leaf)) for leaf in found]
    hidden = hidden_types(batch)
    has_pinning = device.has_copies
    unpinned = [path for path, state in states if state is False]
    return {
        "is_asked": is_asked,
        "num_tensors": len(found),
        "num_pinned": sum(state is True for _, state in states) if has_pinning else None,
        "unpinned": unpinned[:_MOST_NAMED] if has_pinning else None,
        "custom_types": hidden,
        "advice": _advice(hidden, unpinned if is_asked and has_pinning else []),
    }


def _advice(hidden: dict[str, str], unpinned: list[str]) -> str | None:
    """None where all is well."""
    if hidden:
        path, name = next(iter(hidden.items()))
        return (
            f"expected batches whose tensors can be pinned, got {name} at {path}, which has no pin_memory(): the loader leaves its tensors "
            f"in pageable memory without a word; give {name} a method pin_memory() that pins them and returns self, "
            "or collate into dicts, tuples or lists"
        )
    if unpinned:
        more = f" and {len(unpinned) - _MOST_NAMED} more" if len(unpinned) > _MOST_NAMED else ""
        return f"expected pinned tensors under pin_memory=True, got pageable ones at {', '.join(unpinned[:_MOST_NAMED])}{more}"
    return None

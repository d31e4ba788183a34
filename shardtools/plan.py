"""The plan: a frozen recipe and the input cut into partitions, both fixed before any worker starts."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import zstandard

from shardtools import plugins
from shardtools.extents import identity, printable_extent, printable_extents
from shardtools.sample import Field
from shardtools.selection import Selection
from shardtools.units import plural

ADDED = "added"
"""What a difference of plans says of inputs that the earlier one had not."""
_MAX_DIFFERENCES = 3
_SETTLED = "source.layout."


@dataclass(frozen=True)
class ShardLimit:
    """When a shard is closed; exactly one of the two is set."""

    num_bytes: int | None = None
    """Hard upper bound on the file's bytes."""
    num_samples: int | None = None


@dataclass(frozen=True)
class Recipe:
    """Everything that determines the published bytes. Holds no path, time or host."""

    source: Any
    """A Source whose automatic choices are settled."""
    format: Any
    """A ShardFormat."""
    fields: tuple[Field, ...]
    limit: ShardLimit
    shuffle_seed: int | None = None
    sidecars: tuple[str, ...] = ()
    """Readers whose index files are published too, sorted."""
    transforms: tuple[Any, ...] = ()
    """What makes rows of tokens of each partition's samples before they are stored, in order."""
    steps: tuple[Any, ...] = ()
    """What is done to samples one by one before that, in order: they stay the samples that were read, or are left out."""
    selection: Selection = field(default_factory=Selection)
    """Which samples of the whole input are taken, and in which split each is."""

    @property
    def extras(self) -> tuple[str, ...]:
        """What the source has to give beside the fields, sorted."""
        names = {name for step in self.steps for name in step.extras}
        return tuple(sorted(names | set(self.selection.extras)))

    def as_json(self) -> dict[str, Any]:
        """The recipe as plain data, the form it has in plan and manifest."""
        # Left out where there are none: what was packed before they were known has the same plan.
        newer = {
            "sidecars": list(self.sidecars),
            "transforms": [transform.recipe() for transform in self.transforms],
            "steps": [step.recipe() for step in self.steps],
            "selection": self.selection.as_json(),
        }
        return {
            "source": plugins.options(self.source),
            "format": plugins.options(self.format),
            "fields": [asdict(field) for field in self.fields],
            "shard_bytes": self.limit.num_bytes,
            "shard_samples": self.limit.num_samples,
            "shuffle_seed": self.shuffle_seed,
            **{name: values for name, values in newer.items() if values},
        }


@dataclass(frozen=True, slots=True)
class Partition:
    """A run of extents: what one worker builds at a time."""

    index: int
    extents: list[bytes]
    input_bytes: int
    num_samples: int | None
    """None where only reading can tell."""
    num_shards: int
    """Exact where stored sizes are known from metadata, else estimated."""

    def identity_digest(self) -> str:
        """SHA-256 of the extents without versions."""
        return hashlib.sha256(b"\n\0".join(map(identity, self.extents))).hexdigest()

    def inputs_digest(self) -> str:
        """SHA-256 of the extents with versions: another value means an input was changed."""
        return hashlib.sha256(b"\n\0".join(self.extents)).hexdigest()


@dataclass(frozen=True)
class Plan:
    """A recipe, its partitions in dataset order, and the digest that names both."""

    recipe: Recipe
    partitions: list[Partition]
    digest: str

    @classmethod
    def make(cls, recipe: Recipe, partitions: list[Partition]) -> "Plan":
        return cls(recipe, partitions, plan_digest(recipe.as_json(), partitions))

    def serialize(self) -> bytes:
        """One JSON line with digest and recipe, then a line per extent; zstd-compressed."""
        head = json.dumps({"digest": self.digest, "recipe": self.recipe.as_json()}, sort_keys=True).encode()
        lines = [printable_extents(partition.extents) for partition in self.partitions]
        return zstandard.compress(b"\n".join([head, *lines]) + b"\n")

    @staticmethod
    def digest_of(stored: bytes) -> str:
        """The digest of a serialized plan."""
        head = _read_lines(stored)[0]
        return str(json.loads(head)["digest"])

    @staticmethod
    def split_rule_of(stored: bytes) -> Selection:
        """The rule of a serialized plan's splits, without what else it selects."""
        whole = Selection.from_json(json.loads(_read_lines(stored)[0])["recipe"].get("selection", {}))
        return Selection(split=whole.split, group_by=whole.group_by)

    def differences(self, stored: bytes) -> list[str]:
        """The first differences between an earlier serialized plan and this one, each a sentence for people."""
        head, *lines = _read_lines(stored)
        old_recipe, new_recipe = _comparable(json.loads(head)["recipe"]), _comparable(self.recipe.as_json())
        found = [
            f"{name} was {old_recipe.get(name)!r}, is {new_recipe.get(name)!r}"
            for name in sorted(old_recipe.keys() | new_recipe.keys())
            if old_recipe.get(name) != new_recipe.get(name)
        ]
        # What planning settled follows from the rest; it is worth naming only by itself.
        found = [text for text in found if not text.startswith(_SETTLED)] or found
        old, new = _by_name(lines), _by_name(line for p in self.partitions for line in map(printable_extent, p.extents))
        for word, names in (
            (ADDED, sorted(new.keys() - old.keys())),
            ("gone", sorted(old.keys() - new.keys())),
            ("changed", sorted(name for name in old.keys() & new.keys() if old[name] != new[name])),
        ):
            shown = ", ".join(name.decode("utf-8", "backslashreplace") for name in names[:_MAX_DIFFERENCES])
            if names:
                found.append(f"{plural(len(names), 'input')} {word}: {shown}{', ...' if len(names) > _MAX_DIFFERENCES else ''}")
        return found or ["the same extents in another order"]


def plan_digest(recipe: dict[str, Any], partitions: Iterable[Partition]) -> str:
    """The digest of the plan that cuts the input of a recipe, given as plain data, into these partitions."""
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode())
    for partition in partitions:
        digest.update(partition.identity_digest().encode())
    return digest.hexdigest()


def permutation(seed: int, count: int) -> list[int]:
    """A uniform permutation of ``range(count)`` that depends on (seed, count) alone.

    Sorts by the raw 64-bit words of Philox keyed by the seed: raw words, unlike numpy's own shuffles, are promised never to change.
    """
    import numpy as np

    words = np.random.Philox(key=seed).random_raw(count)
    order: list[int] = np.argsort(words, kind="stable").tolist()
    return order


def _read_lines(stored: bytes) -> list[bytes]:
    return zstandard.decompress(stored).split(b"\n")[:-1]


def _by_name(lines: Iterable[bytes]) -> dict[bytes, bytes]:
    return {line.partition(b"\t")[0]: line for line in lines}


def _comparable(recipe: dict[str, Any]) -> dict[str, Any]:
    """A recipe as leaves by dotted name, fields, transforms and steps by their names."""
    plain = json.loads(json.dumps(recipe))
    fields = {field["name"]: field["encoding"] + ("?" if field["optional"] else "") for field in plain["fields"]}
    named = {part: {one["name"]: one for one in plain.get(part, [])} for part in ("transforms", "steps")}
    return _flatten({**plain, "fields": fields, **named})


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    return {name: leaf for key, inner in value.items() for name, leaf in _flatten(inner, f"{prefix}.{key}".lstrip(".")).items()}

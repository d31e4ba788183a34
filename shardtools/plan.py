"""The plan: a frozen recipe and the input cut into partitions, both fixed before any worker starts."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

import zstandard

from shardtools import plugins
from shardtools.extents import identity, printable_extent, printable_extents
from shardtools.sample import Field
from shardtools.units import format_bytes

MIN_PARTITION_BYTES = 16 << 20
_PARTITIONS_AT_LEAST = 16
_SHARDS_PER_PARTITION = 8
# Partitions aim a little below whole shards, so that an estimate that is a touch low does not open one more shard.
_ESTIMATE_MARGIN = 0.98
_NEARLY_A_SHARD = 0.9
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
    """What is made of each partition's samples before they are stored, in order."""

    def as_json(self) -> dict[str, Any]:
        """The recipe as plain data, the form it has in plan and manifest."""
        # Left out where there are none: what was packed before they were known has the same plan.
        newer = {"sidecars": list(self.sidecars), "transforms": [transform.recipe() for transform in self.transforms]}
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
            ("added", sorted(new.keys() - old.keys())),
            ("gone", sorted(old.keys() - new.keys())),
            ("changed", sorted(name for name in old.keys() & new.keys() if old[name] != new[name])),
        ):
            shown = ", ".join(name.decode("utf-8", "backslashreplace") for name in names[:_MAX_DIFFERENCES])
            if names:
                found.append(f"{len(names)} inputs {word}: {shown}{', ...' if len(names) > _MAX_DIFFERENCES else ''}")
        return found or ["the same extents in another order"]


def plan_digest(recipe: dict[str, Any], partitions: Iterable[Partition]) -> str:
    """The digest of the plan that cuts the input of a recipe, given as plain data, into these partitions."""
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode())
    for partition in partitions:
        digest.update(partition.identity_digest().encode())
    return digest.hexdigest()


def partition_bytes(input_bytes: int, stored_ratio: float, shard_bytes: int | None) -> int:
    """How much input one partition holds, for ``stored_ratio`` output bytes per input byte.

    ``max(16 MiB, min(input / 16, the input of 8 shards))``, brought down to whole shards where it is larger than one, and
    to equal parts of the input where it is smaller, so that the last shard is no crumb.
    """
    share = input_bytes / _PARTITIONS_AT_LEAST
    if shard_bytes is None:
        return _equal_parts(input_bytes, max(MIN_PARTITION_BYTES, share))
    shard_input_bytes = shard_bytes / stored_ratio
    target = max(MIN_PARTITION_BYTES, min(share, _SHARDS_PER_PARTITION * shard_input_bytes))
    whole_shards = int(target / shard_input_bytes)
    if whole_shards == 0:
        return _equal_parts(input_bytes, target)
    return max(1, int(whole_shards * shard_input_bytes * _ESTIMATE_MARGIN))


def _equal_parts(input_bytes: int, most_bytes: float) -> int:
    return max(1, ceil(input_bytes / max(1, ceil(input_bytes / most_bytes))))


@dataclass(frozen=True)
class _Shards:
    """How samples of known cost fill shards."""

    budget_bytes: int
    num_samples: int | None

    def boundaries(self, costs: Sequence[int]) -> Iterator[bool]:
        """For each sample, whether a new shard begins with it."""
        used = count = 0
        for cost in costs:
            full = used + cost > self.budget_bytes or count == self.num_samples
            yield full and count > 0
            if full:
                used = count = 0
            used += cost
            count += 1


def cut_exactly(
    extents: list[bytes], weights: Sequence[int], costs: Sequence[int], budget_bytes: int, limit: ShardLimit
) -> list[Partition]:
    """Partitions of single-sample extents whose stored size is known: they end where a shard is full.

    ``weights`` are input bytes and ``costs`` stored bytes per extent; ``budget_bytes`` is what one shard can hold.
    Where a partition is smaller than a shard it ends anywhere, since all cores matter more than full shards then.
    """
    total_in, total_out = sum(weights), sum(costs)
    shard_bytes = None if limit.num_bytes is None else budget_bytes
    target = partition_bytes(total_in, total_out / total_in if total_in else 1.0, shard_bytes)
    whole_shards = limit.num_bytes is None or target * total_out >= budget_bytes * total_in * _NEARLY_A_SHARD
    partitions: list[Partition] = []
    begin = weight = before = num_shards = 0
    for i, new_shard in enumerate(_Shards(budget_bytes, limit.num_samples).boundaries(costs)):
        # Parts of shards are cut along the whole input, so that no rounding adds up to a crumb at the end.
        full = new_shard and weight >= target if whole_shards else before + weight + weights[i] > target * (len(partitions) + 1)
        if i > begin and full:
            partitions.append(Partition(len(partitions), extents[begin:i], weight, i - begin, num_shards))
            begin, before, weight, num_shards = i, before + weight, 0, 0
        weight += weights[i]
        num_shards += i == begin or (new_shard and whole_shards)
    if begin < len(extents):
        partitions.append(Partition(len(partitions), extents[begin:], weight, len(extents) - begin, num_shards))
    return partitions


def parts_note(partitions: Sequence[Partition], limit: ShardLimit, expected_bytes: int) -> list[str]:
    """A note where shards stay well below their limit, since the input is cut into parts that all cores can work on."""
    if limit.num_bytes is None or len(partitions) < 2 or expected_bytes / len(partitions) >= limit.num_bytes * _NEARLY_A_SHARD:
        return []
    return [
        f"{len(partitions)} shards of about {format_bytes(expected_bytes / len(partitions))}, below the limit of "
        f"{format_bytes(limit.num_bytes)}: each is one part of the input, for all cores to work on; --shard-samples N makes fewer"
    ]


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
    """A recipe as leaves by dotted name, fields and transforms by their names."""
    plain = json.loads(json.dumps(recipe))
    fields = {field["name"]: field["encoding"] + ("?" if field["optional"] else "") for field in plain["fields"]}
    return _flatten({**plain, "fields": fields, "transforms": {one["name"]: one for one in plain.get("transforms", [])}})


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    return {name: leaf for key, inner in value.items() for name, leaf in _flatten(inner, f"{prefix}.{key}".lstrip(".")).items()}

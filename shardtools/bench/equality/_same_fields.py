"""The fields of two sides, compared sample by sample."""

from collections.abc import Mapping

from shardtools.bench.equality.proof import Proof
from shardtools.bench.readers.recipes import recipe_of
from shardtools.errors import UsageError
from shardtools.sources import PATH_FIELD
from shardtools.units import plural

_LABEL_FIELD = "cls"
_SHOWN = 3


def same_fields(one: Proof, other: Proof, decoded: str) -> str:
    """What was proved of the fields, for a sentence. ``decoded`` says how many samples were, where that is all there is.

    Raises UsageError where a sample has other fields on one side, or another value in one.
    """
    keys = sorted(one.fields.keys() & other.fields.keys())
    why = _why_not(one, other) if keys else "no sample's fields were read on both sides"
    if why:
        return f"fields were not compared but by {decoded}, since {why}"
    made = _made_by_packing(one, other)
    differing = [key for key in keys if _values(one.fields[key], made) != _values(other.fields[key], made)]
    # Files of several extensions may be one column: then the names are others, and the values the same.
    differing = [key for key in differing if _names(one, key, made) == _names(other, key, made) or not _same_values(one, other, key, made)]
    if differing:
        what = _difference(one, other, differing[0], made)
        sides = f"{one.layout.uri} ({one.layout.name}) and {other.layout.uri} ({other.layout.name})"
        raise UsageError(
            f"expected the same fields in every sample of {sides}, got {len(differing):,} of {len(keys):,} that differ, such as "
            f"{differing[0]}, {what}; pack the one from the other again, or name what was packed from it"
        )
    names = sorted({name for key in keys for name in _values(one.fields[key], made)})
    left_out = f" but {', '.join(sorted(made))}, which packing made," if made else ""
    return f"every field{left_out} of {plural(len(keys), 'sample')} is the same ({', '.join(names)})"


def _why_not(one: Proof, other: Proof) -> str:
    """Records are stored as they are, or as a column for each of their fields, or as some of them."""
    kinds = {one.layout.kind, other.layout.kind}
    if "jsonl" not in kinds or kinds == {"jsonl"}:
        return ""
    names = {name for proof in (one, other) for fields in proof.fields.values() for name in fields}
    return "" if names == {"json"} else "records are stored as their fields"


def _made_by_packing(one: Proof, other: Proof) -> frozenset[str]:
    """Fields that shards have and the files they were packed from cannot: a label by folder, and the path."""
    shards = [proof for proof in (one, other) if proof.layout.kind in ("wds", "mds")]
    if len(shards) != 1:
        return frozenset()
    recipe = recipe_of(shards[0].layout.uri)
    source = {} if recipe is None else recipe.get("source", {})
    made = {_LABEL_FIELD: source.get("label_from_dir"), PATH_FIELD: source.get("keep_path")}
    return frozenset(name for name, is_made in made.items() if is_made)


def _values(fields: Mapping[str, int], made: frozenset[str]) -> dict[str, int]:
    return {name: value for name, value in fields.items() if name not in made}


def _names(proof: Proof, key: str, made: frozenset[str]) -> set[str]:
    return set(_values(proof.fields[key], made))


def _same_values(one: Proof, other: Proof, key: str, made: frozenset[str]) -> bool:
    return sorted(_values(one.fields[key], made).values()) == sorted(_values(other.fields[key], made).values())


def _difference(one: Proof, other: Proof, key: str, made: frozenset[str]) -> str:
    """Of a sample that differs."""
    mine, theirs = _values(one.fields[key], made), _values(other.fields[key], made)
    only = [(proof, sorted(names)) for proof, names in ((one, mine.keys() - theirs.keys()), (other, theirs.keys() - mine.keys())) if names]
    if only:
        found = " and ".join(f"{', '.join(names[:_SHOWN])} only in {proof.layout.uri}" for proof, names in only)
        return f"which has {found}: one holds fields that the other lacks"
    changed = sorted(name for name in mine if mine[name] != theirs[name])
    return f"whose {', '.join(changed[:_SHOWN])} {'is' if len(changed) == 1 else 'are'} not the same"

"""Proofs compared: what all sides share, in sentences, or a refusal that says what differs, how much, and where."""

from collections.abc import Sequence
from itertools import combinations

from shardtools.bench.equality._same_fields import same_fields
from shardtools.bench.equality.proof import WHOLE_SAMPLES, Proof
from shardtools.errors import UsageError
from shardtools.units import plural

_SHOWN = 3


def refuse_unequal(proofs: Sequence[Proof]) -> list[str]:
    """What was proved of each side beside the first, or of one alone, in sentences. Raises UsageError where two differ."""
    sentences = []
    for proof in proofs:
        _refuse_repeats(proof)
    if len(proofs) == 1:
        (one,) = proofs
        said = (
            f"{plural(one.num_delivered, 'sample')}, each delivered once"
            if one.whole
            else f"the first {one.num_delivered:,} delivered came once each"
        )
        return [f"{one.layout.name}: {said}"]
    for one, other in combinations(proofs, 2):
        same = _same_tokens if one.is_on_the_fly or other.is_on_the_fly else _same_samples
        proved = same(one, other)
        if one is proofs[0]:
            sentences.append(f"{one.layout.name} and {other.layout.name}: {proved}")
    return sentences


def _refuse_repeats(proof: Proof) -> None:
    name = proof.layout.name
    if proof.num_repeated:
        raise UsageError(
            f"expected every sample once an epoch from {name}, got {plural(proof.num_repeated, 'repeat')}"
            f"{''.join(f', {key}' for key in proof.repeated[:_SHOWN])}; a dataset that takes no note of its worker is read whole by each"
        )
    if proof.num_foreign:
        raise UsageError(f"expected from {name} only samples that are in {proof.layout.uri}, got {proof.num_foreign:,} others")


def _same_samples(one: Proof, other: Proof) -> str:
    names = f"{one.layout.uri} ({one.layout.name}) and {other.layout.uri} ({other.layout.name})"
    if one.count != other.count or one.id_hash != other.id_hash:
        raise UsageError(
            f"expected the same samples on both sides, got {_key_difference(one, other)}; compare what was packed from the other"
        )
    common = one.decoded.keys() & other.decoded.keys()
    differing = sorted(key for key in common if one.decoded[key] != other.decoded[key])
    if differing:
        raise UsageError(
            f"expected samples that decode to the same in {names}, got {len(differing):,} of {len(common):,} others, "
            f"such as {', '.join(differing[:_SHOWN])}; a decode must give the same each time, or one side holds other bytes"
        )
    fields = same_fields(one, other, f"decoding {plural(len(common), 'sample')}")
    count = plural(one.count or 0, "sample")
    if not (one.whole and other.whole):
        read = f"the first {min(one.num_delivered, other.num_delivered):,} delivered came once each"
        decoded = (
            f"{len(common):,} read on both sides decode to the same" if common else "none was read on both sides, so none was compared"
        )
        return f"the same {count} by the keys in names and headers; {read}; {decoded}; {fields}"
    return f"the same {count}, each delivered once; {fields}; the {len(common):,} with the smallest hashes decode to the same"


def _key_difference(one: Proof, other: Proof) -> str:
    places = f"{one.count:,} in {one.layout.uri} ({one.layout.name}) and {other.count:,} in {other.layout.uri} ({other.layout.name})"
    if not (one.keys and other.keys):
        return f"{places}, with other keys"
    only = [(side, sorted(set(mine) - set(theirs))) for side, mine, theirs in ((one, one.keys, other.keys), (other, other.keys, one.keys))]
    found = [
        f"{len(keys):,} only in {side.layout.uri} ({', '.join(keys[:_SHOWN])}{', ...' if len(keys) > _SHOWN else ''})"
        for side, keys in only
        if keys
    ]
    return f"{places}: {', '.join(found)}"


def _same_tokens(one: Proof, other: Proof) -> str:
    names = f"{one.layout.uri} ({one.layout.name}) and {other.layout.uri} ({other.layout.name})"
    if not (one.whole and other.whole):
        return f"the same tokenizer and settings; beyond {WHOLE_SAMPLES:,} rows a side, so their tokens were not compared"
    common = sorted(one.token_streams.keys() & other.token_streams.keys())
    if not common:
        raise UsageError(f"expected rows whose recipe says how they were packed, got none in {names}, so that tokens cannot be compared")
    name = common[0]
    if one.token_streams[name] != other.token_streams[name]:
        (runs, tokens), (other_runs, other_tokens) = (map(int, p.token_streams[name].split("/")[:2]) for p in (one, other))
        raise UsageError(
            f"expected the same tokens in {names}, got {tokens:,} and {other_tokens:,} tokens in {runs:,} and {other_runs:,} runs "
            f"({name}); pack the text anew, or name what was packed from it"
        )
    tokens = int(one.token_streams[name].split("/")[1])
    if not name.startswith("stream"):
        return f"the same {tokens:,} tokens in the same {name}, in any order"
    ends = "" if one.has_ends or other.has_ends else "; where documents end within it was not compared, since no token says so"
    return f"the same stream of {tokens:,} tokens in the same order{ends}"

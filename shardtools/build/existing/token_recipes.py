"""How the rows of tokens in several datasets were made: one recipe for all of them, or the reason why there is none."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardtools.build.existing.merge_inputs import MergeInput
from shardtools.errors import ShardtoolsError

TokenRecipe = Mapping[str, Any]

_OF_NO_ACCOUNT = frozenset(
    [
        "column",
        "backend",
        "gigatoken",
        "max_doc_bytes",
        "oversized",
        "check_seed",
        "long_docs",
        "tail",
        "seed",
        "window",
        "window_bytes",
        "pad_id",
    ]
)
"""They change neither what an id means nor what a row looks like."""
_WORDS = {
    "tokenizer_sha256": "the tokenizer",
    "tokenizers": "the version of tokenizers",
    "max_id": "the largest id",
    "template_sha256": "the chat template",
    "variables": "the names of special tokens",
    "end_of_turn": "the end of a turn",
    "bos_id": "--bos",
    "eos_id": "--eos",
    "strategy": "--packing",
    "has_mask": "--chat",
}
"""What people call a name of a recipe that is not the option it comes from."""
_MOST_DIFFERENCES = 3
_SHA256_DIGITS = 12


def one_token_recipe(inputs: Sequence[MergeInput]) -> tuple[TokenRecipe, ...]:
    """The transforms that made all the inputs, with None where they differ and that is of no account; empty without tokens.

    Raises ShardtoolsError that names two datasets where tokens were made otherwise, or where only some are of tokens.
    """
    tokens = [one for one in inputs if one.transforms]
    if not tokens:
        return ()
    for one in inputs:
        if not one.transforms:
            raise ShardtoolsError(
                f"expected datasets of tokens, or none of them, got {tokens[0].part.folder}, which was packed with --tokenizer, and "
                f"{one.part.folder}, for which no manifest names a tokenizer; merge each kind apart"
            )
        _refuse_others(tokens[0], one)
    return tuple(_shared([one.transforms[i] for one in inputs]) for i in range(len(tokens[0].transforms)))


def are_rows_numbered(recipes: Sequence[TokenRecipe]) -> bool:
    """Whether keys of samples are numbers of rows, which begin anew in every dataset."""
    return any(one["name"] == "packing" and one["strategy"] != "none" for one in recipes)


def _shared(recipes: Sequence[TokenRecipe]) -> TokenRecipe:
    first, *others = recipes
    return {name: value if all(other[name] == value for other in others) else None for name, value in first.items()}


def _refuse_others(one: MergeInput, other: MergeInput) -> None:
    differences = list(_differences(one.transforms, other.transforms))
    if differences:
        raise ShardtoolsError(
            f"expected tokens that were made in one way, got {one.part.folder} and {other.part.folder}, which differ in "
            f"{', '.join(differences[:_MOST_DIFFERENCES])}; pack one of them again"
        )


def _differences(some: Sequence[TokenRecipe], others: Sequence[TokenRecipe]) -> Iterator[str]:
    if [one["name"] for one in some] != [other["name"] for other in others]:
        yield f"--chat ({', '.join(_shown('chat', one[0]['name'] == 'chat') for one in (some, others))})"
        return
    for one, other in zip(some, others, strict=True):
        for name in {**one, **other}:
            if name not in _OF_NO_ACCOUNT and one.get(name) != other.get(name):
                word = _WORDS.get(name, f"--{name.replace('_', '-')}")
                yield f"{word} ({'SHA-256 ' * name.endswith('sha256')}{_shown(name, one.get(name))}, {_shown(name, other.get(name))})"


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"id {value}" if name.endswith("_id") and name != "max_id" else str(value)[:_SHA256_DIGITS]

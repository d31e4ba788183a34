"""What a user asks to be done to samples one by one, in words."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardtools import plugins
from shardtools.errors import UsageError
from shardtools.formats import ShardFormat
from shardtools.places import is_folder, place_of
from shardtools.transforms import Step
from shardtools.transforms.embed import Embed
from shardtools.transforms.select import Select


@dataclass(frozen=True)
class StepWords:
    """What a user typed of the options that make steps, by their names, and the form of the dataset."""

    select: Mapping[str, str]
    embed: Mapping[str, str]
    image: Mapping[str, str]
    format: ShardFormat
    encodings: Mapping[str, str]


def steps_of(words: StepWords) -> tuple[Step, ...]:
    """The steps in the order in which they are done: first what leaves samples out, then what reads media, then what changes it."""
    chosen: tuple[Step, ...] = (Select.of(words.select["where"]),) if "where" in words.select else ()
    return (*chosen, *_embed_steps(words), *image_steps(words.image))


def _embed_steps(words: StepWords) -> tuple[Step, ...]:
    if "embed" not in words.embed:
        if words.embed:
            raise UsageError("expected --embed FIELD with --media-root, which says where its files are, got none")
        return ()
    root = words.embed.get("media_root")
    return (Embed.of(words.embed["embed"], words.format.index_name is None, None if root is None else _media_root(root), words.encodings),)


def _media_root(word: str) -> str:
    place = place_of(word)
    if not is_folder(place):
        raise UsageError(f"expected --media-root with a folder that exists, got {word}")
    return place


def restored_steps(recipes: Sequence[Mapping[str, Any]], media_root: str | None) -> tuple[Step, ...]:
    """The steps whose ``recipe`` gave this plain data; ``media_root`` as ``--media-root`` has it. Raises UsageError."""
    steps: list[Step] = [plugins.restored("transforms", one) for one in recipes]
    for step, one in zip(steps, recipes, strict=True):
        _refuse_other_versions(step.recipe(), one)
    place = None if media_root is None else _media_root(media_root)
    return tuple(replace(step, media_root=place) if isinstance(step, Embed) else step for step in steps)


def _refuse_other_versions(ours: Mapping[str, Any], packed_with: Mapping[str, Any]) -> None:
    """What a step settles by itself is by which libraries it works."""
    ours = json.loads(json.dumps(ours))
    differing = next((name for name, value in packed_with.items() if ours.get(name) != value), None)
    if differing is not None:
        raise UsageError(
            f"expected for {packed_with['name']} the {differing} that the dataset was packed with, {packed_with[differing]}, "
            f"got {ours.get(differing)}; install those"
        )


def image_steps(words: Mapping[str, str]) -> tuple[Step, ...]:
    """The step of the image options, if any was given."""
    if not words:
        return ()
    # Only here: it loads Pillow.
    from shardtools.transforms.images import Images

    return (Images.from_options(words),)

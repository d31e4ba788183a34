"""Images of samples made smaller, or decoded to see that they are sound. What needs no change stays byte for byte.

Bytes that are made anew depend on the libraries that decode, scale and encode, so their versions are part of the recipe: another
machine, or a later run into the same destination, has to have the same ones.
"""

import dataclasses
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from shardtools import plugins
from shardtools.errors import ShardtoolsError, UsageError
from shardtools.sample import HEAD_BYTES, Batch, Field, Reject
from shardtools.transforms import FirstSamples, PartitionWork
from shardtools.transforms.images._kinds import (
    KINDS,
    can_hold_images,
    demanded_kind,
    kind_of,
    named_fields,
    open_fields,
    unknown_fields,
)
from shardtools.transforms.images._pixels import BadImageError, changed, libraries
from shardtools.transforms.images._soundness import count_frames, decode_all

__all__ = ["Images", "count_frames", "decode_all"]

_DEFAULT_QUALITY = 92
_CHOOSE = "name the fields that hold images with --image-fields"


@dataclass(frozen=True)
class Images:
    """A field holds images in all of its values, or in none: what is no image in the first, or an image in others, is a bad sample.

    So is an image that does not decode, wherever it has to be decoded: the larger ones with ``resize``, all with ``check``. Pixels
    that a flipped bit only paints in another colour are sound to every decoder, and so to ``check``.
    """

    resize: int | None = None
    """Pixels of the shorter side; smaller images are never enlarged, animations never touched. The kind of image, its colour
    profile and its subsampling stay. It is turned as its EXIF orientation says, and has no EXIF any more."""
    quality: int | None = None
    """1 to 100, of JPEG and lossy WebP images that ``resize`` makes."""
    check: bool = False
    """Decode every image, all of it."""
    chosen: tuple[str, ...] = ()
    """The fields that hold images, as the user named them: others are not looked at. Empty: those that were ``found``."""
    found: tuple[str, ...] = ()
    """The fields that hold images by encoding, extension or first values."""
    libraries: str = dataclasses.field(default="", init=False)
    """What decodes, scales and encodes, with versions."""

    extras: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "libraries", libraries())

    @property
    def shrinks(self) -> bool:
        return self.resize is not None

    @property
    def note(self) -> str:
        return f"images: {', '.join(self.chosen or self.found)}"

    @classmethod
    def from_options(cls, words: Mapping[str, str]) -> "Images":
        """The ``--image`` options of the command line. Raises UsageError for those that cannot be taken, or that do nothing."""
        side = quality = None
        if "image_resize" in words:
            side = _parsed(words["image_resize"], "--image-resize", 1, 65_535)
            quality = _parsed(words.get("image_quality", str(_DEFAULT_QUALITY)), "--image-quality", 1, 100)
        elif "image_quality" in words:
            raise UsageError("expected --image-quality with --image-resize, got it alone: images are only encoded anew when resized")
        elif "image_check" not in words:
            raise UsageError("expected --image-fields with --image-resize or --image-check, got it alone; add one, or leave it out")
        return cls(side, quality, "image_check" in words, _names(words["image_fields"]) if "image_fields" in words else ())

    def recipe(self) -> dict[str, Any]:
        return plugins.options(self)

    def after_look(self, given: tuple[Field, ...], first: FirstSamples) -> "Images":
        """With the fields found that hold images; values are looked at only where names and encodings leave a field open."""
        if self.chosen:
            return self
        wanted, seen = open_fields(given), set[str]()
        if wanted:
            with closing(first()) as batches:
                for batch in batches:
                    seen |= {name for name in wanted - seen if any(map(_is_image, batch.columns.get(name, ())))}
                    if seen == wanted:
                        break
        return replace(self, found=tuple(sorted(named_fields(given) | seen)))

    def fields(self, given: tuple[Field, ...]) -> tuple[Field, ...]:
        shown = ", ".join(f"{field.name} ({field.encoding})" for field in given)
        able = {field.name for field in given if can_hold_images(field)}
        unfit = next((name for name in self.chosen if name not in able), None)
        if unfit is not None:
            raise UsageError(f"expected fields of bytes, jpeg or png in --image-fields, got {unfit!r}; the fields are {shown}")
        unknown = unknown_fields([field for field in given if not self.chosen or field.name in self.chosen])
        if unknown:
            raise UsageError(
                f"expected images of the kinds {', '.join(KINDS)}, to resize or check them, got the field {unknown[0].name!r} "
                f"({unknown[0].encoding}); name the others with --image-fields, and it stays as it is"
            )
        if not self.chosen and not self.found:
            raise UsageError(f"expected a field that holds images, to resize or check them, got {shown}; {_CHOOSE}, or leave them alone")
        return given

    def apply(self, batches: Iterator[Batch], work: PartitionWork) -> Iterator[Batch]:
        if self.libraries != libraries():
            raise ShardtoolsError(
                f"expected the libraries that the plan was made with, {self.libraries}, got {libraries()} on this machine: images "
                "would differ; install the same ones"
            )
        for batch in batches:
            yield self._applied(batch, work)

    def _applied(self, batch: Batch, work: PartitionWork) -> Batch:
        kept = []
        # Of images that are odd but whole, Pillow warns; what is asked here is only whether they decode.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for i in range(len(batch)):
                try:
                    for name, values in batch.columns.items():
                        if type(values[i]) is bytes:
                            values[i] = self._value(name, values[i])
                except BadImageError as bad:
                    sentence = f"field {name!r}: {bad.sentence}"
                    work.reject(Reject(bad.reason, batch.where(i), sentence, values[i][:HEAD_BYTES]))
                else:
                    kept.append(i)
        return batch if len(kept) == len(batch) else batch.take(kept)

    def _value(self, name: str, data: bytes) -> bytes:
        if name not in (self.chosen or self.found):
            if not self.chosen and (kind := kind_of(data)) is not None:
                raise BadImageError("unexpected-image", f"expected no image, as in the first samples, got {_a(kind)}; {_CHOOSE}")
            return data
        kind, demanded = kind_of(data), demanded_kind(name)
        if kind is None or (self.check and demanded not in (None, kind)):
            got = _a(kind) if kind is not None else f"bytes that begin with {data[:8]!r}" if data else "no bytes"
            remedy = "rename or replace it" if demanded else "replace it, or give what is no image a field of its own"
            raise BadImageError("not-an-image", f"expected {_a(demanded) if demanded else 'an image'}, got {got}; {remedy}")
        if kind not in KINDS:
            raise BadImageError("unknown-image", f"expected an image of the kinds {', '.join(KINDS)}, got {_a(kind)}; convert it")
        return changed(data, kind, self)


def _is_image(value: Any) -> bool:
    return type(value) is bytes and kind_of(value) is not None


def _a(kind: str) -> str:
    return f"{'an' if kind[0] == 'A' else 'a'} {kind}"


def _names(word: str) -> tuple[str, ...]:
    names = {name.strip() for name in word.split(",")}
    if "" in names:
        raise UsageError(f"expected --image-fields as NAME,NAME, got {word!r}")
    return tuple(sorted(names))


def _parsed(word: str, flag: str, least: int, most: int) -> int:
    if not (word.isascii() and word.isdecimal() and least <= int(word) <= most):
        raise UsageError(f"expected {flag} of {least} to {most:,}, got {word!r}")
    return int(word)

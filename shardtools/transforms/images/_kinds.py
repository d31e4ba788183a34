"""Which bytes are images, by how they begin, and which fields hold images, by what is known of them without a look at values."""

from collections.abc import Sequence

from shardtools.formats import IMAGE_EXTENSIONS, IMAGE_MAGIC
from shardtools.sample import Field

KINDS = ("JPEG", "PNG", "WebP")
"""Those that are decoded and encoded here."""
_BY_EXTENSION = {"jpg": "JPEG", "jpeg": "JPEG", "png": "PNG", "webp": "WebP"}
_EXTENSIONS = frozenset(IMAGE_EXTENSIONS.split())
_MAGIC = {
    "JPEG": (IMAGE_MAGIC["jpeg"],),
    "PNG": (IMAGE_MAGIC["png"],),
    "GIF": (b"GIF87a", b"GIF89a"),
    "TIFF": (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    "JPEG 2000": (b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51"),
}
_FTYP = {b"avif": "AVIF", b"avis": "AVIF", b"heic": "HEIC", b"heix": "HEIC", b"mif1": "HEIC"}
_BMP_HEADER_BYTES = (12, 40, 52, 56, 64, 108, 124)
_LONGEST_HEAD = 18
_NO_EXTENSION = "bin"
"""What sources call files whose kind is unknown."""
_LISTS_AND_PIXELS = ("pil", "jpegarray", "jpeg_array", "list[pil]", "list[jpeg]", "list[png]")
"""Encodings of MDSWriter whose values hold images, and are none as they lie."""


def kind_of(data: bytes) -> str | None:
    """``JPEG``, ``PNG``, ``WebP``, a kind that is not decoded here such as ``GIF``, or None for bytes that begin otherwise."""
    head = data[:_LONGEST_HEAD]
    for kind, magic in _MAGIC.items():
        if head.startswith(magic):
            return kind
    if head[:4] == b"RIFF":
        return "WebP" if head[8:12] == b"WEBP" else None
    if head[4:8] == b"ftyp":
        return _FTYP.get(head[8:12])
    # Two letters begin many a text.
    is_bmp = head[:2] == b"BM" and head[6:10] == bytes(4) and int.from_bytes(head[14:18], "little") in _BMP_HEADER_BYTES
    return "BMP" if is_bmp else None


def demanded_kind(name: str) -> str | None:
    """The one kind that images in a field of this name have to be; None for any."""
    return _BY_EXTENSION.get(_extension(name))


def named_fields(given: Sequence[Field]) -> set[str]:
    """The fields that hold images by their encoding or extension."""
    named = {field for field in given if field.encoding in IMAGE_MAGIC or (field.encoding == "bytes" and _is_named(field))}
    # Where a sample has one of several kinds of file, the unknown one is the place of those that are damaged.
    kinds = {field.name.removesuffix(_extension(field.name)) for field in named if field.optional}
    return {field.name for field in named}.union(
        field.name for field in given if field.optional and field.name in {f"{stem}{_NO_EXTENSION}" for stem in kinds}
    )


def open_fields(given: Sequence[Field]) -> set[str]:
    """The fields of which only their values tell."""
    return {field.name for field in given if field.encoding == "bytes"} - named_fields(given)


def can_hold_images(field: Field) -> bool:
    """Whether images can be values of the field, by its encoding."""
    return field.encoding in IMAGE_MAGIC or field.encoding == "bytes"


def unknown_fields(given: Sequence[Field]) -> list[Field]:
    """The fields that hold images which are not decoded here."""
    return [field for field in given if field.encoding in _LISTS_AND_PIXELS or (_is_named(field) and demanded_kind(field.name) is None)]


def _is_named(field: Field) -> bool:
    return can_hold_images(field) and _extension(field.name) in _EXTENSIONS


def _extension(name: str) -> str:
    return name.rpartition(".")[2]

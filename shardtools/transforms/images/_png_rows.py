"""PNG files whose compressed pixels end before the image does: what is missing, decoders leave black without a word.

Source: PNG (Third Edition), https://www.w3.org/TR/png-3/: 5.3 chunk layout, 8.1 interlace methods, 9.2 filter types, 11.3.6 animation.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence

_SIGNATURE_BYTES = 8
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""By colour type."""
_WHOLE = ((0, 0, 1, 1),)
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""First column and row of each pass, and how far the next ones are from them."""
_PIECE_BYTES = 1 << 20


def lacks_rows(data: bytes) -> bool:
    """Whether the image, or a frame of it, has fewer pixels than its size says. ``data`` is a PNG that Pillow has taken.

    Inflates all of it once more, a piece at a time.
    """
    width, height, bits, colour, _, _, is_interlaced = struct.unpack_from(">IIBBBBB", data, _SIGNATURE_BYTES + 8)
    frames: list[tuple[int, int, list[memoryview]]] = [(width, height, [])]
    for kind, body in _chunks(data):
        # The first frame may be the image itself, whose pixels come then later.
        if kind == b"fcTL" and frames[0][2]:
            frames.append((*struct.unpack_from(">II", body, 4), []))
        elif kind in (b"IDAT", b"fdAT"):
            frames[-1][2].append(body if kind == b"IDAT" else body[4:])
    passes, pixel_bits = _ADAM7 if is_interlaced else _WHOLE, bits * _CHANNELS[colour]
    return any(not _holds(stream, _num_bytes(width, height, pixel_bits, passes)) for width, height, stream in frames)


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    view, at = memoryview(data), _SIGNATURE_BYTES
    while at + 8 <= len(data):
        num_bytes, kind = struct.unpack_from(">I4s", data, at)
        yield kind, view[at + 8 : at + 8 + num_bytes]
        at += num_bytes + 12


def _num_bytes(width: int, height: int, pixel_bits: int, passes: Sequence[tuple[int, int, int, int]]) -> int:
    """Of all rows, each with the byte of its filter."""
    total = 0
    for left, top, right, down in passes:
        columns, rows = -(-(width - left) // right), -(-(height - top) // down)
        if columns > 0:
            total += max(rows, 0) * (1 + (columns * pixel_bits + 7) // 8)
    return total


def _holds(stream: Sequence[memoryview], num_bytes: int) -> bool:
    """Whether so many bytes come out of a compressed stream. What is wrong with it otherwise, its decoder has said."""
    inflater = zlib.decompressobj()
    for part in stream:
        left: bytes | memoryview = part
        while len(left) and num_bytes > 0:
            num_bytes -= len(inflater.decompress(left, _PIECE_BYTES))
            left = inflater.unconsumed_tail
    return num_bytes <= 0 or num_bytes <= len(inflater.flush())

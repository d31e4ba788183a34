"""Many pieces of bytes as few writes."""

from collections.abc import Iterator, Sequence

WRITE_BYTES = 1 << 20
"""From here on a write is not worth making larger."""


def joined(pieces: Sequence[bytes]) -> Iterator[bytes]:
    """The same bytes, small neighbours joined, large pieces as they are: joining those would only copy them."""
    if max(map(len, pieces), default=0) < WRITE_BYTES:
        yield b"".join(pieces)
        return
    small: list[bytes] = []
    for piece in pieces:
        if len(piece) < WRITE_BYTES:
            small.append(piece)
            continue
        yield b"".join(small)
        yield piece
        small = []
    yield b"".join(small)

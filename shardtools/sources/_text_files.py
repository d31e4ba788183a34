"""JSON lines files as text at known places, for those who read single lines of them."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardtools import keys
from shardtools.sources._inputs import Input
from shardtools.sources._line_files import key_prefix, line_files, refuse_same_prefixes
from shardtools.sources._streams import DamagedStreamError, Window, decompressed, opened


@dataclass(frozen=True)
class TextFile:
    """One file of JSON lines. Picklable."""

    path: str
    """Absolute, or ``s3://bucket/key``."""
    prefix: bytes
    """What its keys begin with."""
    num_bytes: int
    """As stored."""
    version: bytes
    """Another one for other bytes: the time of modification, of an object its ETag."""

    @property
    def is_compressed(self) -> bool:
        return Window(os.fsencode(self.path), 0, 0, 0).is_compressed

    def key(self, offset: int) -> str:
        """Of the line that begins at ``offset`` of the text; what packing names it."""
        return keys.escape_key(b"%b/%012d" % (self.prefix, offset)).decode()

    def text(self) -> Iterator[bytes]:
        """Of a compressed file, a piece at a time. Raises ValueError where the stream is damaged, StorageError where it cannot be read."""
        folder, name = os.path.split(self.path)
        window = Window(os.fsencode(name), 0, 0, self.num_bytes, self.version)
        with opened(folder, window) as file:
            try:
                yield from decompressed(file, window.path)
            except DamagedStreamError as fault:
                raise ValueError(f"the compressed stream cannot be read on at byte {fault.offset:,}: {fault.sentence}") from None


def text_files(inputs: Sequence[Input]) -> list[TextFile]:
    """The JSON lines files of the inputs, in the order they are packed in. Raises UsageError where there are none.

    Raises DuplicateKeyError where two would give the same keys.
    """
    files = line_files(inputs).files
    refuse_same_prefixes(files, [given.root for given in inputs])
    return [
        TextFile(os.path.join(inputs[file.root].root, os.fsdecode(file.path)), key_prefix(file.path), file.num_bytes, file.version)
        for file in files
    ]

"""Tar members as a reader of tars meets them, and the rules of names that several readers share."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from shardtools import keys
from shardtools.datasets import Shard
from shardtools.formats import TarMember, tar_entries
from shardtools.verify.targets._complaints import At

HEADER_BYTES = 512
NAME_BYTES = 100
"""Of the name field in a tar header."""
_PLAIN = re.compile(rb"(" + keys.KEY.pattern + rb")\.(" + keys.FIELD.pattern.encode() + rb")")
_META = re.compile(r"__[^/]*__(?:/|\Z)")


class Seen(NamedTuple):
    """One entry of an archive."""

    shard: Shard
    member: TarMember
    name: str
    """UTF-8; bytes that are none are surrogates."""
    key: str
    """Up to the first dot of the file's name."""
    field: str
    is_plain: bool
    """A regular file under a name and header that every reader takes: legal key, lower-case field, no extension header."""
    archive: memoryview

    @property
    def value(self) -> memoryview:
        return self.archive[self.member.data_offset : self.member.data_offset + self.member.num_bytes]

    @property
    def at(self) -> At:
        return At(self.shard.name, self.key, self.member.offset, self.name)

    @property
    def header(self) -> bytes:
        """The member's own header block, after extension headers."""
        return bytes(self.archive[self.member.data_offset - HEADER_BYTES : self.member.data_offset])

    @property
    def has_extension(self) -> bool:
        """An extension header (PAX or GNU) stands before the member's own."""
        return self.member.data_offset - self.member.offset != HEADER_BYTES

    @property
    def is_utf8(self) -> bool:
        return not any("\udc80" <= char <= "\udcff" for char in self.name)


def seen_members(shard: Shard, archive: memoryview) -> Iterator[Seen]:
    """Every entry in order. Raises DamagedShardError where the archive breaks the format."""
    for member in tar_entries(archive):
        begin = member.data_offset - HEADER_BYTES
        match = _PLAIN.fullmatch(member.name) if member.is_file else None
        if match is not None and begin == member.offset and bytes(archive[begin : begin + len(member.name)]) == member.name:
            yield Seen(shard, member, member.name.decode(), match[1].decode(), match[2].decode(), True, archive)
        else:
            name = member.name.decode("utf-8", "surrogateescape")
            folder, slash, base = name.rpartition("/")
            stem, _, field = base.partition(".")
            yield Seen(shard, member, name, folder + slash + stem, field, False, archive)


def split_at_first_dot(name: str) -> tuple[str, str] | None:
    """Key and field as webdataset, Hugging Face and Energon split a name; None for one they pass over.

    A file name that begins with a dot gets its folder as the key, with the slash, unless the folder's own name has a dot.
    Source: ``base_plus_ext`` of webdataset 1.0.2 and datasets 5.2.0, ``split_name_re`` of megatron-energon 7.4.1.
    """
    begin = name.rfind("/") + 1
    dot = name.find(".", begin)
    if dot < 0:
        return None
    if dot == begin and (not begin or "." in name[name.rfind("/", 0, begin - 1) + 1 : begin]):
        return None
    return name[:dot], name[dot + 1 :]


def is_meta(name: str) -> bool:
    """Whether the first component begins and ends with two underscores: webdataset and Energon keep such for metadata."""
    return _META.match(name) is not None


def is_hidden(name: str) -> bool:
    """Whether the file's own name begins with a dot."""
    return name[name.rfind("/") + 1 :].startswith(".")


class Runs:
    """The samples a streaming reader makes: neighbours of one key."""

    def __init__(self) -> None:
        self.key: str | None = None
        self.fields: set[str] = set()
        self.num_samples = 0
        """Of this shard."""

    def take(self, key: str, field: str) -> bool:
        """Whether the field is new in its sample."""
        if key != self.key:
            self.key, self.fields = key, {field}
            self.num_samples += 1
            return True
        if field in self.fields:
            return False
        self.fields.add(field)
        return True

    def end_shard(self) -> int:
        """The number of samples of the shard that ends."""
        count = self.num_samples
        self.key, self.fields, self.num_samples = None, set(), 0
        return count

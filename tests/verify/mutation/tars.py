"""Tar shards taken apart block by block, and every way of the damage tables to spoil them."""

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from mutation import Damage, Needs, flipped, flipped_within
from mutation.sealing import Content

BLOCK = 512
RECORD = 20 * BLOCK
END = bytes(2 * BLOCK)
# The parts of a header, POSIX.1-2017, "ustar Interchange Format".
HEADER = {
    "name": (0, 8),
    "mode": (100, 107),
    "uid": (108, 115),
    "gid": (116, 123),
    "size": (124, 135),
    "mtime": (136, 147),
    "type": (156, 157),
    "link name": (157, 257),
    "magic": (257, 265),
    "owner": (265, 329),
    "device": (329, 345),
    "prefix": (345, 500),
    "unused": (500, 512),
}


class Member(NamedTuple):
    """The blocks of one member: header, value, padding."""

    blocks: bytes

    @property
    def num_bytes(self) -> int:
        return int(self.blocks[124:135], 8)

    @property
    def name(self) -> str:
        return self.blocks[:100].rstrip(b"\0").decode()

    @property
    def key(self) -> str:
        return self.name.partition(".")[0]

    @property
    def field(self) -> str:
        return self.name.partition(".")[2]


def members_of(data: bytes) -> list[Member]:
    found, offset = [], 0
    while any(data[offset : offset + BLOCK]):
        size = int(data[offset + 124 : offset + 135], 8)
        if size < 0:
            raise ValueError(f"a size of {size}")
        end = offset + BLOCK + size + -size % BLOCK
        found.append(Member(data[offset:end]))
        offset = end
    return found


def tar_of(members: Sequence[Member]) -> bytes:
    data = b"".join(member.blocks for member in members) + END
    return data + bytes(-len(data) % RECORD)


def content_of(data: bytes) -> Content:
    """The samples of a sound tar, by the rule that a run of members of one key is a sample."""
    fields: list[list[str]] = []
    offsets, offset, key = [], 0, None
    for member in members_of(data):
        if member.key != key:
            key = member.key
            fields.append([])
            offsets.append(offset)
        fields[-1].append(member.field)
        offset += len(member.blocks)
    return Content([",".join(names) for names in fields], [*offsets, offset])


def summed(header: bytes) -> bytes:
    """The header with its right checksum."""
    total = sum(header[:148]) + 8 * ord(" ") + sum(header[156:BLOCK])
    return header[:148] + b"%06o\0 " % total + header[156:]


def put(member: Member, at: int, text: bytes) -> Member:
    """Other bytes in the header, under a right checksum."""
    blocks = member.blocks
    return Member(summed(blocks[:at] + text + blocks[at + len(text) : BLOCK]) + blocks[BLOCK:])


def renamed(member: Member, name: bytes) -> Member:
    return put(member, 0, name[:100].ljust(100, b"\0"))


def made(name: bytes, value: bytes = b"", kind: bytes = b"0") -> Member:
    header = name.ljust(100, b"\0") + b"0000444\0" + b"0000000\0" * 2 + b"%011o\0" % len(value) + b"0" * 11 + b"\0" + bytes(8)
    header += kind + bytes(100) + b"ustar\x0000" + bytes(BLOCK - 265)
    return Member(summed(header) + value + bytes(-len(value) % BLOCK))


def offset_of(members: Sequence[Member], i: int) -> int:
    return sum(len(member.blocks) for member in members[:i])


def flips(data: bytes, numbers: random.Random) -> Iterator[Damage]:
    """A bit in every part of the first, a middle and the last member, and in the end of the archive."""
    members = members_of(data)
    for place, i in (("first", 0), ("middle", len(members) // 2), ("last", len(members) - 1)):
        at, size = offset_of(members, i), members[i].num_bytes
        for part, (begin, end) in HEADER.items():
            where, damaged = flipped_within(data, at + begin, at + end, numbers)
            yield Damage(f"{place} member, {part}, {where}", Needs.SHARD, damaged)
        for digit in range(1, 6):
            bit = numbers.randrange(3)
            yield Damage(f"{place} member, checksum digit {digit}, bit {bit}", Needs.SHARD, flipped(data, at + 148 + digit, bit))
        # NUL and blank both end a number.
        yield Damage(f"{place} member, end of the checksum", Needs.RULES, flipped(data, at + 154, 5))
        if size:
            where, damaged = flipped_within(data, at + BLOCK, at + BLOCK + size, numbers)
            yield Damage(f"{place} member, value, {where}", Needs.DIGEST, damaged)
        if size % BLOCK:
            where, damaged = flipped_within(data, at + BLOCK + size, at + len(members[i].blocks), numbers)
            yield Damage(f"{place} member, padding, {where}", Needs.SHARD, damaged)
    end = offset_of(members, len(members))
    for part, begin in (("first end block", end), ("second end block", end + BLOCK)):
        where, damaged = flipped_within(data, begin, begin + BLOCK, numbers)
        yield Damage(f"{part}, {where}", Needs.SHARD, damaged)
    if end + 2 * BLOCK < len(data):
        where, damaged = flipped_within(data, end + 2 * BLOCK, len(data), numbers)
        yield Damage(f"zeros after the end, {where}", Needs.SHARD, damaged)


def cuts(data: bytes) -> Iterator[Damage]:
    """The file ends too early, at every kind of place."""
    members = members_of(data)
    end = offset_of(members, len(members))
    for place, i in (("first", 0), ("middle", len(members) // 2), ("last", len(members) - 1)):
        at, size = offset_of(members, i), members[i].num_bytes
        spots = {"before it": at, "in its header": at + 100, "before the last header byte": at + 511, "after its header": at + BLOCK}
        if size > 1:
            spots |= {"in its value": at + BLOCK + size // 2, "before the last value byte": at + BLOCK + size - 1}
        if size % BLOCK:
            spots |= {"before its padding": at + BLOCK + size, "in its padding": at + BLOCK + size + 1}
        for spot, to in spots.items():
            if to:
                yield Damage(f"cut at the {place} member, {spot}", Needs.SHARD, data[:to])
    yield Damage("cut before the end blocks", Needs.SHARD, data[:end])
    yield Damage("cut in the first end block", Needs.SHARD, data[: end + 17])
    yield Damage("cut after one end block", Needs.SHARD, data[: end + BLOCK])
    yield Damage("cut in the second end block", Needs.SHARD, data[: end + BLOCK + 511])
    if end + 2 * BLOCK < len(data):
        yield Damage("cut after both end blocks", Needs.RULES, data[: end + 2 * BLOCK])
        yield Damage("cut by the last byte of the last record", Needs.RULES, data[:-1])


def frames(data: bytes) -> Iterator[Damage]:
    """The archive around its members."""
    members = members_of(data)
    half = offset_of(members, next(i for i in range(len(members) // 2, len(members)) if members[i].num_bytes))
    yield Damage("archive twice in one file", Needs.SHARD, data + data)
    yield Damage("second archive after the end blocks", Needs.SHARD, tar_of(members)[: offset_of(members, len(members))] + END + data)
    yield Damage("a zero block between members", Needs.SHARD, data[:half] + bytes(BLOCK) + data[half:])
    yield Damage("two zero blocks between members", Needs.SHARD, data[:half] + END + data[half:])
    yield Damage("a header of zeros", Needs.SHARD, data[:half] + bytes(BLOCK) + data[half + BLOCK :])
    yield Damage("a header missing", Needs.SHARD, data[:half] + data[half + BLOCK :])
    yield Damage("a block of text after the end", Needs.SHARD, data + b"x" * BLOCK)
    yield Damage("a record of zeros after the end", Needs.RULES, data + bytes(RECORD))
    yield Damage("a zero byte after the end", Needs.RULES, data + b"\0")
    yield Damage("zeros alone, of the right length", Needs.COUNTS, bytes(len(data)))
    yield Damage("an empty archive", Needs.COUNTS, bytes(RECORD))
    yield Damage("two zero blocks alone", Needs.COUNTS, END)


def headers(data: bytes) -> Iterator[Damage]:
    """Header fields edited under a right checksum: no reader's checksum test sees it."""
    members = members_of(data)
    i = len(members) // 2

    def edited(name: str, needs: Needs, at: int, text: bytes) -> Damage:
        return Damage(f"header with {name}", needs, tar_of([*members[:i], put(members[i], at, text), *members[i + 1 :]]))

    size, room = members[i].num_bytes, -members[i].num_bytes % BLOCK
    yield edited("another mode", Needs.RULES, 100, b"0000644\0")
    yield edited("an owner", Needs.RULES, 108, b"0001750\0")
    yield edited("a group", Needs.RULES, 116, b"0001750\0")
    yield edited("a time", Needs.RULES, 136, b"14536224100\0")
    yield edited("an owner's name", Needs.RULES, 265, b"root")
    yield edited("an old magic", Needs.RULES, 257, bytes(8))
    yield edited("GNU magic", Needs.RULES, 257, b"ustar  \0")
    yield edited("type NUL", Needs.RULES, 156, b"\0")
    yield edited("a prefix", Needs.COUNTS, 345, b"d")
    yield edited("a size of blanks", Needs.SHARD if size else Needs.RULES, 124, b" " * 12)
    yield edited("a size of no digits", Needs.SHARD, 124, b"0000000zz00\0")
    yield edited("a negative size", Needs.SHARD, 124, b"-0000000777\0")
    yield edited("a base-256 negative size", Needs.SHARD, 124, b"\xff" * 12)
    yield edited("a size of 8 EiB", Needs.SHARD, 124, b"\x80" + (1 << 63).to_bytes(11, "big"))
    yield edited("a size of 1 TiB", Needs.SHARD, 124, b"\x80" + (1 << 40).to_bytes(11, "big"))
    yield edited("a size of a block more", Needs.SHARD, 124, b"%011o\0" % (size + BLOCK))
    yield edited("the size in base-256", Needs.RULES, 124, b"\x80" + size.to_bytes(11, "big"))
    if size:
        yield edited("a size of zero", Needs.SHARD, 124, b"%011o\0" % 0)
        yield edited("a size of a byte less", Needs.SHARD, 124, b"%011o\0" % (size - 1))
    if room:
        yield edited("a size of a byte more", Needs.DIGEST, 124, b"%011o\0" % (size + 1))
    for kind, word in ((b"1", "hard link"), (b"2", "symbolic link"), (b"3", "device"), (b"6", "FIFO")):
        yield edited(f"the type of a {word}", Needs.SHARD, 156, kind)
    yield edited("the type of a contiguous file", Needs.SHARD, 156, b"7")
    yield edited("the type of a sparse file", Needs.SHARD, 156, b"S")
    yield edited("the type of a volume", Needs.SHARD, 156, b"V")
    yield edited("an unknown type", Needs.SHARD, 156, b"?")


def names(data: bytes) -> Iterator[Damage]:
    """Members renamed: keys and fields that readers bend, drop, merge, or must never see."""
    members = members_of(data)
    field, key = members[0].field.encode(), members[0].key.encode()

    def first_named(name: str, needs: Needs, new: bytes) -> Damage:
        return Damage(f"first member named {name}", needs, tar_of([renamed(members[0], new), *members[1:]]))

    yield first_named("outside", Needs.SHARD, b"../" + key + b"." + field)
    yield first_named("far outside", Needs.SHARD, b"a/../../" + key + b"." + field)
    yield first_named("from the root", Needs.SHARD, b"/etc/" + key + b"." + field)
    yield first_named("without a field", Needs.SHARD, key)
    yield first_named("like no file", Needs.SHARD, b"d/")
    yield first_named("with a blank", Needs.RULES, b"a b." + field)
    yield first_named("with an underscore first", Needs.RULES, b"_x." + field)
    yield first_named("with a newline", Needs.RULES, b"a\nb." + field)
    yield first_named("with an escape sequence", Needs.RULES, b"a\x1b[2Jb." + field)
    yield first_named("in bytes that are no UTF-8", Needs.RULES, b"\xff\xfe." + field)
    yield first_named("with 95 bytes of key", Needs.RULES, (b"k" * 95 + b"." + field)[:100])
    yield first_named("with a dot folder", Needs.RULES, b"./" + key + b"." + field)
    yield first_named("with an upper-case field", Needs.RULES, key + b"." + field.upper())
    yield first_named("with a reserved field", Needs.RULES, key + b".__key__")
    yield first_named("with another legal field", Needs.COUNTS, key + b".0other")
    if len(members) > 1 and members[1].key == members[0].key:
        yield first_named("as the second", Needs.SHARD, members[1].name.encode())


def contents(data: bytes) -> Iterator[Damage]:
    """Members lost, doubled, moved, added."""
    members = members_of(data)
    keys = list(dict.fromkeys(member.key for member in members))
    by_key = {key: [member for member in members if member.key == key] for key in keys}
    middle = keys[len(keys) // 2]

    def samples(order: Sequence[str]) -> bytes:
        return tar_of([member for key in order for member in by_key[key]])

    yield Damage("the first sample lost", Needs.COUNTS, samples(keys[1:]))
    yield Damage("a middle sample lost", Needs.COUNTS, samples([key for key in keys if key != middle]))
    yield Damage("the last sample lost", Needs.COUNTS, samples(keys[:-1]))
    yield Damage("a sample twice", Needs.SHARD, samples([*keys, keys[0]]))
    yield Damage("a sample twice, side by side", Needs.SHARD, samples([keys[0], *keys]))
    yield Damage("all samples but one", Needs.COUNTS, samples(keys[:1]))
    yield Damage("the first member twice", Needs.SHARD, tar_of([members[0], *members]))
    yield Damage("a folder", Needs.RULES, tar_of([made(b"d/", kind=b"5"), *members]))
    yield Damage("a global header", Needs.RULES, tar_of([made(b"g", b"13 comment=x\n", b"g"), *members]))
    yield Damage("an extension header", Needs.RULES, tar_of([made(b"x", b"13 comment=x\n", b"x"), *members]))
    yield Damage("an extension header with another name", Needs.RULES, tar_of([made(b"x", b"15 path=zz.bin\n", b"x"), *members]))
    yield Damage("an extension header that cannot be parsed", Needs.SHARD, tar_of([made(b"x", b"99 path=a\n", b"x"), *members]))
    yield Damage("an extension header at the end", Needs.SHARD, tar_of([*members, made(b"x", b"13 comment=x\n", b"x")]))
    yield Damage("a GNU long name", Needs.RULES, tar_of([made(b"L", b"zz.bin\0", b"L"), *members]))
    yield Damage("a member that is no sample", Needs.SHARD, tar_of([*members, made(b"README", b"read me")]))
    yield Damage("a new sample at the end", Needs.COUNTS, tar_of([*members, made(b"zzz." + members[0].field.encode(), b"1")]))
    split = [i for i, (one, two) in enumerate(pairwise(members)) if one.key == two.key]
    if split and len(keys) > 1:
        i = split[0]
        rest = [*members[:i], *members[i + 1 :]]
        yield Damage("a member moved away from its sample", Needs.SHARD, tar_of([*rest, members[i]]))
        yield Damage("two members of a sample in the wrong order", Needs.RULES, swapped(members, i, i + 1))
        yield Damage("a member lost", Needs.COUNTS, tar_of(rest))
    if len(keys) > 1:
        needs = Needs.DIGEST if same_layout(by_key, keys) else Needs.OFFSETS
        yield Damage("the first two samples in the other order", needs, samples([keys[1], keys[0], *keys[2:]]))


def same_layout(by_key: dict[str, list[Member]], keys: list[str]) -> bool:
    """Whether the first two samples are equally long, so that their order changes no offset."""
    first, second = (sum(len(member.blocks) for member in by_key[key]) for key in keys[:2])
    return first == second


def swapped(members: Sequence[Member], i: int, j: int) -> bytes:
    changed = list(members)
    changed[i], changed[j] = changed[j], changed[i]
    return tar_of(changed)


def damages(data: bytes, numbers: random.Random) -> Iterator[Damage]:
    """Every damage to one tar shard."""
    yield from flips(data, numbers)
    families: tuple[Callable[[bytes], Iterator[Damage]], ...] = (cuts, frames, headers, names, contents)
    for family in families:
        yield from family(data)

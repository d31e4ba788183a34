"""Sound datasets to damage, and all mutants of each."""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from mutation import INDEX, MANIFEST, OFFSETS, PLAN, Damage, Files, Mutant, Needs, flipped_within, rows, tars
from mutation.descriptions import exchanges, file_damages, index_edits, manifest_edits, offsets_edits
from mutation.sealing import consistent, sealed


@dataclass(frozen=True)
class Base:
    """A sound dataset, and another of the same options and other samples."""

    files: Files
    other: Files

    @property
    def shards(self) -> list[str]:
        return sorted(name for name in self.files if ".tar" in name or ".mds" in name)

    @property
    def is_wds(self) -> bool:
        return INDEX not in self.files

    @property
    def foreign(self) -> "Base":
        """The same shards without what only this package writes beside them."""
        private = (MANIFEST, OFFSETS, PLAN, ".shardtools/rejects")
        first, second = ({name: data for name, data in files.items() if name not in private} for files in (self.files, self.other))
        return Base(first, second)

    def content_of(self, data: bytes) -> Any:
        return tars.content_of(data) if self.is_wds else rows.content_of(self.raw(data))

    def raw(self, data: bytes) -> bytes:
        return zstandard.decompress(data) if data.startswith(zstandard.FRAME_HEADER) else data

    def stored(self, name: str, raw: bytes) -> bytes:
        return zstandard.compress(raw, 3) if name.endswith(".zstd") else raw

    def extra(self, shard: str) -> str:
        """The name of one shard more."""
        return shard.replace("train-000", "train-900").replace("shard.000", "shard.900").replace("part-", "part-9")

    @property
    def has_keys(self) -> bool:
        return self.is_wds or b'"key"' in self.files[INDEX]

    def index_differs(self, name: str, data: bytes) -> bool:
        """Whether the index tells the shard's bytes from others: it has their length, and hashes if its writer was asked for them."""
        return not self.is_wds and (len(data) != len(self.files[name]) or b'"hashes": []' not in self.files[INDEX])

    def shard_damages(self, numbers: random.Random) -> Iterator[tuple[str, Damage]]:
        """Damages to the second shard."""
        name = self.shards[min(1, len(self.shards) - 1)]
        data = self.files[name]
        if self.is_wds:
            found = tars.damages(data, numbers)
        else:
            found = (d._replace(data=self.stored(name, d.data)) for d in rows.damages(self.raw(data), numbers))
        for damage in found:
            if damage.data != data:
                yield name, damage
        if name.endswith(".zstd"):
            yield from ((name, damage) for damage in stream_damages(data, numbers))


def stream_damages(data: bytes, numbers: random.Random) -> Iterator[Damage]:
    """What happens to a compressed stream as such."""
    raw = zstandard.decompress(data)
    half = len(raw) // 2
    for cut in (0, 1, 4, len(data) // 2, len(data) - 4, len(data) - 1):
        yield Damage(f"stream cut at {cut}", Needs.SHARD, data[:cut])
    yield Damage("stream twice", Needs.SHARD, data + data)
    yield Damage("stream with garbage after it", Needs.SHARD, data + b"garbage!")
    yield Damage("stream not compressed", Needs.SHARD, raw)
    yield Damage("stream compressed twice", Needs.SHARD, zstandard.compress(data))
    yield Damage("stream of one byte less", Needs.SHARD, zstandard.compress(raw[:-1]))
    yield Damage("stream of one byte more", Needs.SHARD, zstandard.compress(raw + b"x"))
    yield Damage("stream of nothing", Needs.SHARD, zstandard.compress(b""))
    yield Damage("stream of the first half", Needs.SHARD, zstandard.compress(raw[:half]))
    yield Damage("stream of another magic", Needs.SHARD, b"\x29" + data[1:])
    yield Damage("stream at another level", Needs.DIGEST, zstandard.compress(raw, 19) + b"")
    yield Damage("stream in two frames", Needs.DIGEST, zstandard.compress(raw[:half]) + zstandard.compress(raw[half:]))
    yield Damage("stream with a skippable frame", Needs.DIGEST, data + struct.pack("<II", 0x184D2A50, 4) + b"note")
    for _ in range(12):
        where, damaged = flipped_within(data, 4, len(data), numbers)
        yield Damage(f"stream, {where}", Needs.DIGEST, damaged)


def own_mutants(base: Base, numbers: random.Random, num_flips: int = 6) -> Iterator[Mutant]:
    """Damages that must be found in a dataset with a manifest.

    What a strict parser must see is sealed again as well as it can be, so that digests do not find it first.
    """
    files = base.files
    for name, damage in base.shard_damages(numbers):
        damaged = {**files, name: damage.data}
        if damage.needs is Needs.DIGEST:
            yield Mutant(f"{name}: {damage.name}", damaged)
        elif damage.needs in (Needs.COUNTS, Needs.OFFSETS):
            yield Mutant(f"{name}: {damage.name}, sealed again", sealed(damaged))
        else:
            yield Mutant(f"{name}: {damage.name}, sealed again", forged(base, damaged))
    yield from file_damages(files, numbers, num_flips)
    yield from exchanges(files, base.other, base.shards, base.extra)
    yield from manifest_edits(files)
    yield from offsets_edits(files)
    if INDEX in files:
        yield from index_edits(files)
    yield from repeated_across(base)


def forged(base: Base, damaged: Files) -> Files:
    """Everything recorded made right where the damaged shard can still be counted, else sizes and digests alone."""
    try:
        return consistent(damaged, base.content_of)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, RecursionError, struct.error, zstandard.ZstdError):
        return sealed(damaged)


def repeated_across(base: Base) -> Iterator[Mutant]:
    """A sample of the first shard in the last one too, with everything that is recorded made right."""
    first, last = base.shards[0], base.shards[-1]
    if base.is_wds:
        one, two = (tars.members_of(base.files[name]) for name in (first, last))
        sample = [member for member in one if member.key == one[0].key]
        damaged = {**base.files, last: tars.tar_of([*two, *sample])}
        yield Mutant("a sample in two shards", forged(base, damaged))
        rest = [member for member in two if member.key != two[0].key]
        yield Mutant("a sample of another shard in place of one", forged(base, {**base.files, last: tars.tar_of([*sample, *rest])}))
        return
    one_shard, two_shard = (rows.Shard(base.raw(base.files[name])) for name in (first, last))
    if one_shard.key:
        joined = [two_shard.joined(row) for row in two_shard.rows]
        sample_row = one_shard.joined(one_shard.rows[0])
        for word, chosen in (("a sample in two shards", [*joined, sample_row]), ("a sample in place of one", [sample_row, *joined[1:]])):
            raw = rows.shard_of(two_shard.config, chosen)
            yield Mutant(word, forged(base, {**base.files, last: base.stored(last, raw)}))


def foreign_mutants(base: Base, numbers: random.Random) -> Iterator[tuple[Mutant, bool]]:
    """Damages to a dataset without a manifest, each with whether it can be proved. An index is made to agree in sizes."""
    files = base.files
    for name, damage in base.shard_damages(numbers):
        provable = damage.needs is Needs.SHARD or (damage.needs is Needs.COUNTS and not base.is_wds)
        # A flipped bit of a value may or may not leave one that decodes.
        if provable or "bit " not in damage.name:
            yield Mutant(f"{name}: {damage.name}", sealed({**files, name: damage.data})), provable
    if INDEX in files:
        yield from ((mutant, True) for mutant in index_edits(files))
    one, two = base.shards[:2]
    replaced = {
        "a shard in place of another": {**files, two: files[one]},
        "a shard of another dataset": {**files, two: base.other[two]},
        "two shards swapped": {**files, one: files[two], two: files[one]},
    }
    for name, damaged in replaced.items():
        is_doubled = name == "a shard in place of another" and base.has_keys
        yield Mutant(name, damaged), is_doubled or base.index_differs(two, damaged[two])
    yield Mutant("a shard twice", {**files, base.extra(one): files[one]}), True
    yield Mutant("two shards in one file", {**files, one: files[one] + files[two]}), True
    yield Mutant("an empty file as a shard", {**files, base.extra(one): b""}), True
    yield Mutant("a shard more, of another dataset", {**files, base.extra(one): base.other[one]}), not base.is_wds
    last = base.shards[-1]
    yield Mutant("a middle shard missing", {name: files[name] for name in files if name != two}), not base.is_wds
    yield Mutant("the last shard missing", {name: files[name] for name in files if name != last}), not base.is_wds


def read_folder(folder: Path) -> Files:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}

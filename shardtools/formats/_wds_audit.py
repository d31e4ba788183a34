"""A strict look at a tar shard that may be damaged: every fault is named, members are never written anywhere."""

from collections.abc import Iterator
from dataclasses import dataclass

from shardtools import keys
from shardtools.errors import DamagedShardError
from shardtools.formats import Audit, Fault, StoredSample, _tar, _tar_header

_KINDS = {b"1": "hard link", b"2": "symbolic link", b"3": "device", b"4": "device", b"5": "folder", b"6": "FIFO"}
# Readers pass over folders and over global headers that name no member, and lose nothing by it.
_HARMLESS = (b"5", b"g")
_MAX_DAMAGES = 1000


def samples(shard: memoryview, audit: Audit) -> Iterator[StoredSample]:
    """The samples that can be read: behind damage, from the next header on that is whole."""
    run = _Run("", 0, {})
    for member in _readable(shard, audit):
        audit.data_end = member.end
        if not member.is_file:
            _report_kind(member, audit)
            continue
        if audit.own and _is_foreign(shard, member):
            detail = f"expected the plain header this package writes for {_shown(member)}, got another"
            audit.on_fault(Fault("not-canonical", member.offset, None, detail))
        key, field = _tar.split_name(member.name.decode("utf-8", "surrogateescape"))
        if run.values and run.key != key:
            yield run.sample()
            run = _Run("", 0, {})
        if not run.values:
            run = _Run(key, member.offset, {})
        _check_names(run, key, field, member, audit)
        run.values[field] = shard[member.data_offset : member.data_offset + member.num_bytes]
    if run.values:
        yield run.sample()
    if audit.is_whole:
        _check_length(shard, audit)


def _readable(shard: memoryview, audit: Audit) -> Iterator[_tar.Member]:
    begin: int | None = 0
    num_damages = 0
    while begin is not None:
        try:
            yield from _tar.entries(shard, begin)
            return
        except DamagedShardError as damage:
            audit.is_whole = False
            audit.on_fault(Fault("damaged-shard", damage.offset, None, f"expected a sound tar, got one where {damage.message}"))
            num_damages += 1
            # Damage everywhere is no tar any more; and each look for a header may go through all of it.
            begin = _tar.next_header(shard, max(damage.offset, begin) + 1) if num_damages < _MAX_DAMAGES else None


@dataclass
class _Run:
    """Neighbouring members of one key."""

    key: str
    offset: int
    values: dict[str, memoryview]

    def sample(self) -> StoredSample:
        return StoredSample(self.key, self.offset, self.values)


def _report_kind(member: _tar.Member, audit: Audit) -> None:
    if audit.own or member.kind not in _HARMLESS:
        kind = _KINDS.get(member.kind, f"member of type {member.kind!r}")
        audit.on_fault(Fault("not-a-file", member.offset, None, f"expected regular files only, got a {kind}: {_shown(member)}"))


def _is_foreign(shard: memoryview, member: _tar.Member) -> bool:
    if len(member.name) > keys.MAX_MEMBER_BYTES or member.num_bytes > _tar.MAX_MEMBER_BYTES:
        return True
    return shard[member.offset : member.data_offset] != _tar_header.header(member.name, member.num_bytes)


def _check_names(run: _Run, key: str, field: str, member: _tar.Member, audit: Audit) -> None:
    def fault(kind: str, detail: str) -> None:
        audit.on_fault(Fault(kind, member.offset, key, detail))

    if key.startswith("/") or b".." in member.name.split(b"/"):
        fault("unsafe-name", f"expected a name below the dataset, got {_shown(member)}")
    elif audit.own and not (len(key) <= keys.MAX_KEY_BYTES and keys.KEY.fullmatch(key.encode("utf-8", "surrogateescape"))):
        fault("illegal-key", f"expected a key every reader takes, got {_shown(member)}")
    if not field:
        fault("no-field", f"expected key.field, got {_shown(member)}, which readers drop")
    elif audit.own and not keys.is_legal_field(field):
        fault("illegal-field", f"expected a field of lower-case letters, digits, _ and inner dots, got {_shown(member)}")
    if field in run.values:
        fault("field-twice", f"expected every field once in a sample, got {_shown(member)} again")
    elif audit.own and run.values and field < next(reversed(run.values)):
        fault("not-canonical", f"expected the fields of a sample in order, got {_shown(member)} after .{next(reversed(run.values))}")


def _check_length(shard: memoryview, audit: Audit) -> None:
    expected = audit.data_end + len(_tar.end_of_archive(audit.data_end))
    if audit.own and len(shard) != expected:
        detail = f"expected the archive to end at byte {expected} as this package writes it, got {len(shard)} bytes"
        audit.on_fault(Fault("not-canonical", audit.data_end, None, detail))


def _shown(member: _tar.Member) -> str:
    return repr(member.name.decode("utf-8", "backslashreplace"))

"""A quick and strict look at a tar shard: the headers of many members are checked at once, as rows of a matrix.

Whatever is out of the ordinary is left to the slow look. Of extension headers only those are not that say nothing of names or
bytes: webdataset's TarWriter puts one with the time before every member.
Source: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Extended Header".
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from operator import eq

import numpy as np

from shardtools import keys
from shardtools.formats import Audit, Columns, UnprovenError, _tar, _tar_header, joined_names
from shardtools.formats._wds_extensions import EXTENSION, Bytes, Ints, without_extensions

_BLOCK = _tar_header.BLOCK
_WINDOW_BLOCKS = 1 << 14
_MAGICS = [np.frombuffer(magic, np.uint8) for magic in (b"ustar\x0000", b"ustar  \0")]
_PLAIN = np.frombuffer(_tar_header.header(b"", 0), np.uint8)
# Where every header of this package is alike: all but name, size and checksum.
_CONSTANT = [slice(100, 124), slice(135, 148), slice(154, _BLOCK)]
_NAME, _SIZE, _CHECKSUM, _PREFIX = slice(0, 100), slice(124, 135), slice(148, 154), slice(345, 500)
_CONSTANT_SUM = np.uint32(sum(int(_PLAIN[part].sum(dtype=np.uint32)) for part in _CONSTANT) + 7 * ord(" "))
_KEPT_FIELD_SETS = _MAX_MEMBERS = 1 << 16
_KEYS = re.compile(b"(?:%b\n)*" % keys.KEY.pattern)
_KINDS = (ord("0"), EXTENSION)


def columns(shard: memoryview, audit: Audit) -> Iterator[Columns]:
    """See ``ShardFormat.columns``."""
    if len(shard) % _BLOCK:
        raise UnprovenError
    blocks = np.frombuffer(shard, np.uint8).reshape(-1, _BLOCK)
    groups = _Groups(audit.own)
    at = 0
    while at < len(blocks) and blocks[at, 0]:
        members = _headers(blocks, at)
        _check_headers(blocks[members], audit.own)
        sizes = _octal(blocks[members, _SIZE])
        following = members + 1 + (sizes + _BLOCK - 1) // _BLOCK
        if following[-1] > len(blocks):
            raise UnprovenError
        _check_padding(blocks, following, sizes)
        starts = members
        if not audit.own and (blocks[members, 156] == EXTENSION).any():
            members, starts, sizes, following = without_extensions(blocks, members, sizes, following)
        begins = (members + 1) * _BLOCK
        groups.add(_names(blocks[members, _NAME]), starts * _BLOCK, begins, begins + sizes)
        yield groups.taken(keep_last=True)
        at = int(following[-1])
    audit.data_end = at * _BLOCK
    if not _ends_well(len(blocks) - at, at, audit.own) or _tar.data_after(shard, audit.data_end) is not None:
        raise UnprovenError
    yield groups.taken(keep_last=False)


def _headers(blocks: Bytes, at: int) -> Ints:
    """The block numbers of the headers that follow each other from ``at`` on, as far as one window reaches."""
    window = blocks[at : at + _WINDOW_BLOCKS]
    found = np.flatnonzero(window[:, 257] == _PLAIN[257])
    # What looks like a header inside a payload is none: only what is reached from header to header counts.
    is_octal = ((window[found, _SIZE] >= ord("0")) & (window[found, _SIZE] <= ord("7"))).all(axis=1)
    found = found[is_octal]
    following = found + 1 + (_octal(window[found, _SIZE]) + _BLOCK - 1) // _BLOCK
    if not len(found) or found[0] != 0:
        raise UnprovenError
    if (following[:-1] == found[1:]).all():
        headers: Ints = found + at
        return headers
    reached = []
    next_of = dict(zip(found.tolist(), following.tolist(), strict=True))
    position = 0
    while position in next_of:
        reached.append(position)
        position = next_of[position]
    return np.array(reached, np.int64) + at


def _check_headers(headers: Bytes, own: bool) -> None:
    """Types, magic and checksums. What follows the checksum's six digits, and the end of the size, is as every writer has it."""
    digits = headers[:, _CHECKSUM]
    if ((digits < ord("0")) | (digits > ord("7"))).any():
        raise UnprovenError
    if own:
        is_sound = all((headers[:, part] == _PLAIN[part]).all() for part in _CONSTANT)
        # All other bytes are known by now.
        sums = headers[:, _NAME].sum(axis=1, dtype=np.uint32) + headers[:, _SIZE].sum(axis=1, dtype=np.uint32) + _CONSTANT_SUM
    else:
        is_sound = any((headers[:, 257:265] == magic).all() for magic in _MAGICS)
        is_sound = is_sound and not headers[:, _PREFIX].any() and bool(np.isin(headers[:, 156], _KINDS).all())
        is_sound = is_sound and not headers[:, 135].any() and bool((headers[:, 154:156] == _PLAIN[154:156]).all())
        # The checksum counts its own eight bytes as spaces; the last of them is one.
        sums = headers.sum(axis=1, dtype=np.uint32) - digits.sum(axis=1, dtype=np.uint32) + np.uint32(7 * ord(" "))
    if not is_sound or (sums != _octal(digits)).any():
        raise UnprovenError


def _check_padding(blocks: Bytes, following: Ints, sizes: Ints) -> None:
    used = sizes % _BLOCK
    padded = used > 0
    if (blocks[following[padded] - 1] & _padding_masks()[used[padded]]).any():
        raise UnprovenError


@cache
def _padding_masks() -> Bytes:
    """[512, 512]: row ``n`` is 0 for the first ``n`` bytes of a block and 255 for its padding."""
    places = np.arange(_BLOCK)
    masks: Bytes = np.where(places[None, :] >= places[:, None], 255, 0).astype(np.uint8)
    return masks


def _octal(digits: Bytes) -> Ints:
    """[n] from [n, digits] of ASCII."""
    weights = 8 ** np.arange(digits.shape[1] - 1, -1, -1, dtype=np.int64)
    values: Ints = (digits.astype(np.int64) - ord("0")) @ weights
    return values


def _names(fields: Bytes) -> list[bytes]:
    """The names in [n, 100] name fields, each followed by NULs alone."""
    is_end = fields == 0
    lengths = np.where(is_end.any(axis=1), is_end.argmax(axis=1), fields.shape[1])
    if not lengths.all() or (is_end.sum(axis=1) != fields.shape[1] - lengths).any():
        raise UnprovenError
    names: list[bytes] = np.ascontiguousarray(fields).view(f"S{fields.shape[1]}").ravel().tolist()
    return names


def _ends_well(num_blocks: int, at: int, own: bool) -> bool:
    if own:
        return num_blocks * _BLOCK == len(_tar.end_of_archive(at * _BLOCK))
    return num_blocks >= 2


class _Groups:
    """Members gathered into samples; the last sample stays until a member of another key, or the end, has come."""

    def __init__(self, own: bool) -> None:
        self._own = own
        self._names: list[bytes] = []
        self._starts = np.empty(0, np.int64)
        self._begins = np.empty(0, np.int64)
        self._ends = np.empty(0, np.int64)
        self._field_sets = _FieldSets(own)

    def add(self, names: list[bytes], starts: Ints, begins: Ints, ends: Ints) -> None:
        if not self._own and b".." in b"\n".join(names):
            raise UnprovenError  # perhaps a way out of the folder
        self._names += names
        self._starts = np.concatenate([self._starts, starts])
        self._begins = np.concatenate([self._begins, begins])
        self._ends = np.concatenate([self._ends, ends])

    def taken(self, keep_last: bool) -> Columns:
        """The samples that are complete, which are then forgotten here."""
        sample_keys, firsts, fields = _split(self._names)
        if keep_last and sample_keys:
            sample_keys.pop()
            if len(self._names) - firsts[-1] > _MAX_MEMBERS:
                raise UnprovenError  # it would be split anew with every window
        else:
            firsts.append(len(fields))
        num_taken = firsts[-1] if firsts else 0
        self._check_keys(sample_keys)
        if len(self._field_sets) > _KEPT_FIELD_SETS:
            self._field_sets.clear()
        field_sets = self._field_sets.of(fields[:num_taken], firsts)
        offsets: list[int] = self._starts[firsts[:-1]].tolist()
        taken = Columns(sample_keys, offsets, field_sets, firsts, self._begins[:num_taken], self._ends[:num_taken])
        self._names, self._starts = self._names[num_taken:], self._starts[num_taken:]
        self._begins, self._ends = self._begins[num_taken:], self._ends[num_taken:]
        return taken

    def _check_keys(self, sample_keys: list[bytes]) -> None:
        lines = b"\n".join([*sample_keys, b""])
        if self._own:
            longest = max(map(len, sample_keys), default=0)
            is_sound = longest <= keys.MAX_KEY_BYTES and lines.count(b"\n") == len(sample_keys) and _KEYS.fullmatch(lines) is not None
        else:
            is_sound = b"\n/" not in lines and not lines.startswith(b"/")
        if not is_sound:
            raise UnprovenError


class _FieldSets(dict[tuple[bytes, ...], str]):
    """The joined names of each set of fields, checked when it is met for the first time."""

    def __init__(self, own: bool) -> None:
        self._own = own

    def of(self, fields: list[bytes], firsts: list[int]) -> list[str]:
        """The joined names of each sample's fields; most often they are the same in every sample."""
        num_samples = len(firsts) - 1
        width = firsts[1] if num_samples > 0 else 0
        if width and firsts == list(range(0, len(fields) + 1, width)) and all(len(set(fields[i::width])) == 1 for i in range(width)):
            return [self[tuple(fields[:width])]] * num_samples
        return [self[tuple(fields[a:b])] for a, b in pairwise(firsts)]

    def __missing__(self, fields: tuple[bytes, ...]) -> str:
        names = [field.decode("utf-8", "surrogateescape") for field in fields]
        is_sound = "" not in names and len(set(names)) == len(names)
        if self._own:
            is_sound = is_sound and names == sorted(names) and all(map(keys.is_legal_field, names))
        if not is_sound:
            raise UnprovenError
        self[fields] = joined = joined_names(names)
        return joined


def _split(names: list[bytes]) -> tuple[list[bytes], list[int], list[bytes]]:
    """Keys of samples, the first member of each, and the field of every member."""
    parts = [name.partition(b".") for name in names]
    member_keys, fields = [part[0] for part in parts], [part[2] for part in parts]
    if b"/" in b"".join(fields):  # a dot in a folder's name
        named = [_tar.split_name(name.decode("utf-8", "surrogateescape")) for name in names]
        member_keys = [key.encode("utf-8", "surrogateescape") for key, _ in named]
        fields = [field.encode("utf-8", "surrogateescape") for _, field in named]
    firsts = _firsts(member_keys)
    return [member_keys[first] for first in firsts], firsts, fields


def _firsts(member_keys: list[bytes]) -> list[int]:
    """Where another key begins; most often after the same number of members each time."""
    width = next((i for i, key in enumerate(member_keys) if key != member_keys[0]), len(member_keys))
    if width and len(member_keys) % width == 0:
        found = member_keys[::width]
        if all(member_keys[i::width] == found for i in range(1, width)) and not any(map(eq, found, found[1:])):
            return list(range(0, len(member_keys), width))
    firsts = [0] if member_keys else []
    return firsts + [i for i, (before, key) in enumerate(pairwise(member_keys), 1) if key != before]

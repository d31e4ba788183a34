"""Extension headers in the quick look at a tar: those that say nothing of names and bytes are passed over.

webdataset's TarWriter puts one with the time before every member.
Source: POSIX.1-2017, pax, "pax Extended Header".
"""

import re

import numpy as np
import numpy.typing as npt

from shardtools.formats import UnprovenError
from shardtools.formats._tar_header import BLOCK

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

EXTENSION = ord("x")
_RECORD = re.compile(rb"([0-9]{1,3}) (?:atime|ctime|mtime|uid|gid|uname|gname|comment)=[^\n]*\n")


def without_extensions(blocks: Bytes, members: Ints, sizes: Ints, following: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """The same without extension headers: where headers of members lie, where what belongs to them begins, sizes, and what follows.

    Raises UnprovenError for one that says more than times and owners, which change neither a name nor a byte.
    """
    is_extension = blocks[members, 156] == EXTENSION
    if is_extension[-1]:  # its member is in the next window
        members, sizes, following, is_extension = (values[:-1] for values in (members, sizes, following, is_extension))
    places = np.flatnonzero(is_extension)
    if not len(members) or is_extension[-1] or is_extension[places + 1].any() or (sizes[places] > BLOCK).any():
        raise UnprovenError
    for place, num_bytes in zip((members[places] + 1).tolist(), sizes[places].tolist(), strict=True):
        _check_records(blocks[place, :num_bytes].tobytes())
    starts = members.copy()
    starts[places + 1] = members[places]
    return members[~is_extension], starts[~is_extension], sizes[~is_extension], following[~is_extension]


def _check_records(data: bytes) -> None:
    begin = 0
    while begin < len(data):
        record = _RECORD.match(data, begin)
        if record is None or record.end() - begin != int(record[1]):
            raise UnprovenError
        begin = record.end()

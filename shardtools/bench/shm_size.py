"""How large to make ``/dev/shm`` for what is foreseen: one rule, wherever it is advised."""

import math
from dataclasses import dataclass

_ROOM_FACTOR = 1.5
"""Above what is foreseen: other programs of a container use ``/dev/shm``, too."""
_MIB, _GIB = 1 << 20, 1 << 30
_LEAST_BYTES = 64 * _MIB
"""What Docker gives where nothing is said."""


@dataclass(frozen=True)
class ShmSize:
    """A size to ask for, as each tool spells it."""

    num_bytes: int
    """Whole MiB."""

    @classmethod
    def for_bytes(cls, bound_bytes: int) -> "ShmSize":
        """One and a half times what is foreseen: the next power of two up to 1 GiB, whole GiB above, at least Docker's own 64 MiB."""
        wanted = max(math.ceil(_ROOM_FACTOR * bound_bytes), _LEAST_BYTES)
        return cls(-(-wanted // _GIB) * _GIB if wanted > _GIB else 1 << (wanted - 1).bit_length())

    @property
    def docker(self) -> str:
        """``256m`` or ``2g``, as ``docker run --shm-size`` and ``mount -o size`` take it."""
        return f"{self._count}{'g' if self._is_whole_gib else 'm'}"

    @property
    def kubernetes(self) -> str:
        """``256Mi`` or ``2Gi``, as ``sizeLimit`` takes it."""
        return f"{self._count}{'Gi' if self._is_whole_gib else 'Mi'}"

    def __str__(self) -> str:
        return f"{self._count} {'GiB' if self._is_whole_gib else 'MiB'}"

    @property
    def _is_whole_gib(self) -> bool:
        return self.num_bytes % _GIB == 0

    @property
    def _count(self) -> int:
        return self.num_bytes // (_GIB if self._is_whole_gib else _MIB)

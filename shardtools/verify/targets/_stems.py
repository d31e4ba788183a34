"""Files whose own name had a dot before the extension: ``22.05.png`` becomes sample ``22`` with the field ``05.png``."""

import re

from shardtools.verify.targets._complaints import NUM_EXAMPLES, At, Complaints, Rule
from shardtools.verify.targets._members import Seen, is_hidden

DOTTED = Rule("target-renames", "with a further dot before the extension: the key ends at the first dot, and the rest is the field")

_ODD = re.compile(r"(?:[^.]*[^A-Za-z0-9_.-]|\.|\Z)")
_MAX_FIELDS = 10_000


class DottedStems:
    """Finds them by odd characters, and by numbers that few samples share. Memory: at most 10,000 fields."""

    def __init__(self) -> None:
        self._odd: list[At] = []
        self._num_odd = 0
        self._numbered: dict[str, tuple[int, At]] = {}
        self._num_others = 0
        self._first_other: At | None = None

    def see(self, seen: Seen) -> None:
        field = seen.field
        if seen.is_plain and not (field[0].isdigit() and "." in field):
            return
        if not seen.member.is_file or is_hidden(seen.name) or "." not in seen.name[seen.name.rfind("/") + 1 :]:
            return
        if _ODD.match(field) and ("." in field or not field):
            self._num_odd += 1
            if len(self._odd) < NUM_EXAMPLES:
                self._odd.append(seen.at)
        elif field[0].isdigit() and "." in field:
            self._count(field, seen)

    def report(self, complaints: Complaints, num_samples: int) -> None:
        """A numbered field in less than half of the samples is no field but part of a name."""
        if self._num_odd:
            complaints.add_all(DOTTED, self._odd, self._num_odd)
        for count, at in self._numbered.values():
            if 2 * count < num_samples:
                complaints.add(DOTTED, at, count)
        if self._first_other is not None:
            complaints.add(DOTTED, self._first_other, self._num_others)

    def _count(self, field: str, seen: Seen) -> None:
        known = self._numbered.get(field)
        if known is not None:
            self._numbered[field] = (known[0] + 1, known[1])
        elif len(self._numbered) < _MAX_FIELDS:
            self._numbered[field] = (1, seen.at)
        else:
            self._num_others += 1
            self._first_other = self._first_other or seen.at

"""Fields that are spelled in more than one way, for readers that take JPG and jpg for two."""

from shardtools.verify.targets import _lint
from shardtools.verify.targets._complaints import Complaints
from shardtools.verify.targets._members import Seen

_MAX_FIELDS = 10_000


class Spellings:
    """Complains once of each field that came in another case before. Memory: at most 10,000 names; further ones are passed over."""

    def __init__(self, complaints: Complaints) -> None:
        self._complaints = complaints
        self._known: set[str] = set()
        self._first: dict[str, str] = {}

    def add(self, field: str, seen: Seen) -> None:
        if field in self._known or len(self._known) >= _MAX_FIELDS:
            return
        self._known.add(field)
        if self._first.setdefault(field.lower(), field) != field:
            self._complaints.add(_lint.TWO_SPELLINGS, seen.at)

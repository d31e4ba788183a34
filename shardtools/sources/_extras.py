"""What is asked for beside the fields, looked for in the first samples while the run is planned."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from shardtools.errors import UsageError
from shardtools.sample import Batch
from shardtools.selection import KEY_NAME
from shardtools.sources import Foreseen, SurveyRequest
from shardtools.units import listed, printable


class Ratios(NamedTuple):
    """What becomes of the input, for each of its bytes, as the first samples show it."""

    stored: float
    """Stored bytes."""
    beside: float
    """Bytes that steps read beside it."""


def ratios(request: SurveyRequest, first: Sequence[Batch], names: Iterable[str], stored_bytes: int, input_bytes: float) -> Ratios:
    """For first samples of ``input_bytes`` that would be stored in ``stored_bytes``; ``names`` are those of their fields.

    Raises UsageError for a name that is asked for and none of them has: a slip of the pen, or another kind of records.
    """
    ahead = _foreseen(request, first, names) if request.extras else Foreseen()
    ratio = stored_bytes / max(input_bytes, 1) if request.stored_ratio is None else request.stored_ratio
    more_ratio = ahead.more_bytes / max(input_bytes, 1)
    return Ratios(max(ratio * ahead.kept_share + more_ratio, 1 / max(input_bytes, 1)), more_ratio)


def _foreseen(request: SurveyRequest, first: Sequence[Batch], names: Iterable[str]) -> Foreseen:
    known = sorted({KEY_NAME, *names})
    for name in request.extras:
        if name not in known and not any(value is not None for batch in first for value in batch.extras[name]):
            raise UsageError(f"expected a field {printable(name)!r} in the first records, got {listed(known)}; name one of these")
    return request.foresee([replace(batch, columns={}) for batch in first])

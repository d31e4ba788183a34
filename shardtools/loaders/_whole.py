"""Numbers a user gives: whole ones, of any type that is one."""

import operator
from typing import Any

from shardtools.errors import UsageError


def whole(what: str, value: Any, least: int, most: int = 2**63 - 1) -> int:
    """The number as an int. Raises UsageError with one sentence where it is none, or outside of ``[least, most]``."""
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"expected {what} as a whole number, got {value!r}") from None
    if number < least:
        raise UsageError(f"expected {what} of {least} or more, got {number}")
    if number > most:
        raise UsageError(f"expected {what} of at most {most}, got {number}")
    return number

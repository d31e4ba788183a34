"""What could not be measured: a number is there, or None with the reason beside it."""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True)
class NotMeasured:
    """One metric that has no value, and why."""

    metric: str
    reason: str

    def as_json(self) -> dict[str, str]:
        return asdict(self)


class Unknown(Exception):  # noqa: N818 - not a fault: this machine does not tell
    """The machine does not tell a number; the message is the reason, fit to be printed after the metric's name."""


class Reasons:
    """Collects why metrics have no value: the first reason of each."""

    def __init__(self) -> None:
        self._reason_of: dict[str, str] = {}

    def attempt(self, metric: str, measure: Callable[[], _T]) -> _T | None:
        """What ``measure`` returns; None, and the reason kept, where it raises Unknown."""
        try:
            return measure()
        except Unknown as unknown:
            self.add(metric, str(unknown))
            return None

    def add(self, metric: str, reason: str) -> None:
        self._reason_of.setdefault(metric, reason)

    def of(self, metric: str) -> str | None:
        return self._reason_of.get(metric)

    def listed(self) -> list[NotMeasured]:
        """By metric."""
        return [NotMeasured(metric, reason) for metric, reason in sorted(self._reason_of.items())]


def read_text(path: str) -> str:
    """A small file the kernel writes. Raises Unknown where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except FileNotFoundError:
        raise Unknown(f"{path} is not there") from None
    except OSError as error:
        raise Unknown(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from None
    except ValueError:
        raise Unknown(f"{path} is no path") from None

"""What a bench came to: plain data, a block of text, an exit code."""

import errno
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shardtools.bench import terminal
from shardtools.errors import StorageError

FILE_NAME = "bench.json"


def make_folder(folder: str) -> None:
    """Where a report is to be written: before hours are spent on one that cannot be. Raises StorageError."""
    try:
        os.makedirs(folder, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        sentence = f"expected a folder for the report at {folder}, but the system said: {error.strerror}"
        raise StorageError(f"{sentence}; choose another --report") from error


@dataclass(frozen=True)
class Report:
    """``data`` follows ``schema.json`` beside this file."""

    data: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        return self.data

    def lines(self) -> Iterator[str]:
        """For a terminal of 80 columns."""
        return terminal.lines(self.data)

    @property
    def exit_code(self) -> int:
        """3 where a side has no figure at all, else 0: that shards do not help is no failure."""
        return 3 if any(side["throughput"] is None for side in self.data["sides"]) else 0

    @property
    def surely_times_as_fast(self) -> float | None:
        """The lower end of the first comparison's interval; None where nothing was compared."""
        first = next(iter(self.data["comparisons"]), None)
        return None if first is None or first["ci"] is None else float(first["ci"][0])

    @property
    def au_percent(self) -> float | None:
        """How busy the device is with the last named data; None where no consumer was measured."""
        au = self.data["sides"][-1]["au"]
        return None if au is None else 100 * float(au)

    def write(self, folder: str) -> str:
        """Into ``bench.json`` of a folder that is made where it is not there; its path. Raises StorageError."""
        path = os.path.join(folder, FILE_NAME)
        try:
            os.makedirs(folder, exist_ok=True)
            with open(path + ".new", "w", encoding="utf-8") as file:
                json.dump(self.data, file, indent=2)
                file.write("\n")
            os.replace(path + ".new", path)
        except OSError as error:
            raise StorageError(
                f"expected to write the report to {path}, but the system said: {error.strerror}; choose another --report"
            ) from error
        return path

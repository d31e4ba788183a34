"""What a bench came to: plain data, a block of text, an exit code."""

import errno
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from shardtools.bench.report import terminal
from shardtools.bench.report.gates import missed
from shardtools.errors import StorageError, UsageError
from shardtools.places import is_here, place_of

FILE_NAME = "bench.json"
PAGE_NAME = "report.html"
INTERRUPTED = 130
Lang = Literal["en", "zh"]


def make_folder(folder: str, has_pictures: bool = False) -> None:
    """Where a report is to be written: before time is spent on one that cannot be. Raises StorageError, and UsageError where pictures
    cannot be drawn, or where it is no folder of this machine."""
    if folder and not is_here(place_of(folder)):
        raise UsageError(f"expected a folder of this machine for the report, got {folder}; write it here, and copy it there")
    if has_pictures:
        from shardtools.bench.report import html

        html.png({})
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

    def lines(self, lang: Lang = "en") -> Iterator[str]:
        """For a terminal of 80 columns."""
        return terminal.lines(self.data | {"lang": lang}, lang)

    @property
    def exit_code(self) -> int:
        """130 where it was interrupted, 3 where a side has no figure at all, 1 where a required bound was missed, else 0: that shards do
        not help is no failure."""
        if self.is_interrupted:
            return INTERRUPTED
        if any(side["throughput"] is None for side in self.data["sides"]):
            return 3
        return 1 if self.missed else 0

    @property
    def is_interrupted(self) -> bool:
        """By Ctrl-C, after at least one trial."""
        return bool(self.data.get("is_interrupted"))

    @property
    def missed(self) -> list[str]:
        """Sentences of what was required and is not so."""
        return list(missed(self.data["gates"]))

    def write(self, folder: str, lang: Lang = "en", has_pictures: bool = False) -> str:
        """Into a folder that is made where it is not there: ``bench.json``, the page, and its figures as PNG where those are asked for.

        Returns the path of the page. Raises StorageError, and UsageError where figures cannot be drawn.
        """
        from shardtools.bench.report import html  # a template engine is not needed to measure

        # What commands to type next say again.
        self.data.update({"written_to": folder, "lang": lang, "has_pictures": has_pictures})
        pictures = html.png(html.figures(self.data, lang)) if has_pictures else {}
        files = {f"{name}.png": data for name, data in pictures.items()}
        files[FILE_NAME] = (json.dumps(self.data, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "surrogateescape")
        files[PAGE_NAME] = html.page(self.data, lang).encode("utf-8", "replace")
        try:
            os.makedirs(folder, exist_ok=True)
            for name, data in files.items():
                _replace(os.path.join(folder, name), data)
        except OSError as error:
            raise StorageError(
                f"expected to write the report to {folder}, but the system said: {error.strerror}; choose another --report"
            ) from error
        return os.path.join(folder, PAGE_NAME)


def _replace(path: str, data: bytes) -> None:
    """A reader sees the old file or the new one."""
    with open(path + ".new", "wb") as file:
        file.write(data)
    os.replace(path + ".new", path)

"""What a terminal is told in: one of two languages, in 80 columns."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from shardtools.bench.report.chinese import translated
from shardtools.bench.report.columns import wrapped
from shardtools.bench.report.verdict_words import side_name_zh

COLUMNS = 80
Lang = Literal["en", "zh"]


@dataclass(frozen=True)
class Text:
    """The language of a report."""

    lang: Lang

    def of(self, en: str, zh: str) -> str:
        return zh if self.lang == "zh" else en

    def told(self, sentence: str) -> str:
        """A sentence that was written as English text."""
        return translated(sentence) if self.lang == "zh" else sentence

    def name(self, side: str) -> str:
        return side_name_zh(side) if self.lang == "zh" else side

    def full(self, sentence: str) -> str:
        """With a full stop."""
        return f"{sentence.rstrip('.。')}{self.of('.', '。')}"

    def item(self, sentence: str) -> Iterator[str]:
        """Of a list."""
        return wrapped(f"  - {sentence}", COLUMNS, "    ")


def code(text: str) -> Iterator[str]:
    """To be copied: indented; a shell's line that is too long goes on behind a backslash."""
    for line in text.strip("\n").split("\n"):
        pieces, room = f"    {line}".rstrip(), COLUMNS
        while len(pieces) > room and (at := pieces.rfind(" ", 8, room - 2)) > 0 and pieces.lstrip().startswith("shardtools "):
            yield f"{pieces[:at]} \\"
            pieces = f"        {pieces[at + 1 :]}"
        yield pieces


def number(value: float | None, form: str, unit: str = "") -> str:
    return "n/a" if value is None else format(value, form) + unit


def percent(share: float | None) -> str:
    return "n/a" if share is None else f"{100 * share:.0f} %"

"""The report in 80 columns, without colour: the answer first, then what to type, then how it was measured."""

from collections.abc import Iterator, Mapping
from typing import Any

from shardtools.bench.report.columns import width, wrapped
from shardtools.bench.report.doubts import INTERRUPTED
from shardtools.bench.report.terminal._answer import answers, verdicts
from shardtools.bench.report.terminal._head import head, title
from shardtools.bench.report.terminal._settings import matrix, recommendation
from shardtools.bench.report.terminal._table import tables
from shardtools.bench.report.terminal._text import COLUMNS, Lang, Text
from shardtools.bench.report.terminal._told import told

__all__ = ["lines"]


def lines(data: Mapping[str, Any], lang: Lang = "en") -> Iterator[str]:
    """Of what ``Report`` holds, in English or Chinese. Only code that is to be copied may be wider than 80 columns."""
    text = Text(lang)
    yield title(data, text)
    if data.get("is_interrupted"):
        yield from wrapped(INTERRUPTED[text.lang], COLUMNS)
    yield from _paragraphs(answers(data, text))
    for block in (
        verdicts(data, text),
        recommendation(data, text),
        matrix(data, text),
        _paragraphs(head(data, text)),
        tables(data, text),
        _paragraphs(told(data, text)),
    ):
        found = list(block)
        if found:
            yield ""
            yield from found


def _paragraphs(sentences: Iterator[str]) -> Iterator[str]:
    for sentence in sentences:
        yield from [sentence] if width(sentence) <= COLUMNS else wrapped(sentence, COLUMNS)

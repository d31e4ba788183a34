"""Text in 80 columns where characters may take two; stops Chinese lines that run over, and lines that begin with a comma."""

import pytest

from shardtools.bench.report.columns import cut, padded, width, wrapped


@pytest.mark.parametrize(
    ("text", "columns"), [("", 0), ("abc", 3), ("加载器", 6), ("W=4，样本/秒", 12), ("e\u0301", 1), ("（95 %）", 8), ("2.2–2.4", 7)]
)
def test_a_chinese_character_takes_two_columns(text: str, columns: int) -> None:
    assert width(text) == columns


def test_words_are_kept_and_chinese_breaks_anywhere() -> None:
    assert list(wrapped("one two three", 7)) == ["one two", "three"]
    assert list(wrapped("加载器单独跑", 6)) == ["加载器", "单独跑"]
    assert list(wrapped("用 worker 读取", 9)) == ["用 worker", "读取"]


def test_no_line_begins_with_a_mark_or_ends_with_an_open_bracket() -> None:
    assert list(wrapped("加载器，单独", 6)) == ["加载", "器，单", "独"]
    assert list(wrapped("加载（单独）", 6)) == ["加载", "（单", "独）"]


def test_later_lines_are_indented_and_long_words_broken() -> None:
    assert list(wrapped("- one two three", 8, "  ")) == ["- one", "  two", "  three"]
    assert list(wrapped("abcdefghij k", 4)) == ["abcd", "efgh", "ij k"]


@pytest.mark.parametrize("columns", range(4, 30))
def test_no_line_is_too_long_and_nothing_is_lost(columns: int) -> None:
    text = "小文件（torch）：当前瓶颈在存储（小文件读取）：加载器 1,240 样本/秒，GPU 可吃 3,180；use --blocks 12 averyveryverylongword。"
    lines = list(wrapped(text, columns))
    assert max(map(width, lines)) <= columns
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_names_are_cut_at_their_beginning_and_cells_filled() -> None:
    assert (cut("files by torch", 20), cut("/data/some/files by torch", 16)) == ("files by torch", "...iles by torch")
    assert (cut("小文件分片读取", 9), padded("速度", 6), padded("速度", 6, to_right=True)) == ("...片读取", "速度  ", "  速度")

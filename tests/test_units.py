"""Stops sizes and budgets from being read as another number than the one that was written."""

import pytest

from shardtools.errors import UsageError
from shardtools.units import Budget, format_bytes, parse_bytes, plural


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("1", 1),
        ("1048576", 1048576),
        ("256MiB", 268435456),
        ("64MB", 64000000),
        ("64 mb", 64000000),
        (" 1kib ", 1024),
        ("1.5KiB", 1536),
        ("0.1kB", 100),
        ("2GiB", 2147483648),
        ("1TB", 1000000000000),
        ("1TiB", 1099511627776),
        ("10B", 10),
        ("0.000001MB", 1),
        ("9007199254740993", 9007199254740993),
        ("4.7GB", 4700000000),
    ],
)
def test_sizes(text, num_bytes):
    assert parse_bytes(text) == num_bytes


@pytest.mark.parametrize("text", ["", "0", "0MiB", "-1", "1.5", "0.1KiB", "1e6", "MiB", "1 MiB 2", "1XB", "1,000", "inf", "0x10", "1..5MB"])
def test_what_is_no_size_is_wrong_use_that_shows_it(text, one_sentence):
    with pytest.raises(UsageError) as caught:
        parse_bytes(text)
    assert repr(text) in one_sentence(caught.value)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (3 << 20, "3.0 MiB"),
        (5 << 30, "5.0 GiB"),
        (2 << 40, "2.0 TiB"),
        (5000 << 40, "5000.0 TiB"),
        (1048575, "1.0 MiB"),
    ],
)
def test_sizes_for_people(num_bytes, text):
    assert format_bytes(num_bytes) == text


def test_counts_for_people():
    assert [plural(0, "file"), plural(1, "file"), plural(1200, "file")] == ["0 files", "1 file", "1,200 files"]


@pytest.mark.parametrize(
    ("text", "num_bad", "num_read", "allowed"),
    [
        ("0", 0, 10, True),
        ("0", 1, 10, False),
        ("10", 10, 10, True),
        ("10", 11, 1000, False),
        ("50%", 5, 10, True),
        ("50%", 6, 10, False),
        ("0.5%", 5, 1000, True),
        ("0.5%", 6, 1000, False),
        ("0%", 0, 10, True),
        ("0%", 1, 10, False),
        ("100%", 10, 10, True),
        ("1%", 0, 0, True),
    ],
)
def test_budgets(text, num_bad, num_read, allowed):
    assert Budget.parse(text).allows(num_bad, num_read) is allowed


def test_a_count_is_settled_while_reading_and_a_percentage_at_the_end():
    assert not Budget.parse("2").allows_so_far(3)
    assert Budget.parse("2").allows_so_far(2)
    assert Budget.parse("1%").allows_so_far(10**9)


def test_the_default_budget_is_none_at_all():
    assert Budget().allows(0, 5) and not Budget().allows(1, 10**9)
    assert not Budget().allows_so_far(1)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "101%", "%", "1 %", "1%%", "ten", "1e3"])
def test_what_is_no_budget_is_wrong_use_that_names_the_flag(text, one_sentence):
    with pytest.raises(UsageError) as caught:
        Budget.parse(text)
    assert "--max-bad" in one_sentence(caught.value)


def test_budgets_are_shown_as_written():
    assert [str(Budget.parse(text)) for text in ("0", "12", "0.5%", "50%")] == ["0", "12", "0.5%", "50%"]

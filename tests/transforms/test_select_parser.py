"""What ``--where`` takes and refuses; stops an expression that means something else than it says, and an error without its place.

Random expressions are judged by Python itself: each is written twice, as ``--where`` has it and as a Python expression.
"""

import random
from typing import Any

import pytest

from shardtools.errors import UsageError
from shardtools.transforms._where_parse import parse_where


def holds(where: str, record: dict[str, Any]) -> bool:
    """Whether the expression takes a record of plain names."""
    expression = parse_where(where)
    names = sorted(expression.names)
    return expression.test(names)([record.get(name) for name in names])


@pytest.mark.parametrize(
    ("where", "taken", "left"),
    [
        ("a = 3", {"a": 3}, {"a": 4}),
        ("a == 3.0", {"a": 3}, {"a": 3.5}),
        ("a=true", {"a": 1}, {"a": 0}),
        ("a = 1", {"a": True}, {"a": "1"}),
        ("a != 'x'", {"a": "y"}, {"a": "x"}),
        ("a != 'x'", {"a": 3}, {}),
        ("a < 3", {"a": 2.5}, {"a": 3}),
        ("a <= -3", {"a": -3}, {"a": -2}),
        ("a > 9007199254740993", {"a": 9007199254740994}, {"a": 9007199254740992}),
        ("a >= 1.5e3", {"a": 1500}, {"a": 1499.9}),
        ("a > 'b'", {"a": "ba"}, {"a": "b"}),
        ("a in (1, 'x')", {"a": "x"}, {"a": "1"}),
        ("a not in (1, 2)", {"a": 3}, {}),
        ("a contains 'ell'", {"a": "hello"}, {"a": "halo"}),
        ("a contains 2", {"a": [1, 2]}, {"a": []}),
        ("a not contains 'ell'", {"a": "halo"}, {}),
        ("a startswith 'he'", {"a": "hello"}, {"a": "ahe"}),
        ("a not startswith 'he'", {"a": ""}, {"a": "he"}),
        ("a is null", {}, {"a": 0}),
        ("a is not null", {"a": ""}, {"a": None}),
        ("a = 'it''s'", {"a": "it's"}, {"a": "it''s"}),
        ('a = "say ""x"" \\ \'"', {"a": 'say "x" \\ \''}, {"a": "say x"}),
        ("a = '日本'", {"a": "日本"}, {"a": "日"}),
        ("größe > 1", {"größe": 2}, {"größe": 1}),
        ("`in` = 1", {"in": 1}, {"in": 2}),
        ("`a b`=1", {"a b": 1}, {"a b": None}),
        ("a-b > 1 AND IN_ = 2", {"a-b": 2, "IN_": 2}, {"a-b": 2, "IN_": 3}),
        # `or` binds least, `not` most.
        ("a = 1 or b = 1 and c = 1", {"a": 1}, {"b": 1}),
        ("(a = 1 or b = 1) and c = 1", {"b": 1, "c": 1}, {"a": 1}),
        ("not a = 1 or b = 1", {"a": 2}, {"a": 1, "b": 2}),
        ("not (a = 1 or b = 1)", {}, {"b": 1}),
        ("not not a = 1", {"a": 1}, {"a": 2}),
        # What decides comes first: a comparison behind it that could not be made is not made.
        ("k = 'n' and a > 1", {"k": "n", "a": 2}, {"k": "t", "a": "x"}),
        ("k = 't' or a > 1", {"k": "t", "a": "x"}, {"k": "n", "a": 1}),
    ],
)
def test_an_expression_takes_what_it_says(where: str, taken: dict[str, Any], left: dict[str, Any]) -> None:
    assert holds(where, taken)
    assert not holds(where, left)


@pytest.mark.parametrize(
    "operator", ["= 1", "!= 1", "< 1", "<= 1", "> 1", ">= 1", "in (1)", "not in (1)", "contains 'x'", "startswith 'x'"]
)
def test_no_comparison_takes_a_sample_without_the_field(operator: str) -> None:
    assert not holds(f"a {operator}", {"a": None})
    assert holds(f"not a {operator}", {})


@pytest.mark.parametrize(
    ("where", "position", "wanted", "got"),
    [
        ("", 1, "the name of a field", "the end"),
        ("  ", 3, "the name of a field", "the end"),
        ("a", 2, "a comparison", "the end"),
        ("a >", 4, "a value", "the end"),
        ("a > b", 5, "a value", "'b'"),
        ("a = null", 5, "nothing equals null, write FIELD is null", "null"),
        ("a = 1 b = 2", 7, "and, or, or the end", "'b'"),
        ("3 < a", 1, "the name of a field", "3"),
        ("a = 'x", 5, "a closing '", "none"),
        ("a = `x", 5, "a closing `", "none"),
        ("(a = 1", 7, "a closing )", "the end"),
        ("a = 1)", 6, "and, or, or the end", ")"),
        ("a in 1", 6, "( and the values", "1"),
        ("a in ()", 7, "a value", ")"),
        ("a in (1 2)", 9, "a closing )", "2"),
        ("a is 3", 6, "null", "3"),
        ("a not = 3", 7, "in, contains or startswith", "="),
        ("a startswith 3", 14, "text in quotes", "3"),
        ("a = 1 and", 10, "the name of a field", "the end"),
        ("a ~ 1", 3, "a field, a value or a comparison", "~"),
        ("a; drop", 2, "a field, a value or a comparison", ";"),
        ("a > 1e999", 5, "numbers that a float can hold", "1e999"),
        ("and = 1", 1, "the name of a field", "and"),
        ("a = " + "9" * 401, 5, "numbers of at most 400 characters", "401"),
        ("not " * 60 + "a = 1", 201, "at most 50 brackets and nots", "not"),
        ("(" * 5000 + "a = 1", 51, "at most 50 brackets and nots", "("),
    ],
)
def test_a_slip_is_named_with_its_place(where: str, position: int, wanted: str, got: str, one_sentence: Any) -> None:
    with pytest.raises(UsageError) as caught:
        parse_where(where)
    sentence = one_sentence(caught.value)
    assert sentence.startswith("expected --where with ")
    assert f" at character {position}, got {got}" in sentence
    assert wanted in sentence


def test_blanks_case_and_brackets_do_not_matter() -> None:
    spellings = [
        "lang='en' AND (score>=.5 or not (tags contains \"x\"))",
        '  ((lang == "en")) and ( score >= 5e-1 OR NOT tags contains "x")  ',
    ]
    assert {parse_where(one).text for one in spellings} == {'lang == "en" and (score >= 0.5 or not tags contains "x")'}
    assert parse_where("a>1.0").text == parse_where("a > 1").text == "a > 1"


_NAMES = ("a", "b.c", "lang", "a b", "in")
_VALUES: tuple[Any, ...] = (0, 1, -3, 2.5, True, False, "", "x", "x'y", 'say "x"', "日本", "null")
_ORDERS = ("==", "!=", "<", "<=", ">", ">=")


class RefusedError(Exception):
    """Python's answer where two kinds of values cannot be ordered."""


def ordered(operator: str, value: Any, other: Any) -> bool:
    if operator in ("==", "!="):
        return (value == other) == (operator == "==")
    if isinstance(value, str) != isinstance(other, str):
        raise RefusedError
    return bool({"<": value < other, "<=": value <= other, ">": value > other, ">=": value >= other}[operator])


def written(value: Any, numbers: random.Random) -> str:
    if isinstance(value, bool):
        return numbers.choice([str(value), str(value).lower(), str(value).upper()])
    if isinstance(value, str):
        quote = numbers.choice("'\"")
        return quote + value.replace(quote, quote * 2) + quote
    return repr(value)


def grown(numbers: random.Random, depth: int) -> tuple[str, Any]:
    """A random expression as text, and a function of a record that says what it is worth."""
    kind = numbers.randrange(4 if depth else 1)
    if kind == 0:
        return leaf(numbers)
    if kind == 1:
        text, inner = grown(numbers, depth - 1)
        return f"not ({text})", lambda record: not inner(record)
    parts = [grown(numbers, depth - 1) for _ in range(numbers.randrange(2, 4))]
    word, decide = ("and", all) if kind == 2 else ("or", any)
    blank = numbers.choice([" ", "  ", "\n", "\t "])
    return f"{blank}{word}{blank}".join(f"({text})" for text, _ in parts), lambda record: decide(part(record) for _, part in parts)


def leaf(numbers: random.Random) -> tuple[str, Any]:
    name, value = numbers.choice(_NAMES), numbers.choice(_VALUES)
    typed = name if name not in ("a b", "in") and numbers.random() < 0.8 else f"`{name}`"
    kind = numbers.randrange(4)
    if kind == 0:
        operator = numbers.choice(_ORDERS)
        return (
            f"{typed}{operator}{written(value, numbers)}",
            lambda record: record[name] is not None and ordered(operator, record[name], value),
        )
    if kind == 1:
        others = [numbers.choice(_VALUES) for _ in range(numbers.randrange(1, 4))]
        shown = ",".join(written(other, numbers) for other in others)
        turned = numbers.random() < 0.5
        word = "not in" if turned else "IN"
        return f"{typed} {word}({shown})", lambda record: record[name] is not None and (record[name] in others) != turned
    if kind == 2:
        return f"{typed} is null", lambda record: record[name] is None
    return f"{typed} is not null", lambda record: record[name] is not None


def test_random_expressions_mean_what_python_says() -> None:
    from shardtools.transforms._where_tests import MisfitError

    seed = random.randrange(2**32)
    print("seed", seed)
    numbers = random.Random(seed)
    num_taken = num_refused = 0
    for _ in range(1500):
        text, expected = grown(numbers, numbers.randrange(4))
        expression = parse_where(text)
        again = parse_where(expression.text)
        assert again == expression or again.text == expression.text, (text, expression.text)
        names = sorted(expression.names)
        for _ in range(4):
            record = {name: numbers.choice([*_VALUES, None]) for name in _NAMES}
            row = [record[name] for name in names]
            try:
                wanted = expected(record)
            except RefusedError:
                num_refused += 1
                with pytest.raises(MisfitError):
                    again.test(names)(row)
                continue
            assert expression.test(names)(row) == again.test(names)(row) == wanted, (text, record)
            num_taken += wanted
    assert num_taken > 1000
    assert num_refused > 100


def test_random_text_is_refused_in_one_sentence(one_sentence: Any) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    numbers = random.Random(seed)
    pieces = [
        "a",
        "(",
        ")",
        "and",
        "or",
        "not",
        "in",
        "is",
        "null",
        "=",
        "<",
        "'x'",
        '"',
        "1",
        "1.5.2",
        ",",
        "`",
        "`b c`",
        "日",
        "\\",
        "\0",
        ".",
    ]
    for _ in range(1500):
        text = numbers.choice(["", " "]).join(numbers.choices(pieces, k=numbers.randrange(1, 9)))
        try:
            parse_where(text)
        except UsageError as error:
            one_sentence(error)

"""The text by which groups are told apart; stops one group from being two because its number was written in another way."""

from typing import Any

import pytest

from shardtools.selection import canonical_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("ann", b'"ann"'),
        ('a "b" \n', b'"a \\"b\\" \\n"'),
        ("日本", b'"\\u65e5\\u672c"'),
        (7, b"7"),
        (7.0, b"7"),
        (-0.0, b"0"),
        (True, b"1"),
        (2.5, b"2.5"),
        (2**70, b"1180591620717411303424"),
        ("7", b'"7"'),
        (b"a\xff", b'"a\\u00ff"'),
        ({"bytes": b"a", "path": None}, b'{"bytes":"a","path":null}'),
        ([1, 2.0, None], b"[1,2,null]"),
        ({"b": True, "a": {"d": 1, "c": []}}, b'{"a":{"c":[],"d":1},"b":1}'),
    ],
)
def test_a_value_has_one_text(value: Any, text: bytes) -> None:
    assert canonical_text(value) == text

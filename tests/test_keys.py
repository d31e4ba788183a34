"""Stops two sources from sharing a key by accident, and keys that some reader would take for something else."""

import hashlib
import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardtools.keys import escape_key, fold_key, folded_keys, is_legal_field, unescape_key

LEGAL = re.compile(rb"[A-Za-z0-9=][A-Za-z0-9_=-]*(/[A-Za-z0-9=][A-Za-z0-9_=-]*)*")
RAW = st.binary(min_size=1, max_size=120)
# Few letters, so that near misses are met often.
TIGHT = st.text(alphabet="aA=/_-.4x\n", min_size=1, max_size=90).map(str.encode)


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        (b"a", b"a"),
        (b"dir/sub/x_1-2", b"dir/sub/x_1-2"),
        (b"a.b", b"a=2Eb"),
        (b"a=b", b"a=3Db"),
        (b"a=2Eb", b"a=3D2Eb"),
        (b"_a", b"=5Fa"),
        (b"a/_b/-c", b"a/=5Fb/=2Dc"),
        (b"/a", b"=2Fa"),
        (b"a/", b"a=2F"),
        (b"a//b", b"a/=2Fb"),
        (b"a///b", b"a/=2F=2Fb"),
        (b"/", b"=2F"),
        (b".", b"=2E"),
        (b"..", b"=2E=2E"),
        (b"a/../b", b"a/=2E=2E/b"),
        (b"a\nb", b"a=0Ab"),
        (b"a/\n", b"a/=0A"),
        (b"a\n", b"a=0A"),
        (b"\x00\xff", b"=00=FF"),
        ("é".encode(), b"=C3=A9"),
        (b"a b", b"a=20b"),
        (b"k" * 80, b"k" * 80),
    ],
)
def test_names_are_escaped_like_this(raw, key):
    assert escape_key(raw) == key


@given(RAW | TIGHT)
@example(b"a/\n")
@example(b"." * 81)
@example(b"/" * 200)
def test_any_bytes_give_a_legal_key_of_at_most_80_bytes(raw):
    key = escape_key(raw)
    assert LEGAL.fullmatch(key), key
    assert len(key) <= 80


@given(RAW | TIGHT, RAW | TIGHT)
def test_different_names_have_different_keys(one, two):
    assert (escape_key(one) == escape_key(two)) == (one == two)


@given(TIGHT, st.integers(0, 88), st.sampled_from([b"a", b"/", b"=", b"_", b".", b"\n"]))
def test_names_that_differ_in_one_byte_have_different_keys(raw, at, byte):
    other = raw[:at] + byte + raw[at + 1 :]
    assert (escape_key(other) == escape_key(raw)) == (other == raw)


@given(RAW | TIGHT)
def test_a_key_that_was_not_shortened_gives_the_name_back(raw):
    key = escape_key(raw)
    if b"=x" not in key:
        assert unescape_key(key) == raw


@given(RAW | TIGHT)
def test_a_key_of_a_key_is_another_key_unless_it_was_plain(raw):
    """A key with an escape in it, met as a file name, is a name of its own."""
    key = escape_key(raw)
    assert (escape_key(key) == key) == (b"=" not in key)


def test_a_long_name_ends_in_its_digest():
    raw = b"folder/" + b"n" * 200
    digest = hashlib.blake2b(raw, digest_size=16).hexdigest().encode()
    assert escape_key(raw) == b"folder/" + b"n" * 39 + b"=x" + digest
    assert len(escape_key(raw)) == 80


@pytest.mark.parametrize("lead", range(40, 48))
def test_a_long_name_is_not_cut_inside_an_escape(lead):
    key = escape_key(b"n" * lead + b"." * 40)
    head, mark, digest = key.partition(b"=x")
    assert mark and re.fullmatch(rb"[0-9a-f]{32}", digest)
    assert re.fullmatch(rb"n*(=2E)*", head)


def test_a_long_name_is_not_cut_after_a_slash():
    key = escape_key(b"n" * 45 + b"/" + b"m" * 100)
    assert key.startswith(b"n" * 45 + b"=x")


def test_a_name_of_80_bytes_passes_and_of_81_is_shortened():
    assert escape_key(b"n" * 80) == b"n" * 80
    assert b"=x" in escape_key(b"n" * 81)
    assert escape_key(b"." * 26) == b"=2E" * 26
    assert b"=x" in escape_key(b"." * 27)


@pytest.mark.parametrize(
    ("key", "folded"),
    [
        (b"a/b_c-1", None),
        (b"A", b"a"),
        (b"=C3=89", "é".encode()),
        (b"E=CC=81", "é".encode()),
        (b"e=CC=81", "é".encode()),
        (b"=C3=9F", b"ss"),
        (b"=FF", b"\xff"),
    ],
)
def test_keys_fold_like_this(key, folded):
    assert fold_key(key) == folded


@given(st.text(min_size=1, max_size=10))
def test_names_a_folding_file_system_would_merge_fold_alike(text):
    forms = {
        form.encode("utf-8", "surrogatepass") for form in (text, unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text))
    }
    keys = {escape_key(raw) for raw in forms}
    if all(b"=x" not in key for key in keys):
        assert len({fold_key(key) or key for key in keys}) == 1


@pytest.mark.parametrize("name", ["jpg", "seg.png", "a_b", "0", "1x.2y", "a_"])
def test_fields_every_reader_takes(name):
    assert is_legal_field(name)


@pytest.mark.parametrize("name", ["", "JPG", "_a", ".a", "a.", "a..b", "a._b", "a-b", "a b", "é", "a/b", "a\n", "__key__"])
def test_fields_some_reader_does_not_take(name):
    assert not is_legal_field(name)


def test_only_keys_that_fold_are_folded() -> None:
    assert folded_keys([b"a/1", b"b-2"]) == []
    assert folded_keys([b"a/1", b"B/2", b"c=41"]) == [b"b/2", b"ca"]

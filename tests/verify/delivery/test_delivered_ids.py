"""Ids are found in whatever a reader delivers; stops a sound reader from being accused because its items have another shape."""

from collections import namedtuple
from dataclasses import dataclass

import pytest

from shardtools.verify.delivery._ids import MisuseError, ids_finder

Row = namedtuple("Row", ["key", "image"])


@dataclass
class Item:
    id: int


@pytest.mark.parametrize(
    ("item", "ids"),
    [
        ({"__key__": "a", "key": "other"}, ["a"]),
        ({"key": b"a\xff"}, ["a\udcff"]),
        ({"id": 7}, ["7"]),
        ({"__key__": ["a", "b"], "txt": [b"x", b"y"]}, ["a", "b"]),
        ({"key": ("a", "b")}, ["a", "b"]),
        ({"key": None, "id": 3}, ["3"]),
        ([{"key": "a"}, {"key": "b"}], ["a", "b"]),
        (({"image": b"x"}, {"key": "a"}), ["a"]),
        ((b"image", 3, {"__key__": "a"}), ["a"]),
        (({"key": "a", "view": 0}, {"key": "a", "view": 1}), ["a"]),
        ([b"images", {"__key__": ["a", "b"]}], ["a", "b"]),
        (Row("a", b"x"), ["a"]),
        ([Row("a", b"x"), Row("b", b"x")], ["a", "b"]),
        (Item(9), ["9"]),
        ([], []),
    ],
)
def test_ids_by_name(item, ids):
    assert ids_finder(None)(item) == ids


@pytest.mark.train
def test_tensors_and_arrays_of_numbers():
    torch = pytest.importorskip("torch", reason="torch is not installed: the extra `train` has it")
    assert ids_finder(None)({"id": torch.tensor([3, 4])}) == ["3", "4"]
    assert ids_finder(None)({"id": torch.tensor(5)}) == ["5"]
    assert ids_finder(None)({"key": torch.arange(2).numpy()}) == ["0", "1"]


def test_the_key_column_of_the_dataset_goes_first():
    assert ids_finder(None, ("uid", "key"))({"uid": "a", "key": "b"}) == ["a"]


@pytest.mark.parametrize(
    ("item", "got"),
    [
        ({"txt": b"x", "json": b"{}"}, "a dict with txt, json"),
        (b"bytes", "a bytes"),
        ((b"x", 3), "a tuple of 2 that begins with a bytes"),
        ({"id": 0.5}, "a dict with id"),
        (({"key": "a"}, {"key": "b"}), "a tuple of 2 that begins with a dict with key"),
    ],
)
def test_without_an_id_the_item_is_described(item, got):
    with pytest.raises(MisuseError) as refused:
        ids_finder(None)(item)
    assert str(refused.value) == f"expected __key__, key or id in each item, got {got}; name a function that finds the id with --id"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nothing", "expected --id as pkg.mod:name, got 'nothing'"),
        ("not a module:f", "expected --id as pkg.mod:name, got 'not a module:f'"),
        ("no_such_module:f", "expected to import no_such_module for --id, got ModuleNotFoundError: No module named 'no_such_module'"),
        ("json:nothing", "expected a function nothing in json for --id, got none"),
        ("json:decoder", "expected a function decoder in json for --id, got one that is a module"),
    ],
)
def test_a_function_that_is_not_there(name, sentence):
    with pytest.raises(MisuseError) as refused:
        ids_finder(name)
    assert str(refused.value).startswith(sentence)


def test_what_the_users_function_returns():
    assert ids_finder("os.path:basename")("folder/a") == ["a"]
    assert ids_finder("copy:copy")(["a", 3]) == ["a", "3"]
    with pytest.raises(MisuseError) as refused:
        ids_finder("copy:copy")({"x": 1})
    assert str(refused.value) == "expected text, a whole number or a list of them from copy:copy, got a dict with x"

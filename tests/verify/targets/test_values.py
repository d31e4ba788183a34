"""What Hugging Face `datasets` makes of values and fields; stops a lint that looks at the first samples only, as the loader does."""

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

D, C, X = "target-drops", "target-changes", "target-rejects"
FIVE = 5


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def after_five(first, later):
    return [first] * FIVE + [later]


# JSON values of six or more samples, and the kinds found.
JSON = {
    "one type": (after_five({"a": 1}, {"a": 2}), []),
    "null and text among the first five": ([{"a": None}, *([{"a": "x"}] * 5)], []),
    "null, then text": (after_five({"a": None}, {"a": "x"}), [X]),
    "null in a list, then text": (after_five({"a": []}, {"a": ["x"]}), [X]),
    "int and float among the first five": ([{"a": 1}, {"a": 1.5}, *([{"a": 1}] * 4)], [X]),
    "names that differ among the first five": ([{"a": 1}, {"a": 1, "b": 2}, *([{"a": 1}] * 4)], []),
    "int, then float": (after_five({"a": 1}, {"a": 1.5}), [C]),
    "int, then a whole float": (after_five({"a": 1}, {"a": 2.0}), []),
    "float, then int": (after_five({"a": 1.5}, {"a": 2}), []),
    "int, then text": (after_five({"a": 1}, {"a": "x"}), [X]),
    "text, then int": (after_five({"a": "x"}, {"a": 7}), [C]),
    "text, then bool": (after_five({"a": "x"}, {"a": True}), [C]),
    "text, then a list": (after_five({"a": "x"}, {"a": ["x"]}), [C]),
    "bool, then int": (after_five({"a": True}, {"a": 7}), [C]),
    "int, then bool": (after_five({"a": 3}, {"a": True}), [C]),
    "an object, then text": (after_five({"a": {"x": 1}}, {"a": "x"}), [X]),
    "lists of int, then of float": (after_five({"a": [1]}, {"a": [1.5]}), [C]),
    "int and text in one list": ([{"a": [1, "x"]}] * 6, [X]),
    "int and float in one list": ([{"a": [1, 1.5]}] * 6, []),
    "objects of two shapes in one list": ([{"a": [{"x": 1}, {"y": 1}]}] * 6, []),
    "an empty object, then one": (after_five({"a": {}}, {"a": {"x": 1}}), [D]),
    "a name that comes later": (after_five({"a": 1}, {"a": 1, "b": 2}), [D]),
    "a name that is gone later": (after_five({"a": 1, "b": 2}, {"a": 1}), []),
    "null later": (after_five({"a": 1}, {"a": None}), []),
    "nothing but null later": (after_five({"a": 1}, None), []),
    "a number, then text": (after_five(1, "x"), [X]),
    "an object, then a list": (after_five({"a": 1}, [2]), [X]),
    "a number above 64 bits": ([{"a": 2**70}] * 6, [X]),
    "a number above 64 bits later": (after_five({"a": 1}, {"a": 2**70}), [X]),
}

# Values of other fields.
OTHER = {
    "text that is no UTF-8": ("txt", [b"\xff"] * 6, [X]),
    "a class 1.0": ("cls", [b"1.0"] * 6, [X]),
    "a class and a line end": ("cls", [b"1\n"] * 6, []),
    "no JSON": ("json", [b"{"] * 6, [X]),
    "pickled arrays": ("npy", [npy(np.array([{}], object))] * 6, [X]),
    "arrays": ("npy", [npy(np.arange(3))] * 6, []),
    "pickles": ("pkl", [b"cos\nsystem\n"] * 6, []),
    "compressed JSON": ("json.gz", [gzip.compress(b'{"a": 1}')] * 6, [C]),
    "JSON in capitals": ("JSON", [b'{"a": 1}'] * 6, [D]),
}


def members(field, values):
    return [(f"s{i:03d}.{field}", value) for i, value in enumerate(values)]


def dumped(values):
    return [json.dumps(value).encode() for value in values]


@pytest.mark.parametrize("case", JSON)
def test_json(shard, kinds_of, case):
    values, expected = JSON[case]
    assert kinds_of(shard(members("json", dumped(values))), "hf") == expected


@pytest.mark.parametrize("case", OTHER)
def test_values_of_other_fields(shard, kinds_of, case):
    field, values, expected = OTHER[case]
    assert kinds_of(shard(members(field, values)), "hf") == expected


def test_a_value_at_the_end_of_many_is_seen(shard, lint):
    folder = shard(members("json", dumped([{"a": 1}] * 2000 + [{"a": 1.5}])))
    (found,) = lint(folder, "hf")
    assert (found.kind, found.key) == (C, "s2000")
    assert "got 1 member of JSON" in found.detail


# Fields: each sample is the list of its fields.
FIELDS = {
    "other fields among the first five": ([["a"], ["a", "b"], ["a"]], [X]),
    "a field that comes later": ([["a"]] * 5 + [["a", "b"]], [D]),
    "a field that is gone later": ([["a", "b"]] * 5 + [["a"]], []),
    "the same field twice": ([["a"], ["a", "a"]], [X]),
}


@pytest.mark.parametrize("case", FIELDS)
def test_fields(shard, kinds_of, case):
    samples, expected = FIELDS[case]
    names = [f"s{i}.{field}" for i, fields in enumerate(samples) for field in fields]
    assert kinds_of(shard(names), "hf") == expected


def test_fields_of_other_shards(shard, kinds_of):
    """The types are those of the first shard; rows of another with other fields come out empty."""
    shard(["a.x", "b.x"])
    assert kinds_of(shard(["c.y"], "train-1.tar"), "hf") == [D]


def test_splits_of_other_types(shard, kinds_of):
    shard(members("json", dumped([{"a": 1}])), "train-0.tar")
    assert kinds_of(shard(members("json", dumped([{"a": "x"}])), "validation-0.tar"), "hf") == [X]


def test_a_first_shard_without_a_sample(shard, kinds_of):
    shard([])
    assert kinds_of(shard(["a.x"], "train-1.tar"), "hf") == [X]
    assert kinds_of(shard(["a.x"], "train-0.tar", folder="other"), "hf") == []
    shard(["a.x"], "train-0.tar", folder="third")
    assert kinds_of(shard([], "train-1.tar", folder="third"), "hf") == []


def test_files_beside_shards_that_are_taken_for_shards(shard, kinds_of):
    """Energon's index beside a tar breaks the folder loader."""
    folder = shard(["a.x"])
    for name in ("stats.json", "README.md", ".train-0.tar.swp"):
        (folder / name).write_text("x")
    assert kinds_of(folder, "hf") == []
    (folder / "train-0.tar.idx").write_bytes(b"x")
    assert kinds_of(folder, "hf") == [X]
    assert kinds_of(f"{folder}/*.tar", "hf") == [X]
    assert kinds_of(folder, "webdataset") == []


READ = """
import json, sys
import datasets
datasets.disable_progress_bars()
out = []
for folder, field in json.loads(sys.stdin.read()):
    try:
        rows = list(datasets.load_dataset(folder, split="train", cache_dir=folder + ".cache"))
        out.append([row.get(field) for row in rows])
    except Exception as error:
        out.append(type(error).__name__)
print(json.dumps(out, default=repr))
"""
PACKAGE = "datasets==5.2.0"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_loader_itself(shard, tmp_path: Path):
    """It stops where ``target-rejects`` is found, and gives other values where ``target-changes`` or ``target-drops`` is."""
    python = tmp_path / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    installed = subprocess.run([str(python), "-m", "pip", "install", "--quiet", PACKAGE], capture_output=True, text=True)
    if installed.returncode:
        pytest.skip(f"could not install {PACKAGE}: {installed.stderr.splitlines()[-1:]}")
    cases = [
        (values, expected, str(shard(members("json", dumped(values)), folder=f"case{i}")))
        for i, (values, expected) in enumerate(JSON.values())
    ]
    asked = json.dumps([[folder, "json"] for _, _, folder in cases])
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([str(python), "-c", READ], input=asked, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    for (values, expected, _), result in zip(cases, json.loads(done.stdout.splitlines()[-1]), strict=True):
        if expected == [X]:
            assert isinstance(result, str), (values, result)
        else:
            is_kept = all(without_none(got) == without_none(value) for got, value in zip(result, values, strict=True))
            # Python compares True and 1, and 1 and 1.0, as equal: their text does not.
            is_kept = is_kept and (expected != [C] or json.dumps(result) == json.dumps(values))
            assert is_kept == (expected == []), (values, result)


def without_none(value):
    """A row without the names that are there for other rows alone."""
    if isinstance(value, dict):
        return {name: without_none(inner) for name, inner in value.items() if inner is not None}
    return [without_none(inner) for inner in value] if isinstance(value, list) else value

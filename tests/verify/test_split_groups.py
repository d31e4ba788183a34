"""Groups and documents stay in one split each. Stops an author, or half a document, on both sides of an evaluation."""

import json
import random
from pathlib import Path

import pytest
from split_datasets import SHARES, expected_split, pack_splits

from shardtools.build.order import OrderWords, order_of
from shardtools.build.run import build
from shardtools.datasets import open_dataset
from shardtools.selection import Selection
from shardtools.sources import resolve_inputs
from shardtools.verify import VerifyOptions, verify


@pytest.fixture
def records(tmp_path) -> Path:
    numbers = random.Random(4)
    lines = []
    for i in range(60):
        group = numbers.choice(["ann", "bob", "eve", 7, 7.0, 2.5, None, {"of": [1, 2]}, ""])
        lines.append(json.dumps({"id": i, "user": {"name": group, "n": i}, "text": "t" * i}))
    (tmp_path / "docs.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path / "docs.jsonl"


def found(folder: Path) -> list[str]:
    return [finding.kind for finding in verify(str(folder), VerifyOptions(workers=1)).findings]


def straddling(self: Selection, names: list[bytes]) -> list[str]:
    """A rule that no group can keep to."""
    return [self.splits[i % len(self.splits)] for i in range(len(names))]


def by_hand(record: dict, key: str) -> str:
    name = record["user"]["name"]
    text = {"ann": '"ann"', "bob": '"bob"', "eve": '"eve"', 7: "7", 2.5: "2.5", "": '""'}.get(name if not isinstance(name, dict) else -1)
    return expected_split(key if name is None else '{"of":[1,2]}' if isinstance(name, dict) else str(text))


@pytest.mark.parametrize("to", ["wds", "mds"])
def test_groups_are_told_by_what_is_stored(records, tmp_path, to):
    pack_splits(records, tmp_path / "out", to, group_by="user.name")
    verdict = verify(str(tmp_path / "out"), VerifyOptions(workers=1))
    assert [str(finding) for finding in verdict.findings] == []
    assert any(sentence.startswith("Every sample is in the split that its group gives it: train ") for sentence in verdict.proved())
    lines = records.read_text().splitlines()
    dataset = open_dataset(str(tmp_path / "out"))
    num_checked = 0
    for shard, sample in dataset.all_samples():
        begin = int(sample.key.rpartition("/")[2])
        record = json.loads(records.read_bytes()[begin:].split(b"\n")[0])
        assert shard.split == by_hand(record, sample.key)
        num_checked += 1
    assert num_checked == len(lines)


@pytest.mark.parametrize("to", ["wds", "mds"])
def test_groups_that_straddle_are_found(records, tmp_path, monkeypatch, to):
    with monkeypatch.context() as patch:
        patch.setattr(Selection, "split_of", straddling)
        pack_splits(records, tmp_path / "out", to, group_by="user.name")
    kinds = found(tmp_path / "out")
    assert set(kinds) == {"wrong-split"} and len(kinds) > 10


def test_a_group_that_is_not_stored_is_not_called_checked(records, tmp_path):
    inputs = resolve_inputs([str(records)])
    words = OrderWords(
        "mds", source_options={"map": "txt=text"}, select_options={"split": SHARES, "group_by": "user.name"}, shard_samples=9
    )
    build(inputs, str(tmp_path / "out"), order_of(inputs, words))
    verdict = verify(str(tmp_path / "out"), VerifyOptions(workers=1))
    assert verdict.is_sound
    assert "that samples are in the splits that their groups (user.name) give them" in verdict.closing()


def test_a_mapped_field_is_found_under_its_own_name(records, tmp_path, monkeypatch):
    inputs = resolve_inputs([str(records)])
    words = OrderWords("mds", source_options={"map": "a=user,user=text"}, select_options={"split": SHARES, "group_by": "user.name"})
    build(inputs, str(tmp_path / "out"), order_of(inputs, words))
    verdict = verify(str(tmp_path / "out"), VerifyOptions(workers=1))
    assert [str(finding) for finding in verdict.findings] == []
    assert any("its group gives it" in sentence for sentence in verdict.proved())
    with monkeypatch.context() as patch:
        patch.setattr(Selection, "split_of", straddling)
        inputs = resolve_inputs([str(records)])
        build(inputs, str(tmp_path / "bad"), order_of(inputs, words))
    assert set(found(tmp_path / "bad")) == {"wrong-split"}


def pack_group(source: Path, out: Path, to: str, group: str) -> None:
    inputs = resolve_inputs([str(source)])
    build(inputs, str(out), order_of(inputs, OrderWords(to, select_options={"split": SHARES, "group_by": group}, shard_samples=8)))


@pytest.mark.parametrize("to", ["wds", "mds"])
@pytest.mark.parametrize(("group", "is_told"), [("name", True), ("user.of", True), ("half", False)])
def test_groups_of_tables(tmp_path, monkeypatch, to, group, is_told):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    numbers = random.Random(5)
    columns = {
        "name": [numbers.choice(["ann", "bob", None]) for _ in range(40)],
        "user": [{"of": numbers.choice("xyz")} for _ in range(40)],
        "half": pa.array([numbers.choice([0.1, 0.2]) for _ in range(40)], pa.float32()),
    }
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    pack_group(tmp_path / "t.parquet", tmp_path / "out", to, group)
    verdict = verify(str(tmp_path / "out"), VerifyOptions(workers=1))
    assert [str(finding) for finding in verdict.findings] == []
    assert any("its group gives it" in sentence for sentence in verdict.proved()) == is_told
    with monkeypatch.context() as patch:
        patch.setattr(Selection, "split_of", straddling)
        pack_group(tmp_path / "t.parquet", tmp_path / "bad", to, group)
    assert set(found(tmp_path / "bad")) == ({"wrong-split"} if is_told else set())


@pytest.mark.parametrize("to", ["wds", "mds"])
def test_groups_in_json_files(tree, tmp_path, monkeypatch, to):
    files = {f"{i:02d}.json": json.dumps({"by": {"name": "abcd"[i % 4]}}).encode() for i in range(40)}
    source = tree(files | {f"{i:02d}.txt": b"%d" % i for i in range(40)})
    pack_group(source, tmp_path / "out", to, "by.name")
    verdict = verify(str(tmp_path / "out"), VerifyOptions(workers=1))
    assert [str(finding) for finding in verdict.findings] == []
    assert any("its group gives it" in sentence for sentence in verdict.proved())
    with monkeypatch.context() as patch:
        patch.setattr(Selection, "split_of", straddling)
        pack_group(source, tmp_path / "bad", to, "by.name")
    assert set(found(tmp_path / "bad")) == {"wrong-split"}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> str:
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("tokenizer")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    one = Tokenizer(models.BPE({letter: i for i, letter in enumerate(["<|endoftext|>", *alphabet])}, []))
    one.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    one.save(str(folder / "tokenizer.json"))
    return str(folder)


def pack_tokens(records: Path, out: Path, tokenizer: str, **words: str) -> None:
    options = {"tokenizer": tokenizer, "backend": "hf", "seq_len": "32", **words}
    inputs = resolve_inputs([str(records)])
    order = order_of(inputs, OrderWords("mds", token_options=options, select_options={"split": "train=0.7,val=0.3"}, shard_samples=8))
    build(inputs, str(out), order)


@pytest.mark.parametrize("words", [{"doc_ids": ""}, {"doc_ids": "", "packing": "concat"}, {"packing": "none", "long_docs": "truncate"}])
def test_rows_hold_documents_of_their_split_alone(records, tmp_path, tokenizer, words):
    pack_tokens(records, tmp_path / "out", tokenizer, **words)
    verdict = verify(str(tmp_path / "out"), VerifyOptions(workers=1))
    assert [str(finding) for finding in verdict.findings] == []
    assert any("Every row is in the split that its" in sentence for sentence in verdict.proved())
    keys = {split: set() for split in ("train", "val")}
    dataset = open_dataset(str(tmp_path / "out"))
    for shard, sample in dataset.all_samples():
        ids = json.loads(bytes(sample.values["doc_ids"])) if "doc_ids" in words else [sample.key]
        keys[shard.split] |= {text.partition("@")[0] for text in ids}
    assert all(expected_split(key, "train=0.7,val=0.3") == split for split, names in keys.items() for key in names)
    assert min(map(len, keys.values())) > 5


def test_a_row_with_a_document_of_another_split_is_found(records, tmp_path, monkeypatch, tokenizer):
    real = Selection.split_of

    def split_of(self, names):
        return ["val" if i == 3 else split for i, split in enumerate(real(self, names))]

    with monkeypatch.context() as patch:
        patch.setattr(Selection, "split_of", split_of)
        pack_tokens(records, tmp_path / "out", tokenizer, doc_ids="")
    wrong = expected_split(f"docs/{sum(len(line) + 1 for line in records.read_text().splitlines()[:3]):012d}", "train=0.7,val=0.3")
    assert found(tmp_path / "out") == (["wrong-split"] if wrong == "train" else [])

"""What is lost, doubled, changed, put into another split or in another order, where samples are chosen, parted or permuted.

Each fault is another honest dataset that claims the plan of the right one: its shards and its own counts are sound.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from shardtools import partitions as partitions_module
from shardtools.verify import VerifyOptions, verify

NUM = 200
SPLIT = {"split": "train=0.7,val=0.3"}
WAYS: dict[str, dict[str, Any]] = {
    "shuffled": {"shuffle": True, "seed": 3},
    "in splits": {"select_options": SPLIT},
    "shuffled in splits": {"shuffle": True, "seed": 3, "select_options": SPLIT},
}
LEVEL_6 = ("missing-sample", "foreign-sample", "changed-sample", "changed-order", "changed-source", "ledger-open", "could-not-look")


@pytest.fixture(autouse=True)
def many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 2048)


def rows() -> list[dict[str, Any]]:
    return [{"id": f"r{i:04d}", "text": "ein Täxt " * (1 + i % 9), "n": i, "half": i // 2} for i in range(NUM)]


@pytest.fixture
def packed(records: Any, pack: Any) -> Callable[..., tuple[Path, Path]]:
    """The source as records were changed, and what was packed of it, keys by ``id``."""

    def make(name: str, change: Callable[[list[dict[str, Any]]], object] = lambda _: None, **words: Any) -> tuple[Path, Path]:
        values = rows()
        change(values)
        source = records(values, f"in-{name}/records.jsonl")
        return source, pack(source, "mds", name, **{"shard_samples": 9, "source_options": {"key": "id"}, **words})

    return make


@pytest.fixture
def found(packed: Any, claim: Any, against: Any) -> Callable[..., tuple[list[tuple[str, str | None]], Any]]:
    """What is found where a dataset, made in another way or of changed records, claims to be that of the recipe."""

    def look(words: dict[str, Any], forged: dict[str, Any] | None = None, change: Any = lambda _: None) -> Any:
        source, honest = packed("honest", **words)
        assert against(honest, source).seen == []
        _, other = packed("forged", change, **(words if forged is None else forged))
        claim(other, honest)
        seen = against(other, source)
        return [(kind, key) for kind, key in seen.seen if kind in LEVEL_6], seen

    return look


@pytest.mark.parametrize("way", WAYS)
def test_a_lost_sample_is_named(found: Any, way: str) -> None:
    seen, comparison = found(WAYS[way], change=lambda values: values.pop(17))
    assert ("missing-sample", "r0017") in seen and {kind for kind, _ in seen} <= {"missing-sample", "ledger-open"}
    assert comparison.proved.count("recipe was run again") == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_foreign_sample_is_named(found: Any, way: str) -> None:
    seen, _ = found(WAYS[way], change=lambda values: values.insert(90, {**values[90], "id": "other"}))
    assert ("foreign-sample", "other") in seen and {kind for kind, _ in seen} <= {"foreign-sample", "ledger-open"}


@pytest.mark.parametrize("way", WAYS)
def test_a_changed_sample_is_named_with_its_field(found: Any, way: str) -> None:
    seen, comparison = found(WAYS[way], change=lambda values: values[150].update(n=-1))
    assert seen == [("changed-sample", "r0150")]
    assert comparison.detail("changed-sample") == "field 'n': expected 150, got -1"


def test_samples_in_another_split_are_named_with_both(found: Any) -> None:
    seen, comparison = found(WAYS["in splits"], {"select_options": {"split": "train=0.69,val=0.31"}})
    assert seen and {kind for kind, _ in seen} == {"changed-sample"}
    details = {one.detail for one in comparison.verdict.findings if one.kind == "changed-sample"}
    assert details == {"expected it in the split train, got it in val"}


def test_a_group_in_two_splits_is_found(found: Any) -> None:
    """Each sample by itself, where the recipe says that groups stay together."""
    seen, comparison = found({"select_options": {**SPLIT, "group_by": "half"}}, {"select_options": SPLIT})
    assert len(seen) > 20 and {kind for kind, _ in seen} == {"changed-sample"}
    assert "expected it in the split" in next(one for one in comparison.verdict.findings if one.kind == "changed-sample").detail


@pytest.mark.parametrize("split", [{}, {"select_options": SPLIT}])
@pytest.mark.parametrize("forged", [{"shuffle": True, "seed": 4}, {}])
def test_another_order_is_found(found: Any, split: dict[str, Any], forged: dict[str, Any]) -> None:
    seen, comparison = found({"shuffle": True, "seed": 3, **split}, {**forged, **split})
    assert seen == [("changed-order", None)]
    assert comparison.detail("changed-order") == "expected the samples in the order that the recipe makes, got the same samples otherwise"


def test_two_samples_of_one_split_in_each_others_place_are_found(found: Any) -> None:
    seen, _ = found(WAYS["in splits"], change=lambda values: values.insert(0, values.pop(1)))
    assert seen == [("changed-order", None)]


def test_samples_without_keys_are_told_by_their_content(found: Any) -> None:
    words = {"shuffle": True, "seed": 3, "select_options": SPLIT, "format_options": {"key_column": "none"}}
    seen, _ = found(words, change=lambda values: values[60].update(n=-1))
    assert [kind for kind, _ in seen] == ["foreign-sample", "missing-sample"]


@pytest.mark.parametrize("limit", [49, 51])
def test_a_sample_too_few_or_too_many_is_found(found: Any, limit: int) -> None:
    seen, _ = found({"select_options": {"limit": "50"}}, {"select_options": {"limit": str(limit)}})
    assert ({49: "missing-sample", 51: "foreign-sample"}[limit], {49: "r0049", 51: "r0050"}[limit]) in seen


def test_another_of_two_doubles_is_found(packed: Any, claim: Any, against: Any) -> None:
    """The first of the two stays, not the second."""

    def double(values: list[dict[str, Any]]) -> None:
        values.append({**values[0], "id": "twin"})

    def turned(values: list[dict[str, Any]]) -> None:
        double(values)
        values.insert(0, values.pop())

    source, honest = packed("honest", double, select_options={"dedup": "content"})
    assert against(honest, source).seen == []
    _, forged = packed("forged", turned, select_options={"dedup": "content"})
    claim(forged, honest)
    seen = against(forged, source).seen
    assert ("missing-sample", "r0000") in seen and ("foreign-sample", "twin") in seen


def test_a_sample_that_does_not_fit_the_expression_is_found(found: Any) -> None:
    seen, _ = found({"select_options": {"where": "n >= 5"}}, {"select_options": {"where": "n >= 4"}})
    assert ("foreign-sample", "r0004") in seen


def test_counts_of_what_was_left_out_are_compared(packed: Any, against: Any, edit_manifest: Any) -> None:
    source, folder = packed("out", select_options={"where": "n >= 5", "limit": "20"})

    def edit(content: dict[str, Any]) -> None:
        filters = content["ledger"]["filters"]
        filters["where"], filters["limit"] = filters["where"] - 1, filters["limit"] + 1

    edit_manifest(folder, edit)
    details = [one.detail for one in against(folder, source).verdict.findings if one.kind == "ledger-open"]
    assert any(text.startswith("expected 4 left out by --where, as the manifest says, got 5 from the source") for text in details)


def test_a_source_that_has_changed_is_compared_by_samples_alone(packed: Any, against: Any, records: Any) -> None:
    """More was written to it: what is missing is named, and nothing is said of the order."""
    source, folder = packed("out", shuffle=True, seed=3, select_options=SPLIT)
    values = [*rows(), {"id": "late", "text": "x", "n": 1, "half": 1}]
    assert records(values, "in-out/records.jsonl") == source
    seen = against(folder, source)
    assert {kind for kind, _ in seen.seen} == {"changed-source", "missing-sample"} and ("missing-sample", "late") in seen.seen
    assert "whether the samples are in the order of the plan" in seen.not_proved


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """A token for each byte, and one for the end."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({text: i for i, text in enumerate([*alphabet, "<|end|>"])}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    made.add_special_tokens(["<|end|>"])
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    return folder


def test_rows_of_tokens_in_splits_and_permuted_are_made_again(packed: Any, claim: Any, tokenizer: Path) -> None:
    words = {
        "token_options": {"tokenizer": str(tokenizer), "seq_len": "64"},
        "shuffle": True,
        "seed": 3,
        "select_options": {**SPLIT, "where": "n < 150"},
        "source_options": {},
    }

    def look(folder: Path) -> Any:
        return verify(str(folder), VerifyOptions(workers=1, against=(str(source),), tokenizer=str(tokenizer)))

    source, honest = packed("honest", **words)
    verdict = look(honest)
    proved = " ".join(text for proof in verdict.proofs for text in proof.proved)
    assert not verdict.findings and "exactly once, byte for byte, in the split it belongs to, in the order of the plan" in proved
    assert "documents read 200 = packed 150 + rejected 0 + left out 50" in proved
    _, forged = packed("forged", lambda values: values[140].update(text="Ein Täxt"), **words)
    claim(forged, honest)
    assert {finding.kind for finding in look(forged).findings} >= {"changed-sample"}

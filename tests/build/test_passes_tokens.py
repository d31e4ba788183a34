"""Stops rows of tokens that hold documents of two splits, that share a key, or that a shuffle loses, doubles or leaves in order."""

import hashlib
import json
import random
from collections import Counter

import pytest
from scattering import SPLIT, shuffled
from shuffled_engine import Shuffled
from token_oracle import small_tokenizer

from shardtools import partitions as partitions_module
from shardtools.build.order import OrderWords, order_of
from shardtools.build.run import RunOptions, build
from shardtools.engines.processes import Processes
from shardtools.engines.serial import Serial
from shardtools.sources import resolve_inputs
from shardtools.units import Budget
from shardtools.verify import verify

SPLIT_WORD = ",".join(f"{name}={share}" for name, share in SPLIT)


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch):
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 16_384)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return small_tokenizer(tmp_path_factory.mktemp("tokenizer") / "t")


@pytest.fixture
def source(tmp_path):
    numbers = random.Random(3)
    words = ["cat", "dog", "mat", "log", "sat", "the", "and", "ate", "Haus"]
    texts = [" ".join(numbers.choices(words, k=numbers.randint(0, 80))) for _ in range(900)]
    (tmp_path / "docs").mkdir()
    for name, some in (("a", texts[:500]), ("b", texts[500:])):
        lines = [json.dumps({"id": f"{name}{i}", "n": i, "text": text}) + "\n" for i, text in enumerate(some)]
        (tmp_path / "docs" / f"{name}.jsonl").write_text("".join(lines))
    return tmp_path / "docs"


def pack(source, destination, tokenizer, engine=None, shuffle=False, max_bad="0", **select):
    words = OrderWords(
        format="mds",
        source_options={"key": "id"},
        shuffle=shuffle,
        seed=5,
        shard_size="24KiB",
        token_options={"tokenizer": str(tokenizer), "seq_len": "32", "doc_ids": ""},
        select_options=select,
    )
    order = order_of(resolve_inputs([str(source)]), words)
    return build([str(source)], str(destination), order, RunOptions(engine or Serial(), Budget.parse(max_bad)))


def rows_of(folder, read_mds_raw) -> list[tuple[str, tuple[str, ...]]]:
    """Key and documents of each row, in the order of the shards."""
    rows = read_mds_raw(folder)
    return [(row["key"].decode(), tuple(name.partition("@")[0] for name in json.loads(row["doc_ids"]))) for row in rows]


def split_of(key: str) -> str:
    place = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64
    return "train" if place < 0.7 else "val" if place < 0.9 else "test"


def test_rows_are_permuted_over_the_whole_dataset(source, tmp_path, tokenizer, read_mds_raw):
    plain = pack(source, tmp_path / "plain", tokenizer)
    mixed = pack(source, tmp_path / "mixed", tokenizer, shuffle=True)
    before, after = (rows_of(tmp_path / name, read_mds_raw) for name in ("plain", "mixed"))
    partitions: dict[str, list] = {}
    for row in before:
        partitions.setdefault(row[0].partition("/")[0], []).append(row)
    assert len(partitions) > 5
    assert after == shuffled([partitions[name] for name in sorted(partitions)], 5) != before
    assert mixed.manifest.ledger == plain.manifest.ledger


def test_documents_are_split_and_each_split_is_packed_by_itself(source, tmp_path, tokenizer, read_mds_raw):
    result = pack(source, tmp_path / "out", tokenizer, split=SPLIT_WORD, shuffle=True)
    found: dict[str, list] = {split: rows_of(tmp_path / "out" / split, read_mds_raw) for split, _ in SPLIT}
    for split, rows in found.items():
        assert rows and {split_of(document) for _, documents in rows for document in documents} == {split}
    keys = Counter(key for rows in found.values() for key, _ in rows)
    assert max(keys.values()) == 1 and len(keys) == result.manifest.ledger.num_stored
    ledger = result.manifest.ledger
    texts = [json.loads(line)["text"] for path in sorted(source.iterdir()) for line in path.read_text().splitlines()]
    assert ledger.num_read == 900 and ledger.num_filtered == texts.count("")
    documents = {document for rows in found.values() for _, its in rows for document in its}
    assert len(documents) == ledger.num_written == 900 - texts.count("")
    assert verify(str(tmp_path / "out")).findings == ()


@pytest.mark.parametrize("select", [{}, {"split": SPLIT_WORD, "limit": "500", "dedup": "content"}])
def test_every_engine_gives_the_same_files(source, tmp_path, tokenizer, digests, select):
    for i, engine in enumerate([None, Shuffled(2), Processes(2)]):
        pack(source, tmp_path / str(i), tokenizer, engine, shuffle=True, **select)
    assert digests(tmp_path / "1") == digests(tmp_path / "0") == digests(tmp_path / "2")


def test_bad_documents_are_counted_once_though_each_split_reads_them(source, tmp_path, tokenizer):
    """One that is no JSON, and one that --where cannot judge."""
    misfit = b'{"id": "misfit", "n": "high", "text": "cat"}\n'
    (source / "b.jsonl").write_bytes(b"bad\n\n" + misfit + (source / "b.jsonl").read_bytes())
    ledger = pack(source, tmp_path / "out", tokenizer, split=SPLIT_WORD, max_bad="5", where="n > 0").manifest.ledger
    assert (ledger.num_read, ledger.num_rejected, ledger.num_blank, ledger.filters["where"]) == (902, 2, 1, 2)
    assert len((tmp_path / "out" / ".shardtools" / "rejects").read_text().splitlines()) == 2


def test_dedup_and_limit_count_documents(source, tmp_path, tokenizer, read_mds_raw):
    (source / "c.jsonl").write_text("".join(json.dumps({"id": f"c{i}", "text": "the cat sat"}) + "\n" for i in range(100)))
    result = pack(source, tmp_path / "out", tokenizer, dedup="content", limit="850")
    ledger = result.manifest.ledger
    assert ledger.num_written + ledger.transforms["packing"]["documents-empty"] <= 850
    documents = {document for _, its in rows_of(tmp_path / "out", read_mds_raw) for document in its}
    assert len([document for document in documents if document.startswith("c")]) <= 1

"""Stops workers, engines, kills, blocks of lines or hash seeds from reaching the bytes of packed tokens."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from shuffled_engine import Shuffled
from token_oracle import StopBeforePublishing, as_lines, pack, small_tokenizer

import shardtools
from shardtools import partitions as partitions_module
from shardtools.build.run import Listener
from shardtools.build.write import BuildTask
from shardtools.engines.processes import Processes
from shardtools.engines.serial import Serial
from shardtools.sources import _lines
from shardtools.transforms import tokenize as tokenize_module

PARTITION_BYTES = 20_000
WAYS = {
    "mds bfd": ("mds", {"seq_len": "64", "doc_ids": ""}),
    "mds concat": ("mds", {"seq_len": "65", "packing": "concat", "bos": "<|bos|>"}),
    "wds bfd": ("wds", {"seq_len": "64", "doc_ids": "", "special_in_text": "parse"}),
    "wds none": ("wds", {"doc_ids": ""}),
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    return small_tokenizer(tmp_path_factory.mktemp("tokenizer") / "small")


@pytest.fixture(autouse=True)
def many_partitions(monkeypatch) -> None:
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", PARTITION_BYTES)


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    write_documents(folder, 900)
    return folder


def write_documents(folder: Path, count: int) -> None:
    numbers = random.Random(5)
    words = ["the", "cat", "sat", "Häuser", "画像", "\n", "<think>", "<|endoftext|>", "x + 1", "\u2028"]
    records = [{"id": i, "text": " ".join(numbers.choices(words, k=numbers.randint(1, 60)))} for i in range(count)]
    (folder / "a.jsonl").write_bytes(as_lines(records[: count // 3]))
    (folder / "b.jsonl").write_bytes(as_lines(records[count // 3 :]))


class Recording(Serial):
    """Notes which partitions are built."""

    def __init__(self) -> None:
        object.__setattr__(self, "built", [])

    def run(self, task, items, *rest) -> None:
        super().run(task, items, *rest)
        if isinstance(task, BuildTask):
            self.built.extend(item.index for item in items)


# Who does the work, and in what portions.


@pytest.mark.parametrize("way", WAYS)
def test_every_order_of_work_stores_the_same_bytes(source, tokenizer, digests, tmp_path, way):
    format_, words = WAYS[way]
    found = []
    for i, engine in enumerate([Serial(), Shuffled(1)]):
        pack(source, tmp_path / str(i), format_, engine=engine, tokenizer=tokenizer, **words)
        found.append(digests(tmp_path / str(i)))
    assert len(found[0]) >= 4
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("way", "workers"), [("mds bfd", 3), *(pytest.param(way, n, marks=pytest.mark.slow) for way in WAYS for n in (1, 2, 5))]
)
def test_any_number_of_workers_stores_the_same_bytes(source, tokenizer, digests, tmp_path, way, workers):
    format_, words = WAYS[way]
    counts = []
    pack(source, tmp_path / "serial", format_, tokenizer=tokenizer, listener=counting(counts), **words)
    assert counts[0] > 5
    pack(source, tmp_path / "processes", format_, engine=Processes(workers), tokenizer=tokenizer, **words)
    assert digests(tmp_path / "processes") == digests(tmp_path / "serial")


def counting(counts):
    return Listener(on_plan=lambda planned: counts.append(len(planned.plan.partitions)))


@pytest.mark.parametrize("way", WAYS)
def test_the_size_of_blocks_and_batches_stores_the_same_bytes(source, tokenizer, digests, tmp_path, monkeypatch, way):
    format_, words = WAYS[way]
    pack(source, tmp_path / "one", format_, tokenizer=tokenizer, **words)
    monkeypatch.setattr(_lines, "BLOCK_BYTES", 777)
    monkeypatch.setattr(_lines, "_BLOCK_LINES", 3)
    monkeypatch.setattr(tokenize_module, "_GROUP_BYTES", 50)
    pack(source, tmp_path / "two", format_, tokenizer=tokenizer, **words)
    assert digests(tmp_path / "two") == digests(tmp_path / "one")


def test_documents_that_are_cut_to_be_encoded_store_the_same_rows(source, tokenizer, tmp_path, digests):
    """The option stands in the plan, so the manifest differs; the shards may not."""
    for name, options in (("whole", {}), ("cut", {"max_doc_bytes": "100"})):
        pack(source, tmp_path / name, tokenizer=tokenizer, seq_len="64", backend="hf", **options)
    whole, cut = digests(tmp_path / "whole"), digests(tmp_path / "cut")
    manifest = json.loads((tmp_path / "cut" / "shardtools.manifest").read_bytes())
    assert manifest["ledger"]["transforms"]["tokenize"]["documents-cut"] > 100
    assert {name: digest for name, digest in whole.items() if name.endswith(".mds")} == {
        name: digest for name, digest in cut.items() if name.endswith(".mds")
    }


# Processes of their own: hash seeds, kills.

PACK = """
import sys
from shardtools import partitions
partitions.MIN_PARTITION_BYTES = 20_000
from shardtools.cli import main
if __name__ == "__main__":
    sys.exit(main())
"""


@pytest.fixture
def start_pack(tmp_path, tokenizer):
    """Start the command in a process group of its own."""
    script = tmp_path / "pack.py"
    script.write_text(PACK)

    def start(source: Path, out: Path, workers: str, **environment: str) -> "subprocess.Popen[str]":
        command = [sys.executable, str(script), "pack", str(source), str(out), "--to", "mds"]
        command += ["--tokenizer", str(tokenizer), "--seq-len", "64", "--doc-ids"]
        command += ["--engine", "serial"] if workers == "0" else ["--workers", workers]
        everything = {**os.environ, "PYTHONPATH": str(Path(shardtools.__file__).parents[1]), **environment}
        return subprocess.Popen(command, env=everything, start_new_session=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    return start


def test_hash_seeds_and_thread_settings_store_the_same_bytes(source, tokenizer, digests, tmp_path, start_pack):
    pack(source, tmp_path / "here", tokenizer=tokenizer, seq_len="64", doc_ids="")
    runs = [
        start_pack(source, tmp_path / "one", "0", PYTHONHASHSEED="1", TOKENIZERS_PARALLELISM="true"),
        start_pack(source, tmp_path / "two", "2", PYTHONHASHSEED="4242", RAYON_NUM_THREADS="3"),
    ]
    for process in runs:
        _, stderr = process.communicate()
        assert process.returncode == 0, stderr
        assert "TOKENIZERS_PARALLELISM" not in stderr and "fork" not in stderr
    assert digests(tmp_path / "one") == digests(tmp_path / "two") == digests(tmp_path / "here")


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_killed_run_is_finished_by_the_next_with_the_same_bytes(tokenizer, digests, tmp_path, start_pack, rounds):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    numbers = random.Random(seed)
    (tmp_path / "src").mkdir()
    write_documents(tmp_path / "src", 6000)
    pack(tmp_path / "src", tmp_path / "clean", tokenizer=tokenizer, seq_len="64", doc_ids="")
    clean = digests(tmp_path / "clean")
    num_parts = []
    for i in range(rounds):
        out = tmp_path / f"out{i}"
        process = start_pack(tmp_path / "src", out, "2")
        wanted = numbers.randint(0, 6)
        while process.poll() is None and len(receipts(out)) < wanted:
            time.sleep(0.002)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        num_parts.append(len(receipts(out)))
        pack(tmp_path / "src", out, tokenizer=tokenizer, seq_len="64", doc_ids="")
        assert digests(out) == clean
    print(f"receipts there when killed: {num_parts}")


def receipts(out: Path) -> list[Path]:
    return list(out.glob(".shardtools/build/*/receipts/*"))


def test_a_stopped_run_is_gone_on_with_where_it_was(source, tokenizer, digests, tmp_path):
    words = {"tokenizer": tokenizer, "seq_len": "64", "doc_ids": ""}
    pack(source, tmp_path / "clean", **words)
    resumed = Recording()
    with pytest.raises(KeyboardInterrupt):
        pack(source, tmp_path / "out", engine=StopBeforePublishing(), **words)
    (receipt,) = (tmp_path / "out").glob(".shardtools/build/*/receipts/000002")
    receipt.unlink()
    pack(source, tmp_path / "out", engine=resumed, **words)
    assert resumed.built == [2]
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")

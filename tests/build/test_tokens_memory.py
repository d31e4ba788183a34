"""Stops memory of a worker that grows with the input, with the number of documents, or with one large document."""

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from token_oracle import as_lines, small_tokenizer

MIB = 1 << 20
BOUND_MIB = 600
PEAK = """
import re, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from token_oracle import pack

_, _, source, out, tokenizer, *words = sys.argv
result = pack(source, Path(out), tokenizer=tokenizer, **dict(word.split("=") for word in words))
print(result.manifest.ledger.num_written, re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peaks are read from /proc"),
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    return small_tokenizer(tmp_path_factory.mktemp("tokenizer") / "small")


@pytest.fixture
def peak(tmp_path) -> Callable[..., tuple[int, int]]:
    """Documents written, and the most MiB that planning and building in one process took, the tokenizer with it."""

    def measure(source: Path, tokenizer: Path, *words: str) -> tuple[int, int]:
        out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        command = [sys.executable, "-c", PEAK, str(Path(__file__).parent), str(source), str(out), str(tokenizer), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        num_written, peak_kib = map(int, done.stdout.split())
        print(f"{' '.join(words)}: {peak_kib // 1024} MiB")
        return num_written, peak_kib // 1024

    return measure


@pytest.mark.parametrize("backend", ["hf", "gigatoken"])
@pytest.mark.parametrize("packing", ["bfd", "concat"])
def test_a_partition_of_many_documents(tokenizer, tmp_path, peak, backend, packing):
    if backend == "gigatoken":
        pytest.importorskip("gigatoken", reason="gigatoken is not installed: the extra `fast` has it")
    numbers = random.Random(1)
    words = ["the", "cat", "sat", "Häuser", "x + 1", "\n", "12345"]
    records = [{"text": " ".join(numbers.choices(words, k=numbers.randint(1, 800)))} for _ in range(60_000)]
    (tmp_path / "docs.jsonl").write_bytes(as_lines(records))
    assert (tmp_path / "docs.jsonl").stat().st_size > 80_000_000
    num_written, peak_mib = peak(tmp_path / "docs.jsonl", tokenizer, "seq_len=2048", f"backend={backend}", f"packing={packing}")
    assert num_written == 60_000
    assert peak_mib < BOUND_MIB


def test_very_many_documents_of_a_word(tokenizer, tmp_path, peak):
    (tmp_path / "docs.jsonl").write_bytes(b"".join(b'{"text": "the cat %d"}\n' % i for i in range(1_000_000)))
    num_written, peak_mib = peak(tmp_path / "docs.jsonl", tokenizer, "seq_len=2048", "doc_ids=")
    assert num_written == 1_000_000
    assert peak_mib < BOUND_MIB


@pytest.mark.parametrize("backend", ["hf", "gigatoken"])
def test_documents_of_sixteen_mebibytes(tokenizer, tmp_path, peak, backend):
    """The largest there may be, two in a row, where an encoder takes 116 bytes for each byte it is given at once."""
    if backend == "gigatoken":
        pytest.importorskip("gigatoken", reason="gigatoken is not installed: the extra `fast` has it")
    line = "the cat sat on the mat, 12345 Häuser\n"
    text = line * (16 * MIB // len(line.encode()))
    (tmp_path / "docs.jsonl").write_bytes(as_lines([{"text": text + "a"}, {"text": "short"}, {"text": text + "b"}]))
    num_written, peak_mib = peak(tmp_path / "docs.jsonl", tokenizer, "seq_len=8192", f"backend={backend}")
    assert num_written == 3
    assert peak_mib < BOUND_MIB


@pytest.mark.parametrize("backend", ["hf", "gigatoken"])
def test_text_in_which_no_word_comes_twice(tokenizer, tmp_path, peak, backend):
    """Digests, numbers, base64: encoders remember the words they have seen."""
    if backend == "gigatoken":
        pytest.importorskip("gigatoken", reason="gigatoken is not installed: the extra `fast` has it")
    numbers = random.Random(2)
    with open(tmp_path / "docs.jsonl", "wb") as file:
        for _ in range(40_000):
            letters = "".join(numbers.choices("abcdefghijklmnop", k=1700))
            file.write(as_lines([{"text": " ".join(letters[i : i + 8] for i in range(0, 1700, 8))}]))
    num_written, peak_mib = peak(tmp_path / "docs.jsonl", tokenizer, "seq_len=2048", f"backend={backend}")
    assert num_written == 40_000
    assert peak_mib < BOUND_MIB


@pytest.mark.parametrize("name", ["gpt2", "qwen3"])
@pytest.mark.parametrize("backend", ["hf", "gigatoken"])
def test_real_tokenizers_and_text(corpora, peak, name, backend, tmp_path):
    """The bound is for what comes beside the tokenizer, which a run of one document shows."""
    if backend == "gigatoken":
        pytest.importorskip("gigatoken", reason="gigatoken is not installed: the extra `fast` has it")
    tokenizer = corpora / "tokenizers" / name
    (tmp_path / "one.jsonl").write_bytes(b'{"text": "one"}\n')
    _, alone_mib = peak(tmp_path / "one.jsonl", tokenizer, f"backend={backend}")
    num_written, peak_mib = peak(corpora / "text" / "mixed.jsonl", tokenizer, "seq_len=2048", f"backend={backend}")
    assert num_written == 5950
    assert peak_mib < BOUND_MIB + alone_mib

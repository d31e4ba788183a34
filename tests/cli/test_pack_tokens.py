"""Stops a ``pack --tokenizer`` that takes options which do not fit each other, names options that do not exist, answers with a
traceback, or prints what libraries think of threads."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

import shardtools
from shardtools.datasets import open_dataset
from shardtools.explore.describe import describe
from shardtools.verify import VerifyOptions, verify

TEMPLATE = "{% for message in messages %}{{ '<s> ' + message['role'] + ' ' + message['content'] + ' </s>' }}{% endfor %}"
WORDS = ["user", "assistant", "hi", "ok", *"abcdefgh"]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """``docs.jsonl``, ``chats.jsonl``, a tokenizer ``tok`` of twelve words, and ``bare``, the same without a config."""
    place: Path = tmp_path_factory.mktemp("tokens")
    vocabulary = {word: i for i, word in enumerate(["[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in ("<s>", "</s>")])
    for name, config in (("tok", {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}), ("bare", None)):
        (place / name).mkdir()
        tokenizer.save(str(place / name / "tokenizer.json"))
        if config is not None:
            (place / name / "tokenizer_config.json").write_text(json.dumps(config))
    (place / "damaged").mkdir()
    (place / "damaged" / "tokenizer.json").write_text("{}")
    docs = [{"id": i, "text": " ".join(WORDS[i % 12 :]), "body": {"text": "a b"}} for i in range(40)]
    (place / "docs.jsonl").write_text("".join(json.dumps(record) + "\n" for record in docs))
    messages = [{"role": "user", "content": "hi a"}, {"role": "assistant", "content": "ok b c"}]
    (place / "chats.jsonl").write_text(f"{json.dumps({'messages': messages})}\n" * 9)
    (place / "empty.jsonl").write_text('{"text": ""}\n' * 3)
    return place


@pytest.fixture
def pack(place, tmp_path, pack_here) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """``pack`` to ``tmp_path / "out"``."""
    return lambda line, source="docs.jsonl": pack_here(place, source, str(tmp_path / "out"), *line.split(), "--engine", "serial")


def result_of(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# Options that do not fit.

WRONG = {
    "--seq-len 64": "expected --tokenizer FILE with --seq-len, got none",
    "--packing bfd": "expected --tokenizer FILE with --packing, got none",
    "--chat": "expected --tokenizer FILE with --chat, got none",
    "--text-key text": "expected --tokenizer FILE with --text-key, got none",
    "--backend hf": "expected --tokenizer FILE with --backend, got none",
    "--doc-ids": "expected --tokenizer FILE with --doc-ids, got none",
    "--seed 3": "expected --shuffle and --seed S together",
    "--tokenizer nowhere": "expected a tokenizer.json, or a folder that holds one, at nowhere",
    "--tokenizer .": "expected a tokenizer.json, or a folder that holds one, at ./tokenizer.json",
    "--tokenizer damaged": "expected the tokenizer.json of a Hugging Face tokenizer, got another file: damaged/tokenizer.json",
    "--tokenizer docs.jsonl": "expected JSON, got other text in docs.jsonl",
    "--tokenizer tok --seq-len 1": "expected --seq-len as a whole number from 2",
    "--tokenizer tok --seq-len 99999999999": "expected --seq-len of 2 to",
    "--tokenizer tok --seq-len 2k": "expected --seq-len as a whole number from 2, got '2k'",
    "--tokenizer tok --seq-len -4": "expected --seq-len as a whole number from 2, got '-4'",
    "--tokenizer tok --packing bfd": "expected --seq-len N with --packing bfd, got none",
    "--tokenizer tok --packing concat": "expected --seq-len N with --packing concat, got none",
    "--tokenizer tok --packing ffd --seq-len 8": "expected --packing none, concat, bfd, got 'ffd'",
    "--tokenizer tok --packing none --seq-len 8": "expected --long-docs truncate or drop with --packing none",
    "--tokenizer tok --packing none --tail drop": "expected no --tail with --packing none",
    "--tokenizer tok --tail pad": "expected no --tail with --packing none",
    "--tokenizer tok --long-docs drop": "expected --seq-len N with --long-docs drop, got none",
    "--tokenizer tok --seq-len 8 --long-docs cut": "expected --long-docs split, truncate, drop, got 'cut'",
    "--tokenizer tok --seq-len 8 --tail keep": "expected --tail pad, drop, got 'keep'",
    "--tokenizer tok --bos nope": "expected --bos auto, none or a token of the vocabulary, got 'nope'; it has <s>, </s>",
    "--tokenizer tok --eos nope": "expected --eos auto, none or a token of the vocabulary, got 'nope'; it has <s>, </s>",
    "--tokenizer tok --special-in-text keep": "expected --special-in-text split|parse|reject, got 'keep'",
    "--tokenizer tok --backend fast": "expected --backend auto|hf|gigatoken, got 'fast'",
    "--tokenizer tok --dtype int16": "expected --dtype auto|uint16|int32|uint32, got 'int16'",
    "--tokenizer tok --max-doc-bytes 0": "expected a size of a whole number of bytes above 0, got '0'",
    "--tokenizer tok --oversized drop": "expected --oversized cut|reject, got 'drop'",
    "--tokenizer tok --text-key nope": "expected a field 'nope' in the records, got body, body.text, id, text; choose with --text-key",
    "--tokenizer tok --map txt=text": "expected neither --map nor --keep-path with --tokenizer",
    "--tokenizer tok --keep-path": "expected neither --map nor --keep-path with --tokenizer",
    "--tokenizer tok --columns text=str": "expected no --columns with --tokenizer",
    "--tokenizer tok --shuffle": "expected --shuffle and --seed S together",
    "--tokenizer tok --fields text=txt": "expected no --fields with --from jsonl",
    "--tokenizer tok --key-column tokens --seq-len 8": "expected no field named 'tokens' beside the key column",
    "--tokenizer tok --shard-size 1MiB --shard-samples 5": "expected --shard-size or --shard-samples, got both",
    "--tokenizer tok --chat --packing concat --seq-len 8": "expected --packing none or bfd with --chat, got concat",
    "--tokenizer tok --chat --long-docs split --seq-len 8": "expected --long-docs truncate or drop with --chat, got split",
    "--tokenizer tok --chat --long-docs drop": "expected --seq-len N with --long-docs drop, got none",
    "--tokenizer tok --chat --long-docs truncate": "expected --seq-len N with --long-docs truncate, got none",
    "--tokenizer tok --chat --backend hf": "expected no --backend with --chat",
    "--tokenizer tok --text-key body.txt": "expected a field 'body.txt' in the records, got body, body.text, id, text",
    "--tokenizer tok --text-key a..b": "expected a field 'a..b' in the records",
    "--tokenizer tok --chat --max-doc-bytes 1MiB": "expected no --max-doc-bytes with --chat",
    "--tokenizer tok --chat --oversized cut": "expected no --oversized with --chat",
    "--tokenizer tok --chat --packing bfd": "expected --seq-len N with --packing bfd, got none",
    "--tokenizer tok --chat --packing none --tail drop": "expected no --tail with --packing none",
    "--tokenizer tok --chat --seq-len 1": "expected --seq-len",
    "--tokenizer bare --chat": "expected a chat_template in the tokenizer_config.json beside the tokenizer, got none",
}


@pytest.fixture(scope="module")
def known_options() -> set[str]:
    """The options that ``pack --help`` names."""
    environment = {**os.environ, "PYTHONPATH": str(Path(shardtools.__file__).parents[1])}
    command = [sys.executable, "-m", "shardtools", "pack", "--help"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return {*re.findall(r"--[a-z][a-z-]*", shown), "--help"}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_use_is_one_sentence_and_code_2(pack, tmp_path, known_options, line):
    done = pack(f"--to mds {line}", "chats.jsonl" if "--chat" in line else "docs.jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("error: ") and WRONG[line] in sentence and len(sentence) < 400
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", sentence)) <= known_options
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        ("docs.jsonl", "--text-key body", "docs.jsonl, line 1 (byte 0): expected text, got dict"),
        ("docs.jsonl", "--chat --text-key text", "docs.jsonl, line 1 (byte 0): expected a list of messages, got str"),
        ("empty.jsonl", "--seq-len 8", "expected at least one sample to write, got none"),
        ("docs.jsonl", "--seq-len 2 --long-docs drop --bos <s>", "expected at least one sample to write, got none"),
        ("chats.jsonl", "--chat --seq-len 4", "expected at least one sample to write, got none"),
        ("chats.jsonl", "--chat --seq-len 3 --long-docs truncate", "expected something an assistant says in the first 3 tokens"),
        ("docs.jsonl", "--max-doc-bytes 4 --oversized reject", "expected at most 4 bytes of text"),
    ],
)
def test_documents_that_cannot_be_packed_are_one_sentence_and_code_3(pack, tmp_path, known_options, source, line, says):
    done = pack(f"--to mds --tokenizer tok {line}", source)
    assert (done.returncode, done.stdout) == (3, "")
    *noted, sentence = done.stderr.splitlines()
    assert all(text.startswith("note: ") for text in noted)
    assert sentence.startswith("error: ") and says in sentence
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", sentence)) <= known_options
    assert not (tmp_path / "out" / "shardtools.manifest").exists()


# What is printed.


def test_what_was_chosen_is_said_and_the_counts_are_those_of_the_manifest(pack, tmp_path):
    done = pack("--to mds --tokenizer tok --seq-len 8 --backend hf")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "note: tokens are stored as uint16: the largest id is 14",
        "note: documents begin with no BOS (tokenizer_config.json names one but does not add it)",
        "note: documents end with </s> (id 14) (the EOS of tokenizer_config.json)",
        "note: backend: hf, as asked",
    ]
    ledger = json.loads((tmp_path / "out" / "shardtools.manifest").read_bytes())["ledger"]
    # By hand: 40 documents, of 12, 11, ... 1 words in turn, and an EOS each.
    num_tokens = sum(12 - i % 12 for i in range(40)) + 40
    packed = ledger["transforms"]["packing"]
    assert packed["tokens-in"] == packed["tokens-stored"] == num_tokens
    shown = table(done.stdout)
    assert (shown["documents read"], shown["left out"], shown["rows stored"]) == ("40", "0", str(packed["rows"]))
    assert shown["tokens"] == f"{num_tokens:,} stored of {num_tokens:,}, 0 truncated, 0 dropped"
    assert shown["padding"].startswith(f"{packed['padding']} (")
    assert "samples" not in done.stdout and "note" not in shown


LEFT_OUT: dict[str, tuple[str, str, dict[str, str]]] = {
    "long chats": (
        # Chats of 11 tokens, and two of 31.
        "mixed-chats.jsonl",
        "--chat --seq-len 16",
        {
            "chats read": "9",
            "left out": "2 chats longer than --seq-len",
            "tokens": "77 stored of 139, 0 truncated, 62 dropped",
            "rows stored": "7",
        },
    ),
    "cut chats": (
        "mixed-chats.jsonl",
        "--chat --seq-len 16 --long-docs truncate",
        {"chats read": "9", "left out": "0", "tokens": "109 stored of 139, 30 truncated, 0 dropped", "rows stored": "9"},
    ),
    "long documents": (
        # 20 of 2 tokens and an EOS, 3 of 12 tokens and an EOS, 2 of none, and a line that has no text.
        "mixed-docs.jsonl",
        "--seq-len 6 --long-docs drop --max-bad 1",
        {
            "documents read": "26",
            "left out": "3 documents longer than --seq-len, 2 documents without a token",
            "tokens": "60 stored of 99, 0 truncated, 39 dropped",
            "rows stored": "10",
            "rejected": "1",
        },
    ),
}


@pytest.fixture(scope="module")
def mixed(place) -> Path:
    """The folder, with ``mixed-chats.jsonl`` and ``mixed-docs.jsonl``."""
    short, long = ([{"role": "user", "content": "hi a"}, {"role": "assistant", "content": f"ok {words}"}] for words in ("b c", "b c " * 11))
    (place / "mixed-chats.jsonl").write_text("".join(f"{json.dumps({'messages': long if i in (2, 5) else short})}\n" for i in range(9)))
    texts: list[str | None] = ["a b"] * 20 + ["a b c d e f g h a b c d"] * 3 + ["", "", None]
    (place / "mixed-docs.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return place


@pytest.mark.usefixtures("mixed")
@pytest.mark.parametrize("format_", ["mds", "wds"])
@pytest.mark.parametrize("case", LEFT_OUT)
def test_the_summary_gives_reasons_and_its_tokens_add_up(pack, tmp_path, case, format_):
    source, line, expected = LEFT_OUT[case]
    done = pack(f"--to {format_} --tokenizer tok {line}", source)
    assert done.returncode == 0, done.stderr
    shown = table(done.stdout)
    assert {name: shown[name] for name in expected} == expected
    numbers = [int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", shown["tokens"])]
    assert numbers[1] == numbers[0] + numbers[2] + numbers[3]
    counts = json.loads((tmp_path / "out" / "shardtools.manifest").read_bytes())["ledger"]["transforms"]
    encode = counts.get("chat") or counts["tokenize"]
    lost = sum(one.get(name, 0) for one in counts.values() for name in ("tokens-truncated", "tokens-dropped"))
    assert (numbers[1], numbers[2] + numbers[3]) == (encode["tokens-in"], lost)
    assert list(shown)[-3:] == ["seconds", "input MB/s", "tokens/s"]


def table(text: str) -> dict[str, str]:
    pairs = (line.strip().split("  ", 1) for line in text.splitlines())
    return {name.strip(): value.strip() for name, value in pairs}


def test_what_is_stored_is_called_rows_and_what_is_read_documents_or_chats(pack, mixed, tmp_path):
    for source, line, read in (("mixed-docs.jsonl", "--max-bad 1", "document"), ("mixed-chats.jsonl", "--chat", "chat")):
        assert pack(f"--to mds --tokenizer tok --seq-len 16 {line} --overwrite", source).returncode == 0
        out = str(tmp_path / "out")
        num_rows = json.loads((tmp_path / "out" / "shardtools.manifest").read_bytes())["ledger"]["rows"]
        verdict = verify(out, VerifyOptions(against=(str(mixed / source),), tokenizer=str(mixed / "tok")))
        assert verdict.is_sound and f"{num_rows} rows" in verdict.closing() and "sample" not in verdict.closing()
        assert f"every {read} read was packed, rejected or left out" in verdict.closing()
        rows = dict(describe(open_dataset(out)).rows())
        assert rows["rows"] == str(num_rows) and rows["size"].endswith(" a row") and "samples" not in rows
        assert f" {read}s read = " in rows["ledger"]


def test_what_was_not_looked_at_of_tokens(pack, tmp_path):
    for format_, extra in (("mds", ""), ("wds", "--overwrite")):
        assert pack(f"--to {format_} --tokenizer tok --seq-len 16 {extra}").returncode == 0
        limits = verify(str(tmp_path / "out")).paragraphs()[-1]
        assert limits.startswith("Not looked at: that ids are those of the text (--against SRC --tokenizer FILE); ")
        assert "--deep" not in limits and "decode" not in limits


def test_json_says_the_same(pack, tmp_path):
    result = result_of(pack("--to wds --tokenizer tok --seq-len 8 --long-docs truncate --json"))
    assert result["ledger"] == json.loads((tmp_path / "out" / "shardtools.manifest").read_bytes())["ledger"]
    assert result["samples"] == 40
    lost = sum(max(13 - i % 12 - 8, 0) for i in range(40))
    assert result["ledger"]["transforms"]["packing"]["tokens-truncated"] == lost
    assert any(note.startswith("backend: ") for note in result["notes"])


def test_a_dry_run_plans_the_rows_and_writes_nothing(pack, tmp_path):
    planned = result_of(pack("--to mds --tokenizer tok --seq-len 8 --doc-ids --dry-run --json"))
    assert planned["fields"] == {"doc_ids": "json", "seq_lens": "ndarray:int32", "tokens": "ndarray:uint16:8"}
    assert not (tmp_path / "out").exists()


def test_a_rerun_is_already_complete_and_another_is_refused(pack):
    line = "--to mds --tokenizer tok --seq-len 8 --backend hf"
    assert not result_of(pack(f"{line} --json"))["already_complete"]
    assert result_of(pack(f"{line} --json"))["already_complete"]
    refused = pack(f"{line} --seed 5")
    assert refused.returncode == 2
    assert "transforms.packing.seed was 0, is 5" in refused.stderr.splitlines()[-1]


def test_chats_are_packed_with_a_mask(pack):
    result = result_of(pack("--to mds --tokenizer tok --chat --seq-len 32 --json", "chats.jsonl"))
    # <s> user hi a </s> <s> assistant ok b c </s>: the loss is on ok b c </s>.
    assert result["ledger"]["transforms"]["chat"]["tokens-in"] == 9 * 11
    assert result["ledger"]["transforms"]["chat"]["loss-tokens"] == 9 * 4
    assert result["ledger"]["rows"] == 5


def test_workers_say_nothing_of_their_own(place, tmp_path):
    """tokenizers warns of processes that fork after it was used; and tqdm and spawn print what they please."""
    environment = {**os.environ, "PYTHONPATH": str(Path(shardtools.__file__).parents[1])}
    environment.pop("TOKENIZERS_PARALLELISM", None)
    command = [sys.executable, "-W", "error", "-m", "shardtools", "pack", "docs.jsonl", str(tmp_path / "out"), "--to", "mds"]
    command += ["--tokenizer", "tok", "--seq-len", "8", "--workers", "2"]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert all(line.startswith("note: ") for line in done.stderr.splitlines()), done.stderr

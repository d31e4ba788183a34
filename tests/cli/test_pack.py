"""Stops a ``pack`` that answers on the wrong stream, with the wrong code, with a traceback, or that leaves half of anything behind."""

import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models
from watching import wait_until

import shardtools

COMMAND = [sys.executable, "-m", "shardtools"]
SERIAL = ["--engine", "serial"]
"""For tests to which workers make no difference: starting them takes half of the time."""


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(shardtools.__file__).parents[1]), **changes}


def pack(
    folder: Path, *arguments: str | bytes | Path, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run ``pack`` in a folder."""
    done = subprocess.run(
        [*COMMAND, "pack", *arguments],
        cwd=folder,
        input=stdin,
        env=dict(env or environment()),
        capture_output=True,
        check=False,
        timeout=120,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def succeed_here(pack_here) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """``pack_here`` for what must work."""

    def call(*arguments: Any, **options: Any) -> "subprocess.CompletedProcess[str]":
        done: subprocess.CompletedProcess[str] = pack_here(*arguments, **options)
        assert done.returncode == 0, done.stderr
        return done

    return call


def succeed(folder: Path, *arguments: str | bytes | Path) -> "subprocess.CompletedProcess[str]":
    done = pack(folder, *arguments)
    assert done.returncode == 0, done.stderr
    return done


def error_of(done: "subprocess.CompletedProcess[str]", code: int) -> str:
    """The one line that says what is wrong."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    *notes, last = done.stderr.splitlines()
    assert last.startswith("error: "), done.stderr
    assert [line for line in notes if not line.startswith(("note: ", "skipped: "))] == []
    assert "Traceback" not in last and "Errno" not in last and len(last) < 700
    return last


@pytest.fixture
def place(tmp_path) -> Path:
    """A folder with ``images/`` (three pairs), ``docs.jsonl`` (twelve records) and ``mixed/`` (both kinds)."""
    (tmp_path / "images").mkdir()
    (tmp_path / "mixed").mkdir()
    for i in range(3):
        (tmp_path / "images" / f"{i}.jpg").write_bytes(b"\xff\xd8\xff\xe0" + bytes([i]) * 100)
        (tmp_path / "images" / f"{i}.json").write_text(json.dumps({"i": i}))
    (tmp_path / "docs.jsonl").write_bytes(b"".join(b'{"text": "word %d", "n": %d}\n' % (i, i) for i in range(12)))
    (tmp_path / "mixed" / "a.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "mixed" / "b.txt").write_text("b")
    return tmp_path


def members(folder: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as archive:
            for member in archive:
                opened = archive.extractfile(member)
                assert opened is not None
                found[member.name] = opened.read()
    return found


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def table(text: str) -> dict[str, str]:
    return {name.strip(): value for name, value in re.findall(r"^( *\S+(?: \S+)*) {2,}(.*)$", text, re.MULTILINE)}


# What a run says.


def test_the_result_is_a_table_on_standard_output_and_notes_go_elsewhere(place):
    done = succeed(place, "docs.jsonl", "out", "--to", "mds")
    shown = table(done.stdout)
    assert list(shown) == ["samples", "shards", "bytes", "rejected", "skipped", "seconds", "samples/s", "MB/s"]
    assert (shown["samples"], shown["shards"], shown["rejected"], shown["skipped"]) == ("12", "1", "0", "0")
    num_bytes = (place / "out" / "shard.00000.mds").stat().st_size
    assert shown["bytes"].startswith(f"{num_bytes:,} ")
    assert done.stderr == "note: fields: n int, text str\n"


def test_the_default_destination_holds_nothing_but_the_dataset(place):
    succeed(place, "docs.jsonl", "wds", "--to", "wds")
    assert everything(place / "wds") == [".shardtools", ".shardtools/plan", "shardtools.manifest", "shardtools.offsets", "train-000000.tar"]
    succeed(place, "docs.jsonl", "mds", "--to", "mds", "--compression", "zstd")
    names = [".shardtools", ".shardtools/plan", "index.json", "shard.00000.mds.zstd", "shardtools.manifest", "shardtools.offsets"]
    assert everything(place / "mds") == names


def test_rejects_are_counted_by_reason_in_the_table(place, succeed_here):
    (place / "bad.jsonl").write_bytes(b'{"a": 1}\n[]\n{"a": 2}\n[]\nx\n')
    done = succeed_here(place, "bad.jsonl", "out", "--to", "wds", "--max-bad", "3", *SERIAL)
    shown = table(done.stdout)
    assert (shown["samples"], shown["rejected"], shown["invalid-json"], shown["not-an-object"]) == ("2", "3", "1", "2")


RESULT_KINDS: dict[str, type | tuple[type, ...]] = {
    "already_complete": bool,
    "plan": str,
    "samples": int,
    "shards": int,
    "bytes": int,
    "ledger": dict,
    "skipped": dict,
    "notes": list,
    "seconds": (int, float),
    "samples_per_second": (int, float),
    "megabytes_per_second": (int, float),
    "warnings": list,
}


def test_the_result_as_json(place):
    (place / "bad.jsonl").write_bytes(b'{"a": 1}\n{"a": 2}\n[]\n')
    done = succeed(place, "bad.jsonl", "out", "--to", "wds", "--max-bad", "50%", "--json")
    result = json.loads(done.stdout)
    assert {name: isinstance(result[name], kind) for name, kind in RESULT_KINDS.items()} == dict.fromkeys(RESULT_KINDS, True)
    assert result.keys() == RESULT_KINDS.keys()
    assert result["ledger"] == {"read": 3, "written": 2, "rejected": 1, "filtered": 0, "rejects": {"not-an-object": 1}}
    assert (result["samples"], result["shards"], result["warnings"], result["already_complete"]) == (2, 1, [], False)
    assert result["bytes"] == (place / "out" / "train-000000.tar").stat().st_size
    manifest = json.loads((place / "out" / "shardtools.manifest").read_text())
    assert result["plan"] == manifest["plan"] and result["ledger"] == manifest["ledger"]
    again = json.loads(succeed(place, "bad.jsonl", "out", "--to", "wds", "--json", *SERIAL).stdout)
    assert again["already_complete"] is True and again["plan"] == result["plan"] and again["samples"] == 2


def test_a_finished_run_is_said_to_be_complete(place):
    first = succeed(place, "images", "out", "--to", "wds", *SERIAL)
    before = {path: path.stat().st_mtime_ns for path in (place / "out").rglob("*")}
    again = succeed(place, "images", "out", "--to", "wds", "--workers", "2")
    assert "already complete" in again.stderr and "already complete" not in first.stderr
    assert table(again.stdout)["samples"] == "3"
    assert {path: path.stat().st_mtime_ns for path in (place / "out").rglob("*")} == before


# Plans.


PLAN_KEYS = {
    "destination",
    "passes",
    "plan",
    "samples",
    "input_bytes",
    "stored_bytes",
    "shards",
    "partitions",
    "fields",
    "first_keys",
    "key_twins",
    "skipped",
    "notes",
}


@pytest.mark.parametrize("format_name", ["wds", "mds"])
def test_a_dry_run_writes_nothing_and_tells_what_a_run_will_do(place, format_name):
    (place / "images" / "A.jpg").write_bytes(b"\xff\xd8\xff")
    (place / "images" / "A.json").write_bytes(b"{}")
    (place / "images" / "a.jpg").write_bytes(b"\xff\xd8\xff")
    (place / "images" / "a.json").write_bytes(b"{}")
    (place / "images" / ".hidden").write_bytes(b"")
    arguments = ("images", "out", "--to", format_name, "--shard-samples", "2")
    before = everything(place)
    done = succeed(place, *arguments, "--dry-run")
    planned = json.loads(succeed(place, *arguments, "--dry-run", "--json").stdout)
    assert everything(place) == before
    shown = table(done.stdout)
    assert shown["samples"] == "5" and shown["shards"].startswith("3, ") and shown["first keys"] == "0, 1, 2, A, a"
    assert shown["collisions"].startswith("1 key")
    fields = {"wds": "jpg (jpeg), json (json)", "mds": "jpg (jpeg), json (json)"}[format_name]
    assert shown["fields"] == fields
    assert (shown["skipped"], shown["hidden"], done.stderr) == ("1", "1", "")
    assert planned.keys() == PLAN_KEYS
    assert (planned["samples"], planned["shards"], planned["key_twins"], planned["first_keys"]) == (5, 3, 1, ["0", "1", "2", "A", "a"])
    assert planned["fields"] == {"jpg": "jpeg", "json": "json"} and planned["skipped"] == {"hidden": 1}
    assert planned["input_bytes"] == sum(path.stat().st_size for path in (place / "images").iterdir())
    done = json.loads(succeed(place, *arguments, "--json", *SERIAL).stdout)
    assert (done["plan"], done["samples"], done["shards"]) == (planned["plan"], 5, 3)


def test_a_dry_run_of_records_shows_types_and_keys(place, succeed_here):
    before = everything(place)
    done = succeed_here(place, "docs.jsonl", "out", "--to", "mds", "--dry-run")
    shown = table(done.stdout)
    assert shown["samples"] == "known when they are read"
    assert shown["fields"] == "n (int), text (str)"
    assert shown["first keys"].split(", ") == [f"docs/{i * 27:012d}" for i in range(5)]
    counted = json.loads(succeed_here(place, "docs.jsonl", "out", "--to", "mds", "--dry-run", "--shard-samples", "5", "--json").stdout)
    assert (counted["samples"], counted["shards"], counted["fields"]) == (12, 3, {"n": "int", "text": "str"})
    assert everything(place) == before


def test_a_dry_run_refuses_what_a_run_refuses(place, pack_here):
    assert "'nope'" in error_of(pack_here(place, "docs.jsonl", "out", "--to", "mds", "--map", "a=nope", "--dry-run"), 2)
    assert "--max-bad" in error_of(pack_here(place, "docs.jsonl", "out", "--to", "mds", "--max-bad", "x", "--dry-run"), 2)
    assert not (place / "out").exists()


# Mistakes.

DOCS, IMAGES = ["docs.jsonl", "out"], ["images", "out"]
MISTAKES: dict[str, tuple[list[str | bytes], str]] = {
    "a source that does not exist": (["nope.jsonl", "out", "--to", "wds"], "got nope.jsonl, which does not exist"),
    "one of two sources": (["docs.jsonl", "nope", "out", "--to", "wds"], "got nope, which does not exist"),
    "a name that is no UTF-8": ([b"n\xffpe", "out", "--to", "wds"], "got n\\xffpe, which does not exist"),
    "a destination inside the source": (["images", "images/out", "--to", "wds"], "expected a destination outside the source"),
    "the source as destination": (["images", "images", "--to", "wds"], "expected a destination outside the source"),
    "a source twice": (["docs.jsonl", "./docs.jsonl", "out", "--to", "wds"], "docs.jsonl twice; leave one"),
    "a folder and its file": ([".", "docs.jsonl", "/nowhere/out", "--to", "wds", "--from", "jsonl"], "docs.jsonl twice; leave one"),
    "a folder twice": ([".", ".", "/nowhere/out", "--to", "wds", "--from", "jsonl"], "every input once"),
    "a flag with a value": ([*DOCS, "--to", "wds", "--overwrite=x"], "not take a value; see shardtools pack --help"),
    "a folder and its subfolder": ([".", "images", "/nowhere/out", "--to", "wds", "--from", "files"], "/images, which is inside "),
    "workers without processes": ([*DOCS, "--to", "wds", "--workers", "8"], "no --workers with --engine serial"),
    "records and files": (["images", "docs.jsonl", "out", "--to", "wds"], "--from files or --from jsonl"),
    "a folder of both": (["mixed", "out", "--to", "wds"], "--from files or --from jsonl"),
    "no records in a folder": (["images", "out", "--to", "wds", "--from", "jsonl"], "expected .jsonl or .ndjson files"),
    "shuffle without seed": ([*IMAGES, "--to", "wds", "--shuffle"], "--shuffle and --seed S together"),
    "seed without shuffle": ([*IMAGES, "--to", "wds", "--seed", "1"], "--shuffle and --seed S together"),
    "a limit of nothing": ([*DOCS, "--to", "mds", "--limit", "0"], "0 is not in the range x>=1"),
    "duplicates of what": ([*DOCS, "--to", "mds", "--dedup", "all"], "--dedup of key or content, got 'all'"),
    "splits without shares": ([*DOCS, "--to", "mds", "--split", "train,val"], "--split as NAME=SHARE"),
    "splits of less than all": ([*DOCS, "--to", "mds", "--split", "train=0.9,val=0.01"], "add up to 1"),
    "groups without splits": ([*DOCS, "--to", "mds", "--group-by", "text"], "--group-by with --split"),
    "a group that no record has": ([*DOCS, "--to", "mds", "--split", "a=0.5,b=0.5", "--group-by", "nope"], "nope"),
    "a size in words": ([*DOCS, "--to", "wds", "--shard-size", "big"], "expected a size such as 256MiB"),
    "a size of nothing": ([*DOCS, "--to", "wds", "--shard-size", "0"], "above 0"),
    "a size below nothing": ([*DOCS, "--to", "wds", "--shard-size=-1"], "expected a size such as 256MiB"),
    "an empty size": ([*DOCS, "--to", "wds", "--shard-size", ""], "expected a size such as 256MiB"),
    "half a byte": ([*DOCS, "--to", "wds", "--shard-size", "1.5B"], "whole number of bytes"),
    "a size below one tar record": ([*DOCS, "--to", "wds", "--shard-size", "10239"], "at least 10240 bytes"),
    "a size below one header": ([*DOCS, "--to", "mds", "--shard-size", "100"], "empty MDS shard"),
    "size and samples": (
        [*DOCS, "--to", "wds", "--shard-size", "1MB", "--shard-samples", "5"],
        "--shard-size or --shard-samples, got both",
    ),
    "no samples a shard": ([*DOCS, "--to", "wds", "--shard-samples", "0"], "--shard-samples of 1 or more"),
    "a line limit in words": ([*DOCS, "--to", "wds", "--max-line-bytes", "long"], "expected a size such as 256MiB"),
    "columns without type": ([*DOCS, "--to", "mds", "--columns", "text"], "--columns as NAME=VALUE"),
    "columns with an empty type": ([*DOCS, "--to", "mds", "--columns", "text="], "--columns as NAME=VALUE"),
    "a column twice": ([*DOCS, "--to", "mds", "--columns", "text=str,text=json"], "--columns as NAME=VALUE"),
    "a type that does not exist": ([*DOCS, "--to", "mds", "--columns", "text=string"], "expected an MDS encoding"),
    "a column that does not exist": ([*DOCS, "--to", "mds", "--columns", "body=str"], "--columns among n, text, got 'body'"),
    "columns in tars": ([*DOCS, "--to", "wds", "--columns", "text=str"], "no --columns with --to wds"),
    "a map without field": ([*DOCS, "--to", "mds", "--map", "txt"], "--map as FIELD=RECORD_FIELD"),
    "a map of nothing": ([*DOCS, "--to", "mds", "--map", "txt=body"], "record fields among n, text, got 'body'"),
    "a member in capitals": ([*DOCS, "--to", "wds", "--map", "TXT=text"], "tar field of lower-case letters"),
    "map of files": ([*IMAGES, "--to", "wds", "--map", "a=b"], "no --map with --from files"),
    "key of files": ([*IMAGES, "--to", "wds", "--key", "id"], "no --key with --from files"),
    "fields of records": ([*DOCS, "--to", "wds", "--fields", "a=b"], "no --fields with --from jsonl"),
    "group of records": ([*DOCS, "--to", "wds", "--group", "file"], "no --group with --from jsonl"),
    "labels of records": ([*DOCS, "--to", "wds", "--label-from", "dir"], "no --label-from with --from jsonl"),
    "fields without extension": ([*IMAGES, "--to", "wds", "--fields", "image="], "got 'image='"),
    "fields without name": ([*IMAGES, "--to", "wds", "--fields", "=jpg"], "--fields"),
    "a field twice": ([*IMAGES, "--to", "wds", "--fields", "a=jpg,a=json"], "--fields"),
    "compressed tars": ([*DOCS, "--to", "wds", "--compression", "zstd"], "no --compression with --to wds"),
    "hashes in tars": ([*DOCS, "--to", "wds", "--hashes", "sha1"], "no --hashes with --to wds"),
    "a key column in tars": ([*DOCS, "--to", "wds", "--key-column", "id"], "no --key-column with --to wds"),
    "another compression": ([*DOCS, "--to", "mds", "--compression", "gz"], "--compression zstd or zstd:1 to zstd:22, got 'gz'"),
    "a level too high": ([*DOCS, "--to", "mds", "--compression", "zstd:23"], "--compression zstd or zstd:1 to zstd:22"),
    "another hash": ([*DOCS, "--to", "mds", "--hashes", "sha1,md5"], "--hashes of sha1, xxh64, got 'md5'"),
    "a key column that is there": ([*DOCS, "--to", "mds", "--key-column", "text"], "--key-column NAME"),
    "a budget in words": ([*DOCS, "--to", "mds", "--max-bad", "some"], "--max-bad as a count (10) or a percentage (0.5%)"),
    "a budget above all": ([*DOCS, "--to", "mds", "--max-bad", "101%"], "--max-bad as a count (10) or a percentage (0.5%)"),
    "a list that does not exist": (["@nope.txt", "out", "--to", "wds"], "readable list of paths, got nope.txt"),
    "an empty list": (["@/dev/null", "out", "--to", "wds"], "at least one path"),
    "nothing on standard input": (["-", "out", "--to", "wds"], "at least one path in the list from standard input"),
}
WRONG_WORDS: dict[str, tuple[list[str | bytes], str]] = {
    "an option that does not exist": ([*DOCS, "--to", "wds", "--shards", "3"], "--shards"),
    "a format that does not exist": ([*DOCS, "--to", "zip"], "zip"),
    "no format": (DOCS, "--to"),
    "no destination": (["docs.jsonl", "--to", "wds"], "SRC"),
    "no workers": ([*DOCS, "--to", "wds", "--workers", "0"], "--workers"),
    "workers in words": ([*DOCS, "--to", "wds", "--workers", "all"], "--workers"),
    "a seed below nothing": ([*IMAGES, "--to", "wds", "--shuffle", "--seed=-1"], "--seed"),
    "samples in words": ([*DOCS, "--to", "wds", "--shard-samples", "many"], "--shard-samples"),
    "an option without value": ([*DOCS, "--to", "wds", "--shard-size"], "--shard-size"),
    "a grouping that does not exist": ([*IMAGES, "--to", "wds", "--group", "dot"], "--group"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line_that_says_what_to_do(place, pack_here, case):
    arguments, says = MISTAKES[case]
    before = everything(place)
    assert says in error_of(pack_here(place, *arguments, *SERIAL), 2)
    assert everything(place) == before


@pytest.mark.parametrize("case", WRONG_WORDS)
def test_a_word_the_command_does_not_know_is_one_line_too(place, pack_here, case):
    arguments, says = WRONG_WORDS[case]
    assert says in error_of(pack_here(place, *arguments), 2)
    assert not (place / "out").exists()


@pytest.mark.parametrize("case", ["a source that does not exist", "a name that is no UTF-8", "shuffle without seed", "a size in words"])
def test_a_mistake_in_a_process_of_its_own_is_the_same_line(place, pack_here, case):
    arguments, _ = MISTAKES[case]
    assert error_of(pack(place, *arguments), 2) == error_of(pack_here(place, *arguments), 2)


def test_an_unknown_command_is_one_line_too(place):
    done = subprocess.run([*COMMAND, "pakc"], cwd=place, env=environment(), capture_output=True, text=True, check=False)
    assert "pakc" in error_of(done, 2)


FAILURES: dict[str, tuple[bytes, list[str], str]] = {
    "a bad line": (
        b'{"a": 1}\n[]\n',
        [],
        "in.jsonl, line 2 (byte 9): expected one JSON object a line, got list; put each record on a line",
    ),
    "a misfit": (
        b'{"a": 1}\n' * 1000 + b'{"a": "x"}\n',
        [],
        "in.jsonl, line 1001 (byte 9000): field 'a': expected int64, got str 'x'; --columns a=json",
    ),
    "more than tolerated": (b'{"a": 1}\n[]\n[]\n', ["--max-bad", "1"], "more than the 1"),
    "more than the share": (b'{"a": 1}\n[]\n[]\n', ["--max-bad", "50%"], "more than the 50%"),
    "a key twice": (
        b'{"a": 1}\n{"a": 2}\n{"a": 1}\n',
        ["--key", "a"],
        "got '1' from in.jsonl, line 1 (byte 0) and from in.jsonl, line 3 (byte 18)",
    ),
}


@pytest.mark.parametrize("engine", ["serial", "processes"])
@pytest.mark.parametrize("case", FAILURES)
def test_a_failure_of_the_run_is_one_line_and_code_3(place, pack_here, case, engine):
    data, options, says = FAILURES[case]
    (place / "in.jsonl").write_bytes(data)
    packer = pack if engine == "processes" else pack_here
    assert says in error_of(packer(place, "in.jsonl", "out", "--to", "mds", *options, "--engine", engine), 3)
    assert [name for name in everything(place / "out") if not name.startswith(".shardtools")] == []


def test_a_name_that_is_no_utf8_is_named_in_messages(place):
    with open(bytes(place) + b"/d\xffcs.jsonl", "wb") as file:
        file.write(b'{"a": 1}\n[]\n')
    assert "d\\xffcs.jsonl, line 2 (byte 9)" in error_of(pack(place, b"d\xffcs.jsonl", "out", "--to", "mds", *SERIAL), 3)
    done = succeed(place, b"d\xffcs.jsonl", "out", "--to", "wds", "--max-bad", "1", "--overwrite", *SERIAL)
    assert list(members(place / "out")) == ["d=FFcs/000000000000.json"] and table(done.stdout)["rejected"] == "1"


def test_names_beyond_ascii_pass_through_a_terminal_that_knows_only_ascii(place):
    (place / "in.jsonl").write_text('{"größe": 1, "画": "x"}\n[]\n')
    for extra in (["--dry-run"], ["--max-bad", "1"], ["--map", "x=ü"]):
        done = pack(
            place, "in.jsonl", "out", "--to", "mds", *extra, *SERIAL, env=environment(PYTHONIOENCODING="ascii", LC_ALL="C", PYTHONUTF8="0")
        )
        assert "Traceback" not in done.stderr, extra
        assert done.returncode == (2 if "--map" in extra else 0)


@pytest.mark.parametrize("destination", ["docs.jsonl", "docs.jsonl/out", "mixed/b.txt"])
def test_a_destination_that_is_a_file_is_one_line(place, pack_here, destination):
    before = everything(place)
    assert "a part of the path is a file" in error_of(pack_here(place, "images", destination, "--to", "wds", *SERIAL), 3)
    assert everything(place) == before


# Destinations.


def test_a_folder_with_other_files_is_left_as_it_is(place, pack_here):
    (place / "full" / "sub").mkdir(parents=True)
    (place / "full" / "sub" / "mine.txt").write_text("mine")
    before = everything(place)
    for extra in ([], ["--overwrite"]):
        assert "1 file that no manifest names, such as sub/mine.txt" in error_of(
            pack_here(place, "docs.jsonl", "full", "--to", "wds", *extra, *SERIAL), 2
        )
        assert everything(place) == before


def test_an_empty_folder_is_taken(place, succeed_here):
    (place / "out").mkdir()
    succeed_here(place, "docs.jsonl", "out", "--to", "wds", *SERIAL)
    assert len(members(place / "out")) == 12


CHANGES: dict[str, tuple[list[str], list[str]]] = {
    "the shard size": (["--shard-size", "1MB"], ["shard_bytes was 67108864, is 1000000"]),
    "the compression": (["--compression", "zstd:5"], ["format.compression was None, is 'zstd:5'"]),
    "the hashes": (["--hashes", "sha1"], ["format.hashes was [], is ['sha1']"]),
    "a column": (["--columns", "n=int32"], ["fields.n was 'int', is 'int32'"]),
}


@pytest.mark.parametrize("case", CHANGES)
def test_another_plan_at_the_destination_is_refused_with_what_differs_and_nothing_else(place, succeed_here, pack_here, case, digests):
    options, says = CHANGES[case]
    succeed_here(place, "docs.jsonl", "out", "--to", "mds", *SERIAL)
    before = digests(place / "out")
    message = error_of(pack_here(place, "docs.jsonl", "out", "--to", "mds", *options, *SERIAL), 2)
    assert "a finished dataset of another: " in message and "--overwrite" in message
    assert all(text in message for text in says)
    named = re.findall(r"([a-z_.]+) was ", message)
    # With compression comes the version of the library that compresses.
    assert named[0] == says[0].partition(" was ")[0] and set(named[1:]) <= {"format.zstd_version"}
    assert digests(place / "out") == before


def test_other_inputs_at_the_destination_are_named(place, succeed_here, pack_here):
    (place / "src").mkdir()
    for name in ("a", "b", "c"):
        (place / "src" / f"{name}.jsonl").write_text('{"a": 1}\n')
    succeed_here(place, "src", "out", "--to", "wds", *SERIAL)
    (place / "src" / "a.jsonl").unlink()
    (place / "src" / "b.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    (place / "src" / "new.jsonl").write_text('{"a": 1}\n')
    message = error_of(pack_here(place, "src", "out", "--to", "wds", *SERIAL), 2)
    assert "1 input added: new.jsonl" in message and "1 input gone: a.jsonl" in message and "1 input changed: b.jsonl" in message
    succeed_here(place, "src", "out", "--to", "wds", "--overwrite", *SERIAL)
    assert len(members(place / "out")) == 4


def test_an_unfinished_build_of_another_plan_is_refused(place, succeed_here, pack_here):
    (place / "in.jsonl").write_bytes(b'{"a": "%s"}\n' % (b"x" * 16_000) * 1_200 + b"[]\n")
    error_of(pack_here(place, "in.jsonl", "out", "--to", "wds", *SERIAL), 3)
    message = error_of(pack_here(place, "in.jsonl", "out", "--to", "wds", "--shard-size", "1MB", *SERIAL), 2)
    assert "an unfinished build of another: shard_bytes was 268435456, is 1000000" in message and "--overwrite" in message
    succeed_here(place, "in.jsonl", "out", "--to", "wds", "--max-bad", "1", *SERIAL)


def test_overwrite_leaves_nothing_of_the_old_dataset(place, succeed_here, digests):
    succeed_here(place, "images", "out", "--to", "wds", "--shard-samples", "1", *SERIAL)
    assert len(list((place / "out").glob("*.tar"))) == 3
    succeed_here(place, "docs.jsonl", "out", "--to", "mds", "--overwrite", *SERIAL)
    succeed_here(place, "docs.jsonl", "new", "--to", "mds", *SERIAL)
    assert digests(place / "out") == digests(place / "new")


# Lists.


@pytest.mark.parametrize("separator", [b"\n", b"\0"], ids=["lines", "NULs"])
@pytest.mark.parametrize("way", ["-", "@list.txt"])
def test_a_list_names_the_files_to_take(place, succeed_here, way, separator):
    names = [b"images/2.json", b"images/0.jpg", b"./images/2.jpg", b"images/0.json"]
    text = separator.join(names) + separator
    (place / "list.txt").write_bytes(text)
    succeed_here(place, way, "out", "--to", "wds", *SERIAL, stdin=text if way == "-" else b"")
    assert list(members(place / "out")) == ["images/0.jpg", "images/0.json", "images/2.jpg", "images/2.json"]


def test_a_list_of_absolute_paths_gives_keys_below_their_common_folder(place, succeed_here):
    names = [bytes(place / "images" / f"{i}.{kind}") for i in (0, 1) for kind in ("jpg", "json")]
    succeed_here(place, "-", "out", "--to", "wds", *SERIAL, stdin=b"\n".join(names))
    assert list(members(place / "out")) == ["0.jpg", "0.json", "1.jpg", "1.json"]


def test_a_list_of_records_gives_what_the_files_give(place, succeed_here):
    (place / "more").mkdir()
    (place / "more" / "docs.jsonl").write_bytes(b'{"text": "x", "n": 5}\n')
    succeed_here(place, "-", "listed", "--to", "mds", "--from", "jsonl", *SERIAL, stdin=b"more/docs.jsonl\ndocs.jsonl\n")
    rows = json.loads((place / "listed" / "index.json").read_text())["shards"][0]
    assert (rows["samples"], rows["column_names"]) == (13, ["key", "n", "text"])


def test_a_list_of_records_is_seen_to_be_one(place, succeed_here):
    (place / "list.txt").write_text("docs.jsonl\n")
    succeed_here(place, "@list.txt", "out", "--to", "mds", *SERIAL)
    assert json.loads((place / "out" / "index.json").read_text())["shards"][0]["samples"] == 12


def test_a_listed_file_that_does_not_exist_is_named(place, pack_here):
    done = pack_here(place, "-", "out", "--to", "wds", *SERIAL, stdin=b"images/0.jpg\nimages/0.json\nimages/nope.jpg\nimages/nope.json\n")
    assert done.returncode in (2, 3) and "images/nope.j" in error_of(done, done.returncode)


# Pipes.


@pytest.mark.parametrize("extra", [[], ["--json"], ["--dry-run"], ["--help"]], ids=" ".join)
def test_a_reader_that_goes_away_is_no_error(place, extra):
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open(write_end, "wb") as output:
        done = subprocess.run(
            [*COMMAND, "pack", "docs.jsonl", "out", "--to", "mds", *SERIAL, *extra],
            cwd=place, env=environment(), stdout=output, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr and "error" not in done.stderr
    assert done.returncode == 0
    assert (place / "out" / "shardtools.manifest").exists() == (extra in ([], ["--json"]))


def test_the_first_line_of_a_result_may_be_all_that_is_read(place):
    command = f"{shlex.join(COMMAND)} pack docs.jsonl out --to mds --engine serial | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=place, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["samples", "12"])
    assert done.stderr == "note: fields: n int, text str\n"


# Help.


def examples() -> list[str]:
    done = subprocess.run([*COMMAND, "pack", "--help"], env=environment(COLUMNS="200"), capture_output=True, text=True, check=True)
    section = done.stdout.partition("Examples:\n")[2]
    return [line.strip() for line in section.splitlines() if line.strip()]


def test_the_help_ends_in_three_examples_that_work_as_written(place):
    found = examples()
    assert len(found) == 3
    folder = place / "newcomer"
    folder.mkdir()
    for name in ("images", "docs.jsonl"):
        (folder / name).symlink_to(place / name)
    (folder / "tokenizer").mkdir()
    Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]")).save(str(folder / "tokenizer" / "tokenizer.json"))
    for line in found:
        words = shlex.split(line)
        assert words[0] == "shardtools" and words[1] == "pack"
        done = subprocess.run([*COMMAND, *words[1:]], cwd=folder, env=environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        manifest = json.loads((folder / words[3] / "shardtools.manifest").read_text())
        assert manifest["ledger"]["written"] == (3 if "images/" in words else 12)


def test_the_help_shows_options_under_headings(place):
    done = subprocess.run([*COMMAND, "pack", "-h"], cwd=place, env=environment(COLUMNS="100"), capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == ""
    headings = re.findall(r"^(\w+):$", done.stdout, re.MULTILINE)
    assert [name for name in headings if name != "Help"] == ["Output", "Input", "Tokens", "Selection", "Images", "Run", "Examples"]


# Interrupts.


def slow_input(folder: Path, count: int = 4000) -> list[str]:
    """Arguments of a run that takes seconds: it compresses a few megabytes as well as can be."""
    numbers = random.Random(1)
    words = ["".join(numbers.choices("abcdefghij", k=numbers.randint(2, 9))) for _ in range(3000)]
    with open(folder / "slow.jsonl", "w") as file:
        for i in range(count):
            file.write(json.dumps({"id": i, "text": " ".join(numbers.choices(words, k=80))}) + "\n")
    return ["slow.jsonl", "slow", "--to", "mds", "--compression", "zstd:19", "--shard-size", "256KiB"]


def interrupt(folder: Path, arguments: Sequence[str], *, group: bool) -> tuple[int, str, float]:
    """Start a run, interrupt it once it writes; its code, what it said, and how long it took to end."""
    process = subprocess.Popen(
        [*COMMAND, "pack", *arguments],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: process.poll() is not None or any((folder / "slow").glob(".shardtools/build/*/tmp/*.*")))
    assert process.poll() is None, process.communicate()
    began = time.monotonic()
    if group:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    seconds = time.monotonic() - began
    assert stdout == ""
    return process.returncode, stderr, seconds


@pytest.mark.parametrize(("engine", "group"), [("processes", True), ("processes", False), ("serial", True)])
def test_an_interrupted_run_ends_at_once_and_the_next_one_finishes_it(place, digests, engine, group):
    arguments = [*slow_input(place, 2500), "--engine", engine]
    code, stderr, seconds = interrupt(place, arguments, group=group)
    assert code == 130
    lines = [line for line in stderr.splitlines() if line]
    assert "Traceback" not in stderr and "Process" not in stderr
    assert lines[-1].startswith("error: interrupted") and len(lines) == 2
    left = [str(path.relative_to(place / "slow")) for path in (place / "slow").rglob("*") if path.is_file()]
    assert left and all(name.startswith(".shardtools/build/") for name in left)
    succeed(place, *arguments)
    undisturbed = [argument if argument != "slow" else "undisturbed" for argument in arguments]
    began = time.monotonic()
    succeed(place, *undisturbed)
    assert seconds < max(2, time.monotonic() - began)  # of a machine that has other work, too
    assert digests(place / "slow") == digests(place / "undisturbed")
    assert not (place / "slow" / ".shardtools" / "build").exists()


def has_children(pid: int) -> bool:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text() != ""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc to see when the workers begin")
def test_an_interrupt_while_the_workers_begin_is_one_line_too(place):
    arguments = slow_input(place)
    for delay in [0.01 * i for i in range(25)]:
        process = subprocess.Popen(
            [*COMMAND, "pack", *arguments],
            cwd=place,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        while not has_children(process.pid):
            assert process.poll() is None
            time.sleep(0.001)
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
        # An interrupt inside an exec() of the standard library makes Python end by the signal itself; shells call both 130.
        assert process.returncode in (130, -signal.SIGINT), (delay, stderr)
        assert "Traceback" not in stderr and "Fatal" not in stderr, (delay, stderr)
        assert stderr.splitlines()[-1].startswith("error: interrupted"), (delay, stderr)
    succeed(place, *arguments)

"""Stops a ready batch job that packs other bytes than the command line, hides what went wrong, or grows into a program."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from shardtools.cli.pack import command

ROOT = Path(__file__).parents[2]
JOBS = sorted(path.stem for path in (ROOT / "pipelines").glob("*.py") if not path.stem.startswith("_"))
NUM_PAIRS, NUM_RECORDS, NUM_CHATS = 40, 400, 30
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``images/``, ``captions.jsonl`` of them, ``wds/`` packed from them, ``docs.jsonl``, ``chats.jsonl`` and ``tokenizer/``."""
    folder = tmp_path_factory.mktemp("pipelines")
    counts = ["--pairs", str(NUM_PAIRS), "--records", str(NUM_RECORDS), "--chats", str(NUM_CHATS)]
    subprocess.run([sys.executable, ROOT / "scripts/make_sample_data.py", folder, *counts], check=True, capture_output=True)
    (folder / "captions.jsonl").write_text("".join(json.dumps(record) + "\n" for record in captions(folder)))
    pack = [sys.executable, "-m", "shardtools", "pack", folder / "images", folder / "wds", "--to", "wds", "--shard-samples", "15"]
    subprocess.run(pack, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True)
    return folder


def captions(folder: Path) -> list[dict[str, str]]:
    """A record for each image."""
    images = sorted(str(path.relative_to(folder / "images")) for path in (folder / "images").rglob("*.jpg"))
    return [{"image": image, "caption": f"picture {number}"} for number, image in enumerate(images)]


@pytest.fixture
def run(data: Path) -> Run:
    """Run a module in the folder of the data."""

    def call(module: str, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-m", module, *map(str, arguments)]
        return subprocess.run(command, cwd=data, env=environment, capture_output=True, text=True, check=False)

    return call


def contents(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a dataset."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


SHUFFLED = ["--shuffle", "--seed", "0"]
MEDIA = ["--media-root", "images"]
TOKENS = ["--tokenizer", "tokenizer"]
SAME = {
    "image_folder": (["images"], ["--to", "wds", *SHUFFLED]),
    "image_captions to wds": (["captions.jsonl", *MEDIA], ["--to", "wds", "--embed", "image", *MEDIA, *SHUFFLED]),
    "image_captions to mds": (
        ["captions.jsonl", *MEDIA, "--to", "mds", "--image-resize", "64", "--key", "caption"],
        ["--to", "mds", "--embed", "image", *MEDIA, "--image-resize", "64", "--key", "caption", *SHUFFLED],
    ),
    "wds_to_mds": (["wds"], ["--to", "mds", "--from", "wds"]),
    "wds_to_mds shuffled": (
        ["wds", "--shuffle", "--seed", "7", "--compression", "zstd"],
        ["--to", "mds", "--compression", "zstd", "--shuffle", "--seed", "7"],
    ),
    "image_folder with labels": (
        ["images", "--label-from", "dir", "--seed", "3"],
        ["--to", "wds", "--shuffle", "--seed", "3", "--label-from", "dir"],
    ),
    "web_text": (["docs.jsonl", *TOKENS, "--seq-len", "256"], ["--to", "mds", *TOKENS, "--seq-len", "256", "--seed", "0"]),
    "chats": (["chats.jsonl", *TOKENS, "--seq-len", "512"], ["--to", "mds", *TOKENS, "--seq-len", "512", "--seed", "0", "--chat"]),
}


@pytest.mark.parametrize("case", SAME)
def test_a_job_packs_the_bytes_that_the_command_packs(run, tmp_path, case):
    (source, *options), command_options = SAME[case]
    job = run(f"pipelines.{case.partition(' ')[0]}", source, tmp_path / "job", *options, "--engine", "serial")
    assert job.returncode == 0, job.stderr
    done = run("shardtools", "pack", source, tmp_path / "command", *command_options, "--engine", "serial")
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "job") == contents(tmp_path / "command")
    assert len(contents(tmp_path / "job")) >= 4


def test_images_come_in_one_permutation_with_all_their_bytes(run, data, tmp_path):
    assert run("pipelines.image_folder", "images", tmp_path / "out", "--workers", "2").returncode == 0
    found = {}
    for path in sorted((tmp_path / "out").glob("*.tar")):
        with tarfile.open(path) as archive:
            found |= {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    assert found == {str(path.relative_to(data / "images")): path.read_bytes() for path in (data / "images").rglob("*.*")}
    names = [name for name in found if name.endswith(".jpg")]
    assert len(names) == NUM_PAIRS and names != sorted(names)


def test_captions_are_packed_with_the_bytes_of_their_images(run, data, tmp_path):
    assert run("pipelines.image_captions", "captions.jsonl", tmp_path / "out", *MEDIA, "--engine", "serial").returncode == 0
    found = {}
    for path in sorted((tmp_path / "out").glob("*.tar")):
        with tarfile.open(path) as archive:
            found |= {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    texts = [json.loads(value)["caption"] for name, value in found.items() if name.endswith(".json")]
    expected = {record["caption"]: (data / "images" / record["image"]).read_bytes() for record in captions(data)}
    images = [value for name, value in found.items() if name.endswith(".jpg")]
    assert dict(zip(texts, images, strict=True)) == expected and texts != list(expected)


def test_a_missing_image_is_a_bad_sample(run, data, tmp_path):
    (tmp_path / "captions.jsonl").write_text('{"image": "00/000000.jpg"}\n{"image": "nope.jpg"}\n{"image": "../docs.jsonl"}\n')
    arguments = [tmp_path / "captions.jsonl", tmp_path / "out", "--media-root", data / "images", "--engine", "serial"]
    done = run("pipelines.image_captions", *arguments)
    assert done.returncode == 3 and "captions.jsonl" in done.stderr.splitlines()[-1] and done.stdout == ""
    done = run("pipelines.image_captions", *arguments, "--max-bad", "2")
    assert done.returncode == 0 and "3 samples read, 2 rejected" in done.stdout


def test_converted_shards_keep_keys_order_and_bytes(run, data, tmp_path, read_tars, read_mds_raw):
    assert run("pipelines.wds_to_mds", "wds", tmp_path / "out", "--engine", "serial").returncode == 0
    rows = read_mds_raw(tmp_path / "out")
    found = [(f"{row['key'].decode()}.{name}", row[name]) for row in rows for name in ("jpg", "json")]
    assert found == list(read_tars(data / "wds").items()) and len(rows) == NUM_PAIRS


def test_a_job_says_what_it_did_and_is_done_once(run, tmp_path):
    first = run("pipelines.chats", "chats.jsonl", tmp_path / "out", *TOKENS, "--engine", "serial")
    assert first.returncode == 0 and f" {NUM_CHATS} chats read, 0 rejected, " in first.stdout and "already" not in first.stdout
    assert "note: the loss is on the turns of the assistant" in first.stderr
    again = run("pipelines.chats", "chats.jsonl", tmp_path / "out", *TOKENS, "--engine", "serial")
    assert again.returncode == 0 and again.stdout.endswith("; already complete\n")


def test_a_fault_is_one_sentence_and_a_code(run, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\nnot json\n')
    cases = {
        2: run("pipelines.web_text", "nope.jsonl", tmp_path / "a", *TOKENS),
        3: run("pipelines.web_text", tmp_path / "bad.jsonl", tmp_path / "b", *TOKENS, "--engine", "serial"),
    }
    for code, done in cases.items():
        *notes, last = done.stderr.splitlines()
        assert done.returncode == code and last.startswith("error: ") and all(line.startswith("note: ") for line in notes), done.stderr
        assert done.stdout == ""
    rescued = run("pipelines.web_text", tmp_path / "bad.jsonl", tmp_path / "b", *TOKENS, "--max-bad", "1", "--engine", "serial")
    assert rescued.returncode == 0 and "2 documents read, 1 rejected, 0 left out" in rescued.stdout


def test_a_message_of_the_library_names_an_option_of_the_job(run, data, tmp_path):
    (tmp_path / "chats.jsonl").write_text('{"turns": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n')
    chats = [tmp_path / "chats.jsonl", tmp_path / "out", *TOKENS, "--engine", "serial"]
    done = run("pipelines.chats", *chats)
    assert done.returncode == 2 and "choose with --text-key" in done.stderr and done.stdout == ""
    assert run("pipelines.chats", *chats, "--text-key", "turns").returncode == 0
    (tmp_path / "captions.jsonl").write_text('{"image": "00/000000.jpg", "n": 1}\n{"image": "00/000001.jpg", "n": 1}\n')
    done = run("pipelines.image_captions", tmp_path / "captions.jsonl", tmp_path / "keys", "--media-root", data / "images", "--key", "n")
    assert done.returncode in (2, 3) and "captions.jsonl" in done.stderr and done.stderr.splitlines()[-1].startswith("error: ")


@pytest.mark.train
def test_the_nightly_job_ends_where_something_is_wrong(run, data, tmp_path):
    pytest.importorskip("torch", reason="needs the extra train")
    done = run("pipelines.nightly", data / "nope", tmp_path / "out")
    assert done.returncode == 2 and done.stderr.startswith("error: expected a file or folder to read")
    assert run("pipelines.image_folder", "images", tmp_path / "out", "--engine", "serial").returncode == 0
    shard = tmp_path / "out" / "train-000000.tar"
    damaged = bytearray(shard.read_bytes())
    damaged[700] ^= 1
    shard.write_bytes(damaged)
    done = run("pipelines.nightly", "images", tmp_path / "out")
    assert done.returncode == 1 and "train-000000.tar" in done.stdout and "Proved before" not in done.stdout


@pytest.mark.train
def test_a_part_of_the_nightly_job_leaves_the_proof_to_the_one_that_publishes(run, tmp_path):
    pytest.importorskip("torch", reason="needs the extra train")
    done = run("pipelines.nightly", "images", tmp_path / "out", "--part", "2/2", "--engine", "serial")
    assert done.returncode == 0 and done.stdout == "part 2/2 done; 1 of 1 partition left to other parts\n"
    assert not (tmp_path / "out" / "shardtools.manifest").exists()


def test_the_nightly_job_may_leave_the_bench_out(run, tmp_path):
    done = run("pipelines.nightly", "images", tmp_path / "out", "--no-bench", "--engine", "serial")
    assert done.returncode == 0, done.stderr
    assert "Sound: 1 shard" in done.stdout and "Proved before" not in done.stdout
    for bound in (["--require-ratio", "1.2"], ["--report", str(tmp_path / "report")]):
        done = run("pipelines.nightly", "images", tmp_path / "other", "--no-bench", *bound)
        assert done.returncode == 2 and "with --no-bench, which measures nothing" in done.stderr
    assert not (tmp_path / "other").exists() and not (tmp_path / "report").exists()


@pytest.mark.train
@pytest.mark.parametrize("wrong", [["--require-ratio", "nan"], ["--require-ratio", "2", "--blocks", "1"], ["--report", "docs.jsonl"]])
def test_what_is_wrong_with_the_bench_is_said_before_anything_is_packed(run, tmp_path, wrong):
    pytest.importorskip("torch", reason="needs the extra train")
    done = run("pipelines.nightly", "images", tmp_path / "out", *wrong)
    assert done.returncode in (2, 3) and done.stderr.startswith("error: expected ") and done.stdout == ""
    assert not (tmp_path / "out").exists()


@pytest.mark.train
@pytest.mark.slow
@pytest.mark.parametrize(("ratio", "code"), [("0.001", 0), ("1000", 1)])
def test_the_nightly_job_packs_verifies_and_benches(run, tmp_path, ratio, code):
    for reader in ("torch", "webdataset"):
        pytest.importorskip(reader, reason="needs the extra train")
    quickly = ["--blocks", "2", "--min-seconds", "0.2", "--require-ratio", ratio]
    done = run("pipelines.nightly", "images", tmp_path / "out", *quickly)
    assert done.returncode == code, done.stdout + done.stderr
    assert f"{NUM_PAIRS} samples in 1 shard, " in done.stdout and "Sound: 1 shard" in done.stdout and "Proved before: " in done.stdout


@pytest.mark.train
@pytest.mark.slow
def test_the_nightly_job_of_text(run, tmp_path):
    for reader in ("torch", "streaming"):
        pytest.importorskip(reader, reason="needs the extra train")
    options = [*TOKENS, "--seq-len", "128", "--blocks", "1", "--min-seconds", "0.2", "--report", str(tmp_path / "report")]
    done = run("pipelines.nightly", "docs.jsonl", tmp_path / "out", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "report" / "bench.json").read_text()) and "Sound: " in done.stdout


@pytest.mark.parametrize("name", JOBS)
def test_a_job_stays_small_and_builds_once(name):
    text = (ROOT / "pipelines" / f"{name}.py").read_text()
    assert text.count("\n") < 80
    assert text.count("packed(asked, ") + text.count(" pack(asked, ") == 1
    assert f"python -m pipelines.{name} " in text


HELP = """
import runpy, sys
for name in sys.argv[1:]:
    sys.argv = ["job", "--help"]
    try:
        runpy.run_module(f"pipelines.{name}", run_name="__main__")
    except SystemExit as ended:
        assert not ended.code
"""


ENDED = """
import os, signal
from pipelines._job import run
run(lambda: os.kill(os.getpid(), signal.SIGTERM))
"""


def test_a_job_that_a_scheduler_ends_says_so():
    done = subprocess.run([sys.executable, "-c", ENDED], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGTERM
    assert done.stderr == "error: interrupted by SIGTERM; the same job goes on where it stopped\n"


OWN = {"no-bench", "blocks", "min-seconds", "timeout", "require-ratio", "report"}
"""Of what comes behind packing."""


@pytest.mark.parametrize("name", JOBS)
def test_a_job_calls_its_options_what_the_command_does(name):
    """So that a message of the library, which names an option, is right for the job too."""
    words = set(re.findall(r'add_argument\(\s*"--([\w-]+)"', (ROOT / "pipelines" / f"{name}.py").read_text()))
    known = {option.removeprefix("--") for parameter in command.params for option in parameter.opts}
    assert words and words <= known | (OWN if name == "nightly" else set())


def test_each_job_explains_itself():
    done = subprocess.run([sys.executable, "-c", HELP, *JOBS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == ""
    assert [name for name in JOBS if f"python -m pipelines.{name} " in done.stdout] == JOBS


def test_the_readme_lists_every_job():
    section = (ROOT / "README.md").read_text().partition("## Batch jobs\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == JOBS

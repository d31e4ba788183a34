"""Functions of the user's are tried before anything long begins: stops a run that fails after minutes, in the words of a library.

Each says the function, the file and line of the user's where it failed, the sample, what was raised, and what to do.
"""

import os
import pickle
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from bench_sides import QUIET, as_files, as_lines, as_tars, pack_tokens, pictures, small_tokenizer
from torch.utils.data import DataLoader

from shardtools.bench import user_faults as faults
from shardtools.bench.equality import prove, try_functions
from shardtools.bench.equality.child import prove_here
from shardtools.bench.equality.functions_child import Steps, try_here
from shardtools.bench.readers import layouts_of, open_side, settle_workload
from shardtools.bench.spec import Consumer, Settings, TrialSpec, Workload
from shardtools.bench.trial import run_trial
from shardtools.errors import ShardtoolsError, UsageError

pytestmark = [*QUIET, pytest.mark.filterwarnings("ignore::ResourceWarning")]

HERE = Path(__file__).parent
SAMPLES = pictures(12)
KEYS = sorted(SAMPLES)
MODEL = {"kind": "model", "model": None}


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions are found by processes that are started, too."""
    monkeypatch.setenv("PYTHONPATH", f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> str:
    return as_files(tmp_path_factory.mktemp("pictures"), SAMPLES)


def asked(uris: list[str], consumer: dict[str, str] | None = None, num_workers: int = 2, **workload: object) -> dict[str, object]:
    layouts = layouts_of(uris, tokenizes="tokenizer" in workload)
    settled = settle_workload(layouts, Workload(**{"batch_size": 8, **workload}))  # type: ignore[arg-type]
    return {
        "layouts": [layout.__dict__ for layout in layouts],
        "workload": settled.__dict__,
        "consumer": Consumer(**(consumer or {})).__dict__,  # type: ignore[arg-type]
        "settings": Settings(num_workers).__dict__,
        "seconds": 60.0,
    }


def try_all(folder: Path, words: dict[str, object]) -> None:
    with closing(Steps(str(folder), 60.0)) as steps:
        try_here(words, steps)


def fault(folder: Path, uris: list[str], consumer: dict[str, str] | None = None, **workload: object) -> str:
    with pytest.raises(ShardtoolsError) as caught:
        try_all(folder, asked(uris, consumer, **workload))
    text = str(caught.value)
    assert text.startswith("expected ") and "\n" not in text and "Traceback" not in text
    return text


def line_of(words: str) -> int:
    """Where it stands in the user's file."""
    return 1 + next(i for i, line in enumerate((HERE / "user_functions.py").read_text().splitlines()) if words in line)


FAULTS = {
    "a mistake deep inside": (
        {"transform": "user_functions:deep"},
        r"--transform user_functions:deep to take sample 00/0000 of \S+ \(files by torch\), got ValueError: cannot reshape array of size "
        rf"105 into shape \(1,2,3\) at \S*user_functions.py:{line_of('fails here')} in _deeper; correct the function",
    ),
    "a field that is not there": (
        {"decode": "user_functions:decode_missing"},
        rf"--decode user_functions:decode_missing to take sample 00/0000 .*, got KeyError: 'cls' at \S*:{line_of('cls')} in decode_missing",
    ),
    "decode returns None": (
        {"decode": "user_functions:decode_none"},
        "--decode user_functions:decode_none to return .* got None for sample 00/0000",
    ),
    "transform returns None": (
        {"transform": "user_functions:none"},
        "--transform user_functions:none to return something .* got None for sample 00",
    ),
    "some are None": ({"transform": "user_functions:none_for_some"}, r"got None for sample 00/0004"),
    "an image is no tensor": (
        {"transform": "user_functions:as_it_is"},
        r"that torch can put into one batch from --transform user_functions:as_it_is, got PIL.Image.Image \(TypeError: default_collate",
    ),
    "sizes differ": (
        {"transform": "user_functions:of_its_own_size"},
        r"from --transform \S+, got uint8 \[5, 7, 3\] \(00/0000\) and uint8 \[7, 9, 3\] \(00/0002\) and \d+ other kinds; "
        "return tensors of one shape and type, or give",
    ),
    "names differ": (
        {"transform": "user_functions:two_kinds"},
        r"got \{'picture': uint8 \[8, 8, 3\]\} \(00/0000\) and \{'image': .*\} \(00/0004\); return tensors of one shape and type",
    ),
    "it exits": (
        {"transform": "user_functions:exits"},
        rf"to take sample 00/0000 .* got a call of sys.exit\(7\) at \S*:{line_of('sys.exit(7)')} in exits",
    ),
    "it stops iteration": ({"transform": "user_functions:stops"}, r"got StopIteration at \S*user_functions.py:\d+ in stops"),
    "collate fails": (
        {"transform": "user_functions:plain", "collate": "user_functions:collate_fails"},
        r"--collate user_functions:collate_fails to take a list of 8 such as uint8 \[8, 8, 3\], "
        r"got IndexError: .* at \S*:\d+ in collate_fails",
    ),
    "collate returns None": (
        {"transform": "user_functions:plain", "collate": "user_functions:collate_none"},
        "batches that hold tensors from --collate user_functions:collate_none, got NoneType",
    ),
    "a batch cannot be sent": (
        {"transform": "user_functions:plain", "collate": "user_functions:collate_lambda"},
        "batches that a worker can send to the main process from --collate .*lambda",
    ),
    "no such module": (
        {"transform": "user_functions_missing:f"},
        "to import user_functions_missing for --transform, got ModuleNotFoundError",
    ),
    "no such function": ({"transform": "user_functions:missing"}, "a function missing in user_functions for --transform, got none"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_function_that_fails_is_one_sentence_that_says_where(tmp_path: Path, files: str, case: str) -> None:
    workload, words = FAULTS[case]
    assert re.search(words, fault(tmp_path, [files], **workload))


MODELS = {
    "model_of_other_size": (
        r"a step that --model user_functions:model_of_other_size made of a batch of \S+, uint8 \[8, 8, 8, 3\], and that takes it, "
        rf"got RuntimeError: mat1 and mat2 .* at \S*user_functions.py:{line_of('        layer(batch')} in step"
    ),
    "model_fails": r"got RuntimeError: no weights at \S*user_functions.py:\d+ in model_fails; correct the model",
    "model_none": "user_functions:model_none to return a function of a batch, got NoneType",
    "missing": "expected pkg.mod:factory for --model, got 'user_functions:missing'",
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_fails_on_a_batch(tmp_path: Path, files: str, name: str) -> None:
    consumer = {"kind": "model", "model": f"user_functions:{name}"}
    assert re.search(MODELS[name], fault(tmp_path, [files], consumer, transform="user_functions:plain"))


def test_the_built_in_model_says_what_it_takes_before_anything_is_measured(tmp_path: Path, files: str) -> None:
    assert "expected images [B, 3, H, W] or rows of tokens" in fault(tmp_path, [files], {"kind": "model"}, decode="user_functions:decode")


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_batch_need_not_be_sent_where_there_are_no_workers(tmp_path: Path, files: str, num_workers: int) -> None:
    workload = {"transform": "user_functions:plain", "collate": "user_functions:collate_lambda"}
    if num_workers:
        fault(tmp_path, [files], num_workers=num_workers, **workload)
    else:
        try_all(tmp_path, asked([files], num_workers=num_workers, **workload))


def test_every_side_is_tried(tmp_path: Path, files: str) -> None:
    """A field that only the files have."""
    tars = as_tars(tmp_path / "wds", {key: {"png": fields["png"]} for key, fields in SAMPLES.items()})
    assert "KeyError: 'json'" in fault(tmp_path, [files, tars], decode="user_functions:decode")


def test_rows_made_on_the_fly_are_tried_too(tmp_path: Path) -> None:
    tokenizer = small_tokenizer(tmp_path / "tokenizer")
    uri = as_lines(tmp_path / "docs.jsonl", [{"text": "the cat sat on the mat " * 9} for _ in range(9)])
    packed = pack_tokens(uri, tmp_path / "rows", tokenizer, "wds", {"seq_len": "24"})
    found = fault(tmp_path, [uri, packed], tokenizer=tokenizer, transform="user_functions:deep")
    assert re.search(r"to take a sample of \S+docs.jsonl \(jsonl by torch\), got .* at \S*user_functions.py:\d+ in _deeper", found)


def test_sound_functions_are_sound(tmp_path: Path, files: str) -> None:
    workload = {"transform": "user_functions:plain", "collate": "user_functions:collate"}
    tars = as_tars(tmp_path / "wds", SAMPLES)
    try_all(tmp_path, asked([files, tars], {"kind": "model", "model": "user_functions:model"}, **workload))


# In the process of its own.


def tried(files: str, seconds: float = 60.0, **workload: str) -> None:
    layouts = layouts_of([files])
    settled = settle_workload(layouts, Workload(batch_size=8, **workload))
    try_functions(layouts, settled, Consumer(), Settings(2), seconds)


def test_nothing_is_run_where_nothing_is_the_users(files: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    tried(files)


ENDS = {
    "hangs": (3.0, r"--transform user_functions:hangs on sample 00/0000 of \S+ to return, but it took longer than 3 seconds"),
    "exits_at_once": (
        60.0,
        r"on sample 00/0000 of \S+ to return, but its process ended with exit code 9, and its last words were: so long",
    ),
    "deep": (60.0, r"got ValueError: cannot reshape .* in _deeper"),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name == "deep" else name for name in ENDS])
def test_a_function_that_does_not_return(files: str, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    seconds, words = ENDS[name]
    with pytest.raises(UsageError, match=words):
        tried(files, seconds, transform=f"user_functions:{name}")
    assert capfd.readouterr().out == ""


@pytest.mark.slow
def test_what_a_function_prints_is_no_output_of_ours(files: str, capfd: pytest.CaptureFixture[str]) -> None:
    tried(files, transform="user_functions:prints")
    assert capfd.readouterr() == ("", "")


# Later: in a proof, and in a trial.


def broken(folder: Path) -> str:
    """One picture's second half is gone, as after a copy that was cut."""
    samples = {key: dict(fields) for key, fields in SAMPLES.items()}
    samples["01/0007"]["png"] = samples["01/0007"]["png"][:40]
    return as_files(folder, samples)


BROKEN = r"expected decoding \(rgb\) to make something of the field png of sample 01/0007 of \S+ \(files by torch\), got \w+: "


def test_a_broken_picture_is_named_by_the_proof_and_by_a_loader(tmp_path: Path) -> None:
    """From a worker, too, whose whole traceback comes with it."""
    (layout,) = layouts_of([broken(tmp_path / "broken")])
    workload = settle_workload([layout], Workload(batch_size=4, image_side=8))
    with pytest.raises(ShardtoolsError) as caught:
        prove_here(layout, workload, Settings(2))
    said = [faults.sentence_of(caught.value)]
    side = open_side(layout, workload, Settings(1))
    with pytest.raises(ShardtoolsError) as caught:
        list(DataLoader(side.dataset, num_workers=1, **side.loader_kwargs))
    said.append(faults.sentence_of(caught.value))
    for sentence in said:
        assert re.match(BROKEN, sentence), sentence
        assert "\n" not in sentence and "object at 0x" not in sentence and len(sentence) < 400


@pytest.mark.slow
def test_a_broken_picture_is_named_by_fresh_processes(tmp_path: Path) -> None:
    (layout,) = layouts_of([broken(tmp_path / "broken")])
    workload = settle_workload([layout], Workload(batch_size=4, image_side=8))
    with pytest.raises(ShardtoolsError, match=BROKEN) as caught:
        prove(layout, workload, Settings(2))
    assert "\n" not in str(caught.value)
    result = run_trial(TrialSpec(layout, workload, Settings(2), min_seconds=0.3, timeout_seconds=60), is_watched=False)
    assert result.status == "error"
    assert re.match(BROKEN, result.message), result.message


def test_a_transform_that_returns_none_is_no_empty_data(tmp_path: Path) -> None:
    """webdataset leaves such samples out: a loader without a batch."""
    (layout,) = layouts_of([as_tars(tmp_path / "wds", SAMPLES)])
    workload = settle_workload([layout], Workload(batch_size=4, transform="user_functions:none"))
    side = open_side(layout, workload, Settings(0))
    with pytest.raises(
        faults.SampleError, match="--transform user_functions:none to return something for each sample, got None for sample 0"
    ):
        next(iter(side.dataset))
    side.close()


def test_a_sentence_survives_the_way_from_a_worker() -> None:
    """As torch hands on what a worker raised: its type, made of a text with the traceback, the chained error first."""
    told = "expected decoding (rgb) to make something of the field png of sample a of b (files by torch), got OSError: x; mend the sample"
    head = (
        'Caught SampleError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  File "a.py", line 1\n    g()\n'
    )
    text = f"{head}shardtools.bench.user_faults.SampleError: {told}\n"
    assert faults.sentence_of(faults.SampleError(text)) == told
    assert faults.sentence_of(RuntimeError(text)) == told
    assert faults.told(RuntimeError("boom")) is None
    assert faults.sentence_of(RuntimeError("boom\nand more")) == "RuntimeError: boom and more"
    other = f"{head}KeyError: 'a'\n"
    assert faults.sentence_of(RuntimeError(other)) == "KeyError: 'a'"
    assert str(pickle.loads(pickle.dumps(faults.SampleError(told)))) == told


def test_the_machine_is_not_blamed_on_a_function() -> None:
    assert faults.is_of_machine(RuntimeError("unable to allocate shared memory(shm) for file </torch_1>"))
    assert faults.is_of_machine(OSError(24, "Too many open files"))
    assert not faults.is_of_machine(ValueError("x"))


def test_this_process_loads_no_torch_to_try_them() -> None:
    code = "import sys; import shardtools.bench.equality; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0

"""A reader that fails is one finding with its last words, and nothing of it is left behind; stops hangs, orphans, and accusations
of a rank that only lost the others.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from shardtools.errors import UsageError
from shardtools.verify.delivery import _processes
from shardtools.verify.delivery._spec import RankReport

pytestmark = pytest.mark.train

TWO_BY_TWO = {"world_sizes": (2,), "num_workers": (2,)}


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch, tars):
    """After each test: no temporary folder, and no process of ranks or workers. What was made before lies elsewhere."""
    assert tars.is_dir()
    with tempfile.TemporaryDirectory(prefix="left") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield
        assert os.listdir(folder) == []
        assert ranks_of(folder) == []


def ranks_of(folder):
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
        except OSError:
            continue  # it ended
        if folder.encode() in words:
            found.append(words)
    return found


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        ("planted", "expected --dataset as pkg.mod:name, got 'planted'"),
        ("no_such.module:f", "expected to import no_such.module for --dataset, got ModuleNotFoundError"),
        ("planted:no_reader", "expected a torch Dataset, IterableDataset or DataLoader from planted:no_reader, got a builtins.list"),
        ("planted:Numbers", "expected __key__, key or id in each item, got a int; name a function that finds the id with --id"),
    ],
)
@pytest.mark.slow
def test_a_factory_that_cannot_be_used_is_wrong_use(deliver, tars, one_sentence, factory, sentence):
    with pytest.raises(UsageError) as refused:
        deliver(tars, factory=factory, **TWO_BY_TWO)
    assert one_sentence(refused.value).startswith(sentence)


@pytest.mark.slow
def test_what_a_worker_raises_is_told(deliver, tars):
    delivered = deliver(tars, factory="planted:Raises", **TWO_BY_TWO)
    (finding,) = delivered.findings
    assert finding.kind == "reader-failed"
    assert finding.detail.startswith("expected every rank to get through its epochs for 2 ranks x 2 workers, got this from rank 1: ")
    assert finding.detail.endswith(": ValueError: a shard went")
    assert delivered.proof.not_proved[-1] == "what planted:Raises delivers for 2 ranks x 2 workers, since it failed"


@pytest.mark.slow
def test_what_the_factory_raises_is_told(deliver, tars):
    (finding,) = deliver(tars, factory="planted:raises_at_once", **TWO_BY_TWO).findings
    assert finding.kind == "reader-failed" and finding.detail.endswith(": RuntimeError: no disk today for tars")


@pytest.mark.slow
def test_a_process_that_dies_leaves_its_last_words(deliver, tars):
    (finding,) = deliver(tars, factory="planted:Dies", world_sizes=(2,), num_workers=(0,)).findings
    assert finding.kind == "reader-failed"
    assert finding.detail.endswith("it ended by the signal SIGKILL, and its last words were: something is wrong")


@pytest.mark.parametrize(("codes", "rank"), [((75, -9), 1), ((1, 75), 0), ((75, 0), 0)])
def test_a_rank_that_only_lost_the_others_is_not_accused(monkeypatch, tmp_path, codes, rank):
    """Unless there is no other: 0 is the code of a rank that got through."""
    spec = SimpleNamespace(
        folder=str(tmp_path),
        report_path=lambda rank: str(tmp_path / f"report-{rank}"),
        words_path=lambda rank: str(tmp_path / f"words-{rank}"),
    )
    for number, code in enumerate(codes):
        (tmp_path / f"words-{number}").write_text(f"words of rank {number}\n")
        if code == 0:
            RankReport().save(spec.report_path(number))
    monkeypatch.setattr(_processes, "_exit_code", codes.__getitem__)
    with pytest.raises(_processes.RankFailedError) as failed:
        _processes._wait(spec, range(len(codes)))
    assert failed.value.rank == rank and failed.value.words.endswith(f"words of rank {rank}")


@pytest.mark.slow
def test_a_reader_that_hangs_is_ended(deliver, tars, monkeypatch):
    monkeypatch.setattr(_processes, "STALL_SECONDS", 25.0)
    (finding,) = deliver(tars, factory="planted:Hangs", **TWO_BY_TWO).findings
    assert finding.kind == "reader-failed"
    assert "got this from rank 1: nothing was delivered for 25 seconds" in finding.detail


def test_an_interrupt_ends_everything(deliver, tars, monkeypatch):
    ticks = iter(range(100))

    def interrupted(seconds):
        if next(ticks) == 20:
            raise KeyboardInterrupt
        real_sleep(seconds)

    real_sleep = time.sleep
    monkeypatch.setattr(_processes.time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        deliver(tars, factory="planted:Hangs", **TWO_BY_TWO)


@pytest.mark.slow
def test_ranks_die_with_the_process_that_started_them(tars):
    """Killed, it cannot end them itself."""
    code = (
        "from shardtools.verify import VerifyOptions, verify; from shardtools.verify.options import DeliveryOptions\n"
        f"verify({str(tars)!r}, VerifyOptions(no_dup=True, workers=1, delivery=DeliveryOptions(factory='planted:Hangs')))"
    )
    folder = tempfile.gettempdir()
    verifier = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parent, env={**os.environ, "TMPDIR": folder})
    try:
        wait_until(lambda: ranks_of(folder))
    finally:
        verifier.kill()
        verifier.wait()
    wait_until(lambda: not ranks_of(folder))
    shutil.rmtree(next(Path(folder).iterdir()))


def wait_until(is_true):
    latest = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < latest
        time.sleep(0.1)

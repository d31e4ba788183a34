"""A reader that fails is one finding with its last words, and nothing of it is left behind; stops hangs, orphans, and accusations
of a rank that only lost the others.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from watching import processes_with, wait_until

from shardtools.datasets import survey_dataset
from shardtools.errors import UsageError
from shardtools.signals import ends_tidily
from shardtools.verify.delivery import _processes, refuse_impossible
from shardtools.verify.delivery._live import check_live
from shardtools.verify.delivery._spec import RankReport
from shardtools.verify.findings import Findings
from shardtools.verify.options import DeliveryOptions

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
        wait_until(lambda: not processes_with(folder, "cmdline"), 10)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"factory": "planted"}, "expected --dataset as pkg.mod:name, got 'planted'"),
        ({"factory": "no_such.module:f"}, "expected to import no_such.module for --dataset, got ModuleNotFoundError"),
        ({"factory": "planted:nobody"}, "expected a function nobody in planted for --dataset, got none"),
        ({"live": True, "id_of": "planted:nobody"}, "expected a function nobody in planted for --id, got none"),
    ],
)
def test_a_name_that_is_not_there_is_wrong_use_before_anything_is_read(monkeypatch, one_sentence, words, sentence):
    monkeypatch.chdir(Path(__file__).parent)
    with pytest.raises(UsageError) as refused:
        refuse_impossible(DeliveryOptions(**words), "wds")
    assert one_sentence(refused.value).startswith(sentence)


def test_a_module_that_only_a_rank_can_import_is_not_refused(monkeypatch, tmp_path):
    """It asks for its rank, or ends there, or prints: what comes of it, the ranks tell."""
    for name, code in (("asks", "import os\nos.environ['RANK']"), ("ends", "raise SystemExit(76)"), ("prints", "print('no')\nf = print")):
        (tmp_path / f"{name}_at_import.py").write_text(code)
        monkeypatch.chdir(tmp_path)
        refuse_impossible(DeliveryOptions(factory=f"{name}_at_import:f"), "wds")


ITEM = "expected __key__, key or id in each item, got a {}; name a function that finds the id with --id (rank "
MADE = "expected a torch Dataset, IterableDataset or DataLoader from planted:{}, got a builtins.{} (rank "


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"factory": "planted:Nones"}, ITEM.format("NoneType")),
        pytest.param({"factory": "planted:Numbers"}, ITEM.format("int"), marks=pytest.mark.slow),
        pytest.param({"factory": "planted:Pairs"}, ITEM.format("tuple of 2 that begins with a bytes"), marks=pytest.mark.slow),
        pytest.param({"factory": "planted:Texts"}, ITEM.format("str"), marks=pytest.mark.slow),
        pytest.param({"factory": "planted:returns_none"}, MADE.format("returns_none", "NoneType"), marks=pytest.mark.slow),
        pytest.param({"factory": "planted:returns_a_number"}, MADE.format("returns_a_number", "int"), marks=pytest.mark.slow),
        pytest.param({"factory": "planted:no_reader"}, MADE.format("no_reader", "list"), marks=pytest.mark.slow),
        pytest.param(
            {"factory": "planted:sound", "id_of": "planted:no_id"},
            "expected text, a whole number or a list of them from planted:no_id, got a NoneType (rank ",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"factory": "planted:sound", "id_of": "planted:id_raises"},
            "expected every rank to get through its epochs for 2 ranks x 2 workers, got this from rank ",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_reader_that_cannot_be_used_is_a_finding(deliver, tars, words, sentence):
    """Not wrong use: what was found of the dataset before must not be lost."""
    (finding,) = deliver(tars, **words, **TWO_BY_TWO).findings
    assert finding.kind == "reader-failed" and finding.detail.startswith(sentence)


def test_a_folder_without_an_index_is_a_finding_of_that_reader(mosaic):
    folder = mosaic(9)
    (folder / "index.json").rename(folder / "other.json")
    dataset = survey_dataset(str(folder.parent / "tars"))
    stored = SimpleNamespace(dataset=replace(dataset, uri=str(folder), format_name="mds"), num_samples=9)
    findings = Findings(100)
    assert check_live(stored, DeliveryOptions(live=True), findings).proved == ()
    (finding,) = findings.all()
    assert finding.kind == "reader-failed" and finding.detail.endswith("got none; run shardtools index on it")


def test_a_reader_that_never_ends_is_stopped_and_told_by_what_it_delivered(deliver, tars):
    delivered = deliver(tars, factory="planted:resampled", world_sizes=(1,), num_workers=(1,), limit=9)
    assert set(delivered.kinds) == {"read-twice"}
    first = next(finding for finding in delivered.findings if finding.kind == "read-twice")
    assert first.detail.startswith(
        "expected this sample once in epoch 0 of 1 rank x 1 worker (rank 0 stopped after more than 1,108 ids, as if without end), got it "
    )
    assert delivered.proof.not_proved[0] == (
        "whether every sample comes in an epoch of planted:resampled for 1 rank x 1 worker, since it was stopped"
    )
    assert delivered.proof.proved == ()


@pytest.mark.slow
def test_a_reader_of_nothing_without_end_is_stopped(deliver, tars):
    delivered = deliver(tars, factory="planted:Nothing", world_sizes=(2,), num_workers=(0,))
    assert delivered.kinds == {"never-read": 54}
    assert "stopped after more than 1,108 ids" in delivered.detail("never-read", "k000")


@pytest.mark.slow
def test_ids_that_are_no_text_are_unknown(deliver, tars):
    delivered = deliver(tars, factory="planted:NoText", world_sizes=(1,), num_workers=(0,))
    assert delivered.kinds == {"unknown-id": 1}


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
    assert "got this from rank 1: nothing was delivered for 25 seconds, which is as long as readers are waited for" in finding.detail


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
    folder = tempfile.gettempdir()
    verifier = start_verifier(tars)
    try:
        wait_until(lambda: processes_with(folder, "cmdline"))
    finally:
        verifier.kill()
        verifier.wait()
    wait_until(lambda: not processes_with(folder, "cmdline"))
    shutil.rmtree(next(Path(folder).iterdir()))


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_a_signal_to_end_leaves_nothing_behind(tars, number):
    """And it ends the process as the signal does."""
    folder = tempfile.gettempdir()
    verifier = start_verifier(tars)
    try:
        wait_until(lambda: list(Path(folder).glob("shardtools-live-*/0/log-1-0")))
        verifier.send_signal(number)
        assert verifier.wait(120) == -number
    finally:
        verifier.kill()
        verifier.wait()
    assert os.listdir(folder) == []


def test_handlers_of_others_stay():
    """Ignored as by nohup, or handled by the caller; ours are gone afterwards."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ends_tidily():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def test_another_thread_installs_no_handlers():
    seen = []

    def run():
        with ends_tidily():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]


def start_verifier(tars):
    code = (
        "from shardtools.verify import VerifyOptions, verify; from shardtools.verify.options import DeliveryOptions\n"
        f"verify({str(tars)!r}, VerifyOptions(no_dup=True, workers=1, delivery=DeliveryOptions(factory='planted:Hangs', world_sizes=(2,))))"
    )
    return subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parent, env={**os.environ, "TMPDIR": tempfile.gettempdir()})

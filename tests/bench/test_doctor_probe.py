"""A torch that cannot be imported, or data that hangs, costs the doctor that one answer; stops a check-up that dies with its patient.

The process that imports torch finds another torch, or other data, in the folder it is started in.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from watching import wait_until

from shardtools.bench import versions
from shardtools.bench.doctor.torch_probe import learn
from shardtools.bench.not_measured import Unknown

pytestmark = pytest.mark.train
HANGING = "import time\ntime.sleep(600)\n"
HANGING_LATE = """
import sys, time

class Hang:
    def find_spec(self, name, path=None, target=None):
        if name == "shardtools.bench.readers.layouts":
            time.sleep(600)

sys.meta_path.insert(0, Hang())
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which comes first where modules are looked for."""
    pytest.importorskip("torch", reason="needs the extra train")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return tmp_path


def test_what_is_learnt_of_torch_and_of_data(place: Path) -> None:
    (place / "data").mkdir()
    for i in range(3):
        (place / f"data/{i}.bin").write_bytes(b"x" * 100)
    found = learn(["data", "nowhere"], 2)
    assert found.torch["version"].startswith(versions.version_of("torch"))
    assert found.main_bytes and found.main_bytes > 20_000_000
    assert found.worker_bytes and found.worker_bytes > 0
    data, nowhere = found.sides
    assert (data["uri"], data["kind"], data["num_shards"]) == ("data", "files", None)
    assert data["batches"] == [[200, 16], [100, 8]]
    assert (nowhere["batches"], "nowhere" in nowhere["error"]) == ([], True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise ImportError('libcudart is missing')", "exit code 1, saying: ImportError: libcudart is missing"),
        ("import os\nos.kill(os.getpid(), 4)", "ended with signal 4"),
    ],
)
def test_a_broken_torch_is_told_with_its_last_words(place: Path, text: str, words: str) -> None:
    (place / "torch.py").write_text(text)
    with pytest.raises(Unknown, match=words):
        learn([], 2)


def test_a_torch_that_hangs_is_given_up(place: Path) -> None:
    (place / "torch.py").write_text(HANGING)
    began = time.monotonic()
    with pytest.raises(Unknown, match="took over 1 s"):
        learn([], 2, 1.0)
    assert time.monotonic() - began < 30


@pytest.mark.skipif(sys.platform != "linux", reason="processes are told from /proc")
def test_a_doctor_that_is_killed_leaves_no_process_and_no_folder(place: Path) -> None:
    """Killed while torch is imported: the other process ends by itself, and what it has is removed."""
    (place / "torch.py").write_text("import os\nopen('pid', 'w').write(str(os.getpid()))\n" + HANGING)
    with tempfile.TemporaryDirectory(prefix="doc-", dir="/tmp") as temporary:
        command = [sys.executable, "-c", "from shardtools.bench.doctor.torch_probe import learn; learn([], 2)"]
        doctor = subprocess.Popen(command, env={**os.environ, "TMPDIR": temporary})
        wait_until(lambda: (place / "pid").exists() and (place / "pid").read_text() != "")
        pid = (place / "pid").read_text()
        assert os.path.exists(f"/proc/{pid}")
        doctor.kill()
        doctor.wait()
        wait_until(lambda: not os.path.exists(f"/proc/{pid}") and not os.listdir(temporary))


@pytest.mark.slow
def test_data_that_hangs_leaves_what_is_known_of_torch(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is hung by what comes first on its path, when it begins to look at the data."""
    monkeypatch.setenv("PYTHONPATH", f"{place}{os.pathsep}{Path(__file__).parents[2]}")
    (place / "sitecustomize.py").write_text(HANGING_LATE)
    found = learn(["data"], 2, 15.0)
    assert found.torch["version"]
    assert found.sides == [{"uri": "data", "kind": None, "num_shards": None, "samples": 2, "batches": [], "error": "it took over 15 s"}]

"""Publication gives no file a name that is not its own, and deletes nothing that is not the dataset's.

Stops the worst a packer can do: exit 0 over a dataset with wrong shards, or the loss of somebody's files.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shardtools import partitions as partitions_module
from shardtools.build import run
from shardtools.build.order import Order
from shardtools.build.progress import BuildProgress
from shardtools.build.run import RunOptions
from shardtools.errors import BadSampleError, ShardtoolsError, StorageError, UsageError
from shardtools.formats.wds import Wds
from shardtools.manifest import Manifest
from shardtools.plan import ShardLimit
from shardtools.sources.jsonl import Jsonl
from shardtools.storage.local import Local
from shardtools.units import Budget
from shardtools.verify import verify


@pytest.fixture(autouse=True)
def many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions_module, "MIN_PARTITION_BYTES", 4000)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    folder = tmp_path / "lines"
    folder.mkdir()
    for number in range(12):
        records = [json.dumps({"i": 1000 + i, "p": "x" * 200}) for i in range(60)]
        (folder / f"{number:02d}.jsonl").write_text("\n".join(records) + "\n")
    return folder


def pack(source: Path, out: Path, *, overwrite: bool = False, budget: str = "100%") -> run.Result:
    order = Order(Jsonl(), Wds(), ShardLimit(num_bytes=20480))
    return run.build([str(source)], str(out), order, RunOptions(budget=Budget.parse(budget), overwrite=overwrite))


def reseal(folder: Path, change) -> None:
    path = folder / "shardtools.manifest"
    content = json.loads(path.read_text())
    del content["sha256"]
    change(content)
    text = json.dumps(content, indent=1).removesuffix("\n}")
    path.write_text(f'{text},\n "sha256": "{hashlib.sha256(text.encode()).hexdigest()}"\n}}\n')


def test_a_publication_that_must_be_repeated_with_fewer_shards_takes_its_names_back(lines, tmp_path, monkeypatch, digests):
    """Numbers shift when a partition gives fewer shards: a shard left under its old number is another one's bytes."""
    real_move, moves = Local.move, []

    def move(self, source, target):
        if target.startswith("train-"):
            moves.append(target)
            if len(moves) == 40:
                raise KeyboardInterrupt
        return real_move(self, source, target)

    monkeypatch.setattr(Local, "move", move)
    with pytest.raises(KeyboardInterrupt):
        pack(lines, tmp_path / "out")
    monkeypatch.setattr(Local, "move", real_move)
    changed = lines / "03.jsonl"
    changed.write_bytes(b"\n".join(b"!" + line[1:] if line else line for line in changed.read_bytes().split(b"\n")))
    result = pack(lines, tmp_path / "out")
    assert result.manifest.ledger.rejects == {"invalid-json": 60}
    assert verify(str(tmp_path / "out")).findings == ()
    pack(lines, tmp_path / "clean")
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")


@pytest.mark.parametrize("name", ["../victim/a.txt", "../victim", "{tmp}/victim/a.txt", "", "sub", "."])
def test_overwriting_deletes_only_files_of_the_dataset(lines, tmp_path, name):
    """A manifest may come from anywhere."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "a.txt").write_text("mine")
    pack(lines, tmp_path / "out")
    (tmp_path / "out" / ".shardtools" / "sub").mkdir()
    (tmp_path / "out" / ".shardtools" / "sub" / "b.txt").write_text("mine")
    bad = {"name": name.replace("{tmp}", str(tmp_path)).replace("sub", ".shardtools/sub"), "bytes": 4, "sha256": "0" * 64}
    reseal(tmp_path / "out", lambda content: content["files"].append(bad))
    pack(lines, tmp_path / "out", overwrite=True)
    assert (tmp_path / "victim" / "a.txt").read_text() == "mine"
    assert (tmp_path / "out" / ".shardtools" / "sub" / "b.txt").read_text() == "mine"


def test_a_damaged_manifest_can_be_overwritten_once_its_files_are_gone(lines, tmp_path, digests):
    pack(lines, tmp_path / "clean")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "shardtools.manifest").write_text("cut")
    with pytest.raises(ShardtoolsError, match=r"shardtools\.manifest"):
        pack(lines, tmp_path / "out")
    pack(lines, tmp_path / "out", overwrite=True)
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")


def test_parts_of_another_plan_never_lie_where_these_do(lines, tmp_path):
    """A worker that outlives its run must not put its shards in the place of the next plan's."""
    folders = []
    for budget in ("0", "1"):
        (lines / "extra.jsonl").write_text("{}\n" * int(budget) + '{"a": 1}\n')
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("shardtools.build.publish.Publisher.publish", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                pack(lines, tmp_path / budget)
        folders += [path.parent.name for path in (tmp_path / budget / ".shardtools" / "build").glob("*/staged")]
    assert len(folders) == 2 and folders[0] != folders[1]


def test_a_shard_that_changed_before_publication_is_not_published(lines, tmp_path, monkeypatch):
    real_move = Local.move

    def move(self, source, target):
        if target == "train-000002.tar":
            (Path(self.uri) / target).write_bytes(b"other")
            (Path(self.uri) / source).unlink()
        return real_move(self, source, target)

    monkeypatch.setattr(Local, "move", move)
    with pytest.raises(StorageError, match="train-000002"):
        pack(lines, tmp_path / "out")
    assert not (tmp_path / "out" / "shardtools.manifest").exists()


def test_a_dataset_that_another_run_published_meanwhile_is_left_alone(lines, tmp_path, monkeypatch):
    other = tmp_path / "other.jsonl"
    other.write_text('{"a": 1}\n')
    real = BuildProgress.missing

    def missing(self):
        found = real(self)
        if found:
            monkeypatch.setattr(BuildProgress, "missing", real)
            pack(other, tmp_path / "elsewhere")
            for path in (tmp_path / "elsewhere").iterdir():
                if path.is_file():
                    (tmp_path / "out" / path.name).write_bytes(path.read_bytes())
        return found

    monkeypatch.setattr(BuildProgress, "missing", missing)
    with pytest.raises(UsageError, match="another run"):
        pack(lines, tmp_path / "out")
    manifest = Manifest.parse((tmp_path / "out" / "shardtools.manifest").read_bytes())
    assert manifest.ledger.num_written == 1
    assert (tmp_path / "out" / "train-000000.tar").read_bytes() == (tmp_path / "elsewhere" / "train-000000.tar").read_bytes()


def test_a_finished_dataset_with_a_shard_missing_is_not_called_complete(lines, tmp_path):
    pack(lines, tmp_path / "out")
    (tmp_path / "out" / "train-000001.tar").unlink()
    with pytest.raises(UsageError, match="train-000001"):
        pack(lines, tmp_path / "out")


def test_a_failed_run_of_which_nothing_is_built_does_not_stand_in_the_way(tmp_path):
    """The corrected command is what a user types next; nothing that took time is lost."""
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"a": 1}\nno\n')
    with pytest.raises(BadSampleError):
        pack(bad, tmp_path / "out", budget="0")
    bad.write_text('{"a": 1}\n{"a": 2}\n')
    assert pack(bad, tmp_path / "out", budget="0").manifest.ledger.num_written == 2


def test_a_second_overwrite_during_the_first_ones_removal_loses_nothing(lines, tmp_path, monkeypatch, digests):
    """The first run must not go on deleting under names that the second has given to new shards meanwhile."""
    pack(lines, tmp_path / "clean")
    pack(lines, tmp_path / "out")
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from shardtools import partitions; partitions.MIN_PARTITION_BYTES = 4000\n"
        "from test_publication import pack; pack(Path(sys.argv[2]), Path(sys.argv[3]), overwrite=True)\n"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), str(lines), str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": str(Path(run.__file__).parents[2])}
    real, second = Local.delete, []

    def delete(self, name):
        if name == "train-000003.tar" and not second:
            second.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
            time.sleep(2)
        real(self, name)

    monkeypatch.setattr(Local, "delete", delete)
    pack(lines, tmp_path / "out", overwrite=True)
    _, stderr = second[0].communicate(timeout=60)
    assert second[0].returncode == 0, stderr
    assert digests(tmp_path / "out") == digests(tmp_path / "clean")
    assert verify(str(tmp_path / "out")).findings == ()


def test_a_run_whose_destination_is_taken_over_says_so(lines, tmp_path, monkeypatch):
    other = tmp_path / "other.jsonl"
    other.write_text('{"a": 1}\n')
    real = BuildProgress.missing

    def missing(self):
        monkeypatch.setattr(BuildProgress, "missing", real)
        pack(other, tmp_path / "out", overwrite=True)
        return real(self)

    monkeypatch.setattr(BuildProgress, "missing", missing)
    with pytest.raises(ShardtoolsError, match="removed by another run"):
        pack(lines, tmp_path / "out")
    assert Manifest.parse((tmp_path / "out" / "shardtools.manifest").read_bytes()).ledger.num_written == 1
    assert verify(str(tmp_path / "out")).findings == ()

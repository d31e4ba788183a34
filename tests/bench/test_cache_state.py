"""A label of the page cache is never better than what was proved: stops "cold-full" without root, and a caveat that is left out."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shardtools.bench.counters.device import Roots
from shardtools.bench.page_cache import Residency
from shardtools.bench.page_cache.state import NAMES_CAVEAT, CacheProof, Side, prepare
from shardtools.bench.spec import CacheState, Kind
from shardtools.errors import ShardtoolsError

ROOT_ON_DISK = "27 1 8:0 / / rw - ext4 /dev/sda rw\n"
BARE, GUEST = "flags : fpu sse2\n", "flags : fpu hypervisor\n"


@dataclass
class FakePages:
    """Pages that end as told: of a hundred, how many stay."""

    files: list[str]
    cold: int | None = 0
    hot: int | None = 100
    done: list[str] = field(default_factory=list)

    def evict(self) -> Residency:
        return self._act("evict", self.cold)

    def warm(self) -> Residency:
        return self._act("warm", self.hot)

    def residency(self) -> Residency:
        raise AssertionError("a look opens every file, which reads its name in again")

    def _act(self, name: str, left: int | None) -> Residency:
        self.done.append(name)
        return Residency(100, left, "cachestat", "" if left is not None else "nobody tells", ("/data/a",) if left else ())


def side(kind: Kind = "files", cold: int | None = 0, hot: int | None = 100, files: tuple[str, ...] = ("/data/a",)) -> Side:
    return Side(FakePages(list(files), cold, hot), kind)  # type: ignore[arg-type]


def done(of: Side) -> list[str]:
    return of.pages.done  # type: ignore[attr-defined, no-any-return]


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Roots]:
    """One disk, sda, and a file where the kernel takes orders to drop its caches."""

    def make(cpuinfo: str = BARE, mounts: str = ROOT_ON_DISK) -> Roots:
        for name, text in {"mountinfo": mounts, "cpuinfo": cpuinfo}.items():
            path = tmp_path / "proc" / ("self" if name == "mountinfo" else "") / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "proc/sys/vm").mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/dev/block/8:0").mkdir(parents=True, exist_ok=True)
        return Roots(str(tmp_path / "proc"), str(tmp_path / "sys"))

    return make


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def order(roots: Roots) -> str | None:
    path = Path(roots.proc) / "sys/vm/drop_caches"
    return path.read_text() if path.exists() else None


def test_cold_data_evicts_every_side_and_warns_of_names(machine: Callable[..., Roots]) -> None:
    this, other = side(), side("wds")
    proof = prepare("cold-data", this, [other], True, machine())
    assert (done(this), done(other)) == (["evict"], ["evict"])
    assert (proof.label, proof.why, proof.caveats) == ("cold-data", "", (NAMES_CAVEAT,))
    proof.require()


def test_shards_have_no_names_to_warn_of(machine: Callable[..., Roots]) -> None:
    assert prepare("cold-data", side("wds"), [], False, machine()).caveats == ()


@pytest.mark.usefixtures("as_root")
def test_cold_full_drops_names_after_the_last_look(machine: Callable[..., Roots]) -> None:
    roots = machine()
    proof = prepare("cold-full", side(), [], True, roots)
    assert order(roots) == "3\n"
    assert (proof.label, proof.why, proof.caveats) == ("cold-full", "", ())


@pytest.mark.usefixtures("as_root")
def test_the_whole_machines_caches_are_dropped_only_when_allowed(machine: Callable[..., Roots]) -> None:
    roots = machine()
    proof = prepare("cold-full", side(), [], False, roots)
    assert order(roots) is None
    assert proof.label == "cold-data"
    assert "--allow-drop-caches" in proof.why
    assert NAMES_CAVEAT in proof.caveats
    with pytest.raises(ShardtoolsError, match="expected a page cache that is cold-full, got cold-data: dropping"):
        proof.require()


@pytest.mark.parametrize("wanted", ["cold-data", "warm"])
@pytest.mark.usefixtures("as_root")
def test_other_states_never_drop_the_whole_machines_caches(machine: Callable[..., Roots], wanted: CacheState) -> None:
    roots = machine()
    prepare(wanted, side(), [side("wds")], True, roots)
    assert order(roots) is None


def test_cold_full_needs_root(machine: Callable[..., Roots], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    roots = machine()
    proof = prepare("cold-full", side(), [], True, roots)
    assert (proof.label, order(roots)) == ("cold-data", None)
    assert "only root" in proof.why


@pytest.mark.usefixtures("as_root")
def test_cold_full_where_the_order_cannot_be_given(machine: Callable[..., Roots]) -> None:
    roots = machine()
    (Path(roots.proc) / "sys/vm/drop_caches").mkdir()
    proof = prepare("cold-full", side(), [], True, roots)
    assert proof.label == "cold-data"
    assert "cannot be written" in proof.why


@pytest.mark.parametrize(("left", "label"), [(0, "cold-data"), (1, "cold-data"), (2, "mixed"), (100, "mixed")])
def test_above_one_percent_it_is_not_cold(machine: Callable[..., Roots], left: int, label: str) -> None:
    proof = prepare("cold-data", side(cold=left), [], False, machine())
    assert proof.label == label
    assert ("/data/a" in proof.why) == (label == "mixed")


@pytest.mark.usefixtures("as_root")
def test_cold_full_is_not_ordered_where_pages_stayed(machine: Callable[..., Roots]) -> None:
    roots = machine()
    assert prepare("cold-full", side(cold=50), [], True, roots).label == "mixed"
    assert order(roots) is None


@pytest.mark.parametrize(("hot", "label"), [(100, "warm"), (99, "warm"), (98, "mixed"), (None, "unknown")])
def test_warm_is_proved_too(machine: Callable[..., Roots], hot: int | None, label: str) -> None:
    this, other = side(hot=hot), side("wds")
    proof = prepare("warm", this, [other], False, machine())
    assert (done(this), done(other)) == (["warm"], [])
    assert (proof.label, proof.caveats) == (label, ())


def test_what_cannot_be_told_is_unknown(machine: Callable[..., Roots]) -> None:
    proof = prepare("cold-data", side(cold=None), [], False, machine())
    assert proof.label == "unknown"
    assert "nobody tells" in proof.why
    assert proof.as_json()["resident_before"] is None
    assert {"metric": "resident_before", "reason": "nobody tells"} in proof.as_json()["not_measured"]


def test_memory_cannot_be_cold(machine: Callable[..., Roots]) -> None:
    proof = prepare("cold-data", side(cold=100), [], False, machine(mounts="27 1 0:5 / / rw - tmpfs tmpfs rw\n"))
    assert proof.label == "warm"
    assert "in memory" in proof.why


def test_data_elsewhere_is_unknown(machine: Callable[..., Roots]) -> None:
    proof = prepare("cold-data", side(files=()), [], False, machine())
    assert (proof.label, proof.why) == ("unknown", "the data is not on this machine")


@pytest.mark.parametrize(
    ("cpuinfo", "mounts", "caveat"),
    [
        (GUEST, ROOT_ON_DISK, "guest-cold; device cache unknown: the machine is a guest"),
        (BARE, "27 1 0:25 / / rw - nfs4 server:/x rw\n", "what caches lie below is unknown: nfs4"),
        (BARE, "27 1 9:9 / / rw - ext4 /dev/x rw\n", "what caches lie below is unknown: device 9:9"),
    ],
)
def test_caches_below_the_machine_are_told(machine: Callable[..., Roots], cpuinfo: str, mounts: str, caveat: str) -> None:
    proof = prepare("cold-data", side("wds"), [], False, machine(cpuinfo, mounts))
    assert len(proof.caveats) == 1
    assert caveat in proof.caveats[0]


def test_the_json_has_both_shares_or_reasons() -> None:
    proof = CacheProof("cold-data", "cold-data", Residency(100, 1, "cachestat", ""), "", ("c",))
    assert proof.as_json(Residency(100, 80, "cachestat", "")) == {
        "wanted": "cold-data",
        "label": "cold-data",
        "method": "cachestat",
        "why": "",
        "caveats": ["c"],
        "resident_before": 0.01,
        "resident_after": 0.8,
        "not_measured": [],
    }
    assert proof.as_json()["not_measured"] == [{"metric": "resident_after", "reason": "nobody looked after the trial"}]

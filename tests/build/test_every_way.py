"""Every way to do the work publishes the same files, for every source, format, order and selection; stops a worker, a node, a part or
a lost run from reaching a published byte.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from every_input import INPUTS, READ_WITH
from ray_clusters import Lent, Lively, cluster
from scattering import make_records
from shuffled_engine import Killed, Shuffled

from shardtools import partitions as partitions_module
from shardtools import plugins
from shardtools.build.order import OrderWords, order_of
from shardtools.build.run import Listener, PartDone, Result, RunOptions, build_part
from shardtools.build.stages.advance import Share
from shardtools.engines import Progress
from shardtools.engines.processes import Processes
from shardtools.engines.serial import Serial
from shardtools.sources import resolve_inputs

FORMATS = ("wds", "mds")
SHUFFLES = {"in order": {}, "shuffled": {"shuffle": True, "seed": 3}}
SPLIT = "train=0.7,val=0.2,test=0.1"
SELECTIONS = {
    "of all": {},
    "in splits": {"split": SPLIT},
    "limited": {"limit": "200"},
    "deduplicated": {"dedup": "content"},
    "all of it": {"limit": "200", "dedup": "content", "split": SPLIT},
}
CASES = list(itertools.product(INPUTS, FORMATS, SHUFFLES, SELECTIONS))
A_FEW = [(name, FORMATS[i % 2], list(SHUFFLES)[i // 2 % 2], list(SELECTIONS)[-1 - i % 5]) for i, name in enumerate(INPUTS)]
"""One of each source, between them every format, order and selection."""


@pytest.fixture(scope="module", autouse=True)
def small_partitions() -> Iterator[None]:
    """16 KiB each, so that little input has many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions_module, "MIN_PARTITION_BYTES", 16_384)
        yield


@dataclass(frozen=True)
class Job:
    """One case, and the folder that its work may be done in."""

    source: Path
    work: Path
    words: OrderWords
    expected: dict[str, str]
    """What one process publishes: SHA-256 by name."""
    num_samples: int
    """So many it reports in all passes together."""

    def run(self, engine: Any = None, part: Share | None = None, listener: Listener | None = None) -> Result | PartDone:
        inputs = resolve_inputs([str(self.source)])
        return build_part(
            inputs, str(self.work), order_of(inputs, self.words), RunOptions(engine or Serial(), part=part), listener or Listener()
        )


@pytest.fixture(scope="module")
def source_of(tmp_path_factory) -> Callable[[str], Path]:
    """The input of a source, written once: 320 records of which every fourth repeats the one before in all but its key."""
    made: dict[str, Path] = {}
    records = make_records(320, longest=600)
    records = [{**records[i - (i % 4 == 3)], "id": record["id"]} for i, record in enumerate(records)]

    def make(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name) / "in"
            INPUTS[name](made[name], records)
        return made[name]

    return make


@pytest.fixture
def job_of(source_of, tmp_path, digests) -> Callable[..., Job]:
    """A case as a job; what one process publishes is reckoned once more for each, and has several shards."""
    count = itertools.count()

    def make(name: str, to: str, order: str, selection: str) -> Job:
        words = OrderWords(
            to, name, source_options=READ_WITH.get(name, {}), shard_size="20KiB", select_options=SELECTIONS[selection], **SHUFFLES[order]
        )
        whole, reported = Job(source_of(name), tmp_path / f"{next(count)}", words, {}, 0), []
        ledger = whole.run(listener=Listener(on_progress=lambda progress: reported.append(progress.num_samples))).manifest.ledger
        dropped = 80 if "dedup" in words.select_options else 0
        assert ledger.num_written == min(320 - dropped, int(words.select_options.get("limit", 320)))
        expected = digests(whole.work)
        assert len(expected) > 5
        return Job(whole.source, tmp_path / f"{next(count)}", words, expected, sum(reported))

    return make


def in_parts(job: Job) -> None:
    """The last first."""
    done = [job.run(part=Share.parse(f"{number}/3")) for number in (3, 1, 2)]
    assert isinstance(done[-1], Result)


def killed(job: Job) -> None:
    """Again and again, each time after two items more."""
    for num_items in itertools.count(2, 3):
        try:
            job.run(Killed(num_items))
        except KeyboardInterrupt:
            continue
        return


def by_engine(engine: Any) -> Callable[[Job], object]:
    return lambda job: job.run(engine)


@pytest.fixture(scope="module")
def processes() -> Iterator[Any]:
    with Processes(2) as live:
        yield Lent(live)


def check(job: Job, way: Callable[[Job], object], digests: Callable[[Path], dict[str, str]]) -> None:
    way(job)
    assert digests(job.work) == job.expected


@pytest.mark.parametrize("case", A_FEW, ids=" ".join)
def test_a_few_cases_in_every_way_of_one_machine(case, job_of, processes, digests):
    for way in (by_engine(Shuffled(5)), by_engine(processes), in_parts, killed):
        check(job_of(*case), way, digests)


def test_every_source_and_format_is_here():
    assert set(INPUTS) == set(plugins.names("sources")) and set(FORMATS) == set(plugins.names("formats"))
    assert [{case[i] for case in A_FEW} for i in range(4)] == [set(INPUTS), set(FORMATS), set(SHUFFLES), set(SELECTIONS)]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_every_case_in_every_way_of_one_machine(case, job_of, processes, digests):
    for way in (by_engine(Shuffled(5)), by_engine(processes), in_parts, killed):
        check(job_of(*case), way, digests)


# On Ray.


@pytest.fixture(scope="module")
def growing() -> Iterator[Lively]:
    """A cluster that has one node for the first tests."""
    pytest.importorskip("ray", reason="ray is not installed: the extra `ray` has it")
    with cluster(1, Path(__file__).parent) as lively:
        yield lively


@pytest.mark.slow
@pytest.mark.parametrize("num_nodes", [1, 3])
def test_every_case_on_ray(growing, num_nodes, job_of, digests):
    while growing.num_nodes < num_nodes:
        growing.add_node()
    with growing.engine as live:
        assert live.spans_machines
        for case in CASES:
            job = job_of(*case)
            job.run(Lent(live))
            assert digests(job.work) == job.expected, case


class Losing:
    """Loses a node when so much has been done."""

    def __init__(self, lively: Lively, num_samples: int) -> None:
        self._lively, self._num_left = lively, num_samples
        self.is_lost = False

    def __call__(self, progress: Progress) -> None:
        self._num_left -= progress.num_samples
        if self._num_left <= 0 and not self.is_lost:
            self.is_lost = True
            self._lively.lose_node()


LOSSES = [
    (*case, share) for case, share in zip(itertools.product(INPUTS, FORMATS, SHUFFLES), itertools.cycle((0.05, 0.5, 0.8)), strict=False)
]
"""While it is looked at, scattered or assembled."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "to", "order", "share"), LOSSES)
def test_a_node_that_is_lost_in_the_middle(growing, name, to, order, share, job_of, digests):
    while growing.num_nodes < 3:
        growing.add_node()
    job = job_of(name, to, order, "all of it")
    losing = Losing(growing, int(share * job.num_samples))
    job.run(growing.engine, listener=Listener(on_progress=losing))
    assert losing.is_lost and digests(job.work) == job.expected

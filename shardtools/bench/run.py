"""From a request to a report: sides proved equal, then trials in randomised blocks, each begun with a page cache that is proved, too."""

import hashlib
import os
import time
from typing import Any

from shardtools.bench import environment
from shardtools.bench.counters.sampler import Sampler
from shardtools.bench.devices import require_cuda
from shardtools.bench.equality import prove, refuse_unequal, try_functions
from shardtools.bench.explained import explain
from shardtools.bench.measured import Measured
from shardtools.bench.noise import HostReading, judge, reading_of
from shardtools.bench.page_cache import PageCache
from shardtools.bench.page_cache import state as cache_state
from shardtools.bench.places import files_of
from shardtools.bench.readers import layouts_of, settle_workload
from shardtools.bench.report import Report
from shardtools.bench.report.summary import report_of
from shardtools.bench.request import BenchRequest
from shardtools.bench.rounds import Rounds, Say
from shardtools.errors import ShardtoolsError

_LOOK_SECONDS = 1.0
"""At the machine before the first trial."""
_PROOF_FACTOR = 5
"""A proof reads everything and may take so many times as long as a trial."""


def bench(request: BenchRequest, say: Say) -> Report:
    """Measures what was asked for; ``say`` hears a line about each step.

    Raises UsageError for what cannot be read or compared so, ShardtoolsError where there is no such device, StorageError.
    """
    began = time.monotonic()
    if request.consumer.device == "cuda":
        require_cuda()
    layouts = layouts_of(request.uris, request.readers, request.workload.tokenizer is not None)
    workload = settle_workload(layouts, request.workload)
    version = _version(request.uris)
    try_functions(layouts, workload, request.consumer, request.settings)
    proofs = []
    for layout in layouts:
        say(f"proving {layout.uri} ({layout.name})")
        proofs.append(prove(layout, workload, request.settings, _PROOF_FACTOR * request.timeout_seconds))
    proved = refuse_unequal(proofs)
    ledger = environment.ledger(request.uris, request.settings.start_method)
    before = _before(request.uris[0], ledger)
    busy = judge(before, [])
    if busy.sentences:
        say(f"{busy.line}: this will take longer, and may end without an answer; Ctrl-C to wait for a quiet hour")
    sides = [cache_state.Side(PageCache.of(layout.uri), layout.kind) for layout in layouts]
    rounds = Rounds(request, layouts, workload, say, sides, [proof.count for proof in proofs], ledger["cpus"])
    rounds.blocks()
    rounds.with_instruments()
    noise = judge(before, rounds.readings())
    measured = Measured(request, layouts, workload, rounds.trials, rounds.comparisons())
    measured = explain(measured, rounds, ledger, bool(noise.sentences))
    if _version(request.uris) != version:
        raise ShardtoolsError("expected data that stays as it was proved, got files that changed while it was measured; run it again")
    return Report(report_of(measured, proofs, proved, (ledger, noise), time.monotonic() - began))


def _version(uris: tuple[str, ...]) -> str:
    """Of all files: their names, sizes and times."""
    digest = hashlib.sha256()
    for path in (path for uri in uris for path in files_of(uri)):
        try:
            status = os.stat(path)
            digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
        except FileNotFoundError:
            digest.update(b"gone")
    return digest.hexdigest()


def _before(uri: str, ledger: dict[str, Any]) -> HostReading:
    """The machine while nothing of ours runs but this process."""
    sampler = Sampler(os.getpid(), uri)
    sampler.start()
    time.sleep(_LOOK_SECONDS)
    return reading_of(sampler.stop(), ledger["cpus"], ledger["governor"])

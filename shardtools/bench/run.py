"""From a request to a report: sides proved equal, then trials in randomised blocks, each begun with a page cache that is proved, too."""

import os
import time
from dataclasses import replace
from typing import Any

from shardtools.bench import environment
from shardtools.bench.copies import Copies, keeps_copies
from shardtools.bench.counters.sampler import Sampler
from shardtools.bench.devices import require_cuda, require_torch
from shardtools.bench.equality import Proof, prove, refuse_unequal, try_functions
from shardtools.bench.explained import explained
from shardtools.bench.measured import Measured
from shardtools.bench.noise import HostReading, judge, reading_of
from shardtools.bench.page_cache import PageCache
from shardtools.bench.page_cache import state as cache_state
from shardtools.bench.page_cache.bucket import Bucket
from shardtools.bench.places import is_remote, version_of
from shardtools.bench.readers import layouts_of, settle_workload
from shardtools.bench.report import Report
from shardtools.bench.report.summary import report_of
from shardtools.bench.request import BenchRequest
from shardtools.bench.rounds import Rounds, Say
from shardtools.errors import ShardtoolsError
from shardtools.signals import EndedError

_LOOK_SECONDS = 1.0
"""At the machine before the first trial."""
_PROOF_FACTOR = 5
"""A proof reads everything and may take so many times as long as a trial."""


def bench(request: BenchRequest, say: Say) -> Report:
    """Measures what was asked for; ``say`` hears a line about each step. An interrupt once a trial has gone well ends in a report, too.

    Raises UsageError for what cannot be read or compared so, ShardtoolsError where there is no such device, StorageError.
    """
    with Copies() as copies:
        return _bench(request, say, copies)


def _bench(request: BenchRequest, say: Say, copies: Copies) -> Report:
    began = time.monotonic()
    require_torch()
    if request.consumer.device == "cuda":
        require_cuda()
    layouts = copies.kept(layouts_of(request.uris, request.readers, request.workload.tokenizer is not None), request.cache)
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
    sides = [_cached(proof) for proof in proofs]
    rounds = Rounds(request, layouts, workload, say, sides, [proof.count for proof in proofs], ledger["cpus"], copies)
    rounds.tokens_each = [proof.num_tokens / proof.num_delivered if proof.num_tokens else None for proof in proofs]
    measured = _measured(rounds, before, ledger)
    if _version(request.uris) != version:
        raise ShardtoolsError("expected data that stays as it was proved, got files that changed while it was measured; run it again")
    noise = judge(before, rounds.readings())
    return Report(report_of(measured, proofs, proved, (ledger, noise), time.monotonic() - began))


def _measured(rounds: Rounds, before: HostReading, ledger: dict[str, Any]) -> Measured:
    """Everything in its order; what is there when an interrupt comes, once a trial has gone well."""
    parts: list[Measured] = []
    try:
        rounds.blocks()
        rounds.with_instruments()
        noise = judge(before, rounds.readings())
        parts.append(_of_trials(rounds))
        parts.extend(explained(parts[0], rounds, ledger, bool(noise.sentences)))
    except (KeyboardInterrupt, EndedError):
        if not any(rounds.rates(side) for side in range(len(rounds.layouts))):
            raise
        rounds.say("interrupted: this is what was measured until now")
        return replace(parts[-1] if parts else _of_trials(rounds), is_interrupted=True)
    return parts[-1]


def _cached(proof: Proof) -> cache_state.Side:
    """What there is of a side in caches. A proof has read it through the reader's own local copies."""
    layout = proof.layout
    bucket = Bucket(layout.reader, keeps_copies(layout), layout.cache_folder, proof.whole) if is_remote(layout.uri) else None
    return cache_state.Side(PageCache.of(layout.uri), layout.kind, bucket)


def _of_trials(rounds: Rounds) -> Measured:
    return Measured(rounds.request, rounds.layouts, rounds.workload, rounds.trials, rounds.comparisons())


def _version(uris: tuple[str, ...]) -> str:
    """Of all files and objects: their names, sizes and times."""
    return " ".join(map(version_of, uris))


def _before(uri: str, ledger: dict[str, Any]) -> HostReading:
    """The machine while nothing of ours runs but this process."""
    sampler = Sampler(os.getpid(), uri)
    sampler.start()
    time.sleep(_LOOK_SECONDS)
    return reading_of(sampler.stop(), ledger["cpus"], ledger["governor"])

"""From the facts of an attribution to words: one true sentence in English and in Chinese, evidence, gain, and the remedies that fit.

``in_words(found, side, situation)`` is a verdict as the report has it. Nothing is measured or looked up here.
"""

from collections.abc import Callable, Iterator
from typing import Any

from shardtools.bench.attribution import Attribution
from shardtools.bench.report.verdict_words import _of_loader, _of_memory
from shardtools.bench.report.verdict_words._evidence import evidence
from shardtools.bench.report.verdict_words._gain import gain_words
from shardtools.bench.report.verdict_words._names import side_name_zh
from shardtools.bench.report.verdict_words._remedy import Remedy
from shardtools.bench.report.verdict_words._rerun import rerun
from shardtools.bench.report.verdict_words._said import Said, percent, spaced
from shardtools.bench.report.verdict_words._sentences import sentence
from shardtools.bench.report.verdict_words.situation import Situation

__all__ = ["Situation", "in_words", "percent", "side_name_zh", "spaced"]

_REMEDIES: dict[str, Callable[[Attribution, Situation], Iterator[Remedy]]] = {
    "storage": _of_loader.storage,
    "parse": _of_loader.parse,
    "decode": _of_loader.decode,
    "transform": _of_loader.transform,
    "collate": _of_loader.collate,
    "transfer": _of_loader.transfer,
    "h2d_copy": _of_memory.h2d_copy,
    "shared_memory": _of_memory.shared_memory,
    "fd_limit": _of_memory.fd_limit,
    "contention": _of_memory.contention,
}


def in_words(found: Attribution, side: int, situation: Situation) -> dict[str, Any]:
    """One of ``verdicts`` of the report: see ``schema.json``."""
    remedies = _remedies(found, situation)
    said = sentence(found, situation, _advice(remedies))
    gain = None
    if found.gain is not None:
        gain = {**found.gain.as_json(), **gain_words(found, found.gain, situation).as_json()}
    return {
        "side": side,
        "class": found.verdict,
        "stage": found.stage,
        "confidence": found.confidence,
        "rates": {name: found.rates.get(name) for name in ("F", "G", "H", "L")},
        "evidence": [line.as_json() for line in evidence(found, situation)],
        "gain": gain,
        "remedies": [remedy.as_json() for remedy in remedies],
        "sentence_en": said.en,
        "sentence_zh": said.zh,
    }


def _advice(remedies: list[Remedy]) -> Said | None:
    return remedies[0].said if remedies else None


def _remedies(found: Attribution, situation: Situation) -> list[Remedy]:
    """Each name once, those whose gain was measured first. Of several stages at once those of all."""
    if "inconclusive" in (found.verdict, found.confidence):
        return list(rerun(found, situation))
    if found.verdict == "balanced":
        both, loader = found.fact("co_bottleneck"), found.fact("loader_bound")
        stages = both.values["stages"] if both else ()
        remedies = [remedy for stage in stages for remedy in _REMEDIES[stage](found, situation)]
        if not stages and loader is not None:
            remedies = list(_of_loader.workers(found, situation))
    else:
        remedies = list(_REMEDIES[found.verdict](found, situation)) if found.verdict in _REMEDIES else []
    once: dict[str, Remedy] = {}
    for remedy in remedies:
        once.setdefault(remedy.name, remedy)
    return sorted(once.values(), key=lambda remedy: -(remedy.gain or 0.0))

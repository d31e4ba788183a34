"""What is to be known of a side beside its verdict: that it was not asked for one, and that it cannot keep all workers busy."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from shardtools.bench.measured import Measured
from shardtools.bench.report.verdict_words import side_name_zh
from shardtools.bench.trial import TrialResult

_FEW_SHARDS = re.compile(r"([\d,]+) shards? can keep at most \d+ of (\d+) workers busy")


def is_aside(limit: str) -> bool:
    """Whether a limit that a reader told stands here, and so not among the notes."""
    return _FEW_SHARDS.fullmatch(limit) is not None


def asides(measured: Measured, names: Sequence[str]) -> list[dict[str, Any]]:
    """``{side, en, zh}`` each, without full stops. ``names``: of all sides."""
    asked = {verdict["side"] for verdict in measured.verdicts}
    found = []
    for side, name in enumerate(names):
        told = [*_few_shards([trial.result for trial in measured.trials if trial.side == side])]
        if asked and side not in asked and not measured.is_interrupted:
            told.insert(
                0, ("what limits it was not asked: --attribute all asks it of every side", "没有判定它的瓶颈：--attribute all 会判定每一方")
            )
        found += [{"side": side, "en": f"{name}: {en}", "zh": f"{side_name_zh(name)}：{zh}"} for en, zh in told]
    return found


def _few_shards(results: Sequence[TrialResult]) -> Iterator[tuple[str, str]]:
    limits = dict.fromkeys(limit for result in results if result.status == "ok" for limit in result.found["limits"])
    for limit in limits:
        match = _FEW_SHARDS.fullmatch(limit)
        if match is not None:
            yield (
                f"{limit}: write at least {match[2]} shards",
                f"只有 {match[1]} 个分片，{match[2]} 个 worker 中最多 {match[1]} 个有活干：请至少写 {match[2]} 个分片",
            )

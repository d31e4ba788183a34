"""Why a report, or a comparison in it, is to be trusted less than its numbers say."""

from collections.abc import Sequence
from typing import Any

from shardtools.bench.report.verdict_words import side_name_zh, spaced


def doubts(one: dict[str, Any], other: dict[str, Any], is_noisy: bool) -> list[dict[str, str]]:
    """Of two sides of a report, ``{en, zh}`` each; empty where there are none."""
    return [*_uneven(one, other), *(_NOISY if is_noisy else ())]


def _uneven(one: dict[str, Any], other: dict[str, Any]) -> list[dict[str, str]]:
    """A side that read its data again had it in memory; beside one that did not, it looks too fast."""
    if one["is_looped"] == other["is_looped"]:
        return []
    name = one["name"] if one["is_looped"] else other["name"]
    return [
        {
            "en": f"only {name} read its data again, from memory, so the two are not alike: give more samples, or --cache warm",
            "zh": f"只有{spaced(side_name_zh(name))}把数据从内存里重读了一遍，两边条件不同：请用更多样本，或加 --cache warm",
        }
    ]


_NOISY: Sequence[dict[str, str]] = ({"en": "the host was noisy: run it again when nothing else runs", "zh": "机器有干扰，请在空闲时重跑"},)
INTERRUPTED: dict[str, str] = {
    "en": "Interrupted: this is what was measured until then. The same command again measures all of it.",
    "zh": "测量被中断：以下是中断前测得的结果。重新运行同一条命令可测完全部。",
}

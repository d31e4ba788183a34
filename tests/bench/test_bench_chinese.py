"""Sentences of bench in Chinese; stops one whose English was reworded, after which its translation would quietly be gone.

The English comes from the code that writes it, wherever that can be called without measuring.
"""

import re
from dataclasses import replace
from typing import Any

import pytest

from shardtools.bench.blocks import BlockPlan
from shardtools.bench.noise import HostReading, judge
from shardtools.bench.page_cache.state import NAMES_CAVEAT
from shardtools.bench.prediction import Limits, Prediction, refusal
from shardtools.bench.report import null_reasons
from shardtools.bench.report.answers import answer_zh
from shardtools.bench.report.chinese import translated, with_comments
from shardtools.bench.report.chinese_definitions import DEFINITIONS_ZH
from shardtools.bench.report.definitions import DEFINITIONS
from shardtools.bench.search.snippet import Call, shared_memory_lines, snippet
from shardtools.bench.spec import Layout, Settings, Workload
from shardtools.bench.statistics import compare
from shardtools.bench.trial import instrumentation_overhead
from shardtools.bench.trial._words import End, judged

READING = HostReading(90.0, 80.0, 0.2, 9.0, 2, 1.5, 100.0, 0.9, "powersave", 3)
FEW = Limits(2**30, 1024, 2**33)
MUCH = Prediction(2**32, 2**32, 10, 0, 2**31)


def produced() -> dict[str, str]:
    """What the code says, by what it is of."""
    noise = judge(READING, [READING] * 4)
    found = {f"noise {number}": sentence for number, sentence in enumerate(noise.sentences)}
    found |= {"noise": noise.line, "quiet": "quiet", "names": NAMES_CAVEAT}
    found |= {"plan": BlockPlan(0).rule(), "fixed plan": BlockPlan.fixed(6, 0).rule()}
    found["overhead"] = instrumentation_overhead([100.0] * 6, [90.0], 0.004).warning
    found["timers"] = instrumentation_overhead([100.0] * 6, [99.9], 0.05).warning
    limits = {"shm": MUCH, "fd": replace(MUCH, shm_bound_bytes=0, fds=5000), "ram": replace(MUCH, shm_bound_bytes=0, ram_bytes=2**34)}
    found |= {name: refusal(prediction, FEW) or "" for name, prediction in limits.items()}
    ends = {"full": End(1, "error", "Bus error", "", 60), "files": End(1, "error", "EMFILE", "", 60), "late": End(None, None, "", "", 60)}
    return found | {f"end {name}": ": ".join(judged(end)) for name, end in ends.items()}


@pytest.mark.parametrize("sentence", [pytest.param(sentence, id=name) for name, sentence in produced().items()])
def test_no_english_is_left(sentence: str) -> None:
    """But names: options, devices, words of torch."""
    found = translated(sentence)
    assert sentence and found != sentence
    assert re.findall(r"\b[a-z]{2,} [a-z]{2,} [a-z]{2,}\b", found) == [], found


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        (
            "both sides: in 1 of 6 trials the data ended after 24 of 50 steps: give more samples, or a smaller --batch-size",
            "两边：6 次测试中有 1 次数据只够 24 步（需要 50 步）：请用更多样本，或减小 --batch-size",
        ),
        (
            "files by torch: in 2 of 2 trials the longest time of a window was over before it had enough steps: "
            "a smaller --batch-size has more",
            "小文件（torch）：2 次测试中有 2 次测量窗口到了最长时间，步数仍不够：减小 --batch-size 可增加步数",
        ),
        ("6 trials, number fixed", "6 次测试，数量固定"),
        (
            "wds by webdataset: shuffles by shards and a buffer, which is less random than random access; holds 1,000 samples in memory",
            "WDS 分片（webdataset）：按分片加缓冲区打乱，随机性不如随机访问；内存中保留 1,000 个样本",
        ),
        (
            "files by torch and mds by streaming: the same 300 samples, each "
            "delivered once; the 64 with the smallest hashes decode to the same",
            "小文件（torch）与 MDS 分片（streaming）：同样的 300 个样本，各交付一次；哈希最小的 64 个解码结果相同",
        ),
        (
            "cold-data, 0.0 % resident, warm when measured: data was read again",
            "cold-data，驻留 0.0 %；测量时为 warm：数据被重复读取",
        ),
        (
            "a by torch and b by torch: the same 300 samples, each delivered once; every field of 300 samples is the same (jpg, json)",
            "a（torch）与 b（torch）：同样的 300 个样本，各交付一次；300 个样本的所有字段都相同（jpg, json）",
        ),
        ("files by torch: hang: the trial did not end within 60 seconds", "小文件（torch）：挂起：测试在 60 秒内没有结束"),
        ("what nobody foresaw", "what nobody foresaw"),
    ],
)
def test_sentences_of_readers_notes_and_proofs(english: str, chinese: str) -> None:
    assert translated(english) == chinese


@pytest.mark.parametrize(
    ("blocks", "chinese"),
    [
        ([(100.0, 231.0 + i) for i in range(6)], "B更快：吞吐是 A的 2.33 倍（95 % 区间 2.32–2.35），p = 0.031"),
        ([(231.0 + i, 100.0) for i in range(6)], "B更慢：吞吐只有 A的 0.43 倍（95 % 区间 0.42–0.43），p = 0.031"),
        ([(100.0, 101.0), (100.0, 99.0)] * 3, "B与 A：在这台机器上分片没有帮助，没有明显差异（-1 % … +1 %）"),
        ([(100.0, 101.0)], "无法判断 B是否比 A快：只有一组数据，没有置信区间（+1 %）；请加 --blocks 12，在空闲的机器上重跑"),
    ],
)
def test_answers(blocks: list[tuple[float, float]], chinese: str) -> None:
    assert answer_zh("A", "B", compare(blocks), is_of_shards=True) == chinese


def test_every_definition_is_there_in_chinese() -> None:
    assert set(DEFINITIONS_ZH) == set(DEFINITIONS)


def test_every_reason_that_holds_for_all_reports_is_there_in_chinese() -> None:
    reasons = {*null_reasons._OF_TRIALS.values(), *null_reasons._OF_REPORTS.values(), null_reasons.NOT_GIVEN}
    assert [text for text in reasons if translated(text) == text] == []


@pytest.mark.parametrize("settings", [Settings(2, in_order=False), Settings(0)])
@pytest.mark.parametrize("kind", ["files", "wds"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_comments_of_the_snippet_are_chinese(settings: Settings, kind: Any, method: str) -> None:
    layout = Layout("x", kind, "torch")
    lines = shared_memory_lines(0 if kind == "files" else 2**30).values()
    code = "\n".join([snippet(Call(settings, Workload(), layout, start_method=method)), *lines])
    comments = re.findall(r"# (.+)", with_comments(code, "zh"))
    assert comments
    assert [comment for comment in comments if comment.isascii()] == []
    assert with_comments(code, "en") == code

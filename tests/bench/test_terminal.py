"""The report in a terminal; stops an answer that is not where it is looked for, and lines that run over 80 columns in either language."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from report_parts import COMPARED, MATRIX, RECOMMENDATION, VERDICT, report, side

from shardtools.bench.report import terminal
from shardtools.bench.report.columns import width

SCHEMA = json.loads((Path(__file__).parents[2] / "shardtools/bench/report/schema.json").read_text())

EN = """\
shardtools bench   photos  vs  shards   (48,120 samples)
wds by webdataset is 2.31x as fast as files by torch (2.20-2.40x), p = 0.031.

files by torch: storage (reading small files) limits the loader; pack into
shards (confidence high).
  - fixing storage alone lifts to 2,880 samples/s.
  - told from 12 trials in 50 s.
What to do:
  1. pack into shards:
    shardtools pack photos/ shards/ --to wds
  2. put the data on a faster disk
To search the best settings:
    shardtools bench /data/photos/ /data/shards/ --shuffle-buffer 1000 \\
        --consumer sim --matrix

8 cores | no accelerator used | page cache cold-data, 0.0 % resident
batches of 64, 2 workers, prefetch factor 2, samples shuffled
6 paired blocks, number fixed, order randomised | host: quiet

                         samples/s      least-most  first batch    busy  waiting
files by torch               1,240     1,190-1,290       1.90 s    39 %     61 %
wds by webdataset            2,870     2,790-2,930       1.90 s    90 %      9 %

                        batches          disk MB/s
                           MB/s   cores       read  start-up    memory      shm*
files by torch            186.6     1.8       80.2    0.05 s 700.0 MiB  44.0 MiB
wds by webdataset         186.6     1.8       80.2    0.05 s 700.0 MiB  44.0 MiB
* the most in /dev/shm, other programs' included

Workers' time, files by torch: storage 70 % (timers took 0.4 %).
Workers' time, wds by webdataset: storage 70 % (timers took 0.4 %).
Note: both sides: in 1 of 6 trials the data ended after 24 of 50 steps: give
more samples, or a smaller --batch-size.
Proved before: files by torch and wds by webdataset: the same 48,120 samples,
each delivered once; the 64 with the smallest hashes decode to the same.
"""
ZH = """\
shardtools bench   photos  vs  shards   （48,120 个样本）
WDS 分片（webdataset）更快：吞吐是小文件（torch）的 2.31 倍（95 % 区间
2.20–2.40），p = 0.031。

小文件（torch）：当前瓶颈在存储（小文件读取）；建议打包成分片（置信度高）。
  - 只解决存储。
  - 依据 12 次测试，用时 50 秒。
怎么办：
  1. 打包成分片：
    shardtools pack photos/ shards/ --to wds
  2. 把数据放到更快的盘上
搜索最合适的设置：
    shardtools bench /data/photos/ /data/shards/ --shuffle-buffer 1000 \\
        --consumer sim --matrix

8 核 | 未使用加速卡 | 页缓存 cold-data，驻留 0.0 %
批大小 64，2 个 worker，预取 2，样本打乱
6 个配对区组，数量固定，顺序随机 | 主机：安静

                           样本/秒       最低-最高         首批  利用率     等待
小文件（torch）              1,240     1,190-1,290       1.90 s    39 %     61 %
WDS 分片（webdataset）       2,870     2,790-2,930       1.90 s    90 %      9 %

                           批次          磁盘 MB/s
                           MB/s  CPU 核       读取      启动      内存 共享内存*
小文件（torch）           186.6     1.8       80.2    0.05 s 700.0 MiB  44.0 MiB
WDS 分片（webdataset）    186.6     1.8       80.2    0.05 s 700.0 MiB  44.0 MiB
* /dev/shm 峰值，含其他程序

worker 时间，小文件（torch）：存储 70 %（计时器占 0.4 %）。
worker 时间，WDS 分片（webdataset）：存储 70 %（计时器占 0.4 %）。
注意：两边：6 次测试中有 1 次数据只够 24 步（需要 50 步）：请用更多样本，或减小
--batch-size。
测量前已验证：小文件（torch）与 WDS 分片（webdataset）：同样的 48,120 个样本，各
交付一次；哈希最小的 64 个解码结果相同。
"""
SETTINGS = """\
Use: num_workers=4 prefetch_factor=2 pin_memory=False persistent_workers=True
     in_order=True
  - num_workers=4: 1,240 samples/s, 98 % of the best.

loader = DataLoader(
    dataset,
    num_workers=4,
)

In a container:
    docker run --shm-size=1g ...
    emptyDir: {medium: Memory, sizeLimit: 1Gi}

samples/s by num_workers W and prefetch_factor P; * the knee, + the best, ~
worked out:
  pin_memory=False, persistent_workers=True
                 P=2         P=4
  W=0           300
  W=2           700         705
  W=4         1,240*     refused
  W=8         1,260+     refused
  pin_memory=False, persistent_workers=False
                 P=2
  W=0           300
  W=4        ~1,200
  - W=4 P=4, W=8 P=4: not run: shm 9.4 GiB of 8.0 GiB free in /dev/shm, of which
    80% are safe; use fewer workers, or a larger /dev/shm.
14 trials; the full grid takes 72.
"""
REFUSED_ZH = "W=4 P=4, W=8 P=4：未运行：需要共享内存 9.4 GiB，/dev/shm 只剩 8.0 GiB（只用到 80 % 才安全）；请减少 worker"


def text(data: dict[str, Any], lang: Any = "en") -> str:
    lines = list(terminal.lines(data, lang))
    assert max(map(width, lines)) <= 80
    return "\n".join(lines) + "\n"


def test_the_reports_here_keep_the_schema() -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    validator.validate(report(matrix=MATRIX, recommendation=RECOMMENDATION))


@pytest.mark.parametrize("place", [("matrix", "cells"), ("verdicts",), ("comparisons",), ("ablation",), ("sides",)])
def test_a_part_with_a_name_nobody_described_breaks_the_schema(place: tuple[str, ...]) -> None:
    data = deepcopy(report(matrix=MATRIX, recommendation=RECOMMENDATION))
    part: Any = data
    for name in place:
        part = part[name]
    part[0]["surprise"] = 1
    with pytest.raises(jsonschema.ValidationError, match="surprise"):
        jsonschema.Draft202012Validator(SCHEMA).validate(data)


@pytest.mark.parametrize(("lang", "expected"), [("en", EN), ("zh", ZH)])
def test_the_whole_text(lang: str, expected: str) -> None:
    assert text(report(), lang) == expected


def test_settings_are_a_table_with_the_knee_and_why_cells_were_refused() -> None:
    data = report(matrix=MATRIX, recommendation=RECOMMENDATION)
    begin, end = EN.index("To search the best"), EN.index("\n8 cores")  # they were searched
    assert text(data) == f"{EN[:begin]}\n{SETTINGS}{EN[end:]}"
    assert REFUSED_ZH in text(data, "zh").replace("\n    ", "").replace("GiB/dev", "GiB，/dev")


def test_a_cell_that_was_not_needed_is_blank() -> None:
    skipped = {"status": "skipped", "message": "not needed for the knee"}
    cells = [{**cell, **skipped} if cell["status"] == "refused" else cell for cell in MATRIX["cells"]]
    found = text(report(matrix={**MATRIX, "cells": cells}))
    assert "  W=4         1,240*\n" in found
    assert "  - blank: not needed for the knee.\n" in found


def test_change_nothing_shows_no_snippet() -> None:
    found = text(report(recommendation={**RECOMMENDATION, "is_change": False}))
    assert "\nChange nothing: num_workers=4 prefetch_factor=2" in found
    assert "DataLoader(" not in found and "docker" not in found


def test_settings_that_could_not_be_told_apart_are_not_said_to_be_the_best() -> None:
    found = text(report(recommendation={**RECOMMENDATION, "is_change": False, "is_known": False}))
    assert "\nNot told yet; keep: num_workers=4 prefetch_factor=2" in found
    assert "Change nothing" not in found


DOUBT = {
    "en": "only wds by webdataset read its data again, from memory, so the two are not alike",
    "zh": "只有 WDS 分片（webdataset）把数据从内存里重读了一遍",
}
NOISY = {"en": "the host was noisy: run it again when nothing else runs", "zh": "机器有干扰，请在空闲时重跑"}


def test_sides_that_were_not_alike_are_told_before_the_answer_and_noise_behind_it() -> None:
    sentences = ["in 4 of 6 trials x", "before: y", "before: z"]
    noise = {"line": "noisy host: ...", "sentences": sentences, "is_noisy": True}
    compared = [{**COMPARED, "confidence": "low", "doubts": [DOUBT, NOISY]}]
    data = report(noise=noise, comparisons=compared, verdicts=[], verdict=None)
    lines = text(data).splitlines()
    assert lines[1] == "Confidence: low: only wds by webdataset read its data again, from memory, so the"
    assert lines[2] == "two are not alike."
    assert lines[3].startswith("wds by webdataset is 2.31x as fast")
    assert lines[4] == "Confidence: low: the host was noisy: run it again when nothing else runs."
    assert "| host: noisy: in 4 of 6 trials x; and 2 more in the report" in " ".join(text(data).split())
    assert "the host was noisy" not in text(report(noise=noise, comparisons=compared))  # the verdict says so
    assert text(data, "zh").splitlines()[1] == "可信度低：只有 WDS 分片（webdataset）把数据从内存里重读了一遍。"


def test_notes_are_few_and_it_says_where_the_others_are() -> None:
    found = text(report(notes=[f"note {i}" for i in range(7)]))
    assert [line for line in found.splitlines() if line.startswith("Note: ")] == [f"Note: note {i}." for i in range(5)]
    assert "\n2 more notes in the report: --report DIR, or --json.\n" in found
    assert "\n另有 2 条注意见报告（--report DIR 或 --json）。\n" in text(report(notes=[f"note {i}" for i in range(7)]), "zh")


def test_a_side_without_figures_says_so() -> None:
    names = ("throughput", "least", "most", "payload_MBps", "au", "wait_share", "first_batch_s", "cpu_util", "disk_read_MBps")
    missing = dict.fromkeys(names) | {"startup": dict.fromkeys(("iter_s", "first_batch_s", "epoch2_s", "teardown_s")), "stages": []}
    missing |= {"peaks": dict.fromkeys(("shm", "fd", "rss", "pss", "pinned", "gpu_memory")), "overhead": None}
    failed = side("files by torch", "photos", "files", "torch", **missing)
    found = text(report(sides=[failed], comparisons=[], verdicts=[], consumer={"kind": "none", "device": "cpu"}))
    rows = [line.split() for line in found.splitlines() if line.startswith("files by torch  ")]
    assert rows == [["files", "by", "torch", *["n/a"] * 2], ["files", "by", "torch", *["n/a"] * 6]]


def test_a_long_command_goes_on_behind_a_backslash_and_can_be_pasted() -> None:
    command = f"shardtools pack {'a' * 40}.jsonl tokens/ --to mds --tokenizer tokenizer.json --seq-len 2048"
    remedy = {"name": "shards", "en": "pack", "zh": "打包", "options": command}
    found = text(report(verdicts=[{**VERDICT, "remedies": [remedy]}]))
    assert f"    shardtools pack {'a' * 40}.jsonl tokens/ \\\n        --to mds --tokenizer tokenizer.json --seq-len 2048\n" in found

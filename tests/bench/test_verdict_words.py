"""The sentence of a verdict in both languages; stops one that is not true of the facts, and Chinese that nobody would write.

Every sentence was read by hand; none is put together here as the code puts it together.
"""

from dataclasses import replace
from typing import Any

import pytest
from verdict_cases import BOTH, CAPPED, COPY, CUDA, FED, LOOP, OURS, OWN, PHOTOS, REMOTE, SHARDS, SIM, TEXT, TRAINED, found

from shardtools.bench.attribution import Attribution, Gain
from shardtools.bench.report.verdict_words import Situation, in_words, side_name_zh

LOADER_BOUND: list[tuple[Attribution, Situation, str, str]] = [
    (
        found("storage", rates=LOOP),
        TRAINED,
        "files by torch: storage (reading small files) limits the loader: the loader gives 1,240 samples/s, the GPU could take 3,180; "
        "pack into shards (confidence high).",
        "小文件（torch）：当前瓶颈在存储（小文件读取）：加载器 1,240 样本/秒，GPU 可吃 3,180；建议打包成分片（置信度高）。",
    ),
    (
        found("storage", confidence="medium"),
        replace(PHOTOS, shards_over_this=(2.2, 2.4), shards_uri="shards/", is_noisy=True),
        "files by torch: storage (reading small files) limits the loader: "
        "the loader gives 1,240 samples/s in short trials; use the shards, 2.2 to 2.4 times as fast "
        "here (confidence medium; noisy host: run it again when nothing else runs).",
        "小文件（torch）：当前瓶颈在存储（小文件读取）：短测试中加载器 1,240 样本/秒；建议使用分片（本机实测 2.2–2.4 倍）"
        "（置信度中；机器有干扰，请在空闲时重跑）。",
    ),
    (
        found("storage"),
        OURS,
        "wds by shardtools: storage (reading shards) limits the loader: the "
        "loader gives 1,240 samples/s in short trials; read shards from begin to end and shuffle "
        "in a buffer (confidence high).",
        "WDS 分片（shardtools）：当前瓶颈在存储（分片读取）：短测试中加载器 1,240 样本/秒；建议顺序读分片，用缓冲区打乱（置信度高）。",
    ),
    (
        found("storage"),
        REMOTE,
        "mds by streaming: storage (reading shards) limits the loader: the loader gives 1,240 samples/s in short trials; "
        "let StreamingDataset fetch further ahead (confidence high).",
        "MDS 分片（streaming）：当前瓶颈在存储（分片读取）：短测试中加载器 1,240 样本/秒；"
        "建议让 StreamingDataset 提前下载更多样本（置信度高）。",
    ),
    (
        found("parse", confidence="medium"),
        SHARDS,
        "wds by webdataset: taking samples out of tar shards limits the "
        "loader: the loader gives 1,240 samples/s in short trials; try 4 workers (confidence medium).",
        "WDS 分片（webdataset）：当前瓶颈在分片解析（tar 拆包）：短测试中加载器 1,240 样本/秒；建议试用 4 个 worker（置信度中）。",
    ),
    (
        found("decode", {"storage_hidden": {"reason": "warm"}}),
        replace(PHOTOS, knee_workers=6),
        "files by torch: image decoding limits the loader: the loader gives 1,240 samples/s in short trials; "
        "use 6 workers (confidence high; storage not judged, "
        "since the page cache was warm).",
        "小文件（torch）：当前瓶颈在图像解码：短测试中加载器 1,240 样本/秒；建议用 6 个 worker（置信度高；缓存是热的，未评判存储）。",
    ),
    (
        found("decode", rates=LOOP),
        replace(TEXT, consumer=SIM, knee_workers=2),
        "jsonl by torch: tokenizing text as it is read limits the loader: "
        "the loader gives 1,240 samples/s, the simulated step could take 3,180; "
        "tokenize once, offline, into packed shards (confidence high).",
        "JSONL（torch）：当前瓶颈在分词（边读边 tokenize）：加载器 1,240 样本/秒，模拟的训练步可吃 3,180；"
        "建议离线分词一次，打包成 token 分片（置信度高）。",
    ),
    (
        found("transform"),
        replace(OWN, knee_workers=2),
        "files by torch: the transform limits the loader: the loader gives 1,240 samples/s in short trials; "
        "precompute once, offline, the part of my.code:augment "
        "that is the same in every epoch (confidence high).",
        "小文件（torch）：当前瓶颈在变换（transform）：短测试中加载器 1,240 样本/秒；"
        "建议把 my.code:augment 中每轮都相同的部分离线做一次（置信度高）。",
    ),
    (
        found("collate"),
        replace(OWN, knee_workers=2),
        "files by torch: collating batches limits the loader: the loader gives 1,240 "
        "samples/s in short trials; make my.code:join cheaper, or do its work once, offline "
        "(confidence high).",
        "小文件（torch）：当前瓶颈在批次拼装（collate）：短测试中加载器 1,240 样本/秒；建议优化 my.code:join，或离线做一次（置信度高）。",
    ),
    (
        found("transfer"),
        replace(PHOTOS, batch={"tensors": 256}),
        "files by torch: sending batches from the workers to the main process "
        "limits the loader: the loader gives 1,240 samples/s in short trials; collate into few "
        "contiguous tensors: a batch has 256, and each is sent by itself (confidence high).",
        "小文件（torch）：当前瓶颈在批次从 worker 到主进程的传输（IPC）：短测试中加载器 1,240 样本/秒；"
        "建议把每批的 256 个张量合并成少数几个连续张量（每个张量都要单独传输）（置信度高）。",
    ),
]

AROUND_THE_LOADER: list[tuple[Attribution, Situation, str, str]] = [
    (
        found("fed", {"au": {"au": 0.97, "F": 970.0, "G": 1000.0}}, rates=FED),
        TRAINED,
        "files by torch: the GPU is fed (AU 97 %); change nothing (confidence high).",
        "小文件（torch）：GPU 已经喂饱（AU 97 %），无需改动（置信度高）。",
    ),
    (
        found("fed", rates=FED),
        replace(PHOTOS, consumer=SIM),
        "files by torch: the simulated step is fed (AU 97 %); change nothing (confidence high).",
        "小文件（torch）：模拟的训练步已经喂饱（AU 97 %），无需改动（置信度高）。",
    ),
    (
        found("h2d_copy", rates=COPY),
        TRAINED,
        "files by torch: the copy to the GPU limits it: 2,000 samples/s with the copy, 3,100 without, and the loader gives more; "
        "pin the batches (confidence high).",
        "小文件（torch）：当前瓶颈在主机到 GPU 的拷贝（H2D）：含拷贝 2,000 样本/秒，不含拷贝 3,100，加载器供得上；"
        "建议开启锁页内存（置信度高）。",
    ),
    (
        found("contention", {"contention": {"F": 900.0, "bound": 1400.0, "wait_p99_over_mean": 2.0}}, rates=BOTH),
        replace(TRAINED, settings=replace(TRAINED.settings, num_workers=8)),
        "files by torch: loader and training hold each other up: 900 samples/s together, 1,400 at least each alone; use 7 workers, which "
        "leaves the training loop a processor (confidence high).",
        "小文件（torch）：加载器和训练互相争抢 CPU：合在一起 900 样本/秒，"
        "单独跑至少 1,400；建议用 7 个 worker，给训练循环留一个核（置信度高）。",
    ),
    (
        found("contention", {"contention": {"F": 900.0, "bound": 1400.0, "wait_p99_over_mean": 9.0}}, rates=BOTH),
        TRAINED,
        "files by torch: single late batches hold the loop up: 900 samples/s "
        "together, 1,400 at least each alone; take batches as they are "
        "ready, if their order may change from run to run (confidence high).",
        "小文件（torch）：个别批次迟到，拖住了整个循环：合在一起 900 样本/秒，单独跑至少 1,400；"
        "建议哪个批次先好先用哪个（顺序会变）（置信度高）。",
    ),
    (
        found("shared_memory", {"status": {"status": "oom_shm", "message": "shared memory was full"}}),
        PHOTOS,
        "files by torch: shared memory (/dev/shm) is too small: the loader broke off; give /dev/shm 128 MiB (confidence high).",
        "小文件（torch）：共享内存（/dev/shm）不足，加载器中途失败；建议把 /dev/shm 加到 128 MiB（置信度高）。",
    ),
    (
        found("shared_memory", {"status": {"status": "refused", "message": "not run: shm 9.4 GiB of 8.0 GiB"}}, "medium"),
        PHOTOS,
        "files by torch: shared memory (/dev/shm) is too small for these settings: that was foreseen, so the loader was not run; "
        "give /dev/shm 128 MiB (confidence medium).",
        "小文件（torch）：共享内存（/dev/shm）放不下这组设置：已预先算出，所以没有运行加载器；建议把 /dev/shm 加到 128 MiB（置信度中）。",
    ),
    (
        found("shared_memory", confidence="medium"),
        PHOTOS,
        "files by torch: shared memory (/dev/shm) limits how many batches may be under way: "
        "the loader gives 1,240 samples/s in short trials; "
        "give /dev/shm 128 MiB (confidence medium).",
        "小文件（torch）：共享内存（/dev/shm）限制了在途批次数：短测试中加载器 1,240 样本/秒；建议把 /dev/shm 加到 128 MiB（置信度中）。",
    ),
    (
        found("shared_memory", {"capped": CAPPED}, "medium"),
        PHOTOS,
        "files by torch: shared memory (/dev/shm) limits the loader: up to 4 workers it still became faster, and 8 workers would not fit; "
        "give /dev/shm 256 MiB (confidence medium).",
        "小文件（torch）：当前瓶颈在共享内存（/dev/shm）：到 4 个 worker 仍在变快，而 8 个 worker 放不下；"
        "建议把 /dev/shm 加到 256 MiB（置信度中）。",
    ),
    (
        found("shared_memory", {"capped": CAPPED | {"wanted": {"num_workers": 4, "prefetch_factor": 4}, "is_seen": True}}),
        PHOTOS,
        "files by torch: shared memory (/dev/shm) limits the loader: up to 4 workers it still became faster, and "
        "4 workers, prefetch factor 4 ran out of it; give /dev/shm 256 MiB (confidence high).",
        "小文件（torch）：当前瓶颈在共享内存（/dev/shm）：到 4 个 worker 仍在变快，而 4 个 worker、预取 4 用尽了它；"
        "建议把 /dev/shm 加到 256 MiB（置信度高）。",
    ),
    (
        found("h2d_copy", rates=COPY),
        replace(PHOTOS, consumer=replace(SIM, device="sim"), settings=replace(PHOTOS.settings, pin_memory=True)),
        "files by torch: the copy to the simulated device limits it: 2,000 samples/s with the copy, 3,100 without, and the loader gives "
        "more; copy without waiting (confidence high).",
        "小文件（torch）：当前瓶颈在主机到模拟设备的拷贝（H2D）：含拷贝 2,000 样本/秒，不含拷贝 3,100，加载器供得上；"
        "建议使用非阻塞拷贝（置信度高）。",
    ),
    (
        found("fd_limit", {"descriptors": {"peak": 60, "limit": 64, "tensors": 4}}),
        PHOTOS,
        "files by torch: the limit of open files is too low: 4 tensors a batch take one each; allow more open files (confidence high).",
        "小文件（torch）：文件描述符上限太低：每批 4 个张量，各占一个；建议调高文件描述符上限（置信度高）。",
    ),
    (
        found("balanced", {"marginal": {"au": 0.88}}, "medium"),
        TRAINED,
        "files by torch: no single bottleneck: AU 88 %, so the loop can become at most 14 % faster (confidence medium).",
        "小文件（torch）：没有单一瓶颈：AU 88 %，最多还能再快 14 %（置信度中）。",
    ),
    (
        found("balanced", {"co_bottleneck": {"stages": ["collate", "transform"], "ratios": [1.5, 1.4]}}, "medium"),
        replace(OWN, knee_workers=2),
        "files by torch: no single bottleneck: collate and transform cost "
        "about as much, and only speeding up both helps; make my.code:join "
        "cheaper, or do its work once, offline (confidence medium).",
        "小文件（torch）：没有单一瓶颈：批次拼装和变换开销相当，两者都提速才有用；建议优化 my.code:join，或离线做一次（置信度中）。",
    ),
    (
        found("balanced", {"loader_bound": {"L": 1240.0, "H": None}, "no_stage": {"stage": "decode", "ratio": 1.1}}, "medium"),
        PHOTOS,
        "files by torch: no single bottleneck: the loader gives 1,240 samples/s in short trials; "
        "without the cost of any one stage it is 1.1x as fast at most (decode); "
        "try 4 workers (confidence medium).",
        "小文件（torch）：没有单一瓶颈：短测试中加载器 1,240 样本/秒；去掉任一阶段的开销，最多为原来的 1.1 倍（解码）；"
        "建议试用 4 个 worker（置信度中）。",
    ),
]

LONGER = (
    "rerun",
    "--min-seconds 10",
    "; measure longer on a quiet host, with --min-seconds 10",
    "；建议在空闲的机器上用 --min-seconds 10 测更久",
)
Advice = tuple[str, str | None, str, str]
NOT_KNOWN: list[tuple[dict[str, dict[str, Any]], str, str, Advice | None]] = [
    (
        {"unsure": {"stage": "decode", "ratio": 1.2, "low": 0.9, "high": 1.6, "n": 6}},
        "image decoding may be what limits it, but that is not sure: without its cost the loader is 1.2x as fast (0.9-1.6x)",
        "瓶颈可能在图像解码，但不能确定：去掉其开销后，加载速度为原来的 1.2 倍（0.9–1.6）",
        LONGER,
    ),
    (
        {"unsure": {"stage": "transfer", "ratio": 23.6, "low": None, "high": None, "n": 1}},
        "sending batches from the workers to the main process may be what limits it, but that is not sure: without its cost the loader is "
        "23.6x as fast, in one trial only",
        "瓶颈可能在批次从 worker 到主进程的传输（IPC），但不能确定：去掉其开销后，加载速度为原来的 23.6 倍，只测了一次",
        LONGER,
    ),
    (
        {"unsure": {"stage": "decode", "ratio": 1.1, "low": 0.8, "high": 1.5, "n": 6}},
        "nothing stands out; without image decoding it is 1.1x as fast (0.8-1.5x)",
        "看不出突出的瓶颈；去掉图像解码后为原来的 1.1 倍（0.8–1.5）",
        LONGER,
    ),
    (
        {"status": {"status": "hang", "message": "no batch came"}},
        "a trial ended as hang: no batch came",
        "有测试以 hang 结束：no batch came",
        None,
    ),
    (
        {"failed": {"stage": "collate", "status": "error", "message": "TypeError"}},
        "the trial without the cost of collate failed: TypeError",
        "去掉批次拼装开销的测试失败：TypeError",
        None,
    ),
    (
        {"budget": {"seconds": 60.0, "spent": 71.0, "rounds": 2}},
        "stopped after 2 rounds (71 s; 60 s were planned)",
        "第 2 轮后停止（用时 71 秒，计划 60 秒）",
        LONGER,
    ),
    (
        {"scattered": {"stage": "decode", "ratio": 4.9, "share": 0.06, "slowest": 212.6, "fastest": 381.1}},
        "the trials differ too much to tell (the same loader gave 213 to 381 samples/s within one test)",
        "各次测试相差太大，无法判断（同一加载器在一次测试中为 213 到 381 样本/秒）",
        LONGER,
    ),
    (
        {"scattered": {"stage": "decode", "ratio": 4.9, "share": 0.06, "slowest": 100.0, "fastest": 104.0}},
        "trials and timers contradict each other (without the cost of decode it was 4.9x as fast, though by timers that is 6 % of the "
        "workers' time)",
        "测试与计时器相互矛盾（去掉解码的开销后为原来的 4.9 倍，而按计时器它只占 worker 时间 6 %）",
        LONGER,
    ),
    (
        {"storage_hidden": {"reason": "looped"}},
        "storage not judged, since the data was read again from memory",
        "数据在内存里被反复读取，未评判存储",
        ("more_samples", None, "; give more samples, so that none is read twice", "；建议用更多样本，避免重复读取"),
    ),
    (
        {"storage_hidden": {"reason": "warm"}},
        "storage not judged, since the page cache was warm",
        "缓存是热的，未评判存储",
        ("cold", "--cache cold-data", "; begin each trial with a cold page cache", "；建议用冷缓存开始每次测试"),
    ),
    ({}, "no cost that was taken away explains it", "去掉任何一项开销都解释不了", LONGER),
]


@pytest.mark.parametrize(("facts", "situation", "en", "zh"), LOADER_BOUND + AROUND_THE_LOADER)
def test_the_sentence(facts: Attribution, situation: Situation, en: str, zh: str) -> None:
    verdict = in_words(facts, 1, situation)
    assert (verdict["sentence_en"], verdict["sentence_zh"]) == (en, zh)
    assert (verdict["side"], verdict["class"], verdict["confidence"]) == (1, facts.verdict, facts.confidence)
    assert set(verdict["rates"]) == {"F", "G", "H", "L"}


@pytest.mark.parametrize(("facts", "en", "zh", "advice"), NOT_KNOWN)
def test_what_is_not_known_is_no_verdict_and_only_what_would_help_is_advised(
    facts: dict[str, dict[str, Any]], en: str, zh: str, advice: Advice | None
) -> None:
    verdict = in_words(found("inconclusive", facts, "inconclusive"), 0, PHOTOS)
    assert verdict["sentence_en"] == f"files by torch: Inconclusive: {en}{advice[2] if advice else ''}."
    assert verdict["sentence_zh"] == f"小文件（torch）：无法定论：{zh}{advice[3] if advice else ''}。"
    assert [(remedy["name"], remedy["options"]) for remedy in verdict["remedies"]] == ([advice[:2]] if advice else [])


@pytest.mark.parametrize(("seconds", "advised"), [(0.75, 5), (1.0, 5), (4.0, 8), (7.5, 15)])
def test_longer_is_twice_as_long_as_it_was_and_never_shorter_than_by_default(seconds: float, advised: int) -> None:
    (remedy,) = in_words(found("inconclusive", {}, "inconclusive"), 0, replace(PHOTOS, min_seconds=seconds))["remedies"]
    assert remedy["options"] == f"--min-seconds {advised}"


def test_a_busy_host_comes_first_and_where_data_ended_more_seconds_are_not_advised() -> None:
    unsure = found(
        "inconclusive", {"scattered": {"stage": "decode", "ratio": 4.9, "share": 0.06, "slowest": 212.6, "fastest": 381.1}}, "inconclusive"
    )
    busy = in_words(unsure, 0, replace(PHOTOS, is_noisy=True, min_seconds=1.0, ended_steps=(24, 50)))
    assert [(remedy["name"], remedy["options"]) for remedy in busy["remedies"]] == [
        ("quiet", "--min-seconds 5"),
        ("more_steps", "--batch-size 30"),
    ]
    assert busy["remedies"][1]["en"] == "give more samples, or --batch-size 30: the data ended after 24 steps, 50 are wanted"
    assert busy["sentence_en"] == (
        "files by torch: Inconclusive: the host was too busy to tell (the same loader gave 213 to 381 samples/s within one test); "
        "run the same again when nothing else runs (noisy host)."
    )
    assert "decod" not in busy["sentence_en"] + busy["evidence"][0]["en"]
    (only,) = in_words(unsure, 0, replace(PHOTOS, ended_steps=(24, 50)))["remedies"]
    assert only["name"] == "more_steps"


def test_a_class_that_is_not_sure_is_told_as_a_guess() -> None:
    verdict = in_words(found("storage", confidence="inconclusive"), 0, PHOTOS)
    assert (
        verdict["sentence_en"]
        == f"files by torch: Inconclusive: storage (reading small files) may be what limits it, but that is not sure{LONGER[2]}."
    )
    assert verdict["sentence_zh"] == f"小文件（torch）：无法定论：瓶颈可能在存储（小文件读取），但不能确定{LONGER[3]}。"


@pytest.mark.parametrize(
    ("facts", "situation", "en", "zh"),
    [
        (
            found("decode", gain=Gain(1.8, (1.6, 2.0), "storage")),
            PHOTOS,
            "without the cost of decode it would be 1.8x as fast (1.6-2.0x), 2,232 samples/s; then storage limits it",
            "去掉解码的开销后可达原来的 1.8 倍（1.6–2.0），即 2,232 样本/秒；之后瓶颈变为存储",
        ),
        (
            found("decode", rates=LOOP, gain=Gain(2.0, None, "fed")),
            replace(PHOTOS, consumer=CUDA),
            "without the cost of decode it would be 2.0x as fast, 2,400 samples/s; then the GPU is fed",
            "去掉解码的开销后可达原来的 2.0 倍，即 2,400 样本/秒；之后 GPU 就喂饱了",
        ),
        (
            found("h2d_copy", rates=COPY, gain=Gain(1.6, None, None)),
            TRAINED,
            "without the cost of the copy it would be 1.6x as fast, 3,040 samples/s",
            "去掉 H2D 拷贝的开销后可达原来的 1.6 倍，即 3,040 样本/秒",
        ),
        (
            found("storage", gain=Gain(2.0, None, None)),
            PHOTOS,
            "if the data came from memory it would be 2.0x as fast, 2,480 samples/s",
            "若数据都来自内存，可达原来的 2.0 倍，即 2,480 样本/秒",
        ),
        (
            found("contention", rates=BOTH, gain=Gain(1.5, None, "fed")),
            TRAINED,
            "if loader and training did not hold each other up it would be 1.5x as fast, 1,350 samples/s; then the GPU is fed",
            "若加载器和训练互不拖累，可达原来的 1.5 倍，即 1,350 样本/秒；之后 GPU 就喂饱了",
        ),
        (
            found("balanced", gain=Gain(1.1, None, None)),
            PHOTOS,
            "it would be at most 1.1x as fast, 1,364 samples/s",
            "最多可达原来的 1.1 倍，即 1,364 样本/秒",
        ),
        (
            found("shared_memory", {"capped": CAPPED}, "medium", gain=Gain(1.5, None, "decode")),
            PHOTOS,
            "with room for 8 workers it would be at most 1.5x as fast, 3,000 samples/s; then decode limits it",
            "若放得下 8 个 worker，最多可达原来的 1.5 倍，即 3,000 样本/秒；之后瓶颈变为解码",
        ),
    ],
)
def test_the_gain_says_what_binds_next(facts: Attribution, situation: Situation, en: str, zh: str) -> None:
    gain = in_words(facts, 0, situation)["gain"]
    assert facts.gain is not None
    assert gain == {**facts.gain.as_json(), "en": en, "zh": zh}


def test_sides_have_names_in_chinese() -> None:
    names = {"files by torch": "小文件（torch）", "a/b by webdataset": "a/b（webdataset）", "other": "other"}
    assert {name: side_name_zh(name) for name in names} == names

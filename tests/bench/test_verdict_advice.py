"""Remedies and evidence of a verdict; stops advice that is followed already, cannot work here, or leaves open what to type."""

from dataclasses import replace
from typing import Any

import pytest
from verdict_cases import BATCH, CAPPED, COPY, CUDA, MACHINE, OURS, OWN, PHOTOS, REMOTE, SHARDS, TEXT, TRAINED, WITH_GPU, found

from shardtools.bench.attribution import FACTS, Attribution
from shardtools.bench.report.verdict_words import Situation, in_words
from shardtools.bench.spec import Layout, Settings, Workload

FULL_HOST = {"cpu": {"worker_share": 0.97, "host_share": 0.95}}
IDLE = {"cpu": {"worker_share": 0.09, "host_share": 0.09}}
ON_TWO_CORES = {**MACHINE, "cpus_effective": 2}
SHORT_OF_SHM = {"status": {"status": "oom_shm", "message": "full"}}


def advised(facts: Attribution, situation: Situation) -> dict[str, str | None]:
    """What to type, by the remedy's name."""
    remedies = in_words(facts, 0, situation)["remedies"]
    assert all(remedy["en"] and remedy["zh"] for remedy in remedies)
    return {remedy["name"]: remedy["options"] for remedy in remedies}


MIB = 2**20

STORAGE: list[tuple[Attribution, Situation, dict[str, str | None]]] = [
    (found("storage"), PHOTOS, {"shards": "shardtools pack photos/ shards/ --to wds", "workers": "--num-workers 4"}),
    (
        found("storage"),
        replace(PHOTOS, shards_over_this=(2.2, 2.4), shards_uri="s/"),
        {"shards": "shardtools.loaders.open_dataset('s/', batch_size=64, shuffle=True, seed=0)", "workers": "--num-workers 4"},
    ),
    (found("storage"), replace(PHOTOS, shards_over_this=(0.95, 1.02)), {"workers": "--num-workers 4"}),
    (
        found("storage"),
        replace(PHOTOS, shards_over_this=(0.7, 2.5), shards_uri="s/"),
        {"shards": "shardtools.loaders.open_dataset('s/', batch_size=64, shuffle=True, seed=0)", "workers": "--num-workers 4"},
    ),
    (
        found("storage", {"disk": {"MBps": 80.0, "iops": None, "share": 0.84}}),
        replace(PHOTOS, data_bytes=2**30),
        {"shards": "shardtools pack photos/ shards/ --to wds", "cache": "--cache warm", "disk": None},
    ),
    (found("storage", {"storage_hidden": {"reason": "warm"}}), replace(SHARDS, data_bytes=2**30), {"workers": "--num-workers 4"}),
    (
        found("storage"),
        replace(OURS, num_shards=4, settings=Settings(num_workers=4)),
        {"sequential": "--reader webdataset --shuffle-buffer 10000"},
    ),
    (found("storage"), replace(OURS, workload=Workload(shuffle=False), num_shards=2), {}),
    (
        found("storage"),
        REMOTE,
        {
            "predownload": "--predownload 2048",
            "kept": "StreamingDataset(remote=..., local='/local/disk')",
            "workers": "--num-workers 4",
        },
    ),
    (
        found("storage"),
        replace(PHOTOS, layout=Layout("s3://raw/images/", "files", "torch"), data_bytes=2**30),
        {"shards": "shardtools pack s3://raw/images/ s3://raw/images-shards --to wds", "workers": "--num-workers 4"},
    ),
    (
        found("storage"),
        replace(SHARDS, layout=Layout("s3://data/train", "wds", "webdataset"), data_bytes=2**30),
        {"reader": "--reader shardtools", "workers": "--num-workers 4"},
    ),
    (
        found("storage"),
        replace(OURS, layout=Layout("s3://data/train", "wds", "shardtools"), data_bytes=2**30),
        {"kept": "LoaderOptions(cache_folder='/local/disk')", "workers": "--num-workers 4"},
    ),
    (
        found("storage"),
        replace(TEXT, machine=ON_TWO_CORES),
        {
            "shards": "shardtools pack docs.jsonl shards/ --to mds --tokenizer tok.json --seq-len 2048",
            "sequential": "--order sequential",
        },
    ),
]

STAGES: list[tuple[Attribution, Situation, dict[str, str | None]]] = [
    (found("parse"), SHARDS, {"workers": "--num-workers 4", "reader": "--reader shardtools"}),
    (found("parse"), replace(OURS, machine=ON_TWO_CORES), {}),
    (
        found("decode"),
        PHOTOS,
        {"workers": "--num-workers 4", "offline": None, "decoder": 'pip uninstall -y pillow && CC="cc -mavx2" pip install pillow-simd'},
    ),
    (
        found("decode", FULL_HOST),
        replace(PHOTOS, machine={**WITH_GPU, "pillow": {"package": "pillow-simd"}}),
        {"offline": None, "gpu": 'torchvision.io.decode_jpeg(data, device="cuda")'},
    ),
    (
        found("decode", FULL_HOST),
        TEXT,
        {"offline": "shardtools pack docs.jsonl tokens/ --to mds --tokenizer tok.json --seq-len 2048"},
    ),
    (found("decode", FULL_HOST), replace(PHOTOS, workload=Workload(decode="my.code:decode")), {"offline": None}),
    (found("transform"), replace(OWN, knee_workers=2), {"offline": None}),
    (
        found("transform", FULL_HOST),
        TRAINED,
        {
            "offline": None,
            "gpu": "batch = torchvision.transforms.v2.Compose([...])(batch.to('cuda', non_blocking=True))",
        },
    ),
    (
        found("collate", FULL_HOST),
        replace(OWN, batch={**BATCH, "tensors": 2}),
        {"contiguous": "torch.stack(samples, out=torch.empty(shape, dtype=dtype))"},
    ),
    (found("collate", FULL_HOST), OWN, {"offline": None}),
    (
        found("collate", IDLE | {"timer": {"stage": "collate", "share": 0.7, "blocked_share": 1.0}}),
        replace(OWN, machine=ON_TWO_CORES),
        {"workers": "--num-workers 4", "waiting": None},
    ),
    (
        found("transfer"),
        replace(OWN, batch={**BATCH, "tensors": 256}, consumer=CUDA),
        {
            "fewer_tensors": "{'values': torch.cat(values), 'lengths': torch.tensor(lengths)}",
            "smaller": "batch = batch.float()  # in the training step, of uint8",
            "pin": "--pin-memory",
        },
    ),
    (found("transfer"), PHOTOS, {}),
]

AROUND: list[tuple[Attribution, Situation, dict[str, str | None]]] = [
    (found("fed"), TRAINED, {}),
    (
        found("h2d_copy", rates=COPY),
        TRAINED,
        {"pin": "--pin-memory", "non_blocking": "--copy async", "prefetch": "--copy prefetch-stream"},
    ),
    (
        found("h2d_copy", {"copy": {"H": 1.0, "G": 2.0, "exposed_share": 0.5, "leaves": 3, "pinned": 2}}),
        replace(TRAINED, settings=Settings(pin_memory=True), consumer=replace(CUDA, copy="async")),
        {"pin": None, "prefetch": "--copy prefetch-stream"},
    ),
    (
        found("h2d_copy", {"copy": {"H": 1.0, "G": 2.0, "exposed_share": 0.5, "leaves": 3, "pinned": 3}}),
        replace(TRAINED, settings=Settings(pin_memory=True), consumer=replace(CUDA, copy="prefetch-stream")),
        {},
    ),
    (
        found("shared_memory", SHORT_OF_SHM),
        replace(PHOTOS, settings=Settings(num_workers=4, prefetch_factor=4), batch={"shm_bytes": 2**28}),
        {
            "shm_size": "docker run --shm-size=7g",
            "empty_dir": "emptyDir: {medium: Memory, sizeLimit: 7Gi}",
            "prefetch_factor": "--prefetch-factor 2",
            "fewer_workers": "--num-workers 2",
            "batch_size": "--batch-size 32",
        },
    ),
    (
        found("shared_memory", SHORT_OF_SHM),
        replace(
            PHOTOS,
            settings=Settings(num_workers=1, prefetch_factor=1),
            workload=Workload(batch_size=1),
            machine={"shm": {"size_bytes": 2**31}},
        ),
        {
            "shm_size": "docker run --shm-size=3g",
            "empty_dir": "emptyDir: {medium: Memory, sizeLimit: 3Gi}",
            "fewer_workers": "--num-workers 0",
        },
    ),
    (
        # 16 MiB, of which 12.8 are safe, and 6 batches of 9.2: neither half the workers nor half the queue would do.
        found("shared_memory", SHORT_OF_SHM),
        replace(PHOTOS, batch=BATCH, machine={"shm": {"size_bytes": 16 * MIB, "free_bytes": 16 * MIB}}),
        {
            "shm_size": "docker run --shm-size=128m",
            "empty_dir": "emptyDir: {medium: Memory, sizeLimit: 128Mi}",
            "fewer_workers": "--num-workers 0",
            "batch_size": "--batch-size 8",
        },
    ),
    (
        found("fd_limit", {"descriptors": {"peak": 60, "limit": 64, "tensors": 256}}),
        replace(PHOTOS, batch={"tensors": 256}),
        {
            "fewer_tensors": "{'values': torch.cat(values), 'lengths': torch.tensor(lengths)}",
            "descriptors": "ulimit -n 4096",
            "prefetch_factor": "--prefetch-factor 1",
            "file_system": "torch.multiprocessing.set_sharing_strategy('file_system')",
        },
    ),
    (
        # 256 descriptors, of which 204 are safe, and half the queue would still take 1,200.
        found("fd_limit", {"status": {"status": "refused", "message": "not run"}}),
        replace(PHOTOS, batch={"tensors": 300}, machine={"rlimit_nofile": {"soft": 256, "hard": 256}}),
        {
            "fewer_tensors": "{'values': torch.cat(values), 'lengths': torch.tensor(lengths)}",
            "descriptors": "ulimit -n 4096",
            "file_system": "torch.multiprocessing.set_sharing_strategy('file_system')",
        },
    ),
    (
        found("contention", {"throttled": {"share": 0.4}}),
        TRAINED,
        {"quota": "docker run --cpus=N", "threads": "OMP_NUM_THREADS=1; cv2.setNumThreads(0) in worker_init_fn"},
    ),
]


@pytest.mark.parametrize(("facts", "situation", "expected"), STORAGE + STAGES + AROUND)
def test_only_what_fits_is_advised(facts: Attribution, situation: Situation, expected: dict[str, str | None]) -> None:
    assert advised(facts, situation) == expected


@pytest.mark.parametrize(
    ("now", "cpus", "shards", "knee", "wanted"),
    [
        (2, 8, None, None, "--num-workers 4"),
        (0, 8, None, None, "--num-workers 1"),
        (5, 8, None, None, "--num-workers 8"),
        (4, 8, 5, None, "--num-workers 5"),
        (8, 8, None, None, None),
        (4, 8, 4, None, None),
        (2, 8, None, 6, "--num-workers 6"),
        (6, 8, None, 6, None),
        (2, 1.5, None, None, None),
        (1, None, None, None, None),
    ],
)
def test_no_more_workers_than_processors_shards_or_the_knee(
    now: int, cpus: float | None, shards: int | None, knee: int | None, wanted: str | None
) -> None:
    situation = replace(SHARDS, settings=Settings(num_workers=now), machine={"cpus_effective": cpus}, num_shards=shards, knee_workers=knee)
    assert advised(found("parse"), situation).get("workers") == wanted


@pytest.mark.parametrize(("shards", "wanted"), [(None, "--num-workers 4"), (3, "--num-workers 3"), (2, None)])
def test_workers_that_wait_are_worth_more_than_processors(shards: int | None, wanted: str | None) -> None:
    """On two processors two workers that sleep 8 ms a sample gave 232 samples/s, six 558."""
    situation = replace(SHARDS, settings=Settings(num_workers=2), machine=ON_TWO_CORES, num_shards=shards)
    assert advised(found("parse", IDLE), situation).get("workers") == wanted
    busy = {"cpu": {"worker_share": 0.6, "host_share": 0.3}}
    assert advised(found("parse", busy), situation).get("workers") is None


FACT_LINES: dict[str, tuple[dict[str, Any], str, str]] = {
    "head_of_line": (
        {"num_workers": 4},
        "batches of 4 workers are handed out in order, so one that is late holds up those that are ready",
        "4 个 worker 的批次按顺序交付，一个迟到，已就绪的也要等",
    ),
    "launch": (
        {"mean_ms": 2.0, "p99_ms": 9.5},
        "to launch a step takes the host 2.0 ms, the slowest 1 % 9.5 ms",
        "主机启动一步平均 2.0 毫秒，最慢 1 % 为 9.5 毫秒",
    ),
    "capped": (
        CAPPED,
        "with 4 workers it gives 2,000 samples/s, 1.5x as fast as with 2 workers; 8 workers need 170.0 MiB of /dev/shm, "
        "where 64.0 MiB are free",
        "4 个 worker 时 2,000 样本/秒，是 2 个 worker 时的 1.5 倍；8 个 worker 需要 170.0 MiB 的 /dev/shm，可用 64.0 MiB",
    ),
    "au": (
        {"au": 0.97, "F": 970.0, "G": 1000.0},
        "the GPU is busy 97 % of the time: 970 of 1,000 samples/s with a batch that is always there",
        "GPU 利用率（AU）97 %：实测 970，数据总是就绪时 1,000 样本/秒",
    ),
    "rates": (
        {"F": 1200.0, "G": None, "H": None, "L": 1240.0, "is_with_consumer": True},
        "samples/s: the whole loop 1,200, the loader alone 1,240",
        "样本/秒：完整循环 1,200，仅加载 1,240",
    ),
    "loader_bound": (
        {"L": 1240.0, "H": 3180.0},
        "the loader alone gives 1,240 samples/s, the GPU takes 3,180",
        "加载器单独跑 1,240 样本/秒，GPU 可吃 3,180",
    ),
    "copy": (
        {"H": 2000.0, "G": 3100.0, "exposed_share": 0.36, "leaves": 3, "pinned": 2},
        "with the copy 2,000 samples/s, without it 3,100, 36 % of a step; 2 of 3 tensors of a batch are pinned",
        "含拷贝 2,000，不含拷贝 3,100 样本/秒，占每步 36 %；每批 3 个张量中 2 个在锁页内存",
    ),
    "contention": (
        {"F": 900.0, "bound": 1400.0, "wait_p99_over_mean": 9.0},
        "the loop gives 900 samples/s, each part alone 1,400 at least; the slowest 1 % of waits are 9 times the mean",
        "完整循环 900 样本/秒，各部分单独跑至少 1,400；最慢 1 % 的等待是均值的 9 倍",
    ),
    "marginal": ({"au": 0.8}, "at AU 80 % the loop can become at most 25 % faster", "AU 已到 80 %，最多还能再快 25 %"),
    "intervention": (
        {"stage": "storage", "ratio": 2.4, "low": 2.2, "high": 2.6, "n": 3, "baseline": 1240.0, "intervened": 2976.0},
        "measured in 3 pairs of trials: 1,240 samples/s as it is, 2,976 with the data proved to be in memory, 2.4x as fast (2.2-2.6x)",
        "3 组成对测试：原样 1,240 样本/秒，数据已确认全部在内存时 2,976，为原来的 2.4 倍（2.2–2.6）",
    ),
    "runner_up": (
        {"stage": "decode", "ratio": 1.1},
        "without the cost of decode, the next, it is 1.1x as fast",
        "其次是解码：去掉其开销后为原来的 1.1 倍",
    ),
    "co_bottleneck": (
        {"stages": ["decode", "transform"], "ratios": [1.5, 1.4]},
        "without the cost of decode the loader is 1.5x as fast; without the cost of transform the loader is 1.4x as fast",
        "去掉解码的开销后，加载速度为原来的 1.5 倍；去掉变换的开销后，加载速度为原来的 1.4 倍",
    ),
    "no_stage": (
        {"stage": "decode", "ratio": 1.1},
        "without the cost of any one stage it is 1.1x as fast at most (decode)",
        "单独去掉任何一个阶段的开销，最多为原来的 1.1 倍（解码）",
    ),
    "unsure": (
        {"stage": "collate", "ratio": 1.2, "low": 0.9, "high": 1.6, "n": 6},
        "without the cost of collate the loader is 1.2x as fast (0.9-1.6x), by 6 repeats, which leaves it open",
        "去掉批次拼装的开销后，加载速度为原来的 1.2 倍（0.9–1.6），重复 6 次仍不能确定",
    ),
    "storage_hidden": ({"reason": "in_memory"}, "storage was not judged: the files lie in memory", "没有评判存储：文件就在内存里"),
    "reader": (
        {"share": 0.8, "parse_share": 0.7, "read_share": 0.1, "blocked_share": 0.1, "ratio": 4.0},
        "by timers, reading and taking apart is 80 % of the workers' time, 10 % of it waiting; no trial could take it away",
        "按计时器，读取和拆包占 worker 时间 80 %，其中 10 % 在等待；这一项无法单独去掉来验证",
    ),
    "timer": (
        {"stage": "decode", "share": 0.6, "blocked_share": 0.0},
        "by timers, decode is 60 % of the workers' time, 0 % of it waiting",
        "按计时器，解码占 worker 时间 60 %，其中 0 % 在等待",
    ),
    "disk": (
        {"MBps": 80.0, "iops": 4200.0, "ceiling_MBps": None, "ceiling_iops": 5000.0, "share": 0.84},
        "the disk is at 84 % of what it was probed to give: 80 MB/s, 4,200 IOPS of 5,000 probed",
        "磁盘达到实测上限的 84 %：80 MB/s，4,200 IOPS（实测上限 5,000）",
    ),
    "blocked": ({"share": 0.7}, "workers wait for storage 70 % of their time", "worker 有 70 % 的时间在等存储"),
    "pressure": (
        {"resource": "io", "share": 0.5},
        "50 % of the time some task waited for a disk (PSI)",
        "有 50 % 的时间有任务在等磁盘（PSI）",
    ),
    "cpu": (
        {"worker_share": 0.12, "host_share": 1.0, "others_share": 0.88},
        "workers compute 12 % of the time, 100 % of all processors are in use, 88 % by other programs",
        "worker 有 12 % 的时间在占用 CPU，全部可用 CPU 用了 100 %，其中其他程序占 88 %",
    ),
    "throttled": (
        {"share": 0.4},
        "the CPU quota held the loader up in 40 % of the periods",
        "CPU 配额在 40 % 的调度周期里限制了加载器",
    ),
    "transfer": (
        {"utilisation": 0.3, "floor_share": 0.8},
        "workers are at work 30 % of the time, taking over a batch that lies ready costs 80 % of a step",
        "worker 只有 30 % 的时间在干活，接收一个已就绪的批次占每步 80 %",
    ),
    "shm": (
        {"peak_bytes": 15 * 2**20, "size_bytes": 16 * 2**20, "share": 15 / 16},
        "/dev/shm: 15.0 MiB of 16.0 MiB in use at most, 94 %",
        "/dev/shm 峰值 15.0 MiB，共 16.0 MiB（94 %）",
    ),
    "descriptors": (
        {"peak": 300, "limit": 1024, "tensors": 256},
        "300 open files of 1,024 allowed; 256 tensors a batch, one each",
        "打开的文件描述符 300，上限 1,024；每批 256 个张量，各占一个",
    ),
    "status": ({"status": "hang", "message": "no batch came"}, "the trial ended as hang: no batch came", "测试以 hang 结束：no batch came"),
    "failed": (
        {"stage": "collate", "status": "error", "message": "TypeError"},
        "without the cost of collate nothing was measured: error: TypeError",
        "去掉批次拼装开销的测试失败：error：TypeError",
    ),
    "budget": (
        {"seconds": 90.0, "spent": 116.4, "rounds": 1},
        "stopped after the first round (116 s; 90 s were planned)",
        "第 1 轮后停止（用时 116 秒，计划 90 秒）",
    ),
    "scattered": (
        {"stage": "decode", "ratio": 4.9, "share": 0.06, "slowest": 212.6, "fastest": 381.1},
        "the same loader gave 213 to 381 samples/s within one test, so no gain in it is to be trusted",
        "同一加载器在一次测试中为 213 到 381 样本/秒，其中的提升都不可信",
    ),
    "trials": ({"count": 12, "seconds": 50.0}, "told from 12 trials in 50 s", "依据 12 次测试，用时 50 秒"),
}


@pytest.mark.parametrize("kind", FACTS)
def test_every_kind_of_fact_has_a_line(kind: str) -> None:
    values, en, zh = FACT_LINES[kind]
    assert in_words(found("inconclusive", {kind: values}, "inconclusive"), 0, TRAINED)["evidence"] == [{"en": en, "zh": zh}]


def test_how_long_it_took_stands_behind_what_was_seen() -> None:
    """The terminal shows the first two lines."""
    facts = {kind: FACT_LINES[kind][0] for kind in ("budget", "runner_up", "trials", "timer")}
    lines = [line["en"] for line in in_words(found("transform", facts), 0, TRAINED)["evidence"]]
    assert lines == [FACT_LINES[kind][1] for kind in ("runner_up", "timer", "budget", "trials")]


def test_numbers_that_are_in_another_line_are_not_told_twice() -> None:
    facts = {"rates": {"F": None, "G": None, "H": 3180.0, "L": 1240.0}, "loader_bound": {"L": 1240.0, "H": 3180.0}}
    (line,) = in_words(found("storage", facts), 0, TRAINED)["evidence"]
    assert line["en"] == "samples/s: the consumer with its copy 3,180, the loader alone 1,240"


def test_shards_whose_gain_is_not_sure_are_not_said_to_be_faster() -> None:
    remedies = in_words(found("storage"), 0, replace(PHOTOS, shards_over_this=(0.7, 2.5)))["remedies"]
    assert remedies[0]["en"] == "use the shards, if more blocks show that they gain here"
    assert remedies[0]["zh"] == "使用分片（本机收益尚不确定，请加大 --blocks 确认）"


def test_workers_that_the_search_measured_come_first_also_where_processors_are_busy() -> None:
    """A transform that waits: the search found more workers faster, and what is measured comes before what may help."""
    facts = {"timer": {"stage": "transform", "share": 0.65, "blocked_share": 0.98}, "cpu": {"worker_share": 0.12, "host_share": 1.0}}
    situation = replace(OWN, knee_workers=4, knee_rates=(271.0, 705.0))
    remedies = in_words(found("transform", facts, "medium"), 0, situation)["remedies"]
    assert [remedy["name"] for remedy in remedies][:2] == ["workers", "offline"]
    assert remedies[0]["en"] == "use 4 workers: the search found 271 -> 705 samples/s"
    assert remedies[0]["zh"] == "用 4 个 worker：搜索测得 271 → 705 样本/秒"
    shards = replace(PHOTOS, knee_workers=4, knee_rates=(100.0, 150.0), shards_over_this=(2.2, 2.4))
    assert [one["name"] for one in in_words(found("storage"), 0, shards)["remedies"]][:2] == ["shards", "workers"]


def test_an_interval_of_one_pair_says_that_it_is_of_baselines() -> None:
    values = {"stage": "decode", "ratio": 5.3, "low": 2.6, "high": 10.7, "ci_by": "baselines", "num_baselines": 3, "n": 1}
    facts = {"intervention": values | {"baseline": 333.0, "intervened": 1752.0}}
    (line,) = in_words(found("decode", facts, "medium"), 0, PHOTOS)["evidence"]
    assert line["en"].endswith("5.3x as fast (2.6-10.7x); the interval is how much 3 trials as it is differ")
    assert line["zh"].endswith("；区间取自 3 次原样测试之间的差异")

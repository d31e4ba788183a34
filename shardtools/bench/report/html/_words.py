"""All words of the report, in English and in Chinese. Names of options and of the field's measures stay as they are typed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from shardtools.bench.report.chinese import translated
from shardtools.bench.report.chinese_definitions import DEFINITIONS_ZH
from shardtools.bench.report.html._sentences import SENTENCES
from shardtools.bench.report.verdict_words import side_name_zh

Lang = Literal["en", "zh"]

_WORDS: dict[str, tuple[str, str]] = {
    "samples/s": ("samples/s", "样本/秒"),
    "samples": ("samples", "样本"),
    "tokens/s": ("tokens/s", "token/秒"),
    "failed": ("failed", "失败"),
    "from the bucket": ("from the bucket", "来自存储桶"),
    "of the samples bytes": ("the samples' bytes", "样本字节数"),
    "requests a sample": ("requests a sample", "次请求/样本"),
    "latency": ("latency", "延迟"),
    "stage.storage": ("storage read", "存储读取"),
    "stage.parse": ("shard reader", "分片解析"),
    "stage.decode": ("decode / tokenize", "解码 / 分词"),
    "stage.transform": ("transform", "变换"),
    "stage.collate": ("collate", "组批"),
    "stage.transfer": ("transfer to main", "进程间传输"),
    "stage.h2d": ("H2D copy", "H2D 拷贝"),
    "stage.gpu": ("GPU", "GPU"),
    "stage.gpu, no GPU": ("consumer", "消费端"),
    "in workers": (
        "in each worker, one after the other: ms a batch, share of the workers' time",
        "每个 worker 内依次进行：每批毫秒，占 worker 时间",
    ),
    "in workers, short": ("in each worker: ms a batch, share of its time", "每个 worker 内：每批毫秒，占其时间"),
    "in main": ("main process and device: share of the step", "主进程与设备：占每步"),
    "limit": ("bottleneck", "瓶颈"),
    "pace": ("sets the pace", "决定速度"),
    "largest": ("largest share", "占比最大"),
    "main loop": ("A step of the main loop:", "主循环每步："),
    "part.wait": ("waiting for data", "等待数据"),
    "part.h2d": ("exposed copy", "未被掩盖的拷贝"),
    "part.compute": ("computing", "计算"),
    "part.rest": ("other", "其他"),
    "legend.busy": ("working", "工作"),
    "legend.waiting": ("hatched: waiting", "斜线：等待"),
    "legend.none": ("not measured, reason given", "未测量，附原因"),
    "gpu takes": ("the GPU takes", "GPU 可消费"),
    "gpu takes, no GPU": ("the consumer takes", "消费端可消费"),
    "cores": ("cores (cpus_effective)", "核（cpus_effective）"),
    "knee": ("knee", "拐点"),
    "best": ("best", "最佳"),
    "best tried": ("best tried", "已测最佳"),
    "still rising": ("best tried, still rising", "已测最佳，仍在上升"),
    "computed": ("computed", "推算"),
    "not tried": ("not tried", "未尝试"),
    "status.refused": ("not run", "未运行"),
    "status.oom_shm": ("shm full", "共享内存满"),
    "status.fd": ("fds out", "描述符耗尽"),
    "status.hang": ("hung", "卡住"),
    "status.error": ("error", "出错"),
    "status.skipped": ("skipped", "跳过"),
    "status.ok": ("ok", "正常"),
    "wait p50": ("wait p50", "等待 p50"),
    "step": ("step", "步"),
    "steps.axis": ("step; a tick every W =", "步；刻度间隔 W ="),
    "data_wait_ms": ("waiting for data, ms", "等待数据，毫秒"),
    "h2d_copy_ms": ("H2D copy, ms", "H2D 拷贝，毫秒"),
    "compute_ms": ("computing, ms", "计算，毫秒"),
    "memory.head": ("measured / predicted", "实测 / 预测"),
    "memory.all": (
        "Shared memory, descriptors, RAM and pinned memory: predicted → measured",
        "共享内存、描述符、RAM、锁页内存：预测 → 实测",
    ),
    "memory.measured": ("measured at most, by all programs", "实测峰值（整机所有程序）"),
    "memory.predicted": ("predicted", "预测值"),
    "memory.bound": ("the most a setting may need; refused above {} % of what is free", "设置可能的最大用量；超过可用量的 {} % 即拒绝运行"),
    "shm free": ("free /dev/shm", "/dev/shm 可用"),
    "not measured": ("not measured", "未测量"),
    "more rows": ("and {} more settings, in the data below", "另有 {} 组设置，见下方数据"),
    "block": ("block", "区组"),
    "block axis": ("block: both sides once, in random order", "区组：双方各一次，顺序随机"),
    "outlier": ("outlier, kept", "离群，保留"),
    "ratio axis": ("ratio of throughputs, second over first; grey: called equal", "吞吐比，第二方 / 第一方；灰色：视为相同"),
    "median": ("median", "中位数"),
    "pipeline.label": ("Stages of the loader, cost of each", "加载流水线各阶段的开销"),
    "throughput.label": ("Throughput against the number of workers", "吞吐与 worker 数"),
    "heat.label": ("Throughput for each tried setting", "各组设置的吞吐"),
    "steps.label": ("The first measured steps, one by one", "最初的测量步"),
    "memory.label": ("Shared memory, predicted and measured", "共享内存：预测与实测"),
    "pairs.label": ("Sides compared block by block", "逐区组对比"),
    "gains.label": ("What taking a stage away gains", "去掉某阶段后的提升"),
    "heat.note": (
        "Percent: of the best. Hatched: not run, or failed. Dashed: not tried; no cell is interpolated.",
        "百分比：相对最佳。斜线：未运行或失败。虚线：未尝试；没有插值。",
    ),
    "heat.trials": ("{} trials, where the full grid takes {}; ended by: {}.", "共 {} 次试验，完整网格需 {} 次；结束原因：{}。"),
    "confidence.high": ("confidence: high", "置信度：高"),
    "confidence.medium": ("confidence: medium", "置信度：中"),
    "confidence.inconclusive": ("inconclusive", "无定论"),
    "class.fed": ("fed: the loader keeps up", "供给充足：加载器跟得上"),
    "class.h2d_copy": ("bottleneck: host-to-device copy", "瓶颈：主机到设备拷贝"),
    "class.storage": ("bottleneck: storage", "瓶颈：存储"),
    "class.parse": ("bottleneck: shard reader", "瓶颈：分片解析"),
    "class.decode": ("bottleneck: decode / tokenize", "瓶颈：解码 / 分词"),
    "class.transform": ("bottleneck: transform", "瓶颈：变换"),
    "class.collate": ("bottleneck: collate", "瓶颈：组批"),
    "class.transfer": ("bottleneck: transfer between processes", "瓶颈：进程间传输"),
    "class.shared_memory": ("bottleneck: shared memory", "瓶颈：共享内存"),
    "class.fd_limit": ("bottleneck: file descriptors", "瓶颈：文件描述符"),
    "class.contention": ("bottleneck: CPU contention or jitter", "瓶颈：CPU 争用或抖动"),
    "class.balanced": ("balanced: no single bottleneck", "均衡：没有单一瓶颈"),
    "class.inconclusive": ("inconclusive", "无定论"),
    "gain": ("removing it gives at most", "消除后最多提升"),
    "then": ("then limited by", "随后受限于"),
    "busy": ("device busy (AU)", "设备利用（AU）"),
    "waiting": ("of a step spent waiting", "每步等待占比"),
    "first batch": ("to the first batch", "首批耗时"),
    "mean": ("mean", "平均"),
    "exposed": ("exposed", "未被掩盖"),
    "cores of": ("{} of {} cores", "{} / {} 核"),
    "cores used": ("{} cores", "{} 核"),
    "throttled": ("throttled", "被限流"),
    "no GPU": ("no GPU", "无 GPU"),
    "on disk": ("{} on {}", "{}（{}）"),
    "consumer on": ("consumer {} on {}", "消费端 {}（{}）"),
    "sure": ("filled: surely a gain; hollow: not sure, for noise or want of repeats", "实心：确有提升；空心：未能确定（噪声或重复不足）"),
    "whisker": (
        "line: 95 % interval, of three repeats or more, else of how much the runs with all stages differ",
        "横线：95 % 区间；重复不足三次时，取自各次原样测试之间的差异",
    ),
    "with timers": ("{} samples/s in the trial with timers", "带计时器的试验 {} 样本/秒"),
    "most safe": ("{} % of it", "其 {} %"),
    "too wide": ("interval too wide", "区间过宽"),
    "cache.columns": ("trial, side, block, cache, by, before, after", "试验, 对象, 区组, 缓存, 方法, 之前, 之后"),
    "spread": ("{} to {} over blocks", "各区组 {} 至 {}"),
    "failures": ("failed trials: {}", "{} 次试验失败"),
    "warmed": ("warm", "热"),
} | SENTENCES


@dataclass(frozen=True)
class Say:
    """Looks a word up in one language."""

    lang: Lang
    has_gpu: bool = True
    """Batches go to one; else what takes them is not called so."""

    @classmethod
    def of(cls, data: Mapping[str, Any], lang: Lang) -> "Say":
        """For a report."""
        return cls(lang, data["consumer"].get("device") == "cuda")

    def __call__(self, key: str) -> str:
        found = _WORDS.get(key) if self.has_gpu else _WORDS.get(f"{key}, no GPU", _WORDS.get(key))
        return key.partition(".")[2] or key if found is None else found[self.lang == "zh"]

    def side(self, name: str) -> str:
        """The name of a side."""
        return side_name_zh(name) if self.lang == "zh" else name

    def reason(self, text: str) -> str:
        """Sentences of bench that are English in the data: reasons, notes, messages."""
        return translated(text) if self.lang == "zh" else text

    def definition(self, name: str, text: str) -> str:
        """What a name of the data means; ``text`` is English."""
        return DEFINITIONS_ZH.get(name, text) if self.lang == "zh" else text

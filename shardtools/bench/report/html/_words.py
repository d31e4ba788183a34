"""All words of the report, in English and in Chinese. Names of options and of the field's measures stay as they are typed."""

from dataclasses import dataclass
from typing import Literal

from shardtools.bench.report.chinese import translated
from shardtools.bench.report.html._sentences import REASONS, SENTENCES
from shardtools.bench.report.verdict_words import side_name_zh

Lang = Literal["en", "zh"]

_WORDS: dict[str, tuple[str, str]] = {
    "samples/s": ("samples/s", "样本/秒"),
    "samples": ("samples", "样本"),
    "tokens/s": ("tokens/s", "token/秒"),
    "failed": ("failed", "失败"),
    "stage.storage": ("storage read", "存储读取"),
    "stage.parse": ("shard reader", "分片解析"),
    "stage.decode": ("decode / tokenize", "解码 / 分词"),
    "stage.transform": ("transform", "变换"),
    "stage.collate": ("collate", "组批"),
    "stage.transfer": ("transfer to main", "进程间传输"),
    "stage.h2d": ("H2D copy", "H2D 拷贝"),
    "stage.gpu": ("GPU / consumer", "GPU / 消费端"),
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
    "cores": ("cores (cpus_effective)", "核（cpus_effective）"),
    "knee": ("knee", "拐点"),
    "best": ("best", "最佳"),
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
    "memory.measured": ("most that was measured, of shared memory by all programs", "实测峰值（共享内存为整机所有程序）"),
    "memory.predicted": ("predicted", "预测值"),
    "memory.bound": ("bound, by which settings are refused", "上界，超出即拒绝运行"),
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
    "spread": ("{} to {} over blocks", "各区组 {} 至 {}"),
    "failures": ("failed trials: {}", "{} 次试验失败"),
    "warmed": ("warm", "热"),
} | SENTENCES


@dataclass(frozen=True)
class Say:
    """Looks a word up in one language."""

    lang: Lang

    def __call__(self, key: str) -> str:
        found = _WORDS.get(key)
        return key.partition(".")[2] or key if found is None else found[self.lang == "zh"]

    def side(self, name: str) -> str:
        """The name of a side."""
        return side_name_zh(name) if self.lang == "zh" else name

    def reason(self, text: str) -> str:
        """Sentences of bench that are English in the data: reasons, notes, messages."""
        return REASONS.get(text) or translated(text) if self.lang == "zh" else text

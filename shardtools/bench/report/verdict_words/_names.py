"""What stages and consumers are called."""

from shardtools.bench.report.verdict_words._said import Said, spaced
from shardtools.bench.report.verdict_words.situation import Situation

_STAGES = {
    "transform": Said("the transform", "变换（transform）"),
    "collate": Said("collating batches", "批次拼装（collate）"),
    "transfer": Said("sending batches from the workers to the main process", "批次从 worker 到主进程的传输（IPC）"),
    "shared_memory": Said("shared memory (/dev/shm)", "共享内存（/dev/shm）"),
    "fd_limit": Said("the limit of open files", "文件描述符上限"),
    "contention": Said("contention", "CPU 争抢或批次抖动"),
    "fed": Said("the consumer", "训练本身"),
    "balanced": Said("no single stage", "没有单一瓶颈"),
    "inconclusive": Said("nothing that could be told", "未能判定"),
}
_READING = {
    "files": Said("storage (reading small files)", "存储（小文件读取）"),
    "jsonl": Said("storage (reading lines)", "存储（逐行读取）"),
    "wds": Said("storage (reading shards)", "存储（分片读取）"),
    "mds": Said("storage (reading shards)", "存储（分片读取）"),
}
_PARSING = {
    "files": Said("grouping files into samples", "样本组装"),
    "jsonl": Said("parsing JSON lines", "JSON 行解析"),
    "wds": Said("taking samples out of tar shards", "分片解析（tar 拆包）"),
    "mds": Said("taking samples out of MDS shards", "分片解析（MDS 拆包）"),
}
_DECODING = {
    "rgb": Said("image decoding", "图像解码"),
    "text": Said("reading text", "文本解码"),
    "tokens": Said("reading tokens", "token 读取"),
}
_SHORT = {"h2d_copy": Said("the copy", "H2D 拷贝"), "transfer": Said("transfer", "批次传输")}
_SHORT_ZH = {"storage": "存储", "parse": "分片解析", "decode": "解码", "transform": "变换", "collate": "批次拼装"}


def stage_name(stage: str, situation: Situation) -> Said:
    """In full: what it is for this data."""
    if stage == "storage":
        return _READING[situation.layout.kind]
    if stage == "h2d_copy":
        device = device_name(situation)
        return Said(f"the copy to {device.en}", f"主机到{spaced(device.zh)}的拷贝（H2D）")
    if stage == "parse":
        return _PARSING[situation.layout.kind]
    if stage == "decode":
        other = _DECODING.get(situation.workload.decode, Said("decoding", "解码"))
        return Said("tokenizing text as it is read", "分词（边读边 tokenize）") if situation.tokenizes else other
    return _STAGES[stage]


def short_name(stage: str) -> Said:
    """In a word."""
    if stage in _SHORT_ZH:
        return Said(stage, _SHORT_ZH[stage])
    return _SHORT.get(stage) or _STAGES.get(stage) or Said(stage, stage)


def device_name(situation: Situation) -> Said:
    """Where batches are copied to."""
    return Said("the GPU", "GPU ") if situation.consumer.device == "cuda" else Said("the simulated device", "模拟设备")


def consumer_name(situation: Situation) -> Said:
    """What takes the batches: only an accelerator is a GPU."""
    if situation.consumer.device == "cuda":
        return Said("the GPU", "GPU ")
    if situation.consumer.kind == "sim":
        return Said("the simulated step", "模拟的训练步")
    return Said("the model on the CPU", "CPU 上的模型")


def side_name_zh(name: str) -> str:
    """``files by torch`` is ``小文件（torch）``; a place keeps its name."""
    kinds = {"files": "小文件", "jsonl": "JSONL", "wds": "WDS 分片", "mds": "MDS 分片"}
    what, by, reader = name.rpartition(" by ")
    return f"{kinds.get(what, what)}（{reader}）" if by else name

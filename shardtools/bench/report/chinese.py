"""Sentences of bench in Chinese, for those that were written as English text; unknown ones stay as they are.

Verdicts, answers and remedies are not translated: they are written in both languages where they are made.
"""

import re
from functools import cache

from shardtools.bench.report.chinese_reasons import COMMENTS, REASONS
from shardtools.bench.report.verdict_words import side_name_zh, spaced

_FORMS = (
    # page cache
    (
        r"names and inodes were not dropped, and opening each file to evict it reads them in, which flatters small files: "
        r"as root, (.+) drops them too",
        r"目录项和 inode 没有清除，而清缓存时打开每个文件又会把它们读进来，这对小文件有利：以 root 加 \1 可一并清除",
    ),
    (r"guest-cold; device cache unknown: (.+)", r"仅本机缓存为冷，下层设备的缓存未知：\1"),
    (r"guest-cold; what caches lie below is unknown: (.+)", r"仅本机缓存为冷，下层有哪些缓存未知：\1"),
    (r"(\w+) is a virtual disk by its driver", r"按驱动看 \1 是虚拟盘"),
    (
        r"dropping the caches of the whole machine was not allowed \((.+)\)",
        r"未允许清空整机缓存（\1）",
    ),
    (
        r"data in a bucket comes over the network, no page cache of this machine holds it; what the store itself has in memory is unknown",
        "存储桶里的数据经网络读取，不在本机页缓存里；对象存储自身的缓存未知",
    ),
    (
        r"warm data of a bucket is the local copies that the reader keeps; nothing is fetched again",
        "存储桶数据的“热”指读取器保留的本地副本，不再重新下载",
    ),
    (r"not used \(the bucket is fetched in each trial\)", "未使用（每次测试都从存储桶下载）"),
    (r"(.+); the bucket is fetched in each trial", r"\1；存储桶每次测试都重新下载"),
    (
        r"(.+); the bucket is fetched in each trial, but for local copies that readers keep",
        r"\1；存储桶每次测试都重新下载，读取器保留的本地副本除外",
    ),
    (
        r"each shard comes through a pipe from `aws s3 cp`, a program that is started for it",
        "每个分片都经由单独启动的 `aws s3 cp` 管道读取",
    ),
    (
        r"in (\d+) of (\d+) trials the data was read again to fill the window, and fetched again for it",
        r"\2 次测试中有 \1 次为填满窗口重读了数据，并重新下载",
    ),
    (
        r"in (\d+) of (\d+) trials the data was read again to fill the window, so it was read from local copies",
        r"\2 次测试中有 \1 次为填满窗口重读了数据，读的是本地副本",
    ),
    (r"only root can drop names and inodes from the cache", "只有 root 能清除目录项和 inode 缓存"),
    (r"the files are on a file system in memory, which cannot be cold", "文件在内存文件系统上，不可能是冷的"),
    (r"the data is not on this machine", "数据不在本机"),
    (r"what is in the page cache cannot be told: (.+)", r"无法得知页缓存内容：\1"),
    (
        r"([\d.]+) % of the pages stayed, of (.+) among others; a program .+",
        r"仍有 \1 % 的页留在缓存里（如 \2）：有程序映射或正在写这些文件，请先结束它",
    ),
    (
        r"of the files just read, ([\d.]+) % stayed in the page cache: memory does not hold them all",
        r"刚读过的文件只有 \1 % 留在页缓存里：内存装不下",
    ),
    (r"(.+), (.+) % resident, (.+) when measured: data was read again", r"\1，驻留 \2 %；测量时为 \3：数据被重复读取"),
    (r"(.+), (.+) % resident", r"\1，驻留 \2 %"),
    (r"(.+), (.+) when measured: data was read again", r"\1；测量时为 \2：数据被重复读取"),
    # instruments and windows
    (
        r"instrumentation disturbs this workload: timers took (.+) of the workers' time, more than (.+)",
        r"计时器干扰了测量：占 worker 时间 \1，超过 \2",
    ),
    (
        r"instrumentation disturbs this workload: with it the rate differs by (.+), more than (.+)",
        r"计时器干扰了测量：吞吐变化 \1，超过 \2",
    ),
    (
        r"in (\d+) of (\d+) trials the data ended after ([\d,]+) of ([\d,]+) steps: give more samples, or a smaller --batch-size",
        r"\2 次测试中有 \1 次数据只够 \3 步（需要 \4 步）：请用更多样本，或减小 --batch-size",
    ),
    (
        r"in (\d+) of (\d+) trials the data ended after ([\d.]+) of ([\d.]+) s: give more samples",
        r"\2 次测试中有 \1 次数据只够 \3 秒（需要 \4 秒）：请用更多样本",
    ),
    (
        r"in (\d+) of (\d+) trials the longest time of a window was over before it had enough steps: a smaller --batch-size has more",
        r"\2 次测试中有 \1 次测量窗口到了最长时间，步数仍不够：减小 --batch-size 可增加步数",
    ),
    (
        r"in (\d+) of (\d+) trials the data was read again to fill the window, so it was read from memory",
        r"\2 次测试中有 \1 次为填满窗口重读了数据，读的是内存",
    ),
    (r"in (\d+) of (\d+) trials the rate changed by more than 5 % within the window", r"\2 次测试中有 \1 次窗口内吞吐变化超过 5 %"),
    # limits of readers
    (
        r"([\d,]+) shards? cannot be shared equally by (\d+) workers: some end before others",
        r"\1 个分片不能平分给 \2 个 worker：有的会先结束",
    ),
    (
        r"shuffles by shards and a buffer, which is less random than random access; holds ([\d,]+) samples in memory",
        r"按分片加缓冲区打乱，随机性不如随机访问；内存中保留 \1 个样本",
    ),
    (
        r"samples of the measured window may have been read into the shuffle buffer before it began, so that not all reading is in the "
        r"rate: give more samples, or a smaller --shuffle-buffer",
        "测量窗口里的样本可能早已读进打乱缓冲区，吞吐没有计入全部读取：请用更多样本，或减小 --shuffle-buffer",
    ),
    (r"shards are mapped, so that reading and parsing are one: both count as storage", "分片是内存映射的，读取和拆包分不开，都计入存储"),
    (
        r"shards are unpacked to a folder of StreamingDataset's own while they are read, which is part of its numbers",
        "StreamingDataset 读取时会把分片解压到自己的目录，耗时计入结果",
    ),
    (
        r"shards are copied, as from a remote, to a folder of StreamingDataset's own while they are read, which is part of its numbers",
        "StreamingDataset 读取时会把分片拷贝到自己的目录，耗时计入结果",
    ),
    (r"tokenized as it is read, by (\w+), with the settings the shards were packed with", r"边读边用 \1 分词，设置与打包分片时相同"),
    (
        r"rows are cut from the stream of documents, those of the shards are packed by (\w+)",
        r"行是从文档流直接切出的，分片里的行按 \1 打包",
    ),
    (
        r"The model computes on the processor and takes it from the loader's workers: its step is not that of an accelerator",
        "模型在 CPU 上算，会与 worker 抢核：这一步的耗时不代表加速卡",
    ),
    # proofs
    (r"the same ([\d,]+) samples?, each delivered once", r"同样的 \1 个样本，各交付一次"),
    (r"the same ([\d,]+) samples? by the keys in names and headers", r"按名字和文件头中的键，是同样的 \1 个样本"),
    (r"([\d,]+) samples?, each delivered once", r"\1 个样本，各交付一次"),
    (r"the first ([\d,]+) delivered came once each", r"先交付的 \1 个各只出现一次"),
    (r"the ([\d,]+) with the smallest hashes decode to the same", r"哈希最小的 \1 个解码结果相同"),
    (r"([\d,]+) read on both sides decode to the same", r"两边都读到的 \1 个解码结果相同"),
    (r"none was read on both sides, so none was compared", "两边没有读到共同的样本，未作比较"),
    (r"every field of ([\d,]+) samples? is the same \((.+)\)", r"\1 个样本的所有字段都相同（\2）"),
    (
        r"every field but (.+), which packing made, of ([\d,]+) samples? is the same \((.+)\)",
        r"除打包时生成的 \1 外，\2 个样本的所有字段都相同（\3）",
    ),
    (r"fields were not compared but by decoding ([\d,]+) samples?, since (.+)", r"字段只通过解码 \1 个样本比较过，因为\2"),
    (r"no sample's fields were read on both sides", "没有样本的字段在两边都被读到"),
    (r"records are stored as their fields", "记录是按字段存储的"),
    (r"the same tokenizer and settings", "分词器和设置相同"),
    (r"beyond ([\d,]+) rows a side, so their tokens were not compared", r"每边超过 \1 行，未比较 token"),
    (r"where documents end within it was not compared, since no token says so", "没有结束 token，未比较文档在何处结束"),
    (r"the same stream of ([\d,]+) tokens in the same order", r"同样的 \1 个 token，顺序相同"),
    (r"the same ([\d,]+) tokens in the same (\w+), in any order", r"同样的 \1 个 token，按 \2 相同，顺序不限"),
    # plan
    (r"(\d+) paired blocks?, number fixed, order randomised", r"\1 个配对区组，数量固定，顺序随机"),
    (r"(\d+) trials?, number fixed", r"\1 次测试，数量固定"),
    (
        r"(\d+) to (\d+) paired blocks, extended while an interval is wider than \+-5 % and it takes no more than (\d+) s, "
        r"order randomised",
        r"\1–\2 个配对区组，区间宽于 ±5 % 且不超过 \3 秒时继续加，顺序随机",
    ),
    # noise
    (r"quiet", "安静"),
    (r"not known", "未知"),
    (r"noisy host: (.+)", r"有干扰：\1"),
    (r"before: (.+)", r"开始前：\1"),
    (r"in (\d+) of (\d+) trials a CPU was slowed because of heat", r"\2 次测试中有 \1 次 CPU 因过热降频"),
    (r"in (\d+) of (\d+) trials (.+)", r"\2 次测试中有 \1 次：\3"),
    (r"tasks waited for a CPU (\d+) % of the time \(limit (\d+) %\)", r"有 \1 % 的时间有任务在等 CPU（上限 \2 %）"),
    (r"tasks waited for a disk (\d+) % of the time \(limit (\d+) %\)", r"有 \1 % 的时间有任务在等磁盘（上限 \2 %）"),
    (r"load ([\d.]+) on (\d+) CPUs \(limit ([\d.]+)\)", r"负载 \1，共 \2 核（上限 \3）"),
    (r"the CPU governor is powersave, so the clock may change while it is measured", "CPU 调频策略为 powersave，测量中频率会变"),
    (r"(\d+) % of CPU time was stolen by the hypervisor \(limit (\d+) %\)", r"\1 % 的 CPU 时间被虚拟机监控器占走（上限 \2 %）"),
    (r"other programs used ([\d.]+) of (\d+) CPUs \(limit ([\d.]+)\)", r"其他程序占用 \2 核中的 \1 核（上限 \3）"),
    (r"other programs read (\d+) MB/s from the same disk \(limit (\d+) MB/s\)", r"其他程序从同一块盘读取 \1 MB/s（上限 \2）"),
    # ends of trials
    (
        r"shared memory was full; use fewer workers, a lower prefetch factor or a larger /dev/shm \((.+)\)",
        r"共享内存已满：请减少 worker、降低预取或加大 /dev/shm（\1）",
    ),
    (
        r"the trial ran out of file descriptors; collate into fewer tensors or raise ulimit -n \((.+)\)",
        r"文件描述符用尽：请合并张量或调高 ulimit -n（\1）",
    ),
    (r"the trial did not end within (.+) seconds(.*)", r"测试在 \1 秒内没有结束\2"),
    (r"not run: (.+)", r"未运行：\1"),
    (r"shm (.+) of (.+) free in /dev/shm, of which (\d+)% are safe", r"需要共享内存 \1，/dev/shm 只剩 \2（只用到 \3 % 才安全）"),
    (r"([\d,]+) of ([\d,]+) file descriptors, of which (\d+)% are safe", r"需要 \1 个文件描述符，上限 \2（只用到 \3 % 才安全）"),
    (r"RAM (.+) of (.+) usable memory, of which (\d+)% are safe", r"需要内存 \1，可用 \2（只用到 \3 % 才安全）"),
    (r"(use fewer workers.*|collate into fewer tensors.*), or a larger /dev/shm", r"\1，或加大 /dev/shm"),
    (r"(use fewer workers.*|collate into fewer tensors.*), or raise ulimit -n", r"\1，或调高 ulimit -n"),
    (r"(use fewer workers.*), a smaller shuffle buffer, or more memory", r"\1、减小打乱缓冲区，或加内存"),
    (r"use fewer workers.*", "请减少 worker、降低预取或减小批大小"),
    (r"collate into fewer tensors.*", "请合并张量、减少 worker 或降低预取"),
    (r"not needed for the knee", "找拐点不需要"),
    (r"no time was left", "时间已用完"),
    (r"the device is fed already", "设备已经喂饱"),
    (
        r"computed: the rate of kept workers, less what starting new ones each epoch costs",
        "推算：保留 worker 时的速率，减去每个 epoch 重新启动的开销",
    ),
    (r"gain below 5 %", "增益低于 5 %"),
    (r"limit: (\d+) x (\d+) processors", r"上限：\1 x \2 个处理器"),
    (r"limit: (\d+) shards", r"上限：\1 个分片"),
    (r"limit: (\w+) at (\d+) workers", r"上限：\2 个 worker（\1）"),
    (r"full grid", "完整网格"),
    # comments of code to be copied
    (r"([\d.]+ \w+) foreseen", r"预计需要 \1"),
    (r"time budget", "时间用完"),
    (r"fed", "已喂饱"),
)
"""What a whole text is, and its Chinese; groups are translated too. The first that fits counts."""

_WHO = {"both sides": "两边", "all sides": "所有各边"}
_STATUS = {"refused": "拒绝", "oom_shm": "共享内存满", "fd": "描述符用尽", "hang": "挂起", "error": "出错"}


@cache
def translated(text: str) -> str:
    """In Chinese as far as it is known; parts that ``; `` joins are looked up one by one, and names of sides before a colon stay names."""
    if whole := REASONS.get(text) or COMMENTS.get(text):
        return whole
    for form, chinese in _compiled():
        if (match := form.fullmatch(text)) is not None:
            return _filled(chinese, match)
    if text in _STATUS:
        return _STATUS[text]
    who, colon, rest = text.partition(": ")
    if colon and "; " not in who and (who in _WHO or who in _STATUS or " by " in who):
        return f"{_who(who)}：{translated(rest)}"
    if "; " in text:
        return "；".join(translated(part) for part in text.split("; "))
    return text


def with_comments(code: str, lang: str) -> str:
    """Code whose comments are in that language."""
    return code if lang == "en" else re.sub(r"(?<=# ).+", lambda match: translated(match[0]), code)


def _who(names: str) -> str:
    return _WHO.get(names) or _STATUS.get(names) or "、".join(_together(name.split(" and ")) for name in names.split(", "))


def _together(names: list[str]) -> str:
    first, *others = map(side_name_zh, names)
    return first + "".join(f"与{spaced(name)}" for name in others)


def _filled(chinese: str, match: re.Match[str]) -> str:
    return re.sub(r"\\(\d)", lambda number: translated(match[int(number[1])]), chinese)


@cache
def _compiled() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(form), chinese) for form, chinese in _FORMS)

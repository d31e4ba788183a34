"""Remedies for stages inside the loader. Each returns nothing where it does not fit the data at hand, or is followed already."""

import os
from collections.abc import Iterator

from shardtools.bench.attribution import Attribution
from shardtools.bench.report.verdict_words._remedy import Remedy
from shardtools.bench.report.verdict_words._said import Said, rate
from shardtools.bench.report.verdict_words.situation import Situation
from shardtools.bench.statistics import LITTLE_GAIN, NO_DIFFERENCE
from shardtools.units import format_bytes, plural

_FULL_HOST = 0.85
"""Of the processors in use: more workers would only share them."""
_IDLE = 0.5
"""Of processors, and of workers' time: below it workers wait, and more of them wait side by side."""
_CACHE_SHARE = 0.7
"""Of usable memory, that data may take and still stay cached."""
_FULL_DISK = 0.7
_MANY_TENSORS = 8


def workers(found: Attribution, situation: Situation) -> Iterator[Remedy]:
    """Up to the knee, never more than shards or, unless they wait, processors, and not where the processors are busy already, unless
    the search measured that they help."""
    cpu = found.fact("cpu")
    shares = [] if cpu is None else [cpu.values.get(name) for name in ("worker_share", "host_share")]
    wanted = situation.more_workers(bool(shares) and all(share is not None and share < _IDLE for share in shares))
    is_full = cpu is not None and (cpu.values.get("host_share") or 0.0) >= _FULL_HOST
    gain, rates = situation.knee_gain, situation.knee_rates
    if wanted is None or (is_full and gain is None):
        return
    verb = Said("try", "试用") if situation.knee_workers is None else Said("use", "用")
    why = Said(f"{verb.en} {plural(wanted, 'worker')}", f"{verb.zh} {wanted} 个 worker")
    if gain is not None and rates is not None:
        before, after = rate(rates[0]), rate(rates[1])
        why = Said(f"{why.en}: the search found {before} -> {after} samples/s", f"{why.zh}：搜索测得 {before} → {after} 样本/秒")
    yield Remedy("workers", why, f"--num-workers {wanted}", gain)


def storage(found: Attribution, situation: Situation) -> Iterator[Remedy]:
    yield from _shards(situation)
    yield from _sequential(situation)
    yield from _predownload(situation)
    yield from _kept(found, situation) if situation.is_remote else _cache(found, situation)
    disk = found.fact("disk")
    is_full = disk is not None and (disk.values.get("share") or 0.0) >= _FULL_DISK
    if not is_full:
        yield from workers(found, situation)
    elif not situation.is_remote:
        said = Said("put the data on a faster disk: this one gives no more", "把数据放到更快的盘上：这块盘已到上限")
        yield Remedy("disk", said)


def _shards(situation: Situation) -> Iterator[Remedy]:
    """Not for shards, nor where they were measured and did not help."""
    if not situation.is_small or (situation.shards_over_this is not None and situation.shards_over_this[1] <= LITTLE_GAIN):
        return
    if situation.shards_over_this is None:
        tokens = _token_options(situation) if situation.tokenizes else ""
        place = f"{situation.layout.uri.rstrip('/')}-shards" if situation.is_remote else "shards/"
        command = f"shardtools pack {situation.layout.uri} {place} --to {'mds' if tokens else 'wds'}{tokens}"
        yield Remedy("shards", Said("pack into shards", "打包成分片"), command)
        return
    low, high = situation.shards_over_this
    said = Said(f"use the shards, {low:.1f} to {high:.1f} times as fast here", f"使用分片（本机实测 {low:.1f}–{high:.1f} 倍）")
    if low <= 1 + NO_DIFFERENCE:
        said = Said("use the shards, if more blocks show that they gain here", "使用分片（本机收益尚不确定，请加大 --blocks 确认）")
    batch_size, uri = situation.workload.batch_size, situation.shards_uri or "shards/"
    yield Remedy(
        "shards", said, f"shardtools.loaders.open_dataset({uri!r}, batch_size={batch_size}, shuffle=True, seed=0)", _sure_gain(low)
    )


def _sure_gain(low: float) -> float | None:
    return low if low > 1 + NO_DIFFERENCE else None


def _sequential(situation: Situation) -> Iterator[Remedy]:
    """Random reads inside large files become reads from begin to end, with a buffer that shuffles."""
    kind, reader = situation.layout.kind, situation.layout.reader
    if not situation.workload.shuffle or reader in ("webdataset", "streaming") or kind == "files" or situation.is_remote:
        return
    if kind == "wds":
        said = Said("read shards from begin to end and shuffle in a buffer", "顺序读分片，用缓冲区打乱")
        yield Remedy("sequential", said, "--reader webdataset --shuffle-buffer 10000")
    elif kind == "jsonl":
        yield Remedy("sequential", Said("read lines in order and shuffle once, offline", "按顺序读，离线打乱一次"), "--order sequential")


def _cache(found: Attribution, situation: Situation) -> Iterator[Remedy]:
    """Where memory holds all of it."""
    size, usable = situation.data_bytes, situation.usable_memory_bytes
    if size is None or usable is None or size > _CACHE_SHARE * usable or found.fact("storage_hidden") is not None:
        return
    amounts = f"{format_bytes(size)}", f"{format_bytes(usable)}"
    said = Said(
        f"let the page cache hold the data ({amounts[0]}; {amounts[1]} of memory): only the first epoch is slow",
        f"让页缓存装下全部数据（{amounts[0]}，可用内存 {amounts[1]}），只有第一轮慢",
    )
    yield Remedy("cache", said, "--cache warm")


def _kept(found: Attribution, situation: Situation) -> Iterator[Remedy]:
    """Of a bucket: what was fetched once is not fetched again where the reader keeps it."""
    if situation.is_small or found.fact("storage_hidden") is not None:
        return
    if situation.layout.reader == "webdataset":
        said = Said(
            "read the same shards by shardtools, which fetches ahead and keeps local copies",
            "改用 shardtools 读取同样的分片：提前下载并保留本地副本",
        )
        yield Remedy("reader", said, "--reader shardtools")
        return
    said = Said(
        "keep local copies on a disk that holds all of it: only the first epoch fetches",
        "在放得下全部数据的盘上保留本地副本，只有第一轮需要下载",
    )
    own = situation.layout.reader == "shardtools"
    yield Remedy("kept", said, "LoaderOptions(cache_folder='/local/disk')" if own else "StreamingDataset(remote=..., local='/local/disk')")


def _predownload(situation: Situation) -> Iterator[Remedy]:
    """Of StreamingDataset, which fetches ahead from a remote."""
    if situation.layout.reader != "streaming" or not situation.is_remote:
        return
    wanted = max(32 * situation.workload.batch_size, 2 * (situation.workload.predownload or 0))
    said = Said("let StreamingDataset fetch further ahead", "让 StreamingDataset 提前下载更多样本")
    yield Remedy("predownload", said, f"--predownload {wanted}")


def parse(found: Attribution, situation: Situation) -> Iterator[Remedy]:
    if situation.layout.kind == "jsonl":
        yield from _shards(situation)
    yield from workers(found, situation)
    if situation.layout.reader in ("webdataset", "streaming"):
        said = Said("read the same shards by shardtools, which maps them", "改用 shardtools 读取同样的分片（内存映射）")
        yield Remedy("reader", said, "--reader shardtools")


def decode(found: Attribution, situation: Situation) -> Iterator[Remedy]:
    yield from workers(found, situation)
    if situation.tokenizes:
        source, tokens = situation.layout.uri, _token_options(situation)
        said = Said("tokenize once, offline, into packed shards", "离线分词一次，打包成 token 分片")
        yield Remedy("offline", said, f"shardtools pack {source} tokens/ --to mds{tokens}")
    elif situation.workload.decode == "rgb":
        yield from _images(situation)
    elif ":" in situation.workload.decode:
        yield _own(found, "decode", situation.workload.decode)


def _own(found: Attribution, stage: str, function: str) -> Remedy:
    """A function of the user's: only they know what it does."""
    if _waits(found, stage):
        return Remedy("waiting", Said(f"take what {function} waits for out of the loader", f"把 {function} 等待的操作移出加载器"))
    return Remedy("offline", Said(f"make {function} cheaper, or do its work once, offline", f"优化 {function}，或离线做一次"))


def _waits(found: Attribution, stage: str) -> bool:
    timer = found.fact("timer")
    return timer is not None and timer.values["stage"] == stage and (timer.values.get("blocked_share") or 0.0) >= _IDLE


def _images(situation: Situation) -> Iterator[Remedy]:
    package = (situation.machine.get("pillow") or {}).get("package")
    side = situation.workload.image_side
    said = Said(f"store images once, offline, no larger than training needs ({side} pixels)", f"离线把图像缩到训练所需尺寸（{side} 像素）")
    yield Remedy("offline", said)
    if package == "pillow":
        said = Said("decode with pillow-simd in place of Pillow", "用 pillow-simd 替换 Pillow")
        yield Remedy("decoder", said, 'pip uninstall -y pillow && CC="cc -mavx2" pip install pillow-simd')
    if situation.has_gpu:
        said = Said("decode JPEG on the GPU", "在 GPU 上解码 JPEG")
        yield Remedy("gpu", said, 'torchvision.io.decode_jpeg(data, device="cuda")')


def transform(found: Attribution, situation: Situation) -> Iterator[Remedy]:
    yield from workers(found, situation)
    own = situation.workload.transform
    what = (
        Said("the part of the transform that is the same in every epoch", "变换中每轮都相同的部分")
        if own is None
        else Said(f"the part of {own} that is the same in every epoch", f" {own} 中每轮都相同的部分")
    )
    yield Remedy("offline", Said(f"precompute once, offline, {what.en}", f"把{what.zh}离线做一次"))
    if situation.has_gpu:
        said = Said("transform whole batches on the GPU, after the copy", "把变换搬到 GPU 上按批做")
        yield Remedy("gpu", said, "batch = torchvision.transforms.v2.Compose([...])(batch.to('cuda', non_blocking=True))")


def collate(found: Attribution, situation: Situation) -> Iterator[Remedy]:
    yield from workers(found, situation)
    own, tensors = situation.workload.collate, situation.batch.get("tensors")
    if own is not None and (tensors == 1 or _waits(found, "collate")):
        yield _own(found, "collate", own)
    elif own is not None:
        said = Said(f"let {own} fill one contiguous tensor a field", f"让 {own} 每个字段只填一个连续张量")
        yield Remedy("contiguous", said, "torch.stack(samples, out=torch.empty(shape, dtype=dtype))")
    if situation.workload.decode in ("none", "text"):
        said = Said("decode to tensors of one shape, which stack without joining bytes", "解码成同形状张量，直接堆叠")
        yield Remedy("decode", said)
    yield from _fewer_tensors(situation)


def transfer(_found: Attribution, situation: Situation) -> Iterator[Remedy]:
    yield from _fewer_tensors(situation)
    if situation.has_own_values:  # ours are uint8 or token ids
        said = Said("send small types (uint8, not float32) and convert after the copy", "传小类型（uint8 而非 float32），拷贝之后再转换")
        yield Remedy("smaller", said, "batch = batch.float()  # in the training step, of uint8")
    if situation.consumer.device == "cuda" and not situation.settings.pin_memory:
        said = Said("unpack batches in the pinning thread, beside the training loop", "让 pin 线程接收批次，不占训练循环")
        yield Remedy("pin", said, "--pin-memory")


def _fewer_tensors(situation: Situation) -> Iterator[Remedy]:
    tensors = situation.batch.get("tensors")
    if tensors is None or tensors <= _MANY_TENSORS:
        return
    said = Said(
        f"collate into few contiguous tensors: a batch has {tensors:,}, and each is sent by itself",
        f"把每批的 {tensors:,} 个张量合并成少数几个连续张量（每个张量都要单独传输）",
    )
    yield Remedy("fewer_tensors", said, "{'values': torch.cat(values), 'lengths': torch.tensor(lengths)}")


def _token_options(situation: Situation) -> str:
    rows = "" if situation.workload.seq_len is None else f" --seq-len {situation.workload.seq_len}"
    return f" --tokenizer {os.fspath(situation.workload.tokenizer or 'tokenizer.json')}{rows}"

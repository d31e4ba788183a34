"""Remedies for what lies around the loader: the copy, shared memory, descriptors, and two that hold each other up."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from shardtools.bench.attribution import LATE, Attribution
from shardtools.bench.prediction import Batch, Limits, Probe, exceeded, predict
from shardtools.bench.report.verdict_words._of_loader import transfer
from shardtools.bench.report.verdict_words._remedy import Remedy
from shardtools.bench.report.verdict_words._said import Said
from shardtools.bench.report.verdict_words.situation import Situation
from shardtools.bench.shm_size import ShmSize
from shardtools.bench.spec import Settings
from shardtools.units import plural


def h2d_copy(found: Attribution, situation: Situation) -> Iterator[Remedy]:
    fact = found.fact("copy")
    pinned, leaves = (fact.values.get("pinned"), fact.values.get("leaves")) if fact else (None, None)
    if not situation.settings.pin_memory:
        yield Remedy("pin", Said("pin the batches", "开启锁页内存"), "--pin-memory")
    elif pinned is not None and leaves and pinned < leaves:
        said = Said(
            f"make all tensors pinnable: {leaves - pinned} of {leaves} are not, for a custom type needs pin_memory()",
            f"让全部张量都能锁页：{leaves} 个中有 {leaves - pinned} 个没有，自定义类型要实现 pin_memory()",
        )
        yield Remedy("pin", said)
    if situation.consumer.copy == "blocking":
        yield Remedy("non_blocking", Said("copy without waiting", "使用非阻塞拷贝"), "--copy async")
    if situation.consumer.copy != "prefetch-stream":
        said = Said("copy the next batch on a stream of its own while this one computes", "用独立的 stream 提前拷贝下一批")
        yield Remedy("prefetch", said, "--copy prefetch-stream")
    yield from (remedy for remedy in transfer(found, situation) if remedy.name in ("fewer_tensors", "smaller"))


def shared_memory(found: Attribution, situation: Situation) -> Iterator[Remedy]:
    settings, cap = situation.settings, found.fact("capped")
    size = _shm_size(situation, None if cap is None else cap.values["wanted_bytes"])
    if size is not None:
        yield Remedy("shm_size", Said(f"give /dev/shm {size}", f"把 /dev/shm 加到 {size}"), f"docker run --shm-size={size.docker}")
        where = Said("in Kubernetes, mount it from memory", "Kubernetes 中用内存卷挂载")
        yield Remedy("empty_dir", where, f"emptyDir: {{medium: Memory, sizeLimit: {size.kubernetes}}}")
    if cap is not None:
        yield from _room(cap.values, situation)
        return
    yield from _shorter_queue(situation)
    fewer_workers = _halved(settings.num_workers, lambda count: _has_room(situation, replace(settings, num_workers=count)))
    if fewer_workers is not None:
        yield Remedy("fewer_workers", Said("use fewer workers", "减少 worker 数"), f"--num-workers {fewer_workers}")
    elif settings.num_workers > 0:
        said = Said("read in the main process, which takes no shared memory", "在主进程内读取，不占共享内存")
        yield Remedy("fewer_workers", said, "--num-workers 0")
    yield from _smaller_batches(situation, settings)


def _shorter_queue(situation: Situation) -> Iterator[Remedy]:
    settings = situation.settings
    fewer = _halved(settings.prefetch_factor, lambda count: _has_room(situation, replace(settings, prefetch_factor=count)))
    if fewer is not None:
        yield Remedy("prefetch_factor", Said("read fewer batches ahead", "减少预取批数"), f"--prefetch-factor {fewer}")


def _halved(now: int, has_room: Callable[[int], bool]) -> int | None:
    """The first of half, a quarter and so on down to 1 for which there is room; None where there is none, or nothing to halve."""
    while now > 1:
        now //= 2
        if has_room(now):
            return now
    return None


def _has_room(situation: Situation, settings: Settings, batch_size: int | None = None) -> bool:
    """By the rule that refuses trials, so that what is advised is not refused in its turn. What is not known refuses nothing."""
    samples, machine = situation.workload.batch_size, situation.machine
    shm_bytes = situation.batch.get("shm_bytes", 0) * (samples if batch_size is None else batch_size) // samples
    probe = Probe(Batch(shm_bytes, situation.batch.get("tensors", 0), shm_bytes, 0, samples), None, None, None)
    soft = (machine.get("rlimit_nofile") or {}).get("soft")
    limits = Limits((machine.get("shm") or {}).get("free_bytes"), soft if isinstance(soft, int) else None, None)
    return not exceeded(predict(probe, settings, "blocking"), limits)


def _shm_size(situation: Situation, wanted_bytes: int | None) -> ShmSize | None:
    """For the setting that is wanted, else for the current one, and more than there is. None: what a batch takes is not known."""
    settings, each = situation.settings, situation.batch.get("shm_bytes")
    if wanted_bytes is None:
        if each is None:
            return None
        wanted_bytes = each * (settings.num_workers * settings.prefetch_factor + 2)
    now = (situation.machine.get("shm") or {}).get("size_bytes") or 0
    size = ShmSize.for_bytes(wanted_bytes)
    return ShmSize.for_bytes(now) if size.num_bytes <= now else size  # which was not enough: something else uses it


def _room(values: Mapping[str, Any], situation: Situation) -> Iterator[Remedy]:
    """What makes room for more workers where /dev/shm stays as it is."""
    wanted = values["wanted"]
    asked = replace(situation.settings, num_workers=wanted["num_workers"], prefetch_factor=wanted["prefetch_factor"])
    fewer = _halved(asked.prefetch_factor, lambda count: _has_room(situation, replace(asked, prefetch_factor=count)))
    if fewer is not None and asked.num_workers > values["at"]["num_workers"]:
        said = Said("read fewer batches ahead, which leaves room for more workers", "减少预取批数，为更多 worker 腾出空间")
        yield Remedy("prefetch_factor", said, f"--num-workers {asked.num_workers} --prefetch-factor {fewer}")
    yield from _smaller_batches(situation, asked)


def _smaller_batches(situation: Situation, settings: Settings) -> Iterator[Remedy]:
    smaller = _halved(situation.workload.batch_size, lambda count: _has_room(situation, settings, count))
    if smaller is not None:
        yield Remedy("batch_size", Said("make batches smaller", "减小批大小"), f"--batch-size {smaller}")


def fd_limit(found: Attribution, situation: Situation) -> Iterator[Remedy]:
    settings, fact = situation.settings, found.fact("descriptors")
    tensors = situation.batch.get("tensors") or (fact.values.get("tensors") if fact else None)
    yield from (remedy for remedy in transfer(found, situation) if remedy.name == "fewer_tensors")
    limit = fact.values.get("limit") if fact else None
    needed = 2048 if tensors is None else 2 * tensors * (settings.num_workers * settings.prefetch_factor + 2)
    wanted = 1 << (max(needed, limit or 0, 1024)).bit_length()
    yield Remedy("descriptors", Said("allow more open files", "调高文件描述符上限"), f"ulimit -n {wanted}")
    yield from _shorter_queue(situation)
    said = Said("share tensors by files, which hold no descriptors", "改用不占描述符的文件共享方式")
    yield Remedy("file_system", said, "torch.multiprocessing.set_sharing_strategy('file_system')")


def contention(found: Attribution, situation: Situation) -> Iterator[Remedy]:
    settings, num_cpus, fact = situation.settings, situation.num_cpus, found.fact("contention")
    late = fact.values.get("wait_p99_over_mean") if fact else None
    if late is not None and late > LATE and settings.in_order and settings.num_workers > 1:
        said = Said("take batches as they are ready, if their order may change from run to run", "哪个批次先好先用哪个（顺序会变）")
        yield Remedy("in_order", said, "DataLoader(..., in_order=False)")
    if num_cpus is not None and settings.num_workers >= num_cpus and settings.num_workers > 1:
        fewer = max(1, num_cpus - 1)
        said = Said(
            f"use {plural(fewer, 'worker')}, which leaves the training loop a processor", f"用 {fewer} 个 worker，给训练循环留一个核"
        )
        yield Remedy("fewer_workers", said, f"--num-workers {fewer}")
    if found.fact("throttled") is not None:
        yield Remedy("quota", Said("raise the CPU quota of the container", "提高容器的 CPU 配额"), "docker run --cpus=N")
    said = Said("let libraries use one thread in each worker", "让每个 worker 里的库只用单线程")
    yield Remedy("threads", said, "OMP_NUM_THREADS=1; cv2.setNumThreads(0) in worker_init_fn")

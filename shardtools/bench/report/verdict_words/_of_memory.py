"""Remedies for what lies around the loader: the copy, shared memory, descriptors, and two that hold each other up."""

from collections.abc import Iterator

from shardtools.bench.attribution import Attribution
from shardtools.bench.report.verdict_words._of_loader import transfer
from shardtools.bench.report.verdict_words._remedy import Remedy
from shardtools.bench.report.verdict_words._said import Said
from shardtools.bench.report.verdict_words.situation import Situation
from shardtools.bench.shm_size import ShmSize
from shardtools.units import plural

LATE = 5.0
"""The slowest 1 % of waits over their mean: single batches come late."""


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


def shared_memory(_found: Attribution, situation: Situation) -> Iterator[Remedy]:
    settings, each = situation.settings, situation.batch.get("shm_bytes")
    if each is not None:
        now = (situation.machine.get("shm") or {}).get("size_bytes") or 0
        size = ShmSize.for_bytes(each * (settings.num_workers * settings.prefetch_factor + 2))
        if size.num_bytes <= now:  # which was not enough: something else uses it
            size = ShmSize.for_bytes(now)
        yield Remedy("shm_size", Said(f"give /dev/shm {size}", f"把 /dev/shm 加到 {size}"), f"docker run --shm-size={size.docker}")
        where = Said("in Kubernetes, mount it from memory", "Kubernetes 中用内存卷挂载")
        yield Remedy("empty_dir", where, f"emptyDir: {{medium: Memory, sizeLimit: {size.kubernetes}}}")
    if settings.prefetch_factor > 1:
        said = Said("read fewer batches ahead", "减少预取批数")
        yield Remedy("prefetch_factor", said, f"--prefetch-factor {max(1, settings.prefetch_factor // 2)}")
    if settings.num_workers > 1:
        yield Remedy("fewer_workers", Said("use fewer workers", "减少 worker 数"), f"--num-workers {settings.num_workers // 2}")
    elif settings.num_workers == 1:
        said = Said("read in the main process, which takes no shared memory", "在主进程内读取，不占共享内存")
        yield Remedy("fewer_workers", said, "--num-workers 0")
    if situation.workload.batch_size > 1:
        said = Said("make batches smaller", "减小批大小")
        yield Remedy("batch_size", said, f"--batch-size {situation.workload.batch_size // 2}")


def fd_limit(found: Attribution, situation: Situation) -> Iterator[Remedy]:
    settings, fact = situation.settings, found.fact("descriptors")
    tensors = situation.batch.get("tensors") or (fact.values.get("tensors") if fact else None)
    yield from (remedy for remedy in transfer(found, situation) if remedy.name == "fewer_tensors")
    limit = fact.values.get("limit") if fact else None
    needed = 2048 if tensors is None else 2 * tensors * (settings.num_workers * settings.prefetch_factor + 2)
    wanted = 1 << (max(needed, limit or 0, 1024)).bit_length()
    yield Remedy("descriptors", Said("allow more open files", "调高文件描述符上限"), f"ulimit -n {wanted}")
    if settings.prefetch_factor > 1:
        said = Said("read fewer batches ahead", "减少预取批数")
        yield Remedy("prefetch_factor", said, f"--prefetch-factor {max(1, settings.prefetch_factor // 2)}")
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

"""What the limits of a machine mean for loader workers, each in one sentence with what to do."""

import os
from collections.abc import Collection, Iterator

from shardtools.bench.doctor.finding import Finding
from shardtools.bench.doctor.machine import Machine, TempFolder
from shardtools.bench.doctor.remedies import larger_shm, more_descriptors, of_size
from shardtools.bench.doctor.request import DoctorRequest
from shardtools.bench.processes.folders import LONGEST_FOLDER
from shardtools.units import plural

_DOCKER_SHM_BYTES = 64 * 2**20
_USED_SHARE = 0.5
_FEW_DESCRIPTORS = 1024
_THROTTLED_SHARE = 0.05
_LITTLE_TEMP_BYTES = 2**30
_FEW_PROCESSES = 1024
_FEW_WORKERS, _MANY_A_CPU = 8, 4
"""What is asked about by itself, and workers for each processor beyond which none waits for storage alone."""
_LETTERS = {
    "-v": "address space, which torch and mapped shards take much of",
    "-d": "data, which torch takes much of",
    "-f": "the size of a file, which shards may exceed",
}


def machine_findings(machine: Machine, broken: Collection[str] = ()) -> Iterator[Finding]:
    """Limits and their state. Of those in ``broken`` (``shm``, ``fds``) the table has said already how much is needed."""
    yield from _shared_memory(machine, "shm" in broken)
    if "fds" not in broken:
        yield from _descriptors(machine)
    yield from _processors(machine)
    yield from _memory(machine)
    yield from _ulimits(machine)
    yield from _start_method(machine)
    yield from _temp(machine.temp, machine.encoding)


def _shared_memory(machine: Machine, is_told: bool) -> Iterator[Finding]:
    shm = machine.shm
    if shm is None or shm.size_bytes == 0:
        remedy = larger_shm(2**30, machine.is_container)
        yield Finding("fault", "shm", f"There is no /dev/shm, through which workers send batches: {remedy}, or use num_workers=0.")
        return
    if shm.size_bytes <= _DOCKER_SHM_BYTES and not is_told:
        remedy = larger_shm(2**30, machine.is_container)
        yield Finding("warning", "shm", f"/dev/shm has {of_size(shm.size_bytes)}, room for few batches: {remedy}.")
    if shm.used_share > _USED_SHARE:
        yield Finding(
            "warning",
            "shm",
            f"/dev/shm is {100 * shm.used_share:.0f} % full ({of_size(shm.used_bytes)} of {of_size(shm.size_bytes)}): see what "
            "`ls -l /dev/shm` shows and no process needs, and end loaders that still run.",
        )
    limit = machine.memory_limit
    if limit is not None and shm.size_bytes > limit.limit_bytes:
        yield Finding(
            "note",
            "shm",
            f"/dev/shm may grow to {of_size(shm.size_bytes)}, but its pages count in the control group's {of_size(limit.limit_bytes)}: "
            "there the kernel kills a process before /dev/shm is full, so raise the memory limit where batches need it.",
        )


def _descriptors(machine: Machine) -> Iterator[Finding]:
    soft, hard = machine.descriptors
    if soft is not None and soft < _FEW_DESCRIPTORS:
        remedy = more_descriptors(_FEW_DESCRIPTORS // 2, hard, machine.is_container)
        yield Finding("warning", "fds", f"A process may open {soft:,} files, and each tensor on its way takes one: {remedy}.")


def _processors(machine: Machine) -> Iterator[Finding]:
    quota, allowed, effective = machine.quota_cpus, machine.num_allowed_cpus, machine.cpus_effective
    if quota is not None and quota < allowed:
        yield Finding(
            "note",
            "cpu",
            f"The control group pays for {quota:g} of {allowed} processors, which torch's warning about workers does not know: use "
            f"num_workers={effective} or fewer, or raise `docker run --cpus`.",
        )
    if machine.num_cpus is not None and allowed < machine.num_cpus:
        level, why = ("warning", "a library may have set it, such as by OMP_PROC_BIND; ") if allowed == 1 else ("note", "")
        yield Finding(
            level,  # type: ignore[arg-type]
            "cpu",
            f"Processes started here may use {allowed} of {machine.num_cpus} processors (affinity): {why}"
            f"use num_workers={allowed} or fewer, or `taskset -c 0-{machine.num_cpus - 1}`.",
        )
    if machine.throttled_share is not None and machine.throttled_share > _THROTTLED_SHARE:
        yield Finding(
            "warning",
            "cpu",
            f"The control group was held back in {100 * machine.throttled_share:.0f} % of its periods: use fewer workers and threads, or "
            "raise `docker run --cpus`.",
        )
    if machine.governor is not None and "powersave" in machine.governor:
        yield Finding("note", "cpu", "The governor is powersave, slow to raise the clock: `sudo cpupower frequency-set -g performance`.")


def crowding(machine: Machine, request: DoctorRequest) -> Iterator[Finding]:
    """Workers that can but wait for each other's processors."""
    most, cpus = max(request.num_workers), machine.cpus_effective
    if most * request.num_ranks > max(_FEW_WORKERS, _MANY_A_CPU * cpus):
        each = max(1, cpus // request.num_ranks)
        who = f"{request.num_ranks} ranks of {most} workers" if request.num_ranks > 1 else f"{most} workers"
        yield Finding(
            "warning",
            "cpu",
            f"{who} share {plural(cpus, 'usable processor')}, and workers that decode wait for each other: begin "
            f"with num_workers={each}, and take more only as far as `shardtools bench --matrix` finds them faster.",
        )


def _memory(machine: Machine) -> Iterator[Finding]:
    limit = machine.memory_limit
    if limit is None:
        return
    left = limit.limit_bytes - limit.used_bytes
    if left < 0.3 * limit.limit_bytes:
        yield Finding(
            "warning",
            "memory",
            f"The control group has {of_size(max(0, left))} of its {of_size(limit.limit_bytes)} left, and workers that exceed it are "
            "killed: end what else runs in it, or raise `docker run --memory`.",
        )


def _ulimits(machine: Machine) -> Iterator[Finding]:
    for letter, what in _LETTERS.items():
        soft, hard = machine.ulimits.get(letter, (None, None))
        if soft is not None:
            remedy = f"`ulimit {letter} unlimited`" if hard is None else f"raise the hard limit, then `ulimit {letter} unlimited`"
            yield Finding("warning", "ulimit", f"ulimit {letter} is {of_size(soft)}, a limit on {what}: {remedy}.")
    counts = [count for count in (machine.ulimits.get("-u", (None,))[0], machine.most_processes) if count is not None]
    if counts and min(counts) < _FEW_PROCESSES:
        yield Finding(
            "warning",
            "ulimit",
            f"At most {min(counts):,} processes and threads may run, and each worker brings several: `ulimit -u 4096`, or "
            "`docker run --pids-limit=4096`.",
        )


def _start_method(machine: Machine) -> Iterator[Finding]:
    if machine.start_method == "fork":
        yield Finding(
            "note",
            "start method",
            "Workers start by fork; from Python 3.14 on by forkserver, where each imports torch anew and the dataset must be picklable: "
            'settle it with multiprocessing_context="fork" or "forkserver".',
        )
        return
    why = "since Python 3.14" if machine.python >= (3, 14) and machine.start_method == "forkserver" else "here"
    yield Finding(
        "note",
        "start method",
        f"Workers start by {machine.start_method} {why}: each imports torch and unpickles the dataset, so keep it small and use "
        "persistent_workers=True.",
    )


def _temp(temp: TempFolder, encoding: str) -> Iterator[Finding]:
    if len(os.fsencode(temp.path)) > LONGEST_FOLDER:
        yield Finding(
            "fault", "temp", f"The folder for temporary files, {temp.path}, has too long a name for workers' sockets: `TMPDIR=/tmp`."
        )
    if temp.is_network:
        yield Finding(
            "warning", "temp", f"Temporary files go to {temp.path} on {temp.fs}, where sockets may fail: set TMPDIR to a local disk."
        )
    if temp.free_bytes is not None and temp.free_bytes < _LITTLE_TEMP_BYTES:
        yield Finding("warning", "temp", f"{temp.path} has {of_size(temp.free_bytes)} left: free some, or set TMPDIR to another disk.")
    if temp.is_memory:
        yield Finding(
            "note", "temp", f"{temp.path} lies in memory ({temp.fs}): caches kept there take memory from workers; set TMPDIR to a disk."
        )
    if encoding.replace("-", "").lower() != "utf8":
        yield Finding("warning", "locale", f"File names are read as {encoding}, which cannot spell all: `export LC_ALL=C.UTF-8`.")

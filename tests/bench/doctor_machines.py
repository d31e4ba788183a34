"""A machine nothing is wrong with, for tests that take something away from it."""

from dataclasses import replace

from shardtools.bench.counters.host import SharedMemory
from shardtools.bench.doctor.machine import Machine, TempFolder

GIB = 2**30
TEMP = TempFolder("/tmp", "ext4", 50 * GIB, False, False)
SOUND = Machine(
    shm=SharedMemory(16 * GIB, 16 * GIB),
    descriptors=(65536, 65536),
    ulimits={"-v": (None, None), "-u": (96000, 96000), "-l": (None, None), "-f": (None, None), "-d": (None, None)},
    num_cpus=8,
    num_allowed_cpus=8,
    cgroup_version=2,
    quota_cpus=None,
    throttled_share=0.0,
    memory_limit=None,
    most_processes=None,
    governor="performance",
    start_method="fork",
    python=(3, 11),
    temp=TEMP,
    encoding="utf-8",
    is_container=False,
)
IN_DOCKER = replace(SOUND, is_container=True)

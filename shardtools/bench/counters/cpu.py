"""What the processors are, and whether their clock is held back.

Source: proc_cpuinfo(5); sysfs-devices-system-cpu of https://docs.kernel.org/admin-guide/abi.html.
"""

import glob

from shardtools.bench.counters.device import Roots
from shardtools.bench.not_measured import Unknown, read_text

_MODEL_NAMES = ("model name", "Hardware", "cpu model", "Model", "cpu")
"""x86, some ARM boards, MIPS, newer ARM boards, POWER."""


def parse_model(text: str) -> str:
    """Raises Unknown where ``/proc/cpuinfo`` names none, as on ARM servers."""
    for name in _MODEL_NAMES:
        for line in text.splitlines():
            found, separator, value = line.partition(":")
            if separator and found.strip() == name and value.strip():
                return value.strip()
    raise Unknown("/proc/cpuinfo names no model")


def governor(roots: Roots) -> str:
    """What chooses the clock: one word, several joined by commas. Raises Unknown where nothing here does, as in virtual machines."""
    found = {read_text(path).strip() for path in glob.glob(f"{roots.sys}/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")}
    if not found:
        raise Unknown("no frequency governor is visible, as in virtual machines")
    return ", ".join(sorted(found))


def num_thermal_events(roots: Roots) -> int:
    """How often since boot any core was slowed because of heat. Raises Unknown where it is not counted: only Intel's are."""
    found = glob.glob(f"{roots.sys}/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count")
    try:
        counts = [int(read_text(path)) for path in found]
    except ValueError:
        raise Unknown("core_throttle_count is not as expected") from None
    if not counts:
        raise Unknown("thermal throttling is not counted on this machine")
    return sum(counts)

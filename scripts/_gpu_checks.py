"""All checks, in the order in which they are made: the quick ones that others rest on first."""

import _gpu_copies
import _gpu_loading
import _gpu_memory
from _gpu_report import Check

CHECKS: dict[str, Check] = {
    "copy-ceilings": _gpu_copies.ceilings,
    "copy-streams": _gpu_copies.streams,
    "copy-overlap": _gpu_copies.overlap,
    "copy-exposed": _gpu_copies.exposed,
    "copy-data": _gpu_copies.data,
    "pinned-rounding": _gpu_memory.rounding,
    "pinned-peaks": _gpu_memory.peaks,
    "custom-batches": _gpu_memory.custom,
    "first-step": _gpu_loading.first,
    "nvml-duty-cycle": _gpu_loading.duty,
    "g-alone": _gpu_loading.independent,
    "h2d-plant": _gpu_copies.plant,
    "fork-after-cuda": _gpu_loading.forked,
    "overhead": _gpu_loading.overhead,
    "launch-delay": _gpu_loading.launch,
}

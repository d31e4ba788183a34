"""The diagnosis in 80 columns, without colour: what is wrong first."""

import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from shardtools.bench.doctor.diagnosis import Diagnosis
from shardtools.bench.doctor.finding import LEVELS
from shardtools.bench.doctor.remedies import of_size
from shardtools.bench.doctor.table import Cell
from shardtools.bench.places import is_remote
from shardtools.bench.prediction import RESOURCES
from shardtools.units import format_bytes, plural

_WIDTH = 80
_BATCHES_ABREAST = 2


def lines(found: Diagnosis) -> Iterator[str]:
    """Findings, what to type next, the table of settings, and the facts in short. Only what is to be copied may be wider than 80."""
    counts = {level: sum(finding.level == level for finding in found.findings) for level in LEVELS}
    told = ", ".join(plural(counts[level], level) for level in LEVELS if counts[level] and level != "ok")
    yield f"shardtools doctor   {told or 'nothing to do'}"
    yield ""
    for finding in found.findings:
        yield from textwrap.wrap(finding.sentence, _WIDTH, initial_indent=f"{finding.level:<9}", subsequent_indent=" " * 9)
    yield ""
    for uri in found.request.uris[:1]:
        yield "To measure what limits a loader of it, and which settings it wants:"
        yield f"    shardtools bench {shlex.quote(uri)} --matrix"
        yield ""
    yield from _table(found)
    yield ""
    yield from _facts(found)


def _table(found: Diagnosis) -> Iterator[str]:
    ranks = f", {found.request.num_ranks} ranks" if found.request.num_ranks > 1 else ""
    yield f"What W workers with P batches each would take at most{ranks}:"
    by_batch = [list(cells) for _, cells in groupby(found.cells, key=lambda cell: cell.named)]
    for begin in range(0, len(by_batch), _BATCHES_ABREAST):
        yield from _abreast(by_batch[begin : begin + _BATCHES_ABREAST])
    limits = found.limits
    fds = "no limit" if limits.fds is None else f"{limits.fds:,}"
    there_is = f"There is: /dev/shm {of_size(limits.shm_free_bytes)}, descriptors {fds}, RAM {of_size(limits.usable_memory_bytes)};"
    safe = "of which 80, 80 and 70 % are safe, and ! is more. Shuffle buffers of readers come on top."
    yield from textwrap.wrap(f"{there_is} {safe}", _WIDTH)


def _abreast(groups: Sequence[Sequence[Cell]]) -> Iterator[str]:
    for cells in groups:
        batch = cells[0].named.batch
        text = f"{cells[0].named.name}: {format_bytes(batch.bytes)} in {plural(batch.tensors, 'tensor')}, {cells[0].named.source}"
        yield from textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ")
    if len(groups) > 1:
        yield (" " * 7 + "".join(f"{cells[0].named.name:^36}" for cells in groups)).rstrip()
    yield f"{'W':>3}{'P':>4}" + f"{'/dev/shm':>11} {'fds':>7} {'RAM':>11} fits" * len(groups)
    for row in zip(*groups, strict=True):
        yield (f"{row[0].num_workers:>3}{row[0].prefetch_factor:>4}" + "".join(map(_cell, row))).rstrip()


def _cell(cell: Cell) -> str:
    """What is too much is marked, each by itself."""
    foreseen, marks = cell.predicted, {name: "!" if name in cell.breaks else " " for name in RESOURCES}
    shm = f"{of_size(foreseen.shm_bound_bytes):>11}{marks['shm']}"
    ram = f"{of_size(foreseen.ram_bytes):>11}{marks['RAM']}"
    return f"{shm}{foreseen.fds:>7,}{marks['fds']}{ram}{'no' if cell.breaks else 'ok':<4}"


def _facts(found: Diagnosis) -> Iterator[str]:
    for name, value in facts(found):
        yield from textwrap.wrap(value, _WIDTH, initial_indent=f"{name:<13}", subsequent_indent=" " * 13)


def facts(found: Diagnosis) -> Iterator[tuple[str, str]]:
    """Name and value of each."""
    machine, environment = found.machine, found.environment
    if machine.shm:
        yield "/dev/shm", f"{of_size(machine.shm.used_bytes)} of {of_size(machine.shm.size_bytes)} used"
    else:
        yield "/dev/shm", "n/a"
    set_ones = [f"{letter} {_limits(values)}" for letter, values in machine.ulimits.items() if values != (None, None)]
    yield "ulimit", " | ".join([f"-n {_limits(machine.descriptors)}", *set_ones, "others unlimited"])
    quota = "no quota" if machine.quota_cpus is None else f"quota {machine.quota_cpus:g}"
    group = "no cgroup seen" if machine.cgroup_version is None else f"cgroup v{machine.cgroup_version}, {quota}"
    yield "processors", f"{machine.num_cpus or 'n/a'}, allowed {machine.num_allowed_cpus}, usable {machine.cpus_effective} | {group}"
    yield "", f"governor {machine.governor or 'n/a'} | {environment['cpu'] or 'n/a'}"
    limit = machine.memory_limit
    within = "no cgroup limit" if limit is None else f"cgroup {of_size(limit.used_bytes)} of {of_size(limit.limit_bytes)} used"
    yield "memory", f"{of_size(found.limits.usable_memory_bytes)} usable of {of_size(environment['mem']['total_bytes'])} | {within}"
    yield "workers", f"start by {machine.start_method} | Python {environment['python']}"
    yield "libraries", _libraries(found)
    gpus = [f"{gpu['name']} (driver {gpu['driver']})" for gpu in environment["gpu"]]
    yield "accelerators", ", ".join(gpus) or f"n/a ({_reason(found, 'gpu')})"
    temp = machine.temp
    yield "temp folder", f"{temp.path} on {temp.fs or 'n/a'}, {of_size(temp.free_bytes)} free | names in {machine.encoding}"
    for entry in environment["storage"]:
        yield "data", _storage(entry)


def _libraries(found: Diagnosis) -> str:
    torch = found.learnt.torch if found.learnt else None
    if torch is None:
        first = f"torch {found.environment['torch'] or 'n/a'}"
    else:
        device = "a CUDA device" if torch["is_cuda_available"] else "no CUDA device"
        first = f"torch {torch['version']} ({device}, imported in {torch['import_s']:.1f} s, shares by {torch['sharing']})"
    pillow = found.environment["pillow"]
    return f"{first} | " + (f"{pillow['package']} {pillow['version']} with {pillow['libjpeg']}" if pillow else "pillow n/a")


def _storage(entry: dict[str, object]) -> str:
    fs, device = entry["fs"], entry["device"]
    if is_remote(str(entry["uri"])):
        return f"{entry['uri']} in an object store"
    words = [f"{entry['uri']} on {fs['type'] if isinstance(fs, dict) else 'n/a'}"]
    if isinstance(device, dict):
        words.append(f"{device['name']} ({', '.join(device['disks'])}), {_kind(device)}")
        words.append(f"read-ahead {'n/a' if device['read_ahead_kb'] is None else device['read_ahead_kb']} kB")
    else:
        words.append("device n/a")
    return " | ".join(words)


def _kind(device: Mapping[str, Any]) -> str:
    """Virtual disks say that they rotate, whatever lies below."""
    if device["virtual"]:
        return "virtual disk"
    kind = {True: "rotating disk", False: "solid state", None: "kind n/a"}[device["rotational"]]
    return kind if device["virtual"] is False else f"{kind}, or virtual"


def _limits(limits: tuple[int | None, int | None]) -> str:
    return "/".join("unlimited" if limit is None else str(limit) for limit in limits)


def _reason(found: Diagnosis, metric: str) -> str:
    return next((entry["reason"] for entry in found.environment["not_measured"] if entry["metric"] == metric), "not known")

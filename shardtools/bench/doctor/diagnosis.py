"""The whole answer of the doctor: findings, the table of settings, what happens now, and the facts they are made of."""

from dataclasses import dataclass
from typing import Any

from shardtools.bench.counters.device import Roots
from shardtools.bench.doctor.batches import NamedBatch, batches_of
from shardtools.bench.doctor.bucket import Bucket, ask, bucket_findings
from shardtools.bench.doctor.data_findings import data_findings
from shardtools.bench.doctor.finding import Finding, worst_first
from shardtools.bench.doctor.live.look import Now, Scope
from shardtools.bench.doctor.machine import Machine, this_machine
from shardtools.bench.doctor.machine_findings import crowding, machine_findings
from shardtools.bench.doctor.package_findings import package_findings
from shardtools.bench.doctor.request import BATCH_SIZE, DoctorRequest
from shardtools.bench.doctor.storage_findings import storage_findings
from shardtools.bench.doctor.table import Cell, ProcessMemory, cells_of, table_findings
from shardtools.bench.doctor.torch_probe import Learnt, learn
from shardtools.bench.environment import ledger
from shardtools.bench.not_measured import NotMeasured, Reasons
from shardtools.bench.places import is_remote
from shardtools.bench.prediction import Limits

SCHEMA = "shardtools.doctor/1"
_NOT_YET = NotMeasured("now", "looks follow, each in a line of its own")


@dataclass(frozen=True)
class Diagnosis:
    """Every None in it has its reason in ``not_measured``, or in that of ``now``."""

    request: DoctorRequest
    environment: dict[str, Any]
    machine: Machine
    learnt: Learnt | None
    limits: Limits
    batches: list[NamedBatch]
    cells: list[Cell]
    buckets: list[Bucket]
    findings: list[Finding]
    not_measured: list[NotMeasured]

    @property
    def scope(self) -> Scope:
        """What is worth watching: the devices under the data, and the process that was named."""
        if not self.request.uris:
            return Scope(None, "", self.request.pid)
        devices = [entry["device"] for entry in self.environment["storage"] if entry["device"] is not None]
        names = dict.fromkeys(name for device in devices for name in (device["name"], *device["disks"]))
        reasons = [entry["reason"] for entry in self.environment["not_measured"] if entry["metric"].startswith("storage.device of ")]
        return Scope(tuple(names), "; ".join(dict.fromkeys(reasons)), self.request.pid)

    def as_json(self, now: Now | None) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "findings": [finding.as_json() for finding in self.findings],
            "batches": [named.as_json() for named in self.batches],
            "limits": {
                "shm_free_bytes": self.limits.shm_free_bytes,
                "fds": self.limits.fds,
                "usable_memory_bytes": self.limits.usable_memory_bytes,
            },
            "table": [cell.as_json() for cell in self.cells],
            "buckets": [bucket.as_json() for bucket in self.buckets],
            "now": None if now is None else now.as_json(),
            "environment": self.environment | {"torch_process": None if self.learnt is None else self.learnt.torch},
            "machine": self.machine.as_json(),
            "not_measured": [missing.as_json() for missing in (*self.not_measured, *([_NOT_YET] if now is None else []))],
        }


def diagnose(request: DoctorRequest, roots: Roots | None = None) -> Diagnosis:
    """Takes a few seconds where torch is installed: a process imports it, and reads the first samples of the data.

    Raises UsageError for what is not there.
    """
    request, roots, reasons = request.checked(), roots or Roots(), Reasons()
    environment = ledger(request.uris, roots=roots)
    machine = this_machine(roots, reasons)
    buckets = [ask(uri) for uri in request.uris if is_remote(uri)]
    silent = {bucket.uri for bucket in buckets if not bucket.read_seconds}
    to_read = [uri for uri in request.uris if uri not in silent] if request.batch_bytes is None else []
    learnt = reasons.attempt("torch_process", lambda: learn(to_read, BATCH_SIZE))
    limits = Limits.here()
    _explain(limits, learnt, reasons)
    batches = batches_of(request, learnt.sides if learnt else [])
    memory = ProcessMemory(learnt.worker_bytes, learnt.main_bytes) if learnt else ProcessMemory(None, None)
    cells = cells_of(request, batches, memory, limits)
    told = {entry["metric"]: entry["reason"] for entry in environment["not_measured"]}
    findings = [
        *table_findings(cells, machine, limits),
        *machine_findings(machine, {name for cell in cells for name in cell.breaks}),
        *crowding(machine, request),
        *(finding for entry in environment["storage"] if not is_remote(entry["uri"]) for finding in storage_findings(entry, told)),
        *(finding for bucket in buckets for finding in bucket_findings(bucket)),
        *package_findings(environment, learnt.torch if learnt else None, reasons.of("torch_process")),
        *data_findings(learnt.sides if learnt else [], request),
    ]
    return Diagnosis(request, environment, machine, learnt, limits, batches, cells, buckets, worst_first(findings), reasons.listed())


def _explain(limits: Limits, learnt: Learnt | None, reasons: Reasons) -> None:
    for name in ("shm_free_bytes", "fds", "usable_memory_bytes"):
        if getattr(limits, name) is None:
            reasons.add(name, "there is no limit, or this system does not tell")
    if learnt is None or learnt.worker_bytes is None or learnt.main_bytes is None:
        reasons.add("ram_bytes", "memory of processes that have torch loaded is not known: batches alone are judged")

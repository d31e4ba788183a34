"""Attributions and what was at hand with them, for the tests of their words: small, literal, one for each class and way to end."""

from dataclasses import replace
from typing import Any

from shardtools.bench.attribution import Attribution, Fact, Gain
from shardtools.bench.report.verdict_words import Situation
from shardtools.bench.spec import Consumer, Layout, Settings, Workload

MACHINE: dict[str, Any] = {
    "cpus_effective": 8,
    "gpu": [],
    "mem": {"usable_bytes": 16 * 2**30},
    "shm": {"size_bytes": 64 * 2**20},
    "pillow": {"package": "pillow", "version": "11.0.0"},
}
WITH_GPU = {**MACHINE, "gpu": [{"name": "some GPU"}]}
CUDA = Consumer("model", device="cuda")
SIM = Consumer("sim", step_ms=16.0)
BATCH = {"bytes": 9_633_792, "tensors": 1, "shm_bytes": 9_633_792, "samples": 64}

PHOTOS = Situation(
    "files by torch",
    Layout("photos/", "files", "torch"),
    Workload(decode="rgb"),
    Settings(num_workers=2, prefetch_factor=2),
    Consumer(),
    MACHINE,
    batch=BATCH,
    data_bytes=40 * 2**30,
)
"""Drained by two workers on 8 cores; more data than memory holds."""
TRAINED = replace(PHOTOS, consumer=CUDA, machine=WITH_GPU)
SHARDS = replace(PHOTOS, name="wds by webdataset", layout=Layout("shards/", "wds", "webdataset"), num_shards=48)
OURS = replace(SHARDS, name="wds by shardtools", layout=Layout("shards/", "wds", "shardtools"))
REMOTE = replace(PHOTOS, name="mds by streaming", layout=Layout("s3://bucket/x", "mds", "streaming"), num_shards=48, data_bytes=None)
TEXT = replace(
    PHOTOS,
    name="jsonl by torch",
    layout=Layout("docs.jsonl", "jsonl", "torch"),
    workload=Workload(decode="tokens", tokenizer="tok.json", seq_len=2048),
)
OWN = replace(PHOTOS, workload=Workload(decode="rgb", transform="my.code:augment", collate="my.code:join"))

LOOP = {"F": 1200.0, "G": 3400.0, "H": 3180.0, "L": 1240.0}
COPY = {"F": 1900.0, "G": 3100.0, "H": 2000.0, "L": 5000.0}
BOTH = {"F": 900.0, "G": 1500.0, "H": 1400.0, "L": 1600.0}
FED = {"F": 970.0, "G": 1000.0, "H": 990.0, "L": 3000.0}
CAPPED: dict[str, Any] = {
    "before": {"num_workers": 2, "prefetch_factor": 2},
    "at": {"num_workers": 4, "prefetch_factor": 2},
    "wanted": {"num_workers": 8, "prefetch_factor": 2},
    "rate": 2000.0,
    "last_gain": 1.5,
    "most_gain": 1.5,
    "is_seen": False,
    "wanted_bytes": 170 * 2**20,
    "free_bytes": 64 * 2**20,
}
"""What a search that shared memory ended came to."""
ALONE: dict[str, float | None] = {"L": 1240.0}

_STAGES = ("storage", "parse", "decode", "transform", "collate", "transfer")


def found(
    verdict: Any,
    facts: dict[str, dict[str, Any]] | None = None,
    confidence: Any = "high",
    rates: dict[str, float] | None = None,
    gain: Gain | None = None,
) -> Attribution:
    listed = tuple(Fact(kind, values) for kind, values in (facts or {}).items())
    stage = verdict if verdict in _STAGES else None
    return Attribution(verdict, stage, confidence, {**(rates or ALONE)}, listed, gain, (), (), 50.0)

"""A report by hand, small and whole: what terminals and pages are tested with. No number in it was measured."""

from typing import Any

SAID = {"en": "told from 12 trials in 50 s", "zh": "依据 12 次测试，用时 50 秒"}
PARAMS = {"num_workers": 4, "prefetch_factor": 2, "pin_memory": False, "persistent_workers": True, "in_order": True}
PREDICTED = {"shm_bytes": 9, "shm_bound_bytes": 10, "fds": 10, "pinned_bound_bytes": 0, "ram_bytes": 100}
PEAKS = {"shm": 46_137_344, "fd": 40, "rss": 2_000_000_000, "pss": 734_003_200, "pinned": None, "gpu_memory": None}
SNIPPET = "loader = DataLoader(\n    dataset,\n    num_workers=4,\n)\n"


def side(name: str, uri: str, kind: str, reader: str, **others: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": name,
        "uri": uri,
        "kind": kind,
        "reader": reader,
        "throughput": 1240.0,
        "least": 1190.0,
        "most": 1290.0,
        "tokens_per_s": None,
        "payload_MBps": 186.6,
        "au": 0.39,
        "wait_share": 0.61,
        "first_batch_s": 1.9,
        "startup": {"iter_s": 0.05, "first_batch_s": 1.85, "epoch2_s": 0.1, "teardown_s": 0.04},
        "read_amplification": 1.1,
        "fetched": None,
        "cpu_util": 1.8,
        "disk_read_MBps": 80.2,
        "peaks": PEAKS,
        "stages": [{"name": "storage", "share": 0.7, "wall_s": 7.0, "cpu_s": 1.0, "blocked_s": 6.0}],
        "order": "random files",
        "overhead": {"share": -0.01, "spread": 0.02, "timers_share": 0.004, "warning": ""},
        "cache_labels": ["cold-data"],
        "is_looped": False,
        "num_failed": 0,
    }
    return found | others


def cell(num_workers: int, prefetch_factor: int, throughput: float | None, **others: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "num_workers": num_workers,
        "prefetch_factor": prefetch_factor,
        "pin_memory": False,
        "persistent_workers": num_workers > 0,
        "status": "ok",
        "message": "",
        "rates": [] if throughput is None else [throughput],
        "throughput": throughput,
        "ci": None,
        "wait_p99_ms": None,
        "predicted": PREDICTED,
        "measured": {"shm": 9, "fd": 40, "rss": 100, "pinned": None},
        "is_computed": False,
    }
    return found | others


REFUSED = {
    "status": "refused",
    "message": "not run: shm 9.4 GiB of 8.0 GiB free in /dev/shm, of which 80% are safe; use fewer workers, or a larger /dev/shm",
}
MATRIX = {
    "kind": "knee",
    "cells": [
        cell(0, 2, 300.0),
        cell(2, 2, 700.0),
        cell(2, 4, 705.0),
        cell(4, 2, 1240.0),
        cell(4, 4, None, **REFUSED),
        cell(8, 2, 1260.0),
        cell(8, 4, None, **REFUSED),
        cell(4, 2, 1200.0, persistent_workers=False, is_computed=True, message="computed: ..."),
    ],
    "knee": 3,
    "best": 5,
    "num_trials": 14,
    "full_grid_trials": 72,
    "stopped": "knee",
}
RECOMMENDATION = {
    "params": PARAMS,
    "predicted": PREDICTED,
    "snippet": SNIPPET,
    "shared_memory": {"docker": "docker run --shm-size=1g ...", "kubernetes": "emptyDir: {medium: Memory, sizeLimit: 1Gi}"},
    "why": [{"en": "num_workers=4: 1,240 samples/s, 98 % of the best.", "zh": "num_workers=4：1,240 样本/秒，为最佳的 98 %。"}],
    "alternatives": [],
    "is_change": True,
    "is_known": True,
}
VERDICT = {
    "side": 0,
    "class": "storage",
    "stage": "storage",
    "confidence": "high",
    "rates": {"F": 1200.0, "G": 3400.0, "H": None, "L": 1240.0},
    "evidence": [SAID],
    "gain": {"ratio": 2.4, "ci": [2.2, 2.6], "then": "decode", "en": "fixing storage alone lifts to 2,880 samples/s", "zh": "只解决存储"},
    "remedies": [
        {"name": "shards", "en": "pack into shards", "zh": "打包成分片", "options": "shardtools pack photos/ shards/ --to wds"},
        {"name": "disk", "en": "put the data on a faster disk", "zh": "把数据放到更快的盘上", "options": None},
    ],
    "sentence_en": "files by torch: storage (reading small files) limits the loader; pack into shards (confidence high).",
    "sentence_zh": "小文件（torch）：当前瓶颈在存储（小文件读取）；建议打包成分片（置信度高）。",
}
COMPARED = {
    "a": "files by torch",
    "b": "wds by webdataset",
    "ratio": 2.31,
    "ci": [2.2, 2.4],
    "p": 0.031,
    "n": 6,
    "is_clear": True,
    "mean_ratio": 2.3,
    "method": "t",
    "outliers": [],
    "sentence": "2.31x as fast (2.20-2.40x), p = 0.031",
    "answer": "wds by webdataset is 2.31x as fast as files by torch (2.20-2.40x), p = 0.031",
    "answer_zh": "WDS 分片（webdataset）更快：吞吐是小文件（torch）的 2.31 倍（95 % 区间 2.20–2.40），p = 0.031",
    "confidence": "normal",
    "doubts": [],
}
ENVIRONMENT = {
    "system": "Linux",
    "kernel": "6.18",
    "cpus_effective": 8,
    "storage": [],
    "gpu": [],
    "start_method": "fork",
    "python": "3.11.9",
    "torch": "2.13.0",
    "pillow": None,
}


def report(**others: Any) -> dict[str, Any]:
    """Keeps the schema; ``not_measured`` is left empty."""
    sides = [
        side("files by torch", "/data/photos/", "files", "torch"),
        side(
            "wds by webdataset", "/data/shards/", "wds", "webdataset", throughput=2870.0, least=2790.0, most=2930.0, au=0.9, wait_share=0.09
        ),
    ]
    workload = {
        "batch_size": 64,
        "layouts": [{name: one[name] for name in ("uri", "kind", "reader")} for one in sides],
        "n_samples": 48_120,
        "id_hash": "0",
        "decode_digest": "0",
        "batch_bytes": 9_633_792,
        "tensors_per_batch": 1,
        "order": "shuffled",
        "orders": ["random files"],
        "shuffle_buffer": 1000,
        "proofs": [],
        "proved": [
            "files by torch and wds by webdataset: the same 48,120 samples, each delivered once; "
            "the 64 with the smallest hashes decode to the same"
        ],
    }
    cache = {"wanted": "cold-data", "labels": ["cold-data"], "labels_of_windows": ["cold-data"], "resident_before": 0.0}
    found: dict[str, Any] = {
        "schema": "shardtools.bench/1",
        "shardtools": "0",
        "seconds": 100.0,
        "environment": ENVIRONMENT,
        "workload": workload,
        "settings": {"num_workers": 2, "prefetch_factor": 2},
        "consumer": {"kind": "sim", "device": "cpu"},
        "cache": {**cache, "line": "cold-data, 0.0 % resident", "caveats": []},
        "plan": {"rule": "6 paired blocks, number fixed, order randomised", "seed": 0},
        "noise": {"line": "quiet", "sentences": [], "is_noisy": False},
        "definitions": {},
        "sides": sides,
        "trials": [],
        "comparisons": [COMPARED],
        "ablation": [
            {"side": 0, "stage": "storage", "ratio": 2.4, "ci": [2.2, 2.6], "ci_by": "repeats", "n": 3, "rates": [[1240.0, 2976.0]] * 3}
        ],
        "ceilings": None,
        "verdicts": [VERDICT],
        "verdict": VERDICT,
        "matrix": None,
        "recommendation": None,
        "gates": [],
        "notes": ["both sides: in 1 of 6 trials the data ended after 24 of 50 steps: give more samples, or a smaller --batch-size"],
        "not_measured": [],
    }
    return found | others

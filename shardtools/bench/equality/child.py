"""Reads one side to prove what it delivers, in the process that does nothing else."""

import functools
import hashlib
import json
import multiprocessing
import os
import warnings
from dataclasses import asdict
from operator import xor
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from shardtools.bench.equality._witness import DECODED_OF_PART, DECODED_SAMPLES, RowStreams, Tally, Witness, canonical_key, key_hash
from shardtools.bench.equality.proof import RESULT_NAME, WHOLE_SAMPLES, Proof
from shardtools.bench.equality.token_streams import DocumentStreams
from shardtools.bench.readers._open import open_reader
from shardtools.bench.readers.first import all_keys
from shardtools.bench.readers.prepare import transform_of
from shardtools.bench.readers.recipes import encoding_of, recipe_of
from shardtools.bench.readers.side import Delivery, Side
from shardtools.bench.spec import Layout, Settings, Workload
from shardtools.bench.user_faults import sentence_of
from shardtools.datasets import open_dataset
from shardtools.errors import UsageError

_STALL_SECONDS = 300
_SHOWN = 10


def prove_here(layout: Layout, workload: Workload, settings: Settings) -> Proof:
    """The proof of a side, read by this process and workers of its own. The workload is settled."""
    transform_of(workload)  # a function that is not there is told before anything is read
    count = _known_count(layout, workload)
    num_decoded = DECODED_OF_PART if count is not None and count > WHOLE_SAMPLES else DECODED_SAMPLES
    witness = Witness(layout, workload, num_decoded)
    side = open_reader(layout, workload, Delivery(witness, list, num_workers=settings.num_workers, is_proof=True))
    try:
        return judge(side, layout, workload, settings, num_decoded)
    finally:
        side.close()


def judge(side: Side, layout: Layout, workload: Workload, settings: Settings, num_decoded: int = DECODED_SAMPLES) -> Proof:
    """What a side that delivers ``Seen`` comes to."""
    tally = Tally(num_decoded)
    is_on_the_fly = layout.kind == "jsonl" and workload.decode == "tokens"
    streams: DocumentStreams | RowStreams | None = None
    if workload.decode == "tokens":
        streams = DocumentStreams(workload.seq_len) if is_on_the_fly else RowStreams(layout)
    whole = _read(side, settings, tally, streams)
    smallest = tally.smallest()
    recipe = recipe_of(workload.like) if workload.like is not None else None
    ends = encoding_of(recipe) or {}
    hashes, num_repeated, num_foreign = _ids(tally, layout, workload, whole)
    num_repeated += streams.num_repeated if isinstance(streams, DocumentStreams) else 0
    return Proof(
        layout=layout,
        count=None if is_on_the_fly else len(hashes),
        id_hash=None if is_on_the_fly else id_hash(hashes),
        num_delivered=tally.num_delivered,
        num_repeated=num_repeated,
        repeated=tuple(tally.repeated[:_SHOWN]),
        num_foreign=num_foreign,
        payload_bytes=tally.num_bytes,
        decode_digest=hashlib.sha256(json.dumps(sorted(smallest.items())).encode()).hexdigest() if smallest else None,
        decoded=smallest,
        num_tokens=None if streams is None else tally.num_tokens,
        token_streams=streams.digests() if streams is not None and whole else {},
        has_ends=ends.get("eos_id") is not None or ends.get("bos_id") is not None,
        whole=whole,
        keys=tuple(sorted(tally.keys)) if whole else (),
        fields=tally.fields if whole else {key: tally.fields[key] for key in smallest if key in tally.fields},
    )


def id_hash(hashes: "np.ndarray[Any, np.dtype[np.uint64]]") -> str:
    """Sum and xor of all hashes, which no order changes."""
    total = functools.reduce(lambda sum_, value: (sum_ + value) % 2**64, hashes.tolist(), 0)
    return f"{total:016x}:{functools.reduce(xor, hashes.tolist(), 0):016x}"


def _known_count(layout: Layout, workload: Workload) -> int | None:
    """How many samples a side has, as far as it matters here; None of rows made on the fly."""
    if layout.kind == "jsonl" and workload.decode == "tokens":
        return None
    recorded = open_dataset(layout.uri).num_samples if layout.kind in ("wds", "mds") else None
    return recorded if recorded is not None else sum(1 for _, _ in zip(range(WHOLE_SAMPLES + 1), all_keys(layout, workload), strict=False))


def _read(side: Side, settings: Settings, tally: Tally, streams: DocumentStreams | RowStreams | None) -> bool:
    """Reads one epoch, or its first samples; whether it was all."""
    loader = DataLoader(side.dataset, **side.loader_kwargs, **_kwargs(settings))
    batches = iter(loader)
    try:
        for batch in batches:
            for seen in batch:
                if tally.num_delivered == WHOLE_SAMPLES:
                    return False
                tally.add(seen)
                if isinstance(streams, RowStreams):
                    streams.add(seen)
                elif streams is not None:
                    for part in seen.parts or ():
                        streams.add(part)
        return True
    finally:
        del batches, loader


def _kwargs(settings: Settings) -> dict[str, Any]:
    """With two workers at least: a dataset that takes no note of its worker shows by that."""
    num_workers = max(2, settings.num_workers)
    context = multiprocessing.get_context(settings.start_method) if settings.start_method else None
    return {"num_workers": num_workers, "prefetch_factor": 2, "multiprocessing_context": context, "timeout": _STALL_SECONDS}


def _ids(tally: Tally, layout: Layout, workload: Workload, whole: bool) -> "tuple[np.ndarray[Any, np.dtype[np.uint64]], int, int]":
    """The hash of every sample's key, how many deliveries were repeats, and how many of none of these samples."""
    delivered = np.array([key_hash(key) for key in tally.keys], np.uint64)
    num_repeated = sum(count - 1 for count in tally.keys.values())
    if whole:
        return delivered, num_repeated, 0
    known = np.sort(np.fromiter((key_hash(canonical_key(key)) for key in all_keys(layout, workload)), np.uint64))
    num_stored_twice = int((known[1:] == known[:-1]).sum())
    return known, num_repeated + num_stored_twice, int((~np.isin(delivered, known)).sum())


def _fault(error: BaseException, layout: Layout) -> str:
    """One sentence, whatever a library or a worker raised."""
    said = sentence_of(error)
    if said.startswith("expected "):
        return said
    return f"expected to read {layout.uri} ({layout.name}) once to prove that sides are equal, got {said}; mend what it names"


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """The proof, or why there is none, as plain data."""
    warnings.simplefilter("ignore")
    layout = Layout(**asked["layout"])
    try:
        return asdict(prove_here(layout, Workload(**asked["workload"]), Settings(**asked["settings"])))
    except Exception as error:
        return {"fault": _fault(error, layout), "is_usage": isinstance(error, UsageError)}


def main(folder: str, asked: dict[str, Any]) -> None:
    """In a process that does nothing else; the answer lies in ``folder``."""
    found, path = answer(asked), os.path.join(folder, RESULT_NAME)
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        json.dump(found, file)
    os.replace(f"{path}.part", path)

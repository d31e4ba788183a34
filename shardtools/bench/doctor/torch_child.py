"""The process that imports torch for the doctor: a broken installation, or data that hangs, does not take the doctor with it.

``python -m shardtools.bench.doctor.torch_child FOLDER``. Started by the doctor, never by users. What it is asked is the first line of
standard input, a JSON object; what it learns are lines of FOLDER/answers. When standard input ends the doctor is gone: see ``Lifeline``.
"""

import json
import multiprocessing
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from shardtools.bench.counters.process import parse_private
from shardtools.bench.not_measured import Unknown, read_text
from shardtools.bench.processes.lifeline import Lifeline
from shardtools.bench.spec import Kind, Layout, ReaderName, Settings, Workload
from shardtools.errors import ShardtoolsError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

ANSWERS_NAME = "answers"
"""In the folder of the process."""
_NUM_BATCHES = 3
_WORKER_SECONDS = 30.0


def main(folder: str) -> None:
    """Facts of torch, then the first batches of each URI: what is known by then outlives a process that is ended."""
    asked = json.loads(Lifeline(folder).next_line())
    with open(os.path.join(folder, ANSWERS_NAME), "w", encoding="utf-8", buffering=1) as answers:
        first = {"torch": _torch_facts(), "main_bytes": _private_bytes(), "worker_bytes": _worker_bytes()}
        answers.write(json.dumps(first) + "\n")
        for uri in asked["uris"]:
            answers.write(json.dumps(_side(uri, asked["batch_size"])) + "\n")


def _torch_facts() -> dict[str, Any]:
    began = time.perf_counter()
    import torch

    import_s = time.perf_counter() - began
    is_available, reason = torch.cuda.is_available(), None
    if torch.version.cuda is not None and not is_available:
        try:
            torch.cuda.init()  # type: ignore[no-untyped-call]
        except Exception as error:
            reason = " ".join(str(error).split())
    return {
        "version": str(torch.__version__),
        "cuda_build": torch.version.cuda,
        "is_cuda_available": is_available,
        "cuda_reason": reason,
        "sharing": torch.multiprocessing.get_sharing_strategy(),  # type: ignore[no-untyped-call]
        "num_threads": torch.get_num_threads(),
        "import_s": import_s,
    }


def _private_bytes() -> int | None:
    """What this process shares with nobody. None where the kernel does not tell."""
    try:
        return parse_private(read_text("/proc/self/smaps_rollup"))
    except Unknown:
        return None


def _worker_bytes() -> int | None:
    """The same of a process started as a loader's workers are."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_report, args=(theirs,))
    process.start()
    found: int | None = ours.recv() if ours.poll(_WORKER_SECONDS) else None
    process.join(_WORKER_SECONDS)
    return found


def _report(pipe: "Connection") -> None:
    import torch  # noqa: F401 - a worker that is not forked has to import it

    pipe.send(_private_bytes())


def _side(uri: str, batch_size: int) -> dict[str, Any]:
    found: dict[str, Any] = {"uri": uri, "kind": None, "num_shards": None, "samples": batch_size, "batches": [], "error": None}
    try:
        kind = _kind_of(uri)
        found |= {"kind": kind, "num_shards": _num_shards(uri, kind), "batches": _tensor_bytes(uri, kind, batch_size)}
    except (ShardtoolsError, OSError, ValueError, ImportError) as error:
        found["error"] = " ".join(str(error).split())
    return found


def _num_shards(uri: str, kind: Kind) -> int | None:
    """None where samples are not in shards."""
    from shardtools.datasets import open_dataset

    return len(open_dataset(uri).shards) if kind in ("wds", "mds") else None


def _kind_of(uri: str) -> Kind:
    from shardtools.bench.readers.layouts import kind_of

    return kind_of(uri)


def _tensor_bytes(uri: str, kind: Kind, batch_size: int) -> list[list[int]]:
    """Bytes of each tensor of the first batches. By readers that need no other library."""
    from itertools import islice

    from torch.utils.data import DataLoader

    from shardtools.bench.leaves import leaves
    from shardtools.bench.readers import open_side

    reader: ReaderName = "torch" if kind in ("files", "jsonl") else "shardtools"
    side = open_side(Layout(uri, kind, reader), Workload(batch_size=batch_size, shuffle=False), Settings(num_workers=0))
    try:
        batches = islice(DataLoader(side.dataset, **side.loader_kwargs), _NUM_BATCHES)
        return [[leaf.tensor.numel() * leaf.tensor.element_size() for leaf in leaves(batch)] for batch in batches]
    finally:
        side.close()


if __name__ == "__main__":
    main(sys.argv[1])

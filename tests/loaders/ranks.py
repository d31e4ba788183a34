"""A training job without a model: ranks as processes that read in step and log what they had. ``python ranks.py '{...}'``; see ``Job``."""

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Job:
    """Every rank appends a line per step to ``{log}.{rank}``: its keys, and the state behind them."""

    uris: list[str]
    """Of each rank: nodes have copies of their own."""
    batch: int
    workers: int
    epoch: int
    rendezvous: str
    """A file that is not there yet."""
    log: str
    state: dict[str, Any] | None = None
    in_step: bool = True
    """No rank goes on before all have had the step, as in training."""
    step_seconds: float = 0.0

    def command(self) -> list[str]:
        return [sys.executable, __file__, json.dumps(asdict(self))]


def read(rank: int, job: Job) -> None:
    import torch
    from torch.utils.data import DataLoader

    from shardtools.loaders import LoaderOptions, open_dataset

    torch.distributed.init_process_group("gloo", init_method=f"file://{job.rendezvous}", rank=rank, world_size=len(job.uris))
    dataset = open_dataset(job.uris[rank], batch_size=job.batch, shuffle=True, seed=3, options=LoaderOptions(block_shards=2))
    dataset.set_epoch(job.epoch)
    if job.state is not None:
        dataset.load_state_dict(job.state)
    loader: Any = DataLoader(dataset, job.batch, num_workers=job.workers)
    with open(f"{job.log}.{rank}", "a", encoding="utf-8") as log:
        for step, batch in enumerate(loader):
            log.write(json.dumps({"keys": batch["__key__"], "state": dataset.state_at(step + 1)}) + "\n")
            log.flush()
            if job.in_step:
                torch.distributed.all_reduce(torch.zeros(1))
            time.sleep(job.step_seconds)


def main() -> None:
    """Forks the ranks of a process that has imported torch once: what is imported is not what is tested."""
    import torch.utils.data  # noqa: F401

    import shardtools.loaders  # noqa: F401

    job = Job(**json.loads(sys.argv[1]))
    children = []
    for rank in range(len(job.uris)):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                read(rank, job)
                status = 0
            finally:
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))


if __name__ == "__main__":
    main()

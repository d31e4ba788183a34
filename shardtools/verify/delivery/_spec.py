"""What a rank process is told, and what it tells: small JSON files beside its logs."""

import dataclasses
import json
import os
from dataclasses import dataclass
from typing import Any

EPOCHS = ("0", "1")
"""The full epochs of a run, by the names of their logs."""
STOPPED = "2-stopped"
"""The epoch that ends early with its state kept."""
RESUMED = "2-resumed"
"""The rest of it, by new processes that load the state."""

ABANDONED = 75
"""Exit code of a rank whose peers died while it waited for them."""


@dataclass(frozen=True)
class RunSpec:
    """One start of all ranks of a world."""

    uri: str
    world_size: int
    num_workers: int
    batch_size: int
    num_samples: int
    """Stored in the dataset."""
    reader: str | None
    """``webdataset``, ``streaming`` or ``shardtools``; None with ``factory``."""
    factory: str | None
    id_of: str | None
    id_names: tuple[str, ...]
    """Where ids are looked for without ``id_of``."""
    shards: tuple[str, ...]
    """Paths of the shards, in the order readers walk them."""
    is_mosaic: bool
    """The dataset is MDS."""
    is_unpacked: bool
    """Every MDS shard lies there uncompressed."""
    is_keyless: bool
    folder: str
    """Of this start alone: logs, faults, and whatever readers leave behind."""
    state_folder: str
    """Where the ranks keep and find their states."""
    shared_memory_begin: int
    """First number StreamingDataset may try for names in shared memory."""
    is_resume: bool = False
    split: str | None = None
    """The split that is read; None where the dataset has none."""
    first_shard: int = 0
    """The number of its first shard in the whole dataset."""

    @property
    def path(self) -> str:
        return os.path.join(self.folder, "spec")

    def save(self) -> None:
        _write(self.path, dataclasses.asdict(self))

    @classmethod
    def load(cls, path: str) -> "RunSpec":
        content = _read(path)
        return cls(**{**content, "shards": tuple(content["shards"]), "id_names": tuple(content["id_names"])})

    def log_path(self, rank: int, epoch: str) -> str:
        return os.path.join(self.folder, f"log-{rank}-{epoch}")

    def state_path(self, rank: int) -> str:
        return os.path.join(self.state_folder, f"state-{rank}")

    def words_path(self, rank: int) -> str:
        """What the rank's processes print."""
        return os.path.join(self.folder, f"words-{rank}")

    def report_path(self, rank: int) -> str:
        return os.path.join(self.folder, f"report-{rank}")


@dataclass(frozen=True)
class RankReport:
    """What one rank knows about its reader once it is through, or why it is not."""

    num_workers: int = 0
    """The user's own DataLoader may have another number than was asked for."""
    is_own_loader: bool = False
    """The user brought a DataLoader."""
    drops_last: bool = False
    num_padding: int = 0
    """Repeats of all ranks that the reader's sampler makes on purpose in an epoch."""
    num_dropped: int = 0
    """Samples of all ranks that the reader's sampler leaves out."""
    canonical_nodes: int | None = None
    """Of a StreamingDataset that delivers each of its samples once in an epoch."""
    stateless: str | None = None
    """Why no resume can be tried."""
    num_stopped: int = 0
    """Batches of this rank before the stop."""
    overrun: tuple[str, ...] = ()
    """The epochs, by the names of their logs, in which this rank was stopped since it delivered too much."""
    most_ids: int = 0
    """Above which it is stopped."""
    fault: str | None = None
    """What went wrong, in one line."""
    is_misuse: bool = False
    """The fault is in what the user brought; its line says what was expected and what to do."""

    def save(self, path: str) -> None:
        _write(path, dataclasses.asdict(self))

    @classmethod
    def load(cls, path: str) -> "RankReport | None":
        if not os.path.exists(path):
            return None
        content = _read(path)
        return cls(**{**content, "overrun": tuple(content["overrun"])})


def _write(path: str, content: dict[str, Any]) -> None:
    """Whole or not at all: the other side may look at any time."""
    with open(path + ".part", "w", encoding="ascii") as file:
        json.dump(content, file)
    os.replace(path + ".part", path)


def _read(path: str) -> dict[str, Any]:
    with open(path, encoding="ascii") as file:
        content: dict[str, Any] = json.load(file)
    return content

"""What one side delivers: read once, whole, by its own reader in a fresh process."""

import json
import os
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from shardtools.bench.processes.folders import private_folder
from shardtools.bench.processes.own_process import OwnProcess
from shardtools.bench.readers.shared_memory import free_shared_memory
from shardtools.bench.spec import Layout, Settings, Workload
from shardtools.errors import ShardtoolsError, UsageError
from shardtools.signals import ends_tidily

WHOLE_SAMPLES = 50_000
"""Up to so many samples a side is read whole."""
RESULT_NAME = "proof"
"""In the folder of the process that reads."""


@dataclass(frozen=True)
class Proof:
    """What a side delivered in one epoch, by its own reader and workers."""

    layout: Layout
    count: int | None
    """Samples there are; None of rows that are made on the fly."""
    id_hash: str | None
    """Sum and xor of the 64-bit hashes of all keys, in hex."""
    num_delivered: int
    num_repeated: int
    """Deliveries of a sample beyond its first."""
    repeated: tuple[str, ...]
    """The first few."""
    num_foreign: int
    """Delivered keys that are not among those the data has; 0 where all that was delivered is all there is."""
    payload_bytes: int
    """Of all fields of what was delivered."""
    decode_digest: str | None
    """SHA-256 over the decoded samples with the smallest hashes; None where rows have no keys."""
    decoded: dict[str, str]
    """The same sample by sample, by key."""
    num_tokens: int | None
    """Without padding, of what was delivered; None where there are none."""
    token_streams: dict[str, str]
    """Digests of the tokens by what they are of, each ``runs/tokens/digest``."""
    has_ends: bool
    """Every document of the tokens begins or ends with a token that says so."""
    whole: bool
    """All samples were read. Else keys are those of names and headers, and the rest is of the first ``num_delivered``."""
    keys: tuple[str, ...] = field(default=(), repr=False)
    """Of all samples, where the side was read whole."""
    fields: dict[str, dict[str, int]] = field(default_factory=dict, repr=False)
    """By key, the hash of each field's value by its name; of those that were decoded where the side was not read whole."""

    @property
    def is_on_the_fly(self) -> bool:
        """Rows are made while reading, so that neither their number nor their content need be those of packed rows."""
        return self.count is None

    def as_json(self) -> dict[str, Any]:
        """For the report: without keys."""
        return {name: value for name, value in asdict(self).items() if name not in ("keys", "decoded", "fields")}


def prove(layout: Layout, workload: Workload, settings: Settings, timeout_seconds: float = 600.0) -> Proof:
    """Read one epoch of a side in a fresh process. The workload is settled.

    Raises UsageError where the side cannot be read so, ShardtoolsError where reading fails or takes too long.
    """
    asked = {"layout": asdict(layout), "workload": asdict(workload), "settings": asdict(settings)}
    with ends_tidily(), private_folder() as folder:
        found = _run(folder, asked, timeout_seconds)
    if "fault" in found:
        raise (UsageError if found["is_usage"] else ShardtoolsError)(found["fault"])
    return proof_of(found)


def proof_of(data: dict[str, Any]) -> Proof:
    """The proof ``asdict`` made plain."""
    values = {**data, "layout": Layout(**data["layout"]), "keys": tuple(data["keys"]), "repeated": tuple(data["repeated"])}
    return Proof(**{name.name: values[name.name] for name in fields(Proof)})


def _run(folder: str, asked: dict[str, Any], timeout_seconds: float) -> dict[str, Any]:
    """What the process that reads reports."""
    with OwnProcess("shardtools.bench.equality.process", folder, ("child",)) as process:
        process.tell(json.dumps(asked).encode())
        has_ended = process.wait(timeout_seconds) is not None
    free_shared_memory(process.pid, folder)
    result = os.path.join(folder, RESULT_NAME)
    if not os.path.exists(result):
        why = (
            f"its process ended: {process.last_line or 'it said nothing'}"
            if has_ended
            else f"it took longer than {timeout_seconds:,.0f} seconds"
        )
        raise ShardtoolsError(f"expected to read {asked['layout']['uri']} once to prove that sides are equal, but {why}")
    with open(result, encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found

"""What a partition leaves behind when it is built, and where everything of an unpublished build lies."""

import hashlib
import json
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from shardtools.duplicates import DigestRun
from shardtools.formats import ShardFacts
from shardtools.manifest import BUILD_FOLDER, PRIVATE_FOLDER, Ledger
from shardtools.sample import Reject

PLAN_NAME = f"{BUILD_FOLDER}/plan"
KEPT_PLAN_NAME = f"{PRIVATE_FOLDER}/plan"
"""The plan of the published dataset, so that a later run can say what changed; no part of the dataset."""
REPLACED_NAME = f"{BUILD_FOLDER}/replaced"
"""The manifest of the dataset that is being overwritten, from the moment its files are deleted until they are gone."""
PUBLISHING_NAME = f"{BUILD_FOLDER}/publishing"
"""``staged name TAB final name`` of every shard, one a line, from before the first has its final name."""
FINAL_NAMES_NAME = f"{BUILD_FOLDER}/final-names"
"""The digest of the plan whose workers may give shards their final names at once; none may where it is missing."""
RUNS_FOLDER = f"{BUILD_FOLDER}/runs"
"""An object for each run under way, where unfinished uploads must be told from those of a run that lives."""
_KEPT_HEAD = "latin-1"


@dataclass(frozen=True)
class BuildNames:
    """Where the parts of one plan's build lie.

    The plan is in the path: a worker of another plan, that outlived its run, must not put its shards in the place of these.
    """

    plan_digest: str

    @property
    def folder(self) -> str:
        """Everything that workers write."""
        return f"{BUILD_FOLDER}/{self.plan_digest[:16]}"

    @property
    def receipts(self) -> str:
        """The folder of the receipts."""
        return f"{self.folder}/receipts"

    def receipt(self, partition: int) -> str:
        """A partition's receipt, written last."""
        return f"{self.receipts}/{partition:06d}"

    @property
    def passes(self) -> tuple[str, ...]:
        """The folders of the receipts of all passes."""
        return self.receipts, f"{self.folder}/select", f"{self.folder}/scatter"

    def looked(self, partition: int) -> str:
        """What a look at a partition found, before any of its samples was taken."""
        return f"{self.folder}/select/{partition:06d}"

    def digests(self, partition: int, attempt: str) -> str:
        """The digests of a partition's samples, in their order; written before ``looked``, which names them."""
        return f"{self.folder}/digests/{partition:06d}.{attempt}"

    def scattered(self, partition: int) -> str:
        """A scattered partition's receipt, written behind its spill, which it names."""
        return f"{self.folder}/scatter/{partition:06d}"

    def spill(self, partition: int, attempt: str) -> str:
        """The spill of one attempt at a partition."""
        return f"{self.folder}/spills/{partition:06d}.{attempt}"

    def staged(self, partition: int, k: int) -> str:
        """Shard ``k`` of a partition, the same for every attempt."""
        return f"{self.folder}/staged/{partition:06d}-{k:06d}"

    def temporary(self, partition: int, attempt: str, k: int) -> str:
        """Shard ``k`` while one attempt writes it."""
        return f"{self.folder}/tmp/{partition:06d}.{attempt}.{k:06d}"


@dataclass(frozen=True)
class StagedShard:
    """One shard of a partition; its final number is known when all receipts are there."""

    facts: ShardFacts
    field_sets: dict[str, int]
    version: str = ""
    """As the storage lists it since it was written; empty where that is not known."""
    split: str = ""
    """Which split it belongs to; empty where the dataset has none."""


@dataclass(frozen=True)
class Receipt:
    """One built partition."""

    partition: int
    plan_digest: str
    inputs_digest: str
    shards: tuple[StagedShard, ...] = ()
    ledger: Ledger = field(default_factory=Ledger)
    rejects: tuple[Reject, ...] = ()
    oversize_keys: tuple[str, ...] = ()
    """Samples that got a shard of their own because they alone are above the shard size."""
    keys: DigestRun = field(default_factory=lambda: DigestRun(b""))
    folded_keys: DigestRun = field(default_factory=lambda: DigestRun(b""))
    """Digests of the keys a case-folding file system would change, as it would change them."""

    def serialize(self) -> bytes:
        """A sealed JSON line, then offsets and digests as raw bytes."""
        offsets = b"".join(_little_endian(shard.facts.offsets) for shard in self.shards)
        payload = offsets + self.keys.data + self.folded_keys.data
        head = {
            "partition": self.partition,
            "plan": self.plan_digest,
            "inputs": self.inputs_digest,
            "shards": [_shard_json(shard) for shard in self.shards],
            "ledger": self.ledger.as_json(),
            "rejects": [[*reject[:3], reject.head.decode(_KEPT_HEAD)] for reject in self.rejects],
            "oversize_keys": self.oversize_keys,
            "keys": len(self.keys.data),
        }
        return sealed(head, payload)

    @classmethod
    def parse(cls, data: bytes) -> "Receipt | None":
        """None for anything that is not a whole receipt."""
        opened = unsealed(data)
        if opened is None:
            return None
        head, payload = opened
        shards, begin = [], 0
        for shard in head["shards"]:
            end = begin + 8 * (shard["samples"] + 1)
            shards.append(_shard_from_json(shard, payload[begin:end]))
            begin = end
        return cls(
            head["partition"],
            head["plan"],
            head["inputs"],
            tuple(shards),
            Ledger.from_json(head["ledger"]),
            tuple(Reject(reason, where, text, kept.encode(_KEPT_HEAD)) for reason, where, text, kept in head["rejects"]),
            tuple(head["oversize_keys"]),
            DigestRun(payload[begin : begin + head["keys"]]),
            DigestRun(payload[begin + head["keys"] :]),
        )


def sealed(head: dict[str, Any], payload: bytes) -> bytes:
    """The SHA-256 of all that follows, one line of JSON, the payload."""
    content = json.dumps(head).encode() + b"\n" + payload
    return hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def unsealed(data: bytes) -> tuple[dict[str, Any], bytes] | None:
    """What was sealed; None for anything that is not whole."""
    digest, _, content = data.partition(b"\n")
    if digest != hashlib.sha256(content).hexdigest().encode():
        return None
    line, _, payload = content.partition(b"\n")
    return json.loads(line), payload


def _shard_json(shard: StagedShard) -> dict[str, Any]:
    facts = shard.facts
    return {
        "bytes": facts.num_bytes,
        "sha256": facts.sha256,
        "samples": facts.num_samples,
        "details": facts.details,
        "field_sets": shard.field_sets,
        # Only where there is one: what proves a shard on a disk is its bytes.
        **({"version": shard.version} if shard.version else {}),
        **({"split": shard.split} if shard.split else {}),
    }


def _shard_from_json(data: dict[str, Any], offsets_bytes: bytes) -> StagedShard:
    offsets = array("Q")
    offsets.frombytes(offsets_bytes)
    facts = ShardFacts(data["bytes"], data["sha256"], data["samples"], offsets, data["details"])
    return StagedShard(facts, Counter(data["field_sets"]), data.get("version", ""), data.get("split", ""))


def _little_endian(offsets: "array[int]") -> bytes:
    """As stored; every machine this runs on is little-endian itself."""
    return offsets.tobytes()

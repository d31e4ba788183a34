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
"""``staged name TAB final name`` of every shard, one a line, from before the first is moved."""
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

    def receipt(self, partition: int) -> str:
        """A partition's receipt, written last."""
        return f"{self.folder}/receipts/{partition:06d}"

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


@dataclass(frozen=True)
class Receipt:
    """One built partition."""

    partition: int
    plan_digest: str
    inputs_digest: str
    shards: tuple[StagedShard, ...]
    ledger: Ledger
    rejects: tuple[Reject, ...]
    oversize_keys: tuple[str, ...]
    """Samples that got a shard of their own because they alone are above the shard size."""
    keys: DigestRun
    folded_keys: DigestRun = field(default_factory=lambda: DigestRun(b""))
    """Digests of the keys a case-folding file system would change, as it would change them."""

    def serialize(self) -> bytes:
        """One JSON line, then offsets and digests as raw bytes."""
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
            "payload_sha256": hashlib.sha256(payload).hexdigest(),
        }
        return json.dumps(head).encode() + b"\n" + payload

    @classmethod
    def parse(cls, data: bytes) -> "Receipt | None":
        """None for anything that is not a whole receipt."""
        line, _, payload = data.partition(b"\n")
        try:
            head = json.loads(line)
            if head["payload_sha256"] != hashlib.sha256(payload).hexdigest():
                return None
        except (ValueError, KeyError, TypeError):
            return None
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


def _shard_json(shard: StagedShard) -> dict[str, Any]:
    facts = shard.facts
    return {
        "bytes": facts.num_bytes,
        "sha256": facts.sha256,
        "samples": facts.num_samples,
        "details": facts.details,
        "field_sets": shard.field_sets,
    }


def _shard_from_json(data: dict[str, Any], offsets_bytes: bytes) -> StagedShard:
    offsets = array("Q")
    offsets.frombytes(offsets_bytes)
    facts = ShardFacts(data["bytes"], data["sha256"], data["samples"], offsets, data["details"])
    return StagedShard(facts, Counter(data["field_sets"]))


def _little_endian(offsets: "array[int]") -> bytes:
    """As stored; every machine this runs on is little-endian itself."""
    return offsets.tobytes()

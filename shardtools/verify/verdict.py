"""What a verification came to: findings, and in plain words what was proved and what was not."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from shardtools.units import format_bytes, plural
from shardtools.verify.findings import LEVELS, Finding

SCHEMA = "shardtools.verdict/1"


@dataclass(frozen=True)
class Verdict:
    """The outcome for one dataset."""

    uri: str
    format_name: str
    is_published: bool
    """It has a manifest of this package; without one there is less to compare with."""
    findings: tuple[Finding, ...]
    num_shards: int
    num_samples: int
    """Samples that could be read."""
    num_bytes: int
    """Stored bytes of the shards."""
    unchecked_fields: tuple[str, ...]
    """Fields whose values were not decoded: pickles, and encodings this package does not know."""
    has_keys: bool
    """The dataset stores keys; otherwise there is nothing that could occur twice."""
    seconds: float

    @property
    def is_sound(self) -> bool:
        return not self.findings

    @property
    def exit_code(self) -> int:
        """0 sound, 1 something was found, 3 nothing was found but not everything could be looked at."""
        if any(finding.kind != "could-not-look" for finding in self.findings):
            return 1
        return 3 if self.findings else 0

    def counts(self) -> dict[str, int]:
        """Findings by kind, the most frequent first."""
        return dict(Counter(finding.kind for finding in self.findings).most_common())

    def closing(self) -> str:
        """One paragraph: what has been proved, and what has not."""
        what = f"{plural(self.num_shards, 'shard')}, {plural(self.num_samples, 'sample')}, {format_bytes(self.num_bytes)}"
        if self.findings:
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.counts().items())
            verdict = f"Not sound: {plural(len(self.findings), 'finding')} ({kinds}) in {what}."
            return f"{verdict} Whatever else could be read was looked at and is as it should be. {self._limits()}"
        return f"Sound: {what}. {self._proof()} {self._limits()}"

    def as_json(self) -> dict[str, Any]:
        """A stable schema: keys are only ever added."""
        return {
            "schema": SCHEMA,
            "uri": self.uri,
            "format": self.format_name,
            "published": self.is_published,
            "sound": self.is_sound,
            "shards": self.num_shards,
            "samples": self.num_samples,
            "bytes": self.num_bytes,
            "levels": [{"level": level, "proves": text, "findings": self._num_at(level)} for level, text in LEVELS.items()],
            "findings": [finding.as_json() for finding in self.findings],
            "unchecked_fields": list(self.unchecked_fields),
            "closing": self.closing(),
            "seconds": self.seconds,
        }

    def _num_at(self, level: int) -> int:
        return sum(finding.level == level for finding in self.findings)

    def _proof(self) -> str:
        keys = " No key occurs twice." if self.has_keys else ""
        if not self.is_published:
            named = "Every file that index.json names is there with its size and hashes. " if self.format_name == "mds" else ""
            return f"{named}Every byte of every shard parses.{keys}"
        return (
            "Every file that the manifest names is there with its exact size and SHA-256, and nothing else is. "
            "Every byte of every shard parses and is laid out as this package writes it. "
            f"Counts, field sets and offsets agree, and the ledger closes: every sample read was written, rejected or filtered.{keys}"
        )

    def _limits(self) -> str:
        limits = [
            "that values equal those of the source",
            "that no content occurs twice under two keys",
            "how a reader delivers the samples",
        ]
        if self.format_name == "mds":
            limits.insert(0, "that image pixels decode")
        else:
            limits.insert(0, "that values decode as their extensions say")
        if not self.is_published:
            limits.insert(0, "that no sample is missing, since there is no manifest to compare with")
        if self.unchecked_fields:
            limits.insert(0, f"anything about the values of {', '.join(self.unchecked_fields)}, which are not decoded")
        return f"Not looked at: {'; '.join(limits)}."

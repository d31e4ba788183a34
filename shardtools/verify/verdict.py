"""What a verification came to: findings, and in plain words what was proved and what was not."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardtools.datasets import Dataset
from shardtools.units import format_bytes, plural
from shardtools.verify._shards import ShardReport
from shardtools.verify.findings import LEVELS, Finding
from shardtools.verify.options import VerifyOptions
from shardtools.verify.stored import Proof

SCHEMA = "shardtools.verdict/1"


@dataclass(frozen=True)
class Verdict:
    """The outcome for one dataset."""

    uri: str
    format_name: str
    is_published: bool
    """It has a manifest of this package; without one there is less to compare with."""
    is_indexed: bool
    """Every shard is named by an ``index.json``."""
    is_canonical: bool
    """The manifest says that this package wrote the shards, which are then demanded to be as it writes them."""
    findings: tuple[Finding, ...]
    """What is not as it should be."""
    notes: tuple[Finding, ...]
    """What is worth knowing and no fault; empty where the options are strict, which makes them findings."""
    options: VerifyOptions
    proofs: tuple[Proof, ...]
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

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        reports: Sequence[ShardReport],
        found: Sequence[Finding],
        options: VerifyOptions,
        proofs: Sequence[Proof] = (),
        seconds: float = 0.0,
    ) -> "Verdict":
        """What the parts of a verification come to."""
        return cls(
            uri=dataset.uri,
            format_name=dataset.format_name,
            is_published=dataset.manifest is not None,
            is_indexed=bool(dataset.shards) and all(shard.entry is not None for shard in dataset.shards),
            is_canonical=dataset.manifest is not None and dataset.manifest.is_canonical,
            findings=tuple(finding for finding in found if options.strict or not finding.is_note),
            notes=tuple(finding for finding in found if not options.strict and finding.is_note),
            options=options,
            proofs=tuple(proofs),
            num_shards=len(dataset.shards),
            num_samples=sum(report.num_samples for report in reports),
            num_bytes=sum(dataset.storage.num_bytes(shard.name) or 0 for shard in dataset.shards),
            unchecked_fields=tuple(sorted({name for report in reports for name in report.unchecked})),
            has_keys=not any(shard.is_keyless for shard in dataset.shards),
            seconds=seconds,
        )

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
        noted = f" {plural(len(self.notes), 'note')}." if self.notes else ""
        if self.findings:
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.counts().items())
            verdict = f"Not sound: {plural(len(self.findings), 'finding')} ({kinds}) in {what}.{noted}"
            return " ".join([verdict, "Whatever else could be read was looked at and is as it should be.", *self._proved(), self._limits()])
        return f"Sound: {what}.{noted} {' '.join([self._proof(), *self._proved()])} {self._limits()}"

    def as_json(self) -> dict[str, Any]:
        """A stable schema: keys are only ever added."""
        return {
            "schema": SCHEMA,
            "uri": self.uri,
            "format": self.format_name,
            "published": self.is_published,
            "sound": self.is_sound,
            "strict": self.options.strict,
            "shards": self.num_shards,
            "samples": self.num_samples,
            "bytes": self.num_bytes,
            "levels": [self._level_json(level) for level in LEVELS],
            "findings": [finding.as_json() for finding in self.findings],
            "notes": [note.as_json() for note in self.notes],
            "unchecked_fields": list(self.unchecked_fields),
            "proved": self._proved(),
            "closing": self.closing(),
            "seconds": self.seconds,
        }

    def _level_json(self, level: int) -> dict[str, Any]:
        return {
            "level": level,
            "proves": LEVELS[level],
            "looked_at": level in self.options.levels,
            "findings": sum(finding.level == level for finding in self.findings),
            "notes": sum(note.level == level for note in self.notes),
        }

    def _proved(self) -> list[str]:
        return [sentence for proof in self.proofs for sentence in proof.proved]

    def _proof(self) -> str:
        keys = " No key occurs twice." if self.has_keys else ""
        if self.options.no_dup and not any(note.kind == "duplicate-content" for note in self.notes):
            keys += " No content occurs under two keys."
        if self.options.deep:
            keys += " Every value decodes."
        if not self.is_published:
            named = "Every file that index.json names is there with its size and hashes. " if self.is_indexed else ""
            return f"{named}Every byte of every shard parses.{keys}"
        return (
            "Every file that the manifest names is there with its exact size and SHA-256, and nothing else is. "
            f"Every byte of every shard parses{' and is laid out as this package writes it' if self.is_canonical else ''}. "
            f"Counts, field sets and offsets agree, and the ledger closes: every sample read was written, rejected or filtered.{keys}"
        )

    def _limits(self) -> str:
        levels = self.options.levels
        limits = []
        if self.unchecked_fields:
            limits.append(f"anything about the values of {', '.join(self.unchecked_fields)}, which are not decoded")
        if not self.is_published:
            limits.append("that no sample is missing, since there is no manifest to compare with")
        if not self.options.deep:
            what = "that image pixels decode" if self.format_name == "mds" else "that values decode as their extensions say"
            limits.append(f"{what} (--deep)")
        if 6 not in levels:
            limits.append("that values equal those of the source (--against SRC)")
        if 4 not in levels:
            limits.append("that no content occurs under two keys (--no-dup)")
        if 5 not in levels:
            limits.append("how a reader delivers the samples (--no-dup, --live)")
        limits += [end for proof in self.proofs for end in proof.not_proved]
        return f"Not looked at: {'; '.join(limits)}." if limits else ""

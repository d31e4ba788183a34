"""What a verification came to: findings, and in plain words what was proved and what was not."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shardtools.datasets import Dataset, IndexedFile, Shard
from shardtools.units import format_bytes, plural
from shardtools.verify._shards import ShardReport
from shardtools.verify.findings import LEVELS, Finding
from shardtools.verify.options import VerifyOptions
from shardtools.verify.stored import Proof

SCHEMA = "shardtools.verdict/1"
_IMAGES = {"jpeg", "jpg", "png"}


@dataclass(frozen=True)
class Verdict:
    """The outcome for one dataset."""

    uri: str
    format_name: str
    is_published: bool
    """It has a manifest of this package; without one there is less to compare with."""
    is_indexed: bool
    """Every shard is named by an ``index.json``."""
    has_digests: bool
    """Manifest or index record digests of the shards."""
    is_rebuilt: bool
    """The manifest was made from the shards that were there, and cannot know what was lost before."""
    has_tokens: bool
    """Samples are rows of tokens that packing made, by a recipe that the manifest holds."""
    stored_noun: str
    """What people call a sample of it."""
    read_noun: str
    """What people call a sample of what was read."""
    has_images: bool
    """Some field holds images, or it is not known what fields hold."""
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
            has_digests=dataset.manifest is not None or any(file.hashes for shard in dataset.shards for file in _files(shard)),
            is_rebuilt=dataset.manifest is not None and dataset.manifest.recipe["source"].get("name") == "index",
            has_tokens=dataset.manifest is not None and bool(dataset.manifest.transforms),
            stored_noun="sample" if dataset.manifest is None else dataset.manifest.ledger.stored_noun,
            read_noun="sample" if dataset.manifest is None else dataset.manifest.ledger.read_noun,
            has_images=_may_hold_images(dataset),
            is_canonical=dataset.manifest is not None and dataset.manifest.is_canonical,
            findings=tuple(finding for finding in _sorted(found, dataset) if options.strict or not finding.is_note),
            notes=tuple(finding for finding in _sorted(found, dataset) if not options.strict and finding.is_note),
            options=options,
            proofs=tuple(proofs),
            num_shards=len(dataset.shards),
            num_samples=sum(report.num_samples for report in reports),
            num_bytes=sum(report.num_bytes for report in reports),
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
        """How many findings of each kind there are, listed or not; the most frequent first."""
        counts: Counter[str] = Counter()
        for finding in self.findings:
            counts[finding.kind] += finding.num
        return dict(counts.most_common())

    def closing(self) -> str:
        """What has been proved, and what has not, as one paragraph."""
        return " ".join(self.paragraphs())

    def paragraphs(self) -> list[str]:
        """The outcome, what has been proved, and what was not looked at."""
        return [text for text in (self._outcome(), " ".join(self.proved()), self._limits()) if text]

    def _outcome(self) -> str:
        what = f"{plural(self.num_shards, 'shard')}, {plural(self.num_samples, self.stored_noun)}, {format_bytes(self.num_bytes)}"
        noted = f" {plural(len(self.notes), 'note')}." if self.notes else ""
        num_repeats = sum(note.num for note in self.notes if note.kind == "duplicate-content")
        if num_repeats:
            noted += f" {plural(num_repeats, self.stored_noun)} with the content of another."
        if not self.findings:
            return f"Sound: {what}.{noted}"
        counts = self.counts()
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
        began = "Not sound" if self.exit_code == 1 else "Not everything could be looked at, and nothing else was found"
        found = plural(sum(counts.values()), "finding")
        return f"{began}: {found} ({kinds}) in {what} that could be read.{noted} What could be read besides is as it should be."

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
            "counts": self.counts(),
            "proved": self.proved(),
            "closing": self.closing(),
            "seconds": self.seconds,
        }

    def _level_json(self, level: int) -> dict[str, Any]:
        return {
            "level": level,
            "proves": LEVELS[level],
            "looked_at": level in self._levels(),
            "findings": sum(finding.num for finding in self.findings if finding.level == level),
            "notes": sum(note.num for note in self.notes if note.level == level),
        }

    def _levels(self) -> frozenset[int]:
        """The levels that were looked at: without a description there is nothing to compare with."""
        missing = {1} if not (self.is_published or self.is_indexed) else set()
        return self.options.levels - missing - (set() if self.has_digests else {2})

    def proved(self) -> list[str]:
        """Complete sentences; none where anything was found."""
        if self.findings:
            return []
        sentences = []
        if self.is_published:
            sentences.append("Every file that the manifest names is there with its exact size and SHA-256, and nothing else is.")
        elif self.is_indexed:
            sentences.append(f"Every file that index.json names is there with its size{' and hashes' if self.has_digests else ''}.")
        laid_out = " and is laid out as this package writes it" if self.is_canonical else ""
        sentences.append(f"Every byte of every shard parses{laid_out}.")
        if self.is_published:
            fates = "written, rejected or filtered" if self.read_noun == "sample" else "packed, rejected or left out"
            closes = f", and the ledger closes: every {self.read_noun} read was {fates}" if not self.is_rebuilt else ""
            sentences.append(f"Counts, field sets and offsets agree{closes}.")
        if self.has_tokens:
            sentences.append("Rows, pieces, tokens and padding, counted again, come to what the ledger says.")
        if self.has_keys:
            sentences.append("No key occurs twice.")
        if self.options.no_dup and not any(note.kind == "duplicate-content" for note in self.notes):
            sentences.append("No content occurs under two keys.")
        if self.options.deep:
            sentences.append("Every value decodes.")
        return sentences + [sentence for proof in self.proofs for sentence in proof.proved]

    def _limits(self) -> str:
        levels = self.options.levels
        limits = []
        if self.unchecked_fields:
            limits.append(f"anything about the values of {', '.join(self.unchecked_fields)}, which are not decoded")
        if not self.is_published:
            limits.append(f"that no {self.stored_noun} is missing, since there is no manifest to compare with")
        if self.is_rebuilt:
            limits.append("what was lost before shardtools index made the manifest, which it made of the shards that were there")
        # Rows of tokens were decoded when they were counted, and what MDS holds beside images when it was parsed.
        if not self.options.deep and not self.has_tokens and (self.has_images or self.format_name != "mds"):
            what = "that image pixels decode" if self.format_name == "mds" else "that values decode as their extensions say"
            limits.append(f"{what} (--deep)")
        if 6 not in levels:
            ids = "that ids are those of the text (--against SRC --tokenizer FILE)"
            limits.append(ids if self.has_tokens else "that values equal those of the source (--against SRC)")
        if 4 not in levels:
            limits.append("that no content occurs under two keys (--no-dup)")
        if 5 not in levels:
            limits.append(f"how a reader delivers the {self.stored_noun}s (--no-dup, --live)")
        limits += [end for proof in self.proofs for end in proof.not_proved]
        return f"Not looked at: {'; '.join(limits)}." if limits else ""


def _may_hold_images(dataset: Dataset) -> bool:
    encodings = {field.encoding for field in dataset.fields}
    encodings |= {encoding for shard in dataset.shards if shard.entry is not None for encoding in shard.entry.columns.values()}
    return not encodings or bool(encodings & _IMAGES)


def _files(shard: Shard) -> Iterator[IndexedFile]:
    """Both forms of an MDS shard, as far as an index has them."""
    if shard.entry is not None:
        yield from shard.entry.files


def _sorted(found: Sequence[Finding], dataset: Dataset) -> list[Finding]:
    """By level and kind, then in the order of the dataset; lines that count others come last."""
    places = {shard.name: shard.index for shard in dataset.shards}

    def place(finding: Finding) -> tuple[object, ...]:
        shard = places.get(finding.shard or "", len(places))
        return (
            finding.level or len(LEVELS) + 1,
            finding.kind,
            finding.num > 1,
            shard,
            finding.shard or "",
            finding.offset or 0,
            finding.key or "",
        )

    return sorted(found, key=place)

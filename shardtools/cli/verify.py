"""``shardtools verify``: prove that a dataset is whole and sound."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from shardtools.cli._endpoint import endpoint_option
from shardtools.cli._help import GroupedCommand, option, options
from shardtools.cli._output import Answer, json_lines, shown
from shardtools.cli._progress import ProgressBar
from shardtools.engines import Progress
from shardtools.errors import UsageError
from shardtools.verify import Checked, DeliveryOptions, Finding, Verdict, VerifyOptions, verify

_EXAMPLES = ("shardtools verify shards/ --no-dup", "shardtools verify shards/ --against images/ --json > verdict.json")


@dataclass(frozen=True)
class LookWords:
    """The options that say what is looked at."""

    no_dup: bool
    deep: bool
    against: tuple[str, ...]
    tokenizer: str | None
    media_root: str | None
    target: tuple[str, ...]
    strict: bool


@dataclass(frozen=True)
class DeliveryWords:
    """The options of the delivery proof, as typed."""

    world_size: str | None
    num_workers: str | None
    live: bool
    reader: str | None
    dataset: str | None
    id: str | None

    def parsed(self) -> DeliveryOptions:
        return DeliveryOptions(
            world_sizes=_numbers(self.world_size, "--world-size", 1),
            num_workers=_numbers(self.num_workers, "--num-workers", 0),
            live=self.live,
            reader=self.reader,
            factory=self.dataset,
            id_of=self.id,
        )


@dataclass(frozen=True)
class RunWords:
    """How the work is done and shown."""

    workers: int | None
    max_findings: int
    as_json: bool


@click.command("verify", cls=GroupedCommand, examples=_EXAMPLES, gathers={"look": LookWords, "delivery": DeliveryWords, "run": RunWords})
@click.argument("uri", metavar="DST")
@options(
    "Proof",
    option("--no-dup", is_flag=True, help="No content under two keys; every sample delivered once to all ranks and workers."),
    option("--against", multiple=True, metavar="SRC", help="Compare with the source it was packed from, or another dataset."),
    option("--tokenizer", metavar="FILE|DIR", help="With --against: the tokenizer that a dataset of tokens was packed with."),
    option("--media-root", metavar="DIR", help="With --against: the folder of the media that --embed took in. [default: SRC]"),
    option("--deep", is_flag=True, help="Decode values too: images, JSON, text, arrays."),
    option(
        "--target",
        multiple=True,
        metavar="NAMES",
        help="Readers that must take every sample as it is: webdataset,hf,energon,dali,wids; of MDS streaming",
    ),
    option("--strict", is_flag=True, help="Notes count as findings."),
    into="look",
)
@options(
    "Delivery",
    option("--world-size", metavar="W,...", help="Numbers of ranks. [default: 1,2,4,...; 1,2 when live]"),
    option("--num-workers", metavar="N,...", help="DataLoader workers of a rank. [default: 0,1,2,4,...; 2 when live]"),
    option("--live", is_flag=True, help="Run the reader in real processes, too."),
    option("--reader", metavar="NAME", help="Run this reader: webdataset, streaming or shardtools. [default: by the format]"),
    option("--dataset", metavar="PKG.MOD:FACTORY", help="Run your own dataset or DataLoader, made by FACTORY(uri)."),
    option("--id", metavar="PKG.MOD:FUNCTION", help="The id of an item. [default: its __key__, key or id]"),
    into="delivery",
)
@options(
    "Run",
    option("--workers", type=click.IntRange(1), metavar="N", help="Worker processes. [default: one per core]"),
    option("--max-findings", type=click.IntRange(1), default=100, metavar="N", help="Findings listed per kind and file. [default: 100]"),
    endpoint_option(),
    option("--json", "as_json", is_flag=True, help="Print the verdict as JSON."),
    into="run",
)
def command(uri: str, look: LookWords, delivery: DeliveryWords, run: RunWords) -> Answer:
    """Check every file, every byte and every sample of the dataset at DST.

    DST was packed by shardtools, or is a folder, glob or brace pattern of WDS or MDS shards of any origin. Reads only. Exit
    code 1 when anything is found, 3 when not everything could be looked at.
    """
    asked = VerifyOptions(
        workers=run.workers,
        max_findings=run.max_findings,
        deep=look.deep,
        no_dup=look.no_dup,
        delivery=delivery.parsed(),
        against=look.against,
        tokenizer=look.tokenizer,
        media_root=look.media_root,
        targets=tuple(name.strip() for names in look.target for name in names.split(",")),
        strict=look.strict,
    )
    if not asked.asks_for_delivery and asked.delivery != DeliveryOptions():
        raise UsageError(
            "expected --no-dup, --live, --reader or --dataset with --world-size, --num-workers and --id, got none; add --no-dup"
        )
    with ProgressBar("verify") as bar:
        started = False

        def on_progress(checked: Checked) -> None:
            nonlocal started
            if not started:
                bar.begin(checked.total_bytes)
                started = True
            bar.add(Progress(checked.num_samples, checked.num_bytes, 0))

        verdict = verify(uri, asked, on_progress)
    if run.as_json:
        return Answer(json_lines(verdict.as_json()), verdict.exit_code)
    speed = f"{verdict.seconds:.2f} s, {verdict.num_bytes / 1e6 / max(verdict.seconds, 1e-9):,.0f} MB/s"
    return Answer(map(shown, _lines(verdict)), verdict.exit_code, speed)


def _lines(verdict: Verdict) -> Iterator[str]:
    yield from _listed(verdict.findings, verdict.options.max_findings, "")
    yield from _listed(verdict.notes, verdict.options.max_findings, "note: ")
    yield from verdict.paragraphs()


def _listed(findings: Sequence[Finding], limit: int, prefix: str) -> Iterator[str]:
    """At most ``limit`` of each kind over all files, and how many more there are: nobody reads ten thousand lines."""
    num_shown: Counter[str] = Counter()
    num_more: Counter[str] = Counter()
    for finding in findings:
        if num_shown[finding.kind] < limit and finding.num == 1:
            num_shown[finding.kind] += 1
            yield f"{prefix}{finding}"
        else:
            num_more[finding.kind] += finding.num
    for kind, count in num_more.items():
        yield f"{prefix}{kind}: {count:,} more, not shown; --json and --max-findings list more of them"


def _numbers(text: str | None, flag: str, least: int) -> tuple[int, ...] | None:
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and word.isascii() and int(word) >= least for word in words):
        raise UsageError(f"expected {flag} as whole numbers of {least} or more, joined by commas, got {text!r}")
    return tuple(dict.fromkeys(map(int, words)))

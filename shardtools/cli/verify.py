"""``shardtools verify``: prove that a dataset is whole and sound."""

import click

from shardtools.cli._help import GroupedCommand, option, options
from shardtools.cli._output import Answer, json_lines, shown
from shardtools.cli._progress import ProgressBar
from shardtools.engines import Progress
from shardtools.verify import Checked, VerifyOptions, verify

_EXAMPLES = ("shardtools verify shards/", "shardtools verify shards/ --json > verdict.json")


@click.command("verify", cls=GroupedCommand, examples=_EXAMPLES)
@click.argument("dataset", metavar="DST")
@options(
    "Run",
    option("--workers", type=click.IntRange(1), metavar="N", help="Worker processes. [default: one per core]"),
    option("--max-findings", type=click.IntRange(1), default=100, metavar="N", help="Findings listed per kind and file. [default: 100]"),
    option("--json", "as_json", is_flag=True, help="Print the verdict as JSON."),
)
def command(dataset: str, workers: int | None, max_findings: int, as_json: bool) -> Answer:
    """Check every file, every byte and every sample of the dataset at DST.

    DST was packed by shardtools, or is a folder of WDS or MDS shards of any origin. Reads only. Exit code 1 when anything
    is found, 3 when not everything could be looked at.
    """
    with ProgressBar("verify") as bar:
        started = False

        def on_progress(checked: Checked) -> None:
            nonlocal started
            if not started:
                bar.begin(checked.total_bytes)
                started = True
            bar.add(Progress(checked.num_samples, checked.num_bytes, 0))

        verdict = verify(dataset, VerifyOptions(workers, max_findings), on_progress)
    if as_json:
        return Answer(json_lines(verdict.as_json()), verdict.exit_code)
    speed = f"{verdict.seconds:.2f} s, {verdict.num_bytes / 1e6 / max(verdict.seconds, 1e-9):,.0f} MB/s"
    return Answer(map(shown, [*map(str, verdict.findings), verdict.closing()]), verdict.exit_code, speed)

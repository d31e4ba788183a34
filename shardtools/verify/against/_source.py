"""A dataset against the source it was packed from: the recipe runs again, and what it makes is compared.

Whole shards are compared first: the bytes of all their samples in one digest, in the order of the plan. Only the samples of
shards that have no equal are compared one by one. Where the source is planned otherwise than it was, all samples are.
"""

from collections.abc import Sequence
from tempfile import TemporaryDirectory

from shardtools.build.planning import PlannedBuild
from shardtools.build.stages.advance import Job, selected
from shardtools.engines import Engine
from shardtools.errors import DuplicateKeyError, ShardtoolsError, UsageError
from shardtools.manifest import Ledger, Manifest
from shardtools.storage import open_storage
from shardtools.units import Budget, plural
from shardtools.verify.against._compare import Differences
from shardtools.verify.against._recipe import changes, rescan
from shardtools.verify.against._run import live_engine
from shardtools.verify.against._sides import Sides
from shardtools.verify.findings import Findings
from shardtools.verify.options import VerifyOptions
from shardtools.verify.stored import Proof, Stored


def against_source(stored: Stored, manifest: Manifest, sources: Sequence[str], options: VerifyOptions, findings: Findings) -> Proof:
    """Replay the manifest's recipe on the sources. Raises UsageError for sources of another kind than the recipe's."""
    num_bytes = sum(shard.num_bytes or 0 for shard in stored.dataset.shards)
    try:
        with live_engine(options.workers, num_bytes, stored.num_samples) as engine:
            return _compared(stored, manifest, rescan(manifest, sources, options, engine), engine, findings)
    except UsageError:
        raise
    except DuplicateKeyError as error:
        findings.add("changed-source", f"expected the source as it was packed, got one that cannot be packed: {error}")
    except ShardtoolsError as error:
        findings.add("could-not-look", f"expected to replay the recipe, but {error}")
    return Proof(not_proved=("whether the samples of the source are those of the dataset, since the recipe could not be replayed",))


def _compared(stored: Stored, manifest: Manifest, planned: PlannedBuild, engine: Engine, findings: Findings) -> Proof:
    before = findings.num_added
    changed = changes(stored.dataset, manifest, planned)
    if changed is not None:
        findings.add("changed-source", f"expected the source as it was packed, got {changed}")
    with TemporaryDirectory(prefix="shardtools-") as scratch:
        # Which samples are taken may depend on all before them: of each its digest, and no more, lies here meanwhile.
        items = selected(Job(open_storage(scratch), planned, Budget(), engine, lambda _: None))
    sides = Sides(stored, planned, items, engine)
    differences = sides.compare(changed is None, findings)
    if sides.is_in_order is False:
        places = "the order" if planned.is_scattered else "the shards and the order"
        findings.add("changed-order", f"expected the samples in {places} that the recipe makes, got the same samples otherwise")
    _check_ledger(manifest, sides, differences, findings)
    is_proved = findings.num_added == before
    order = {True: ", in the order of the plan", None: ""}[sides.is_in_order] if is_proved else ""
    return _proof(sides, manifest.ledger, order, is_proved)


def _check_ledger(manifest: Manifest, sides: Sides, differences: Differences, findings: Findings) -> None:
    """Everything that was read must have gone where the manifest says, but for the samples that findings name."""
    ledger, replayed = manifest.ledger, sides.ledger
    rejects = replayed.rejects
    for name, then, now in (
        ("filtered samples", ledger.num_filtered, replayed.num_filtered),
        ("blank lines", ledger.num_blank, replayed.num_blank),
    ):
        if then != now:
            findings.add("ledger-open", f"expected {then:,} {name}, as the manifest says, got {now:,} from the source")
    for name in sorted(ledger.filters.keys() | replayed.filters.keys()):
        then, now = ledger.filters[name], replayed.filters[name]
        if then != now:
            detail = f"expected {then:,} left out by --{name}, as the manifest says, got {now:,} from the source"
            findings.add("ledger-open", detail)
    if ledger.transforms != replayed.transforms:
        detail = f"expected the counts {_plain(ledger)}, as the manifest says, got {_plain(replayed)} from the source"
        findings.add("ledger-open", detail)
    for reason in sorted(rejects.keys() | ledger.rejects.keys()):
        if rejects[reason] != ledger.rejects[reason]:
            detail = (
                f"expected {ledger.rejects[reason]:,} rejected as {reason}, as the manifest says, got {rejects[reason]:,} from the source"
            )
            findings.add("ledger-open", detail)
    # Samples that cannot be read may still be what was written.
    num_written = sides.num_samples - differences.num_missing + differences.num_foreign + (sides.unread.num_samples or 0)
    if num_written != ledger.num_stored:
        detail = f"expected {plural(ledger.num_stored, 'sample')}, as the manifest says was written, got {num_written:,} in the shards"
        findings.add("ledger-open", detail)


def _plain(ledger: Ledger) -> dict[str, dict[str, int]]:
    return {name: dict(counts) for name, counts in ledger.transforms.items()}


def _proof(sides: Sides, ledger: Ledger, order: str, is_proved: bool) -> Proof:
    not_proved = (
        sides.not_compared
        if order
        else (
            *sides.not_compared,
            "whether the samples are in the order of the plan",
        )
    )
    if not sides.has_keys:
        not_proved += ("which sample has which key, since the dataset stores no keys",)
    if not is_proved:
        return Proof(not_proved=not_proved)
    kept, left = ("written", "filtered") if ledger.num_rows is None else ("packed", "left out")
    read = (
        f"{ledger.read_noun}s read {ledger.num_read:,} = {kept} {ledger.num_written:,} + rejected {ledger.num_rejected:,} + "
        f"{left} {ledger.num_filtered:,}"
    )
    split = ", in the split it belongs to" if sides.planned.plan.recipe.selection.split else ""
    made = plural(ledger.num_stored, ledger.stored_noun)
    return Proof(
        (
            f"The recipe was run again on the source: each of the {made} it makes is in the dataset exactly once, "
            f"byte for byte{split}{order}, and the ledger closes: {read}.",
        ),
        not_proved,
    )

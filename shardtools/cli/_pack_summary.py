"""What ``pack`` shows of a plan and of a finished build, for people and for programs."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from shardtools.build.planning import PlannedBuild
from shardtools.build.run import PartDone, Result
from shardtools.manifest import Ledger
from shardtools.sources import Survey
from shardtools.units import format_bytes, plural

_LEFT_OUT = {
    "chats-dropped": "chats longer than --seq-len",
    "documents-dropped": "documents longer than --seq-len",
    "documents-empty": "documents without a token",
}
"""What transforms leave out on purpose, by the name of the count."""


def notes(survey: Survey) -> list[str]:
    """What planning chose, found odd and left out: lines for people while the work goes on."""
    skipped = ", ".join(f"{count:,} {reason}" for reason, count in survey.skipped.items())
    return [*(f"note: {note}" for note in survey.notes), *([f"skipped: {skipped}"] if skipped else [])]


def plan_json(planned: PlannedBuild) -> dict[str, Any]:
    """The plan as ``--dry-run --json`` prints it."""
    partitions, survey = planned.plan.partitions, planned.survey
    return {
        "plan": planned.plan.digest,
        "samples": _num_planned(planned),
        "input_bytes": sum(partition.input_bytes for partition in partitions),
        "stored_bytes": survey.expected_bytes,
        "shards": sum(partition.num_shards for partition in partitions),
        "partitions": len(partitions),
        "passes": list(planned.passes),
        "fields": {field.name: field.encoding + ("?" if field.optional else "") for field in survey.fields},
        "first_keys": survey.preview,
        "key_twins": survey.num_twins,
        "skipped": survey.skipped,
        "notes": survey.notes,
    }


def plan_rows(planned: PlannedBuild) -> list[tuple[str, str]]:
    """The plan as ``--dry-run`` prints it."""
    content, num_samples = plan_json(planned), _num_planned(planned)
    about = "" if num_samples is not None else "about "
    return [
        (
            "rows" if planned.plan.recipe.transforms else "samples",
            f"{num_samples:,}" if num_samples is not None else "known when they are read",
        ),
        ("input", format_bytes(content["input_bytes"])),
        ("shards", f"{about}{content['shards']:,}, {about}{format_bytes(content['stored_bytes'])} in all"),
        ("partitions", f"{content['partitions']:,}"),
        *([("passes", ", ".join(planned.passes))] if len(planned.passes) > 1 else []),
        ("fields", ", ".join(f"{name} ({encoding})" for name, encoding in content["fields"].items())),
        ("first keys", ", ".join(content["first_keys"])),
        ("collisions", f"{plural(content['key_twins'], 'key')} differ from another only by case or Unicode form"),
        *_skipped_rows(planned.survey),
        *(("note", note) for note in planned.survey.notes),
    ]


def result_json(result: Result) -> dict[str, Any]:
    """The finished build as ``--json`` prints it."""
    manifest, ledger, num_bytes, seconds = result.manifest, result.manifest.ledger, _num_bytes(result), _seconds(result)
    return {
        "already_complete": result.already_complete,
        "plan": manifest.plan_digest,
        "samples": ledger.num_written,
        "shards": len(manifest.shards),
        **({"splits": manifest.samples_by_split} if manifest.splits else {}),
        "bytes": num_bytes,
        "ledger": ledger.as_json(),
        "skipped": result.survey.skipped,
        "notes": result.survey.notes,
        "seconds": round(result.seconds, 3),
        "samples_per_second": round(ledger.num_written / seconds, 1),
        "megabytes_per_second": round(num_bytes / 1e6 / seconds, 1),
        "warnings": result.warnings,
    }


def result_rows(result: Result) -> list[tuple[str, str]]:
    """The finished build as a table. Notes are not in it: they were said when it was planned."""
    ledger, num_bytes = result.manifest.ledger, _num_bytes(result)
    return [
        *(_token_rows(ledger) if ledger.transforms else [("samples", f"{ledger.num_written:,}")]),
        ("shards", f"{len(result.manifest.shards):,}"),
        *((f"  in {split}", f"{count:,} {ledger.stored_noun}s") for split, count in result.manifest.samples_by_split.items()),
        ("bytes", f"{num_bytes:,} ({format_bytes(num_bytes)})"),
        *((f"left out by --{option}", f"{ledger.filters[option]:,}") for option in _filters(result.manifest.recipe)),
        ("rejected", f"{ledger.num_rejected:,}"),
        *((f"  {reason}", f"{count:,}") for reason, count in sorted(ledger.rejects.items())),
        *_skipped_rows(result.survey),
        ("seconds", f"{result.seconds:,.2f}"),
        *([] if result.already_complete else _rates(result)),
    ]


def part_json(done: PartDone) -> dict[str, Any]:
    """A part that leaves work to others, as ``--json`` prints it."""
    return {
        "part": str(done.part),
        "published": False,
        "partitions": done.num_partitions,
        "left": done.num_left,
        "seconds": round(done.seconds, 3),
    }


def part_rows(done: PartDone) -> list[tuple[str, str]]:
    """The same as a table."""
    return [
        ("part", f"{done.part} done"),
        ("left", f"{done.num_left:,} of {plural(done.num_partitions, 'partition')}, for other parts; the last to end publishes"),
        ("seconds", f"{done.seconds:,.2f}"),
    ]


def _filters(recipe: Mapping[str, Any]) -> list[str]:
    """The options that leave samples out, whether or not there were any."""
    selection = recipe.get("selection", {})
    is_where = any(step["name"] == "select" for step in recipe.get("steps", ()))
    return [*(option for option in ("dedup", "limit") if selection.get(option)), *(["where"] if is_where else [])]


def _rates(result: Result) -> list[tuple[str, str]]:
    ledger, seconds = result.manifest.ledger, _seconds(result)
    if ledger.transforms:
        # What is stored of tokens says more of the format than of the work.
        num_read = sum(partition.input_bytes for partition in result.survey.partitions)
        return [("input MB/s", f"{num_read / 1e6 / seconds:,.1f}"), ("tokens/s", f"{_tokens_in(ledger) / seconds:,.0f}")]
    return [("samples/s", f"{ledger.num_written / seconds:,.0f}"), ("MB/s", f"{_num_bytes(result) / 1e6 / seconds:,.1f}")]


def _token_rows(ledger: Ledger) -> list[tuple[str, str]]:
    """What became of documents and their tokens."""
    # Chats that are too long are left out, or cut, before they come to packing; documents in packing.
    totals = sum(ledger.transforms.values(), Counter[str]())
    stored, padding = totals["tokens-stored"], totals["padding"]
    truncated, dropped = totals["tokens-truncated"], totals["tokens-dropped"]
    left_out = ", ".join(f"{totals[name]:,} {reason}" for name, reason in _LEFT_OUT.items() if totals[name])
    return [
        (f"{ledger.read_noun}s read", f"{ledger.num_read:,}"),
        ("left out", left_out or "0"),
        ("tokens", f"{stored:,} stored of {_tokens_in(ledger):,}, {truncated:,} truncated, {dropped:,} dropped"),
        ("rows stored", f"{ledger.num_stored:,}"),
        ("padding", f"{padding:,} ({padding / max(stored + padding, 1):.3%})"),
    ]


def _tokens_in(ledger: Ledger) -> int:
    """The tokens of all documents that were encoded."""
    return next((counts["tokens-in"] for name, counts in ledger.transforms.items() if name != "packing"), 0)


def _skipped_rows(survey: Survey) -> list[tuple[str, str]]:
    reasons = [(f"  {reason}", f"{count:,}") for reason, count in sorted(survey.skipped.items())]
    return [("skipped", f"{sum(survey.skipped.values()):,}"), *reasons]


def _num_planned(planned: PlannedBuild) -> int | None:
    recipe, counts = planned.plan.recipe, [partition.num_samples for partition in planned.plan.partitions]
    return None if recipe.steps or recipe.selection.looks_ahead or None in counts else sum(count or 0 for count in counts)


def _num_bytes(result: Result) -> int:
    return sum(shard.num_bytes for shard in result.manifest.shards)


def _seconds(result: Result) -> float:
    return max(result.seconds, 1e-9)

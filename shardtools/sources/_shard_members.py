"""Fields made of tar members by their extensions, as fields are made of files."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from shardtools.errors import UsageError
from shardtools.formats import FILE_ENCODINGS, split_names
from shardtools.keys import is_legal_field
from shardtools.sample import Field
from shardtools.sources import Wanted
from shardtools.sources import _shard_values as convert
from shardtools.sources._grouping import FieldRule, FieldSets, field_rules
from shardtools.sources._infer import infer_fields
from shardtools.sources._record_layout import FieldMapping
from shardtools.sources._shard_blocks import Block
from shardtools.sources._shard_fields import RECORD_MEMBER, ShardField
from shardtools.sources._shard_inputs import ShardInputs
from shardtools.sources._shard_view import split_path
from shardtools.units import listed, printable

_TEXT_MEMBERS = ("txt", "text")


def field_sets(inputs: ShardInputs, blocks: Sequence[Block]) -> FieldSets:
    """How many samples have which members: of all where manifests tell, else of the first."""
    if all(dataset.manifest is not None for dataset in inputs.datasets):
        found: FieldSets = Counter()
        for dataset in inputs.datasets:
            for shard in dataset.manifest.shards if dataset.manifest is not None else ():
                for joined, count in shard.field_sets.items():
                    found[tuple(sorted(split_names(joined)))] += count
        return found
    return Counter(_set_of(block, i) for block in blocks for i in range(len(block.keys)))


def _set_of(block: Block, i: int) -> tuple[str, ...]:
    return tuple(sorted(name.lower() for name in block.names if block.column(name)[i] is not None))


def own_rules(sets: FieldSets) -> tuple[FieldRule, ...]:
    """Each member as the field of its name; optional where some sample lacks it."""
    total = sets.total()
    counts = Counter({name: 0 for names in sets for name in names if is_legal_field(name)})
    for names, count in sets.items():
        counts.update({name: count for name in set(names) if is_legal_field(name)})
    return tuple(FieldRule(name, (name,), counts[name] < total) for name in sorted(counts))


def member_rules(sets: FieldSets, given: tuple[FieldRule, ...] | None, is_tar: bool, is_known: bool) -> tuple[FieldRule, ...]:
    """The rules of fields; ``is_known``: the sets are those of all samples. Raises UsageError for a name that no sample has."""
    if given is None:
        if is_tar:
            return own_rules(sets)
        rules = field_rules(sets)
        # What a dataset was packed with is no stray.
        return tuple(replace(rule, optional=rule.optional or _is_lacking(rule, sets)) for rule in rules) if is_known else rules
    present = {name for names in sets for name in names}
    for rule in given:
        if not present.intersection(rule.aliases):
            raise UsageError(f"expected members {listed(sorted(present))} in --fields, got {rule.name!r}, which no sample has")
    return given


def _is_lacking(rule: FieldRule, sets: FieldSets) -> bool:
    return any(not set(rule.aliases).intersection(names) for names in sets)


def parts_of(
    rules: Sequence[FieldRule], sets: FieldSets, known: Mapping[str, str], is_tar: bool
) -> tuple[list[ShardField], dict[str, str]]:
    """How each field is made, and its encoding; ``known`` are the encodings that a manifest tells."""
    present = {name for names in sets for name in names}
    parts, encodings = [], {}
    for rule in rules:
        by_name: dict[str, list[str]] = {}
        for alias in rule.aliases:
            if alias in present:
                by_name.setdefault(rule.stored_name(alias, keep_extensions=is_tar), []).append(alias)
        for name, aliases in by_name.items():
            kinds = {known.get(alias) or FILE_ENCODINGS.get(alias, "bytes") for alias in aliases}
            encoding = kinds.pop() if len(kinds) == 1 else "bytes"
            # The text of a truth value is no number.
            form = "json" if encoding == "uint8" and not is_tar else "stored"
            parts.append(
                ShardField(name, tuple(aliases), form, "json" if form == "json" else "bytes", None, rule.optional or len(by_name) > 1)
            )
            encodings[name] = encoding
    return parts, encodings


def mapped_parts(mappings: Sequence[FieldMapping], blocks: Sequence[Block]) -> tuple[list[ShardField], dict[str, str]]:
    """Fields that the user named: members, or what dotted paths lead to in JSON. Raises UsageError where no first sample has one."""
    parts, encodings = [], {}
    for mapping in mappings:
        origin, path = resolved(mapping.record_field, blocks, "--map")
        if path is None:
            parts.append(ShardField(mapping.name, (origin,), optional=mapping.optional))
            encodings[mapping.name] = FILE_ENCODINGS.get(origin, "bytes")
            continue
        values = [value for block in blocks for value in inner_values(block, origin, path)]
        found, _ = infer_fields([{mapping.name: value} for value in values if value is not None or not mapping.optional])
        encodings[mapping.name] = found[0].encoding if found else "json"
        form = "dumped" if encodings[mapping.name] == "json" else "json"
        parts.append(ShardField(mapping.name, (origin,), form, path=path, optional=mapping.optional))
    return parts, encodings


def resolved(name: str, blocks: Sequence[Block], flag: str) -> tuple[str, str | None]:
    """Member, and path in its JSON, of a dotted name. Raises UsageError where no first sample has it."""
    members = {member.lower() for block in blocks for member in block.names}
    if name in members:
        return name, None
    for origin, path in [*split_path(name), (RECORD_MEMBER, name)]:
        if path is not None and origin in members and any(v is not None for block in blocks for v in inner_values(block, origin, path)):
            return origin, path
    inside = [f"{RECORD_MEMBER}.{key}" for key in _record_fields(blocks)]
    raise UsageError(
        f"expected a member or a field of its JSON in {flag}, among {listed([*sorted(members), *inside])}, got {printable(name)!r}"
    )


def key_member(name: str, blocks: Sequence[Block]) -> tuple[str, str | None]:
    """What ``resolved`` gives of the members that keys can be made of."""
    origin, path = resolved(name, blocks, "--key")
    if path is None and not convert.is_in_record(convert.member_encoding(origin)):
        raise UsageError(f"expected a member of text or a number in --key, or a field of JSON, got .{origin}, which is none of these")
    return origin, path


def wanted_part(wanted: Wanted, blocks: Sequence[Block]) -> ShardField:
    """The one field that becomes tokens. Raises UsageError where no first sample has it."""
    name = wanted.field.name if wanted.path is None else wanted.path
    is_chat = wanted.field.encoding == "json"
    try:
        origin, path = resolved(name, blocks, "--text-key")
    except UsageError:
        texts = [member for member in _TEXT_MEMBERS if any(member in block.names for block in blocks)]
        if wanted.path is not None or is_chat or len(texts) != 1:
            raise
        origin, path = texts[0], None
    form = "json" if path is not None or is_chat else "stored"
    # What has no text is for the transform to refuse.
    return ShardField(wanted.field.name, (origin,), form, "json" if is_chat and path is None else "bytes", path, optional=True)


def inner_values(block: Block, origin: str, path: str) -> list[object]:
    """What a path leads to in the JSON of a member; None where that is none."""
    found = []
    for name in block.names:
        if name.lower() == origin:
            found = [convert.parsed(value) for value in block.column(name)]
    return convert.inner(found, path)


def _record_fields(blocks: Sequence[Block]) -> list[str]:
    return [
        key
        for block in blocks[:1]
        for name in block.names
        if name.lower() == RECORD_MEMBER
        for key in convert.keys_of(map(convert.parsed, block.column(name)))
    ]


def known_encodings(inputs: ShardInputs) -> dict[str, str]:
    """Of members, as manifests tell where they agree; readers of foreign tars go by extensions."""
    found: dict[str, str] = {}
    for dataset in inputs.datasets:
        for known in dataset.fields:
            if found.setdefault(known.name, known.encoding) != known.encoding:
                found[known.name] = convert.member_encoding(known.name)
    return found


def refuse_taken(fields: Sequence[Field], name: str, flag: str) -> None:
    """Raises UsageError where an option makes a field that is there already."""
    if any(field.name == name for field in fields):
        raise UsageError(f"expected no field {name!r} beside {flag}, got one; leave {flag} out, or choose fields with --fields or --map")

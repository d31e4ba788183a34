"""Folders of small files: files that share folder and stem are one sample."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import ClassVar

from shardtools import keys
from shardtools.duplicates import DigestRun, key_digest, num_twins
from shardtools.errors import DuplicateKeyError, UsageError
from shardtools.extents import identity
from shardtools.formats import Encoder
from shardtools.partitions import cut_exactly
from shardtools.plan import permutation
from shardtools.sample import Batch, Field, RejectSink
from shardtools.sources import PATH_FIELD, PREVIEW_KEYS, Survey, SurveyRequest, escape_note
from shardtools.sources._file_ahead import costs_ahead
from shardtools.sources._file_plan import FilePlan, PlanSubtree, plan_scan
from shardtools.sources._file_reader import FileReader
from shardtools.sources._grouping import CHOOSE_RULE, NO_EXTENSION_FIELD, FieldRule, choose_rule, field_rules, parse_field_rules
from shardtools.sources._layout import LABEL_FIELD, Layout, label_names
from shardtools.sources._planned import join, shown
from shardtools.sources._scan import Subtree, scan, subtrees
from shardtools.sources._text_kinds import each_file, refuse_only_tables, refuse_unfit
from shardtools.units import plural

GROUP_RULES = ("first-dot", "last-dot", "file")


_SHOWN_LABELS = 20


@dataclass(frozen=True)
class Files:
    """File bytes pass through unchanged. Samples are ordered by the bytes of their keys."""

    group: str = "auto"
    """One of GROUP_RULES, or ``auto`` until planning settled it."""
    fields: tuple[FieldRule, ...] | None = None
    """None: as the names show. Otherwise files of other extensions are left out and counted."""
    label_from_dir: bool = False
    """Adds the field ``cls``: the index of the top-level folder among all of them, sorted by bytes."""
    keep_path: bool = False
    """Adds the field ``path``: the original relative path of the sample's first file."""
    layout: Layout | None = None
    """Settled by planning."""

    file_suffixes: ClassVar[tuple[str, ...]] = ()

    option_names: ClassVar[tuple[str, ...]] = ("group", "fields", "label_from", "keep_path")

    @classmethod
    def from_options(cls, words: Mapping[str, str]) -> "Files":
        group, label = words.get("group", "auto"), words.get("label_from")
        if group not in ("auto", *GROUP_RULES):
            raise UsageError(f"expected --group auto, {', '.join(GROUP_RULES)}, got {group!r}")
        if label not in (None, "dir"):
            raise UsageError(f"expected --label-from dir, got {label!r}")
        return cls(
            group=group,
            fields=parse_field_rules(words["fields"]) if "fields" in words else None,
            label_from_dir=label is not None,
            keep_path="keep_path" in words,
        )

    def survey(self, request: SurveyRequest) -> Survey:
        rule, planned, notes = self._planned(request)
        extents = planned.extents
        if not extents:
            raise UsageError(f"expected files to pack, got none in {', '.join(given.root for given in request.inputs)}")
        _refuse_repeats(extents, [given.root for given in request.inputs])
        layout, fields = self._settled(planned, request)
        if layout.leaves_out:
            extents = [packed for packed in extents if any(layout.shape(_extensions(packed)).taken)]
        if request.shuffle_seed is not None:
            extents = [extents[i] for i in permutation(request.shuffle_seed, len(extents))]
        elif layout.labels is not None:
            notes.append("labels are packed in folder order, and class-sorted shards train badly: add --shuffle --seed S")
        encoder = request.format.encoder(fields, request.limit.num_bytes)
        weights, costs = _sizes(extents, layout, encoder)
        costs = costs_ahead(extents, layout, request, costs)
        return Survey(
            source=replace(self, group=rule, layout=layout),
            fields=fields,
            partitions=cut_exactly(extents, weights, costs, encoder.budget_bytes, request.limit),
            preview=[packed.partition(b"\0")[0].decode() for packed in extents[:PREVIEW_KEYS]],
            notes=notes + escape_note(planned.num_escaped, planned.escaped) + _notes(planned, layout),
            skipped=dict(sorted((planned.skipped + layout.left_out(planned.sets)).items())),
            expected_bytes=sum(costs),
            num_twins=_num_twins(planned.extents),
            newest_ns=planned.newest_ns,
            fixes_shards=True,
            is_shuffled=request.shuffle_seed is not None,
        )

    def _settled(self, planned: FilePlan, request: SurveyRequest) -> tuple[Layout, tuple[Field, ...]]:
        if request.settled is not None and self.layout is not None:
            return self.layout, request.settled
        given, wanted = self._given_rules(request), request.wanted
        rules = given if given is not None else field_rules(planned.sets)
        if wanted is not None:
            refuse_unfit(planned.sets, rules, given)
        layout = Layout(
            rules=rules,
            leaves_out=given is not None,
            labels=label_names([_folder(packed) for packed in planned.extents]) if self.label_from_dir else None,
            keep_path=self.keep_path,
            # Of text that is tokenized, no member keeps the name.
            keep_extensions=request.format.index_name is None and wanted is None,
            max_file_bytes=request.format.max_value_bytes,
        )
        fields = layout.fields(planned.sets, request.encodings)
        if wanted is not None and wanted.field.encoding == "str":
            # Whatever its extension says a file is, here it is text.
            fields = tuple(replace(field, encoding="bytes") if field.name == rules[0].name else field for field in fields)
        return layout, fields

    def _given_rules(self, request: SurveyRequest) -> tuple[FieldRule, ...] | None:
        """The fields that the user named."""
        if request.wanted is None or request.wanted.path is None:
            return self.fields
        if self.fields is not None:
            raise UsageError("expected --fields or --text-key, got both; choose one")
        return parse_field_rules(request.wanted.path)

    def read(self, roots: Sequence[str], extents: Sequence[bytes], reject: RejectSink, extras: Sequence[str] = ()) -> Iterator[Batch]:
        assert self.layout is not None, "a recipe holds a surveyed source"
        reader = FileReader(self.layout, roots, extents, reject, extras)
        try:
            yield from reader.batches()
        finally:
            reader.close()

    def _planned(self, request: SurveyRequest) -> tuple[str, FilePlan, list[str]]:
        """The settled grouping rule, the samples it gives, and notes."""
        rule = "first-dot" if self.group == "auto" else self.group
        parts: list[FilePlan] = []
        trees: list[Subtree] = []
        for index, given in enumerate(request.inputs):
            if given.paths is None and not given.is_remote:
                trees += subtrees(index, given)
            else:
                parts.append(plan_scan(scan(given), index, rule))
        planned = FilePlan.merged([*parts, *request.spread(PlanSubtree(rule), trees)])
        if self.group != "auto" or not planned.has_dotted_stems:
            return rule, planned, []
        # The dots of some names can be read in two ways: look at all names before one is settled.
        scans = [scan(given) for given in request.inputs]
        remedy = CHOOSE_RULE
        if request.wanted is not None:
            refuse_only_tables(planned.sets)
            remedy = each_file(planned.sets, self._given_rules(request))
        rule, note = choose_rule(scans, {alias: rule.name for rule in self.fields or () for alias in rule.aliases}, remedy)
        planned = FilePlan.merged(plan_scan(scanned, index, rule) for index, scanned in enumerate(scans))
        return rule, planned, [] if note is None else [note]


def _refuse_repeats(extents: Sequence[bytes], roots: Sequence[str]) -> None:
    previous_key, previous = b"", b""
    for packed in extents:
        key = packed.partition(b"\0")[0]
        if key == previous_key:
            raise DuplicateKeyError(
                f"expected every key once, got {key.decode()!r} from {_place(previous, roots)} and from {_place(packed, roots)}; "
                "rename one, or pack their common parent folder, so that the folder becomes part of the key"
            )
        previous_key, previous = key, packed


def _num_twins(extents: Sequence[bytes]) -> int:
    all_keys = [packed.partition(b"\0")[0] for packed in extents]
    folded = [key_digest(fold) for fold in map(keys.fold_key, all_keys) if fold is not None]
    return num_twins([DigestRun.of(list(map(key_digest, all_keys)))], [DigestRun.of(folded)]) if folded else 0


def _place(packed: bytes, roots: Sequence[str]) -> str:
    _, root, folder, _, _, name, *_ = identity(packed).split(b"\0")
    return f"{roots[int(root)]}/{shown(join(folder, name))}"


def _extensions(packed: bytes) -> tuple[bytes, ...]:
    return tuple(identity(packed).split(b"\0")[3::3])


def _folder(packed: bytes) -> bytes:
    return packed.split(b"\0", 3)[2]


def _sizes(extents: Sequence[bytes], layout: Layout, encoder: Encoder) -> tuple["array[int]", "array[int]"]:
    """Input bytes and stored bytes of every extent, in order."""
    weights, costs = array("Q"), array("Q")
    shape_of, planned_cost = layout.shape, encoder.planned_cost
    has_extras = layout.labels is not None or layout.keep_path
    for packed in extents:
        key, _, folder, *rest = identity(packed).split(b"\0")
        shape = shape_of(tuple(rest[::3]))
        names, sizes = shape.stored, list(map(int, rest[1::3]))
        if len(names) < len(sizes):
            sizes = list(compress(sizes, shape.taken))
        weights.append(max(sum(sizes), 0))
        if has_extras:
            extras = _extra_lengths(layout, folder, rest[2])
            names, sizes = (*names, *extras), [*sizes, *extras.values()]
        costs.append(planned_cost(len(key), names, sizes))
    return weights, costs


def _extra_lengths(layout: Layout, folder: bytes, name: bytes) -> dict[str, int]:
    """The length of each field that no file holds."""
    lengths = {}
    if layout.labels is not None:
        lengths[LABEL_FIELD] = len(str(layout.label_of.get(folder.partition(b"/")[0], 0)))
    if layout.keep_path:
        lengths[PATH_FIELD] = len(shown(join(folder, name)).encode())
    return lengths


def _notes(planned: FilePlan, layout: Layout) -> list[str]:
    notes = []
    if planned.num_links:
        notes.append(f"followed {plural(planned.num_links, 'symbolic link')}")
    if planned.num_bare and NO_EXTENSION_FIELD in layout.stored_names:
        notes.append(f"files without an extension are stored as the field {NO_EXTENSION_FIELD!r}: {plural(planned.num_bare, 'sample')}")
    if layout.labels is not None:
        shown = ", ".join(f"{i} {name}" for i, name in enumerate(layout.labels[:_SHOWN_LABELS]))
        more = f" and {len(layout.labels) - _SHOWN_LABELS} more" if len(layout.labels) > _SHOWN_LABELS else ""
        notes.append(f"labels: {shown}{more}")
        if len(layout.labels) == 1:
            notes.append("every sample has the same label: labels are the top-level folders, so give the folder above the class folders")
    bad = layout.bad_samples(planned.sets)
    if bad:
        counts = ", ".join(f"{plural(count, 'sample')}: {reason}" for reason, count in sorted(bad.items()))
        notes.append(f"bad by the names of their files, and rejected when they are read: {counts}")
    return notes

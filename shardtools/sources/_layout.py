"""How the files of a sample become its fields: names, encodings, labels, sizes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from shardtools.errors import UsageError
from shardtools.formats import FILE_ENCODINGS
from shardtools.sample import Field
from shardtools.sources import PATH_FIELD
from shardtools.sources._grouping import FieldRule, FieldSets, shown_sets

LABEL_FIELD = "cls"


_ILLEGAL_FIELD = "expected an extension of letters, digits, _ and inner dots, got {!r}; rename the file or choose another --group"
_TWO_FILES = "expected one file for the field {!r} of a sample, got {{other}} too; rename one or choose --group file"
_MISSING_FIELD = "expected a file for the field {0!r} too, got only {1}; --fields marks a field that may be missing with {0}?"


@dataclass(frozen=True)
class Fault:
    """Why a sample is bad by the names of its files."""

    reason: str
    sentence: str
    """``{other}`` stands for the path of the other file."""
    file: int
    other: int = 0


@dataclass(frozen=True)
class Shape:
    """What becomes of the files of a sample, by their extensions."""

    taken: tuple[bool, ...]
    """For each file whether it is stored."""
    stored: tuple[str, ...]
    """The stored name of each file that is."""
    absent: tuple[str, ...]
    """The dataset's other fields."""
    fault: Fault | None


@dataclass(frozen=True)
class Layout:
    """Everything about fields that planning settled; part of the recipe."""

    rules: tuple[FieldRule, ...]
    leaves_out: bool
    """Files that no rule names are left out, since the user named the fields; otherwise their sample is bad."""
    labels: tuple[str, ...] | None
    """Names of the top-level folders, sorted by bytes; a sample's label is its folder's index here."""
    keep_path: bool
    keep_extensions: bool
    """Members keep their own extension where several kinds share one field (tar), or share a column (MDS)."""
    max_file_bytes: int
    """The most the format can hold in one field."""

    @cached_property
    def stored_names(self) -> dict[str, str]:
        """What each extension's file is called in the dataset."""
        return {alias: rule.stored_name(alias, self.keep_extensions) for rule in self.rules for alias in rule.aliases}

    @cached_property
    def label_of(self) -> dict[bytes, int]:
        """The label of each top-level folder."""
        return {name.encode("utf-8", "surrogateescape"): i for i, name in enumerate(self.labels or ())}

    def shape(self, extensions: tuple[bytes, ...]) -> Shape:
        """What becomes of a sample with files of these extensions; looked at once for each combination."""
        known = self._shapes.get(extensions)
        if known is None:
            known = self._shapes[extensions] = self._new_shape([extension.decode() for extension in extensions])
        return known

    @cached_property
    def _shapes(self) -> dict[tuple[bytes, ...], Shape]:
        return {}

    def _new_shape(self, extensions: Sequence[str]) -> Shape:
        rule_of = {alias: rule for rule in self.rules for alias in rule.aliases}
        taken_by: dict[str, int] = {}
        fault = None
        for i, extension in enumerate(extensions):
            rule = rule_of.get(extension)
            if rule is None:
                fault = fault or (None if self.leaves_out else Fault("illegal-field", _ILLEGAL_FIELD.format(extension), i))
            elif rule.name in taken_by:
                fault = fault or Fault("two-files-one-field", _TWO_FILES.format(rule.name), i, taken_by[rule.name])
            else:
                taken_by[rule.name] = i
        missing = [rule.name for rule in self.rules if not rule.optional and rule.name not in taken_by]
        if missing and fault is None:
            fault = Fault("missing-field", _MISSING_FIELD.format(missing[0], ", ".join(taken_by) or "others"), 0)
        stored = [self.stored_names[extension] for extension in extensions if extension in rule_of]
        absent = {*self.stored_names.values()} - {*stored}
        return Shape(tuple(extension in rule_of for extension in extensions), tuple(stored), tuple(sorted(absent)), fault)

    def fields(self, sets: FieldSets, encodings: dict[str, str]) -> tuple[Field, ...]:
        """The dataset's fields. Raises UsageError for a name that is missing or taken."""
        present = {extension for names in sets if self._shape_of(names).fault is None for extension in names}
        found_at_all = {extension for names in sets for extension in names}
        if not present and all(rule.optional or found_at_all.intersection(rule.aliases) for rule in self.rules):
            raise self._no_sound_sample(sets)
        found: dict[str, Field] = {}
        for rule in self.rules:
            found |= {field.name: field for field in self._fields_of(rule, present)}
        extra = {LABEL_FIELD: "int"} if self.labels is not None else {}
        extra |= {PATH_FIELD: "str"} if self.keep_path else {}
        for name, encoding in extra.items():
            if name in found:
                raise UsageError(f"expected no .{name} files beside the option that makes the field {name!r}, got some")
            found[name] = Field(name, encoding)
        for name, encoding in encodings.items():
            if name not in found:
                raise UsageError(f"expected --columns of {', '.join(found)}, got {name!r}")
            found[name] = replace(found[name], encoding=encoding)
        return tuple(sorted(found.values(), key=lambda field: field.name))

    def _no_sound_sample(self, sets: FieldSets) -> UsageError:
        """What there is of each field lies in samples that are bad for another reason, mostly for lack of a field."""
        required = ", ".join(rule.name for rule in self.rules if not rule.optional)
        marked = ",".join(f"{rule.name}={'|'.join(rule.aliases)}?".replace(f"={rule.name}?", "?") for rule in self.rules)
        return UsageError(
            f"expected samples with one file for each of the fields {required}, got {shown_sets(sets)}; mark fields that may be missing, "
            f"as in --fields '{marked}', or make each file its own sample with --group file"
        )

    def _fields_of(self, rule: FieldRule, present: set[str]) -> list[Field]:
        extensions = [alias for alias in rule.aliases if alias in present]
        if not extensions and not rule.optional:
            raise UsageError(f"expected files for the field {rule.name!r}, got none; mark it optional with {rule.name}?")
        by_name: dict[str, list[str]] = {}
        for extension in extensions:
            by_name.setdefault(self.stored_names[extension], []).append(extension)
        fields = []
        for name, stored in by_name.items():
            kinds = {FILE_ENCODINGS.get(extension, "bytes") for extension in stored}
            fields.append(Field(name, kinds.pop() if len(kinds) == 1 else "bytes", rule.optional or len(by_name) > 1))
        return fields

    def bad_samples(self, sets: FieldSets) -> Counter[str]:
        """Samples that the names of their files make bad, counted by reason."""
        counts: Counter[str] = Counter()
        for names, count in sets.items():
            shape = self._shape_of(names)
            if shape.fault is not None and any(shape.taken):
                counts[shape.fault.reason] += count
        return counts

    def _shape_of(self, extensions: tuple[str, ...]) -> Shape:
        return self.shape(tuple(extension.encode() for extension in extensions))

    def left_out(self, sets: FieldSets) -> Counter[str]:
        """Files that are left out, counted by extension."""
        counts: Counter[str] = Counter()
        if not self.leaves_out:
            return counts
        for names, count in sets.items():
            counts.update({f".{name} files": count for name in names if name not in self.stored_names})
        return counts


def label_names(folders: Sequence[bytes]) -> tuple[str, ...]:
    """The top-level folders of the given folders, sorted by bytes."""
    tops = sorted({folder.partition(b"/")[0] for folder in folders if folder})
    if not tops:
        raise UsageError("expected a folder for each label below the source, got files without folders; leave --label-from out")
    return tuple(name.decode("utf-8", "surrogateescape") for name in tops)

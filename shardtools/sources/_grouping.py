"""Which files are one sample, what its fields are called, and under which rules that was decided."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from shardtools.errors import UsageError
from shardtools.formats import IMAGE_EXTENSIONS
from shardtools.keys import is_legal_field
from shardtools.sources._scanned import Scan
from shardtools.units import plural

NO_EXTENSION_FIELD = "bin"
"""The field of a file without an extension; readers drop members that have none."""
_AUDIO = "aac aiff flac m4a mp3 ogg opus wav wma"
_VIDEO = "avi m4v mkv mov mp4 mpeg mpg webm wmv"
_KINDS = {kind: frozenset(words.split()) for kind, words in (("image", IMAGE_EXTENSIONS), ("audio", _AUDIO), ("video", _VIDEO))}
_KIND_OF = {extension: kind for kind, extensions in _KINDS.items() for extension in extensions}
_MIXED_COLUMN = "data"

_SHOWN_FIELDS = 5
CHOOSE_RULE = "choose with --group first-dot (as WebDataset reads names), --group last-dot, or --group file (each file its own sample)"

FieldSets = Counter[tuple[str, ...]]
"""How many samples have which fields, each tuple sorted, repeats kept."""


@dataclass(frozen=True)
class FieldRule:
    """One field of every sample: the file extensions that count as it."""

    name: str
    aliases: tuple[str, ...]
    optional: bool = False

    def stored_name(self, extension: str, keep_extensions: bool) -> str:
        """What the field is called in the dataset.

        Tar members keep their own extension where several kinds share one name that is none of them: readers decode by extension.
        """
        own = keep_extensions and len(self.aliases) > 1 and self.name not in self.aliases
        return extension if own else self.name


Split = Callable[[bytes], tuple[bytes, bytes]]
PlannedFile = tuple[bytes, bytes, bytes, bytes]
"""Field, name, size and mtime_ns of a file, the numbers as decimal text."""


def splitter(rule: str) -> Split:
    """Splits a file name into stem and field by ``first-dot``, ``last-dot`` or ``file``."""
    fields: dict[bytes, bytes] = {}

    def split(name: bytes) -> tuple[bytes, bytes]:
        if rule == "first-dot" and not name.startswith(b"."):
            stem, _, extension = name.partition(b".")
        else:
            stem, extension = split_name(name, rule)
        field = fields.get(extension)
        if field is None:
            field = fields[extension] = _field_name(extension, rule).encode()
        return stem, field

    return split


def groups(entries: Iterable[bytes], split: Split) -> Iterator[tuple[bytes, list[PlannedFile]]]:
    """The samples of one folder: stems in order, each with its files sorted by field.

    Holds one bytes object for each file of the folder, since a folder may hold all of them.
    """
    rows = sorted([b"\0".join((*split(entry.partition(b"\0")[0]), entry)) for entry in entries])
    stem, files = b"", list[PlannedFile]()
    for row in rows:
        this_stem, field, name, num_bytes, modified_ns = row.split(b"\0")
        if files and this_stem != stem:
            yield stem, files
            files = []
        stem = this_stem
        files.append((field, name, num_bytes, modified_ns))
    if files:
        yield stem, files


def split_name(name: bytes, rule: str) -> tuple[bytes, bytes]:
    """Stem and extension of a file name; dots that begin a name begin no extension."""
    lead = len(name) - len(name.lstrip(b".")) if name.startswith(b".") else 0
    dot = name.find(b".", lead) if rule == "first-dot" else name.rfind(b".", lead)
    if dot < 0:
        return name, b""
    return name if rule == "file" else name[:dot], name[dot + 1 :]


def choose_rule(scans: Sequence[Scan], aliases: dict[str, str], remedy: str = CHOOSE_RULE) -> tuple[str, str | None]:
    """``first-dot`` or ``last-dot`` by what the names allow, with a note where they differ.

    ``aliases`` maps extensions to the field they count as. Raises UsageError, which ends in the remedy, where both readings are possible.
    """
    if not any(scanned.has_dotted_stems for scanned in scans):
        return "first-dot", None
    readings = {rule: _field_sets(scans, rule, aliases) for rule in ("first-dot", "last-dot")}
    first, last = readings.values()
    uniform = [rule for rule, sets in readings.items() if len(sets) == 1]
    if len(uniform) == 1:
        other = "last-dot" if uniform[0] == "first-dot" else "first-dot"
        return uniform[
            0
        ], f"grouped by --group {uniform[0]}: it gives {shown_sets(readings[uniform[0]])}; {other} would give {shown_sets(readings[other])}"
    if not uniform and all(len(fields) == 1 for fields in [*first, *last]) and sum(first.values()) == sum(last.values()):
        return "last-dot", "grouped by --group last-dot: every file is a sample of its own, dots in names belong to the key"
    raise UsageError(
        f"expected names with one reading; by the first dot they give {shown_sets(first)}, by the last dot {shown_sets(last)}: {remedy}"
    )


def field_rules(sets: FieldSets) -> tuple[FieldRule, ...]:
    """The fields a folder has when the user named none.

    Media of several kinds count as one field, lone files of any kind too. What most samples have, every sample must have;
    other fields are optional, so that a stray file is bad by itself and does not make the others so.
    """
    extensions = sorted({extension for fields in sets for extension in fields if is_legal_field(extension)})
    if len(extensions) > 1 and all(len(fields) == 1 for fields in sets):
        kinds = {_KIND_OF.get(extension, _MIXED_COLUMN) for extension in extensions}
        return (FieldRule(kinds.pop() if len(kinds) == 1 else _MIXED_COLUMN, tuple(extensions)),)
    rules = []
    for kind, members in _KINDS.items():
        found = [extension for extension in extensions if extension in members]
        if len(found) > 1 and all(sum(field in found for field in fields) <= 1 for fields in sets):
            rules.append(FieldRule(kind, tuple(found)))
            extensions = [extension for extension in extensions if extension not in found]
    rules += [FieldRule(extension, (extension,)) for extension in extensions]
    usual = _usual_fields(sets, {alias: rule.name for rule in rules for alias in rule.aliases})
    return tuple(sorted((replace(rule, optional=rule.name not in usual) for rule in rules), key=lambda rule: rule.name))


def _usual_fields(sets: FieldSets, name_of: dict[str, str]) -> set[str]:
    """The fields of more than half of all samples; all fields where no set of fields is that usual."""
    named: Counter[tuple[str, ...]] = Counter()
    for fields, count in sets.items():
        named[tuple(sorted({name_of[field] for field in fields if field in name_of}))] += count
    fields, count = named.most_common(1)[0]
    return set(fields) if 2 * count > named.total() else set(name_of.values())


def parse_field_rules(text: str) -> tuple[FieldRule, ...]:
    """``image=jpg|jpeg|png,json?``: names, the extensions that count as them, ``?`` after what may be missing."""
    rules = []
    for part in text.split(","):
        body = part.strip()
        optional = body.endswith("?")
        name, separator, aliases = body.removesuffix("?").partition("=")
        extensions = tuple(alias.strip().lower() for alias in (aliases or name).split("|"))
        if not name.strip() or not all(extensions) or (separator and not aliases):
            raise UsageError(f"expected --fields like image=jpg|jpeg|png,json?, got {part!r} in {text!r}")
        rules.append(FieldRule(name.strip(), extensions, optional))
    used = Counter(alias for rule in rules for alias in rule.aliases) + Counter({rule.name for rule in rules})
    names = Counter(rule.name for rule in rules)
    for word, count in [*names.items(), *Counter(alias for rule in rules for alias in rule.aliases).items()]:
        if count > 1:
            raise UsageError(f"expected every field and extension once in --fields, got {word!r} {used[word]} times")
    return tuple(sorted(rules, key=lambda rule: rule.name))


def _field_name(extension: bytes, rule: str) -> str:
    name = extension.decode("utf-8", "backslashreplace").lower() if extension else NO_EXTENSION_FIELD
    # Where the key holds the whole file name, nothing is lost by a plainer field.
    return NO_EXTENSION_FIELD if rule == "file" and not is_legal_field(name) else name


def _field_sets(scans: Sequence[Scan], rule: str, aliases: dict[str, str]) -> FieldSets:
    split = splitter(rule)
    found = (files for scanned in scans for entries in scanned.folders.values() for _, files in groups(entries, split))
    return Counter(tuple(sorted(aliases.get(file[0].decode(), file[0].decode()) for file in files)) for files in found)


def shown_sets(sets: FieldSets) -> str:
    """The most usual kinds of sample, by their fields, counted."""
    common = sets.most_common(2)
    text = " and ".join(f"{plural(count, 'sample')} of {_joined(fields)}" for fields, count in common)
    return text + (f" and {len(sets) - len(common)} more kinds" if len(sets) > len(common) else "")


def _joined(fields: Sequence[str]) -> str:
    return "+".join(fields[:_SHOWN_FIELDS]) + (f"+{len(fields) - _SHOWN_FIELDS} more" if len(fields) > _SHOWN_FIELDS else "")

"""Extents of files: a tree listed, grouped into samples and packed, in parts that any process can do."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from shardtools.extents import extent
from shardtools.keys import escape_key
from shardtools.sources._grouping import NO_EXTENSION_FIELD, FieldSets, groups, split_name, splitter
from shardtools.sources._scan import Subtree, scan_subtree
from shardtools.sources._scanned import Scan

VERSIONS_APART = b" "
"""Between the versions of a sample's files; no time and no ETag holds one."""
_MAX_EXAMPLES = 3
_BARE = NO_EXTENSION_FIELD.encode()


@dataclass
class FilePlan:
    """The samples of a part of the input; parts add up."""

    extents: list[bytes] = field(default_factory=list)
    """``key, root, folder, (field, size, name)...`` with the files' mtimes as version, not sorted."""
    sets: FieldSets = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    num_links: int = 0
    num_escaped: int = 0
    escaped: list[tuple[bytes, bytes]] = field(default_factory=list)
    """The first few (path without suffix, key) that differ, sorted."""
    newest_ns: int = 0
    has_dotted_stems: bool = False
    num_bare: int = 0
    """Samples with a file that has no extension."""

    @classmethod
    def merged(cls, parts: Iterable["FilePlan"]) -> "FilePlan":
        """All parts as one, its extents sorted, which is by the bytes of their keys."""
        whole = cls()
        for part in parts:
            whole.extents += part.extents
            whole.sets.update(part.sets)
            whole.skipped.update(part.skipped)
            whole.num_links += part.num_links
            whole.num_escaped += part.num_escaped
            whole.escaped = sorted(whole.escaped + part.escaped)[:_MAX_EXAMPLES]
            whole.newest_ns = max(whole.newest_ns, part.newest_ns)
            whole.has_dotted_stems |= part.has_dotted_stems
            whole.num_bare += part.num_bare
        whole.extents.sort()
        return whole


@dataclass(frozen=True)
class PlanSubtree:
    """Lists one part of the input and groups its files by a rule; a task for an engine."""

    rule: str

    def __call__(self, item: Subtree, report: Any) -> FilePlan:
        return plan_scan(scan_subtree(item), item.root, self.rule)


def plan_scan(scanned: Scan, root: int, rule: str) -> FilePlan:
    """The samples of scanned files."""
    planned = FilePlan(
        skipped=scanned.skipped,
        num_links=scanned.num_links,
        newest_ns=scanned.newest_ns,
        has_dotted_stems=scanned.has_dotted_stems,
    )
    split, escaped = splitter(rule), []
    sets: Counter[tuple[bytes, ...]] = Counter()
    for folder, entries in scanned.folders.items():
        prefix = folder + b"/" if folder else b""
        for stem, files in groups(entries, split):
            raw = prefix + stem
            key = escape_key(raw)
            if key is not raw:
                escaped.append((raw, key))
            parts = [key, b"%d" % root, folder]
            for name, file_name, num_bytes, _ in files:
                parts += (name, num_bytes, file_name)
            fields = tuple([file[0] for file in files])
            sets[fields] += 1
            if _BARE in fields:
                # Files that are called .bin have that field too.
                planned.num_bare += any(not split_name(file[1], rule)[1] for file in files)
            planned.extents.append(extent(parts, VERSIONS_APART.join([file[3] for file in files])))
    planned.sets = Counter({tuple(name.decode() for name in names): count for names, count in sets.items()})
    planned.num_escaped = len(escaped)
    planned.escaped = sorted(escaped)[:_MAX_EXAMPLES]
    return planned

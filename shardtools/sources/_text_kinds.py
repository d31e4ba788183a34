"""Files whose text is to be tokenized: each one document, all of them together one field."""

from collections import Counter
from collections.abc import Iterable, Sequence

from shardtools.errors import UsageError
from shardtools.sources._grouping import NO_EXTENSION_FIELD, FieldRule, FieldSets

_TABLES = {"csv": "csv", "tsv": "csv", "parquet": "parquet", "arrow": None}
"""Kinds of tables, each with the source that reads its rows."""
_COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz")
_TEXTS = (
    "txt md rst tex html htm xml json yaml yml toml ini cfg css js jsx ts tsx py pyi ipynb c h cc cpp hpp cs java kt go rs rb php pl lua "
    "r jl scala swift sh bash sql srt vtt log"
)
_TEXT_KINDS = frozenset(_TEXTS.split())
_MOST_SHOWN = 8
_MOST_ADVISED = 6


def refuse_unfit(sets: FieldSets, rules: Sequence[FieldRule], given: Sequence[FieldRule] | None) -> None:
    """Raises UsageError where the files are not one field, or are tables; ``given`` are the rules that the user named."""
    refuse_only_tables(sets)
    kinds, named = _kinds(sets), [alias for rule in given or () for alias in rule.aliases]
    if given is not None and not any(extension in named for names in sets for extension in names):
        raise UsageError(f"expected files of the kind {_listed(named)}, got {_listed(kinds)}; --text-key names the extension of files")
    if len(rules) != 1:
        shown = _listed(kinds if given is None else named)
        raise UsageError(f"expected one kind of text to tokenize, got {shown}; choose it with --text-key, or {each_file(sets, given)}")
    _refuse_tables([kind for kind in kinds if given is None or kind in named])


def refuse_only_tables(sets: FieldSets) -> None:
    """Raises UsageError where there is nothing but tables, however their names are read."""
    kinds = _kinds(sets)
    if all(_table(kind) for kind in kinds):
        _refuse_tables(kinds)


def _refuse_tables(kinds: Iterable[str]) -> None:
    tables = sorted({f".{_table(kind)}" for kind in kinds if _table(kind)})
    if tables:
        readers = {_TABLES[kind.removeprefix(".")] for kind in tables}
        remedy = (
            f"read their rows with --from {readers.pop()}" if readers in ({"csv"}, {"parquet"}) else "convert them to Parquet or JSON lines"
        )
        raise UsageError(f"expected text to tokenize, got {' and '.join(tables)} files, each of which would be one document; {remedy}")


def each_file(sets: FieldSets, given: Sequence[FieldRule] | None) -> str:
    """What to do so that every file of text is one document, whatever its kind."""
    kinds = _kinds(sets)
    aliases = {alias for rule in given or () for alias in rule.aliases}
    names = sorted(kinds, key=lambda name: (-kinds[name], name))
    texts = [name for name in names if name in aliases] or [name for name in names if name in _TEXT_KINDS] or ["txt"]
    return f"make each file one document with --group file --fields 'text={'|'.join(texts[:_MOST_ADVISED])}'"


def _kinds(sets: FieldSets) -> Counter[str]:
    """How many files there are of each extension, which ``--group file`` reads from the last dot on."""
    kinds: Counter[str] = Counter()
    for names, count in sets.items():
        for extension in names:
            kinds[_plain(extension)] += count
    return kinds


def _plain(extension: str) -> str:
    packed = next((ending for ending in _COMPRESSIONS if extension.endswith(ending)), "")
    return extension.removesuffix(packed).rpartition(".")[2] + packed


def _table(kind: str) -> str:
    """The kind of table that it is, empty for none."""
    name = kind.partition(".")[0]
    return name if name in _TABLES else ""


def _listed(kinds: Iterable[str]) -> str:
    names = sorted("files without extension" if kind == NO_EXTENSION_FIELD else kind for kind in kinds)
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return ", ".join(names[:_MOST_SHOWN]) + more

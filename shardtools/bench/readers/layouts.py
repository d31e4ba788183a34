"""What a user names becomes layouts, and one workload that fits all of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardtools.bench.places import is_one, names_in
from shardtools.bench.readers.first import first_sample
from shardtools.bench.readers.recipes import encoding_of, packing_of, recipe_of
from shardtools.bench.readers.side import RawSample
from shardtools.bench.spec import Kind, Layout, ReaderName, Workload
from shardtools.datasets import is_shard_name, open_dataset, survey_dataset
from shardtools.errors import UsageError
from shardtools.manifest import MANIFEST_NAME
from shardtools.sources.jsonl import LINE_SUFFIXES

_DEFAULT: dict[Kind, ReaderName] = {"files": "torch", "jsonl": "torch", "wds": "webdataset", "mds": "streaming"}
_READERS: dict[Kind, tuple[ReaderName, ...]] = {kind: (own,) if kind == "files" else (own, "shardtools") for kind, own in _DEFAULT.items()}
_NAMES = ("torch", "webdataset", "streaming", "shardtools")


def layouts_of(uris: Sequence[str], readers: Sequence[str] = (), tokenizes: bool = False) -> list[Layout]:
    """A layout for every URI and every one of the readers that reads what is there, else its default reader.

    Files and JSON lines are read by ``torch``, WDS by ``webdataset``, MDS by ``streaming``; ``shardtools`` on request, but not for
    JSON lines that are tokenized on the fly. Raises UsageError for what is not there, and for a reader that reads none of it.
    """
    for name in readers:
        if name not in _NAMES:
            raise UsageError(f"expected a reader as one of {', '.join(_NAMES)}, got {name!r}")
    found: list[Layout] = []
    for uri in uris:
        kind = kind_of(uri)
        able = _READERS[kind][:1] if tokenizes and kind == "jsonl" else _READERS[kind]
        chosen = [reader for reader in able if reader in readers] or [_DEFAULT[kind]]
        found += [Layout(uri, kind, reader) for reader in chosen]
    useless = next((name for name in readers if name not in {layout.reader for layout in found}), None)
    if useless is not None:
        kinds = ", ".join(sorted({layout.kind for layout in found}))
        raise UsageError(f"expected a reader of {kinds}, got {useless}; leave it out")
    return found


def kind_of(uri: str) -> Kind:
    """What lies there. Raises UsageError where nothing does."""
    if uri.lower().endswith(LINE_SUFFIXES) and is_one(uri):
        return "jsonl"
    names = names_in(uri)
    if _holds_lines_alone(names or ()):
        return "jsonl"
    try:
        survey_dataset(uri)
    except UsageError:
        # A folder of files is what is left, unless it is a dataset with a fault.
        if names is None or ".shardtools" in names or any(is_shard_name(name) for name in names):
            raise
        return "files"
    return "mds" if open_dataset(uri).format_name == "mds" else "wds"


def settle_workload(layouts: Sequence[Layout], workload: Workload) -> Workload:
    """The workload with every choice made, the same for all sides. Settling once more changes nothing.

    Raises UsageError where there is no choice that fits all sides, or where a tokenizer or length of rows is missing or another.
    """
    if workload.like is None:
        workload = replace(workload, like=_like(layouts))
    if workload.decode == "auto":
        looks = [_look(layout, workload) for layout in layouts]
        workload = replace(workload, decode=_decode(looks))
    return _with_rows(layouts, workload) if workload.decode == "tokens" else workload


@dataclass(frozen=True)
class _Look:
    """What the first sample of a layout holds."""

    layout: Layout
    has_tokens: bool
    has_image: bool
    has_text: bool


def _look(layout: Layout, workload: Workload) -> _Look:
    from shardtools.bench.readers.prepare import TOKEN_FIELDS, is_image, text_of

    raw = first_sample(layout, workload)
    has_tokens = any(name in raw for name in TOKEN_FIELDS) or (layout.kind == "jsonl" and workload.tokenizer is not None)
    return _Look(layout, has_tokens, any(map(is_image, raw.values())), _has_text(raw, workload, text_of))


def _has_text(raw: RawSample, workload: Workload, text_of: Any) -> bool:
    try:
        text_of(raw, tuple(workload.text_key.split(".")))
    except ValueError:
        return False
    return True


def _decode(looks: Sequence[_Look]) -> str:
    if any(look.has_tokens for look in looks):
        other = next((look.layout for look in looks if not look.has_tokens), None)
        if other is None:
            return "tokens"
        packed = next(look.layout.uri for look in looks if look.has_tokens)
        remedy = "give --tokenizer, so that it is tokenized as it is read" if other.kind == "jsonl" else "name sides that hold the same"
        raise UsageError(f"expected tokens on all sides, since {packed} holds tokens, got {other.uri} without; {remedy}")
    if all(look.has_image for look in looks):
        return "rgb"
    # Columns of MDS are other bytes than the record they came from.
    kinds = {look.layout.kind for look in looks}
    return "text" if {"mds"} < kinds and all(look.has_text for look in looks) and not any(look.has_image for look in looks) else "none"


def _with_rows(layouts: Sequence[Layout], workload: Workload) -> Workload:
    """The length of rows and the place of the text, as the shards were packed."""
    is_on_the_fly = any(layout.kind == "jsonl" for layout in layouts)
    if is_on_the_fly and workload.tokenizer is None:
        raise UsageError("expected --tokenizer FILE with JSON lines to tokenize on the fly, got none; name the tokenizer.json")
    recipe = None if workload.like is None else recipe_of(workload.like)
    packing = packing_of(recipe)
    if packing is None or recipe is None:
        return workload
    rows = packing["seq_len"] if packing["strategy"] != "none" else None
    if workload.seq_len is not None and rows != workload.seq_len:
        raise UsageError(f"expected --seq-len {rows}, since {workload.like} is packed so, got {workload.seq_len}; leave it out")
    mappings = (recipe["source"].get("layout") or {}).get("mappings") or []
    text_key = mappings[0]["record_field"] if len(mappings) == 1 else workload.text_key
    return replace(workload, seq_len=rows, text_key=text_key)


def _like(layouts: Sequence[Layout]) -> str | None:
    """The dataset that was packed from sources of the same kind as the other sides."""
    kinds = {layout.kind for layout in layouts}
    for layout in layouts:
        recipe = recipe_of(layout.uri) if layout.kind in ("wds", "mds") else None
        if recipe is not None and (recipe["source"]["name"] in kinds or encoding_of(recipe) is not None):
            return layout.uri
    return None


def _holds_lines_alone(names: Sequence[str]) -> bool:
    """Whether a folder is no dataset, but JSON lines lie right in it."""
    is_dataset = any(name in (MANIFEST_NAME, "index.json") or is_shard_name(name) for name in names)
    return not is_dataset and any(name.lower().endswith(LINE_SUFFIXES) for name in names)

"""Blocks of stored samples as batches of the dataset that is made of them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardtools import keys
from shardtools.formats import ShardFormat
from shardtools.sample import Batch, Reject, RejectSink
from shardtools.sources import PATH_FIELD
from shardtools.sources._shard_blocks import Block
from shardtools.sources._shard_fields import ShardLayout
from shardtools.sources._shard_view import ShardView

_LEGAL_KEYS = re.compile(b"(?:%b\n)*" % keys.KEY.pattern)


@dataclass(frozen=True)
class Places:
    """Of the shard that a block is part of."""

    shard_format: ShardFormat
    where: Callable[[int, str | None], str]
    prefix: bytes
    """What keys begin with that are no keys of the dataset but numbers of rows."""
    root: int
    """Index of the input."""


def batch_of(block: Block, layout: ShardLayout, places: Places, reject: RejectSink, extras: Sequence[str]) -> Batch:
    """The samples of the block that are sound, as the layout makes them."""
    view = ShardView(layout, block, places.shard_format)
    raw_keys = view.keys(places.prefix)
    columns = {part.name: view.values(part) for part in layout.parts}
    if layout.keep_path:
        columns[PATH_FIELD] = [(raw or b"").decode("utf-8", "backslashreplace") for raw in raw_keys]
    view.refuse_names()
    made = Batch(
        legal_keys([raw or b"-" for raw in raw_keys]),
        columns,
        lambda i: places.where(block.offsets[i], block.keys[i].decode("utf-8", "backslashreplace")),
        extras={name: view.extra(name) for name in extras},
        root=places.root,
    )
    if not view.bad:
        return made
    for i, (reason, sentence, head) in sorted(view.bad.items()):
        reject(Reject(reason, made.where(i), sentence, head))
    return made.take([i for i in range(len(made)) if i not in view.bad])


def legal_keys(raw: Sequence[bytes]) -> list[bytes]:
    """Keys that every reader takes: those that are legal as they are, the others escaped."""
    lines = b"\n".join([*raw, b""])
    if max(map(len, raw), default=0) <= keys.MAX_KEY_BYTES and lines.count(b"\n") == len(raw) and _LEGAL_KEYS.fullmatch(lines):
        return list(raw)
    return [key if len(key) <= keys.MAX_KEY_BYTES and keys.KEY.fullmatch(key) else keys.escape_key(key) for key in raw]

"""Pieces of shards read as samples; nothing of a piece is passed over without a word."""

from collections.abc import Callable, Iterator, Sequence

from shardtools import plugins
from shardtools.datasets import Dataset, Shard, room
from shardtools.errors import DamagedShardError, StorageError
from shardtools.formats import ShardFormat
from shardtools.places import join
from shardtools.sample import Batch, Reject, RejectSink
from shardtools.sources._shard_blocks import Block, ShardLook
from shardtools.sources._shard_fields import ShardLayout
from shardtools.sources._shard_layout import Places, batch_of
from shardtools.sources._shard_pieces import Piece
from shardtools.storage import Storage, open_storage

_END_OF_TAR = 1024
_CHANGED = "expected the {} bytes it had when the run was planned, got {}; run again when nothing writes to the input"


class _LostError(Exception):
    """Nothing of a piece can be read; carries reason and sentence."""


def read_pieces(
    layout: ShardLayout,
    shard_format: ShardFormat,
    roots: Sequence[str],
    extents: Sequence[bytes],
    reject: RejectSink,
    extras: Sequence[str],
) -> Iterator[Batch]:
    """The samples of the extents, in order; see ``Source.read``."""
    for packed in extents:
        piece = Piece.unpacked(packed)
        where = _where(roots[piece.root], piece)
        places = Places(shard_format, where, b"%05d/" % piece.number if piece.is_keyless else b"", piece.root)
        for block in piece_blocks(roots[piece.root], piece, shard_format, layout, reject):
            batch = batch_of(block, layout, places, reject, extras)
            if batch.keys:
                yield batch


def piece_blocks(root: str, piece: Piece, shard_format: ShardFormat, layout: ShardLayout | None, reject: RejectSink) -> Iterator[Block]:
    """The samples of a piece as they are stored. Every one that cannot be read is rejected."""
    where = _where(root, piece)
    try:
        raw, shift = _raw(root, piece, shard_format)
        if layout is not None and layout.is_table:
            _check_columns(raw, layout)
    except _LostError as fault:
        reason, sentence = fault.args
        for _ in range(piece.count or 1):
            reject(Reject(reason, where(piece.first_byte or 0, None), sentence))
        return
    is_part = is_cut(piece, shard_format)
    first_row = piece.begin if is_part else 0
    look = ShardLook(shard_format, raw, reject, lambda offset, key: where(offset + shift, key), first_row)
    if is_part:
        yield from look.blocks()
        seen = look.num_samples
    else:
        seen = 0
        for block in look.blocks():
            begin, end = seen, seen + len(block.keys)
            seen = end
            part = block.part(max(piece.begin - begin, 0), end - begin if piece.end is None else max(min(piece.end, end) - begin, 0))
            if part.keys:
                yield part
        seen = look.num_samples
        if piece.end is not None and not piece.is_whole:
            seen = min(seen, piece.end) - min(seen, piece.begin)
    _close(piece, seen, reject, where)


def _close(piece: Piece, seen: int, reject: RejectSink, where: Callable[[int, str | None], str]) -> None:
    """Rejects what is missing of a piece whose count is known, or too much."""
    if piece.count is None or seen == piece.count:
        return
    sentence = f"expected {piece.count} samples here, as the shard's dataset says, got {seen}; restore the shard, or run shardtools verify"
    for _ in range(max(piece.count - seen, 1)):
        reject(Reject("damaged-shard", where(piece.first_byte or 0, None), sentence))


def is_cut(piece: Piece, shard_format: ShardFormat) -> bool:
    """Its samples are read without the others of the shard."""
    return piece.is_whole or piece.first_byte is not None or (shard_format.index_name is not None and piece.compression is None)


def _raw(root: str, piece: Piece, shard_format: ShardFormat) -> tuple[memoryview, int]:
    """A shard in memory that holds the samples of the piece, and where it cannot be cut, all; and how much further on they are stored.

    Raises _LostError.
    """
    storage = open_storage(root)
    _check_unchanged(storage, piece)
    try:
        if piece.first_byte is not None and piece.end_byte is not None:
            return _stretch(storage, piece.name, piece.first_byte, piece.end_byte), piece.first_byte
        if shard_format.index_name is not None and piece.compression is None and piece.num_samples is not None and piece.end is not None:
            from shardtools.formats.mds import rows_as_shard

            def read(begin: int, view: memoryview) -> None:
                storage.read_into(piece.name, view, begin)

            return rows_as_shard(read, room, piece.num_bytes, piece.num_samples, range(piece.begin, piece.end))
        shard = Shard(piece.number, piece.name, shard_format, piece.num_bytes, piece.num_samples, piece.compression)
        dataset = Dataset(root, plugins.name_of(shard_format), (), (shard,), None)
        if piece.compression is None:
            return dataset.stored(shard), 0
        return dataset.unpacked(shard, dataset.stored_file(piece.name)), 0
    except DamagedShardError as damage:
        raise _LostError("damaged-shard", f"expected a sound shard, got one where {damage.message}; restore it") from None


def _stretch(storage: Storage, name: str, begin: int, end: int) -> memoryview:
    """Neighbouring samples of a tar as an archive of their own."""
    whole = room(end - begin + _END_OF_TAR)
    storage.read_into(name, whole[: end - begin], begin)
    return whole


def _check_unchanged(storage: Storage, piece: Piece) -> None:
    found = storage.entry(piece.name)
    if found is None:
        raise _LostError("unreadable", "expected a readable shard, got none of that name; it was removed after planning")
    if found.num_bytes != piece.num_bytes:
        raise _LostError("changed", _CHANGED.format(piece.num_bytes, found.num_bytes))
    if found.version != piece.version:
        raise _LostError("changed", _CHANGED.format(piece.num_bytes, "as many others"))


def _check_columns(raw: memoryview, layout: ShardLayout) -> None:
    from shardtools.formats.mds import shard_config

    try:
        config = shard_config(raw)
    except DamagedShardError as damage:
        raise _LostError("damaged-shard", f"expected a sound shard, got one where {damage.message}; restore it") from None
    found = dict(zip(config["column_names"], config["column_encodings"], strict=True))
    for name, encoding in layout.encodings.items():
        if found.get(name) != encoding:
            got = f"{found[name]!r}" if name in found else "no such column"
            raise _LostError(
                "other-columns", f"expected a column {name!r} of {encoding!r}, as in the other shards, got {got}; pack it by itself"
            )


def _where(root: str, piece: Piece) -> Callable[[int, str | None], str]:
    place = join(root, piece.name)

    def where(offset: int, key: str | None) -> str:
        return f"{place}, sample {key}" if key is not None else f"{place}, byte {offset:,}"

    return where


def counted(root: str, piece: Piece, shard_format: ShardFormat) -> "tuple[int, ...] | None":
    """Where each sample of a whole shard begins, in the bytes that are read; None where it cannot be read to its end."""
    faults: list[Reject] = []
    try:
        found = [offset for block in piece_blocks(root, piece, shard_format, None, faults.append) for offset in block.offsets]
    except StorageError:
        return None
    return None if faults else tuple(found)

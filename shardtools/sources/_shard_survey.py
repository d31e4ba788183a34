"""Planning of shards as a source: what is common to tars and MDS."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, repeat
from typing import Any

from shardtools.errors import DamagedShardError, UsageError
from shardtools.formats import Encoder, ShardFormat
from shardtools.partitions import partition_bytes, tapered
from shardtools.sample import Batch, Field
from shardtools.sources import Survey, SurveyRequest
from shardtools.sources._shard_blocks import Block, blocks_of_samples
from shardtools.sources._shard_fields import RECORD_MEMBER, ShardLayout
from shardtools.sources._shard_inputs import ShardInputs, SourceShard, shard_inputs
from shardtools.sources._shard_layout import Places, batch_of
from shardtools.sources._shard_pieces import Piece, Run, cut_by_bytes, cut_by_samples
from shardtools.sources._shard_reading import counted
from shardtools.sources._shard_values import is_in_record, keys_of, member_encoding, parsed
from shardtools.sources._table_survey import FIRST_BYTES, FIRST_ROWS, PartitionInput, Sampled, partitions, sampled, with_keys


@dataclass
class First:
    """The first samples, which settle what nothing else tells."""

    blocks: list[tuple[SourceShard, Block]] = field(default_factory=list)
    damage: str | None = None


@dataclass(frozen=True)
class Settled:
    """What a source makes of them."""

    layout: ShardLayout
    fields: tuple[Field, ...]
    notes: tuple[str, ...] = ()


Settle = Callable[[ShardInputs, First, SurveyRequest], Settled]


def survey_shards(source: Any, format_name: str, request: SurveyRequest, settle: Settle) -> Survey:
    """The survey of shards of one format."""
    inputs = shard_inputs(request.inputs, format_name)
    first = _first(inputs)
    if not first.blocks:
        raise UsageError(f"expected shards with samples, got none that can be read: {first.damage or 'they are empty'}")
    if request.settled is not None and source.layout is not None:
        settled = Settled(source.layout, request.settled)
    else:
        settled = settle(inputs, first, request)
    encoder = request.format.encoder(settled.fields, request.limit.num_bytes)
    names = sorted(_names(first, settled.layout)) if request.extras else []
    shown = sampled(_batches(first, settled.layout, request.extras), names, request, lambda batch: _costs(encoder, batch))
    shards = list(inputs.shards)
    if request.limit.num_samples is not None and request.stored_ratio is None:
        shards = _with_counts(shards, request)
    survey = Survey(
        source=replace(source, layout=settled.layout),
        fields=settled.fields,
        partitions=list(partitions(_cut(shards, shown, request), shown.stored_ratio, request.limit)),
        preview=[],
        notes=[*inputs.notes, *settled.notes],
        newest_ns=inputs.newest_ns,
        expected_bytes=int(shown.stored_ratio * sum(source.raw_bytes for source in shards)),
    )
    return with_keys(survey, shown.keys, {key for _, block in first.blocks for key in block.keys})


def _first(inputs: ShardInputs) -> First:
    first = First()
    num_samples = num_bytes = 0
    for source in inputs.shards:
        dataset = inputs.datasets[source.root]
        try:
            for block in blocks_of_samples(islice(dataset.samples(source.shard), FIRST_ROWS - num_samples)):
                first.blocks.append((source, block))
                num_samples += len(block.keys)
                num_bytes += sum(len(value or b"") for name in block.names for value in block.column(name))
                if num_samples >= FIRST_ROWS or num_bytes >= FIRST_BYTES:
                    return first
        except DamagedShardError as damage:
            first.damage = first.damage or damage.message
    return first


def _batches(first: First, layout: ShardLayout, extras: Sequence[str]) -> Iterator[tuple[Batch, int]]:
    """The first samples as they will be, and how many bytes of the shards each batch of them is."""
    for source, block in first.blocks:
        # The keys of rows without any are made already.
        places = Places(source.shard.format, _nowhere, b"", source.root)
        num_bytes = sum(len(value or b"") for name in block.names for value in block.column(name))
        num_bytes += 8 * len(block.keys) if source.shard.format.index_name is not None else _tar_overhead(block)
        yield batch_of(block, layout, places, lambda _: None, extras), num_bytes


def _costs(encoder: Encoder, batch: Batch) -> Sequence[int]:
    return encoder.encode(batch, lambda _: None).costs if batch.keys else ()


def _nowhere(_: int, __: str | None) -> str:
    """Rejects of planning are told when they are read."""
    return ""


def _tar_overhead(block: Block) -> int:
    return sum(512 + -len(value) % 512 for name in block.names for value in block.column(name) if value is not None)


def _names(first: First, layout: ShardLayout) -> set[str]:
    """The columns or members of the first samples that JSON has values for, and the fields of their JSON member."""
    stored = {name if layout.is_table else name.lower() for _, block in first.blocks for name in block.names}
    names = {name for name in stored if is_in_record(layout.encodings.get(name, "bytes") if layout.is_table else member_encoding(name))}
    texts = [text for _, block in first.blocks if RECORD_MEMBER in block.names for text in block.column(RECORD_MEMBER)]
    return names.union(keys_of(map(parsed, texts)))


def _cut(shards: Sequence[SourceShard], shown: Sampled, request: SurveyRequest) -> Iterator[PartitionInput]:
    raw_bytes = sum(source.raw_bytes for source in shards)
    limit = request.limit
    target = partition_bytes(raw_bytes, shown.stored_ratio, limit.num_bytes, shown.beside_ratio)
    cuts: Iterator[list[Run]]
    if limit.num_samples is not None and all(source.shard.num_samples is not None for source in shards):
        cuts = cut_by_samples(shards, limit.num_samples, target)
    else:
        cuts = cut_by_bytes(shards, tapered(raw_bytes, target) if request.is_slow else repeat(target))
    for runs in cuts:
        counts = [run.num_samples for run in runs]
        num_samples = None if None in counts else sum(count for count in counts if count is not None)
        yield PartitionInput([piece.packed() for run in runs for piece in run.pieces()], sum(run.num_bytes for run in runs), num_samples)


@dataclass(frozen=True)
class _CountSamples:
    """Where the samples of a whole shard begin; work for any process."""

    roots: tuple[str, ...]
    shard_format: ShardFormat

    def __call__(self, item: Piece, report: Any) -> tuple[int, tuple[int, ...] | None]:
        return item.number, counted(self.roots[item.root], item, self.shard_format)


def _with_counts(shards: Sequence[SourceShard], request: SurveyRequest) -> list[SourceShard]:
    """The same shards, of which those that nobody counted are, so that every shard of the dataset can have its exact number."""
    unknown = [piece for source in shards if source.shard.num_samples is None for piece in Run(source, 0, None).pieces()]
    if not unknown:
        return list(shards)
    count = _CountSamples(tuple(given.root for given in request.inputs), shards[0].shard.format)
    found = {number: offsets for number, offsets in request.spread(count, unknown) if offsets is not None}
    return [_with_offsets(source, found.get(source.shard.index)) for source in shards]


def _with_offsets(source: SourceShard, found: tuple[int, ...] | None) -> SourceShard:
    if found is None:
        return source
    is_plain_tar = source.shard.format.index_name is None and source.shard.compression is None
    offsets = array("Q", (0, *found[1:], source.num_bytes)) if found and is_plain_tar else None
    return replace(source, shard=replace(source.shard, num_samples=len(found)), offsets=offsets)

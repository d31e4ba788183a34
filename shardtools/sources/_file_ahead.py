"""How much will be stored of files whose samples are chosen by what is in them, as the first samples show it."""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from shardtools.sources import PATH_FIELD, SurveyRequest
from shardtools.sources._extras import ratios
from shardtools.sources._file_reader import FileReader
from shardtools.sources._file_values import looked_into, record_field, record_names
from shardtools.sources._layout import LABEL_FIELD, Layout

_FIRST_SAMPLES = 1000


def costs_ahead(extents: Sequence[bytes], layout: Layout, request: SurveyRequest, costs: "array[int]") -> "array[int]":
    """The stored bytes of each sample by its share of what will be stored; reads the small files of the first 1,000.

    Raises UsageError for a name that is asked for beside the fields and none of them has.
    """
    if not request.extras:
        return costs
    # No image is read for what stands in the JSON file beside it.
    rules = tuple(replace(rule, optional=True) for rule in layout.rules if looked_into(rule))
    peek = replace(layout, rules=rules, leaves_out=True, keep_path=False)
    roots = [given.root for given in request.inputs]
    reader = FileReader(peek, roots, extents[:_FIRST_SAMPLES], lambda _: None, request.extras)
    try:
        first = list(reader.batches())
    finally:
        reader.close()
    record = record_field(layout)
    names = {PATH_FIELD, *([LABEL_FIELD] if layout.labels is not None else []), *(rule.name for rule in rules if rule.name != record)}
    names = names.union(*(record_names(stored) for batch in first for stored in batch.columns.get(record, ())))
    num_bytes = max(sum(islice(costs, _FIRST_SAMPLES)), 1)
    share = ratios(request, first, names, num_bytes, num_bytes).stored
    return costs if share == 1.0 else array("Q", (int(cost * share) for cost in costs))

"""Which small files make which sample, by the grouping that packing uses."""

import os
from collections.abc import Iterator
from itertools import compress
from typing import Any, NamedTuple

from shardtools import plugins
from shardtools.bench.readers.recipes import recipe_like
from shardtools.bench.spec import Workload
from shardtools.errors import UsageError
from shardtools.extents import identity
from shardtools.plan import ShardLimit
from shardtools.sample import Field
from shardtools.sources import SurveyRequest, resolve_inputs
from shardtools.sources.files import Files


class FileSample(NamedTuple):
    """Where one sample lies."""

    key: str
    files: tuple[tuple[str, bytes], ...]
    """Field and path of each."""


class SampleList:
    """All samples of folders, about 150 bytes each. Picklable."""

    def __init__(self, root: str, layout: Any, extents: list[bytes]) -> None:
        self._root = os.fsencode(root)
        self._layout = layout
        self._extents = extents

    def __len__(self) -> int:
        return len(self._extents)

    def __getitem__(self, i: int) -> FileSample:
        key, _, folder, *rest = identity(self._extents[i]).split(b"\0")
        taken = self._layout.shape(tuple(rest[::3])).taken
        path = b"/".join([self._root, folder, b""]) if folder else self._root + b"/"
        files = compress(zip(rest[::3], rest[2::3], strict=True), taken)
        return FileSample(key.decode(), tuple((field.decode(), path + name) for field, name in files))

    def keys(self) -> Iterator[str]:
        return (packed.partition(b"\0")[0].decode() for packed in self._extents)


def list_samples(uri: str, workload: Workload) -> SampleList:
    """The samples below a folder, as the recipe of ``workload.like`` groups them, else as their names show.

    Raises UsageError where names can be read in more than one way.
    """
    source, settled = _source_like(workload)
    inputs = resolve_inputs([uri.removeprefix("file://")])
    request = SurveyRequest(inputs, plugins.load("formats", "wds")(), ShardLimit(num_samples=1 << 40), settled=settled)
    survey = source.survey(request)
    extents = [extent for partition in survey.partitions for extent in partition.extents]
    return SampleList(inputs[0].root, survey.source.layout, extents)


def _source_like(workload: Workload) -> tuple[Any, tuple[Field, ...] | None]:
    recipe = recipe_like(workload)
    if recipe is None or recipe["source"]["name"] != "files":
        return Files(), None
    fields = tuple(Field(field["name"], field["encoding"], field["optional"]) for field in recipe["fields"])
    try:
        return plugins.restored("sources", recipe["source"]), fields
    except UsageError:
        return Files(), None

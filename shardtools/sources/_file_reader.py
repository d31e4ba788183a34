"""Reading planned samples into batches."""

from collections.abc import Iterator, Sequence
from typing import Any

from shardtools.sample import Batch, RejectSink
from shardtools.sources import PATH_FIELD
from shardtools.sources._file_values import FileValues
from shardtools.sources._inputs import is_uri
from shardtools.sources._layout import LABEL_FIELD, Layout
from shardtools.sources._local_files import LocalFiles
from shardtools.sources._object_files import ObjectFiles
from shardtools.sources._planned import Planned, RefusedSampleError, first_path, join, shown, unpacked

_BATCH_BYTES = 1 << 20
_BATCH_SAMPLES = 256

_NO_LABEL = "expected the file in a folder that names its label, got it beside those folders; move it or leave --label-from out"


class FileReader:
    """Turns the extents of one partition into batches, once."""

    def __init__(
        self, layout: Layout, roots: Sequence[str], extents: Sequence[bytes], reject: RejectSink, extras: Sequence[str] = ()
    ) -> None:
        self._layout = layout
        self._extents = extents
        self._reject = reject
        self._names = sorted({*layout.stored_names.values()})
        self._names += [LABEL_FIELD] * (layout.labels is not None) + [PATH_FIELD] * layout.keep_path
        self._has_extras = layout.labels is not None or layout.keep_path
        self._beside = FileValues(extras, layout) if extras else None
        self._beside_names = extras
        self._root = 0 if len(roots) == 1 else None
        self._inputs: list[LocalFiles | ObjectFiles] = []
        try:
            for index, root in enumerate(roots):
                self._inputs.append(ObjectFiles(root, self._readable(index)) if is_uri(root) else LocalFiles(root))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for files in self._inputs:
            files.close()

    def batches(self) -> Iterator[Batch]:
        batch, taken, batch_bytes = self._begin()
        for packed in self._extents:
            sample = unpacked(packed, self._layout)
            try:
                self._refuse_as_planned(sample)
                values = self._inputs[sample.root].read(sample)
                beside = {} if self._beside is None else self._beside.of(sample, dict(zip(sample.shape.stored, values, strict=True)))
            except RefusedSampleError as refused:
                self._reject(refused.reject)
                continue
            batch.keys.append(sample.key)
            taken.append(packed)
            for name, value in zip(sample.shape.stored, values, strict=True):
                batch.columns[name].append(value)
            for name, value in beside.items():
                batch.extras[name].append(value)
            for name in sample.shape.absent:
                batch.columns[name].append(None)
            for name, extra in self._extras(sample).items() if self._has_extras else ():
                batch.columns[name].append(extra)
            batch_bytes += sum(sample.sizes)
            if batch_bytes >= _BATCH_BYTES or len(taken) >= _BATCH_SAMPLES:
                yield batch
                batch, taken, batch_bytes = self._begin()
        if taken:
            yield batch

    def _begin(self) -> tuple[Batch, list[bytes], int]:
        taken: list[bytes] = []
        batch = Batch([], {name: [] for name in self._names}, lambda i: first_path(taken[i]), root=self._root)
        batch.extras = {name: [] for name in self._beside_names}
        return batch, taken, 0

    def _readable(self, root: int) -> Iterator[Planned]:
        """The samples of one input that will be read."""
        for packed in self._extents:
            sample = unpacked(packed, self._layout)
            if sample.root == root:
                try:
                    self._refuse_as_planned(sample)
                except RefusedSampleError:
                    continue
                yield sample

    def _refuse_as_planned(self, sample: Planned) -> None:
        """Raises RefusedSampleError where the sample is bad by the names and sizes of its files alone."""
        fault = sample.shape.fault
        if fault is not None:
            other = shown(join(sample.folder, sample.names[fault.other]))
            raise RefusedSampleError(fault.reason, join(sample.folder, sample.names[fault.file]), fault.sentence.format(other=other))
        if self._layout.labels is not None and sample.folder.partition(b"/")[0] not in self._layout.label_of:
            raise RefusedSampleError("no-label", join(sample.folder, sample.names[0]), _NO_LABEL)
        limit = self._layout.max_file_bytes
        if max(sample.sizes) > limit:
            for path, num_bytes in sample.taken():
                if num_bytes > limit:
                    sentence = f"expected at most {limit} bytes, the most the format can hold in one field, got {num_bytes}"
                    raise RefusedSampleError("too-large", path, sentence)

    def _extras(self, sample: Planned) -> dict[str, Any]:
        """The fields that no file holds."""
        extras: dict[str, Any] = {}
        if self._layout.labels is not None:
            extras[LABEL_FIELD] = self._layout.label_of[sample.folder.partition(b"/")[0]]
        if self._layout.keep_path:
            extras[PATH_FIELD] = shown(join(sample.folder, sample.names[0]))
        return extras

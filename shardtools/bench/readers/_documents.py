"""JSON lines tokenized on the fly: what training without packed shards does, with the tokenizer and settings of the packed side."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from torch.utils.data import IterableDataset, get_worker_info

from shardtools.bench.readers._again import DocumentsAgain
from shardtools.bench.readers._stopwatch import Stopwatch, now
from shardtools.bench.readers.lines import line_files, lines_between, lines_of_pieces, record_of, windows_of
from shardtools.bench.readers.opened import open_text
from shardtools.bench.readers.recipes import encoding_of, packing_of, recipe_like
from shardtools.bench.readers.side import KEY, Delivery, RawSample, Side
from shardtools.bench.spec import Layout, Workload
from shardtools.build.token_order import restored_transforms
from shardtools.errors import UsageError
from shardtools.plan import permutation
from shardtools.sample import Batch, Reject
from shardtools.sources.jsonl import TextFile
from shardtools.transforms import PartitionWork
from shardtools.transforms.tokenize import Tokenize, settle_tokenizer

_WINDOW_BYTES = 256 << 10

Tokens = npt.NDArray[Any]
Window = tuple[int, int, int]


class RowCutter:
    """Documents one behind the other, cut where a row is full."""

    def __init__(self, seq_len: int | None, traces: bool) -> None:
        self._seq_len = seq_len
        self._traces = traces
        self._rest: list[Tokens] = []
        self._pieces: list[tuple[bytes, int, int, int]] = []

    def rows(self, keys: list[bytes], documents: list[Tokens]) -> Iterator[RawSample]:
        """The rows that these documents fill. With ``seq_len`` None each is a row."""
        if self._seq_len is None:
            for key, tokens in zip(keys, documents, strict=True):
                yield _row(tokens, [(key, 0, len(tokens), len(tokens))])
            return
        if self._traces:
            self._pieces += [(key, 0, len(tokens), len(tokens)) for key, tokens in zip(keys, documents, strict=True)]
        stream = np.concatenate([*self._rest, *documents])
        whole = len(stream) - len(stream) % self._seq_len
        for begin in range(0, whole, self._seq_len):
            yield _row(stream[begin : begin + self._seq_len], self._taken(self._seq_len))
        self._rest = [stream[whole:]]

    def last(self) -> Iterator[RawSample]:
        """What is left, padded."""
        rest = self._rest[0] if self._rest else np.empty(0, np.int64)
        if len(rest) and self._seq_len is not None:
            yield _row(np.pad(rest, (0, self._seq_len - len(rest))), self._taken(len(rest)))
            self._rest = []

    def _taken(self, num_tokens: int) -> list[tuple[bytes, int, int, int]]:
        """The pieces of the next tokens: document, where in it, its tokens in all, tokens in the piece."""
        taken: list[tuple[bytes, int, int, int]] = []
        while self._traces and num_tokens:
            key, at, total, left = self._pieces[0]
            part = min(left, num_tokens)
            taken.append((key, at, total, part))
            num_tokens -= part
            self._pieces[:1] = [(key, at + part, total, left - part)] if left > part else []
        return taken


class OnTheFly(IterableDataset[Any]):
    """Rows of tokens; workers share windows of text, in an order that the seed fixes."""

    def __init__(self, files: list[TextFile], encode: Tokenize | DocumentsAgain, workload: Workload, delivery: Delivery) -> None:
        self._files = files
        self._encode = encode
        self._path = tuple(workload.text_key.split("."))
        self._seq_len = workload.seq_len
        self._delivery = delivery
        windows = windows_of(files, _WINDOW_BYTES)
        self._windows = [windows[i] for i in permutation(workload.seed, len(windows))] if workload.shuffle else windows
        self.num_bad = 0

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        windows = self._windows if worker is None else self._windows[worker.id :: worker.num_workers]
        cutter = RowCutter(self._seq_len, self._delivery.is_proof)
        storage, parse = Stopwatch(), Stopwatch()
        encoded = self._encode.apply(self._batches(windows, storage, parse), PartitionWork(0, self._set_aside, Counter()))
        for batch in self._timed(encoded, storage, parse):
            yield from map(self._delivery.finish, cutter.rows(batch.keys, batch.columns["tokens"]))
        yield from map(self._delivery.finish, cutter.last())

    def _timed(self, encoded: Iterator[Batch], storage: Stopwatch, parse: Stopwatch) -> Iterator[Batch]:
        """The same batches; what getting one takes beyond reading and parsing is tokenizing."""
        timers = self._delivery.timers
        if timers is None:
            yield from encoded
            return
        while True:
            (wall, cpu), batch = now(), next(encoded, None)
            whole_wall, whole_cpu = now()
            read_wall, read_cpu = storage.flush(timers, "storage")
            parse_wall, parse_cpu = parse.flush(timers, "parse")
            timers.add("decode", whole_wall - wall - read_wall - parse_wall, whole_cpu - cpu - read_cpu - parse_cpu)
            if batch is None:
                return
            yield batch

    def _batches(self, windows: list[Window], storage: Stopwatch, parse: Stopwatch) -> Iterator[Batch]:
        for which, begin, end in windows:
            began = now()
            lines = self._lines(which, begin, end)
            storage.add(began, sum(len(line) for _, line in lines))
            began = now()
            keys, texts = self._texts(which, lines)
            parse.add(began)
            if keys:
                yield Batch(keys, {self._encode.column: texts}, lambda i, keys=keys: str(keys[i]))  # type: ignore[misc]

    def _lines(self, which: int, begin: int, end: int) -> list[tuple[int, bytes]]:
        file = self._files[which]
        if file.is_compressed:
            return list(lines_of_pieces(file.text()))
        with open_text(file.path) as text:
            return list(lines_between(text, begin, end))

    def _texts(self, which: int, lines: list[tuple[int, bytes]]) -> tuple[list[bytes], list[Any]]:
        """Of the lines that hold a record with text; a document is named by its file and place."""
        keys, texts = [], []
        for offset, line in lines:
            record = record_of(line, offset)
            if not record:
                continue
            try:
                value: Any = orjson.loads(record)
            except orjson.JSONDecodeError:
                self.num_bad += 1
                continue
            for part in self._path:
                value = value.get(part) if isinstance(value, dict) else None
            keys.append(b"%d/%d" % (which, offset))
            texts.append(value)
        return keys, texts

    def _set_aside(self, reject: Reject) -> None:
        """Packing would have stopped or set it aside, too: the proof of equality tells."""
        self.num_bad += 1


def open_layout(layout: Layout, workload: Workload, delivery: Delivery) -> Side:
    encode = _encode(workload)
    used = DocumentsAgain(encode) if delivery.intervention == "decode" else encode
    dataset = OnTheFly(line_files(layout.uri), used, workload, delivery)
    kwargs = {"batch_size": workload.batch_size, "collate_fn": delivery.collate}
    library = "tokenizers" if encode.gigatoken is None else f"gigatoken {encode.gigatoken}"
    limits = [f"tokenized as it is read, by {library}, with the settings the shards were packed with"]
    packing = packing_of(recipe_like(workload))
    if workload.seq_len is not None and packing is not None and packing["strategy"] != "concat":
        limits.append(f"rows are cut from the stream of documents, those of the shards are packed by {packing['strategy']}")
    order = f"windows of {_WINDOW_BYTES >> 10} KiB shuffled" if workload.shuffle else "documents in file order"
    return Side(dataset, kwargs, None, order, limits)


def _encode(workload: Workload) -> Tokenize:
    """With the settings of the recipe that ``workload.like`` has, else by default."""
    assert workload.tokenizer is not None, "settled"
    recipe = recipe_like(workload)
    packed = encoding_of(recipe)
    if recipe is None or packed is None:
        return settle_tokenizer({"tokenizer": workload.tokenizer})[0]
    if packed["name"] != "tokenize":
        raise UsageError("expected documents to tokenize on the fly, got shards of chats; compare those shards with each other")
    encode = restored_transforms(recipe["transforms"], workload.tokenizer)[0]
    assert isinstance(encode, Tokenize)
    return encode


def _row(tokens: Tokens, pieces: list[tuple[bytes, int, int, int]]) -> RawSample:
    return {KEY: "", "tokens": tokens, "pieces": pieces}

"""Reading shards for training: our loaders, the peers' own datasets, and a bare loop over one flat file.

Run by ``_peers.main`` with what ``_loader_inputs.py`` made. Every side of a case has its samples consumed by the same function,
and leaves ``told.json`` at its destination: what each pass found. Opening the dataset counts, imports do not; where a case has
workers, or is so quick that the first look at a page would show, one pass is made before the clock starts.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

BATCH_SIZE = 32
SEQ_LEN = 2048
WORKERS = 2
IMAGE_SIDE = 224
RAW_PASSES = 5
"""Of the side that takes seconds where its peer takes a minute."""
TOKEN_PASSES = 10

Facts = dict[str, int]
Loop = Callable[[], None]


def pairs_ours(source: str, destination: str) -> Loop:
    """Undecoded and without a DataLoader, as by its peers."""
    from shardtools.loaders import open_dataset

    return _loop(destination, lambda: open_dataset(source, batch_size=BATCH_SIZE), count_pairs, RAW_PASSES)


def pairs_webdataset(source: str, destination: str) -> Loop:
    import webdataset

    return _loop(destination, lambda: webdataset.WebDataset(_tars(source), shardshuffle=False), count_pairs, 1)


def pairs_streaming(source: str, destination: str) -> Loop:
    streaming = _streaming(destination)
    return _loop(destination, lambda: streaming.StreamingDataset(local=source, batch_size=BATCH_SIZE, shuffle=False), count_pairs, 1)


def tokens_ours(source: str, destination: str) -> Loop:
    from torch.utils.data import DataLoader

    from shardtools.loaders import open_dataset

    dataset = open_dataset(f"{source}/mds", batch_size=BATCH_SIZE, decode="tokens")
    loader: DataLoader[Any] = DataLoader(
        dataset, batch_size=BATCH_SIZE, collate_fn=lambda samples: _stacked([sample["tokens"] for sample in samples])
    )
    return _loop(destination, lambda: loader, count_batches, TOKEN_PASSES, warm_up=sum_batches)


def tokens_streaming(source: str, destination: str) -> Loop:
    from torch.utils.data import DataLoader

    streaming = _streaming(destination)
    dataset = streaming.StreamingDataset(local=f"{source}/mds", batch_size=BATCH_SIZE, shuffle=False)
    loader: DataLoader[Any] = DataLoader(dataset, batch_size=BATCH_SIZE)
    return _loop(destination, lambda: (batch["tokens"] for batch in loader), count_batches, 1, warm_up=sum_batches)


def tokens_memmap(source: str, destination: str) -> Loop:
    """The loop of those who have no format: a slice a sample, and a stack of them a batch."""
    import numpy as np

    tokens = np.memmap(f"{source}/tokens.bin", np.uint16, mode="r")
    num_samples = len(tokens) // SEQ_LEN

    def batches() -> Iterator[Any]:
        for begin in range(0, num_samples, BATCH_SIZE):
            rows = range(begin, min(begin + BATCH_SIZE, num_samples))
            yield _stacked([tokens[i * SEQ_LEN : (i + 1) * SEQ_LEN] for i in rows])

    return _loop(destination, batches, count_batches, TOKEN_PASSES, warm_up=sum_batches)


def images_ours(source: str, destination: str) -> Loop:
    from shardtools.loaders import open_dataset

    return _with_workers(destination, open_dataset(source, batch_size=BATCH_SIZE, decode=picture))


def images_webdataset(source: str, destination: str) -> Loop:
    import webdataset

    return _with_workers(destination, webdataset.WebDataset(_tars(source), shardshuffle=False).map(picture))


def images_streaming(source: str, destination: str) -> Loop:
    streaming = _streaming(destination)

    class Pictures(streaming.StreamingDataset):  # type: ignore[misc, name-defined]
        def __getitem__(self, at: Any) -> Any:
            return picture(super().__getitem__(at))

    return _with_workers(destination, Pictures(local=source, batch_size=BATCH_SIZE, shuffle=False))


def count_pairs(samples: Iterable[Any]) -> Facts:
    num_samples = num_bytes = 0
    for sample in samples:
        num_samples += 1
        num_bytes += len(sample["jpg"]) + len(sample["json"])
    return {"samples": num_samples, "bytes": num_bytes}


def count_batches(batches: Iterable[Any]) -> Facts:
    return {"samples": sum(len(batch) for batch in batches)}


def sum_batches(batches: Iterable[Any]) -> Facts:
    """Samples, and the sum of all numbers in all tensors."""
    num_samples = total = 0
    for batch in batches:
        num_samples += len(batch)
        total += int(batch.numpy().sum(dtype="uint64"))
    return {"samples": num_samples, "sum": total}


def picture(sample: dict[str, Any]) -> Any:
    """The image of a sample as uint8 [3, 224, 224]: what every side's workers do."""
    from io import BytesIO

    import numpy as np
    import torch
    from PIL import Image

    image = Image.open(BytesIO(sample["jpg"])).convert("RGB").resize((IMAGE_SIDE, IMAGE_SIDE), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def _loop(
    destination: str,
    epoch: Callable[[], Iterable[Any]],
    consume: Callable[[Iterable[Any]], Facts],
    num_passes: int,
    warm_up: Callable[[Iterable[Any]], Facts] | None = None,
) -> Loop:
    found = [] if warm_up is None else [warm_up(epoch())]

    def loop() -> None:
        found.extend(consume(epoch()) for _ in range(num_passes))
        tell(destination, found)

    return loop


def _with_workers(destination: str, dataset: Any) -> Loop:
    """Workers live on from the pass that is not timed, so that starting them is in nobody's time."""
    from torch.utils.data import DataLoader

    loader: DataLoader[Any] = DataLoader(
        dataset, batch_size=BATCH_SIZE, num_workers=WORKERS, persistent_workers=True, multiprocessing_context="fork"
    )
    return _loop(destination, lambda: loader, count_batches, 1, warm_up=sum_batches)


def _stacked(rows: Sequence[Any]) -> Any:
    import numpy as np
    import torch

    return torch.from_numpy(np.stack(rows))


def _streaming(destination: str) -> Any:
    """The library, with its lock files in a folder of this run."""
    os.environ["TMPDIR"] = destination
    import streaming

    return streaming


def _tars(source: str) -> list[str]:
    return sorted(map(str, Path(source).glob("*.tar")))


def tell(destination: str, found: list[Facts]) -> None:
    Path(destination, "told.json").write_text(json.dumps(found))


PEERS = {
    "pairs-ours": pairs_ours,
    "pairs-webdataset": pairs_webdataset,
    "pairs-streaming": pairs_streaming,
    "tokens-ours": tokens_ours,
    "tokens-streaming": tokens_streaming,
    "tokens-memmap": tokens_memmap,
    "images-ours": images_ours,
    "images-webdataset": images_webdataset,
    "images-streaming": images_streaming,
}


if __name__ == "__main__":
    from _peers import main

    main(PEERS)

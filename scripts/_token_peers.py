"""The other side of each comparison of tokens: bare encoding, and the loops and pipelines users write.

Run by ``_peers.main`` with a folder that ``_token_inputs.py`` made; ``datatrove`` in a virtual environment of its own. Each
leaves ``tokens.json``, how many tokens it made, at its destination.
"""

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path

WORKERS = 2
SEQ_LEN = 2048
EOS = "<|endoftext|>"
_BATCH_BYTES = 4 << 20
_DATATROVE_BATCH = 500
"""Documents; the default of 10,000 would take 15 GB here, and a call costs nothing next to so many."""


def encode_with_threads(source: str, destination: str) -> Callable[[], None]:
    """``encode_batch_fast`` in batches of 4 MiB on texts that are parsed already, on as many threads as there are workers."""
    os.environ.update(TOKENIZERS_PARALLELISM="true", RAYON_NUM_THREADS=str(WORKERS))
    return _encode(source, destination)


def encode_alone(source: str, destination: str) -> Callable[[], None]:
    """The same on one thread."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return _encode(source, destination)


def _encode(source: str, destination: str) -> Callable[[], None]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(f"{source}/tokenizer/tokenizer.json")
    texts = [text for part in _parts(source) for text in _texts(part)]

    def loop() -> None:
        num_tokens = 0
        for batch in _batches(texts):
            num_tokens += sum(map(len, tokenizer.encode_batch_fast(batch, add_special_tokens=False))) + len(batch)
        _tell(destination, num_tokens)

    return loop


def count_tokens(source: str, destination: str) -> Callable[[], None]:
    """Not measured: the tokens of each part with an EOS for each document, which the other sides are held to."""
    os.environ.update(TOKENIZERS_PARALLELISM="true", RAYON_NUM_THREADS=str(WORKERS))
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(f"{source}/tokenizer/tokenizer.json")

    def loop() -> None:
        counts = []
        for part in _parts(source):
            encoded = (tokenizer.encode_batch_fast(batch, add_special_tokens=False) for batch in _batches(list(_texts(part))))
            counts.append(sum(len(ids) + 1 for batch in encoded for ids in batch))
        Path(destination, "counts.json").write_text(json.dumps(counts))

    return loop


def concat_to_mds(source: str, destination: str) -> Callable[[], None]:
    """One document at a time through the tokenizer, concatenated, cut into rows and into MDSWriter, as llm-foundry does it.

    Every worker has its share of the files and a dataset of its own. Kinder than the original, whose JSON converter is one
    process: no wrapper of ``transformers`` around the tokenizer, and ids in two bytes.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import numpy as np
    from streaming import MDSWriter
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(f"{source}/tokenizer/tokenizer.json")
    eos = tokenizer.token_to_id(EOS)

    def convert(worker: int) -> None:
        buffer: list[int] = []
        num_tokens = 0
        with MDSWriter(out=f"{destination}/{worker}", columns={"tokens": f"ndarray:uint16:{SEQ_LEN}"}) as writer:
            for part in _parts(source)[worker::WORKERS]:
                for text in _texts(part):
                    buffer += [*tokenizer.encode(text, add_special_tokens=False).ids, eos]
                    while len(buffer) >= SEQ_LEN:
                        writer.write({"tokens": np.array(buffer[:SEQ_LEN], np.uint16)})
                        num_tokens += SEQ_LEN
                        buffer = buffer[SEQ_LEN:]
        # The rest of the stream is lost: that is how it is done.
        _tell(f"{destination}/{worker}", num_tokens + len(buffer))

    def loop() -> None:
        # Forked, so that loading the libraries and the tokenizer is not in the time.
        context = multiprocessing.get_context("fork")
        processes = [context.Process(target=convert, args=(worker,)) for worker in range(WORKERS)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
            assert process.exitcode == 0, process.exitcode
        _tell(destination, sum(json.loads(path.read_text()) for path in Path(destination).glob("*/tokens.json")))

    return loop


def datatrove_pipeline(source: str, destination: str) -> Callable[[], None]:
    """JSONL to its own token files, unshuffled, without the merging step that follows."""
    os.environ["RAYON_NUM_THREADS"] = "1"
    from datatrove.executor.local import LocalPipelineExecutor  # type: ignore[import-not-found, unused-ignore]
    from datatrove.pipeline.readers import JsonlReader  # type: ignore[import-not-found, unused-ignore]
    from datatrove.pipeline.tokens import DocumentTokenizer  # type: ignore[import-not-found, unused-ignore]

    steps = [
        JsonlReader(f"{source}/parts"),
        DocumentTokenizer(
            f"{destination}/tokens",
            tokenizer_name_or_path=f"{source}/tokenizer/tokenizer.json",
            eos_token=EOS,
            batch_size=_DATATROVE_BATCH,
            shuffle_documents=False,
        ),
    ]

    def loop() -> None:
        LocalPipelineExecutor(steps, tasks=len(_parts(source)), workers=WORKERS, logging_dir=f"{destination}/logs").run()
        _tell(destination, sum(path.stat().st_size for path in Path(destination, "tokens").glob("*.ds")) // 2)

    return loop


def _parts(source: str) -> list[Path]:
    return sorted(Path(source, "parts").glob("*.jsonl"))


def _texts(part: Path) -> Iterator[str]:
    with open(part, "rb") as file:
        for line in file:
            yield json.loads(line)["text"]


def _batches(texts: list[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    num_bytes = 0
    for text in texts:
        batch.append(text)
        num_bytes += len(text)
        if num_bytes >= _BATCH_BYTES:
            yield batch
            batch, num_bytes = [], 0
    if batch:
        yield batch


def _tell(destination: str, num_tokens: int) -> None:
    Path(destination, "tokens.json").write_text(json.dumps(num_tokens))


PEERS = {
    "encode-with-threads": encode_with_threads,
    "encode-alone": encode_alone,
    "count-tokens": count_tokens,
    "concat-to-mds": concat_to_mds,
    "datatrove": datatrove_pipeline,
}


if __name__ == "__main__":
    from _peers import main

    main(PEERS)

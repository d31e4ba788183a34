"""The other side of each comparison of batch jobs: the loops users write to convert shards, and tables, with the reference libraries."""

import glob
import json
import os
from collections.abc import Callable

PAIR_COLUMNS = {"jpg": "bytes", "json": "json", "key": "str"}
"""Not ``jpeg``, for which MDSWriter wants an image and would encode it again."""
TABLE_COLUMNS = {
    "id": "str",
    "key": "str",
    "lang": "str",
    "num_characters": "int",
    "score": "float64",
    "text": "str",
    "url": "str",
}
BATCH_ROWS = 10_000
"""As Spark hands them over (spark.sql.execution.arrow.maxRecordsPerBatch)."""


def wds_to_mds(source: str, destination: str) -> Callable[[], None]:
    """``webdataset.WebDataset`` into ``MDSWriter``, images passed through as they are."""
    import webdataset
    from streaming import MDSWriter

    shards = sorted(glob.glob(f"{source}/*.tar"))

    def loop() -> None:
        with MDSWriter(out=destination, columns=PAIR_COLUMNS) as writer:
            for sample in webdataset.WebDataset(shards, shardshuffle=False):
                writer.write({"jpg": sample["jpg"], "json": json.loads(sample["json"]), "key": sample["__key__"]})

    return loop


def parquet_to_mds(source: str, destination: str) -> Callable[[], None]:
    """What ``streaming``'s ``dataframe_to_mds`` does in each task of Spark: batches of rows as dicts into ``MDSWriter``.

    By pyarrow alone; the way through pandas takes as long.
    """
    from pyarrow.parquet import ParquetFile
    from streaming import MDSWriter

    def loop() -> None:
        with MDSWriter(out=destination, columns=TABLE_COLUMNS) as writer:
            for path in sorted(glob.glob(f"{source}/*.parquet")):
                number = 0
                stem = os.path.basename(path).removesuffix(".parquet")
                for batch in ParquetFile(path).iter_batches(BATCH_ROWS):
                    for row in batch.to_pylist():
                        writer.write({**row, "key": f"{stem}/{number:012d}"})
                        number += 1

    return loop


PEERS = {"wds-to-mds": wds_to_mds, "parquet-to-mds": parquet_to_mds}


if __name__ == "__main__":
    from _peers import main

    main(PEERS)

"""A process of this package: ``python -m shardtools.bench.equality.process FOLDER MODULE``. Asked on standard input, answers in FOLDER.

It imports what reads only when it has its lifeline, since that takes seconds. Started by bench, never by users.
"""

import importlib
import json
import sys

from shardtools.bench.processes.lifeline import Lifeline


def main(folder: str, name: str) -> None:
    asked = json.loads(Lifeline(folder).next_line())
    importlib.import_module(f"shardtools.bench.equality.{name}").main(folder, asked)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

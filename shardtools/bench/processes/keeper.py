"""The end of a folder whose process was killed: ``python -m shardtools.bench.processes.keeper FOLDER``.

It waits for its standard input to end, which it does when whoever started it is gone, and removes the folder.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from shardtools.bench.processes.folders import private_folder


@contextmanager
def kept_folder() -> Iterator[str]:
    """A private folder for what is large: removed at the end, and at once where this process is killed."""
    with private_folder() as folder:
        command = [sys.executable, "-m", "shardtools.bench.processes.keeper", folder]
        # In a session of its own: a Ctrl-C of the terminal is not for it.
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True):
            yield folder


if __name__ == "__main__":
    while os.read(0, 4096):
        pass
    shutil.rmtree(sys.argv[1], ignore_errors=True)

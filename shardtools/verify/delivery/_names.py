"""Whether what the user names by ``--dataset`` and ``--id`` is there, looked up before anything is read.

``python -m shardtools.verify.delivery._names FLAG NAME ...`` looks, in a process of its own: to import a user's code may do
anything, and takes memory. It imports as the ranks do, from the current folder.
"""

import os
import subprocess
import sys

from shardtools.errors import UsageError
from shardtools.verify.delivery._ids import AbsentError, named_object
from shardtools.verify.options import DeliveryOptions

_ABSENT = 76
_SECONDS = 120.0


def refuse_unknown_names(options: DeliveryOptions) -> None:
    """Raises UsageError for names that cannot be imported. What else goes wrong there, the ranks will tell."""
    words = [word for flag, name in (("--dataset", options.factory), ("--id", options.id_of)) if name is not None for word in (flag, name)]
    if not words:
        return
    command = [sys.executable, "-m", "shardtools.verify.delivery._names", *words]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return
    said = done.stdout.decode("utf-8", "replace").splitlines()
    if done.returncode == _ABSENT and said:
        raise UsageError(said[-1])


def main(words: list[str]) -> None:
    """Look for each; the last line says what is not there. Nothing the user's code left running can hold this process."""
    for flag, name in zip(words[::2], words[1::2], strict=True):
        try:
            named_object(name, flag)
        except AbsentError as error:
            text = " ".join(str(error).splitlines())
            sys.stdout.buffer.write(f"\n{text}\n".encode("utf-8", "replace"))
            sys.stdout.flush()
            os._exit(_ABSENT)
        except BaseException:
            continue  # it may end its process too
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])

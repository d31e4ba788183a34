"""A process whose shared memory is small: ``python -m shardtools.bench.self_test.confined FOLDER NUM_BYTES``. Started by a self-test,
never by users.

The first line of standard input is the spec of a trial; FOLDER/answer is a JSON object, a verdict or why it could not be had. When
standard input ends the self-test is gone: see ``Lifeline``.
"""

import ctypes
import json
import os
import sys
from typing import Any

from shardtools.bench.processes.lifeline import Lifeline
from shardtools.bench.spec import spec_of

ANSWER_NAME = "answer"
_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_RECURSIVE, _PRIVATE = 0x4000, 0x40000
_SHARED_MEMORY = b"/dev/shm"


def shrink_shared_memory(num_bytes: int) -> None:
    """From now on this process and all it starts see a ``/dev/shm`` of that size; nobody else does. Call it before any thread begins.

    Raises OSError where this user may not.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    _require(libc.unshare(_NEW_MOUNTS if user == 0 else _NEW_MOUNTS | _NEW_USER))
    if user:
        _be(user, group)
    _require(libc.mount(b"none", b"/", None, ctypes.c_ulong(_RECURSIVE | _PRIVATE), None))
    _require(libc.mount(b"tmpfs", _SHARED_MEMORY, b"tmpfs", ctypes.c_ulong(0), f"size={num_bytes}".encode()))


def _be(user: int, group: int) -> None:
    """The same user inside a namespace of its own, in which it may mount."""
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _require(code: int) -> None:
    if code:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main(folder: str, num_bytes: int) -> None:
    # Before anything else: where threads run, and libraries start some, it is too late to shrink anything.
    found: dict[str, Any]
    try:
        shrink_shared_memory(num_bytes)
    except OSError as error:
        found = {"cannot": f"this user may not have a /dev/shm of its own: {error.strerror}"}
    else:
        spec = spec_of(json.loads(Lifeline(folder).next_line()))
        from shardtools.bench.self_test.judge import judged

        found = {"verdict": judged(spec, lambda _: None)}
    with open(os.path.join(folder, ANSWER_NAME), "w", encoding="utf-8") as answer:
        json.dump(found, answer)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

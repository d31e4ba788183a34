"""A process whose shared memory is small: ``python -m shardtools.bench.self_test.confined``. Started by a self-test, never by users.

The first line of standard input is the spec of a trial, the answer a JSON line: a verdict, or why it could not be had. When standard
input ends this process is interrupted, so that whoever started it can be sure that nothing of it stays.
"""

import ctypes
import json
import os
import signal
import threading
from contextlib import suppress

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


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGINT)


def _main() -> None:
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(0, 1) or b"\n"
    asked = json.loads(line)
    try:
        shrink_shared_memory(asked["shm_bytes"])
    except OSError as error:
        print(json.dumps({"cannot": f"this user may not have a /dev/shm of its own: {error.strerror}"}), flush=True)
        return
    threading.Thread(target=_end_with_input, name="shardtools-end-with-input", daemon=True).start()
    # Here, since libraries start threads, after which it would be too late to shrink anything.
    from shardtools.bench.self_test.judge import judged
    from shardtools.bench.spec import spec_of

    verdict = judged(spec_of(asked["spec"]), lambda _: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done but the answer
    print(json.dumps({"verdict": verdict}), flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        _main()

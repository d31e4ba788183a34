"""Ctrl-C: one line and code 130, also where an exception would end in somebody else's traceback.

Imports next to nothing, so that there is an answer from the first moment.
"""

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, NoReturn

INTERRUPTED = 130
_MESSAGE = b"error: interrupted; give the same command again: pack and merge go on where they stopped, others begin anew\n"


def end(*_: object) -> "NoReturn":
    """End this process. Python's own way out would kill it by the signal where an ``exec()`` of the library was interrupted."""
    try:
        os.write(2, _MESSAGE)
    finally:
        os._exit(INTERRUPTED)


class ends_at_once:  # noqa: N801, a context manager by its use
    """A context in which Ctrl-C ends the process there and then: for imports, in which nothing can be left undone.

    An exception in them would also pass through callbacks that print it and go on.
    """

    def __enter__(self) -> None:
        self._before: Any = signal.getsignal(signal.SIGINT)
        # A program in the background ignores it, and shall go on doing so.
        if self._before is signal.default_int_handler:
            signal.signal(signal.SIGINT, end)

    def __exit__(self, kind: "type[BaseException] | None", error: BaseException | None, trace: "TracebackType | None") -> None:
        if self._before is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._before)


def is_never_ignored() -> None:
    """From now on Ctrl-C that falls into a finalizer ends the process: Python would print the exception there, and go on."""
    import sys

    show = sys.unraisablehook

    def end_or_show(ignored: "sys.UnraisableHookArgs") -> None:
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            end()
        show(ignored)

    sys.unraisablehook = end_or_show

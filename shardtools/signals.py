"""An end that leaves nothing behind, for the signals by which programs are told to end."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name))


class EndedError(BaseException):
    """A signal by which this process is told to end; its text is the signal's name.

    Not an Exception: nothing on the way may take it for a fault and go on.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextlib.contextmanager
def ends_tidily() -> Iterator[None]:
    """Signals that end this process unwind what is inside first, so that its files and processes go; then they end it as ever.

    Signals that are ignored, as by ``nohup``, or that the caller handles stay as they are, and so do all outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]

    def end(number: int, _: FrameType | None) -> None:
        for each in ours:
            signal.signal(each, signal.SIG_IGN)  # once is enough: tidying up must not be cut short
        raise EndedError(number)

    try:
        for each in ours:
            signal.signal(each, end)
        yield
    except EndedError as ended:
        if ended.number not in ours:
            raise  # whoever took the signal has more to tidy up
        signal.signal(ended.number, signal.SIG_DFL)
        os.kill(os.getpid(), ended.number)
        raise
    finally:
        for each in ours:
            signal.signal(each, signal.SIG_DFL)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Signals that would end or interrupt this process, Ctrl-C among them, come when what is inside is done: tidying up, of seconds."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *_SIGNALS})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

"""The rank processes of one start: begun together, watched, and all ended whatever happens."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from shardtools.mosaic import free_blocks
from shardtools.verify.delivery._spec import ABANDONED, RankReport, RunSpec

STALL_SECONDS = 180.0
"""Ranks of which none delivers anything for so long are taken to hang."""

_POLL_SECONDS = 0.02
_END_SECONDS = 2.0
"""Ended workers are gone at once, unless nobody takes note of their end."""
_SHARED_MEMORY_PREFIXES = 16


class RankFailedError(Exception):
    """A rank did not get through."""

    def __init__(self, rank: int, words: str, is_misuse: bool) -> None:
        super().__init__(rank, words)
        self.rank = rank
        self.words = words
        self.is_misuse = is_misuse


def run_ranks(spec: RunSpec) -> list[RankReport]:
    """Start every rank and wait for all of them. Raises RankFailedError for the first that fails; none is left running."""
    spec.save()
    port = _free_port()
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(spec.world_size):
            processes.append(_start(spec, rank, port))
        _wait(spec, processes)
    finally:
        for process in processes:
            _end(process)
        _free_shared_memory(spec.shared_memory_begin)
    reports = [RankReport.load(spec.report_path(rank)) for rank in range(spec.world_size)]
    return [report for report in reports if report is not None]


def _start(spec: RunSpec, rank: int, port: int) -> "subprocess.Popen[bytes]":
    """In a session of its own, so that its workers end with it."""
    with open(spec.words_path(rank), "wb") as words:
        return subprocess.Popen(
            [sys.executable, "-m", "shardtools.verify.delivery.rank", spec.path, str(rank)],
            stdin=subprocess.PIPE,
            stdout=words,
            stderr=words,
            start_new_session=True,
            env={
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(spec.world_size),
                "LOCAL_WORLD_SIZE": str(spec.world_size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
                "OMP_NUM_THREADS": "1",
                "PYTHONUNBUFFERED": "1",
                "TMPDIR": spec.folder,
            },
        )


def _wait(spec: RunSpec, processes: "list[subprocess.Popen[bytes]]") -> None:
    seen, moved = -1, time.monotonic()
    while True:
        codes = [_exit_code(process) for process in processes]
        failed = [rank for rank, code in enumerate(codes) if _is_failure(spec, rank, code)]
        if None not in codes and not failed:
            failed = [rank for rank, code in enumerate(codes) if code == ABANDONED]
            if not failed:
                return
        if failed:
            raise _failure(spec, failed[0], codes[failed[0]] or 0)
        size = sum(entry.stat().st_size for entry in _files(spec.folder))
        if size != seen:
            seen, moved = size, time.monotonic()
        elif time.monotonic() - moved > STALL_SECONDS:
            raise _stalled(spec, [rank for rank, code in enumerate(codes) if code is None])
        time.sleep(_POLL_SECONDS)


def _is_failure(spec: RunSpec, rank: int, code: int | None) -> bool:
    """Its own: a rank that lost the others has no part in it, one that ended without a report has."""
    return code not in (None, 0, ABANDONED) or (code == 0 and not os.path.exists(spec.report_path(rank)))


def _exit_code(process: "subprocess.Popen[bytes]") -> int | None:
    """As ``poll``, but the process stays a zombie where it can: until its group is ended, nobody else may get its number."""
    if not hasattr(os, "waitid"):
        return process.poll()
    ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _files(folder: str) -> Iterator["os.DirEntry[str]"]:
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        yield from (entry for entry in entries if entry.name.startswith(("log-", "words-")))


def _failure(spec: RunSpec, rank: int, code: int) -> RankFailedError:
    report = RankReport.load(spec.report_path(rank))
    if report is not None and report.fault is not None:
        return RankFailedError(rank, report.fault, report.is_misuse)
    how = f"the signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return RankFailedError(rank, f"it ended by {how}{_said(spec, rank)}", False)


def _stalled(spec: RunSpec, running: Sequence[int]) -> RankFailedError:
    """The first that is not merely waiting for the others: those have reported."""
    rank = next((rank for rank in running if not os.path.exists(spec.report_path(rank))), running[0])
    return RankFailedError(
        rank,
        f"nothing was delivered for {STALL_SECONDS:,.0f} seconds, which is as long as readers are waited for{_said(spec, rank)}",
        False,
    )


def _said(spec: RunSpec, rank: int) -> str:
    """The last line the rank printed."""
    with open(spec.words_path(rank), "rb") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - 4096, 0))
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return f", and its last words were: {lines[-1]}" if lines else ""


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a rank and every process it started, running or not, and see them gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        latest = time.monotonic() + _END_SECONDS
        while time.monotonic() < latest:
            os.killpg(process.pid, 0)  # raises once the last of them is gone
            time.sleep(_POLL_SECONDS / 4)
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _free_shared_memory(begin: int) -> None:
    """What StreamingDataset leaves behind when it is ended. The numbers are of this run alone."""
    free_blocks(range(begin, begin + _SHARED_MEMORY_PREFIXES))

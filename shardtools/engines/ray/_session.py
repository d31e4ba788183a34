"""A connection to Ray for one run, and its end, which leaves nothing behind."""

import errno
import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import ray

from shardtools.engines import num_cores
from shardtools.engines.ray._crew import Crew, said_by
from shardtools.errors import ShardtoolsError, UsageError
from shardtools.signals import ends_tidily

_STORE_BYTES = 256 << 20
"""Room for partitions and receipts on their way; taken as it is needed."""
_MAX_FOLDER_BYTES = 40
"""Ray's sockets lie some 65 bytes deeper, and may have paths of 107."""
_CONNECT_SECONDS = 10.0
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""What opens gRPC, which Ray speaks. Source: RFC 9113, section 3.4."""
_SETTINGS, _TLS_ALERT = 4, 21
_TOKEN = secrets.token_hex(32)
"""Who may talk to a Ray that is started here; the same for all of a process, since Ray looks once."""


@contextmanager
def session(workers: int | None, address: str | None) -> Iterator[Crew]:
    """Ray that can be given tasks. What was started for it is ended when the context is left, also by a signal.

    Raises UsageError for an address that is none, ShardtoolsError where Ray cannot be started or joined.
    """
    if ray.is_initialized():
        raise UsageError("expected no connection to Ray in this process yet, got one; call ray.shutdown() first, or use another process")
    if address is not None and address != "auto" and ("://" in address or not address.rpartition(":")[2].isdecimal()):
        raise UsageError(
            f"expected --ray-address HOST:PORT of the cluster's head, or auto, got {address}; run the command on a node of the cluster, "
            "by hand or with ray job submit"
        )
    with ends_tidily(), ExitStack() as opened:
        opened.enter_context(_silent())
        if address is None:
            _start(workers or num_cores(), opened)
        else:
            _join(address, opened)
        crew = opened.enter_context(Crew(workers, spans_machines=address is not None))
        try:
            yield crew
        except SystemError as error:
            if error.__cause__ is None:
                raise
            raise error.__cause__ from None  # what a signal's handler raised inside of Ray


def _start(workers: int, opened: ExitStack) -> None:
    folder = _short_folder()
    opened.callback(shutil.rmtree, folder, ignore_errors=True)
    # Else Ray would leave a token in the home folder, and clusters of this user would ask for it from then on.
    os.environ["RAY_AUTH_TOKEN"] = _TOKEN
    opened.callback(ray.shutdown, wait_for_processes=True)
    with _quiet("expected to start Ray on this machine"):
        ray.init(
            "local",
            num_cpus=workers,
            include_dashboard=False,
            object_store_memory=_STORE_BYTES,
            log_to_driver=False,
            configure_logging=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
        )


def _join(address: str, opened: ExitStack) -> None:
    opened.callback(ray.shutdown)
    with _quiet(f"expected a Ray cluster that this machine is a node of at --ray-address {address}", "name one that runs, or leave it out"):
        host, colon, port = address.rpartition(":")
        if colon and port.isdecimal():  # Ray itself would try for minutes
            _demand_answer(host.strip("[]"), int(port))
        try:
            ray.init(address, log_to_driver=False, configure_logging=False)
        except ConnectionError as error:
            if address != "auto":
                raise
            # Ray's own words name flags that are not ours.
            raise OSError(errno.ENOENT, "none that runs here") from error


def _demand_answer(host: str, port: int) -> None:
    """Raises OSError where nothing listens, or what does is no gRPC. What wants TLS ends the connection: Ray itself has to try that."""
    with socket.create_connection((host, port), _CONNECT_SECONDS) as connection:
        connection.sendall(_GREETING)
        try:
            answer = connection.recv(9)
        except TimeoutError:
            raise OSError(errno.ETIMEDOUT, f"no answer within {_CONNECT_SECONDS:.0f} seconds") from None
        except ConnectionResetError:
            return
    if answer and answer[0] != _TLS_ALERT and answer[3:4] != bytes([_SETTINGS]):
        raise OSError(errno.EPROTO, "an answer of something else than Ray")


@contextmanager
def _silent() -> Iterator[None]:
    """Ray tells of every lost worker on standard output, among results, and has no option against it but the one its debugger uses."""
    vars(ray._private.worker)["_worker_logs_enabled"] = False
    try:
        yield
    finally:
        vars(ray._private.worker)["_worker_logs_enabled"] = True


@contextmanager
def _quiet(expected: str, remedy: str | None = None) -> Iterator[None]:
    """Faults of Ray become one sentence; what it says to its own users is not shown, and the end by a signal stays ours."""
    logger, is_main = logging.getLogger("ray"), threading.current_thread() is threading.main_thread()
    level, answer = logger.level, signal.getsignal(signal.SIGTERM)
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    except Exception as error:
        raise ShardtoolsError(f"{expected}, got {said_by(error)}{f'; {remedy}' if remedy else ''}") from error
    finally:
        logger.setLevel(level)
        if is_main and answer is not None:
            signal.signal(signal.SIGTERM, answer)


def _short_folder() -> str:
    """A new one for Ray's sockets and logs, in the folder for temporary files where that is not too deep."""
    name, parent = "shardtools-ray-", tempfile.gettempdir()
    is_short = len(os.fsencode(parent)) + 1 + len(name) + 8 <= _MAX_FOLDER_BYTES
    return tempfile.mkdtemp(prefix=name, dir=parent if is_short else "/tmp")

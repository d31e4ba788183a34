"""One connection pool to the object store for each process."""

import os
import threading
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.loaders import create_loader
from botocore.utils import parse_timestamp

from shardtools.errors import UsageError
from shardtools.storage.s3._failures import plain

MAX_CONNECTIONS = 128
CONNECT_SECONDS, READ_SECONDS = 5.0, 60.0
_making = threading.Lock()


def client() -> Any:
    """The client of this process, as the AWS environment, profile and config files say.

    Raises UsageError where they say what cannot be.
    """
    # By process: a connection that a fork has copied would carry the requests of two.
    with _making:
        return _client(os.getpid())


def forget_client(known: Any = None) -> None:
    """The AWS environment, profile and config files are read anew for the next request of this process.

    For programs that change them while they run. ``known``: only if this is still the client.
    """
    with _making:
        if known is None or _client(os.getpid()) is known:
            _client.cache_clear()


def _unlock_in_child() -> None:
    """Another thread may have held the lock when the process was forked; in the child there is none to release it."""
    global _making
    _making = threading.Lock()


os.register_at_fork(after_in_child=_unlock_in_child)


@lru_cache(maxsize=1)
def _client(_: int) -> Any:
    # Repeats are ours alone, so that a message can tell how often something was tried, and so that a body is part of it.
    repeats_are_ours = Config(
        retries={"total_max_attempts": 1},
        max_pool_connections=MAX_CONNECTIONS,
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        tcp_keepalive=True,
    )
    try:
        session = botocore.session.get_session()
        session.register_component("data_loader", _models(session.get_config_variable("data_path")))
        session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_time_of)
        config = repeats_are_ours.merge(Config(s3=_signing(session.get_config_variable("s3"))))
        return boto3.session.Session(botocore_session=session).client("s3", config=config)
    except (BotoCoreError, ValueError) as error:
        # What a helper that was to bring credentials wrote may hold some.
        said = "credential_process in the AWS config failed" if "custom-process" in str(error) else plain(str(error))
        raise UsageError(f"expected an AWS profile, region and endpoint that can be used, got: {said}; mend them and run again") from None


def _signing(configured: dict[str, Any] | None) -> dict[str, Any]:
    """Every body has a CRC32 that is signed; to sign the body too, without TLS, costs both sides about as much again as to send it."""
    return {} if configured and "payload_signing_enabled" in configured else {"payload_signing_enabled": False}


@lru_cache(maxsize=1)
def _models(path: str | None) -> Any:
    """Descriptions of the store's interface, whose reading takes most of the time of a new client."""
    return create_loader(path)


def _time_of(text: Any) -> datetime:
    """As botocore reads it, in a small part of the 30 µs that takes it: half a minute for a million listed keys."""
    try:
        # A listing's, else a header's.
        found = datetime.fromisoformat(text) if text[:1].isdigit() else parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return parse_timestamp(text)  # type: ignore[no-any-return]
    return found if found.tzinfo else found.replace(tzinfo=UTC)

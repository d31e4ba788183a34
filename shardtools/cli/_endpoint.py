"""``--endpoint-url``: the object store that ``s3://`` means, for this process and those it starts."""

import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import click

from shardtools.cli._help import option
from shardtools.errors import UsageError

_NAMES = ("AWS_ENDPOINT_URL_S3", "S3_ENDPOINT_URL")
"""What boto3 reads, and what StreamingDataset reads."""


def endpoint_option() -> tuple[Sequence[str], dict[str, Any]]:
    """For ``options``. The command itself is told nothing of it."""
    text = "Object store that s3:// means. [default: as the AWS environment and config say]"
    return option("--endpoint-url", metavar="URL", expose_value=False, callback=_use, help=text)


def _use(ctx: click.Context, _: click.Parameter, url: str | None) -> None:
    if url is None or ctx.resilient_parsing:
        return
    _refuse_unfit(url)
    os.environ.update(dict.fromkeys(_NAMES, url))
    # With it set, boto3 would go to Amazon all the same.
    os.environ["AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"] = "false"


def _refuse_unfit(url: str) -> None:
    if "@" in url:  # not shown: a password may stand before it
        raise UsageError("expected --endpoint-url without a user in it, got one; credentials are those of the AWS environment or profile")
    try:
        parts = urlsplit(url)
        is_fit = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.query + parts.fragment
    except ValueError:
        is_fit = False
    if not is_fit:
        raise UsageError(f"expected --endpoint-url as http://HOST:PORT or https://HOST, got {url!r}")

"""A GET of a small object for a quarter of what the client takes: signed, sent and checked here, all that is unusual left to the client.

Where there are millions of them, the client's own work on each (about 1 ms: rules of endpoints, events, parsing) limits a run.
"""

import base64
import zlib
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import boto3
import botocore.session
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest, AWSResponse
from botocore.exceptions import BotoCoreError
from botocore.httpsession import URLLib3Session
from botocore.utils import get_environ_proxies
from urllib3.exceptions import HTTPError

from shardtools.storage import Whole
from shardtools.storage.s3._attempts import RefusedError
from shardtools.storage.s3._client import CONNECT_SECONDS, MAX_CONNECTIONS, READ_SECONDS
from shardtools.storage.s3._failures import Failure
from shardtools.storage.s3._reading import version_of

_OTHERWISE = (301, 307, 400, 403)
"""Answers of a store that wants to be asked in another way than is known here."""


@lru_cache(maxsize=8)
def quick_get(s3: Any, bucket: str) -> "QuickGet | None":
    """For one bucket, as the client is configured; None where that is not by credentials and Signature Version 4."""
    credentials = boto3.session.Session().get_credentials()
    is_plain = ":" not in bucket and not bucket.endswith("--x-s3")
    if credentials is None or s3.meta.config.signature_version != "s3v4" or not is_plain:
        return None
    try:
        return QuickGet(s3, bucket, credentials)
    except BotoCoreError:
        return None


class QuickGet:
    """Requests to one bucket, by the address, the credentials and the signing of the client's library."""

    def __init__(self, s3: Any, bucket: str, credentials: Any) -> None:
        self._credentials = credentials
        self._region = s3.meta.region_name
        # What the client makes of bucket and endpoint, without anything secret.
        self._address = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "x"}).partition("?")[0].removesuffix("x")
        self._is_off = False
        self._session = URLLib3Session(
            verify=botocore.session.get_session().get_config_variable("ca_bundle") or True,
            proxies=get_environ_proxies(self._address),
            timeout=(CONNECT_SECONDS, READ_SECONDS),
            max_pool_connections=MAX_CONNECTIONS,
        )

    def __call__(self, key: str, num_bytes: int) -> Whole | None:
        """The object of that many bytes; None where the client had better be asked.

        Raises RefusedError where the store says that there is none.
        """
        if self._is_off:
            return None
        try:
            answer = self._session.send(self._signed(self._address + quote(key, safe="/~")))
            self._is_off |= answer.status_code in _OTHERWISE
            return _whole(answer, num_bytes)
        except (BotoCoreError, HTTPError, OSError):
            return None

    def _signed(self, url: str) -> AWSPreparedRequest:
        request = AWSRequest("GET", url, {"x-amz-checksum-mode": "ENABLED"}, stream_output=True)
        # Frozen, since credentials of a role are renewed meanwhile.
        S3SigV4Auth(self._credentials.get_frozen_credentials(), "s3", self._region).add_auth(request)
        return request.prepare()


def _whole(answer: AWSResponse, num_bytes: int) -> Whole | None:
    length, etag = answer.headers.get("content-length", ""), answer.headers.get("etag")
    if answer.status_code == 404 and b"<Code>NoSuchKey</Code>" in answer.content:
        raise RefusedError(Failure("the server answered NoSuchKey", code="NoSuchKey"), 1)
    if answer.status_code != 200 or etag is None or not length.isdigit() or int(length) != num_bytes:
        answer.raw.close()
        return None
    data = answer.content
    crc = answer.headers.get("x-amz-checksum-crc32")
    # With a dash it is one of checksums, of parts.
    is_sound = crc is None or "-" in crc or crc == base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
    return Whole(data, num_bytes, version_of(etag)) if is_sound and len(data) == num_bytes else None

"""What a failed request means: whether to repeat it, and its cause and remedy in words."""

import re
import socket
from dataclasses import dataclass
from typing import Any

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

_RETRY = "run the same command again; finished parts are kept"
_CREDENTIALS = "give new credentials (environment, profile or role) and run the same command again; finished parts are kept"
_REMEDIES = {
    "ExpiredToken": _CREDENTIALS,
    "ExpiredTokenException": _CREDENTIALS,
    "TokenRefreshRequired": _CREDENTIALS,
    "RequestTimeTooSkewed": "set the clock of this machine, or that of the server, and run the same command again",
    "AccessDenied": "give these credentials the permission, or choose another place",
    "403": "give these credentials the permission, or choose another place",
    "AllAccessDisabled": "give these credentials the permission, or choose another place",
    "InvalidAccessKeyId": "check the credentials (environment, profile or role) and the endpoint",
    "SignatureDoesNotMatch": "check the secret key and the endpoint",
    "NoSuchBucket": "create the bucket or mend its name",
    "NoSuchKey": "check the name; another run may have removed it",
    "404": "check the bucket and the name; another run may have removed it",
    "PreconditionFailed": "it was replaced while it was read: run again when nothing writes to it",
    "412": "it was replaced while it was read: run again when nothing writes to it",
    "PermanentRedirect": "set the region of the bucket (AWS_REGION) and run again",
    "AuthorizationHeaderMalformed": "set the region of the bucket (AWS_REGION) and run again",
    "301": "set the region of the bucket (AWS_REGION) and run again",
    "QuotaExceeded": "free some of the quota and run the same command again; finished parts are kept",
    "EntityTooLarge": "make shards smaller with --shard-size",
}
_WORTH_A_REPEAT = {
    "RequestTimeout",
    "RequestTimeoutException",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "TooManyRequestsException",
    "BandwidthLimitExceeded",
    "InternalError",
    "InternalServerError",
    "ServiceUnavailable",
    "OperationAborted",
    "ConditionalRequestConflict",
    "BadDigest",
    "InvalidDigest",
    "IncompleteBody",
    "XAmzContentSHA256Mismatch",
    "XAmzContentChecksumMismatch",
}
_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired")
_TRANSPORT: tuple[tuple[type[Exception], str], ...] = (
    (boto.SSLError, "no secure connection: the certificate or the protocol of the endpoint does not fit"),
    (boto.ProxyConnectionError, "the proxy cannot be reached"),
    (boto.ConnectTimeoutError, "no connection in time"),
    (boto.ReadTimeoutError, "no answer in time"),
    (boto.ConnectionClosedError, "the connection was closed before an answer came"),
    (boto.ResponseStreamingError, "the connection broke while the object came"),
    (boto.IncompleteReadError, "fewer bytes came than were announced"),
    (boto.FlexibleChecksumError, "other bytes came than were stored, by their checksum"),
    (boto.ConnectionError, "no connection"),
    (boto.HTTPClientError, "the connection failed"),
)
_MAX_MESSAGE = 200


class BrokenAnswerError(Exception):
    """What came is not what was asked for; another attempt may bring it."""


@dataclass(frozen=True)
class Failure:
    """Of one attempt."""

    cause: str
    remedy: str = _RETRY
    code: str = ""
    """In the server's words, or its HTTP status; empty where no server answered."""
    is_worth_a_repeat: bool = False
    has_expired: bool = False
    is_unreachable: bool = False
    """There is no such host, or nothing that listens."""
    wait_seconds: float = 0.0
    """The server asked for so long a wait at least."""

    @property
    def is_missing(self) -> bool:
        """The object is not there."""
        return self.code in ("NoSuchKey", "404", "NotFound")


def checked(answer: dict[str, Any], *path: str) -> dict[str, Any]:
    """The answer, which must hold what the path leads to: a cut or empty one would be taken for a success. Raises BrokenAnswerError."""
    value: Any = answer
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if value is None:
        raise BrokenAnswerError(f"the answer lacks {'.'.join(path)}")
    return answer


def printable(text: str) -> str:
    """One line: keys may hold line breaks."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def failure_of(error: Exception) -> Failure:
    """What went wrong, of whatever the client raised. Holds nothing secret."""
    if isinstance(error, boto.ClientError):
        return _answered(error)
    if isinstance(error, BrokenAnswerError):
        return Failure(str(error), is_worth_a_repeat=True)
    if isinstance(error, boto.EndpointConnectionError):
        is_nameless = "resol" in str(error.kwargs.get("error")) or isinstance(error.kwargs.get("error"), socket.gaierror)
        cause = "the endpoint cannot be reached" + (", since its name is not known here" if is_nameless else "")
        return Failure(cause, "check the endpoint and the network, then " + _RETRY, is_worth_a_repeat=True, is_unreachable=True)
    for kind, cause in _TRANSPORT:
        if isinstance(error, kind):
            lasting = isinstance(error, boto.SSLError)
            remedy = "check the endpoint and the network, then " + _RETRY
            return Failure(cause, remedy, is_worth_a_repeat=not lasting)
    if isinstance(error, HTTPError | OSError):
        return Failure(
            f"the connection failed ({type(error).__name__})", "check the endpoint and the network, then " + _RETRY, is_worth_a_repeat=True
        )
    if isinstance(error, ResponseParserError) or (isinstance(error, ValueError) and not isinstance(error, boto.BotoCoreError)):
        return Failure("the answer is not one of an object store", "check the endpoint, then " + _RETRY, is_worth_a_repeat=True)
    if isinstance(error, boto.NoCredentialsError):
        return Failure("no credentials were found", _CREDENTIALS)
    if "Credential" in type(error).__name__ or "Token" in type(error).__name__ or "SSO" in type(error).__name__:
        return Failure(f"no credentials that can be used: {plain(str(error))}", _CREDENTIALS)
    return Failure(plain(f"{type(error).__name__}: {error}"), "check the name, the endpoint and the AWS configuration")


def _answered(error: "boto.ClientError") -> Failure:
    said = error.response.get("Error", {})
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    code = str(said.get("Code", "")) or str(status)
    message = plain(str(said.get("Message", "")))
    # An answer without a body, as of HEAD, has its status alone.
    cause = f"the server answered {code}" + (f" ({message})" if message and message != code else "")
    passes = code in _WORTH_A_REPEAT or status in (408, 409, 429) or (status >= 500 and status != 501)
    has_expired = code in _EXPIRED
    return Failure(cause, _REMEDIES.get(code, _RETRY), code, passes or has_expired, has_expired, wait_seconds=_asked_wait(error))


def _asked_wait(error: "boto.ClientError") -> float:
    said = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("retry-after", "")
    return float(said) if re.fullmatch(r"[0-9]{1,6}", said) else 0.0


def plain(text: str) -> str:
    """A line without what may be secret in an address or a header: a user, a signature, a key."""
    text = re.sub(r"//\S*@", "//", text)
    text = re.sub(r"\?\S*", "", text)
    text = re.sub(r"(?i)\b(\w*(?:credential|signature|token|secret|access-?key|authorization)\w*)\s*[=:]\s*\S+", r"\1 (hidden)", text)
    return " ".join(text.split())[:_MAX_MESSAGE].rstrip(".")

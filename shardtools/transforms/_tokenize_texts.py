"""Values of a text column as text, or the reason why not."""

from typing import Any

from shardtools.sample import HEAD_BYTES, Reject, brief


class BadTextError(Exception):
    """A value that cannot be tokenized; carries what a Reject says of it."""

    def __init__(self, reason: str, sentence: str, head: bytes = b"") -> None:
        super().__init__(reason, sentence)
        self.reason = reason
        self.sentence = sentence
        self.head = head

    def reject(self, where: str) -> Reject:
        return Reject(self.reason, where, self.sentence, self.head)


def text_of(value: Any) -> tuple[str, int]:
    """The text and its length in bytes of UTF-8. Nothing is stripped or normalised.

    Raises BadTextError for what is no text, and for text that UTF-8 cannot write: an encoder would refuse its whole batch.
    """
    if isinstance(value, str):
        if value.isascii():
            return value, len(value)
        try:
            return value, len(value.encode())
        except UnicodeEncodeError as error:
            raise BadTextError(
                "lone-surrogate",
                f"expected text that UTF-8 can write, got half of a surrogate pair at character {error.start:,}; repair or remove it",
                head_of(value),
            ) from None
    if isinstance(value, bytes):
        try:
            return value.decode(), len(value)
        except UnicodeDecodeError as error:
            raise BadTextError(
                "not-utf8", f"expected text in UTF-8, got another encoding at byte {error.start:,}; convert it", value[:HEAD_BYTES]
            ) from None
    if value is None:
        raise BadTextError("no-text", "expected text, got none; give it text or leave it out")
    raise BadTextError("not-text", f"expected text, got {type(value).__name__} {brief(value)}; give it text or leave it out")


def head_of(text: str) -> bytes:
    """The first bytes of a text, for the rejects file."""
    return text[:HEAD_BYTES].encode("utf-8", "backslashreplace")[:HEAD_BYTES]

"""Text in a drawing: how wide it will be, cut or wrapped to the room there is. Drawings cannot ask a browser."""

from collections.abc import Iterator

_NARROW = frozenset("iljI.,:;|!'()[]{} ftr/·")
_CLOSING = frozenset("。，；：）、")
"""Never at the beginning of a line."""
_WIDE = frozenset("mwMW@%—")


def clean(text: str) -> str:
    """What XML and UTF-8 can carry: control characters and halves of surrogate pairs, as in odd file names, become U+FFFD."""
    return "".join(char if char in "\n\t" or ((char.isprintable() or char.isspace()) and ord(char) >= 32) else "\ufffd" for char in text)


def width(text: str, font_px: float) -> float:
    """Pixels, on the safe side for the usual sans-serif faces."""
    return font_px * sum(_em(char) for char in text)


def _em(char: str) -> float:
    if ord(char) >= 0x2E80:
        return 1.0
    if char in _NARROW:
        return 0.38
    return 0.9 if char in _WIDE else 0.66 if char.isupper() else 0.6


def cut(text: str, font_px: float, room: float) -> str:
    """The text, or its beginning and end with an ellipsis between: ends of paths tell sides apart."""
    if width(text, font_px) <= room:
        return text
    kept = len(text)
    while kept > 2:
        kept -= 1
        shorter = f"{text[: kept // 3]}…{text[len(text) - (kept - kept // 3) :]}"
        if width(shorter, font_px) <= room:
            return shorter
    return "…"


def wrapped(text: str, font_px: float, room: float) -> Iterator[str]:
    """Lines of at most ``room`` pixels; Chinese breaks anywhere, a word that is too long is broken."""
    line = ""
    for piece in _pieces(text):
        if width(line + piece.rstrip(), font_px) <= room or (line and piece in _CLOSING):
            line += piece
            continue
        if line.strip():
            yield line.rstrip()
        line = ""
        for char in piece:
            if width(line + char, font_px) > room and line:
                yield line
                line = ""
            line += char
    if line.strip():
        yield line.rstrip()


def _pieces(text: str) -> Iterator[str]:
    """Words with the space behind them, Chinese characters one by one."""
    piece = ""
    for char in " ".join(text.split()):
        if ord(char) >= 0x2E80:
            if piece:
                yield piece
            yield char
            piece = ""
            continue
        piece += char
        if char == " ":
            yield piece
            piece = ""
    if piece:
        yield piece

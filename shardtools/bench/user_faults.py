"""An error in one sentence, with its place in the user's own code, that survives the way from a worker to the main process."""

import os
import re
import sysconfig
import traceback
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import shardtools
from shardtools.errors import ShardtoolsError

_NAMED = re.compile(r"^(?:[\w.]+\.)?SampleError: (expected .+)$", re.MULTILINE)
_OWN_ERROR = re.compile(r"^(?:[\w.]+\.)?\w+: (expected .+)$")
_ADDRESS = re.compile(r" ?<[\w.]+ object at 0x[0-9a-f]+>")
_LONGEST = 300


class SampleError(ShardtoolsError):
    """A sample could not be prepared; one sentence that names it, and where in whose code it failed."""


def told(error: BaseException) -> str | None:
    """The sentence of a SampleError, also where torch hands it on as a text that holds a worker's traceback; None of other errors."""
    for link in _chain(error):
        if named := _NAMED.findall(str(link)):
            return str(named[-1])
        if isinstance(link, SampleError) and "\n" not in str(link).strip():
            return str(link)
    return None


def sentence_of(error: BaseException) -> str:
    """An error in one line, wherever it was raised."""
    sentence = told(error)
    if sentence is not None:
        return sentence
    lines = [line for line in str(error).splitlines() if line.strip()]
    if any("Traceback" in line for line in lines):
        named = [line.strip() for before, line in pairwise(lines) if before[0] == " " and line[0] != " "]
        last = named[-1] if named else lines[-1].strip()
        own = _OWN_ERROR.match(last)
        return own.group(1) if own else last
    return said_of(error)


def is_of_machine(error: BaseException) -> bool:
    """No fault of a function: memory, shared memory or descriptors ran out."""
    return isinstance(error, OSError | MemoryError) or "shared memory" in str(error)


def said_of(error: BaseException) -> str:
    """Type and first words; of the project's own sentences the words alone."""
    if isinstance(error, SystemExit):
        return f"a call of sys.exit({'' if error.code is None else error.code!r})"
    words = " ".join(_ADDRESS.sub("", str(error)).split())
    words = words if len(words) <= _LONGEST else f"{words[:_LONGEST]}..."
    if words.startswith("expected ") and type(error) in (ValueError, *_own_errors()):
        return words
    name = type(error).__name__
    return f"{name}: {words}" if words else name


def place_of(error: BaseException) -> str:
    """`` at FILE:LINE in FUNCTION``, the innermost that is of the user's code; empty where none is known."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_under(frame.filename, _package())]
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f" at {_shown(error.filename)}:{error.lineno}"
    own = [frame for frame in frames if not _is_library(frame.filename)]
    if not own:
        own = [frame for frame in frames if not any(f"{os.sep}{name}{os.sep}" in frame.filename for name in ("torch", "importlib"))]
    return f" at {_shown(own[-1].filename)}:{own[-1].lineno} in {own[-1].name}" if own else ""


def described(value: Any) -> str:
    """What somebody made of a sample, so that two of them can be told apart: ``uint8 [3, 224, 224]``."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        kind = "" if type(value).__name__ == "Tensor" else f"{type(value).__name__} "
        return f"{kind}{str(dtype).removeprefix('torch.')} {list(shape)}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {described(inner)}" for name, inner in list(value.items())[:8]) + "}"
    if isinstance(value, list | tuple) and len(value) <= 8:
        return f"{type(value).__name__} of ({', '.join(described(inner) for inner in value)})"
    if isinstance(value, list | tuple | str | bytes):
        return f"{type(value).__name__} of length {len(value)}"
    return f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__


def _own_errors() -> tuple[type[BaseException], ...]:
    return (ShardtoolsError, *ShardtoolsError.__subclasses__())


def _package() -> str:
    return os.path.dirname(os.path.abspath(shardtools.__file__))


def _is_library(path: str) -> bool:
    """Of Python, or installed beside it."""
    paths = sysconfig.get_paths()
    return path.startswith("<") or any(_is_under(path, paths[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def _is_under(path: str, folder: str) -> bool:
    return os.path.abspath(path).startswith(os.path.abspath(folder) + os.sep)


def _shown(path: str) -> str:
    here = os.getcwd() + os.sep
    return path[len(here) :] if path.startswith(here) else path

"""Hugging Face ``tokenizers``: the reference encoder."""

import os
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from shardtools.errors import ShardtoolsError, UsageError
from shardtools.transforms._tokenize_file import TokenizerFile, TokenizerJson
from shardtools.transforms._tokenize_literals import literal_pattern
from shardtools.transforms._tokenize_texts import BadTextError, head_of

Ids = npt.NDArray[np.uint32]
_CALL_CHARS = 1 << 17
"""Enough to make little of what a call costs; what a call returns takes 100 to 300 bytes for each byte of text."""


class HfEncoder:
    """Text to ids without special tokens of its own, one text at a time, so that no text costs another anything.

    ``parses``: text that spells an added token becomes its id; else such text is text like any other.
    """

    def __init__(self, file: TokenizerFile, parses: bool) -> None:
        # Workers are processes: a pool of threads in each would fight for the cores, and locks up where a process forks.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        from tokenizers import Tokenizer

        self.parsed = TokenizerJson.parse(file.data(), file.path)
        try:
            self.tokenizer = Tokenizer.from_buffer(self.parsed.data if parses else self.parsed.plain_data)
        except Exception as error:
            raise UsageError(f"expected a tokenizer that tokenizers {version()} can load, got {file.path}: {error}") from None
        self._refuse_moved_ids(file.path)
        self._parses = parses
        self.tokenizer.encode_special_tokens = not parses
        normalizer = self.tokenizer.normalizer
        late = [token.content for token in self.parsed.literals if token.normalized and self.parsed.normalizes]
        self._pattern = literal_pattern(token.content for token in self.parsed.literals if token.content not in late)
        self._late_pattern = literal_pattern(map(normalizer.normalize_str, late)) if late else None
        self.max_id: int = max(self.tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        """``get_vocab_size`` counts tokens; ids may have holes."""
        if self.max_id < 0:
            raise UsageError(f"expected a tokenizer with a vocabulary, got an empty one in {file.path}")

    def encode(self, text: str) -> Ids:
        """Ids of a valid text. ``[n] uint32``. Raises BadTextError where the vocabulary cannot spell it."""
        try:
            encoding = self.tokenizer.encode_batch_fast([text], add_special_tokens=False)[0]
        except Exception as error:  # the library raises nothing narrower
            raise _no_ids(text, error) from None
        return self.as_ids(encoding.ids)

    def encode_all(self, texts: Iterable[str]) -> Iterator[Ids | BadTextError]:
        """Ids of valid texts, or why one cannot be encoded; many short ones are encoded in one call."""
        waiting: list[str] = []
        num_chars = 0
        for text in texts:
            waiting.append(text)
            num_chars += len(text)
            if num_chars >= _CALL_CHARS:
                yield from self._encode_together(waiting)
                waiting, num_chars = [], 0
        yield from self._encode_together(waiting)

    def _encode_together(self, texts: list[str]) -> Iterator[Ids | BadTextError]:
        try:
            encodings = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        except Exception:  # one of them, and it alone is to pay for it
            yield from map(self._encode_or_say, texts)
            return
        for encoding in encodings:
            yield self.as_ids(encoding.ids)

    def _encode_or_say(self, text: str) -> Ids | BadTextError:
        try:
            return self.encode(text)
        except BadTextError as error:
            return error

    def encode_with_offsets(self, text: str, parses: bool) -> tuple[Ids, npt.NDArray[np.int64]]:
        """Ids, and ``[n, 2] int64``: where the characters of each begin and end. ``parses`` holds for this text alone."""
        self.tokenizer.encode_special_tokens = not parses
        try:
            encoding = self.tokenizer.encode(text, add_special_tokens=False)
        except Exception as error:
            raise _no_ids(text, error) from None
        finally:
            self.tokenizer.encode_special_tokens = not self._parses
        return self.as_ids(encoding.ids), np.array(encoding.offsets, np.int64).reshape(-1, 2)

    def as_ids(self, ids: list[int]) -> Ids:
        """Raises ShardtoolsError for an id that the vocabulary does not have: it would wrap in a narrow dtype."""
        # From a list of int this takes half as long as numpy does.
        found = np.frombuffer(array("I", ids), np.uint32)
        if len(found) and int(found.max()) > self.max_id:
            raise ShardtoolsError(
                f"expected ids up to {self.max_id:,}, the largest of the vocabulary, got {int(found.max()):,} from the encoder"
            )
        return found

    def hits(self, text: str) -> Counter[str]:
        """The added tokens that a text spells, counted; white space is none of them."""
        found = Counter(self._pattern.findall(text))
        if self._late_pattern is not None:
            found.update(self._late_pattern.findall(self.tokenizer.normalizer.normalize_str(text)))
        return found

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches the added tokens that are looked for in text as it stands."""
        return self._pattern

    @property
    def finds_literals_late(self) -> bool:
        """Whether added tokens are looked for in normalised text, which only the reference does for sure."""
        return self._late_pattern is not None

    def id_of(self, token: str) -> int | None:
        found: int | None = self.tokenizer.token_to_id(token)
        return found

    def first_id_of_template(self) -> int | None:
        """What the post-processor puts before a text, None for nothing."""
        ids = self.tokenizer.encode("", add_special_tokens=True).ids
        return int(ids[0]) if ids else None

    def _refuse_moved_ids(self, path: str) -> None:
        """Added tokens that the model lacks are numbered in sequence, whatever the file says."""
        for token in self.parsed.added:
            if (loaded := self.id_of(token.content)) != token.id:
                raise UsageError(
                    f"expected the added token {token.content!r} to have id {token.id:,}, as {path} says, but tokenizers {version()} "
                    f"gives it {loaded}; repair the file: ids of added tokens have to follow the vocabulary without a hole"
                )


def _no_ids(text: str, error: Exception) -> BadTextError:
    sentence = f"expected text that the tokenizer can encode, but tokenizers {version()} said: {error}"
    remedy = "give the tokenizer an unknown token, or leave the text out"
    return BadTextError("not-in-vocabulary", f"{sentence}; {remedy}", head_of(text))


@lru_cache(maxsize=2)
def load_hf(file: TokenizerFile, parses: bool) -> HfEncoder:
    """One per process: loading takes seconds."""
    return HfEncoder(file, parses)


def version() -> str:
    import tokenizers

    return str(tokenizers.__version__)


def refuse_other_version(planned: str, name: str, here: Any) -> None:
    """Another version may give other ids; the plan was made with one."""
    if planned != here:
        raise ShardtoolsError(
            f"expected {name} {planned}, which the plan was made with, got {here} here; install that version, or plan anew"
        )

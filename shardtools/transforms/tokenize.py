"""Documents to token ids: the ids that Hugging Face ``tokenizers`` gives the whole text, whichever backend finds them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from shardtools.errors import UsageError
from shardtools.sample import Batch, Field
from shardtools.transforms import PartitionWork, _tokenize_gigatoken
from shardtools.transforms._columns import TOKENS
from shardtools.transforms._tokenize_documents import CUT, PARSE, REJECT, SPLIT, Document, DocumentPolicy, Documents, Tokens
from shardtools.transforms._tokenize_ends import AUTO, Ends, settle_ends
from shardtools.transforms._tokenize_file import TokenizerFile
from shardtools.transforms._tokenize_gigatoken import Gigatoken, RefusedError, load_gigatoken, require_gigatoken
from shardtools.transforms._tokenize_hf import load_hf, refuse_other_version
from shardtools.transforms._tokenize_options import DTYPES, Vocabulary, choice, whole_number
from shardtools.transforms._tokenize_texts import BadTextError, text_of
from shardtools.units import parse_bytes

DEFAULT_MAX_DOC_BYTES = 1 << 20
_GROUP_BYTES = 1 << 20
_TEXT_ENCODINGS = ("str", "bytes")


@dataclass(frozen=True)
class Tokenize:
    """One document a sample: its text column becomes ``tokens``, ``[n] dtype``, n ≥ 1, with BOS and EOS where they are asked for.

    Keys and their order stay. Documents without any token are left out and counted. Memory: besides the batch that comes
    in and the tokenizer, 100 to 300 bytes for each of ``policy.max_bytes``.

    ``PartitionWork.counts``: ``documents`` (that came out), ``documents-empty``, ``bytes-in``, ``tokens-in`` (BOS and EOS
    with them), ``special:{literal}`` (in all documents read), ``bos-present``, ``eos-present`` (found and not doubled),
    ``documents-cut``, ``pieces``, ``gigatoken-checked``.
    """

    vocabulary: Vocabulary
    policy: DocumentPolicy
    ends: Ends
    gigatoken: str | None = None
    """The version of gigatoken, where it is the backend; None: tokenizers alone."""
    column: str = "text"

    option_names: ClassVar[tuple[str, ...]] = (
        *("tokenizer", "column", "bos", "eos", "special_in_text", "backend", "max_doc_bytes", "oversized", "dtype", "seed"),
    )

    @classmethod
    def from_options(cls, words: Mapping[str, str]) -> "Tokenize":
        return settle_tokenizer(words)[0]

    def recipe(self) -> dict[str, Any]:
        return {
            "name": "tokenize",
            **self.vocabulary.recipe(),
            "backend": "hf" if self.gigatoken is None else "gigatoken",
            "gigatoken": self.gigatoken,
            "column": self.column,
            "bos_id": self.ends.bos_id,
            "eos_id": self.ends.eos_id,
            "special_in_text": self.policy.special_in_text,
            "max_doc_bytes": self.policy.max_bytes,
            "oversized": self.policy.oversized,
            "check_seed": self.policy.seed,
        }

    def fields(self, given: tuple[Field, ...]) -> tuple[Field, ...]:
        names = ", ".join(field.name for field in given) or "none"
        if [field.name for field in given] != [self.column]:
            raise UsageError(
                f"expected one field, the text {self.column!r}, got {names}; choose it with --text-key, or with --fields or --map"
            )
        if given[0].encoding not in _TEXT_ENCODINGS:
            raise UsageError(f"expected field {self.column!r} to be text, got {given[0].encoding}; choose another with --text-key")
        return (Field(TOKENS, f"ndarray:{self.vocabulary.dtype}"),)

    def apply(self, batches: Iterator[Batch], work: PartitionWork) -> Iterator[Batch]:
        documents = self._documents(work)
        for batch in batches:
            for begin, end, texts in _groups(batch, self.column):
                kept: list[int] = []
                tokens: list[Tokens] = []
                for i, ids in zip(range(begin, end), _encoded(texts, documents), strict=True):
                    if isinstance(ids, BadTextError):
                        work.reject(ids.reject(batch.where(i)))
                    elif len(ids):
                        kept.append(i)
                        tokens.append(self.ends.around(ids, self.vocabulary.dtype, work.counts))
                    else:
                        work.counts["documents-empty"] += 1
                work.counts["documents"] += len(kept)
                work.counts["tokens-in"] += sum(map(len, tokens))
                work.counts["bytes-in"] += sum(text.num_bytes for text in texts if isinstance(text, Document))
                if kept:
                    whole = batch.take(kept)
                    yield Batch(whole.keys, {TOKENS: tokens}, whole.where)

    def _documents(self, work: PartitionWork) -> Documents:
        parses = self.policy.special_in_text == PARSE
        reference = self.vocabulary.encoder(parses)
        quick: Gigatoken | None = None
        if self.gigatoken is not None:
            quick = require_gigatoken(self.vocabulary.file, parses)
            refuse_other_version(self.gigatoken, "gigatoken", _tokenize_gigatoken.version())
        return Documents(self.policy, reference, quick, self.vocabulary.dtype, work.counts)


def tokenizer_sha256(path: str) -> str:
    """Of the ``tokenizer.json`` at a path, or in a folder. Raises UsageError where there is none."""
    return TokenizerFile.at(path).sha256


def settle_tokenizer(words: Mapping[str, str]) -> tuple[Tokenize, list[str]]:
    """The transform that a user's words ask for, every choice made, and the choices as sentences.

    ``tokenizer`` is a file or a folder; ``bos``, ``eos`` are ``auto``, ``none`` or a token. Raises UsageError.
    """
    if "tokenizer" not in words:
        raise UsageError("expected --tokenizer FILE or DIR, got none; name a tokenizer.json")
    special = choice(words, "special_in_text", (SPLIT, PARSE, REJECT))
    oversized = choice(words, "oversized", (CUT, "reject"))
    dtype = choice(words, "dtype", DTYPES)
    backend = choice(words, "backend", ("auto", "hf", "gigatoken"))
    max_bytes = parse_bytes(words["max_doc_bytes"]) if "max_doc_bytes" in words else DEFAULT_MAX_DOC_BYTES
    policy = DocumentPolicy(special, max_bytes, oversized, _seed(words))
    file = TokenizerFile.at(words["tokenizer"])
    encoder = load_hf(file, special == PARSE)
    vocabulary = Vocabulary.settle(file, encoder, dtype)
    ends, notes = settle_ends(encoder, file.config(), words.get("bos", AUTO), words.get("eos", AUTO))
    gigatoken, why = _settle_backend(backend, file, special == PARSE)
    notes = [vocabulary.note, *notes, why]
    return Tokenize(vocabulary, policy, ends, gigatoken, words.get("column", "text")), notes


def _settle_backend(backend: str, file: TokenizerFile, parses: bool) -> tuple[str | None, str]:
    """gigatoken's version or None, and why."""
    if backend == "hf":
        return None, "backend: hf, as asked"
    if backend == "gigatoken":
        require_gigatoken(file, parses)
        return (
            _tokenize_gigatoken.version(),
            f"backend: gigatoken {_tokenize_gigatoken.version()}, as asked; a sample is checked against hf",
        )
    try:
        load_gigatoken(file, parses)
    except RefusedError as error:
        return None, f"backend: hf, since {error}"
    return (
        _tokenize_gigatoken.version(),
        f"backend: gigatoken {_tokenize_gigatoken.version()}, the faster one; a sample is checked against hf",
    )


def _seed(words: Mapping[str, str]) -> int:
    seed = whole_number(words, "seed") or 0
    if seed >= 2**64:
        raise UsageError(f"expected --seed of 0 to {2**64 - 1}, got {seed}")
    return seed


def _groups(batch: Batch, column: str) -> Iterator[tuple[int, int, list[Document | BadTextError]]]:
    """The batch in runs of about 1 MiB of text, each with its bounds: memory follows bytes, not documents."""
    texts: list[Document | BadTextError] = []
    begin = num_bytes = 0
    for i, value in enumerate(batch.columns[column]):
        try:
            text = Document(batch.keys[i], *text_of(value))
            texts.append(text)
            num_bytes += text.num_bytes
        except BadTextError as error:
            texts.append(error)
        if num_bytes >= _GROUP_BYTES:
            yield begin, i + 1, texts
            begin, num_bytes, texts = i + 1, 0, []
    if texts:
        yield begin, begin + len(texts), texts


def _encoded(texts: Sequence[Document | BadTextError], documents: Documents) -> Iterator[Tokens | BadTextError]:
    found = iter(documents.encode([text for text in texts if isinstance(text, Document)]))
    return (text if isinstance(text, BadTextError) else next(found) for text in texts)

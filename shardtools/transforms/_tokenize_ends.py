"""What begins and ends a document: resolved once, never doubled."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardtools.errors import UsageError
from shardtools.transforms._tokenize_hf import HfEncoder

AUTO, NONE = "auto", "none"
_USUAL_EOS = ("<|endoftext|>", "<|end_of_text|>", "</s>")
_SHOWN_CANDIDATES = 12


@dataclass(frozen=True)
class Ends:
    """The ids put around every document, None for nothing."""

    bos_id: int | None = None
    eos_id: int | None = None

    def missing(self, ids: npt.NDArray[Any]) -> tuple[int, int]:
        """How many ids, 0 or 1, are to be put before and behind: none that is there already, since the text spells it."""
        has_bos = len(ids) > 0 and int(ids[0]) == self.bos_id
        has_eos = len(ids) > 0 and int(ids[-1]) == self.eos_id
        return int(self.bos_id is not None and not has_bos), int(self.eos_id is not None and not has_eos)

    def around(self, ids: npt.NDArray[Any], dtype: str, counts: Counter[str]) -> npt.NDArray[Any]:
        """The document's tokens in ``dtype``, which holds every id; counts ``bos-present`` and ``eos-present``."""
        before, behind = self.missing(ids)
        if self.bos_id is not None and not before:
            counts["bos-present"] += 1
        if self.eos_id is not None and not behind:
            counts["eos-present"] += 1
        tokens = np.empty(before + len(ids) + behind, dtype)
        tokens[before : before + len(ids)] = ids
        if before:
            tokens[0] = self.bos_id
        if behind:
            tokens[-1] = self.eos_id
        return tokens


def settle_ends(encoder: HfEncoder, config: Mapping[str, Any], bos: str, eos: str) -> tuple[Ends, list[str]]:
    """``auto`` is what the config says, else no BOS and the usual EOS that the vocabulary has; and what was chosen, in words.

    Raises UsageError for a token that the vocabulary lacks.
    """
    bos_token, bos_why = (_auto_bos(encoder, config)) if bos == AUTO else (bos, "as asked")
    eos_token, eos_why = (_auto_eos(encoder, config)) if eos == AUTO else (eos, "as asked")
    begin, begin_note = _end(encoder, "bos", bos_token, f"documents begin with {{}} ({bos_why})")
    end, end_note = _end(encoder, "eos", eos_token, f"documents end with {{}} ({eos_why})")
    return Ends(begin, end), [begin_note, end_note]


def _end(encoder: HfEncoder, flag: str, token: str, note: str) -> tuple[int | None, str]:
    if token == NONE:
        return None, note.format(f"no {flag.upper()}")
    found = encoder.id_of(token)
    if found is None:
        known = [added.content for added in encoder.parsed.literals]
        others = ", ".join(known[:_SHOWN_CANDIDATES]) + (", ..." if len(known) > _SHOWN_CANDIDATES else "")
        raise UsageError(f"expected --{flag} auto, none or a token of the vocabulary, got {token!r}; it has {others or 'no added tokens'}")
    return found, note.format(f"{token} (id {found:,})")


def _auto_bos(encoder: HfEncoder, config: Mapping[str, Any]) -> tuple[str, str]:
    """A config that does not say whether the BOS it names is added leaves that to the tokenizer's post-processor."""
    named = token_text(config.get("bos_token"))
    if named is None:
        return NONE, "tokenizer_config.json names none" if config else "no tokenizer_config.json beside the tokenizer"
    asked = config.get("add_bos_token")
    if asked is None and encoder.first_id_of_template() == encoder.id_of(named):
        asked = True
    return (named, "as tokenizer_config.json says") if asked else (NONE, "tokenizer_config.json names one but does not add it")


def _auto_eos(encoder: HfEncoder, config: Mapping[str, Any]) -> tuple[str, str]:
    """``add_eos_token`` is about prompts, which do not end; documents do."""
    named = token_text(config.get("eos_token"))
    if named is not None:
        return named, "the EOS of tokenizer_config.json"
    usual = next((token for token in _USUAL_EOS if encoder.id_of(token) is not None), NONE)
    return usual, f"none of {', '.join(_USUAL_EOS)} is in the vocabulary" if usual == NONE else "the vocabulary has it"


def token_text(value: Any) -> str | None:
    """A token of a config: its text, or an object that holds it."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None

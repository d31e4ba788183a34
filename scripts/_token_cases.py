"""``shardtools pack --tokenizer`` beside bare encoding, beside the loop users write, and beside datatrove, on the same cores.

The tokenizer is loaded by every side; what it takes is reported apart (the side that packs one document), and left out of the
sides' times unless a claim says otherwise.
"""

import json
import sys
from pathlib import Path

from _claims import faster
from _inputs import SCRIPTS, SHARDTOOLS
from _measure import DESTINATION, Case, Claim, Contents, Round, Side, say
from _token_inputs import CORPORA, datatrove_python, distinct_text, one_document, tokenizer_folder
from _token_peers import SEQ_LEN, WORKERS

NUM_BYTES = 120_000_000


def tokens_case(work: Path, scale: float) -> Case:
    """Text in many languages, documentation and source text: everybody's side."""
    if tokenizer_folder() is None:
        return _left_out("tokens")
    folder, count = distinct_text(work, round(NUM_BYTES * scale), with_corpora=True)
    load, hf, gigatoken = _ours(work, folder, count)
    threads, alone, loop = (_peer(name, folder, count) for name in ("encode-with-threads", "encode-alone", "concat-to-mds"))
    sides, claims = [load, hf, gigatoken, threads, alone, loop], []
    for side, encoding, looping in ((hf, 0.9, 1.5), (gigatoken, 5.0, 5.0)):
        claims += [
            _apart(f"{side.name}: documents/s, times bare encode_batch_fast on {WORKERS} threads", side, load, threads, encoding),
            _apart(f"{side.name}: documents/s, times {WORKERS} loops of tokenizer and MDSWriter", side, load, loop, looping),
        ]
    python = datatrove_python(work)
    if python is not None:
        trove = _peer("datatrove", folder, count, str(python))
        sides.append(trove)
        # Both load their tokenizers in workers.
        claims += [
            faster(f"{side.name}: documents/s, times datatrove, loading counted", side, trove, bound)
            for side, bound in ((hf, 1.0), (gigatoken, 4.0))
        ]
    return Case("tokens", sides, claims)


def tokens_code_case(work: Path, scale: float) -> Case:
    """English and source text alone, where gigatoken is at its best."""
    if tokenizer_folder() is None:
        return _left_out("tokens-code")
    folder, count = distinct_text(work, round(NUM_BYTES * scale), with_corpora=False)
    load, _, gigatoken = _ours(work, folder, count)
    threads = _peer("encode-with-threads", folder, count)
    claim = _apart("gigatoken: documents/s, times bare encode_batch_fast, English and code", gigatoken, load, threads, 7.0)
    return Case("tokens-code", [load, gigatoken, threads], [claim])


def _left_out(name: str) -> Case:
    say(f"{name} is left out: {CORPORA} is not set, or names a folder without tokenizers/gpt2")
    return Case(name, [], [])


def _ours(work: Path, folder: Path, count: int) -> tuple[Side, Side, Side]:
    """Starting and loading alone, and the two backends. 16 partitions and more, so that both workers end at about the same time."""
    options = ("--to", "mds", "--tokenizer", str(folder / "tokenizer"), "--seq-len", str(SEQ_LEN), "--packing", "bfd")
    tail = (*options, "--workers", str(WORKERS), "--backend")
    contents = Contents(_stored_tokens, _num_tokens(folder))
    load = Side("loading, hf", (*SHARDTOOLS, "pack", str(one_document(work)), DESTINATION, *tail, "hf"), 1)
    packing = (*SHARDTOOLS, "pack", str(folder / "parts"), DESTINATION, *tail)
    return load, Side("hf", (*packing, "hf"), count, contents), Side("gigatoken", (*packing, "gigatoken"), count, contents)


def _peer(name: str, folder: Path, count: int, python: str = sys.executable) -> Side:
    contents = Contents(_told_tokens, _num_tokens(folder))
    return Side(name, (python, str(SCRIPTS / "_token_peers.py"), name, str(folder), DESTINATION), count, contents)


def _num_tokens(folder: Path) -> int:
    """What every side has to come to."""
    return sum(json.loads((folder / "counts.json").read_text()))


def _stored_tokens(destination: Path) -> int:
    ledger = json.loads((destination / "shardtools.manifest").read_bytes())["ledger"]
    return int(ledger["transforms"]["packing"]["tokens-stored"])


def _told_tokens(destination: Path) -> int:
    return int(json.loads((destination / "tokens.json").read_text()))


def _apart(text: str, ours: Side, load: Side, peer: Side, bound: float) -> Claim:
    """Neither side's loading counts."""

    def value(round_: Round) -> float:
        theirs = round_[peer.name]
        seconds = theirs.wall_seconds if theirs.loop_seconds is None else theirs.loop_seconds
        return seconds / (round_[ours.name].wall_seconds - round_[load.name].wall_seconds)

    return Claim(text, value, bound)

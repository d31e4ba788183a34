"""Whether sides deliver the same samples: proved by reading each as it is read in a trial, or the comparison is refused."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import combinations
from typing import Any

from shardtools.bench.readers.shared_memory import free_shared_memory
from shardtools.bench.spec import Layout, Settings, Workload
from shardtools.errors import ShardtoolsError, UsageError
from shardtools.units import plural

WHOLE_SAMPLES = 50_000
"""Up to so many samples a side is read whole."""
_SHOWN = 3
_POLL_SECONDS = 0.02
_MOST_PAYLOAD_RATIO = 1.02


@dataclass(frozen=True)
class Proof:
    """What a side delivered in one epoch, by its own reader and workers."""

    layout: Layout
    count: int | None
    """Samples there are; None of rows that are made on the fly."""
    id_hash: str | None
    """Sum and xor of the 64-bit hashes of all keys, in hex."""
    num_delivered: int
    num_repeated: int
    """Deliveries of a sample beyond its first."""
    repeated: tuple[str, ...]
    """The first few."""
    num_foreign: int
    """Delivered keys that are not among those the data has; 0 where all that was delivered is all there is."""
    payload_bytes: int
    """Of all fields of what was delivered."""
    decode_digest: str | None
    """SHA-256 over the decoded samples with the smallest hashes; None where rows have no keys."""
    decoded: dict[str, str]
    """The same sample by sample, by key."""
    num_tokens: int | None
    """Without padding, of what was delivered; None where there are none."""
    token_streams: dict[str, str]
    """Digests of the tokens by what they are of, each ``runs/tokens/digest``."""
    has_ends: bool
    """Every document of the tokens begins or ends with a token that says so."""
    whole: bool
    """All samples were read. Else keys are those of names and headers, and the rest is of the first ``num_delivered``."""
    keys: tuple[str, ...] = field(default=(), repr=False)
    """Of all samples, where the side was read whole."""

    @property
    def is_on_the_fly(self) -> bool:
        """Rows are made while reading, so that neither their number nor their content need be those of packed rows."""
        return self.count is None

    def as_json(self) -> dict[str, Any]:
        """For the report: without keys."""
        return {name: value for name, value in asdict(self).items() if name not in ("keys", "decoded")}


def prove(layout: Layout, workload: Workload, settings: Settings, timeout_seconds: float = 600.0) -> Proof:
    """Read one epoch of a side in a fresh process. The workload is settled.

    Raises UsageError where the side cannot be read so, ShardtoolsError where reading fails or takes too long.
    """
    folder = tempfile.mkdtemp(prefix="shardtools-proof-")
    try:
        found = _run(folder, {"layout": asdict(layout), "workload": asdict(workload), "settings": asdict(settings)}, timeout_seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if "fault" in found:
        raise (UsageError if found["is_usage"] else ShardtoolsError)(found["fault"])
    return proof_of(found)


def proof_of(data: dict[str, Any]) -> Proof:
    """The proof ``asdict`` made plain."""
    values = {**data, "layout": Layout(**data["layout"]), "keys": tuple(data["keys"]), "repeated": tuple(data["repeated"])}
    return Proof(**{name.name: values[name.name] for name in fields(Proof)})


def refuse_unequal(proofs: Sequence[Proof]) -> list[str]:
    """What was proved of each side beside the first, in sentences. Raises UsageError where any two do not deliver the same."""
    sentences = []
    for proof in proofs:
        _refuse_repeats(proof)
    for one, other in combinations(proofs, 2):
        same = _same_tokens if one.is_on_the_fly or other.is_on_the_fly else _same_samples
        sentences.append(f"{one.layout.name} and {other.layout.name}: {same(one, other)}")
    return sentences[: len(proofs) - 1]


def _refuse_repeats(proof: Proof) -> None:
    name = proof.layout.name
    if proof.num_repeated:
        raise UsageError(
            f"expected every sample once an epoch from {name}, got {plural(proof.num_repeated, 'repeat')}"
            f"{''.join(f', {key}' for key in proof.repeated[:_SHOWN])}; a dataset that takes no note of its worker is read whole by each"
        )
    if proof.num_foreign:
        raise UsageError(f"expected from {name} only samples that are in {proof.layout.uri}, got {proof.num_foreign:,} others")


def _same_samples(one: Proof, other: Proof) -> str:
    names = f"{one.layout.uri} ({one.layout.name}) and {other.layout.uri} ({other.layout.name})"
    if one.count != other.count or one.id_hash != other.id_hash:
        raise UsageError(
            f"expected the same samples on both sides, got {_key_difference(one, other)}; compare what was packed from the other"
        )
    common = one.decoded.keys() & other.decoded.keys()
    differing = sorted(key for key in common if one.decoded[key] != other.decoded[key])
    if differing:
        raise UsageError(
            f"expected samples that decode to the same in {names}, got {len(differing):,} of {len(common):,} others, "
            f"such as {', '.join(differing[:_SHOWN])}; a decode must give the same each time, or one side holds other bytes"
        )
    _refuse_other_payload(one, other, names)
    count = plural(one.count or 0, "sample")
    if not (one.whole and other.whole):
        read = f"the first {min(one.num_delivered, other.num_delivered):,} delivered came once each"
        decoded = (
            f"{len(common):,} read on both sides decode to the same" if common else "none was read on both sides, so none was compared"
        )
        return f"the same {count} by the keys in names and headers; {read}; {decoded}"
    return f"the same {count}, each delivered once; the {len(common):,} with the smallest hashes decode to the same"


def _refuse_other_payload(one: Proof, other: Proof, names: str) -> None:
    """Fields that only one side has are work that only one side does. Records are other bytes in other formats."""
    if "jsonl" in (one.layout.kind, other.layout.kind) or one.num_tokens is not None or not (one.whole and other.whole):
        return
    less, more = sorted((one, other), key=lambda proof: proof.payload_bytes)
    if more.payload_bytes > _MOST_PAYLOAD_RATIO * less.payload_bytes:
        raise UsageError(
            f"expected as many bytes to read in {names}, got {less.payload_bytes:,} in {less.layout.uri} and "
            f"{more.payload_bytes:,} in {more.layout.uri}; one holds fields that the other lacks"
        )


def _key_difference(one: Proof, other: Proof) -> str:
    places = f"{one.count:,} in {one.layout.uri} ({one.layout.name}) and {other.count:,} in {other.layout.uri} ({other.layout.name})"
    if not (one.keys and other.keys):
        return f"{places}, with other keys"
    only = [(side, sorted(set(mine) - set(theirs))) for side, mine, theirs in ((one, one.keys, other.keys), (other, other.keys, one.keys))]
    found = [
        f"{len(keys):,} only in {side.layout.uri} ({', '.join(keys[:_SHOWN])}{', ...' if len(keys) > _SHOWN else ''})"
        for side, keys in only
        if keys
    ]
    return f"{places}: {', '.join(found)}"


def _same_tokens(one: Proof, other: Proof) -> str:
    names = f"{one.layout.uri} ({one.layout.name}) and {other.layout.uri} ({other.layout.name})"
    if not (one.whole and other.whole):
        return f"the same tokenizer and settings; beyond {WHOLE_SAMPLES:,} rows a side, so their tokens were not compared"
    common = sorted(one.token_streams.keys() & other.token_streams.keys())
    if not common:
        raise UsageError(f"expected rows whose recipe says how they were packed, got none in {names}, so that tokens cannot be compared")
    name = common[0]
    if one.token_streams[name] != other.token_streams[name]:
        (runs, tokens), (other_runs, other_tokens) = (map(int, p.token_streams[name].split("/")[:2]) for p in (one, other))
        raise UsageError(
            f"expected the same tokens in {names}, got {tokens:,} and {other_tokens:,} tokens in {runs:,} and {other_runs:,} runs "
            f"({name}); pack the text anew, or name what was packed from it"
        )
    tokens = int(one.token_streams[name].split("/")[1])
    if not name.startswith("stream"):
        return f"the same {tokens:,} tokens in the same {name}, in any order"
    ends = "" if one.has_ends or other.has_ends else "; where documents end within it was not compared, since no token says so"
    return f"the same stream of {tokens:,} tokens in the same order{ends}"


def _run(folder: str, asked: dict[str, Any], timeout_seconds: float) -> dict[str, Any]:
    """What the process that reads reports."""
    result, words = os.path.join(folder, "proof"), os.path.join(folder, "words")
    with open(words, "wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "shardtools.bench.proving", result],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            start_new_session=True,  # so that its workers end with it
            env={**os.environ, "TMPDIR": folder, "OMP_NUM_THREADS": "1"},
        )
    has_ended = False
    try:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as asking:
            asking.write(json.dumps(asked).encode())
        has_ended = _has_ended(process, timeout_seconds)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        free_shared_memory(process.pid, folder)
    if not os.path.exists(result):
        why = f"its process ended: {_last_line(words)}" if has_ended else f"it took longer than {timeout_seconds:,.0f} seconds"
        raise ShardtoolsError(f"expected to read {asked['layout']['uri']} once to prove that sides are equal, but {why}")
    with open(result, encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def _has_ended(process: "subprocess.Popen[bytes]", timeout_seconds: float) -> bool:
    """Waits; the process stays a zombie, so that until its group is ended nobody else may get its number."""
    latest = time.monotonic() + timeout_seconds
    while time.monotonic() < latest:
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return True
        time.sleep(_POLL_SECONDS)
    return False


def _last_line(path: str) -> str:
    with open(path, "rb") as file:
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"

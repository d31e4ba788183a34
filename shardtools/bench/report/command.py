"""Commands to type next, with what was asked this time: the same data, read and consumed the same way."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from shardtools.bench.spec import MIN_SECONDS
from shardtools.bench.statistics import more_blocks

Json = Mapping[str, Any]

_ASKED: tuple[tuple[str, str, str, Any], ...] = (
    ("workload", "batch_size", "--batch-size", 64),
    ("workload", "transform", "--transform", None),
    ("workload", "collate", "--collate", None),
    ("workload", "order", "--order", "shuffled"),
    ("workload", "seed", "--seed", 0),
    ("workload", "tokenizer", "--tokenizer", None),
    ("workload", "text_key", "--text-key", "text"),
    ("workload", "seq_len", "--seq-len", None),
    ("workload", "shuffle_buffer", "--shuffle-buffer", None),
    ("workload", "predownload", "--predownload", None),
    ("workload", "cache_limit", "--cache-limit", None),
    ("settings", "num_workers", "--num-workers", 2),
    ("settings", "prefetch_factor", "--prefetch-factor", 2),
    ("settings", "start_method", "--start-method", None),
    ("consumer", "step_ms", "--step-ms", 0.0),
    ("consumer", "launch_cpu_ms", "--launch-cpu-ms", 0.0),
    ("consumer", "model", "--model", None),
    ("consumer", "copy", "--copy", "blocking"),
    ("cache", "wanted", "--cache", "cold-data"),
)
"""Part and name in the report, the option, and its default, which need not be said."""
_SECONDS = (("min_seconds", "--min-seconds", MIN_SECONDS), ("timeout_seconds", "--timeout", 120.0))
_BOUNDS = {"ratio": "--require-ratio", "au_percent": "--require-au"}
_SEARCHED = ("--num-workers", "--prefetch-factor")
_FOUND_OUT = ("auto", "rgb", "tokens")
"""What ``--decode auto`` comes to where it is settled by what samples hold."""


def again(data: Json, options: str) -> str:
    """The same with these options, and with more blocks where the first comparison left open which side is faster: one command for both."""
    first = next(iter(data["comparisons"]), None)
    blocks = () if first is None or first["is_clear"] or "--blocks" in options else ("--blocks", f"{more_blocks(first['n'])}")
    return bench(data, *options.split(), *blocks)


def bench(data: Json, *more: str) -> str:
    """With more options, which replace what was asked."""
    replaced = {*more, *(_SEARCHED if "--matrix" in more else ())}
    uris = dict.fromkeys(side["uri"] for side in data["sides"])
    words = [word for option, *value in _asked(data) if option not in replaced for word in (option, *value)]
    return " ".join(["shardtools", "bench", *map(shlex.quote, uris), *map(shlex.quote, words), *more])


def _asked(data: Json) -> Iterator[tuple[str, ...]]:
    """Options, each with its value if it takes one."""
    consumer = data["consumer"]
    readers = dict.fromkeys(side["reader"] for side in data["sides"])
    if "shardtools" in readers:  # the others are defaults
        yield "--reader", ",".join(readers)
    decode = data["workload"].get("decode")
    if decode not in (None, *_FOUND_OUT):
        yield "--decode", decode
    for part, name, option, default in _ASKED:
        value = data[part].get(name)
        if value not in (None, default):
            yield option, f"{value:g}" if isinstance(value, float) else str(value)
    spec: Json = next((trial["spec"] for trial in data["trials"]), {})
    for name, option, least in _SECONDS:
        if spec.get(name, least) > least:  # windows that were shorter than by default are no advice
            yield option, f"{spec[name]:g}"
    yield from _told(data)
    if data["cache"].get("wanted") == "cold-full":
        yield ("--allow-drop-caches",)
    if data["settings"].get("pin_memory"):
        yield ("--pin-memory",)
    is_cuda = consumer.get("device") == "cuda"
    if is_cuda:
        yield ("--gpu",)
    usual = "model" if is_cuda or consumer.get("model") else "sim" if consumer.get("step_ms") else "none"
    if consumer.get("kind", usual) != usual:
        yield "--consumer", consumer["kind"]


def _told(data: Json) -> Iterator[tuple[str, ...]]:
    """What is written where, and what it is held against."""
    if data.get("written_to"):
        yield "--report", data["written_to"]
    if data.get("has_pictures"):
        yield ("--png",)
    if data.get("lang", "en") != "en":
        yield "--lang", data["lang"]
    for gate in data["gates"]:
        yield _BOUNDS[gate["name"]], f"{gate['required']:g}"

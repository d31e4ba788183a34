"""The top of the page: what limits the loader, why, and what to type next."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from shardtools.bench.report import command
from shardtools.bench.report.chinese import with_comments
from shardtools.bench.report.doubts import INTERRUPTED
from shardtools.bench.report.gates import missed
from shardtools.bench.report.html._numbers import interval, rate, seconds, times
from shardtools.bench.report.html._stages import verdict_of, without_rate
from shardtools.bench.report.html._words import Say

Json = Mapping[str, Any]


def answer(data: Json, say: Say) -> dict[str, Any]:
    """For the template: plain text everywhere."""
    verdict, compared = data.get("verdict"), [compared_sentence(one, say) for one in data["comparisons"]]
    headline = _sentence(verdict, say) if verdict else compared[0] if compared else _alone(data, say)
    return {
        "kicker": _kicker(data, say),
        "headline": headline,
        "chips": _chips(verdict, say),
        "no_verdict": "" if verdict else _why_no_verdict(data, say),
        "compared": compared if verdict else compared[1:],
        "interrupted": INTERRUPTED[say.lang] if data.get("is_interrupted") else "",
        "noise": say.reason(data["noise"]["line"]) if data["noise"]["sentences"] and not verdict else "",
        "missed": [say.reason(sentence) for sentence in missed(data.get("gates") or [])],
        "gain": _gain(verdict, say),
        "evidence": [line[say.lang] for line in (verdict or {}).get("evidence") or []],
        "remedies": _remedies(verdict, say),
        "others": list(_others(data, say)),
        "asides": [one[say.lang] for one in data.get("asides") or []],
        "next": list(_next(data, say)),
        "reasons": [line[say.lang] for line in (data.get("recommendation") or {}).get("why") or []],
        "alternatives": list(_alternatives(data, say)),
    }


def _kicker(data: Json, say: Say) -> str:
    names = [os.path.basename(uri.rstrip("/")) or uri for uri in dict.fromkeys(side["uri"] for side in data["sides"])]
    count = data["workload"].get("n_samples")
    return " vs ".join(names) + ("" if count is None else f" · {count:,} {say('samples')}")


def _alone(data: Json, say: Say) -> str:
    """What can be said where nothing was compared: how fast, or why not."""
    for side in data["sides"]:
        if side["throughput"] is not None:
            return say("reads").format(say.side(side["name"]), rate(side["throughput"]))
    failed = next(
        (f"{say('status.' + trial['status'])}, {say.reason(trial['message'])}" for trial in data["trials"] if trial["message"]), ""
    )
    return say("none well") + (f": {failed}" if failed else "")


def _sentence(verdict: Json, say: Say) -> str:
    return str(verdict[f"sentence_{say.lang}"])


def compared_sentence(compared: Json, say: Say) -> str:
    """In English as the command says it."""
    if say.lang == "en":
        return str(compared["answer"])
    if compared.get("answer_zh"):
        return str(compared["answer_zh"])
    form = say("cmp.clear" if compared["is_clear"] else "cmp.unclear")
    facts = {"a": say.side(compared["a"]), "b": say.side(compared["b"]), "p": compared["p"]}
    return form.format(**facts, ratio=f"{compared['ratio']:.2f}", ci=interval(compared["ci"]) or "–")


def _chips(verdict: Json | None, say: Say) -> list[str]:
    if verdict is None:
        return []
    found = [say(f"class.{verdict['class']}")]
    return found if verdict["class"] == "inconclusive" else [*found, say(f"confidence.{verdict['confidence']}")]


def _why_no_verdict(data: Json, say: Say) -> str:
    reasons = {entry["metric"]: entry["reason"] for entry in data["not_measured"]}
    reason = reasons.get("verdict")
    return say("no verdict") + (f": {say.reason(reason)}" if reason else "")


def _gain(verdict: Json | None, say: Say) -> str:
    gain = (verdict or {}).get("gain")
    if not gain:
        return ""
    if gain.get(say.lang):
        return str(gain[say.lang])
    ci = f" ({interval(gain['ci'])})" if gain["ci"] else ""
    then = f"; {say('then')} {_what(gain['then'], say)}" if gain["then"] else ""
    return f"{say('gain')} {times(gain['ratio'])}{ci}{then}"


def _remedies(verdict: Json | None, say: Say) -> list[dict[str, Any]]:
    """Of what was left open the first stands under what to type already."""
    found = (verdict or {}).get("remedies") or []
    typed = next((one for one in found if one["options"]), None) if verdict and verdict["class"] == "inconclusive" else None
    return [{"text": one[say.lang], "options": one["options"]} for one in found if one is not typed]


def _what(name: str, say: Say) -> str:
    """A class of verdict without the word bottleneck before it."""
    words = say(f"class.{name}")
    return words.partition(": ")[2] or words.partition("：")[2] or words


def _others(data: Json, say: Say) -> Iterator[dict[str, Any]]:
    shown = data.get("verdict")
    for side, facts in enumerate(data["sides"]):
        verdict = verdict_of(data, side)
        if verdict is not None and verdict != shown:
            yield {
                "name": say.side(facts["name"]),
                "text": _sentence(verdict, say),
                "chips": _chips(verdict, say),
                "gain": _gain(verdict, say),
            }


def _next(data: Json, say: Say) -> Iterator[dict[str, str]]:
    """What to type, the first first. A verdict that leaves all open asks for another run before anything is changed."""
    found, verdict = data.get("recommendation"), data.get("verdict")
    if verdict is not None and (found is None or verdict["class"] == "inconclusive"):
        yield from _of_remedy(data, verdict, say)
    if not found and verdict is not None and verdict["class"] == "fed":
        return  # nothing is to be changed
    is_again = verdict is not None and verdict["class"] == "inconclusive" and any(one["options"] for one in verdict["remedies"])
    if found:
        yield from _of_recommendation(data, found, say)
    else:
        if verdict is None:
            yield {"label": say("next.attribute"), "code": command.bench(data, "--attribute", "all")}
        yield {"label": say("next.optional" if is_again else "next.measure"), "code": command.bench(data, "--matrix")}
    first = next(iter(data["comparisons"]), None)
    if first is not None and not first["is_clear"] and not is_again:  # else it is in the first command
        yield {"label": say("next.blocks"), "code": command.again(data, "")}


def _of_remedy(data: Json, verdict: Json, say: Say) -> Iterator[dict[str, str]]:
    """The first that has something to type; options of bench with the command they belong to."""
    typed = next((one for one in verdict["remedies"] if one["options"]), None)
    if typed is not None:
        options = str(typed["options"])
        is_ours, is_open = options.startswith("--"), verdict["class"] == "inconclusive"
        ours = command.again(data, options) if is_open else command.bench(data, *options.split())
        code = ours if is_ours else options
        said = typed[say.lang]
        yield {"label": f"{said[:1].upper()}{said[1:]}{'：' if say.lang == 'zh' else ':'}", "code": code}


def _of_recommendation(data: Json, found: Json, say: Say) -> Iterator[dict[str, str]]:
    """Settings are searched for the side named last."""
    label = say("next.snippet" if found["is_change"] else "next.keep" if found["is_known"] else "next.unknown")
    name = say.side(data["sides"][-1]["name"]) if len(data["sides"]) > 1 else ""
    which = "" if not name else f"：{name}" if say.lang == "zh" else f" ({name})"
    snippet = {"label": label + which, "code": with_comments(found["snippet"].strip("\n"), say.lang)}
    lines = {name: with_comments(line.strip("\n"), say.lang) for name, line in (found.get("shared_memory") or {}).items() if line}
    room = [{"label": say(f"next.{where}"), "code": line} for where, line in lines.items()]
    is_room_first = any(verdict["class"] == "shared_memory" for verdict in data["verdicts"])
    yield from [*room, snippet] if is_room_first else [snippet, *room]


def _alternatives(data: Json, say: Say) -> Iterator[dict[str, str]]:
    for one in (data.get("recommendation") or {}).get("alternatives") or []:
        params = ", ".join(f"{name}={value}" for name, value in one["params"].items())
        why = one["why"]
        text = "; ".join(line[say.lang] for line in why) if isinstance(why, list) else why[say.lang] if isinstance(why, dict) else str(why)
        yield {"params": params, "rate": f"{rate(one['throughput'])} {say('samples/s')}", "why": text}


def side_cards(data: Json, say: Say) -> Iterator[dict[str, Any]]:
    """The figures of each side, with what failed."""
    for number, side in enumerate(data["sides"]):
        failed = [trial for trial in data["trials"] if trial["side"] == number and trial["status"] != "ok"]
        messages = list(dict.fromkeys(f"{say('status.' + trial['status'])}: {say.reason(trial['message'])}" for trial in failed))
        yield {
            "name": say.side(side["name"]),
            "uri": side["uri"],
            "rate": rate(side["throughput"]) if side["throughput"] is not None else without_rate(side, say),
            "unit": say("samples/s") if side["throughput"] is not None else "",
            "spread": ""
            if side["least"] is None or side["least"] == side["most"]
            else say("spread").format(rate(side["least"]), rate(side["most"])),
            "facts": list(_facts(side, say)),
            "failures": [say("failures").format(len(failed)), *messages[:3]] if failed else [],
        }


def _facts(side: Json, say: Say) -> Iterator[tuple[str, str]]:
    if side["au"] is not None:
        yield f"{100 * side['au']:.0f} %", say("busy")
    if side["wait_share"] is not None and side["au"] is not None:  # what only drains does nothing but wait
        yield f"{100 * side['wait_share']:.0f} %", say("waiting")
    if side["first_batch_s"] is not None:
        yield seconds(side["first_batch_s"]), say("first batch")
    if side["tokens_per_s"] is not None:
        yield rate(side["tokens_per_s"]), say("tokens/s")

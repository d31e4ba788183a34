"""Shared memory that is too small for settings that would be faster: the last question, asked when they have been searched."""

from dataclasses import replace

from shardtools.bench.attribution.result import Attribution, Confidence, Fact, Gain, VerdictClass

_NOT_OF_SETTINGS = ("fed", "h2d_copy", "contention", "shared_memory", "fd_limit")
"""More workers would not help, or the trial ended for want of something already."""


def capped(found: Attribution | None, told: Fact, is_noisy: bool = False) -> Attribution:
    """``shared_memory`` in place of what costs most at the current settings: more workers would share that cost, and have no room.

    ``told``: a fact ``capped``. ``found`` None: nothing else was asked. Unchanged where the loader is not the limit.
    """
    if found is not None and (found.verdict in _NOT_OF_SETTINGS or found.fact("marginal") is not None or found.fact("status") is not None):
        return found
    values = told.values
    confidence: Confidence = "high" if values["is_seen"] and not is_noisy else "medium"
    before = found or Attribution("inconclusive", None, "inconclusive", dict.fromkeys(("F", "G", "H", "L")), (), None, (), (), 0.0)
    then: VerdictClass | None = before.verdict if before.stage is not None else None
    gain = Gain(values["most_gain"], None, then)
    rates = {**before.rates, "L": before.rates["L"] or values["rate"]}
    return replace(before, verdict="shared_memory", stage=None, confidence=confidence, rates=rates, facts=(told, *before.facts), gain=gain)

"""Input cut into parts by what steps leave of it: images that are made smaller would fill but a piece of each part's last shard."""

from contextlib import closing
from dataclasses import replace
from math import log2

from shardtools.build.first_look import FirstLook
from shardtools.build.looking import after_look, weight
from shardtools.plan import ShardLimit
from shardtools.sample import ignore_reject
from shardtools.sources import Source, Survey, SurveyRequest
from shardtools.transforms import PartitionWork, ShrinkingStep

_FIRST_SAMPLES = 32
_FIRST_BYTES = 32 << 20
_MOST_FACTOR = 64
_MOST_BYTES = 1 << 31


def surveyed(source: Source, request: SurveyRequest, look: FirstLook) -> Survey:
    """The survey of the source; afterwards the steps of ``look`` are settled.

    With steps that shrink, parts hold as much more input as the first samples shrink, in powers of two: what other values these
    have then seldom changes the plan.
    """
    survey = source.survey(request)
    look.steps = after_look(survey, request, look)
    num_bytes = request.limit.num_bytes
    if num_bytes is None or not any(isinstance(step, ShrinkingStep) and step.shrinks for step in look.steps):
        return survey
    wide = min(num_bytes * _factor(survey, request, look), max(num_bytes, _MOST_BYTES))
    if wide == num_bytes:
        return survey
    return source.survey(replace(request, limit=ShardLimit(num_bytes=wide), foresee=FirstLook(look.steps, look.roots)))


def _factor(survey: Survey, request: SurveyRequest, look: FirstLook) -> int:
    """How many times as large as afterwards the first samples are."""
    before = after = num_samples = 0
    extents = survey.partitions[0].extents if survey.partitions else []
    with closing(survey.source.read(look.roots, extents, ignore_reject, request.extras)) as batches:
        for batch in batches:
            made = [batch.take(range(min(len(batch), _FIRST_SAMPLES - num_samples)))]
            num_samples += len(made[0])
            for step in look.steps:
                if isinstance(step, ShrinkingStep) and step.shrinks:
                    before += sum(map(weight, made))
                made = list(step.apply(iter(made), PartitionWork(0, ignore_reject, roots=look.roots)))
            after += sum(map(weight, made))
            if num_samples >= _FIRST_SAMPLES or before >= _FIRST_BYTES:
                break
    if not after:  # none of them is left, which says nothing of the others
        return 1
    return min(1 << max(0, round(log2(max(before, 1) / after))), _MOST_FACTOR)

"""Steps that go by first values are told them as soon as the fields are planned."""

from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial

from shardtools.build.first_look import FirstLook
from shardtools.sample import Batch, ignore_reject
from shardtools.sources import Survey, SurveyRequest
from shardtools.transforms import LookingStep, PartitionWork, Step

_FIRST_SAMPLES = 1000
_FIRST_BYTES = 32 << 20


def after_look(survey: Survey, request: SurveyRequest, look: FirstLook) -> tuple[Step, ...]:
    """The steps with what the first samples of the first partition settle, which is noted. Raises UsageError as ``Step.fields`` does."""
    fields, done = survey.fields, list[Step]()
    for step in look.steps:
        if isinstance(step, LookingStep):
            step = step.after_look(fields, partial(_first_samples, survey, request, FirstLook(tuple(done), look.roots)))
        fields = step.fields(fields)
        if isinstance(step, LookingStep):
            look.notes.append(step.note)
        done.append(step)
    return tuple(done)


def weight(batch: Batch) -> int:
    """About what the samples take when they are stored."""
    return sum(len(value) for values in batch.columns.values() for value in values if isinstance(value, bytes | str))


def _first_samples(survey: Survey, request: SurveyRequest, look: FirstLook) -> Generator[Batch]:
    """What the steps make of up to 1,000 samples, or of about 32 MiB: media that a step reads count, too."""
    extents = survey.partitions[0].extents if survey.partitions else []
    num_bytes = 0
    with closing(survey.source.read(look.roots, extents, ignore_reject, request.extras)) as batches:
        made = _up_to(_FIRST_SAMPLES, batches)
        for step in look.steps:
            made = step.apply(made, PartitionWork(0, ignore_reject, roots=look.roots))
        for batch in made:
            yield batch
            num_bytes += weight(batch)
            if num_bytes >= _FIRST_BYTES:
                return


def _up_to(num_samples: int, batches: Iterator[Batch]) -> Iterator[Batch]:
    for batch in batches:
        yield batch.take(range(min(len(batch), num_samples)))
        num_samples -= len(batch)
        if num_samples <= 0:
            return

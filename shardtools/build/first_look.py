"""What steps learn of the first samples, while the source is still being planned."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from shardtools.sample import Batch, Field, ignore_reject
from shardtools.sources import Foreseen, SurveyRequest
from shardtools.transforms import FillingStep, PartitionWork, Step
from shardtools.transforms.select import Select


@dataclass
class FirstLook:
    """``SurveyRequest.foresee`` of these steps; afterwards ``steps`` are settled."""

    steps: tuple[Step, ...]
    roots: tuple[str, ...]

    notes: list[str] = field(default_factory=list)
    """What was settled, for people."""

    def of(self, request: SurveyRequest, others: Iterable[str] = ()) -> SurveyRequest:
        """The request with what the steps ask of the source; ``others`` are extras that are asked for besides."""
        extras = {name for step in self.steps for name in step.extras}.union(others)
        replaced = frozenset().union(*(step.replaced for step in self.steps if isinstance(step, FillingStep)))
        return replace(request, extras=tuple(sorted(extras)), replaced=replaced, foresee=self)

    def given(self, made: tuple[Field, ...]) -> tuple[Field, ...]:
        """The source's own fields, where these come out of the steps."""
        for step in reversed(self.steps):
            made = step.given(made) if isinstance(step, FillingStep) else made
        return made

    def __call__(self, first: Sequence[Batch]) -> Foreseen:
        kept, more_bytes = first, 0
        settled: list[Step] = []
        for step in self.steps:
            if isinstance(step, Select):
                kept = list(step.apply(iter(kept), PartitionWork(0, ignore_reject)))
            elif isinstance(step, FillingStep):
                # Where none of the first is kept, others are like them.
                step, num_bytes = step.settled(kept or first, self.roots)
                self.notes.append(step.note)
                more_bytes += num_bytes
            settled.append(step)
        self.steps = tuple(settled)
        return Foreseen(max(sum(map(len, kept)), 1) / max(sum(map(len, first)), 1), more_bytes)

"""By what rule the samples of several datasets came to their splits: one for all of them, or the reason why there is none."""

from collections.abc import Sequence

from shardtools.build.existing.merge_inputs import MergeInput
from shardtools.errors import UsageError
from shardtools.selection import Selection


def one_split_rule(inputs: Sequence[MergeInput]) -> Selection:
    """The rule that all inputs have in common, which may be that there are no splits.

    Raises UsageError that names two datasets whose rules differ: by one of them samples of the other are in the wrong split.
    """
    rules = [_rule(one) for one in inputs]
    for one, rule in zip(inputs, rules, strict=True):
        if rule != rules[0]:
            raise UsageError(
                f"expected datasets that were split by one rule, got {inputs[0].part.folder} ({_words(rules[0])}) and "
                f"{one.part.folder} ({_words(rule)}); pack one of them again with the --split and --group-by of the other"
            )
    return rules[0]


def _rule(one: MergeInput) -> Selection:
    manifest = one.part.dataset.manifest
    return Selection() if manifest is None else Selection(split=manifest.selection.split, group_by=manifest.selection.group_by)


def _words(rule: Selection) -> str:
    if not rule.split:
        return "without splits"
    shares = ",".join(f"{name}={share}" for name, share in rule.split)
    return f"--split {shares}{f' --group-by {rule.group_by}' if rule.group_by else ''}"

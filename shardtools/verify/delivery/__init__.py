"""Level 5: every sample is delivered exactly once in an epoch, by arithmetic always and by real readers where asked for."""

import importlib.util

from shardtools.datasets import Dataset
from shardtools.errors import UsageError
from shardtools.places import is_here
from shardtools.verify.delivery._arithmetic import check_arithmetic
from shardtools.verify.delivery._grid import arithmetic_cells, refuse_unbounded
from shardtools.verify.delivery._live import OWN_READER, READER_OF, check_live
from shardtools.verify.delivery._names import refuse_unknown_names
from shardtools.verify.delivery._splits import check_splits, refuse_several
from shardtools.verify.findings import Findings
from shardtools.verify.options import DeliveryOptions
from shardtools.verify.stored import Proof, Stored

__all__ = ["check_delivery", "refuse_elsewhere", "refuse_impossible"]


def check_delivery(stored: Stored, options: DeliveryOptions, findings: Findings) -> Proof:
    """Prove the delivery of what is stored, of each split where there are any. What only running a reader shows is a finding.

    Raises UsageError as ``refuse_impossible``, but for names, which are looked up there alone.
    """
    _refuse_options(options, stored.dataset.format_name)
    return check_splits(_check, stored, options, findings)


def _check(stored: Stored, options: DeliveryOptions, findings: Findings) -> Proof:
    if options.factory is not None or options.reader == OWN_READER:
        # Whose arithmetic nobody knows; of ours it would be its own witness.
        return check_live(stored, options, findings)
    proof = check_arithmetic(stored, arithmetic_cells(options), findings)
    if not options.is_live:
        return Proof(proof.proved, (*proof.not_proved, "what real reader processes deliver (--live)"))
    live = check_live(stored, options, findings)
    return Proof((*proof.proved, *live.proved), tuple(dict.fromkeys((*proof.not_proved, *live.not_proved))))


def refuse_impossible(options: DeliveryOptions, format_name: str) -> None:
    """Raises UsageError where what is asked cannot be carried out for a dataset of that format.

    Costs nothing, but where code of the user's own is named: a process imports it, to see that it is there.
    """
    _refuse_options(options, format_name)
    refuse_unknown_names(options)


def refuse_elsewhere(options: DeliveryOptions, dataset: Dataset) -> None:
    """Raises UsageError where the reader that is to be run cannot read where the dataset lies, or which split of it is not known."""
    refuse_several(options, dataset)
    reader = options.reader or READER_OF.get(dataset.format_name)
    if options.is_live and options.factory is None and reader == "webdataset" and not is_here(dataset.uri):
        raise UsageError(
            f"expected files of this machine for webdataset, which opens no {dataset.uri} by itself; "
            f"give --reader {OWN_READER}, your own by --dataset, or copy the shards here"
        )


def _refuse_options(options: DeliveryOptions, format_name: str) -> None:
    if any(size < 1 for size in options.world_sizes or ()):
        raise UsageError(f"expected world sizes of at least 1, got {min(options.world_sizes or ())}; correct --world-size")
    if any(number < 0 for number in options.num_workers or ()):
        raise UsageError(f"expected 0 workers or more, got {min(options.num_workers or ())}; correct --num-workers")
    refuse_unbounded(options)
    if options.id_of is not None and not options.is_live:
        raise UsageError("expected --live, --reader or --dataset with --id, got none of them: only a live run delivers items; add one")
    if options.is_live:
        _refuse_reader(options, format_name)


def _refuse_reader(options: DeliveryOptions, format_name: str) -> None:
    if options.factory is not None and options.reader is not None:
        raise UsageError("expected --reader or --dataset, got both; give the one that is to be run")
    known = (*READER_OF.values(), OWN_READER)
    if options.reader not in (None, *known):
        raise UsageError(f"expected {' or '.join(known)} for --reader, got {options.reader!r}; name your own by --dataset")
    fitting = OWN_READER if options.reader == OWN_READER else READER_OF.get(format_name)
    if options.factory is None and options.reader not in (None, fitting):
        raise UsageError(f"expected the reader of {format_name}, {fitting}, got {options.reader}; leave --reader out")
    needed = {"torch"} if options.factory is not None or fitting is None else {"torch", fitting}
    for name in sorted(needed):
        if importlib.util.find_spec(name) is None:
            raise UsageError(f"expected {name} for a live run, got no such package; run pip install 'shardtools[train]'")

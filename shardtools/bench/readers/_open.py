"""Which reader a layout is opened by; each is imported when it is chosen."""

from collections.abc import Callable
from importlib import import_module

from shardtools.bench.readers.side import Delivery, Side
from shardtools.bench.spec import Layout, Workload
from shardtools.errors import UsageError

_PACKAGE = "shardtools.bench.readers"
_MODULES = {
    ("files", "torch"): "_files",
    ("jsonl", "torch"): "_records",
    ("wds", "webdataset"): "_webdataset",
    ("mds", "streaming"): "_mosaic",
    ("jsonl", "shardtools"): "_own",
    ("wds", "shardtools"): "_own",
    ("mds", "shardtools"): "_own",
}

Opener = Callable[[Layout, Workload, Delivery], Side]


def open_reader(layout: Layout, workload: Workload, delivery: Delivery) -> Side:
    """The layout by its reader, delivering what ``delivery`` makes of samples. The workload is settled."""
    name = _MODULES.get((layout.kind, layout.reader))
    if name is None:
        raise UsageError(f"expected a reader of {layout.kind}, got {layout.reader}; leave --reader out")
    is_on_the_fly = layout.kind == "jsonl" and workload.decode == "tokens"
    if is_on_the_fly and layout.reader != "torch":
        raise UsageError(f"expected JSON lines to be tokenized by the reader torch, got {layout.reader}; leave --reader out")
    open_layout: Opener = import_module(f"{_PACKAGE}.{'_documents' if is_on_the_fly else name}").open_layout
    return open_layout(layout, workload, delivery)

"""What is asked of a verification."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class DeliveryOptions:
    """How the delivery of samples is proved: by arithmetic always, by real readers where ``is_live``."""

    world_sizes: tuple[int, ...] | None = None
    """None: 1, 2, 4 and so on for the arithmetic, 1 and 2 for real readers."""
    num_workers: tuple[int, ...] | None = None
    """DataLoader workers on each rank; None: 0 (arithmetic alone), 1, 2, 4 and so on, 2 for real readers."""
    live: bool = False
    """Run the reader of the dataset's format in real processes. ``reader`` and ``factory`` imply it."""
    reader: str | None = None
    """``webdataset`` or ``streaming``; None: the one of the dataset's format."""
    factory: str | None = None
    """``pkg.mod:factory``: the user's own dataset, or DataLoader, made by ``factory(uri)``."""
    id_of: str | None = None
    """``pkg.mod:function``: the id of an item; None: its ``__key__``, ``key`` or ``id``."""

    @property
    def is_live(self) -> bool:
        return self.live or self.reader is not None or self.factory is not None


@dataclass(frozen=True)
class VerifyOptions:
    """What is looked at, and how the work is done."""

    workers: int | None = None
    """Worker processes; None: all cores where there is enough to check, else none."""
    max_findings: int = 100
    """How many findings of one kind in one file are listed; the others are counted."""
    deep: bool = False
    """Decode values too: images to their pixels, JSON, UTF-8."""
    no_dup: bool = False
    """Look for equal content under two keys, and prove the delivery."""
    delivery: DeliveryOptions = field(default_factory=DeliveryOptions)
    against: tuple[str, ...] = ()
    """The source the dataset was packed from, or another dataset, to compare with."""
    tokenizer: str | None = None
    """Where the tokenizer of a dataset of tokens lies, to compare it with its source."""
    media_root: str | None = None
    """Where the media lie that records point at, to compare a dataset that took them in with its source; None: in the source."""
    targets: tuple[str, ...] = ()
    """Readers that must take every sample as it is."""
    strict: bool = False
    """Notes count as findings."""

    @property
    def asks_for_delivery(self) -> bool:
        return self.no_dup or self.delivery.is_live

    @property
    def levels(self) -> frozenset[int]:
        """The levels that are looked at."""
        more = {4: self.no_dup, 5: self.asks_for_delivery, 6: bool(self.against), 7: bool(self.targets)}
        return frozenset({1, 2, 3} | {level for level, is_asked in more.items() if is_asked})

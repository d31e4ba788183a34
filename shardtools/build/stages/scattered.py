"""What a partition leaves behind when it is scattered."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass

from shardtools.build.receipts import Receipt, sealed, unsealed
from shardtools.build.stages.layout import ScatterLayout
from shardtools.build.stages.sizes import Sizes
from shardtools.build.stages.spill import SpillFacts


@dataclass(frozen=True)
class Scattered:
    """One scattered partition."""

    receipt: Receipt
    """Without shards: its ledger, its rejects and the digests of its keys."""
    spill: SpillFacts
    sizes: Sequence[Sizes]
    """Of each split."""
    layout: ScatterLayout
    """That spill and sizes have: it follows from the plan and from what is read beside the inputs, which may change."""

    def serialize(self) -> bytes:
        """One JSON line, then the receipt and the sizes as bytes."""
        parts = [self.receipt.serialize(), *(sizes.tobytes() for sizes in self.sizes)]
        return sealed({"spill": astuple(self.spill), "layout": astuple(self.layout), "parts": list(map(len, parts))}, b"".join(parts))

    @classmethod
    def parse(cls, data: bytes) -> "Scattered | None":
        """None for anything that is not whole."""
        opened = unsealed(data)
        if opened is None:
            return None
        head, payload = opened
        parts, begin = [], 0
        for num_bytes in head["parts"]:
            parts.append(payload[begin : begin + num_bytes])
            begin += num_bytes
        receipt = Receipt.parse(parts[0])
        if receipt is None or "layout" not in head:
            return None
        return cls(receipt, SpillFacts(*head["spill"]), [Sizes.of(part) for part in parts[1:]], ScatterLayout(*head["layout"]))

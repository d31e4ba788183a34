"""From what differs to findings: stored twice, padded on purpose, a lost tail, or a fault of the reader."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shardtools.units import plural
from shardtools.verify.delivery import _streaming
from shardtools.verify.delivery._compare import Delivery, Differences, Reader, compare, texts_of
from shardtools.verify.delivery._grid import Cell, listed
from shardtools.verify.delivery._spec import RESUMED, STOPPED, RankReport, RunSpec
from shardtools.verify.findings import Findings
from shardtools.verify.stored import Place, Stored, digest_of, places


@dataclass(frozen=True)
class Epoch:
    """One full epoch of one run."""

    name: str
    delivery: Delivery
    differences: Differences


@dataclass
class Judge:
    """Turns runs into findings; a sample is reported once for each kind, with the first run that showed it."""

    stored: Stored
    findings: Findings
    reported: set[tuple[str, bytes]] = field(default_factory=set)

    def epochs(self, spec: RunSpec, cell: Cell, names: Sequence[str], reports: Sequence[RankReport]) -> list[Epoch]:
        """Compare full epochs with what is stored. Returns them; findings are added for all that is not exact or padding."""
        epochs, report = [], reports[0]
        for name in names:
            delivery = Delivery().read(spec, name)
            epochs.append(Epoch(name, delivery, compare(self.stored.keys, delivery, self.findings.limit)))
        allowed = num_padding(self.stored.num_samples, cell, report)
        for epoch in epochs:
            stopped = overrun(reports, epoch.name)
            where, found = f"epoch {epoch.name} of {cell}{stopped}", epoch.differences
            if found.num_unknown:
                self._unknown(spec, where, epoch)
            if found.num_delivered and found.num_unknown == found.num_delivered:
                continue  # nothing is known of a reader whose ids are none
            if found.num_repeats != allowed and not (report.drops_last and found.num_repeats < allowed):
                self._repeated("read-twice", where, epoch.delivery, found, allowed)
            if found.num_missing and not (stopped and (found.num_repeats or found.num_unknown)):  # the rest might have come
                is_tail = self._is_tail(epoch, epochs, cell, report)
                self._missing("lost-tail" if is_tail else "never-read", where, epoch.delivery, found)
        return epochs

    def resume(self, stopped: RunSpec, resumed: RunSpec, cell: Cell, report: RankReport, endless: str) -> bool:
        """Compare the two parts of an epoch together with what is stored; ``endless`` is what ``overrun`` says of the second."""
        delivery = Delivery().read(stopped, STOPPED)
        num_seen = len(delivery.table)
        delivery.read(resumed, RESUMED, is_resumed=True)
        try:
            found = compare(self.stored.keys, delivery, self.findings.limit)
            allowed = num_padding(self.stored.num_samples, cell, report, num_seen)
            where = f"an epoch of {cell} stopped after {num_seen:,} samples and resumed{endless}"
            if found.num_repeats != allowed:
                self._repeated("resume-repeats", where, delivery, found, allowed)
            if found.num_missing and not (endless and found.num_repeats):
                self._missing("resume-skips", where, delivery, found)
            return found.num_repeats == allowed and not found.num_missing and not endless
        finally:
            delivery.table.close()

    def _unknown(self, spec: RunSpec, where: str, epoch: Epoch) -> None:
        """Ids that are no stored keys."""
        found = epoch.differences
        texts = texts_of(spec, [epoch.name], found.unknown)
        new = [digest for digest in found.unknown if self._is_new("unknown-id", digest)]
        count = f"{found.num_unknown:,} of {plural(found.num_delivered, 'sample')} in {where}"
        if found.num_unknown == found.num_delivered and new:
            some = listed([repr(text) for text in texts.values()], 3)
            self.findings.add("unknown-id", f"expected ids that are stored keys, got {some}: {count}")
            return
        for digest in new:
            self.findings.add("unknown-id", f"expected ids that are stored keys, got another: {count}", None, texts[digest])

    def _repeated(self, kind: str, where: str, delivery: Delivery, found: Differences, allowed: int) -> None:
        readers = delivery.readers_of(found.repeated)
        padding = f", of which {allowed:,} would be padding" if allowed else ""
        total = f"{found.num_repeats:,} {'delivery' if found.num_repeats == 1 else 'deliveries'} too many{padding}"
        for digest, place in self._new_places(kind, found.repeated):
            got = f"{readers[digest].total()} times, from {listed(_told(readers[digest]), 6)}"
            self.findings.add(
                kind, f"expected this sample once in {where}, got it {got} ({total})", place.shard.name, place.key, place.offset
            )

    def _missing(self, kind: str, where: str, delivery: Delivery, found: Differences) -> None:
        named = list(self._new_places(kind, found.missing))
        readers = delivery.readers_of([digest_of(place.previous) for _, place in named if place.previous is not None])
        for _, place in named:
            before = readers.get(digest_of(place.previous), ()) if place.previous is not None else ()
            source = f"; the sample before it in the shard came from {listed(_told(before), 6)}" if before else ""
            detail = f"expected this sample once in {where}, got it never{source} ({found.num_missing:,} missing)"
            self.findings.add(kind, detail, place.shard.name, place.key, place.offset)

    def _new_places(self, kind: str, digests: Sequence[bytes]) -> list[tuple[bytes, Place]]:
        """Where the samples lie that were not reported yet, in dataset order."""
        new = [digest for digest in digests if self._is_new(kind, digest)]
        found: dict[bytes, Place] = {}
        for place in places(self.stored.dataset, new):
            found.setdefault(digest_of(place.key), place)
        return list(found.items())

    def _is_new(self, kind: str, digest: bytes) -> bool:
        is_new = (kind, digest) not in self.reported
        self.reported.add((kind, digest))
        return is_new

    def _is_tail(self, epoch: Epoch, epochs: Sequence[Epoch], cell: Cell, report: RankReport) -> bool:
        """What is missing is less than a batch of each reader, at its end, and every batch that came is full.

        At the end is known from a loader that says it drops its last batch; from the order of the samples; or, in a reader that
        shuffles, from other samples missing in other epochs.
        """
        found = epoch.differences
        if found.num_repeats:
            return False
        if found.num_missing <= report.num_dropped:
            return True
        streams = [stream for stream in epoch.delivery.streams.values() if stream.num_ids]
        longest = max((stream.largest_batch for stream in streams), default=0)
        num_readers = cell.world_size * max(report.num_workers, 1)
        if any(stream.smallest_batch != longest for stream in streams) or found.num_missing > (longest - 1) * num_readers:
            return False
        others = [set(other.differences.missing) for other in epochs]
        return report.drops_last or any(other != others[0] for other in others) or self._is_at_end(epoch)

    def _is_at_end(self, epoch: Epoch) -> bool:
        """Before every missing sample another is missing, or the last that its reader delivered lies there."""
        at_end = {*epoch.differences.missing, *(stream.last for stream in epoch.delivery.streams.values())}
        found = places(self.stored.dataset, epoch.differences.missing)
        return all(place.previous is None or digest_of(place.previous) in at_end for place in found)


def overrun(reports: Sequence[RankReport], epoch: str) -> str:
    """Which ranks were stopped in an epoch since they delivered too much, as part of a sentence; empty where none was."""
    ranks = [rank for rank, report in enumerate(reports) if epoch in report.overrun]
    if not ranks:
        return ""
    named = f"rank{'' if len(ranks) == 1 else 's'} {listed(ranks)}"
    return f" ({named} stopped after more than {min(reports[rank].most_ids for rank in ranks):,} ids, as if without end)"


def num_padding(num_samples: int, cell: Cell, report: RankReport, num_seen: int = 0) -> int:
    """Repeats that a reader makes on purpose in an epoch, or in one that was stopped after ``num_seen`` and resumed."""
    if report.canonical_nodes is None:
        return report.num_padding
    world = _streaming.World(1, cell.world_size, report.canonical_nodes)
    return num_seen + _streaming.num_delivered(num_samples, world, num_seen) - num_samples


def _told(readers: Iterable[Reader]) -> list[str]:
    return list(dict.fromkeys(str(reader) for reader in readers))

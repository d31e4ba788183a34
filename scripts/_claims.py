"""Kinds of claims: how much faster than a peer, and in how much memory."""

from _measure import Claim, Round, Side

MEMORY_BOUND_BYTES = 300_000_000
MEMORY_BOUND_BYTES_PER_FILE = 300


def faster(text: str, ours: Side, peer: Side, bound: float, loop_only: bool = False) -> Claim:
    def value(round_: Round) -> float:
        theirs = round_[peer.name]
        seconds = theirs.loop_seconds if loop_only and theirs.loop_seconds is not None else theirs.wall_seconds
        return seconds / round_[ours.name].wall_seconds

    return Claim(text, value, bound)


def small_enough(side: Side) -> Claim:
    bound = MEMORY_BOUND_BYTES + MEMORY_BOUND_BYTES_PER_FILE * side.num_samples
    return Claim(f"peak MB of a process, {side.name}", lambda round_: round_[side.name].peak_rss_bytes / 1e6, bound / 1e6, at_most=True)


def faster_loop(text: str, ours: Side, peer: Side, bound: float) -> Claim:
    """Imports not counted, of whichever side says what its loop took."""

    def seconds(round_: Round, side: Side) -> float:
        run = round_[side.name]
        return run.wall_seconds if run.loop_seconds is None else run.loop_seconds

    return Claim(text, lambda round_: seconds(round_, peer) / seconds(round_, ours), bound)


def more_samples(text: str, ours: Side, peer: Side, bound: float) -> Claim:
    """Of sides that have different numbers of samples, where the peer would take too long for all."""

    def value(round_: Round) -> float:
        theirs = round_[peer.name]
        rate = peer.num_samples / (theirs.wall_seconds if theirs.loop_seconds is None else theirs.loop_seconds)
        return ours.num_samples / round_[ours.name].wall_seconds / rate

    return Claim(text, value, bound)

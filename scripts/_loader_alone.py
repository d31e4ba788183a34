"""What our loaders promise with no peer beside them: a quick start over many shards, and flat memory. Run by ``_peers.main``."""

from _loader_peers import BATCH_SIZE, Loop, tell

READINGS = 10
"""Of memory, spread evenly over the epoch."""


def first_sample(source: str, destination: str) -> Loop:
    """Of a shuffled epoch, from nothing but the imports."""
    from shardtools.loaders import open_dataset

    def loop() -> None:
        sample = next(iter(open_dataset(source, batch_size=BATCH_SIZE, shuffle=True)))
        tell(destination, [{"samples": 1, "fields": len(sample)}])

    return loop


def private_memory(source: str, destination: str) -> Loop:
    """How far memory that is this process's alone rises and falls over a shuffled epoch, from its first tenth on.

    Tells of both together, of what the process wrote (``own``), and the most of its mapped shards' clean pages.
    """
    from shardtools.loaders import open_dataset

    def loop() -> None:
        dataset = open_dataset(source, batch_size=BATCH_SIZE, shuffle=True)
        every, num_samples = len(dataset) // READINGS, 0
        readings = []
        for _ in dataset:
            num_samples += 1
            if num_samples % every == 0:
                readings.append(_private_bytes(source))
        tell(destination, [{"samples": num_samples}])
        own, of_shards = zip(*readings, strict=True)
        both = list(map(sum, readings))
        print(f"private_bytes={max(both) - min(both)}\nown_bytes={max(own) - min(own)}\nmost_of_shards_bytes={max(of_shards)}")

    return loop


def _private_bytes(source: str) -> tuple[int, int]:
    """What this process wrote, and clean pages of shards that nobody else maps.

    Those of libraries are left out: they turn private whenever the last other process with torch ends.
    """
    dirty, clean_of_shards, is_shard = 0, 0, False
    with open("/proc/self/smaps") as file:
        for line in file:
            name, _, rest = line.partition(" ")
            if not name.endswith(":"):
                is_shard = source in rest
            elif name == "Private_Dirty:":
                dirty += int(rest.split()[0]) << 10
            elif name == "Private_Clean:" and is_shard:
                clean_of_shards += int(rest.split()[0]) << 10
    return dirty, clean_of_shards


PEERS = {"first-sample": first_sample, "private-memory": private_memory}


if __name__ == "__main__":
    from _peers import main

    main(PEERS)

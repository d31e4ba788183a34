"""A strict look at an MDS shard that may be damaged: a sample that cannot be read does not hide those after it."""

from collections.abc import Iterator

from shardtools import keys
from shardtools.errors import DamagedShardError
from shardtools.formats import Audit, Fault, StoredSample, _values
from shardtools.formats._mds_shard import ShardHeader, parse_header, split_row
from shardtools.sample import brief


def samples(shard: memoryview, audit: Audit, key_column: str | None) -> Iterator[StoredSample]:
    """The samples that can be read; ``key_column`` names them if the shard has it."""
    try:
        header, offsets = parse_header(shard)
    except DamagedShardError as damage:
        audit.is_whole = False
        audit.on_fault(Fault("damaged-shard", damage.offset, None, f"expected a sound MDS header, got one where {damage.message}"))
        return
    audit.data_end = len(shard)
    check_config(shard, header, int(offsets[0]), audit)
    names, sizes = header.config["column_names"], header.config["column_sizes"]
    value_checks = checks(header, audit)
    for i in range(len(offsets) - 1):
        begin, row = int(offsets[i]), audit.first_row + i
        try:
            values = split_row(shard, begin, int(offsets[i + 1]), names, sizes)
        except DamagedShardError as damage:
            audit.is_whole = False
            audit.on_fault(Fault("damaged-shard", damage.offset, None, f"expected a sound sample {row}, got one where {damage.message}"))
            continue
        key = bytes(values[key_column]).decode("utf-8", "surrogateescape") if key_column in values else f"{row:08d}"
        for name, encoding, check in value_checks:
            if (problem := check(values[name])) is not None:
                audit.on_fault(Fault("undecodable-value", begin, key, f"column {name!r} ({encoding}): {problem}"))
        if audit.own and key_column in values and not (len(key) <= keys.MAX_KEY_BYTES and keys.KEY.fullmatch(bytes(values[key_column]))):
            audit.on_fault(Fault("illegal-key", begin, key, f"expected a key every reader takes, got {brief(key)}"))
        yield StoredSample(key, begin, values)


def checks(header: ShardHeader, audit: Audit) -> list[tuple[str, str, _values.Check]]:
    """Column, encoding and check of every column whose values can be wrong; the others that cannot be told go to ``audit.unchecked``."""
    found: list[tuple[str, str, _values.Check]] = []
    if not audit.looks_at_values:
        return found
    for name, encoding in zip(header.config["column_names"], header.config["column_encodings"], strict=True):
        try:
            check = _values.check(encoding)
        except ValueError:
            check = None
            audit.unchecked.add(name)
        if _values.is_opaque(encoding):
            audit.unchecked.add(name)
        if check is not None:
            found.append((name, encoding, check))
    return found


def check_config(shard: memoryview, header: ShardHeader, end: int, audit: Audit) -> None:
    """The header's description against its own rules, the index, and the bytes this package writes."""
    config = header.config
    begin = 4 * (int.from_bytes(shard[:4], "little") + 2)

    def fault(kind: str, detail: str) -> None:
        audit.on_fault(Fault(kind, begin, None, detail))

    if config["version"] != 2 or config["format"] != "mds":
        fault("wrong-config", f"expected version 2 of format mds, got {config['version']!r} of {config['format']!r}")
    if config["column_names"] != sorted(config["column_names"]):
        fault("wrong-config", f"expected the columns sorted by name, got {brief(config['column_names'])}")
    for name, encoding, declared in zip(config["column_names"], config["column_encodings"], config["column_sizes"], strict=True):
        try:
            actual = _values.fixed_bytes(encoding)
        except ValueError as error:
            fault("wrong-config", f"column {name!r}: {error}")
            continue
        if actual != declared:
            fault("wrong-config", f"column {name!r}: expected the size {actual} for {encoding}, got {declared}")
    if audit.config is not None:
        for name, value in config.items():
            if audit.config.get(name) != value:
                fault("wrong-config", f"expected {name} {brief(audit.config.get(name))} as in the index, got {brief(value)}")
    if audit.own and bytes(shard[begin:end]) != header.config_bytes:
        fault("not-canonical", "expected the header's text as this package writes it, got another of the same meaning")

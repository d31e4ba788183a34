"""What a name says: which files are shards, how they are compressed, and which text is a pattern of names."""

import re

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz")
_MDS = re.compile(r"[^/]\.mds(?:\.([a-z0-9]+))?\Z")
_PATTERN = re.compile(r"[*?\[{]|::")


def is_shard_name(name: str) -> bool:
    """Whether a file of this name is taken for a shard."""
    return name.endswith(TAR_SUFFIXES) or is_mds_name(name)


def is_mds_name(name: str) -> bool:
    return _MDS.search(name) is not None


def tar_compression(name: str) -> str | None:
    return None if name.endswith(".tar") else "gzip"


def mds_compression(name: str) -> str | None:
    match = _MDS.search(name)
    return None if match is None else match[1]


def is_pattern(text: str) -> bool:
    """Whether it may name several files: by braces, wildcards, or ``::`` between names."""
    return _PATTERN.search(text) is not None

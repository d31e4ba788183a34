"""Which names a dataset may use for its files."""


def is_safe_name(name: str) -> bool:
    """Whether ``name`` is a ``/``-separated path that stays below the folder it is joined to."""
    if not name or "\0" in name or "\\" in name:
        return False
    return all(part not in ("", ".", "..") for part in name.split("/"))

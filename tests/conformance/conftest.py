"""An empty place of every storage there is."""

import pytest

from shardtools import plugins
from shardtools.storage import Storage, open_storage

EMPTY = {"local": ["local_root"], "s3": ["s3_uri", "moto_uri"]}
"""The fixtures that name an empty place of each; a new storage adds its line here."""


@pytest.fixture
def local_root(tmp_path) -> str:
    return str(tmp_path / "root")


@pytest.fixture(params=[place for name in plugins.names("storage") for place in EMPTY.get(name, [name])])
def storage(request) -> Storage:
    if request.param in plugins.names("storage"):
        pytest.skip(f"nothing here says how to make an empty storage {request.param!r}")
    return open_storage(request.getfixturevalue(request.param))

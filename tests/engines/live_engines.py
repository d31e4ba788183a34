"""Every engine there is, for tests that hold for all of them."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from ray_clusters import python_path

from shardtools import plugins

NEEDS = {"ray": "ray"}
"""The package an engine needs beside those that are always there."""


def every_engine(workers: int) -> list[Any]:
    """A parameter for each engine: itself, with so many workers where it has any. Skipped, with the reason, where it is not installed."""
    return [_parameter(name, workers) for name in plugins.names("engines")]


def _parameter(name: str, workers: int) -> Any:
    kind = plugins.load("engines", name)
    engine = kind(workers) if "workers" in kind.__dataclass_fields__ else kind()
    package = NEEDS.get(name)
    missing = package is not None and importlib.util.find_spec(package) is None
    marks = [pytest.mark.skipif(missing, reason=f"{package} is not installed: the extra `{name}` has it")] if package else []
    return pytest.param(engine, id=name, marks=marks)


@pytest.fixture(autouse=True)
def _workers_find_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spawned processes know where this one found its modules; those that Ray starts know what is installed."""
    monkeypatch.setenv("PYTHONPATH", python_path(Path(__file__).parent))

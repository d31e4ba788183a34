"""A Ray cluster of several nodes on this machine, for tests."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import shardtools
from shardtools.engines.ray import Ray

STORE_BYTES = 80 << 20


def python_path(folder_of_tests: Path) -> str:
    """For processes that look for the modules of that folder and those beside this one, and for this package."""
    return os.pathsep.join(map(str, [folder_of_tests, Path(__file__).parent, Path(shardtools.__file__).parents[1]]))


class Lively:
    """A cluster of ``ray.cluster_utils``, and the engine that joins it."""

    def __init__(self, num_nodes: int) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": STORE_BYTES}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(num_nodes - 1):
            self.add_node()
        self.engine = Ray(ray_address=self.cluster.address)

    @property
    def num_nodes(self) -> int:
        return len(self.cluster.list_all_nodes())

    def add_node(self) -> None:
        self.cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)

    def lose_node(self) -> None:
        """Kill all of a node that is not the head, as a machine is lost: nobody is told."""
        self.cluster.remove_node(self.cluster.list_all_nodes()[-1], allow_graceful=False)


@contextmanager
def cluster(num_nodes: int, folder_of_tests: Path) -> Iterator[Lively]:
    """So many nodes of one CPU each, whose workers find the modules of that folder and this package. Nothing is left of them."""
    # Not in the folder of a test: sockets would have paths that are too long.
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="t", dir="/tmp", ignore_cleanup_errors=True) as folder:
        patch.setenv("PYTHONPATH", python_path(folder_of_tests))
        patch.setenv("RAY_TMPDIR", folder)
        lively = Lively(num_nodes)
        try:
            yield lively
        finally:
            lively.cluster.shutdown()


class Lent:
    """A live engine as one that is entered and left without being started or ended."""

    spans_machines = False

    def __init__(self, live: Any) -> None:
        self._live = live

    def __enter__(self) -> Any:
        return self._live

    def __exit__(self, *exception: object) -> None:
        pass

"""The size of ``/dev/shm`` that is advised; stops two commands that advise two sizes for one loader, and one that is too small."""

import pytest

from shardtools.bench.doctor.remedies import larger_shm
from shardtools.bench.search.snippet import shared_memory_lines
from shardtools.bench.shm_size import ShmSize

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("bound_bytes", "num_bytes", "said"),
    [
        (0, 64 * MIB, "64 MiB"),
        (42 * MIB, 64 * MIB, "64 MiB"),
        (43 * MIB, 128 * MIB, "128 MiB"),
        (500 * MIB, GIB, "1 GiB"),
        (683 * MIB, 2 * GIB, "2 GiB"),
        (4 * GIB, 6 * GIB, "6 GiB"),
        (4 * GIB + 1, 7 * GIB, "7 GiB"),
    ],
)
def test_it_is_one_and_a_half_times_what_is_foreseen(bound_bytes: int, num_bytes: int, said: str) -> None:
    size = ShmSize.for_bytes(bound_bytes)
    assert (size.num_bytes, str(size)) == (num_bytes, said)


@pytest.mark.parametrize(("bound_bytes", "docker", "kubernetes"), [(43 * MIB, "128m", "128Mi"), (3 * GIB, "5g", "5Gi")])
def test_bench_and_doctor_ask_for_the_same(bound_bytes: int, docker: str, kubernetes: str) -> None:
    said = [*shared_memory_lines(bound_bytes).values(), larger_shm(bound_bytes, is_container=True)]
    assert [f"--shm-size={docker}" in text for text in said] == [True, False, True]
    assert [f"sizeLimit: {kubernetes}" in text for text in said] == [False, True, True]
    assert f"size={docker} " in larger_shm(bound_bytes, is_container=False)

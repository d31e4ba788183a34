"""A noisy host is told and a quiet one is not blamed: stops a verdict whose numbers are somebody else's program."""

from dataclasses import replace

import pytest

from shardtools.bench.noise import HostReading, Noise, judge, reading_of

QUIET = HostReading(
    psi_cpu_avg10=0.4,
    psi_io_avg10=0.1,
    steal_share=0.001,
    load1=0.3,
    num_cpus=8,
    others_cpus=0.1,
    others_read_mbps=0.2,
    others_read_share=0.01,
    governor="performance",
    thermal_events=0,
)


def test_a_quiet_host_is_quiet() -> None:
    found = judge(QUIET, [QUIET] * 12)
    assert found == Noise((), (), True)
    assert found.line == "quiet"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"psi_cpu_avg10": 12.3}, "before: tasks waited for a CPU 12 % of the time (limit 5 %)"),
        ({"psi_io_avg10": 30.0}, "before: tasks waited for a disk 30 % of the time (limit 5 %)"),
        ({"load1": 4.2, "others_cpus": None}, "before: load 4.2 on 8 CPUs (limit 4.0)"),
        ({"steal_share": 0.034}, "before: 3 % of CPU time was stolen by the hypervisor (limit 1 %)"),
        ({"others_cpus": 1.5}, "before: other programs used 1.5 of 8 CPUs (limit 0.8)"),
        ({"others_read_mbps": 80.0, "others_read_share": 0.7}, "before: other programs read 80 MB/s from the same disk (limit 5 MB/s)"),
        ({"governor": "powersave"}, "the CPU governor is powersave, so the clock may change while it is measured"),
    ],
)
def test_what_was_loud_before_is_told_with_its_limit(change: dict[str, float], sentence: str) -> None:
    found = judge(replace(QUIET, **change), [QUIET] * 12)  # type: ignore[arg-type]
    assert found.sentences == (sentence,)
    assert found.line == f"noisy host: {sentence}"


def test_the_load_of_a_bench_that_has_ended_is_no_noise() -> None:
    assert judge(replace(QUIET, load1=6.0), [QUIET] * 12).line == "quiet"


def test_our_own_load_and_pressure_during_a_trial_are_no_noise() -> None:
    working = replace(QUIET, psi_cpu_avg10=70.0, psi_io_avg10=60.0, load1=9.0)
    assert judge(QUIET, [working] * 12).line == "quiet"


def test_a_little_of_our_disk_or_a_slow_trickle_is_no_noise() -> None:
    for change in ({"others_read_mbps": 80.0, "others_read_share": 0.05}, {"others_read_mbps": 4.0, "others_read_share": 0.9}):
        assert judge(QUIET, [replace(QUIET, **change)] * 12).line == "quiet"  # type: ignore[arg-type]


def test_what_lasts_during_trials_is_told_with_how_many_and_a_middle_value() -> None:
    loud = [replace(QUIET, others_cpus=cpus) for cpus in (7.0, 1.0, 2.0, 3.0)]
    found = judge(QUIET, loud + [QUIET] * 8)
    assert found.sentences == ("in 4 of 12 trials other programs used 3.0 of 8 CPUs (limit 0.8)",)
    assert judge(QUIET, loud[:3] + [QUIET] * 9).line == "quiet"
    stolen = judge(QUIET, [replace(QUIET, steal_share=0.2)] * 12)
    assert stolen.sentences == ("in 12 of 12 trials 20 % of CPU time was stolen by the hypervisor (limit 1 %)",)


def test_heat_is_told_even_once() -> None:
    found = judge(QUIET, [replace(QUIET, thermal_events=3)] + [QUIET] * 11)
    assert found.sentences == ("in 1 of 12 trials a CPU was slowed because of heat",)


def test_what_nobody_measured_is_listed_and_a_host_that_tells_nothing_is_not_called_quiet() -> None:
    assert judge(None, []).line == "not known"
    assert judge(HostReading(num_cpus=4), [HostReading(num_cpus=4)]).line == "not known"
    found = judge(replace(QUIET, steal_share=None), [replace(QUIET, steal_share=None)])
    assert [missing.metric for missing in found.not_measured] == ["noise.steal_share"]
    assert found.line == "quiet"


def test_a_sample_of_the_counters_becomes_a_reading() -> None:
    """10 s in which the machine used 3.5 CPUs and we 3.0; the disk read 400 MB, we 300."""
    counters = {
        "psi_cpu_avg10": 1.5,
        "psi_io_avg10": None,
        "steal_share": 0.02,
        "load1": 2.0,
        "host_cpu_util": 3.5,
        "cpu_util": 3.0,
        "others_read_bytes": 100_000_000,
        "disk_read_bytes": 400_000_000,
    }
    found = reading_of({"wall_s": 10.0, "counters": counters}, num_cpus=8)
    assert found == HostReading(1.5, None, 0.02, 2.0, 8, 0.5, 10.0, 0.25)
    assert reading_of({}) == HostReading()

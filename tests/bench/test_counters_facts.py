"""Numbers of a report follow from readings by the definitions: stops shares of the wrong interval, and a None without its reason."""

from typing import Any

import pytest

from shardtools.bench.counters.facts import Interval, counters, gpu_facts
from shardtools.bench.counters.gpu import Gpu
from shardtools.bench.counters.series import Series
from shardtools.bench.not_measured import Reasons

START: dict[str, float] = {
    "cpu_s": 50, "rchar": 1e9, "read_bytes": 4e8, "periods": 100, "throttled_periods": 10, "throttled_s": 1,
    "host_busy_s": 1000, "host_steal_s": 5, "host_total_s": 9000, "load1": 1.0, "received_bytes": 7e6, "sent_bytes": 1e6,
    "psi_cpu_s": 3, "psi_io_s": 4, "psi_memory_s": 0, "psi_cpu_avg10": 2.0, "psi_io_avg10": 1.0, "psi_memory_avg10": 0.0,
    "disk_reads": 1000, "disk_read_sectors": 2e6, "disk_read_ms": 500, "disk_busy_ms": 700, "disk_queue_ms": 900,
}  # fmt: skip
END: dict[str, float] = {
    "cpu_s": 65, "rchar": 3e9, "read_bytes": 9e8, "periods": 200, "throttled_periods": 70, "throttled_s": 2.5,
    "host_busy_s": 1030, "host_steal_s": 6, "host_total_s": 9040, "load1": 4.0, "received_bytes": 107e6, "sent_bytes": 11e6,
    "psi_cpu_s": 5, "psi_io_s": 4.5, "psi_memory_s": 0, "psi_cpu_avg10": 30.0, "psi_io_avg10": 0.5, "psi_memory_avg10": 0.0,
    "disk_reads": 6000, "disk_read_sectors": 4e6, "disk_read_ms": 10500, "disk_busy_ms": 9700, "disk_queue_ms": 20900,
}  # fmt: skip


def interval(start: dict[str, float], end: dict[str, float], probed: Reasons | None = None) -> Interval:
    """Ten seconds."""
    series = Series()
    series.append(100.0, start)
    series.append(110.0, end)
    return Interval(series, 100.0, 110.0, probed or Reasons())


def found(change: dict[str, float] | None = None) -> tuple[dict[str, Any], Reasons]:
    reasons = Reasons()
    return counters(interval(START, END | (change or {})), 4, reasons), reasons


EXPECTED = {
    "cpu_util": 1.5,
    "cpu_util_share": 0.375,
    "cpu_throttled_share": 0.6,
    "cpu_throttled_s": 1.5,
    "host_cpu_util": 3.0,
    "steal_share": 0.025,
    "load1": 4.0,
    "rchar": 2_000_000_000,
    "read_bytes": 500_000_000,
    "cache_hit": 0.75,
    "net_received_MBps": 10.0,
    "net_sent_MBps": 1.0,
    "psi_cpu_share": 0.2,
    "psi_io_share": 0.05,
    "psi_memory_share": 0.0,
    "psi_cpu_avg10": 30.0,
    "psi_io_avg10": 1.0,
    "psi_memory_avg10": 0.0,
    "disk_read_bytes": 1_024_000_000,
    "disk_read_MBps": 102.4,
    "disk_iops": 500.0,
    "await_ms": 2.0,
    "aqu_sz": 2.0,
    "disk_busy_pct": 90.0,
    "others_read_bytes": 524_000_000,
}


def test_every_counter_by_its_definition() -> None:
    values, reasons = found()
    assert values == pytest.approx(EXPECTED)
    assert reasons.listed() == []


def test_half_the_interval_has_half_the_bytes_at_the_same_rate() -> None:
    whole = interval(START, END)
    values = counters(Interval(whole.series, 102.0, 107.0, Reasons()), 4, Reasons())
    assert values["read_bytes"] == 250_000_000
    assert values["disk_read_MBps"] == pytest.approx(102.4)
    assert values["cpu_util"] == pytest.approx(1.5)


def test_no_quota_is_no_throttling() -> None:
    values, reasons = found({"periods": 100, "throttled_periods": 10, "throttled_s": 1})
    assert (values["cpu_throttled_share"], values["cpu_throttled_s"]) == (0, 0)
    assert reasons.listed() == []


def test_a_device_that_read_less_than_our_processes_had_no_other_reader() -> None:
    values, _ = found({"disk_read_sectors": 2e6})
    assert values["others_read_bytes"] == 0


@pytest.mark.parametrize(
    ("change", "metric", "reason"),
    [
        ({"rchar": 1e9, "read_bytes": 4e8}, "cache_hit", "no call of read"),
        ({"rchar": 1.1e9}, "cache_hit", "read-ahead"),
        ({"disk_reads": 1000, "disk_read_ms": 500}, "await_ms", "served no read"),
        ({"disk_reads": 0}, "disk_iops", "went backwards"),
        ({"host_total_s": 9000, "host_steal_s": 5}, "steal_share", "counted no time"),
    ],
)
def test_what_cannot_be_said_is_none_with_a_reason(change: dict[str, float], metric: str, reason: str) -> None:
    values, reasons = found(change)
    assert values[metric] is None
    assert reason in (reasons.of(metric) or "")


def test_a_machine_that_tells_nothing_has_every_name_and_the_probes_reasons() -> None:
    probed, reasons = Reasons(), Reasons()
    probed.add("disk", "nfs4 has no block device on this machine")
    probed.add("io", "no permission")
    values = counters(interval({}, {}, probed), 4, reasons)
    assert values == dict.fromkeys(EXPECTED)
    assert {missing.metric for missing in reasons.listed()} >= EXPECTED.keys()
    assert reasons.of("disk_iops") == "nfs4 has no block device on this machine"
    assert reasons.of("cache_hit") == "no permission"


def gpu_interval(seconds: float) -> Interval:
    series = Series()
    for moment, util, memory in ((0.0, 10.0, 500.0), (seconds / 2, 90.0, 900.0), (seconds, 50.0, 700.0)):
        series.append(moment, {"gpu1_util_pct": util, "gpu1_memory_bytes": memory})
    return Interval(series, 0.0, seconds, Reasons())


def test_an_accelerator_has_its_mean_utilisation_and_most_memory() -> None:
    facts = gpu_facts(gpu_interval(4), [Gpu(1, "GPU-1", "H200", 1000, "570")], Reasons())
    assert facts == [{"index": 1, "uuid": "GPU-1", "name": "H200", "util_pct": 50.0, "memory_peak_bytes": 900.0}]


def test_utilisation_of_less_than_three_seconds_is_left_out() -> None:
    reasons = Reasons()
    facts = gpu_facts(gpu_interval(2), [Gpu(1, "GPU-1", "H200", 1000, "570")], reasons)
    assert (facts[0]["util_pct"], facts[0]["memory_peak_bytes"]) == (None, 900.0)
    assert "shorter than 3 s" in (reasons.of("gpu1_util_pct") or "")

"""Each number comes from the right column, in the right unit, and a text that lacks it gives a reason: stops plausible wrong counters.

Texts are as kernels wrote them; expected values were worked out by hand.
"""

import os

import pytest

from shardtools.bench.counters import cpu, disk, host
from shardtools.bench.counters.disk import DiskCounts
from shardtools.bench.counters.process import parse_io, parse_pss, parse_stat
from shardtools.bench.counters.series import Series
from shardtools.bench.not_measured import NotMeasured, Reasons, Unknown, read_text

STAT = (
    "3183 (python (v1) x) S 22401 3183 22401 34816 4242 4194304 5112 77 3 0 120 45 7 8 20 0 33 0 1234567 181694464 7120 "
    "18446744073709551615 1 1 0 0 0 0 0 16781312 2 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
)
IO = (
    "rchar: 323934931\nwchar: 323929600\nsyscr: 632687\nsyscw: 632675\nread_bytes: 4096\nwrite_bytes: 323932160\ncancelled_write_bytes: 0\n"
)
SMAPS = "564440b02000-7ffd23ffc000 ---p 00000000 00:00 0    [rollup]\nRss:      1644 kB\nPss:       281 kB\nPss_Dirty:  116 kB\n"


def test_a_process_is_read_past_a_name_with_brackets_and_spaces() -> None:
    found = parse_stat(STAT)
    assert (found.state, found.parent) == ("S", 22401)
    assert found.cpu_ticks == 120 + 45 + 7 + 8
    assert (found.start_ticks, found.rss_pages) == (1234567, 7120)


def test_bytes_read_from_files_and_from_devices() -> None:
    found = parse_io(IO)
    assert (found.rchar, found.read_bytes) == (323934931, 4096)


def test_proportional_memory_is_in_bytes() -> None:
    assert parse_pss(SMAPS) == 281 * 1024


# From a machine with an NVMe disk (20 columns) and an old kernel's SATA disk (14), its partition and a mapped device.
DISKSTATS = """\
 259       0 nvme0n1 541231 13220 48271360 88120 901233 700123 61234568 1200345 0 512345 1300000 1000 0 90000 400 55000 11535
   8       0 sda 1000 20 160000 5000 300 40 8000 900 2 4000 7000
   8      10 sda10 9 9 9 9 9 9 9 9 9 9 9
   8       1 sda1 400 10 64000 2000 100 20 4000 300 0 1500 2300
 253       0 dm-0 77 0 616 55 0 0 0 0 0 40 55
"""


def test_a_device_is_found_by_its_whole_name() -> None:
    assert disk.parse_diskstats(DISKSTATS, "nvme0n1") == DiskCounts(541231, 48271360, 88120, 512345, 1300000)
    assert disk.parse_diskstats(DISKSTATS, "sda") == DiskCounts(1000, 160000, 5000, 4000, 7000)
    assert disk.parse_diskstats(DISKSTATS, "sda1") == DiskCounts(400, 64000, 2000, 1500, 2300)
    assert disk.parse_diskstats(DISKSTATS, "dm-0") == DiskCounts(77, 616, 55, 40, 55)
    with pytest.raises(Unknown, match="no line of sda2"):
        disk.parse_diskstats(DISKSTATS, "sda2")


def test_rates_of_a_disk() -> None:
    earlier = DiskCounts(1000, 160000, 5000, 4000, 7000)
    later = DiskCounts(1400, 960000, 6000, 5500, 9000)
    found = disk.rates(later.less(earlier), 2.0)
    assert found.read_bytes == 800000 * 512
    assert found.read_mbps == pytest.approx(204.8)
    assert found.iops == 200
    assert found.await_ms == 2.5
    assert found.aqu_sz == 1.0
    assert found.busy_pct == 75


def test_a_disk_that_served_no_read_has_no_mean_time_of_one() -> None:
    assert disk.rates(DiskCounts(0, 0, 0, 10, 10), 1.0).await_ms is None


def test_a_counter_that_went_backwards_is_no_rate() -> None:
    with pytest.raises(Unknown, match="backwards"):
        disk.rates(DiskCounts(-1, 0, 0, 0, 0), 1.0)


def test_busy_time_rounded_up_is_not_above_all_the_time() -> None:
    assert disk.rates(DiskCounts(1, 8, 1, 1003, 1003), 1.0).busy_pct == 100


def test_processors_of_the_host() -> None:
    tick = 1 / os.sysconf("SC_CLK_TCK")
    found = host.parse_cpu("cpu  2848 49 953 38078 672 11 199 53 400 0\ncpu0 1 1 1 1 1 1 1 1 1 1\nintr 9\n")
    assert found.busy_s == pytest.approx((2848 + 49 + 953 + 11 + 199) * tick), "guests' time is within user time"
    assert found.steal_s == pytest.approx(53 * tick)
    assert found.total_s == pytest.approx((2848 + 49 + 953 + 38078 + 672 + 11 + 199 + 53) * tick)


def test_pressure_is_that_of_some_tasks() -> None:
    found = host.parse_pressure(
        "some avg10=1.07 avg60=5.78 avg300=15.63 total=7048963607\nfull avg10=9.00 avg60=0.00 avg300=0.00 total=5\n"
    )
    assert (found.avg10, found.total_s) == (1.07, 7048.963607)


def test_load_and_memory() -> None:
    assert host.parse_load("0.60 0.91 1.15 2/100 21535\n") == 0.60
    assert host.parse_meminfo("MemTotal:       24684100 kB\nMemAvailable:   22550348 kB\n", "MemAvailable") == 22550348 * 1024


NETWORK = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 843844008   75297    0    0    0     0          0         0 843844008   75297    0    0    0     0       0          0
  eth0: 5346924911  139763    0    0    0     0          0         0  8569795   82577    0    0    0     0       0          0
  ib0:89 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0
"""


def test_network_is_that_of_all_interfaces_but_the_loopback() -> None:
    assert host.parse_network(NETWORK) == (5346924911 + 89, 8569795 + 5)


def test_the_model_of_a_processor() -> None:
    assert cpu.parse_model("processor\t: 0\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\n") == "AMD EPYC"
    assert cpu.parse_model("processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 3800.000000MHz\n") == "POWER9, altivec supported"
    with pytest.raises(Unknown, match="names no model"):
        cpu.parse_model("processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\n")


@pytest.mark.parametrize(
    "text", ["", "\n", "cpu", "gibberish: x y z", "some avg10=x total=1", "a b c\n" * 3, "x (1", "cpu a b c d e f g h i"]
)
@pytest.mark.parametrize(
    "parse",
    [
        parse_stat,
        parse_io,
        parse_pss,
        host.parse_cpu,
        host.parse_pressure,
        host.parse_load,
        host.parse_network,
        cpu.parse_model,
        lambda text: host.parse_meminfo(text, "MemAvailable"),
        lambda text: disk.parse_diskstats(text, "sda"),
    ],
)
def test_what_is_no_such_text_gives_a_reason(parse, text: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Unknown) as caught:
        parse(text)
    assert str(caught.value)


def test_a_file_that_is_not_there_gives_its_name_as_the_reason() -> None:
    with pytest.raises(Unknown, match="/proc/none is not there"):
        read_text("/proc/none")
    with pytest.raises(Unknown, match="/proc cannot be read: Is a directory"):
        read_text("/proc")


def test_reasons_keep_the_first_of_each_metric() -> None:
    def fail() -> int:
        raise Unknown("second")

    reasons = Reasons()
    reasons.add("b", "first")
    assert reasons.attempt("b", fail) is None
    assert reasons.attempt("a", fail) is None
    assert reasons.attempt("c", lambda: 5) == 5
    assert reasons.listed() == [NotMeasured("a", "second"), NotMeasured("b", "first")]
    assert (reasons.of("b"), reasons.of("c")) == ("first", None)


def counted() -> Series:
    series = Series()
    for moment, value in ((10.0, 100.0), (11.0, 200.0), (13.0, 800.0)):
        series.append(moment, {"x": value})
    return series


def test_a_counter_rises_on_straight_lines_between_its_readings() -> None:
    series = counted()
    assert series.delta("x", 10, 13) == 700
    assert series.delta("x", 10.5, 12) == 500 - 150
    assert series.delta("x", 11.5, 11.75) == 75


def test_a_counter_read_in_a_part_of_the_interval_is_not_stretched_over_all_of_it() -> None:
    assert counted().delta("x", 9.5, 13) == 700, "less than a fifth is missing"
    with pytest.raises(Unknown, match="part of the interval"):
        counted().delta("x", 9, 13)
    with pytest.raises(Unknown, match="part of the interval"):
        counted().delta("x", 12, 16)
    with pytest.raises(Unknown, match="fewer than twice"):
        counted().delta("y", 10, 13)


def test_a_gauge_has_the_readings_of_the_interval() -> None:
    assert counted().within("x", 10.5, 13) == [200, 800]
    with pytest.raises(Unknown, match="not sampled"):
        counted().within("x", 11.5, 12)

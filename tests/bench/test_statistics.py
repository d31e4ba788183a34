"""Blocks become the right ratio, interval, p and words: stops a claim of speed that the blocks do not carry.

Expected values are worked out by hand or by exhaustive counting, not by the code under test.
"""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import pytest

from shardtools.bench.statistics import compare, t_interval


def blocks(*ratios: float) -> list[tuple[float, float]]:
    """One block a ratio, the first side at a different rate in each."""
    return [(100.0 + block, (100.0 + block) * ratio) for block, ratio in enumerate(ratios)]


def test_the_ratio_is_the_second_side_against_the_first() -> None:
    found = compare([(100, 231), (50, 115.5), (10, 23.1), (200, 462), (1, 2.31), (3, 6.93)])
    assert found.ratio == pytest.approx(2.31)
    assert found.is_clear
    assert found.sentence == "2.31x as fast (2.31-2.31x), p = 0.031"


def test_swapping_the_sides_inverts_everything() -> None:
    pairs = blocks(1.2, 1.3, 1.25, 1.4, 1.35, 1.28)
    found, swapped = compare(pairs), compare([(second, first) for first, second in pairs])
    assert found.ci and swapped.ci
    assert swapped.ratio == pytest.approx(1 / found.ratio)
    assert swapped.ci == pytest.approx((1 / found.ci[1], 1 / found.ci[0]))
    assert swapped.p == found.p
    assert found.sentence == f"1.29x as fast ({found.ci[0]:.2f}-{found.ci[1]:.2f}x), p = 0.031"
    assert swapped.sentence == f"0.78x as fast ({1 / found.ci[1]:.2f}-{1 / found.ci[0]:.2f}x), p = 0.031"


def test_six_blocks_have_a_t_interval_around_the_mean_of_the_logarithms() -> None:
    """r = 0.1, 0.2, 0.2, 0.3, 0.3, 0.4: mean 0.25, variance 0.055/5 = 0.011; t(0.975, 5) = 2.571; half-width 0.110083."""
    found = compare(blocks(*(math.exp(r) for r in (0.1, 0.2, 0.2, 0.3, 0.3, 0.4))))
    assert found.ci
    assert (found.method, found.n) == ("t", 6)
    assert [math.log(end) for end in found.ci] == pytest.approx([0.25 - 0.110083, 0.25 + 0.110083], abs=1e-6)
    assert found.half_width == pytest.approx(0.110083, abs=1e-6)
    assert math.log(found.ratio) == pytest.approx(0.25)


def test_seven_blocks_still_have_a_t_interval() -> None:
    """r = -0.3 ... 0.3 in steps of 0.1: mean 0, variance 0.28/6; t(0.975, 6) = 2.447; half-width 0.199797."""
    found = compare(blocks(*(math.exp(tenths / 10) for tenths in range(-3, 4))))
    assert (found.method, found.n) == ("t", 7)
    assert found.half_width == pytest.approx(0.199797, abs=1e-6)


def test_the_ratio_is_the_median_and_the_mean_is_told_beside_it() -> None:
    found = compare(blocks(*(math.exp(r) for r in (0.0, 0.0, 0.1, 0.1, 0.1, 0.9))))
    assert math.log(found.ratio) == pytest.approx(0.1)
    assert math.log(found.mean_ratio) == pytest.approx(0.2)


def exact_quantile(values: Sequence[float], share: Fraction) -> tuple[float, float]:
    """Of the medians of all n^n resamples, the values around that quantile: 0.2 % below and above it, since 10,000 draws only estimate."""
    n = len(values)
    weight: Counter[float] = Counter()
    for drawn in itertools.combinations_with_replacement(sorted(values), n):
        ways = math.factorial(n)
        for times in Counter(drawn).values():
            ways //= math.factorial(times)
        weight[(drawn[(n - 1) // 2] + drawn[n // 2]) / 2] += ways
    total, seen, ends = sum(weight.values()), 0, []
    for median in sorted(weight):
        seen += weight[median]
        ends.append((median, Fraction(seen, total)))
    near = Fraction(2, 1000)
    return tuple(next(median for median, below in ends if below >= wanted) for wanted in (share - near, share + near))  # type: ignore[return-value]


def test_eight_blocks_have_the_interval_of_resampled_medians() -> None:
    """Against the exact distribution over all 8^8 resamples."""
    r = [0.05, 0.11, 0.12, 0.2, 0.21, 0.28, 0.33, 0.5]
    found = compare(blocks(*(math.exp(value) for value in (r[3], r[0], r[7], r[5], r[1], r[2], r[6], r[4]))))
    assert found.ci and found.method == "bootstrap"
    for end, share in zip(found.ci, (Fraction(25, 1000), Fraction(975, 1000)), strict=True):
        low, high = exact_quantile(r, share)
        assert low - 1e-9 <= math.log(end) <= high + 1e-9


def test_the_same_blocks_give_the_same_answer() -> None:
    pairs = blocks(1.0, 1.1, 0.9, 1.2, 1.05, 1.02, 0.97, 1.3, 1.01)
    assert compare(pairs) == compare(list(pairs))


@pytest.mark.parametrize(
    ("r", "p"),
    [
        ([0.1] * 6, 2 / 64),
        ([0.1] * 5, 2 / 32),
        ([0.3, -0.1, 0.2], 4 / 8),  # Sums of 0.4 and more: 0.6 and 0.4, and their opposites.
        ([0.1, -0.1], 1.0),
        ([0.1] * 11 + [-0.1], 26 / 4096),  # All signs alike, or all but one: 1 + 12 cases, twice.
        ([0.0, 0.0, 0.0], 1.0),
    ],
)
def test_p_counts_all_ways_to_swap_the_sides(r: list[float], p: float) -> None:
    assert compare(blocks(*(math.exp(value) for value in r))).p == pytest.approx(p)


def test_an_interval_that_reaches_into_the_band_is_no_clear_difference() -> None:
    """t(0.975, 1) = 12.706; of two blocks the half-width is 12.706 * half the distance. So the ends below are literal."""
    for low, high, sentence in (
        (0.98, 1.04, "no clear difference (-2 % ... +4 %)"),
        (1.029, 1.5, "no clear difference (+3 % ... +50 %)"),
        (0.5, 0.971, "no clear difference (-50 % ... -3 %)"),
        (0.999, 1.001, "no clear difference (0 % ... 0 %)"),
    ):
        found = compare(two_blocks(low, high))
        assert found.ci == pytest.approx((low, high))
        assert (found.is_clear, found.sentence) == (False, sentence)
    assert compare(two_blocks(1.031, 1.5)).is_clear
    assert compare(two_blocks(0.5, 0.969)).is_clear


def two_blocks(low: float, high: float) -> list[tuple[float, float]]:
    middle, half = math.log(low * high) / 2, math.log(high / low) / 2 / 12.706
    return blocks(math.exp(middle - half), math.exp(middle + half))


def test_the_interval_of_a_few_values_is_that_of_students_t() -> None:
    """Of 1, 2, 3: mean 2, standard error 1/sqrt(3), t(2) = 4.303. Of ten values t(9) = 2.262; of 0 and nine times 1 the error is 0.1."""
    assert t_interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 4.303 / math.sqrt(3), 2 + 4.303 / math.sqrt(3)), rel=1e-4)
    assert t_interval([0.0, *[1.0] * 9]) == pytest.approx((0.9 - 0.2262, 0.9 + 0.2262), rel=1e-4)
    assert t_interval([1.0]) is None


def test_few_blocks_say_that_p_cannot_be_small() -> None:
    found = compare(blocks(2.0, 2.01, 2.02))
    assert found.sentence.endswith("p = 0.250 (3 blocks cannot bring it below 0.25)")
    alone = compare(blocks(1.5))
    assert (alone.ci, alone.is_clear, alone.p, alone.half_width) == (None, False, 1.0, math.inf)
    assert alone.sentence == "a single block has no interval (+50 %)"


def test_outliers_are_named_and_counted_all_the_same() -> None:
    """Distances from the median 1 are 0.01 and 0.02, MAD 0.01: 14.826 of it is 0.148."""
    r = [-0.01, 0.01, -0.02, 0.02, 0.0, -0.01, 0.01, 0.0]
    assert compare(blocks(*map(math.exp, [*r, 0.14]))).outliers == ()
    found = compare(blocks(*map(math.exp, [*r, 0.16])))
    assert (found.outliers, found.n) == ((8,), 9)


@pytest.mark.parametrize("pair", [(0.0, 1.0), (1.0, -1.0), (math.nan, 1.0), (1.0, math.inf)])
def test_a_trial_without_a_rate_is_no_block(pair: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match=r"expected two positive throughputs, got .* in block 1"):
        compare([(1.0, 1.0), pair])


@pytest.mark.parametrize("num_blocks", [0, 21])
def test_the_number_of_blocks_is_bounded(num_blocks: int) -> None:
    with pytest.raises(ValueError, match=f"expected 1 to 20 blocks, got {num_blocks}"):
        compare([(1.0, 1.0)] * num_blocks)


def test_the_json_holds_what_the_report_promises() -> None:
    data = compare(blocks(1.2, 1.3, 1.25, 1.4, 1.35, 1.28)).as_json()
    assert {"ratio", "ci", "p", "n"} <= data.keys()
    assert [type(end) for end in data["ci"]] == [float, float]
    assert compare(blocks(1.5)).as_json()["ci"] is None

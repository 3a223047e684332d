"""Groups of 0/1 rewards: sums over the number right, held against every sequence of rewards, one by one."""

import itertools
import math
import statistics

import pytest
import torch

from agpo_core import probe
from agpo_core.theory import binary_groups


def every_group(group_size: int, p: float):
    """Each of the 2^G sequences of rewards with its probability: slow and obvious."""
    for rewards in itertools.product((0.0, 1.0), repeat=group_size):
        yield rewards, math.prod(p if r else 1 - p for r in rewards)


def mad(rewards) -> float:
    middle = statistics.median(rewards)
    return statistics.median(abs(r - middle) for r in rewards)


def iqr(rewards) -> float:
    low, _, high = statistics.quantiles(rewards, n=4, method="inclusive")
    return high - low


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("group_size", [2, 5, 8])
@pytest.mark.parametrize(("mode", "by_hand"), [("mad", mad), ("iqr", iqr)])
def test_the_chance_that_a_dispersion_vanishes_is_that_of_all_its_groups(mode, by_hand, group_size, p):
    wanted = sum(
        chance
        for rewards, chance in every_group(group_size, p)
        if 0 < sum(rewards) < group_size and not by_hand(rewards)
    )
    assert binary_groups.collapse_chance(group_size, p, mode).item() == pytest.approx(wanted, abs=1e-12)


def test_with_eight_rewards_the_chances_at_one_half_are_those_worked_by_hand():
    # of 256 sequences: all but none, four or all right have a MAD of zero; one or seven right an IQR of zero
    assert binary_groups.collapse_chance(8, 0.5, "mad").item() == pytest.approx((256 - 1 - 70 - 1) / 256)
    assert binary_groups.collapse_chance(8, 0.5, "iqr").item() == pytest.approx((8 + 8) / 256)
    assert (binary_groups.collapse_chance(8, torch.linspace(0, 1, 11), "std") == 0).all()


def test_chances_sum_to_one_for_every_p_and_keep_its_shape():
    p = torch.linspace(0, 1, 12).view(3, 4)
    found = binary_groups.chances(8, p)
    assert found.shape == (3, 4, 9)
    assert torch.allclose(found.sum(dim=-1), torch.ones(3, 4, dtype=torch.float64))


@pytest.mark.parametrize("statistic", ["std", "mad", "iqr", "skewness"])
def test_mean_and_scatter_of_a_group_are_those_of_all_its_groups(statistic):
    sequences = list(every_group(6, 0.3))
    rewards, weights = torch.tensor([r for r, _ in sequences]), torch.tensor([w for _, w in sequences])
    values = probe.skewness(rewards).abs() if statistic == "skewness" else probe.dispersion(rewards, statistic)
    mean = (weights * values).sum()
    sd = (weights * (values - mean) ** 2).sum().sqrt()
    found = [x.item() for x in binary_groups.scatter(6, 0.3, statistic)]
    assert found == pytest.approx([mean.item(), sd.item()], rel=1e-5)


def test_dispersion_and_skewness_of_one_group_of_eight_scatter_by_an_eighth_of_their_mean_or_more():
    p = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    for statistic in ("std", "mad", "iqr", "skewness"):
        mean, sd = binary_groups.scatter(8, p, statistic)
        assert (sd / mean > 1 / 8).all(), statistic


def test_mad_and_iqr_of_one_group_of_eight_scatter_more_than_the_standard_deviation():
    p = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    (std_mean, std_sd), *others = (binary_groups.scatter(8, p, mode) for mode in ("std", "mad", "iqr"))
    for mean, sd in others:
        assert (sd / mean > std_sd / std_mean).all()


def test_the_standard_deviation_gives_every_group_the_same_pull_and_the_iqr_does_not():
    std = binary_groups.pull(8, "std")
    assert std[[0, 8]].tolist() == [0, 0]
    assert std[1:8].tolist() == pytest.approx([math.sqrt(7 / 8)] * 7)
    # two right: deviations .75 twice and -.25 six times; Q_.75 lies at 5.25 of 0..7, a quarter of the way from 0 to 1
    by_hand = math.sqrt((2 * 0.75**2 + 6 * 0.25**2) / 8) / (0.25 / 1.349)
    assert binary_groups.pull(8, "iqr")[2].item() == pytest.approx(by_hand, rel=1e-6)
    # four right: every deviation is .5, and so is the MAD
    assert binary_groups.pull(8, "mad")[4].item() == pytest.approx(0.5 / (1.4826 * 0.5), rel=1e-6)
    assert binary_groups.pull(8, "mad")[[1, 2, 3, 5, 6, 7]].tolist() == pytest.approx(std[[1, 2, 3, 5, 6, 7]].tolist())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: binary_groups.groups(1), "two rollouts or more"),
        (lambda: binary_groups.chances(8, 1.2), r"p must lie in \[0, 1\]"),
        (lambda: binary_groups.chances(8, math.nan), "p must lie"),
        (lambda: binary_groups.collapse_chance(8, 0.5, "var"), "mode"),
        (lambda: binary_groups.scatter(8, 0.5, "mean"), "statistic"),
    ],
)
def test_what_cannot_be_is_refused_with_its_remedy(call, message):
    with pytest.raises(ValueError, match=message):
        call()

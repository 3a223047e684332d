"""Group-normalised advantages: AGPO Eq. 1."""

import doctest
import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agpo_core import advantages
from agpo_core.advantages import group_advantages
from agpo_core.probe import equal_rewards

quick = settings(deadline=None, derandomize=True, max_examples=60)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
modes = pytest.mark.parametrize("mode", ["std", "mad", "iqr"])
# Multiples of 1/16: sums and shifts of a few of them are exact in floating point.
groups = st.lists(st.integers(0, 16).map(lambda n: n / 16), min_size=2, max_size=10)


def row(values, dtype=torch.float64):
    return torch.tensor([values], dtype=dtype)


def binary(right, G=8):
    return [1.0] * right + [0.0] * (G - right)


def test_examples_in_docstrings_hold():
    assert doctest.testmod(advantages).failed == 0


@dtypes
def test_advantages_of_six_numbers_by_hand(dtype):
    rewards = row([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], dtype)
    centred = torch.tensor([[-0.5, -0.3, -0.1, 0.1, 0.3, 0.5]], dtype=dtype)
    # σ̂ = sqrt(.7 / 5), 1.4826 * .3, .5 / 1.349: see test_probe.
    torch.testing.assert_close(group_advantages(rewards), centred / 0.14**0.5)
    torch.testing.assert_close(group_advantages(rewards, "mad"), centred / 0.44478)
    torch.testing.assert_close(group_advantages(rewards, "iqr"), centred / (0.5 / 1.349))


def test_two_groups_of_two_agree_with_public_trainers():
    rewards_P_G = torch.tensor([[1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    # .5 / sqrt(.5) = .70711; TRL's epsilon of 1e-4 makes it .70701.
    expected = torch.tensor([[0.70711, -0.70711], [0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(group_advantages(rewards_P_G), expected, atol=5e-6, rtol=0)
    expected = torch.tensor([[0.70701, -0.70701], [0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(group_advantages(rewards_P_G, eps=1e-4), expected, atol=5e-6, rtol=0)


@quick
@given(groups.filter(lambda rewards: min(rewards) < max(rewards)))
def test_advantages_equal_a_slow_loop(rewards):
    mean, std = statistics.fmean(rewards), statistics.stdev(rewards)
    expected = [(r - mean) / (std + 1e-8) for r in rewards]
    torch.testing.assert_close(group_advantages(row(rewards)), row(expected))


@modes
@quick
@given(rewards=groups, data=st.data())
def test_advantages_follow_the_order_and_ignore_shift_and_scale(mode, rewards, data):
    advantages_1_G = group_advantages(row(rewards), mode)
    order = data.draw(st.permutations(range(len(rewards))))
    torch.testing.assert_close(group_advantages(row(rewards)[:, order], mode), advantages_1_G[:, order])
    torch.testing.assert_close(group_advantages(row(rewards) + 3, mode), advantages_1_G)
    torch.testing.assert_close(group_advantages(row(rewards) * 4, mode), advantages_1_G, rtol=1e-5, atol=1e-6)


@modes
@quick
@given(rewards=groups)
def test_advantages_of_a_group_sum_to_zero(mode, rewards):
    assert group_advantages(row(rewards), mode).sum().item() == pytest.approx(0, abs=1e-9)


@quick
@given(rewards=groups)
def test_no_advantage_passes_that_of_one_right_rollout(rewards):
    # One of G right: (1 - 1/G) / (1 / sqrt(G)) = (G - 1) / sqrt(G).
    G = len(rewards)
    assert group_advantages(row(rewards)).abs().max().item() <= (G - 1) / math.sqrt(G) + 1e-9


@modes
@dtypes
@pytest.mark.parametrize("reward", [0.0, 0.5, 1 / 3, 0.1, 0.7, 1.0])
def test_equal_rewards_have_exactly_zero_advantage(mode, dtype, reward):
    rewards_P_G = torch.full((1, 8), reward, dtype=dtype, requires_grad=True)
    advantages_P_G = group_advantages(rewards_P_G, mode)
    assert torch.equal(advantages_P_G, torch.zeros(1, 8, dtype=dtype))
    advantages_P_G.square().sum().backward()
    assert torch.equal(rewards_P_G.grad, torch.zeros(1, 8, dtype=dtype))


def test_eq_1_taken_literally_would_turn_rounding_into_signal():
    rewards = torch.full((8,), 0.1)
    literal = (rewards - rewards.mean()) / (rewards.std() + 1e-8)
    assert literal.abs().max() > 0.1
    assert group_advantages(rewards[None]).abs().max() == 0


def test_a_mad_of_zero_falls_back_to_the_standard_deviation():
    rewards = row(binary(1))
    assert torch.equal(group_advantages(rewards, "mad"), group_advantages(rewards, "std"))
    # Literally, the right one's advantage would be (7/8) / 1e-8 = 8.75e7.
    assert group_advantages(rewards, "mad").max().item() == pytest.approx(7 / 8**0.5)


def test_a_mad_of_zero_can_silence_the_group_or_raise():
    rewards_P_G = torch.tensor([binary(1), binary(4)])
    silenced = group_advantages(rewards_P_G, "mad", fallback="zero")
    assert torch.equal(silenced[0], torch.zeros(8))
    torch.testing.assert_close(silenced[1, 0], torch.tensor(0.5 / 0.7413))
    with pytest.raises(ValueError, match=r"rewards_P_G: mad is zero in groups \[0\]"):
        group_advantages(rewards_P_G, "mad", fallback="error")


def test_dropping_groups_without_signal_leaves_the_others_unchanged():
    rewards_P_G = torch.tensor([binary(0), binary(3), binary(8), binary(5)])
    keep_P = ~equal_rewards(rewards_P_G)
    assert keep_P.tolist() == [False, True, False, True]
    assert torch.equal(group_advantages(rewards_P_G[keep_P]), group_advantages(rewards_P_G)[keep_P])


def test_a_group_of_one_is_refused_with_the_remedy():
    with pytest.raises(ValueError, match="rewards_P_G: a group of one.*normalise over the whole batch"):
        group_advantages(torch.tensor([[1.0], [0.0]]))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_rewards_that_are_not_finite_are_refused_by_name(bad):
    # One reward that is None or NaN must not poison its group silently.
    with pytest.raises(ValueError, match="rewards_P_G is NaN or infinite"):
        group_advantages(row(binary(1, 7) + [bad]))


@modes
def test_gradient_of_advantages_equals_finite_differences(mode):
    rewards_P_G = torch.tensor([[0.1, 0.75, 0.3, 0.9, 0.45]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda r: group_advantages(r, mode), rewards_P_G)

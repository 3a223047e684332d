"""Advantages: AGPO Eq. 1, REINFORCE++ (R++) Eqs. 4-7, and the estimators they are compared with.

Golden values named after a public trainer were worked by hand from that trainer's formula. TRL is installed: its own
lines are run beside ours.
"""

import ast
import doctest
import functools
import importlib.util
import math
import statistics
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agpo_core import advantages
from agpo_core.advantages import (
    dr_grpo_advantages,
    gae,
    global_advantages,
    greedy_baseline_advantages,
    group_advantages,
    leave_one_out_advantages,
    mixed_advantages,
    reinforce_pp_advantages,
    reinforce_pp_baseline_advantages,
    token_returns,
)
from agpo_core.probe import equal_rewards

quick = settings(deadline=None, derandomize=True, max_examples=60)
quicker = settings(quick, max_examples=25)  # for a test with many parameters
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
modes = pytest.mark.parametrize("mode", ["std", "mad", "iqr"])
credits_ = pytest.mark.parametrize("credit", ["return_to_go", "last_token"])
populations = pytest.mark.parametrize("population", ["tokens", "sequences"])
conventions = pytest.mark.parametrize("convention", ["paper", "openrlhf", "verl"])
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


# -- What the tests below share

# The toy batch: two prompts, two rollouts each; 1, 3, 2 and 2 tokens.
TOY_P_G = torch.tensor([[1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
TOY_LENGTHS = [1, 3, 2, 2]


def mask_of(lengths, width=None):
    return (torch.arange(width or max(lengths))[None] < torch.tensor(lengths)[:, None]).long()


def double(values):
    return torch.tensor(values, dtype=torch.float64)


# Dyadic numbers: sums of a few are exact, so that "all equal" means the same to a loop and to a tensor.
sixteenths = st.integers(-16, 16).map(lambda n: n / 16)


@st.composite
def reward_matrices(draw, max_P=4):
    P, G = draw(st.integers(1, max_P)), draw(st.integers(2, 5))
    return double(draw(st.lists(st.lists(sixteenths, min_size=G, max_size=G), min_size=P, max_size=P)))


@st.composite
def rollouts(draw):
    """Rewards, masks with holes and empty rows, and a KL for each token."""
    B, T = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    rewards = draw(st.lists(sixteenths, min_size=B, max_size=B))
    table = st.lists(st.lists(st.integers(0, 1), min_size=T, max_size=T), min_size=B, max_size=B)
    kls = draw(st.lists(st.lists(sixteenths, min_size=T, max_size=T), min_size=B, max_size=B))
    return double(rewards), torch.tensor(draw(table)), double(kls)


def returns_by_loop(rewards, masks, kls, beta, credit):
    rows = []
    for reward, mask, kl in zip(rewards.tolist(), masks.tolist(), kls.tolist(), strict=True):
        places = [t for t, kept in enumerate(mask) if kept]
        row = [0.0] * len(mask)
        for t in places if credit == "return_to_go" else places[-1:]:
            row[t] = reward - beta * sum(kl[i] for i in places if i >= t)
        rows.append(row)
    return double(rows)


def scale_by_loop(variance_sum, count, eps, convention):
    if convention == "paper":
        return 1 / (math.sqrt(variance_sum / (count - 1)) + eps)
    if convention == "verl":
        return 1 / math.sqrt(variance_sum / (count - 1) + 1e-8)
    return 1 / math.sqrt(max(variance_sum / count, 1e-8))


def global_by_loop(values, masks, population, convention, eps=1e-8):
    """Rows of tokens, normalised as the docstring says, in plain Python."""
    rows = [[v for v, kept in zip(*pair, strict=True) if kept] for pair in zip(values.tolist(), masks.tolist())]
    rows = [row for row in rows if row]
    flat = [v for row in rows for v in row]
    count = len(flat) if population == "tokens" else len(rows)
    if not flat or min(flat) == max(flat) or (count == 1 and convention != "openrlhf"):
        return torch.zeros_like(values)
    if population == "tokens":
        mean = sum(flat) / count
        squares = sum((v - mean) ** 2 for v in flat)
    else:
        mean = sum(sum(row) / len(row) for row in rows) / count
        squares = sum(sum((v - mean) ** 2 for v in row) / len(row) for row in rows)
    scale = scale_by_loop(squares, count, eps, convention)
    return double(
        [
            [(v - mean) * scale if kept else 0.0 for v, kept in zip(*pair, strict=True)]
            for pair in zip(values.tolist(), masks.tolist(), strict=True)
        ]
    )


@functools.cache
def trl_lines(file, starts, ends):
    """Compile some statements of a TRL trainer, from one that starts so to one that ends so, without importing TRL."""
    folder = Path(importlib.util.find_spec("trl").origin).parent / "trainer"
    helpers, trainer = (ast.parse((folder / name).read_text()) for name in ("utils.py", file))
    [nanstd] = [node for node in helpers.body if getattr(node, "name", "") == "nanstd"]
    [method] = [node for node in ast.walk(trainer) if getattr(node, "name", "") == "_generate_and_score_completions"]
    lines = [ast.unparse(statement) for statement in method.body]
    first, last = (next(i for i, line in enumerate(lines) if line.startswith(text)) for text in (starts, ends))
    return compile("\n".join([ast.unparse(nanstd), *lines[first : last + 1]]), file, "exec")


def run_trl(file, starts, ends, **names):
    exec(trl_lines(file, starts, ends), names := {"torch": torch, **names})
    return names["advantages"]


def trl_rloo(rewards_P_G, normalise):
    found = run_trl(
        "rloo_trainer.py",
        "grouped_rewards =",
        "advantages = torch.nan_to_num",
        rewards=rewards_P_G.flatten(),
        num_generations=rewards_P_G.shape[1],
        self=SimpleNamespace(normalize_advantages=normalise),
    )
    return found.view_as(rewards_P_G)


def trl_grpo(rewards_P_G, scale_rewards):
    found = run_trl(
        "grpo_trainer.py",
        "unscorable_mask =",
        "if self.multi_objective_aggregation ==",
        rewards_per_func=rewards_P_G.flatten()[:, None],
        num_generations=rewards_P_G.shape[1],
        device="cpu",
        self=SimpleNamespace(
            multi_objective_aggregation="sum_then_normalize",
            reward_weights=torch.ones(1, dtype=rewards_P_G.dtype),
            scale_rewards=scale_rewards,
        ),
    )
    return found.view_as(rewards_P_G)


# -- Dr. GRPO, RLOO, ReMax


@dtypes
def test_dr_grpo_and_rloo_by_hand(dtype):
    rewards_P_G = torch.tensor([[1.0, 0.0, 0.5, 0.5], [0.25, 0.25, 0.25, 0.25]], dtype=dtype)
    # Mean .5; mean of the others 1/3, 2/3, .5, .5.
    centred = torch.tensor([[0.5, -0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], dtype=dtype)
    torch.testing.assert_close(dr_grpo_advantages(rewards_P_G), centred)
    torch.testing.assert_close(leave_one_out_advantages(rewards_P_G), centred * 4 / 3)


@quick
@given(reward_matrices())
def test_rloo_subtracts_the_mean_of_the_others(rewards_P_G):
    rows = rewards_P_G.tolist()
    expected = [[r - statistics.fmean(row[:g] + row[g + 1 :]) for g, r in enumerate(row)] for row in rows]
    torch.testing.assert_close(leave_one_out_advantages(rewards_P_G), double(expected))


@quick
@given(reward_matrices())
def test_rloo_and_dr_grpo_equal_trl(rewards_P_G):
    torch.testing.assert_close(leave_one_out_advantages(rewards_P_G), trl_rloo(rewards_P_G, normalise=False))
    torch.testing.assert_close(dr_grpo_advantages(rewards_P_G), trl_grpo(rewards_P_G, "none"))
    torch.testing.assert_close(group_advantages(rewards_P_G, eps=1e-4), trl_grpo(rewards_P_G, "group"))


@pytest.mark.parametrize("estimator", [dr_grpo_advantages, leave_one_out_advantages])
@quick
@given(rewards_P_G=reward_matrices(), data=st.data())
def test_unscaled_advantages_follow_order_and_scale_ignore_shifts_and_sum_to_zero(estimator, rewards_P_G, data):
    advantages_P_G = estimator(rewards_P_G)
    order = data.draw(st.permutations(range(rewards_P_G.shape[1])))
    shift_P_1 = torch.arange(len(rewards_P_G), dtype=torch.float64)[:, None]
    torch.testing.assert_close(estimator(rewards_P_G[:, order]), advantages_P_G[:, order])
    torch.testing.assert_close(estimator(4 * rewards_P_G + shift_P_1), 4 * advantages_P_G)
    torch.testing.assert_close(advantages_P_G.sum(dim=1), torch.zeros(len(rewards_P_G), dtype=torch.float64))


@dtypes
def test_greedy_baseline_by_hand_and_at_one_rollout_a_prompt(dtype):
    rewards_P_G = torch.tensor([[1.0, 0.0], [0.5, 1.0]], dtype=dtype)
    greedy_rewards_P = torch.tensor([1.0, 0.5], dtype=dtype)
    expected = torch.tensor([[0.0, -1.0], [0.0, 0.5]], dtype=dtype)
    assert torch.equal(greedy_baseline_advantages(rewards_P_G, greedy_rewards_P), expected)
    assert torch.equal(greedy_baseline_advantages(rewards_P_G[:, :1], greedy_rewards_P), expected[:, :1])


@quick
@given(reward_matrices())
def test_greedy_baseline_is_dr_grpo_where_the_greedy_reward_is_the_mean(rewards_P_G):
    found = greedy_baseline_advantages(rewards_P_G, rewards_P_G.mean(dim=1))
    torch.testing.assert_close(found, dr_grpo_advantages(rewards_P_G))


def test_greedy_baseline_names_what_does_not_fit():
    with pytest.raises(ValueError, match=r"greedy_rewards_P has shape \(2, 1\).*2 prompts"):
        greedy_baseline_advantages(torch.zeros(2, 3), torch.zeros(2, 1))
    with pytest.raises(ValueError, match="greedy_rewards_P is NaN or infinite"):
        greedy_baseline_advantages(torch.zeros(2, 3), torch.tensor([0.0, math.nan]))
    with pytest.raises(ValueError, match="rewards_P_G is NaN or infinite"):
        greedy_baseline_advantages(torch.tensor([[math.inf]]), torch.zeros(1))


GROUP_ESTIMATORS = pytest.mark.parametrize(
    "estimator",
    [dr_grpo_advantages, leave_one_out_advantages, reinforce_pp_baseline_advantages, mixed_advantages],
)


@GROUP_ESTIMATORS
@dtypes
def test_groups_of_equal_rewards_have_exactly_zero_advantage_and_gradient(estimator, dtype):
    # .1 and 1/3 differ from their own mean of seven by a rounding error in one dtype or the other.
    rewards_P_G = torch.tensor([[0.1] * 7, [1 / 3] * 7, [1.0] * 7], dtype=dtype, requires_grad=True)
    advantages_P_G = estimator(rewards_P_G)
    assert torch.equal(advantages_P_G, torch.zeros(3, 7, dtype=dtype))
    advantages_P_G.pow(3).sum().backward()
    assert torch.equal(rewards_P_G.grad, torch.zeros(3, 7, dtype=dtype))


@GROUP_ESTIMATORS
@dtypes
def test_groups_of_equal_rewards_stay_silent_beside_others(estimator, dtype):
    rewards_P_G = torch.tensor([[0.1] * 7, binary(3, 7), [1 / 3] * 7], dtype=dtype, requires_grad=True)
    advantages_P_G = estimator(rewards_P_G)
    assert torch.equal(advantages_P_G[[0, 2]], torch.zeros(2, 7, dtype=dtype))
    assert (advantages_P_G[1] != 0).all()
    advantages_P_G.pow(3).sum().backward()
    assert rewards_P_G.grad.isfinite().all()


@GROUP_ESTIMATORS
def test_a_group_of_one_or_a_bad_reward_is_refused_by_every_group_estimator(estimator):
    with pytest.raises(ValueError, match="rewards_P_G: a group of one"):
        estimator(torch.tensor([[1.0], [0.0]]))
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="rewards_P_G is NaN or infinite"):
            estimator(torch.tensor([[1.0, 0.0], [bad, 0.0]]))
    with pytest.raises(TypeError, match="rewards_P_G is torch.int64"):
        estimator(torch.tensor([[1, 0]]))
    with pytest.raises(ValueError, match="rewards_P_G has shape"):
        estimator(torch.tensor([1.0, 0.0]))


def test_the_baseline_at_a_group_of_one_names_the_estimator_to_use():
    with pytest.raises(ValueError, match="use reinforce_pp_advantages"):
        reinforce_pp_baseline_advantages(torch.tensor([[1.0], [0.0]]))


# -- Returns (R++ Eq. 4, App. B.2)


@dtypes
def test_returns_by_hand(dtype):
    rewards_B, mask_B_T = torch.tensor([2.0, -1.0], dtype=dtype), torch.tensor([[1, 1, 1], [1, 1, 0]])
    kl_B_T = torch.tensor([[1.0, -2.0, 4.0], [3.0, 5.0, 7.0]], dtype=dtype)
    # β = .5. Sums from t on: 3, 2, 4 and 8, 5: 2 - 1.5, 2 - 1, 2 - 2; -1 - 4, -1 - 2.5
    expected = torch.tensor([[0.5, 1.0, 0.0], [-5.0, -3.5, 0.0]], dtype=dtype)
    assert torch.equal(token_returns(rewards_B, mask_B_T, kl_B_T, beta=0.5), expected)
    # The last token alone, with its own KL alone: 2 - .5 * 4; -1 - .5 * 5
    expected = torch.tensor([[0.0, 0.0, 0.0], [0.0, -3.5, 0.0]], dtype=dtype)
    assert torch.equal(token_returns(rewards_B, mask_B_T, kl_B_T, beta=0.5, credit="last_token"), expected)


@credits_
@quicker
@given(batch=rollouts(), beta=st.sampled_from([0.0, 0.25, 1.0]))
def test_returns_equal_a_slow_loop(credit, batch, beta):
    rewards_B, mask_B_T, kl_B_T = batch
    found = token_returns(rewards_B, mask_B_T, kl_B_T, beta, credit)
    torch.testing.assert_close(found, returns_by_loop(rewards_B, mask_B_T, kl_B_T, beta, credit))


def test_a_tool_observation_neither_cuts_the_return_nor_adds_to_it():
    # verl #7278: tokens before the observation got the return 0. Their return is 1.
    mask_B_T = torch.tensor([[1, 1, 0, 0, 1, 1]])
    returns_B_T = token_returns(torch.tensor([1.0]), mask_B_T)
    assert returns_B_T.tolist() == [[1, 1, 0, 0, 1, 1]]
    kl_B_T = torch.tensor([[1.0, 1.0, 1e9, math.nan, 1.0, 1.0]])
    returns_B_T = token_returns(torch.tensor([1.0]), mask_B_T, kl_B_T, beta=0.125)
    assert returns_B_T.tolist() == [[0.5, 0.625, 0, 0, 0.75, 0.875]]
    returns_B_T = token_returns(torch.tensor([1.0]), mask_B_T, kl_B_T, beta=0.125, credit="last_token")
    assert returns_B_T.tolist() == [[0, 0, 0, 0, 0, 0.875]]


@credits_
def test_last_token_is_the_last_sampled_one_wherever_the_padding_stands(credit):
    mask_B_T = torch.tensor([[0, 1, 1], [1, 1, 0], [0, 1, 0], [0, 0, 0]])
    returns_B_T = token_returns(torch.tensor([1.0, 2.0, 3.0, 4.0]), mask_B_T, credit=credit)
    if credit == "return_to_go":
        assert returns_B_T.tolist() == [[0, 1, 1], [2, 2, 0], [0, 3, 0], [0, 0, 0]]
    else:
        assert returns_B_T.tolist() == [[0, 0, 1], [0, 2, 0], [0, 3, 0], [0, 0, 0]]


def test_returns_name_what_is_wrong():
    rewards_B, mask_B_T, kl_B_T = torch.zeros(2), torch.ones(2, 3), torch.zeros(2, 3)
    with pytest.raises(ValueError, match="beta=0.1 without kl_B_T"):
        token_returns(rewards_B, mask_B_T, beta=0.1)
    for beta in (-0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match="beta=.*out of range"):
            token_returns(rewards_B, mask_B_T, kl_B_T, beta=beta)
    with pytest.raises(ValueError, match="credit='first_token'"):
        token_returns(rewards_B, mask_B_T, credit="first_token")
    with pytest.raises(ValueError, match=r"rewards_B has shape \(1, 2\)"):
        token_returns(rewards_B[None], mask_B_T)
    with pytest.raises(ValueError, match=r"mask_B_T has shape \(3, 3\)"):
        token_returns(rewards_B, torch.ones(3, 3))
    with pytest.raises(ValueError, match="kl_B_T.*mask_B_T"):
        token_returns(rewards_B, mask_B_T, torch.zeros(2, 2), beta=0.1)
    with pytest.raises(ValueError, match=r"kl_B_T is NaN or infinite at \[\[1, 2\]\]"):
        token_returns(rewards_B, mask_B_T, torch.tensor([[0.0] * 3, [0.0, 0.0, math.inf]]), beta=0.1)
    with pytest.raises(ValueError, match=r"rewards_B is NaN or infinite at \[\[0\]\]"):
        token_returns(torch.tensor([math.nan, 0.0]), mask_B_T)
    with pytest.raises(TypeError, match="rewards_B is torch.int64"):
        token_returns(torch.tensor([1, 0]), mask_B_T)


# -- Global normalisation (R++ Eq. 5)


@dtypes
@conventions
def test_global_advantages_of_four_numbers_by_hand(dtype, convention):
    values_B = torch.tensor([1.0, 2.0, 3.0, 6.0], dtype=dtype)
    # Mean 3, squares 4 + 1 + 0 + 9 = 14: variance 14 / 3, biased 14 / 4.
    variance = {"paper": 14 / 3, "verl": 14 / 3, "openrlhf": 14 / 4}[convention]
    expected = torch.tensor([-2.0, -1.0, 0.0, 3.0], dtype=dtype) / variance**0.5
    torch.testing.assert_close(global_advantages(values_B, convention=convention), expected)
    found_P_G = global_advantages(values_B.view(2, 2), convention=convention)
    torch.testing.assert_close(found_P_G, expected.view(2, 2))


def test_each_convention_keeps_the_quotient_finite_in_its_own_way():
    values_B = double([0.0, 2e-4])
    # ±1e-4; unbiased σ² = 2e-8, biased 1e-8.
    assert global_advantages(values_B, eps=1e-4)[1].item() == pytest.approx(1e-4 / (2e-8**0.5 + 1e-4))
    assert global_advantages(values_B, convention="verl")[1].item() == pytest.approx(1e-4 / 3e-8**0.5)
    assert global_advantages(values_B, convention="openrlhf")[1].item() == pytest.approx(1)
    # A tenth of that: OpenRLHF's clamp binds at σ² = 1e-8.
    assert global_advantages(values_B / 10, convention="openrlhf")[1].item() == pytest.approx(0.1)
    assert global_advantages(values_B / 10, convention="verl")[1].item() == pytest.approx(1e-5 / 1.02e-8**0.5)


@populations
@conventions
@quicker
@given(batch=rollouts())
def test_global_advantages_equal_a_slow_loop(population, convention, batch):
    _, mask_B_T, values_B_T = batch
    found = global_advantages(values_B_T, mask_B_T, population=population, convention=convention)
    expected = global_by_loop(values_B_T, mask_B_T, population, convention)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@populations
@quicker
@given(batch=rollouts())
def test_global_advantages_have_mean_zero_and_variance_one_over_their_population(population, batch):
    _, mask_B_T, values_B_T = batch
    found = global_advantages(values_B_T, mask_B_T, population=population)
    lengths_B_1 = mask_B_T.sum(dim=1, keepdim=True)
    weights = mask_B_T.double() if population == "tokens" else mask_B_T.double() / lengths_B_1.clamp(min=1)
    count = mask_B_T.sum() if population == "tokens" else (lengths_B_1 > 0).sum()
    assert (weights * found).sum().item() == pytest.approx(0, abs=1e-9)
    if found.abs().max() > 0:
        assert ((weights * found.square()).sum() / (count - 1)).item() == pytest.approx(1, rel=1e-5)


@conventions
@quicker
@given(batch=rollouts(), data=st.data())
def test_global_advantages_follow_the_order_and_ignore_shift_and_padding(convention, batch, data):
    _, mask_B_T, values_B_T = batch
    order = data.draw(st.permutations(range(len(values_B_T))))
    for population in ("tokens", "sequences"):

        def normalise(values, mask, population=population):
            return global_advantages(values, mask, population=population, convention=convention)

        expected = normalise(values_B_T, mask_B_T)
        torch.testing.assert_close(normalise(values_B_T[order], mask_B_T[order]), expected[order])
        torch.testing.assert_close(normalise(values_B_T + 2, mask_B_T), expected)
        padding = torch.nn.functional.pad
        found = normalise(padding(values_B_T, (1, 2), value=math.nan), padding(mask_B_T, (1, 2)))
        torch.testing.assert_close(found, padding(expected, (1, 2)))


@populations
@quicker
@given(batch=rollouts())
def test_global_advantages_ignore_a_positive_scale(population, batch):
    _, mask_B_T, values_B_T = batch
    expected = global_advantages(values_B_T, mask_B_T, population=population)
    found = global_advantages(8 * values_B_T, mask_B_T, population=population)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    found = global_advantages(-values_B_T, mask_B_T, population=population)
    torch.testing.assert_close(found, -expected)


@conventions
@quicker
@given(batch=rollouts())
def test_masked_values_never_matter_and_equal_the_subset(convention, batch):
    _, mask_B_T, values_B_T = batch
    kept_B_T = mask_B_T.bool()
    expected = global_advantages(values_B_T, mask_B_T, convention=convention)
    for filler in (math.nan, math.inf, -1e9):
        filled_B_T = values_B_T.masked_fill(~kept_B_T, filler)
        for mask in (mask_B_T, kept_B_T, mask_B_T.double()):
            assert torch.equal(global_advantages(filled_B_T, mask, convention=convention), expected)
    assert torch.equal(expected[~kept_B_T], torch.zeros_like(expected[~kept_B_T]))
    subset = global_advantages(values_B_T[kept_B_T], convention=convention)
    torch.testing.assert_close(expected[kept_B_T], subset)


@conventions
def test_sequences_count_once_however_long(convention):
    rewards_B = double([1.0, 0.0, 0.5, 1.0])
    expected_B = global_advantages(rewards_B, convention=convention)
    for lengths in ([1, 1, 1, 1], [1, 3, 2, 2], [7, 1, 4, 2]):
        mask_B_T = mask_of(lengths)
        values_B_T = rewards_B[:, None].expand(mask_B_T.shape)
        by_sequence = global_advantages(values_B_T, mask_B_T, population="sequences", convention=convention)
        torch.testing.assert_close(by_sequence, expected_B[:, None] * mask_B_T)
        # Tokens: a sequence of n tokens is n numbers.
        by_token = global_advantages(values_B_T, mask_B_T, convention=convention)
        repeated = global_advantages(rewards_B.repeat_interleave(torch.tensor(lengths)), convention=convention)
        torch.testing.assert_close(by_token[mask_B_T.bool()], repeated)


@populations
def test_the_populations_agree_on_one_number_a_sequence(population):
    values_P_G = double([[1.0, 0.0, 3.0], [0.0, 0.5, 0.0]])
    expected = global_by_loop(values_P_G.view(6, 1), torch.ones(6, 1), "tokens", "paper").view(2, 3)
    torch.testing.assert_close(global_advantages(values_P_G, population=population), expected)
    torch.testing.assert_close(global_advantages(values_P_G.flatten(), population=population), expected.flatten())
    # A mask on (B,) leaves sequences out.
    mask_B = torch.tensor([1, 0, 1, 1, 1, 0])
    subset = global_advantages(values_P_G.flatten()[mask_B.bool()], population=population)
    found = global_advantages(values_P_G.flatten(), mask_B, population=population)
    torch.testing.assert_close(found[mask_B.bool()], subset)


@populations
@conventions
@dtypes
@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 0.7, 1.0, -1e4])
def test_equal_values_have_exactly_zero_global_advantage_and_gradient(population, convention, dtype, value):
    mask_B_T = mask_of([1, 3, 2, 0])
    values_B_T = torch.full((4, 3), value, dtype=dtype).masked_fill(mask_B_T == 0, 5.0).requires_grad_()
    advantages_B_T = global_advantages(values_B_T, mask_B_T, population=population, convention=convention)
    assert torch.equal(advantages_B_T, torch.zeros(4, 3, dtype=dtype))
    advantages_B_T.square().sum().backward()
    assert torch.equal(values_B_T.grad, torch.zeros(4, 3, dtype=dtype))


@conventions
def test_one_value_or_none_has_no_scale_and_so_no_advantage(convention):
    assert global_advantages(torch.tensor([3.0]), convention=convention).tolist() == [0]
    assert global_advantages(torch.tensor([3.0, 4.0]), torch.tensor([0, 1]), convention=convention).tolist() == [0, 0]
    values_B_T = torch.tensor([[1.0, 2.0], [3.0, math.nan]], requires_grad=True)
    advantages_B_T = global_advantages(values_B_T, torch.zeros(2, 2), convention=convention)
    assert torch.equal(advantages_B_T, torch.zeros(2, 2))
    advantages_B_T.sum().backward()
    assert torch.equal(values_B_T.grad, torch.zeros(2, 2))
    assert global_advantages(torch.zeros(0, 3), torch.zeros(0, 3), convention=convention).shape == (0, 3)


def test_one_sequence_of_unequal_tokens_has_no_unbiased_std_over_sequences():
    values_B_T, mask_B_T = double([[1.0, 3.0], [0.0, 0.0]]), mask_of([2, 0])
    for convention in ("paper", "verl"):
        found = global_advantages(values_B_T, mask_B_T, population="sequences", convention=convention)
        assert torch.equal(found, torch.zeros_like(found))
    # Biased: mean 2, σ² = (1 + 1) / 2.
    found = global_advantages(values_B_T, mask_B_T, population="sequences", convention="openrlhf")
    torch.testing.assert_close(found, double([[-1.0, 1.0], [0.0, 0.0]]))


def test_the_trainers_formula_would_turn_rounding_into_signal():
    # OpenRLHF's, literally: equal rewards differ from their mean by a rounding error, and rsqrt(1e-8) = 1e4.
    values_B = torch.full((7,), 0.1)
    mean = values_B.mean()
    literal = (values_B - mean) * (values_B - mean).square().mean().clamp(min=1e-8).rsqrt()
    assert 0 < literal.abs().max() < 3e-4
    assert global_advantages(values_B, convention="openrlhf").abs().max() == 0


@dtypes
@conventions
def test_values_too_close_to_square_stay_finite(dtype, convention):
    # Differences of 1e-30 have squares that underflow in float32: the quotient and its gradient must not.
    values_B = torch.tensor([0.0, 1e-30], dtype=dtype, requires_grad=True)
    advantages_B = global_advantages(values_B, eps=0.0, convention=convention)
    advantages_B.sum().backward()
    assert advantages_B.isfinite().all() and values_B.grad.isfinite().all()


def test_global_advantages_name_what_is_wrong():
    for bad in (math.nan, -math.inf):
        with pytest.raises(ValueError, match=r"values is NaN or infinite at \[\[1\]\]"):
            global_advantages(torch.tensor([1.0, bad]))
    with pytest.raises(ValueError, match="values.*mask"):
        global_advantages(torch.zeros(2, 3), torch.ones(2))
    with pytest.raises(ValueError, match="population='batch'"):
        global_advantages(torch.zeros(2), population="batch")
    with pytest.raises(ValueError, match="convention='trl'"):
        global_advantages(torch.zeros(2), convention="trl")
    for eps in (-1e-8, math.nan):
        with pytest.raises(ValueError, match="eps=.*out of range"):
            global_advantages(torch.tensor([0.0, 1.0]), eps=eps)
    with pytest.raises(TypeError, match="values is torch.int64"):
        global_advantages(torch.tensor([1, 0]))


@populations
@conventions
def test_gradient_of_global_advantages_equals_finite_differences(population, convention):
    values_B_T = double([[0.1, 0.75, 0.3], [0.9, -0.45, 9.0], [0.2, 9.0, 9.0]]).requires_grad_()
    mask_B_T = mask_of([3, 2, 1])

    def function(values):
        return global_advantages(values, mask_B_T, population=population, convention=convention)

    assert torch.autograd.gradcheck(function, values_B_T)


# -- REINFORCE++, k >= 1 (R++ Eqs. 4, 5)


def test_the_toy_batch_at_one_rollout_a_prompt_by_hand():
    # Four prompts, rewards 1, 0, 1, 1, lengths 1, 3, 2, 2, no KL.
    # By sequence: mean 3/4; squares 3/16 + 9/16 = 3/4; biased σ = .43301, unbiased σ = .5.
    # By token: mean 5/8; squares 5 * 9/64 + 3 * 25/64 = 15/8; biased σ = .48412, unbiased σ = .51755.
    for population, convention, right, wrong in [
        ("sequences", "openrlhf", 0.25 / 0.4330127, -0.75 / 0.4330127),  # .5774, -1.7321
        ("sequences", "paper", 0.5, -1.5),
        ("tokens", "openrlhf", 0.7746, -1.2910),  # .375 / .48412, -.625 / .48412
        ("tokens", "verl", 0.7246, -1.2076),  # .375 / .51755, -.625 / .51755
        ("tokens", "paper", 0.7246, -1.2076),
    ]:
        mask_B_T = mask_of(TOY_LENGTHS)
        found = reinforce_pp_advantages(TOY_P_G.flatten(), mask_B_T, population=population, convention=convention)
        expected = double([right, wrong, right, right])[:, None] * mask_B_T
        torch.testing.assert_close(found, expected, atol=5e-5, rtol=0)


@populations
@conventions
@credits_
@quicker
@given(batch=rollouts(), beta=st.sampled_from([0.0, 0.25]))
def test_reinforce_pp_equals_a_slow_loop(population, convention, credit, batch, beta):
    rewards_B, mask_B_T, kl_B_T = batch
    found = reinforce_pp_advantages(
        rewards_B, mask_B_T, kl_B_T, beta, credit, population=population, convention=convention
    )
    returns = returns_by_loop(rewards_B, mask_B_T, kl_B_T, beta, credit)
    counted = mask_B_T.clone()
    if credit == "last_token":
        for row in counted:
            row[row.nonzero().flatten()[:-1]] = 0
    expected = global_by_loop(returns, counted, population, convention)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@quick
@given(rollouts())
def test_ppo_without_critic_at_lambda_one_and_global_whitening_is_reinforce_pp(batch):
    rewards_B, mask_B_T, kl_B_T = batch
    token_rewards_B_T = -0.25 * kl_B_T
    for b, mask in enumerate(mask_B_T):
        if mask.any():
            token_rewards_B_T[b, mask.nonzero().max()] += rewards_B[b]
    advantages_B_T, returns_B_T = gae(token_rewards_B_T, torch.zeros_like(kl_B_T), mask_B_T, gamma=1.0, lam=1.0)
    assert torch.equal(advantages_B_T, returns_B_T)
    for convention in ("paper", "openrlhf", "verl"):
        whitened = global_advantages(advantages_B_T, mask_B_T, convention=convention)
        found = reinforce_pp_advantages(rewards_B, mask_B_T, kl_B_T, beta=0.25, convention=convention)
        torch.testing.assert_close(found, whitened)


@conventions
@quicker
@given(batch=rollouts())
def test_without_kl_the_last_token_and_the_sequence_share_one_advantage(convention, batch):
    rewards_B, mask_B_T, _ = batch
    kept_B = mask_B_T.any(dim=1)
    expected_B = torch.zeros_like(rewards_B)
    expected_B[kept_B] = global_advantages(rewards_B[kept_B], convention=convention)
    spread = reinforce_pp_advantages(rewards_B, mask_B_T, population="sequences", convention=convention)
    torch.testing.assert_close(spread, expected_B[:, None] * mask_B_T)
    # One number a sequence: with "last_token" both populations are the same.
    for population in ("tokens", "sequences"):
        last = reinforce_pp_advantages(
            rewards_B, mask_B_T, credit="last_token", population=population, convention=convention
        )
        torch.testing.assert_close(last.sum(dim=1), expected_B)
        assert ((last != 0).sum(dim=1) <= 1).all()


@credits_
@populations
@quicker
@given(batch=rollouts(), data=st.data())
def test_reinforce_pp_follows_the_order_and_ignores_shift_scale_and_holes(credit, population, batch, data):
    rewards_B, mask_B_T, kl_B_T = batch
    order = data.draw(st.permutations(range(len(rewards_B))))

    def advantages_of(rewards, mask, kl, beta=0.25):
        return reinforce_pp_advantages(rewards, mask, kl, beta, credit, population)

    expected = advantages_of(rewards_B, mask_B_T, kl_B_T)
    found = advantages_of(rewards_B[order], mask_B_T[order], kl_B_T[order])
    torch.testing.assert_close(found, expected[order])
    torch.testing.assert_close(advantages_of(rewards_B + 2, mask_B_T, kl_B_T), expected)
    found = advantages_of(8 * rewards_B, mask_B_T, kl_B_T, beta=2.0)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    # A masked column between any two is the same batch with holes.
    holed = (
        torch.stack([kept, torch.full_like(kept, filler)], dim=2).flatten(1)
        for kept, filler in ((mask_B_T, 0), (kl_B_T, math.nan))
    )
    torch.testing.assert_close(advantages_of(rewards_B, *holed)[:, ::2], expected)


def test_kl_noise_inside_equal_rewards_becomes_unit_variance_advantages():
    rewards_B, mask_B_T, kl_B_T = double([1.0, 1.0]), mask_of([1, 1]), double([[0.0], [0.04]])
    assert torch.equal(reinforce_pp_advantages(rewards_B, mask_B_T, kl_B_T), double([[0.0], [0.0]]))
    # β = .01: returns 1 and 1 - 4e-4; ±2e-4; unbiased σ² = 8e-8, biased 4e-8.
    for convention, sigma in [("paper", 8e-8**0.5 + 1e-8), ("verl", 9e-8**0.5), ("openrlhf", 4e-8**0.5)]:
        found = reinforce_pp_advantages(rewards_B, mask_B_T, kl_B_T, beta=0.01, convention=convention)
        expected = double([[2e-4], [-2e-4]]) / sigma  # .7071, .6667, 1
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


@credits_
@populations
@conventions
@dtypes
def test_equal_rewards_without_kl_have_exactly_zero_advantage(credit, population, convention, dtype):
    found = reinforce_pp_advantages(
        torch.full((4,), 0.1, dtype=dtype), mask_of([1, 3, 2, 0]), None, 0.0, credit, population, 1e-8, convention
    )
    assert torch.equal(found, torch.zeros(4, 3, dtype=dtype))


@credits_
@populations
def test_a_sequence_without_tokens_counts_for_nothing(credit, population):
    # A sibling with an empty mask and the reward 100 must not move the others (OpenRLHF #1239).
    rewards_B, mask_B_T = double([1.0, 0.0, 0.5]), mask_of([2, 1, 3])
    expected = reinforce_pp_advantages(rewards_B, mask_B_T, credit=credit, population=population)
    for stray in (100.0, math.nan):
        found = reinforce_pp_advantages(
            torch.cat([rewards_B, double([stray])]),
            torch.cat([mask_B_T, torch.zeros(1, 3, dtype=torch.long)]),
            credit=credit,
            population=population,
        )
        assert torch.equal(found[:3], expected)
        assert torch.equal(found[3], torch.zeros(3, dtype=torch.float64))


@credits_
@populations
def test_gradient_of_reinforce_pp_equals_finite_differences(credit, population):
    rewards_B = double([0.2, 0.9, -0.4]).requires_grad_()
    kl_B_T = double([[0.1, -0.3, 0.2], [0.5, 0.4, 7.0], [-0.2, 7.0, 7.0]]).requires_grad_()
    mask_B_T = torch.tensor([[1, 0, 1], [1, 1, 0], [1, 0, 0]])

    def function(rewards, kl):
        return reinforce_pp_advantages(rewards, mask_B_T, kl, 0.5, credit, population)

    assert torch.autograd.gradcheck(function, (rewards_B, kl_B_T))


@populations
@conventions
def test_two_ranks_gathered_equal_the_whole_batch_and_apart_they_do_not(population, convention):
    generator = torch.Generator().manual_seed(0)
    rewards_B = torch.rand(8, dtype=torch.float64, generator=generator)
    mask_B_T = mask_of([5, 2, 7, 1, 3, 3, 2, 4], width=7)
    kl_B_T = torch.randn(8, 7, dtype=torch.float64, generator=generator)

    def advantages_of(rewards, mask, kl):
        return reinforce_pp_advantages(rewards, mask, kl, 0.1, population=population, convention=convention)

    whole_B_T = advantages_of(rewards_B, mask_B_T, kl_B_T)
    # Each rank pads to its own longest sequence, and to the longest of all before the gathering.
    ranks = [slice(0, 4), slice(4, 8)]
    shards = []
    for rank, width in zip(ranks, (7, 4), strict=True):
        mask, kl = mask_B_T[rank, :width], kl_B_T[rank, :width]
        pad = (0, 7 - width)
        shards.append((rewards_B[rank], torch.nn.functional.pad(mask, pad), torch.nn.functional.pad(kl, pad, value=99)))
    gathered = [torch.cat(parts) for parts in zip(*shards, strict=True)]
    torch.testing.assert_close(advantages_of(*gathered), whole_B_T)
    apart = torch.cat([advantages_of(*shard) for shard in shards])
    assert (apart - whole_B_T).abs().max() > 0.1


# -- REINFORCE++ with baseline (R++ Eqs. 6, 7)


def test_the_toy_batch_with_baseline_by_hand():
    # A' = .5, -.5, 0, 0.
    # By sequence: mean 0; squares .5; biased σ = .35355, unbiased σ = .40825.
    # By token, lengths 1, 3, 2, 2: mean (.5 - 1.5) / 8 = -1/8; squares 1/4 + 3/4 - 8/64 = 7/8;
    # biased σ = .33072, unbiased σ = .35355. The group of equal rewards gets (0 + 1/8) / σ.
    for population, convention, y1, y2, y34 in [
        ("sequences", "openrlhf", 1.4142, -1.4142, 0.0),
        ("sequences", "verl", 1.2247, -1.2247, 0.0),
        ("sequences", "paper", 1.2247, -1.2247, 0.0),
        ("tokens", "openrlhf", 1.8898, -1.1339, 0.3780),
        ("tokens", "verl", 1.7678, -1.0607, 0.3536),
        ("tokens", "paper", 1.7678, -1.0607, 0.3536),
    ]:
        found = reinforce_pp_baseline_advantages(TOY_P_G, mask_of(TOY_LENGTHS), population, convention=convention)
        torch.testing.assert_close(found, double([[y1, y2], [y34, y34]]), atol=5e-5, rtol=0)


def test_the_toy_batch_as_trl_scales_it():
    # RLOO, normalised: ±1, 0, 0 over .81650 + 1e-4 = 1.2246. Eq. 7 has half of each: k/(k-1) = 2 cancels with eps 5e-5.
    expected = double([[1.2246, -1.2246], [0.0, 0.0]])
    torch.testing.assert_close(trl_rloo(TOY_P_G, normalise=True), expected, atol=5e-5, rtol=0)
    torch.testing.assert_close(reinforce_pp_baseline_advantages(TOY_P_G, eps=5e-5), trl_rloo(TOY_P_G, normalise=True))
    # ms-swift: .5 / (.40825 + 1e-4) = 1.2244
    expected = double([[1.2244, -1.2244], [0.0, 0.0]])
    torch.testing.assert_close(reinforce_pp_baseline_advantages(TOY_P_G, eps=1e-4), expected, atol=5e-5, rtol=0)
    # "batch" divides by the std of the raw rewards, .5: .5 / .5001 = .9998. It is not Eq. 7.
    expected = double([[0.9998, -0.9998], [0.0, 0.0]])
    torch.testing.assert_close(trl_grpo(TOY_P_G, "batch"), expected, atol=5e-5, rtol=0)
    torch.testing.assert_close(dr_grpo_advantages(TOY_P_G) / (TOY_P_G.std() + 1e-4), trl_grpo(TOY_P_G, "batch"))
    # "group": .5 / (.70711 + 1e-4) = .7070
    expected = double([[0.7070, -0.7070], [0.0, 0.0]])
    torch.testing.assert_close(trl_grpo(TOY_P_G, "group"), expected, atol=5e-5, rtol=0)


@quick
@given(reward_matrices())
def test_the_baseline_over_sequences_is_rloo_normalised_over_the_batch(rewards_P_G):
    G = rewards_P_G.shape[1]
    found = reinforce_pp_baseline_advantages(rewards_P_G, eps=1e-4 * (G - 1) / G)
    # TRL takes N / (N - 1) in single precision, 6e-8; and divides rounding by 1e-4 where all rewards are equal.
    torch.testing.assert_close(found, trl_rloo(rewards_P_G, normalise=True), atol=1e-9, rtol=1e-7)
    ours = global_advantages(leave_one_out_advantages(rewards_P_G), eps=1e-4)
    torch.testing.assert_close(found, ours, atol=1e-9, rtol=1e-9)


@quick
@given(reward_matrices(max_P=1))
def test_the_baseline_of_one_prompt_is_grpo(rewards_1_G):
    torch.testing.assert_close(reinforce_pp_baseline_advantages(rewards_1_G), group_advantages(rewards_1_G))


@populations
@conventions
@quicker
@given(rewards_P_G=reward_matrices(), data=st.data())
def test_the_baseline_equals_a_slow_loop_over_its_tokens(population, convention, rewards_P_G, data):
    P, G = rewards_P_G.shape
    lengths = data.draw(st.lists(st.integers(1, 4), min_size=P * G, max_size=P * G))
    mask_B_T = mask_of(lengths)
    centred = [r - statistics.fmean(row) for row in rewards_P_G.tolist() for r in row]
    # Means of three or five are not exact, and so neither is the loop's test for equal values.
    centred = [0.0 if abs(a) < 1e-12 else a for a in centred]
    values = double([[a] * mask_B_T.shape[1] for a in centred])
    expected_B_T = global_by_loop(values, mask_B_T, population, convention)
    found = reinforce_pp_baseline_advantages(rewards_P_G, mask_B_T, population, convention=convention)
    torch.testing.assert_close(found.flatten(), expected_B_T[:, 0], rtol=1e-9, atol=1e-9)


@quick
@given(rewards_P_G=reward_matrices(), data=st.data())
def test_the_baseline_has_mean_zero_over_its_population(rewards_P_G, data):
    B = rewards_P_G.numel()
    lengths = torch.tensor(data.draw(st.lists(st.integers(1, 4), min_size=B, max_size=B)))
    mask_B_T = mask_of(lengths.tolist())
    by_sequence = reinforce_pp_baseline_advantages(rewards_P_G, mask_B_T)
    assert torch.equal(by_sequence, reinforce_pp_baseline_advantages(rewards_P_G))
    assert by_sequence.sum().item() == pytest.approx(0, abs=1e-9)
    by_token = reinforce_pp_baseline_advantages(rewards_P_G, mask_B_T, "tokens")
    assert (by_token.flatten() * lengths).sum().item() == pytest.approx(0, abs=1e-9)


@quick
@given(rewards_P_G=reward_matrices(), data=st.data())
def test_the_baseline_follows_the_order_and_ignores_a_shift_of_each_prompt_and_a_scale(rewards_P_G, data):
    P, G = rewards_P_G.shape
    prompts, group = data.draw(st.permutations(range(P))), data.draw(st.permutations(range(G)))
    expected = reinforce_pp_baseline_advantages(rewards_P_G)
    found = reinforce_pp_baseline_advantages(rewards_P_G[prompts][:, group])
    torch.testing.assert_close(found, expected[prompts][:, group])
    shift_P_1 = torch.arange(P, dtype=torch.float64)[:, None]
    torch.testing.assert_close(reinforce_pp_baseline_advantages(rewards_P_G + shift_P_1), expected)
    torch.testing.assert_close(reinforce_pp_baseline_advantages(8 * rewards_P_G), expected, rtol=1e-5, atol=1e-6)


@populations
def test_an_empty_sibling_leaves_the_group(population):
    # OpenRLHF #1239: rewards 100 (no token) and 1 were centred to ±49.5. The one with tokens is its own mean: 0.
    rewards_P_G, mask_B_T = double([[100.0, 1.0], [1.0, 0.0]]), mask_of([0, 2, 2, 2])
    for stray in (100.0, math.nan):
        rewards_P_G[0, 0] = stray
        found = reinforce_pp_baseline_advantages(rewards_P_G, mask_B_T, population)
        # A' = 0, .5, -.5 of equal length: mean 0; over sequences σ² = .5 / 2, over six tokens 1 / 5.
        scale = {"sequences": 0.25, "tokens": 0.2}[population] ** 0.5
        torch.testing.assert_close(found, double([[0.0, 0.0], [0.5 / scale, -0.5 / scale]]))
    # With a third sibling the group's mean is that of the two that have tokens: A' = .5, -.5 and 2/3, -1/3, -1/3.
    # Squares 1/2 + 6/9 = 7/6: over five sequences σ² = 7/24, over ten tokens (two each) 7/3 / 9.
    rewards_P_G = double([[100.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    found = reinforce_pp_baseline_advantages(rewards_P_G, mask_of([0, 2, 2, 2, 2, 2]), population)
    scale = {"sequences": 7 / 24, "tokens": 7 / 27}[population] ** 0.5
    torch.testing.assert_close(found, double([[0.0, 0.5, -0.5], [2 / 3, -1 / 3, -1 / 3]]) / scale)


@populations
def test_a_batch_without_any_token_has_no_advantage(population):
    found = reinforce_pp_baseline_advantages(TOY_P_G, torch.zeros(4, 3), population)
    assert torch.equal(found, torch.zeros(2, 2, dtype=torch.float64))


def test_equal_groups_of_different_levels_are_silent_in_every_population():
    # Filtering on the mean would keep the .5s (OpenRLHF #1270): their advantage is zero.
    rewards_P_G = torch.tensor([[0.5] * 3, [0.1] * 3, [1 / 3] * 3])
    for population in ("sequences", "tokens"):
        found = reinforce_pp_baseline_advantages(rewards_P_G, mask_of([1, 2, 3] * 3), population)
        assert torch.equal(found, torch.zeros(3, 3))


def test_the_baseline_names_what_is_wrong():
    with pytest.raises(ValueError, match="mask_B_T is missing"):
        reinforce_pp_baseline_advantages(TOY_P_G, population="tokens")
    with pytest.raises(ValueError, match=r"mask_B_T has shape \(2, 3\); rewards_P_G"):
        reinforce_pp_baseline_advantages(TOY_P_G, torch.ones(2, 3))
    with pytest.raises(ValueError, match="population='batch'"):
        reinforce_pp_baseline_advantages(TOY_P_G, population="batch")
    with pytest.raises(ValueError, match="convention='trl'"):
        reinforce_pp_baseline_advantages(TOY_P_G, convention="trl")


@populations
@conventions
def test_gradient_of_the_baseline_equals_finite_differences(population, convention):
    rewards_P_G = double([[0.1, 0.75, 0.3], [0.9, -0.45, 0.2]]).requires_grad_()
    mask_B_T = mask_of([1, 3, 2, 2, 1, 4])

    def function(rewards):
        return reinforce_pp_baseline_advantages(rewards, mask_B_T, population, convention=convention)

    assert torch.autograd.gradcheck(function, rewards_P_G)


# -- GAE


def gae_by_loop(rewards, values, masks, gamma, lam):
    rows = []
    for reward, value, mask in zip(rewards.tolist(), values.tolist(), masks.tolist(), strict=True):
        places = [t for t, kept in enumerate(mask) if kept]
        deltas = [
            reward[t] + gamma * (value[after] if after is not None else 0.0) - value[t]
            for t, after in zip(places, [*places[1:], None], strict=False)
        ]
        row = [0.0] * len(mask)
        for i, t in enumerate(places):
            row[t] = sum((gamma * lam) ** (j - i) * deltas[j] for j in range(i, len(places)))
        rows.append(row)
    return double(rows)


@dtypes
def test_gae_by_hand(dtype):
    rewards_B_T = torch.tensor([[0.0, 0.0, 1.0]], dtype=dtype)
    values_B_T = torch.tensor([[0.5, 0.25, 0.75]], dtype=dtype)
    # γ = .5: δ = .125 - .5, .375 - .25, 1 - .75 = -.375, .125, .25; γλ = .25:
    # .25; .125 + .0625 = .1875; -.375 + .046875 = -.328125. Returns: A + V.
    advantages_B_T, returns_B_T = gae(rewards_B_T, values_B_T, torch.ones(1, 3), gamma=0.5, lam=0.5)
    assert torch.equal(advantages_B_T, torch.tensor([[-0.328125, 0.1875, 0.25]], dtype=dtype))
    assert torch.equal(returns_B_T, torch.tensor([[0.171875, 0.4375, 1.0]], dtype=dtype))


@quick
@given(batch=rollouts(), gamma=st.sampled_from([0.0, 0.5, 1.0]), lam=st.sampled_from([0.0, 0.75, 1.0]))
def test_gae_equals_a_slow_loop_and_masked_entries_never_matter(batch, gamma, lam):
    _, mask_B_T, rewards_B_T = batch
    values_B_T = rewards_B_T.flip(0, 1)
    expected = gae_by_loop(rewards_B_T, values_B_T, mask_B_T, gamma, lam)
    for filler in (7.0, math.nan):
        filled = (tensor.masked_fill(mask_B_T == 0, filler) for tensor in (rewards_B_T, values_B_T))
        advantages_B_T, returns_B_T = gae(*filled, mask_B_T, gamma, lam)
        torch.testing.assert_close(advantages_B_T, expected)
        torch.testing.assert_close(returns_B_T, expected + values_B_T * mask_B_T)


@quick
@given(rollouts())
def test_gae_at_lambda_zero_is_the_temporal_difference_and_at_one_the_return_less_the_value(batch):
    _, mask_B_T, rewards_B_T = batch
    values_B_T, ones_B_T = rewards_B_T.flip(0, 1), torch.ones_like(mask_B_T)
    after_B_T = torch.nn.functional.pad(values_B_T[:, 1:], (0, 1))
    advantages_B_T, _ = gae(rewards_B_T, values_B_T, ones_B_T, lam=0.0)
    torch.testing.assert_close(advantages_B_T, rewards_B_T + after_B_T - values_B_T)
    _, returns_B_T = gae(rewards_B_T, values_B_T, ones_B_T, lam=1.0)
    torch.testing.assert_close(returns_B_T, rewards_B_T.flip(1).cumsum(1).flip(1))


def test_gae_skips_a_tool_observation():
    mask_B_T = torch.tensor([[1, 0, 0, 1]])
    rewards_B_T, values_B_T = double([[0.25, 9.0, math.nan, 1.0]]), double([[0.5, math.nan, 9.0, 0.75]])
    skipped, _ = gae(rewards_B_T, values_B_T, mask_B_T, gamma=0.9)
    together, _ = gae(rewards_B_T[:, [0, 3]], values_B_T[:, [0, 3]], torch.ones(1, 2), gamma=0.9)
    assert torch.equal(skipped[:, [0, 3]], together)
    assert torch.equal(skipped[:, 1:3], torch.zeros(1, 2, dtype=torch.float64))


def test_gae_of_a_perfect_critic_is_zero():
    # V_t = Σ_{i>=t} r_i: every δ is zero.
    rewards_B_T = double([[0.5, -1.0, 2.0]])
    advantages_B_T, returns_B_T = gae(rewards_B_T, rewards_B_T.flip(1).cumsum(1).flip(1), torch.ones(1, 3))
    assert torch.equal(advantages_B_T, torch.zeros(1, 3, dtype=torch.float64))
    assert returns_B_T.tolist() == [[1.5, 1.0, 2.0]]


def test_gradient_of_gae_equals_finite_differences_and_is_zero_where_masked():
    rewards_B_T = double([[0.1, 0.7, 0.3], [0.9, -0.4, 7.0]]).requires_grad_()
    values_B_T = double([[0.3, 0.2, -0.5], [0.6, 0.8, math.nan]]).requires_grad_()
    mask_B_T = torch.tensor([[1, 0, 1], [1, 1, 0]])
    gae(rewards_B_T, values_B_T, mask_B_T)[0].square().sum().backward()
    for tensor in (rewards_B_T, values_B_T):
        assert torch.equal(tensor.grad[mask_B_T == 0], torch.zeros(2, dtype=torch.float64))
    values_B_T = values_B_T.detach().nan_to_num(7.0).requires_grad_()
    assert torch.autograd.gradcheck(lambda r, v: gae(r, v, mask_B_T, 0.9, 0.8), (rewards_B_T, values_B_T))


def test_gae_names_what_is_wrong():
    zeros_B_T, ones_B_T = torch.zeros(1, 2), torch.ones(1, 2)
    for name in ("gamma", "lam"):
        for value in (-0.1, 1.1, math.nan):
            with pytest.raises(ValueError, match=f"{name}=.*out of range"):
                gae(zeros_B_T, zeros_B_T, ones_B_T, **{name: value})
    with pytest.raises(ValueError, match="rewards_B_T is NaN or infinite"):
        gae(torch.tensor([[0.0, math.nan]]), zeros_B_T, ones_B_T)
    with pytest.raises(ValueError, match="values_B_T is NaN or infinite"):
        gae(zeros_B_T, torch.tensor([[0.0, math.inf]]), ones_B_T)
    with pytest.raises(ValueError, match="shapes differ.*values_B_T"):
        gae(zeros_B_T, torch.zeros(1, 3), ones_B_T)
    with pytest.raises(ValueError, match="mask_B_T has shape"):
        gae(torch.zeros(2), torch.zeros(2), torch.ones(2))


# -- Local and global scaling mixed


def global_weight(rewards_P_G, local_share):
    """w of each prompt whose rewards differ, in plain Python."""
    variances = [statistics.pvariance(row) for row in rewards_P_G.tolist()]
    mean = statistics.fmean(variances)
    return [(1 - local_share) * v / ((1 - local_share) * v + local_share * mean) if v else 0.0 for v in variances]


@quick
@given(rewards_P_G=reward_matrices(), local_share=st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]))
def test_mixed_advantages_equal_a_slow_loop_and_their_weight_keeps_its_range(rewards_P_G, local_share):
    weights = global_weight(rewards_P_G, local_share)
    P = len(weights)
    assert all(0 <= w <= 1 for w in weights)
    if local_share == 0.5:
        assert max(weights) <= P / (P + 1) + 1e-12
    weight_P_1 = double(weights)[:, None]
    local_P_G, global_P_G = group_advantages(rewards_P_G), reinforce_pp_baseline_advantages(rewards_P_G)
    expected = weight_P_1 * global_P_G + (1 - weight_P_1) * local_P_G
    found = mixed_advantages(rewards_P_G, local_share)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found.sum(dim=1), torch.zeros(P, dtype=torch.float64))


@quick
@given(reward_matrices())
def test_mixed_advantages_have_both_methods_for_limits(rewards_P_G):
    torch.testing.assert_close(mixed_advantages(rewards_P_G, 0.0), reinforce_pp_baseline_advantages(rewards_P_G))
    torch.testing.assert_close(mixed_advantages(rewards_P_G, 1.0), group_advantages(rewards_P_G))


@quick
@given(reward_matrices())
def test_mixed_advantages_ignore_a_shift_of_each_prompt_and_a_scale(rewards_P_G):
    expected = mixed_advantages(rewards_P_G)
    shift_P_1 = torch.arange(len(rewards_P_G), dtype=torch.float64)[:, None]
    found = mixed_advantages(8 * rewards_P_G + shift_P_1)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_mixed_weight_is_one_half_at_average_variance_and_rises_with_it():
    # Two prompts of the same variance: w = 1/2, and so the mean of both methods.
    rewards_P_G = torch.tensor([binary(4), binary(4)], dtype=torch.float64)
    both = (group_advantages(rewards_P_G) + reinforce_pp_baseline_advantages(rewards_P_G)) / 2
    torch.testing.assert_close(mixed_advantages(rewards_P_G), both)
    # w recovered from the advantage of a right rollout, one to four right of eight.
    rewards_P_G = torch.tensor([binary(right) for right in (1, 2, 3, 4)], dtype=torch.float64)
    local_P, global_P, mixed_P = (
        f(rewards_P_G)[:, 0] for f in (group_advantages, reinforce_pp_baseline_advantages, mixed_advantages)
    )
    weights = ((mixed_P - local_P) / (global_P - local_P)).tolist()
    # Variances 7, 12, 15, 16 over 64, their mean 12.5: 7 / 19.5, 12 / 24.5, 15 / 27.5, 16 / 28.5
    assert weights == pytest.approx([7 / 19.5, 12 / 24.5, 15 / 27.5, 16 / 28.5], rel=1e-6)
    assert all(low < high for low, high in pairwise(weights))


def test_mixed_weight_cannot_tell_an_easy_prompt_from_a_hard_one():
    rewards_P_G = torch.tensor([binary(1), binary(7), binary(4)], dtype=torch.float64)
    found = mixed_advantages(rewards_P_G)
    torch.testing.assert_close(found[0], -found[1].flip(0))


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("local_share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("others", [[], [binary(3)]])
def test_mixed_advantages_of_equal_groups_make_no_nan_on_the_way_back(local_share, others):
    rewards_P_G = double([[0.1] * 8, [1.0] * 8, *others]).requires_grad_()
    with torch.autograd.detect_anomaly():
        advantages_P_G = mixed_advantages(rewards_P_G, local_share)
        advantages_P_G.sum().backward()
    assert torch.equal(advantages_P_G[:2], torch.zeros(2, 8, dtype=torch.float64))
    assert rewards_P_G.grad.isfinite().all()


def test_mixed_advantages_name_what_is_wrong():
    for share in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="local_share=.*out of range"):
            mixed_advantages(TOY_P_G, share)


@pytest.mark.parametrize("local_share", [0.0, 0.5, 1.0])
def test_gradient_of_the_unscaled_and_mixed_advantages_equals_finite_differences(local_share):
    rewards_P_G = double([[0.1, 0.75, 0.3], [0.9, -0.45, 0.2]]).requires_grad_()
    greedy_rewards_P = double([0.3, 0.6]).requires_grad_()
    for function in (dr_grpo_advantages, leave_one_out_advantages, lambda r: mixed_advantages(r, local_share)):
        assert torch.autograd.gradcheck(function, rewards_P_G)
    assert torch.autograd.gradcheck(greedy_baseline_advantages, (rewards_P_G, greedy_rewards_P))


# -- All of them


def every_estimate(dtype, device="cpu"):
    """One result of every estimator, on unequal groups with holes, an empty row and a KL."""
    generator = torch.Generator().manual_seed(0)
    rewards_P_G = torch.rand(3, 4, generator=generator).to(device, dtype)
    mask_B_T = (torch.rand(12, 9, generator=generator) < 0.7).to(device)
    mask_B_T[5] = False
    kl_B_T = torch.randn(12, 9, generator=generator).to(device, dtype)
    rewards_B = rewards_P_G.flatten()
    results = [
        dr_grpo_advantages(rewards_P_G),
        leave_one_out_advantages(rewards_P_G),
        greedy_baseline_advantages(rewards_P_G, rewards_P_G[:, 0]),
        mixed_advantages(rewards_P_G),
        *gae(kl_B_T, kl_B_T.flip(0), mask_B_T),
    ]
    for population in ("tokens", "sequences"):
        for convention in ("paper", "openrlhf", "verl"):
            options = {"population": population, "convention": convention}
            results.append(global_advantages(kl_B_T, mask_B_T, **options))
            results.append(reinforce_pp_baseline_advantages(rewards_P_G, mask_B_T, **options))
            for credit in ("return_to_go", "last_token"):
                results.append(reinforce_pp_advantages(rewards_B, mask_B_T, kl_B_T, 0.1, credit, **options))
    return results


def test_single_precision_agrees_with_double():
    for single, exact in zip(every_estimate(torch.float32), every_estimate(torch.float64), strict=True):
        assert single.dtype == torch.float32 and exact.dtype == torch.float64
        torch.testing.assert_close(single.double(), exact, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_what_the_cpu_gives():
    for there, here in zip(every_estimate(torch.float64, "cuda"), every_estimate(torch.float64), strict=True):
        torch.testing.assert_close(there.cpu(), here)


def test_gradient_is_finite_where_the_square_of_the_spread_underflows():
    rewards_P_G = torch.tensor([[0.0, 1e-30]], requires_grad=True)
    found = group_advantages(rewards_P_G)
    found.sum().backward()
    assert found.tolist() == [[0.0, 0.0]] and rewards_P_G.grad.isfinite().all()


def test_eps_below_zero_is_refused():
    with pytest.raises(ValueError, match="eps=-1"):
        group_advantages(torch.rand(1, 2), eps=-1.0)

"""Ratio, clipped surrogate, aggregation, KL penalty: AGPO Eqs. 2, 3, 7, 14. Critic, preference and reward losses."""

import doctest
import math
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agpo_core import losses
from agpo_core.kl import k1, k2, k3
from agpo_core.losses import (
    aggregate,
    bradley_terry_loss,
    clip_range,
    clipped_surrogate,
    dpo_loss,
    importance_ratio,
    kl_penalty,
    value_loss,
)
from agpo_core.metrics import clip_binds

quick = settings(derandomize=True, max_examples=60)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
levels = pytest.mark.parametrize("level", ["token", "sequence", "sequence_geo"])
aggregations = pytest.mark.parametrize("mode", ["sequence_mean", "token_mean", "constant"])

# Three rows of lengths 3, 1, 2.
MASK_B_T = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0]])


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def random_logps(seed=0, shape=(3, 3)):
    generator = torch.Generator().manual_seed(seed)
    return -torch.rand(2, *shape, dtype=torch.float64, generator=generator) - 0.1


def test_examples_in_docstrings_hold():
    assert doctest.testmod(losses).failed == 0


# -- importance ratio


@dtypes
@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("token", [[2.0, 0.5, 3.0], [4.0, 1.0, 1.0]]),  # masked tokens: 1
        ("sequence", [[3.0, 3.0, 3.0], [4.0, 4.0, 4.0]]),  # 2 * .5 * 3
        ("sequence_geo", [[3 ** (1 / 3)] * 3, [4.0] * 3]),  # (2 * .5 * 3)^(1/3)
    ],
)
def test_ratio_by_hand(level, expected, dtype):
    ratios = torch.tensor([[2.0, 0.5, 3.0], [4.0, 9.0, 9.0]], dtype=dtype)
    old_B_T = torch.full((2, 3), -5.0, dtype=dtype)
    found = importance_ratio(old_B_T + ratios.log(), old_B_T, MASK_B_T[:2], level)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=dtype))


def test_product_and_geometric_mean_part_on_long_answers():
    # 200 tokens of +.002: exp(.4) = 1.492 against exp(.002) = 1.002.
    logps, old_logps, mask = torch.full((1, 200), 0.002), torch.zeros(1, 200), torch.ones(1, 200)
    assert importance_ratio(logps, old_logps, mask, "sequence")[0, 0].item() == pytest.approx(1.492, abs=5e-4)
    assert importance_ratio(logps, old_logps, mask, "sequence_geo")[0, 0].item() == pytest.approx(1.002, abs=5e-4)


@levels
def test_ratio_is_one_where_the_policies_agree_and_where_nothing_is_kept(level):
    logps_B_T, other_B_T = random_logps()
    assert torch.equal(importance_ratio(logps_B_T, logps_B_T, MASK_B_T, level), torch.ones_like(logps_B_T))
    assert torch.equal(importance_ratio(logps_B_T, other_B_T, torch.zeros(3, 3), level), torch.ones_like(logps_B_T))


def test_levels_agree_on_answers_of_one_token():
    logps_B_T, old_logps_B_T = random_logps(shape=(4, 1))
    mask_B_T = torch.ones(4, 1)
    token = importance_ratio(logps_B_T, old_logps_B_T, mask_B_T, "token")
    for level in ("sequence", "sequence_geo"):
        found = importance_ratio(logps_B_T, old_logps_B_T, mask_B_T, level)
        torch.testing.assert_close(found, token)


@levels
def test_masked_tokens_never_matter_to_the_ratio(level):
    logps_B_T, old_logps_B_T = random_logps()
    expected = importance_ratio(logps_B_T, old_logps_B_T, MASK_B_T, level)
    logps_B_T[MASK_B_T == 0] = math.nan
    found = importance_ratio(logps_B_T, old_logps_B_T, MASK_B_T, level)
    assert torch.equal(found, expected)
    # The second row has one token: it equals the row without its padding.
    alone = importance_ratio(logps_B_T[1:2, :1], old_logps_B_T[1:2, :1], MASK_B_T[1:2, :1], level)
    assert torch.equal(found[1, 0], alone[0, 0])


@levels
def test_gradient_of_the_ratio_equals_finite_differences(level):
    logps_B_T, old_logps_B_T = random_logps()
    assert torch.autograd.gradcheck(
        lambda logps: importance_ratio(logps, old_logps_B_T, MASK_B_T, level),
        logps_B_T.requires_grad_(),
    )


@levels
@pytest.mark.parametrize("shift", [-200.0, 200.0])
def test_ratio_and_gradient_stay_finite_far_from_the_old_policy(level, shift):
    logps_B_T = torch.full((1, 3), shift, requires_grad=True)
    ratio_B_T = importance_ratio(logps_B_T, torch.zeros(1, 3), torch.ones(1, 3), level)
    clipped_surrogate(ratio_B_T, torch.ones(1, 3), 0.2).sum().backward()
    assert ratio_B_T.isfinite().all() and (ratio_B_T > 0).all()
    assert logps_B_T.grad.isfinite().all()


def test_ratio_refuses_unknown_levels_and_shapes_that_differ():
    with pytest.raises(ValueError, match="level='turn'"):
        importance_ratio(torch.zeros(1, 2), torch.zeros(1, 2), torch.ones(1, 2), "turn")
    with pytest.raises(ValueError, match=r"mask_B_T.*\(1, 3\)"):
        importance_ratio(torch.zeros(1, 2), torch.zeros(1, 2), torch.ones(1, 3))


# -- clipped surrogate


@dtypes
@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.0, 2.0, 2.0),  # on-policy: A
        (1.5, 2.0, 2.4),  # min(3, 1.2 * 2): clipped
        (0.5, 2.0, 1.0),  # min(1, .8 * 2): the pessimistic side is kept
        (1.5, -2.0, -3.0),  # min(-3, -2.4)
        (0.5, -2.0, -1.6),  # min(-1, -1.6): clipped
        (1.5, 0.0, 0.0),
    ],
)
def test_surrogate_by_hand(ratio, advantage, expected, dtype):
    found = clipped_surrogate(torch.tensor([[ratio]], dtype=dtype), torch.tensor([[advantage]], dtype=dtype), 0.2)
    torch.testing.assert_close(found, torch.tensor([[expected]], dtype=dtype))


@quick
@given(st.floats(0.01, 5), st.floats(-3, 3), st.floats(0, 0.9))
def test_surrogate_equals_eq_3_and_is_never_above_the_unclipped_objective(ratio, advantage, epsilon):
    found = clipped_surrogate(double([[ratio]]), double([[advantage]]), epsilon).item()
    clipped = min(max(ratio, 1 - epsilon), 1 + epsilon)
    assert found == pytest.approx(min(ratio * advantage, clipped * advantage), abs=1e-12)
    assert found <= ratio * advantage + 1e-12


def test_a_wide_clip_reduces_to_the_unclipped_objective():
    ratio_B_T, advantages_B_T = double([[0.01, 1.0, 50.0]]), double([[1.0, -1.0, 2.0]])
    found = clipped_surrogate(ratio_B_T, advantages_B_T, math.inf)
    assert torch.equal(found, ratio_B_T * advantages_B_T)


def test_gradient_vanishes_exactly_where_the_clip_binds():
    ratio_B_T = double([[1.1, 1.5, 0.5, 1.5, 0.5]]).requires_grad_()
    advantages_B_T = double([[2.0, 2.0, 2.0, -2.0, -2.0]])
    clipped_surrogate(ratio_B_T, advantages_B_T, 0.2).sum().backward()
    assert ratio_B_T.grad.tolist() == [[2.0, 0.0, 2.0, -2.0, 0.0]]


def test_gradient_of_the_surrogate_equals_finite_differences():
    ratio_B_T = double([[1.1, 1.5, 0.5, 1.7, 0.6]]).requires_grad_()
    advantages_B_T = double([[2.0, 2.0, 2.0, -2.0, -2.0]])
    assert torch.autograd.gradcheck(lambda ratio: clipped_surrogate(ratio, advantages_B_T, 0.2), ratio_B_T)


def test_on_policy_the_loss_is_zero_and_its_gradient_is_not():
    # The advantages of a group sum to zero: the printed loss says nothing about progress.
    logps_B_T = double([[-1.0], [-2.0]]).requires_grad_()
    ratio_B_T = importance_ratio(logps_B_T, logps_B_T.detach(), torch.ones(2, 1))
    objective = aggregate(clipped_surrogate(ratio_B_T, double([[0.7], [-0.7]]), 0.2), torch.ones(2, 1))
    objective.backward()
    assert objective.item() == 0
    # At ratio 1 this is the policy gradient: A / B.
    torch.testing.assert_close(logps_B_T.grad, double([[0.35], [-0.35]]))


def test_a_rollout_s_advantage_and_radius_broadcast_to_its_tokens():
    ratio_B_T = double([[1.1, 1.5], [1.1, 1.5]])
    found = clipped_surrogate(ratio_B_T, double([[1.0], [2.0]]), double([[0.2], [0.05]]))
    torch.testing.assert_close(found, double([[1.1, 1.2], [2.1, 2.1]]))


@pytest.mark.parametrize(
    ("ratio", "advantages", "epsilon", "name"),
    [
        (torch.ones(3, 1), torch.ones(3), 0.2, r"advantages_B_T has shape \(3,\)"),
        (torch.ones(3), torch.ones(3), 0.2, r"ratio_B_T has shape \(3,\)"),
        (torch.ones(3, 2), torch.ones(1, 2), 0.2, r"advantages_B_T has shape \(1, 2\)"),
        (torch.ones(3, 2), torch.ones(3, 1), torch.full((3,), 0.2), r"epsilon has shape \(3,\)"),
        (torch.ones(3, 1), torch.ones(3, 4), 0.2, r"advantages_B_T has shape \(3, 4\)"),
    ],
)
def test_shapes_that_would_broadcast_into_a_table_are_refused_by_name(ratio, advantages, epsilon, name):
    with pytest.raises(ValueError, match=name):
        clipped_surrogate(ratio, advantages, epsilon)


def test_unmasked_values_that_are_not_finite_are_refused_by_name():
    values_B_T, mask_B_T = torch.tensor([[1.0, math.nan]]), torch.ones(1, 2)
    with pytest.raises(ValueError, match=r"old_logps_B_T is NaN or infinite at \[\[0, 1\]\]"):
        importance_ratio(torch.zeros(1, 2), values_B_T, mask_B_T)
    with pytest.raises(ValueError, match=r"(?<!old_)logps_B_T is NaN or infinite"):
        importance_ratio(values_B_T, torch.zeros(1, 2), mask_B_T)
    with pytest.raises(ValueError, match="values_B_T is NaN or infinite"):
        aggregate(values_B_T, mask_B_T)
    # What is finite, but sums to infinity, is none.
    assert importance_ratio(torch.full((1, 2), -3e38), torch.full((1, 2), -3e38), mask_B_T).eq(1).all()
    good, bad = torch.zeros(2), torch.tensor([0.0, math.inf])
    for place in range(4):
        names = ("chosen_logps_B", "rejected_logps_B", "reference_chosen_logps_B", "reference_rejected_logps_B")
        with pytest.raises(ValueError, match=f"^{names[place]} is NaN or infinite"):
            dpo_loss(*(bad if i == place else good for i in range(4)))
    with pytest.raises(ValueError, match="rejected_rewards_B is NaN or infinite"):
        bradley_terry_loss(good, bad)


def test_other_types_and_ranks_are_refused_by_name():
    row, whole = torch.zeros(2), torch.zeros(1, 2, dtype=torch.long)
    with pytest.raises(ValueError, match=r"mask_B_T has shape \(2,\)"):
        importance_ratio(row, row, row)
    with pytest.raises(ValueError, match=r"values_B_T has shape \(2,\)"):
        aggregate(row, row)
    with pytest.raises(ValueError, match=r"values_B_T has shape \(2,\)"):
        value_loss(row, row, row)
    with pytest.raises(TypeError, match="logps_B_T is torch.int64"):
        importance_ratio(whole, whole, whole)
    with pytest.raises(TypeError, match="returns_B_T is torch.int64"):
        value_loss(whole.float(), whole.float(), whole)
    with pytest.raises(TypeError, match="advantages_B_T is torch.int64"):
        clipped_surrogate(whole.float(), whole, 0.2)


@pytest.mark.parametrize(("shift", "advantage"), [(25.0, -1.0), (-25.0, 1.0)])
def test_beyond_the_bound_on_the_log_ratio_there_is_no_gradient_though_the_clip_does_not_bind(shift, advantage):
    logps_B_T = torch.full((1, 1), shift, requires_grad=True)
    ratio_B_T = importance_ratio(logps_B_T, torch.zeros(1, 1), torch.ones(1, 1))
    clipped_surrogate(ratio_B_T, torch.full((1, 1), advantage), 0.2).sum().backward()
    assert logps_B_T.grad.item() == 0
    assert not clip_binds(ratio_B_T.detach(), torch.full((1, 1), advantage), 0.2).any()


@pytest.mark.parametrize("epsilon", [-0.1, math.nan])
def test_a_radius_below_zero_is_refused_by_name(epsilon):
    with pytest.raises(ValueError, match="epsilon="):
        clip_range(epsilon)


# -- aggregation

VALUES_B_T = [[1.0, 2.0, 6.0], [5.0, 9.0, 9.0], [2.0, 4.0, 9.0]]


@dtypes
@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("sequence_mean", (3 + 5 + 3) / 3),  # row means 9/3, 5/1, 6/2
        ("token_mean", 20 / 6),  # (9 + 5 + 6) / (3 + 1 + 2)
        ("constant", 20 / (3 * 10)),
    ],
)
def test_aggregate_by_hand(mode, expected, dtype):
    found = aggregate(torch.tensor(VALUES_B_T, dtype=dtype), MASK_B_T, mode, max_length=10)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=dtype))


def test_modes_agree_on_full_rows():
    values_B_T, _ = random_logps()
    mask_B_T = torch.ones(3, 3)
    found = [
        aggregate(values_B_T, mask_B_T, mode, max_length=3) for mode in ("sequence_mean", "token_mean", "constant")
    ]
    for value in found:
        torch.testing.assert_close(value, values_B_T.mean())


@aggregations
def test_masked_values_never_matter(mode):
    values_B_T = double(VALUES_B_T)
    expected = aggregate(values_B_T, MASK_B_T, mode, max_length=10)
    values_B_T[MASK_B_T == 0] = math.nan
    values_B_T.requires_grad_()
    found = aggregate(values_B_T, MASK_B_T.bool(), mode, max_length=10)
    found.backward()
    assert torch.equal(found.detach(), expected)
    assert torch.equal(values_B_T.grad == 0, MASK_B_T == 0)


@aggregations
def test_a_masked_row_equals_the_batch_without_it(mode):
    values_B_T, mask_B_T = double(VALUES_B_T), MASK_B_T.clone()
    mask_B_T[1] = 0
    found = aggregate(values_B_T, mask_B_T, mode, max_length=10)
    torch.testing.assert_close(found, aggregate(values_B_T[[0, 2]], MASK_B_T[[0, 2]], mode, max_length=10))


@aggregations
def test_everything_masked_gives_zero_and_a_zero_gradient(mode):
    values_B_T = double(VALUES_B_T).requires_grad_()
    found = aggregate(values_B_T, torch.zeros(3, 3), mode, max_length=10)
    found.backward()
    assert found.item() == 0
    assert torch.equal(values_B_T.grad, torch.zeros(3, 3, dtype=torch.float64))


@aggregations
@quick
@given(rows=st.permutations(range(6)), cut=st.integers(1, 5))
def test_value_and_gradient_do_not_depend_on_the_split_into_micro_batches(mode, rows, cut):
    generator = torch.Generator().manual_seed(0)
    values_B_T = torch.randn(6, 4, dtype=torch.float64, generator=generator).requires_grad_()
    lengths_B = torch.tensor([4, 1, 3, 2, 4, 1])
    mask_B_T = torch.arange(4) < lengths_B[:, None]
    whole = aggregate(values_B_T, mask_B_T, mode, max_length=8)
    expected = torch.autograd.grad(whole, values_B_T)[0]

    denominator = lengths_B.sum() if mode == "token_mean" else 6
    parts = [
        aggregate(values_B_T[part], mask_B_T[part], mode, max_length=8, denominator=denominator)
        for part in (rows[:cut], rows[cut:])
    ]
    torch.testing.assert_close(sum(parts), whole)
    torch.testing.assert_close(torch.autograd.grad(sum(parts), values_B_T)[0], expected)


@aggregations
def test_gradient_of_the_aggregate_equals_finite_differences(mode):
    values_B_T = double(VALUES_B_T).requires_grad_()
    assert torch.autograd.gradcheck(lambda values: aggregate(values, MASK_B_T, mode, max_length=10), values_B_T)


@aggregations
def test_a_denominator_below_zero_is_refused_and_zero_counts_as_one(mode):
    for denominator in (-1, math.nan):
        with pytest.raises(ValueError, match=f"denominator={denominator}"):
            aggregate(double(VALUES_B_T), MASK_B_T, mode, 10, denominator)
    assert aggregate(double(VALUES_B_T), torch.zeros(3, 3), mode, 10, denominator=0).item() == 0


@pytest.mark.parametrize("max_length", [None, 0])
def test_constant_needs_the_maximal_length(max_length):
    with pytest.raises(ValueError, match="max_length=.*mode='constant'"):
        aggregate(double(VALUES_B_T), MASK_B_T, "constant", max_length)


def test_aggregate_refuses_unknown_modes_and_shapes_that_differ():
    with pytest.raises(ValueError, match="mode='sum'"):
        aggregate(double(VALUES_B_T), MASK_B_T, "sum")
    with pytest.raises(ValueError, match="values_B_T.*mask_B_T"):
        aggregate(double(VALUES_B_T), MASK_B_T[:2])


# -- KL penalty


def test_penalty_is_the_estimator_of_its_place():
    logps_B_T, reference_logps_B_T = random_logps()
    for estimator, placement, function in [
        ("k3", "loss", k3),
        ("k2", "loss", k2),
        ("k1", "reward", k1),
    ]:
        found = kl_penalty(logps_B_T, reference_logps_B_T, estimator, placement)
        assert torch.equal(found, function(logps_B_T, reference_logps_B_T))
    assert torch.equal(kl_penalty(logps_B_T, reference_logps_B_T), k3(logps_B_T, reference_logps_B_T))


def test_a_loss_has_a_gradient_in_the_policy_alone_and_a_reward_has_none():
    logps_B_T, reference_logps_B_T = (logps.clone().requires_grad_() for logps in random_logps())
    kl_penalty(logps_B_T, reference_logps_B_T, "k2").sum().backward()
    torch.testing.assert_close(logps_B_T.grad, (logps_B_T - reference_logps_B_T).detach())
    assert reference_logps_B_T.grad is None
    assert not kl_penalty(logps_B_T, reference_logps_B_T, "k1", "reward").requires_grad


def test_k1_as_a_loss_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="zero in expectation and independent of the reference"):
        kl_penalty(torch.zeros(1, 1), torch.zeros(1, 1), "k1", "loss")


@pytest.mark.parametrize(("estimator", "placement"), [("k3", "reward"), ("k2", "reward"), ("k4", "loss")])
def test_other_pairs_are_refused_with_the_known_ones(estimator, placement):
    with pytest.raises(ValueError, match=r"choose one of \('k3', 'loss'\)"):
        kl_penalty(torch.zeros(1, 1), torch.zeros(1, 1), estimator, placement)


@pytest.mark.parametrize("estimator", ["k3", "k2"])
def test_with_its_mask_the_penalty_has_a_finite_gradient_whatever_is_masked(estimator):
    # d = -90 on the masked token: exp(90) is inf in float32.
    logps_B_T, reference_B_T = torch.tensor([[-1.0, -91.0]]), torch.tensor([[-1.5, -1.0]])
    mask_B_T = torch.tensor([[1, 0]])
    logps_B_T.requires_grad_()
    penalty_B_T = kl_penalty(logps_B_T, reference_B_T, estimator, mask_B_T=mask_B_T)
    aggregate(penalty_B_T, mask_B_T).backward()
    d = torch.tensor(0.5)
    slope = d if estimator == "k2" else 1 - torch.exp(-d)
    torch.testing.assert_close(logps_B_T.grad, torch.tensor([[slope, 0.0]]))
    assert penalty_B_T[0, 1].item() == 0
    if estimator == "k3":  # without the mask the gradient is lost, though the value is right
        bare_B_T = logps_B_T.detach().requires_grad_()
        loss = aggregate(kl_penalty(bare_B_T, reference_B_T), mask_B_T)
        assert loss.item() == pytest.approx(penalty_B_T[0, 0].item())
        loss.backward()
        assert bare_B_T.grad[0, 1].isnan()


def test_the_mask_of_the_penalty_changes_no_bit_of_what_is_kept():
    logps_B_T, reference_logps_B_T = random_logps()
    bare_B_T = kl_penalty(logps_B_T, reference_logps_B_T)
    masked_B_T = kl_penalty(logps_B_T, reference_logps_B_T, mask_B_T=MASK_B_T)
    assert torch.equal(masked_B_T, bare_B_T * MASK_B_T)
    with pytest.raises(ValueError, match="mask_B_T"):
        kl_penalty(logps_B_T, reference_logps_B_T, mask_B_T=MASK_B_T[:2])
    with pytest.raises(ValueError, match=r"logps_B_T has shape \(3,\)"):
        kl_penalty(logps_B_T[0], reference_logps_B_T[0])


# -- the whole loss (Eq. 7)


@levels
def test_the_loss_equals_a_slow_loop_over_prompts_and_tokens(level):
    logps_B_T, old_logps_B_T = random_logps(1)
    reference_logps_B_T = random_logps(2)[0]
    advantages_B, epsilon, beta = double([1.2, -0.4, -0.8]), 0.1, 0.03

    total = 0.0
    for b, length in enumerate([3, 1, 2]):
        logps, old, reference = (
            tensor[b, :length].tolist() for tensor in (logps_B_T, old_logps_B_T, reference_logps_B_T)
        )
        log_ratios = [new - before for new, before in zip(logps, old, strict=True)]
        row = 0.0
        for t in range(length):
            ratio = {
                "token": math.exp(log_ratios[t]),
                "sequence": math.exp(sum(log_ratios)),
                "sequence_geo": math.exp(sum(log_ratios) / length),
            }[level]
            A = advantages_B[b].item()
            surrogate = min(ratio * A, min(max(ratio, 1 - epsilon), 1 + epsilon) * A)
            d = reference[t] - logps[t]
            row += surrogate - beta * (math.exp(d) - 1 - d)
        total -= row / length / 3

    ratio_B_T = importance_ratio(logps_B_T, old_logps_B_T, MASK_B_T, level)
    objective_B_T = clipped_surrogate(ratio_B_T, advantages_B[:, None], epsilon)
    objective_B_T = objective_B_T - beta * kl_penalty(logps_B_T, reference_logps_B_T)
    assert -aggregate(objective_B_T, MASK_B_T).item() == pytest.approx(total)


# -- value loss


@dtypes
@pytest.mark.parametrize(
    ("value", "old_value", "target", "expected"),
    [
        (1.0, 1.0, 2.0, 0.5),  # unmoved: 1² / 2
        (1.1, 1.0, 2.0, 0.405),  # within ±.2: .9² / 2
        (1.5, 1.0, 2.0, 0.32),  # max(.5², (1.2 - 2)²) / 2 = .64 / 2: clipped
        (1.5, 1.0, 0.0, 1.125),  # max(1.5², 1.2²) / 2: moved the wrong way, not clipped
        (0.5, 1.0, 0.0, 0.32),  # max(.5², .8²) / 2: clipped below
        (1.5, 1.0, 1.5, 0.045),  # right, but too fast: (1.2 - 1.5)² / 2
    ],
)
def test_value_loss_by_hand(value, old_value, target, expected, dtype):
    V, V_old, R = (torch.tensor([[number]], dtype=dtype) for number in (value, old_value, target))
    torch.testing.assert_close(value_loss(V, V_old, R), torch.tensor([[expected]], dtype=dtype))


@quick
@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(-3, 3), st.floats(0.01, 2))
def test_value_clip_can_only_raise_the_loss_and_keeps_the_formula(value, old_value, target, c):
    V, V_old, R = double([[value]]), double([[old_value]]), double([[target]])
    clipped = min(max(value, old_value - c), old_value + c)
    found = value_loss(V, V_old, R, c).item()
    assert found == pytest.approx(max((value - target) ** 2, (clipped - target) ** 2) / 2, abs=1e-12)
    assert found >= value_loss(V, V_old, R, None).item()


def test_a_wide_value_clip_and_none_reduce_to_half_the_squared_error():
    V, V_old = random_logps()
    R = random_logps(1)[0]
    expected = (V - R).square() / 2
    torch.testing.assert_close(value_loss(V, V_old, R, None), expected)
    torch.testing.assert_close(value_loss(V, V_old, R, math.inf), expected)


def test_value_loss_is_unchanged_when_all_values_shift_and_scales_with_their_square():
    V, V_old = random_logps()
    R = random_logps(1)[0]
    expected = value_loss(V, V_old, R, 0.2)
    torch.testing.assert_close(value_loss(V + 5, V_old + 5, R + 5, 0.2), expected)
    torch.testing.assert_close(value_loss(3 * V, 3 * V_old, 3 * R, 0.6), 9 * expected)


def test_gradient_of_the_value_loss_vanishes_only_where_the_clip_holds_it():
    V = double([[1.1, 1.5, 1.5, 0.5]]).requires_grad_()
    value_loss(V, torch.ones_like(V), double([[2.0, 2.0, 0.0, 0.0]])).sum().backward()
    # V - R = -.9 inside; clipped on the way to R; 1.5 on the way from it; clipped on the way to R.
    torch.testing.assert_close(V.grad, double([[-0.9, 0.0, 1.5, 0.0]]))


def test_gradient_of_the_value_loss_equals_finite_differences_and_flows_into_the_values_alone():
    V = double([[1.1, 1.5, 1.5, 0.5]]).requires_grad_()
    V_old, R = double([[1.0] * 4]), double([[2.0, 2.0, 0.0, 0.0]])
    assert torch.autograd.gradcheck(lambda values: value_loss(values, V_old, R), V)
    V_old.requires_grad_(), R.requires_grad_()
    value_loss(V, V_old, R).sum().backward()
    assert V_old.grad is None and R.grad is None
    # A critic that is its own old one has the full gradient, not zero.
    same = double([[1.0]]).requires_grad_()
    value_loss(same, same, double([[3.0]])).sum().backward()
    assert same.grad.item() == -2


def test_aggregate_removes_the_padding_of_the_value_loss():
    V, V_old = random_logps()
    R = random_logps(1)[0]
    V.requires_grad_()
    whole = aggregate(value_loss(V, V_old, R), MASK_B_T, "token_mean")
    kept = value_loss(V.detach(), V_old, R)[MASK_B_T.bool()]
    torch.testing.assert_close(whole.detach(), kept.mean())
    whole.backward()
    assert (V.grad[MASK_B_T == 0] == 0).all()


def test_value_loss_refuses_a_clip_of_zero_and_shapes_that_differ():
    for clip in (0.0, -0.1, math.nan):
        with pytest.raises(ValueError, match=f"clip_range={clip} must be above 0"):
            value_loss(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2), clip)
    with pytest.raises(ValueError, match=r"returns_B_T.*\(1, 3\)"):
        value_loss(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 3))


# -- preferences: DPO, and Bradley and Terry's model


@dtypes
def test_dpo_loss_by_hand(dtype):
    chosen, rejected, reference_chosen, reference_rejected = (
        torch.tensor(values, dtype=dtype) for values in ([-2.0, -5.0], [-4.0, -1.0], [-3.0, -3.0], [-3.0, -3.0])
    )
    # Margins (1 - -1) and (-2 - 2), times .5: log(1 + e^-1), log(1 + e^2)
    expected = torch.tensor([math.log(1 + math.exp(-1)), math.log(1 + math.exp(2))], dtype=dtype)
    torch.testing.assert_close(dpo_loss(chosen, rejected, reference_chosen, reference_rejected, beta=0.5), expected)


@dtypes
def test_bradley_terry_loss_by_hand(dtype):
    found = bradley_terry_loss(torch.tensor([3.0, 1.0], dtype=dtype), torch.tensor([1.0, 1.0], dtype=dtype))
    torch.testing.assert_close(found, torch.tensor([math.log(1 + math.exp(-2)), math.log(2)], dtype=dtype))


def test_dpo_is_bradley_terry_on_the_implicit_rewards():
    chosen, rejected, reference_chosen, reference_rejected = random_logps(shape=(2, 5)).flatten(0, 1)
    found = dpo_loss(chosen, rejected, reference_chosen, reference_rejected, beta=0.3)
    rewards = 0.3 * (chosen - reference_chosen), 0.3 * (rejected - reference_rejected)
    torch.testing.assert_close(found, bradley_terry_loss(*rewards))


@quick
@given(st.floats(-50, 50), st.floats(-50, 50), st.floats(-50, 50))
def test_preference_losses_see_the_margin_alone(chosen, rejected, shift):
    loss = bradley_terry_loss(double([chosen]), double([rejected])).item()
    assert loss == pytest.approx(max(rejected - chosen, 0) + math.log1p(math.exp(-abs(chosen - rejected))))
    assert bradley_terry_loss(double([chosen + shift]), double([rejected + shift])).item() == pytest.approx(loss)
    # P(chosen) + P(rejected) = 1
    other = bradley_terry_loss(double([rejected]), double([chosen])).item()
    assert math.exp(-loss) + math.exp(-other) == pytest.approx(1)
    # The reference's own margin cancels that of the policy.
    moved = dpo_loss(double([chosen + shift]), double([rejected]), double([shift]), double([0.0]), beta=1.0).item()
    assert moved == pytest.approx(loss)


@dtypes
def test_preference_losses_are_linear_and_finite_at_large_margins(dtype):
    # A naive log(sigmoid(-1000)) is -inf; its gradient is NaN.
    rewards = torch.tensor([-1000.0, 1000.0], dtype=dtype).requires_grad_()
    loss_B = bradley_terry_loss(rewards, torch.zeros(2, dtype=dtype))
    loss_B.sum().backward()
    assert loss_B.tolist() == [1000.0, 0.0]
    assert rewards.grad.tolist() == [-1.0, 0.0]
    same = torch.zeros(2, dtype=dtype)
    assert dpo_loss(rewards.detach(), same, same, same, beta=1.0).tolist() == [1000.0, 0.0]


def test_gradients_of_the_preference_losses_equal_finite_differences():
    chosen, rejected, reference_chosen, reference_rejected = random_logps(shape=(2, 3)).flatten(0, 1)
    chosen.requires_grad_(), rejected.requires_grad_()
    assert torch.autograd.gradcheck(bradley_terry_loss, (chosen, rejected))
    assert torch.autograd.gradcheck(
        lambda c, r: dpo_loss(c, r, reference_chosen, reference_rejected), (chosen, rejected)
    )
    reference_chosen.requires_grad_(), reference_rejected.requires_grad_()
    dpo_loss(chosen, rejected, reference_chosen, reference_rejected).sum().backward()
    assert reference_chosen.grad is None and reference_rejected.grad is None
    torch.testing.assert_close(chosen.grad, -rejected.grad)


def test_preference_losses_refuse_beta_zero_and_shapes_that_differ():
    pair = torch.zeros(2)
    for beta in (0.0, -0.1, math.nan):
        with pytest.raises(ValueError, match=f"beta={beta} must be above 0"):
            dpo_loss(pair, pair, pair, pair, beta)
    # Broadcasting would compare every chosen answer with every rejected one.
    with pytest.raises(ValueError, match=r"rejected_rewards_B.*\(2, 1\)"):
        bradley_terry_loss(pair, pair[:, None])
    with pytest.raises(ValueError, match=r"reference_rejected_logps_B.*\(3,\)"):
        dpo_loss(pair, pair, pair, torch.zeros(3))


class TrainerStub(SimpleNamespace):
    """What TRL's losses read of their trainer: evaluation mode, one rank."""

    def __init__(self, **settings):
        one_rank = SimpleNamespace(device="cpu", gather=lambda x: x, gather_for_metrics=lambda x: x)
        super().__init__(
            model=SimpleNamespace(training=False),
            accelerator=one_rank,
            _metrics=defaultdict(lambda: defaultdict(list)),
            _total_train_tokens=0,
            **settings,
        )


@pytest.fixture(scope="module")
def trl():
    trl = pytest.importorskip("trl", reason="compares with TRL: needs the package trl")
    assert trl.RewardTrainer and trl.DPOTrainer  # loaded when first named, which takes seconds
    return trl


def test_bradley_terry_loss_agrees_with_trl(trl):
    chosen_B, rejected_B = 3 * random_logps(shape=(6,))
    trainer = TrainerStub(args=SimpleNamespace(center_rewards_coefficient=None))
    scores = SimpleNamespace(logits=torch.cat([chosen_B, rejected_B])[:, None])
    expected = trl.RewardTrainer.compute_loss(trainer, lambda **_: scores, {"input_ids": None})
    torch.testing.assert_close(bradley_terry_loss(chosen_B, rejected_B).mean(), expected)


def test_dpo_loss_agrees_with_trl(trl):
    pairs, tokens = 4, 3
    logps_2B_T, reference_2B_T = random_logps(shape=(2 * pairs, tokens))
    zeros, mask = torch.zeros(2 * pairs, tokens), torch.ones(2 * pairs, tokens + 1, dtype=torch.long)
    outputs = SimpleNamespace(log_probs=logps_2B_T, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool())
    reference_chosen_B, reference_rejected_B = reference_2B_T.sum(dim=1).chunk(2)
    trainer = TrainerStub(
        aux_loss_enabled=False,
        ld_alpha=None,
        precompute_ref_logps=True,
        f_divergence_type="reverse_kl",
        loss_types=["sigmoid"],
        loss_weights=[1.0],
        label_smoothing=0.0,
        use_weighting=False,
        beta=0.4,
    )
    inputs = {
        "input_ids": mask,
        "attention_mask": mask,
        "completion_mask": mask,
        "ref_chosen_logps": reference_chosen_B,
        "ref_rejected_logps": reference_rejected_B,
    }
    expected = trl.DPOTrainer._compute_loss(trainer, lambda **_: outputs, inputs, return_outputs=False)
    chosen_B, rejected_B = logps_2B_T.sum(dim=1).chunk(2)
    found = dpo_loss(chosen_B, rejected_B, reference_chosen_B, reference_rejected_B, beta=0.4)
    torch.testing.assert_close(found.mean(), expected)


def test_preference_losses_round_to_zero_at_a_large_margin():
    assert bradley_terry_loss(torch.tensor([200.0]), torch.zeros(1)).item() == 0  # exp(-200) < 1.4e-45

"""KL estimators, the exact KL, and the step drift of AGPO Eq. 6."""

import doctest
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agpo_core import kl
from agpo_core.kl import categorical_kl, k1, k2, k3, step_drift

quick = settings(derandomize=True, max_examples=60)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
differences = st.floats(-20, 20)


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def random_policies(seed=0, vocabulary=5):
    """Logits of a policy, which carry a gradient, and of a reference."""
    generator = torch.Generator().manual_seed(seed)
    logits_2_V = torch.randn(2, vocabulary, dtype=torch.float64, generator=generator)
    return logits_2_V[0].requires_grad_(), logits_2_V[1]


def kl_by_loop(logits, reference_logits):
    p, q = logits.softmax(-1).tolist(), reference_logits.softmax(-1).tolist()
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def test_examples_in_docstrings_hold():
    assert doctest.testmod(kl).failed == 0


# -- k1, k2, k3


@dtypes
def test_estimators_by_hand(dtype):
    logps = torch.tensor([-1.0, -6.0], dtype=dtype)
    reference_logps = torch.tensor([-3.0, -1.0], dtype=dtype)  # d = 2, -5
    for estimator, expected in [
        (k1, [2.0, -5.0]),
        (k2, [2.0, 12.5]),
        (k3, [math.exp(-2) - 1 + 2, math.exp(5) - 1 - 5]),  # 1.135, 142.4
    ]:
        found = estimator(logps, reference_logps)
        torch.testing.assert_close(found, torch.tensor(expected, dtype=dtype))


def test_gradients_where_the_reference_finds_the_token_likelier():
    # d = -5: d(k1) = 1, d(k2) = d = -5, d(k3) = 1 - exp(-d) = 1 - 148.41
    for estimator, expected in [(k1, 1.0), (k2, -5.0), (k3, 1 - math.exp(5))]:
        logps = double([-6.0]).requires_grad_()
        estimator(logps, double([-1.0])).sum().backward()
        assert logps.grad.item() == pytest.approx(expected)


@pytest.mark.parametrize("estimator", [k1, k2, k3])
def test_gradients_equal_finite_differences(estimator):
    logps = double([[-0.5, -2.0], [-3.0, -0.1]]).requires_grad_()
    reference_logps = double([[-1.0, -1.5], [-3.0, -0.7]]).requires_grad_()
    assert torch.autograd.gradcheck(estimator, (logps, reference_logps))


def test_k3_overflows_where_k2_does_not():
    logps, reference_logps = torch.tensor([-91.0]), torch.tensor([-1.0])  # d = -90, float32
    assert k3(logps, reference_logps).item() == math.inf
    assert k2(logps, reference_logps).item() == 4050  # 90² / 2
    assert k1(logps, reference_logps).item() == -90
    # float32 holds exp(88.72) = 3.4e38; float64 holds exp(709).
    zero = torch.zeros(2)
    assert k3(torch.tensor([-88.0, -89.0]), zero).isfinite().tolist() == [True, False]
    assert k3(logps.double(), reference_logps.double()).item() == pytest.approx(math.exp(90))


def test_gradient_of_k3_overflows_with_its_value_and_that_of_k2_does_not():
    # d = -90, float32: d(k2) = d, d(k3) = 1 - exp(90). An optimiser that meets the second writes NaN.
    for estimator, expected in [(k1, 1.0), (k2, -90.0), (k3, -math.inf)]:
        logps = torch.tensor([-91.0], requires_grad=True)
        estimator(logps, torch.tensor([-1.0])).sum().backward()
        assert logps.grad.item() == expected


def test_k3_keeps_its_digits_where_the_policies_are_close():
    # d = 1e-4: d²/2 - d³/6 = 4.99983e-9, which exp(-d) - 1 + d loses in float32 (it rounds to 0 or 6e-8).
    d = 1.0e-4
    found = k3(torch.tensor([d], dtype=torch.float64), double([0.0])).item()
    assert found == pytest.approx(d**2 / 2 - d**3 / 6, rel=1e-6)


@quick
@given(differences)
def test_k2_and_k3_are_never_negative_and_zero_where_the_policies_agree(d):
    logps, reference_logps = double([d]), double([0.0])
    assert k2(logps, reference_logps).item() >= 0
    assert k3(logps, reference_logps).item() >= 0
    for estimator in (k1, k2, k3):
        assert estimator(logps, logps).item() == 0


def test_k1_and_k3_have_the_reverse_kl_for_expectation():
    logits, reference_logits = random_policies()
    logps, reference_logps = logits.log_softmax(-1), reference_logits.log_softmax(-1)
    exact = kl_by_loop(logits, reference_logits)
    for estimator in (k1, k3):
        expectation = (logps.exp() * estimator(logps, reference_logps)).sum().item()
        assert expectation == pytest.approx(exact)
    assert (logps.exp() * k2(logps, reference_logps)).sum().item() != pytest.approx(exact, rel=0.01)


def test_value_of_k3_is_not_the_forward_kl():
    # The commentary on REINFORCE++ says that it is; that is what its gradient as a loss belongs to.
    logits, reference_logits = random_policies()
    logps, reference_logps = logits.log_softmax(-1), reference_logits.log_softmax(-1)
    value = (logps.exp() * k3(logps, reference_logps)).sum().item()
    assert value != pytest.approx(kl_by_loop(reference_logits, logits), rel=0.05)


def test_k1_turns_its_sign_when_the_samples_come_from_the_reference():
    # E over π of d is +KL(π‖π_ref); E over π_ref of d is -KL(π_ref‖π).
    logits, reference_logits = random_policies()
    logps, reference_logps = logits.log_softmax(-1), reference_logits.log_softmax(-1)
    found = (reference_logps.exp() * k1(logps, reference_logps)).sum().item()
    assert found == pytest.approx(-kl_by_loop(reference_logits, logits))


def expected_loss_gradient(estimator, logits, reference_logits):
    """Gradient of E[estimator] when the sampling itself has no gradient, as in a loss."""
    logps = logits.log_softmax(-1)
    loss = (logps.exp().detach() * estimator(logps, reference_logits.log_softmax(-1))).sum()
    return torch.autograd.grad(loss, logits)[0]


def test_gradient_of_k2_as_a_loss_is_that_of_the_reverse_kl():
    logits, reference_logits = random_policies()
    exact = torch.autograd.grad(categorical_kl(logits, reference_logits), logits)[0]
    found = expected_loss_gradient(k2, logits, reference_logits)
    torch.testing.assert_close(found, exact)


def test_gradient_of_k3_as_a_loss_is_that_of_the_forward_kl():
    logits, reference_logits = random_policies()
    exact = torch.autograd.grad(categorical_kl(reference_logits, logits), logits)[0]
    found = expected_loss_gradient(k3, logits, reference_logits)
    torch.testing.assert_close(found, exact)


def test_gradient_of_k1_as_a_loss_is_zero_and_does_not_see_the_reference():
    logits, reference_logits = random_policies()
    found = expected_loss_gradient(k1, logits, reference_logits)
    torch.testing.assert_close(found, torch.zeros_like(found))


def test_k1_in_the_reward_has_the_gradient_of_the_reverse_kl():
    # Policy gradient of the reward -k1: E[k1 ∇ log π], k1 without a gradient.
    logits, reference_logits = random_policies()
    logps = logits.log_softmax(-1)
    penalty = k1(logps, reference_logits.log_softmax(-1)).detach()
    found = torch.autograd.grad((logps.exp().detach() * penalty * logps).sum(), logits)[0]
    exact = torch.autograd.grad(categorical_kl(logits, reference_logits), logits)[0]
    torch.testing.assert_close(found, exact)


def test_shapes_that_differ_are_refused_by_name():
    with pytest.raises(ValueError, match="logps.*reference_logps"):
        k1(torch.zeros(2, 3), torch.zeros(2, 1))


# -- exact KL


@dtypes
def test_categorical_kl_by_hand(dtype):
    logits = torch.tensor([3.0, 1.0], dtype=dtype).log()
    # .75 log(.75 / .5) + .25 log(.25 / .5)
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    found = categorical_kl(logits, torch.zeros(2, dtype=dtype)).item()
    assert found == pytest.approx(expected, rel=1e-5)


@quick
@given(st.integers(0, 10_000))
def test_categorical_kl_equals_a_slow_loop_and_ignores_constants(seed):
    logits, reference_logits = random_policies(seed)
    expected = kl_by_loop(logits, reference_logits)
    assert categorical_kl(logits, reference_logits).item() == pytest.approx(expected)
    assert categorical_kl(logits + 7, reference_logits - 2).item() == pytest.approx(expected)
    assert categorical_kl(logits, logits).item() == 0


def test_categorical_kl_keeps_the_leading_dimensions():
    logits, reference_logits = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    assert categorical_kl(logits, reference_logits).shape == (3, 4)


def test_tokens_of_probability_zero_add_nothing():
    logits = double([0.0, 1.0, -math.inf]).requires_grad_()
    reference_logits = double([0.5, 0.0, 2.0])
    found = categorical_kl(logits, reference_logits)
    p = logits[:2].detach().softmax(-1)
    expected = (p * (p.log() - reference_logits.log_softmax(-1)[:2])).sum()
    torch.testing.assert_close(found.detach(), expected)
    found.backward()
    assert logits.grad.isfinite().all()
    assert categorical_kl(reference_logits, logits.detach()).item() == math.inf


def test_gradient_of_categorical_kl_equals_finite_differences():
    logits, reference_logits = random_policies()
    assert torch.autograd.gradcheck(categorical_kl, (logits, reference_logits.requires_grad_()))


# -- step drift (Eq. 6)

OLD_B_T = [[-1.0, -2.0, -3.0], [-0.5, -4.0, 0.0]]
NEW_B_T = [[-1.5, -1.0, -3.5], [-1.5, -9.0, 0.0]]
MASK_B_T = [[1, 1, 1], [1, 0, 0]]


@dtypes
def test_step_drift_by_hand(dtype):
    old_B_T, new_B_T = torch.tensor(OLD_B_T, dtype=dtype), torch.tensor(NEW_B_T, dtype=dtype)
    # Kept differences .5, -1, .5, 1: their mean is 1 / 4.
    drift = step_drift(old_B_T, new_B_T, torch.tensor(MASK_B_T))
    torch.testing.assert_close(drift, torch.tensor(0.25, dtype=dtype))


def test_step_drift_weights_tokens_and_not_sequences():
    old_B_T, new_B_T = double(OLD_B_T), double(NEW_B_T)
    kept = [
        (old, new)
        for olds, news, marks in zip(OLD_B_T, NEW_B_T, MASK_B_T, strict=True)
        for old, new, mark in zip(olds, news, marks, strict=True)
        if mark
    ]
    for estimator, term in [("k1", lambda d: d), ("k3", lambda d: math.exp(-d) - 1 + d)]:
        expected = sum(term(old - new) for old, new in kept) / len(kept)
        drift = step_drift(old_B_T, new_B_T, torch.tensor(MASK_B_T), estimator)
        assert drift.item() == pytest.approx(expected)


def test_step_drift_can_be_negative_as_k1_and_never_as_k3():
    old_B_T, new_B_T, mask_B_T = double([[-2.0]]), double([[-1.0]]), torch.ones(1, 1)
    assert step_drift(old_B_T, new_B_T, mask_B_T).item() == -1
    assert step_drift(old_B_T, new_B_T, mask_B_T, "k3").item() == pytest.approx(math.e - 2)


def test_step_drift_estimates_the_kl_from_the_old_policy_to_the_new():
    new_logits, old_logits = random_policies()
    old_logps = old_logits.log_softmax(-1)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.multinomial(old_logps.exp(), 200_000, replacement=True, generator=generator)
    new_logps = new_logits.log_softmax(-1)
    exact = kl_by_loop(old_logits, new_logits)
    for estimator in ("k1", "k3"):
        drift = step_drift(old_logps[tokens][None], new_logps[tokens][None], torch.ones(1, 200_000), estimator)
        # Standard error below 1.5 / sqrt(200 000) = .0034
        assert drift.item() == pytest.approx(exact, abs=0.015)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_masked_tokens_never_matter_to_the_drift(estimator):
    old_B_T, new_B_T, mask_B_T = double(OLD_B_T), double(NEW_B_T), torch.tensor(MASK_B_T).bool()
    subset = (old_B_T[mask_B_T][None], new_B_T[mask_B_T][None], torch.ones(1, 4))
    new_B_T[~mask_B_T] = math.nan
    torch.testing.assert_close(step_drift(old_B_T, new_B_T, mask_B_T, estimator), step_drift(*subset, estimator))


def test_drifts_of_parts_add_up_to_that_of_the_whole():
    old_B_T, new_B_T, mask_B_T = double(OLD_B_T), double(NEW_B_T), torch.tensor(MASK_B_T)
    parts = [step_drift(old_B_T[b : b + 1], new_B_T[b : b + 1], mask_B_T[b : b + 1], denominator=4) for b in range(2)]
    torch.testing.assert_close(sum(parts), step_drift(old_B_T, new_B_T, mask_B_T))


def test_drift_is_zero_when_nothing_moved_or_nothing_is_kept():
    old_B_T = double(OLD_B_T)
    assert step_drift(old_B_T, old_B_T, torch.tensor(MASK_B_T)).item() == 0
    assert step_drift(old_B_T, double(NEW_B_T), torch.zeros(2, 3)).item() == 0


def test_drift_carries_no_gradient():
    drift = step_drift(double(OLD_B_T), double(NEW_B_T).requires_grad_(), torch.tensor(MASK_B_T))
    assert not drift.requires_grad


def test_drift_refuses_other_estimators_and_shapes():
    with pytest.raises(ValueError, match="estimator='k2'"):
        step_drift(torch.zeros(1, 2), torch.zeros(1, 2), torch.ones(1, 2), "k2")
    with pytest.raises(ValueError, match="mask_B_T"):
        step_drift(torch.zeros(1, 2), torch.zeros(1, 2), torch.ones(1, 3))


def test_values_that_are_no_log_probabilities_are_refused_by_name():
    ones = torch.ones(1, 2)
    with pytest.raises(ValueError, match=r"new_logps_B_T is NaN or infinite at \[\[0, 1\]\]"):
        step_drift(ones, torch.tensor([[0.0, math.nan]]), ones)
    with pytest.raises(ValueError, match="old_logps_B_T is NaN or infinite"):
        step_drift(ones * math.inf, ones, ones)
    with pytest.raises(ValueError, match=r"mask_B_T has shape \(2,\)"):
        step_drift(ones[0], ones[0], ones[0])
    for estimator in (k1, k2, k3):
        with pytest.raises(TypeError, match="reference_logps is torch.int64"):
            estimator(ones, ones.long())
    with pytest.raises(TypeError, match="logits is torch.int64"):
        categorical_kl(ones.long(), ones)


def test_drift_refuses_a_denominator_below_zero_and_takes_zero_for_nothing_kept():
    ones = torch.ones(1, 2)
    for denominator in (-1, math.nan):
        with pytest.raises(ValueError, match="denominator="):
            step_drift(ones, ones, ones, denominator=denominator)
    assert step_drift(ones, 2 * ones, torch.zeros(1, 2), denominator=0).item() == 0

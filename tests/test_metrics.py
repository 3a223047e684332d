"""pass@k, clip saturation and the variance of the gradient norm."""

import doctest
import itertools
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agpo_core import metrics
from agpo_core.losses import clipped_surrogate
from agpo_core.metrics import clip_binds, clip_saturation, gradient_norm_variance, pass_at_k

quick = settings(deadline=None, derandomize=True, max_examples=60)


def test_examples_in_docstrings_hold():
    assert doctest.testmod(metrics).failed == 0


# -- pass@k


def test_pass_at_k_by_hand():
    correct_P_N = torch.tensor([[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0] * 5, [1] * 5])
    # k = 2 of 5: 1 - C(4, 2) / 10 = .4; 1 - C(3, 2) / 10 = .7; never; always.
    assert pass_at_k(correct_P_N, 2).tolist() == pytest.approx([0.4, 0.7, 0.0, 1.0])


@quick
@given(st.lists(st.booleans(), min_size=1, max_size=7), st.data())
def test_pass_at_k_is_the_mean_over_all_choices_of_k_samples(correct, data):
    k = data.draw(st.integers(1, len(correct)))
    choices = list(itertools.combinations(correct, k))
    expected = sum(any(choice) for choice in choices) / len(choices)
    assert pass_at_k(torch.tensor([correct]), k).item() == pytest.approx(expected)


def test_pass_at_1_is_the_accuracy_and_pass_at_N_asks_for_one_right():
    correct_P_N = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]])
    torch.testing.assert_close(pass_at_k(correct_P_N, 1), correct_P_N.double().mean(dim=1))
    assert pass_at_k(correct_P_N, 4).tolist() == [1.0, 0.0, 1.0]


def test_pass_at_k_holds_for_many_samples():
    correct_P_N = torch.zeros(1, 1000)
    correct_P_N[0, 0] = 1
    assert pass_at_k(correct_P_N, 256).item() == pytest.approx(0.256)  # k / N


def test_pass_at_k_refuses_graded_rewards_and_too_large_a_k():
    with pytest.raises(ValueError, match="correct_P_N must hold 0 or 1"):
        pass_at_k(torch.tensor([[0.5, 1.0]]), 1)
    for k in (0, 3):
        with pytest.raises(ValueError, match=f"k={k} must lie between 1 and the 2 samples"):
            pass_at_k(torch.tensor([[0, 1]]), k)


# -- clip saturation


def test_clip_binds_by_hand():
    ratio_B_T = torch.tensor([[1.5, 1.1, 0.5, 1.5, 0.9, 0.5, 1.5]])
    advantages_B_T = torch.tensor([[1.0, 1.0, 1.0, -1.0, -1.0, -1.0, 0.0]])
    found = clip_binds(ratio_B_T, advantages_B_T, 0.2)
    assert found.tolist() == [[True, False, False, False, False, True, False]]
    # ε_high = .6 frees the first; ε_low still binds the sixth.
    found = clip_binds(ratio_B_T, advantages_B_T, 0.2, 0.6)
    assert found.tolist() == [[False, False, False, False, False, True, False]]


@quick
@given(
    ratio=st.floats(0.01, 3),
    advantage=st.sampled_from([-2.0, 2.0]),
    epsilon=st.floats(0.01, 0.9),
)
def test_clip_binds_where_the_surrogate_has_no_gradient(ratio, advantage, epsilon):
    ratio_B_T = torch.tensor([[ratio]], dtype=torch.float64, requires_grad=True)
    advantages_B_T = torch.tensor([[advantage]], dtype=torch.float64)
    clipped_surrogate(ratio_B_T, advantages_B_T, epsilon).sum().backward()
    binds = clip_binds(ratio_B_T.detach(), advantages_B_T, epsilon).item()
    assert binds == (ratio_B_T.grad.item() == 0)


def test_clip_never_binds_at_ratio_one():
    # One gradient step a rollout batch: the radius is inert, however small.
    advantages_B_T = torch.tensor([[1.0, -1.0]])
    assert not clip_binds(torch.ones(1, 2), advantages_B_T, 0.0).any()


def test_clip_binds_takes_one_radius_a_rollout():
    ratio_B_T, epsilon_B_1 = torch.full((2, 3), 1.3), torch.tensor([[0.2], [0.4]])
    found = clip_binds(ratio_B_T, torch.ones(2, 1), epsilon_B_1)
    assert found.tolist() == [[True] * 3, [False] * 3]


def test_clip_saturation_keeps_its_three_meanings_apart():
    found = clip_saturation(
        at_bound_U=[True, False, False, False],
        clip_fraction_U=[0.0, 0.1, 0.4, 0.0],
        tokens_U=[100, 300, 50, 50],
    )
    assert found == pytest.approx(
        {
            "updates_at_bound": 1 / 4,
            "tokens_clipped": (0.1 * 300 + 0.4 * 50) / 500,
            "updates_clipped": 2 / 4,
        }
    )


def test_clip_saturation_needs_one_value_an_update():
    with pytest.raises(ValueError, match="at_bound_U, clip_fraction_U and tokens_U"):
        clip_saturation([True], [0.0, 0.1], [10, 10])
    with pytest.raises(ValueError, match="one update"):
        clip_saturation([], [], [])


# -- variance of the gradient norm


def test_gradient_norm_variance_averages_over_full_windows():
    norms = [1.0, 3.0, 2.0, 6.0, 9.0]
    # Windows of 2: variances 2 and 8; the last norm fills no window.
    assert gradient_norm_variance(norms, window=2) == pytest.approx(5.0)


@quick
@given(st.lists(st.floats(0, 100), min_size=2, max_size=20))
def test_a_run_shorter_than_a_window_is_one_window(norms):
    expected = statistics.variance(norms)
    assert gradient_norm_variance(norms) == pytest.approx(expected, abs=1e-9)


def test_windows_do_not_see_a_slow_trend():
    steps = torch.arange(1000.0)
    assert gradient_norm_variance(steps, window=10) < gradient_norm_variance(steps) / 1000


def test_reference_run_has_variance_one():
    reference = torch.tensor([1.0, 2.0, 4.0])
    assert gradient_norm_variance(reference, reference_norms_U=reference) == 1
    # Norms doubled: variance times four.
    assert gradient_norm_variance(reference * 2, reference_norms_U=reference) == pytest.approx(4)


@pytest.mark.parametrize(("norms", "window"), [([1.0], 1000), ([1.0, 2.0], 1), ([1.0, float("nan")], 1000)])
def test_gradient_norm_variance_needs_two_finite_norms(norms, window):
    with pytest.raises(ValueError, match="norms_U has"):
        gradient_norm_variance(norms, window)


def test_a_constant_reference_is_refused():
    with pytest.raises(ValueError, match="reference_norms_U are all equal"):
        gradient_norm_variance([1.0, 2.0], reference_norms_U=[1.0, 1.0])

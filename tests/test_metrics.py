"""pass@k and related scores, clip saturation, gradient noise, and intervals."""

import doctest
import itertools
import math
import statistics
from collections import Counter
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agpo_core import metrics
from agpo_core.losses import clipped_surrogate
from agpo_core.metrics import (
    average_at_k,
    bootstrap_interval,
    clip_binds,
    clip_saturation,
    gradient_norm_variance,
    majority_at_k,
    pass_at_k,
)

quick = settings(derandomize=True, max_examples=60)


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def test_examples_in_docstrings_hold():
    assert doctest.testmod(metrics).failed == 0


# -- pass@k


def test_pass_at_k_by_hand():
    # k = 2 of 5: 1 - C(4, 2) / 10 = .4; 1 - C(3, 2) / 10 = .7; never; always.
    assert pass_at_k(5, torch.tensor([1, 2, 0, 5]), 2).tolist() == pytest.approx([0.4, 0.7, 0.0, 1.0])


@quick
@given(st.lists(st.booleans(), min_size=1, max_size=7), st.data())
def test_pass_at_k_is_the_mean_over_all_choices_of_k_samples(correct, data):
    k = data.draw(st.integers(1, len(correct)))
    choices = list(itertools.combinations(correct, k))
    expected = sum(any(choice) for choice in choices) / len(choices)
    assert pass_at_k(len(correct), sum(correct), k).item() == pytest.approx(expected)


def test_pass_at_1_is_the_accuracy_and_pass_at_n_asks_for_one_right():
    correct_P_N = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]])
    c_P = correct_P_N.sum(dim=1)
    torch.testing.assert_close(pass_at_k(4, c_P, 1), average_at_k(correct_P_N))
    assert pass_at_k(4, c_P, 4).tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("k", [1, 3, 32, 512, 1000, 1024])
def test_pass_at_k_equals_exact_fractions_for_many_samples(k):
    c = torch.arange(0, 1025, 16)
    exact = [float(1 - Fraction(math.comb(1024 - wrong, k), math.comb(1024, k))) for wrong in c.tolist()]
    torch.testing.assert_close(pass_at_k(1024, c, k), double(exact), atol=1e-11, rtol=0)


def test_pass_at_k_is_exactly_zero_or_one_where_chance_has_no_part():
    n = torch.tensor([1, 7, 1024])
    assert pass_at_k(n, 0, 1).tolist() == [0.0, 0.0, 0.0]
    assert not pass_at_k(n, 0, 1).signbit().any()
    assert pass_at_k(n, n, 1).tolist() == [1.0, 1.0, 1.0]
    assert pass_at_k(8, 5, torch.tensor([4, 8])).tolist() == [1.0, 1.0]  # three wrong ones: four hold a right one


def test_pass_at_k_rises_with_c_and_k_and_broadcasts():
    table = pass_at_k(16, torch.arange(17)[:, None], torch.arange(1, 17))
    assert table.shape == (17, 16) and table.dtype == torch.float64
    assert (table.diff(dim=0) >= -1e-13).all() and (table.diff(dim=1) >= -1e-13).all()
    assert pass_at_k(4, 1, 2).shape == ()
    for dtype in (torch.int32, torch.uint8):
        assert torch.equal(pass_at_k(16, torch.arange(17, dtype=dtype), 4), table[:, 3])


def test_pass_at_k_is_unbiased_where_the_plug_in_is_not():
    # n = 4 samples that are right with p = .3: E over c of pass@2 is 1 - .7² = .51.
    p, n, k = 0.3, 4, 2
    c = torch.arange(n + 1)
    weight = double([math.comb(n, j) * p**j * (1 - p) ** (n - j) for j in range(n + 1)])
    assert (weight @ pass_at_k(n, c, k)).item() == pytest.approx(0.51)
    assert (weight @ (1 - (1 - c.double() / n) ** k)).item() == pytest.approx(0.51 - 0.21 / 4)  # - p (1 - p) / n


@pytest.mark.parametrize(
    ("n", "c", "k", "error", "message"),
    [
        (2, 1, 0, ValueError, "k must lie between 1 and n"),
        (2, 1, 3, ValueError, "k must lie between 1 and n"),
        (2, 3, 1, ValueError, "c must lie between 0 and n"),
        (2, -1, 1, ValueError, "c must lie between 0 and n"),
        (2, torch.tensor([1, 3]), 1, ValueError, "c must lie between 0 and n"),
        (2, torch.tensor([0.5, 1.0]), 1, TypeError, "c is torch.float32; give integer counts"),
        (2, torch.tensor([True]), 1, TypeError, "c is torch.bool; give integer counts"),
        (2.0, 1, 1, TypeError, "n is torch.float32"),
        (2, 1, True, TypeError, "k is torch.bool"),
    ],
)
def test_pass_at_k_refuses_what_is_no_count(n, c, k, error, message):
    with pytest.raises(error, match=message):
        pass_at_k(n, c, k)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_pass_at_k_and_average_at_k_are_the_same_on_a_gpu():
    correct_P_N = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0]])
    c_P = correct_P_N.sum(dim=1)
    torch.testing.assert_close(pass_at_k(4, c_P.cuda(), 2).cpu(), pass_at_k(4, c_P, 2))
    torch.testing.assert_close(average_at_k(correct_P_N.cuda()).cpu(), average_at_k(correct_P_N))


# -- average@k


def test_average_at_k_by_hand():
    correct_P_N = torch.tensor([[1, 0, 0, 0], [1, 1, 1, 0], [0] * 4, [1] * 4])
    for rows in (correct_P_N, correct_P_N.bool(), correct_P_N.float(), correct_P_N.tolist()):
        found = average_at_k(rows)
        assert found.dtype == torch.float64 and found.tolist() == [0.25, 0.75, 0.0, 1.0]


def test_average_at_k_takes_graded_scores_and_ignores_the_order_of_samples():
    scores = double([[0.0, 0.5, 1.0]])
    assert average_at_k(scores).item() == 0.5
    assert average_at_k(scores[:, [2, 0, 1]]).item() == 0.5


@pytest.mark.parametrize("bad", [math.nan, -0.5, 1.5])
def test_average_at_k_refuses_scores_that_are_none(bad):
    with pytest.raises(ValueError, match=r"correct_P_N must hold scores in \[0, 1\]"):
        average_at_k([[1.0, bad]])
    with pytest.raises(ValueError, match=r"correct_P_N has shape \(2,\)"):
        average_at_k([1.0, 0.0])
    with pytest.raises(ValueError, match=r"correct_P_N has shape \(1, 0\)"):
        average_at_k(torch.zeros(1, 0))


# -- majority@k


def majority_by_enumeration(answers, gold, k):
    """Vote in every choice of k samples; a tie counts by the share of gold among those tied."""
    total = Fraction(0)
    choices = list(itertools.combinations(answers, k))
    for choice in choices:
        votes = Counter(answer for answer in choice if answer is not None)
        top = [answer for answer, count in votes.items() if count == max(votes.values())]
        total += Fraction(int(gold in top), max(len(top), 1))
    return float(total / len(choices))


def test_majority_by_hand():
    answers = ["4", "4", "5", "6", None]
    # Three of these five, ten choices: 445, 446 and 44- are won, 456 (twice) is tied between three, 45- and 46-
    # (twice each) between two, 56- is lost.
    assert majority_at_k([answers], ["4"], 3).item() == pytest.approx((3 + 2 / 3 + 2) / 10)
    assert majority_at_k([answers], ["5"], 3).item() == pytest.approx((2 / 3 + 1 + 1 / 2) / 10)
    assert majority_at_k([answers] * 3, ["4", "5", "7"]).tolist() == [1.0, 0.0, 0.0]


@quick
@given(
    answers_P_N=st.integers(1, 7).flatmap(
        lambda N: st.lists(
            st.lists(st.sampled_from([None, "a", "b", "c", 7]), min_size=N, max_size=N), min_size=1, max_size=3
        )
    ),
    data=st.data(),
)
def test_majority_equals_a_vote_in_every_choice_of_k_samples(answers_P_N, data):
    k = data.draw(st.integers(1, len(answers_P_N[0])))
    gold_P = data.draw(st.lists(st.sampled_from(["a", 7]), min_size=len(answers_P_N), max_size=len(answers_P_N)))
    expected = [majority_by_enumeration(answers, gold, k) for answers, gold in zip(answers_P_N, gold_P, strict=True)]
    found = majority_at_k(answers_P_N, gold_P, k)
    assert found.dtype == torch.float64
    assert found.tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("k", [4, 7, 11, 12])
def test_majority_equals_enumeration_with_many_rivals(k):
    answers_P_N = [list("aaabbbccdeef"), list("aabbccddeeff"), list("abcdefghijkl"), list("aaaaaaabbbbb")]
    expected = [majority_by_enumeration(answers, "a", k) for answers in answers_P_N]
    assert majority_at_k(answers_P_N, ["a"] * 4, k).tolist() == pytest.approx(expected, abs=1e-12)


def test_majority_of_one_sample_is_the_accuracy():
    answers_P_N = [["4", "4", "5", None], ["5", None, None, "6"], ["4"] * 4]
    correct_P_N = torch.tensor([[answer == "4" for answer in answers] for answers in answers_P_N])
    torch.testing.assert_close(majority_at_k(answers_P_N, ["4"] * 3, 1), average_at_k(correct_P_N))


def test_majority_does_not_depend_on_the_order_of_samples_or_the_names_of_answers():
    answers = ["4", "5", "4", "5", "6", None]
    for k in range(1, 7):
        expected = majority_at_k([answers], ["5"], k)
        assert torch.equal(majority_at_k([answers[::-1]], ["5"], k), expected)
        renamed = [{"4": (0, 1), "5": 2.5, "6": frozenset(), None: None}[answer] for answer in answers]
        assert torch.equal(majority_at_k([renamed], [2.5], k), expected)
    # The plain vote is tied between two: a half, whichever comes first.
    assert expected.item() == 0.5


def test_a_problem_s_majority_does_not_depend_on_the_problems_beside_it():
    answers_P_N = [list("aabbcc"), list("aaaaab"), ["a"] + [None] * 5, list("bcdefg")]
    for k in (2, 4, 6):
        alone = [majority_at_k([answers], ["a"], k).item() for answers in answers_P_N]
        assert majority_at_k(answers_P_N, ["a"] * 4, k).tolist() == alone


def test_samples_without_an_answer_do_not_vote():
    assert majority_at_k([["4", None, None, None]], ["4"]).item() == 1.0
    assert majority_at_k([["5", None, None, None]], ["4"]).item() == 0.0
    assert majority_at_k([[None] * 4], ["4"]).item() == 0.0
    assert majority_at_k([[None] * 4], ["4"], 2).item() == 0.0
    # One of four votes, two are drawn: it is among them half the time.
    assert majority_at_k([["4", None, None, None]], ["4"], 2).item() == pytest.approx(0.5)


def test_voting_lifts_a_likely_answer_and_sinks_an_unlikely_one():
    likely = [majority_at_k([["4"] * 20 + ["5"] * 12], ["4"], k).item() for k in range(1, 33, 2)]
    assert all(later > earlier for earlier, later in itertools.pairwise(likely[:-4]))
    unlikely = [majority_at_k([["4"] * 12 + ["5"] * 20], ["4"], k).item() for k in range(1, 33, 2)]
    for a, b in zip(likely, unlikely, strict=True):
        assert a + b == pytest.approx(1)  # an odd vote between two has no tie


def test_chances_of_all_answers_add_up_to_one_with_many_samples():
    answers = [f"{i % 11 if i % 3 else 0}" for i in range(64)]
    for k in (8, 31, 64):
        chances = majority_at_k([answers] * 11, [f"{i}" for i in range(11)], k)
        assert ((0 <= chances) & (chances <= 1 + 1e-12)).all()
        assert chances.sum().item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("answers", "gold", "k", "message"),
    [
        ([["4", "5"], ["4"]], ["4", "4"], None, r"answers_P_N has rows of \[1, 2\] answers"),
        ([[]], ["4"], None, r"answers_P_N has rows of \[0\] answers"),
        ([], [], None, "answers_P_N has rows of"),
        ([["4"]], [], None, "gold_P must hold one answer for each of the 1 problems"),
        ([["4"]], [None], None, "gold_P must hold one answer .* none that is None"),
        ([["4", "5"]], ["4"], 0, "k=0 must lie between 1 and the 2 samples"),
        ([["4", "5"]], ["4"], 3, "k=3 must lie between 1 and the 2 samples"),
        ([["4"] * 1030], ["4"], 5, "answers_P_N has 1030 samples per problem"),
    ],
)
def test_majority_refuses_what_cannot_be_voted_on(answers, gold, k, message):
    with pytest.raises(ValueError, match=message):
        majority_at_k(answers, gold, k)


# -- clip saturation


def test_clip_binds_by_hand():
    ratio_B_T = torch.tensor([[1.5, 1.1, 0.5, 1.5, 0.9, 0.5, 1.5]])
    advantages_B_T = torch.tensor([[1.0, 1.0, 1.0, -1.0, -1.0, -1.0, 0.0]])
    found = clip_binds(ratio_B_T, advantages_B_T, 0.2)
    assert found.tolist() == [[True, False, False, False, False, True, False]]


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
    # One gradient step per rollout batch: the radius has no effect, however small it is.
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


# -- bootstrap interval


def test_bootstrap_interval_of_two_values_by_hand():
    # Means of two draws from {0, 1}: 0, .5, 1 with chances 1/4, 1/2, 1/4.
    assert bootstrap_interval([0.0, 1.0], level=0.95) == (0.0, 1.0)
    assert bootstrap_interval([0.0, 1.0], level=0.4) == (0.5, 0.5)


def test_bootstrap_interval_is_the_normal_one_for_many_values():
    values = torch.randn(400, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    low, high = bootstrap_interval(values, level=0.9)
    half = 1.645 * values.std(correction=0).item() / 20  # / sqrt(400)
    assert low == pytest.approx(values.mean().item() - half, abs=0.06 * half)
    assert high == pytest.approx(values.mean().item() + half, abs=0.06 * half)


def test_bootstrap_interval_covers_the_mean_about_as_often_as_it_says():
    generator = torch.Generator().manual_seed(1)
    trials, n, p = 500, 60, 0.3
    problems = (torch.rand(trials, n, generator=generator) < p).double()
    covered = 0
    for trial in range(trials):
        low, high = bootstrap_interval(problems[trial], level=0.9, resamples=400, seed=trial)
        covered += low <= p <= high
    # Three standard errors: sqrt(.9 * .1 / 500) = .0134
    assert covered / trials == pytest.approx(0.9, abs=0.04)


def test_bootstrap_interval_shifts_and_scales_with_its_values():
    values = double([0.1, 0.5, 0.2, 0.9, 0.4])
    low, high = bootstrap_interval(values)
    assert bootstrap_interval(10 * values + 3) == pytest.approx((10 * low + 3, 10 * high + 3))
    assert values.min().item() <= low < values.mean().item() < high <= values.max().item()
    wider = bootstrap_interval(values, level=0.99)
    assert wider[0] < low and high < wider[1]


def test_bootstrap_interval_depends_on_its_seed_alone():
    values = [math.sin(i) for i in range(40)]
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = bootstrap_interval(values, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    assert bootstrap_interval(torch.tensor(values, dtype=torch.float64), seed=3) == first
    assert bootstrap_interval(values, seed=4) != first


def test_bootstrap_interval_drawn_in_parts_is_as_good(monkeypatch):
    values = torch.rand(50, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole = bootstrap_interval(values)
    monkeypatch.setattr(metrics, "RESAMPLES_AT_ONCE", 1700)  # 34 resamples at once, the last part smaller
    assert bootstrap_interval(values) == pytest.approx(whole, abs=0.005)


def test_bootstrap_interval_of_equal_values_is_a_point_and_of_one_value_is_refused():
    assert bootstrap_interval([0.25] * 7) == (0.25, 0.25)
    with pytest.raises(ValueError, match="values has 1 number"):
        bootstrap_interval([0.25])


interval_settings = pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"level": 0.0}, "level=0.0 must lie between 0 and 1"),
        ({"level": 95}, "level=95 must lie between 0 and 1"),
        ({"resamples": 0}, "resamples=0 must be 1 or more"),
    ],
)


@interval_settings
def test_bootstrap_interval_refuses_settings_out_of_range(changes, message):
    with pytest.raises(ValueError, match=message):
        bootstrap_interval([0.0, 1.0], **changes)


@pytest.mark.parametrize("values", [[0.0, math.nan], [], [[0.0, 1.0]]])
def test_bootstrap_interval_refuses_values_that_are_none(values):
    with pytest.raises(ValueError, match=r"values has shape .*: give two or more finite numbers"):
        bootstrap_interval(values)


# -- bad input and rounding


@pytest.mark.parametrize(
    ("ratio", "advantages", "epsilon", "name"),
    [
        (torch.ones(3, 1), torch.ones(3), 0.2, "advantages_B_T has shape"),
        (torch.ones(3, 2), torch.ones(3, 1), torch.full((3,), 0.2), "epsilon has shape"),
        (torch.ones(1, 3, 2), torch.ones(1, 3, 2), 0.2, "ratio_B_T has shape"),
        (torch.tensor([[math.nan]]), torch.ones(1, 1), 0.2, "ratio_B_T is NaN"),
        (torch.ones(1, 1), torch.tensor([[math.inf]]), 0.2, "advantages_B_T is NaN"),
    ],
)
def test_clip_binds_refuses_what_would_broadcast_or_is_not_finite(ratio, advantages, epsilon, name):
    with pytest.raises(ValueError, match=name):
        clip_binds(ratio, advantages, epsilon)


@pytest.mark.parametrize(
    ("at_bound", "fraction", "tokens", "name"),
    [
        ([2.0], [0.5], [10], "at_bound_U"),
        ([1.0], [50.0], [10], "clip_fraction_U"),
        ([1.0], [math.nan], [10], "clip_fraction_U"),
        ([1.0], [0.5], [0], "tokens_U"),
        ([1.0], [0.5], [math.inf], "tokens_U"),
    ],
)
def test_clip_saturation_refuses_values_out_of_range_by_name(at_bound, fraction, tokens, name):
    with pytest.raises(ValueError, match=f"^{name} must"):
        clip_saturation(at_bound, fraction, tokens)


@pytest.mark.parametrize("reference", [[0.1] * 7, [0.1, 0.1, 0.2, 0.2]])
def test_a_reference_equal_within_every_window_is_refused_also_where_its_variance_is_a_rounding_error(reference):
    with pytest.raises(ValueError, match="reference_norms_U are all equal"):
        gradient_norm_variance([1.0, 3.0, 2.0], window=2 if len(reference) == 4 else 7, reference_norms_U=reference)


def test_a_short_reference_is_named():
    with pytest.raises(ValueError, match="^reference_norms_U has 1 norms"):
        gradient_norm_variance([1.0, 2.0], reference_norms_U=[1.0])


@pytest.mark.parametrize("value", [0.1, 1 / 3, 0.7])
def test_an_interval_of_equal_values_is_exactly_that_value(value):
    assert bootstrap_interval([value] * 7, resamples=200) == (value, value)


def test_pass_at_k_keeps_nine_digits_up_to_its_bound_and_refuses_more():
    n = 2**16
    for c, k in [(1, 1), (3, 20_000), (100, 500), (1000, 60), (40_000, 2)]:
        # C(n - c, k) / C(n, k) = Π_{i < c} (n - k - i) / (n - i)
        few, many = sorted((c, k))
        exact = -math.expm1(math.fsum(math.log1p(-many / (n - i)) for i in range(few)))
        assert pass_at_k(n, c, k).item() == pytest.approx(exact, abs=1e-9, rel=0)
    with pytest.raises(ValueError, match="n exceeds 65,536"):
        pass_at_k(n + 1, 1, 1)


def test_majority_takes_nan_for_no_answer_and_refuses_strings_as_rows():
    assert torch.equal(majority_at_k([[math.nan, math.nan, 4.0]], [4.0]), majority_at_k([[None, None, 4.0]], [4.0]))
    with pytest.raises(TypeError, match="answers_P_N holds a row that is a str"):
        majority_at_k(["445"], ["4"])

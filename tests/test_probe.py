"""Dispersion, skewness, vote entropy and uncertainty: AGPO Eqs. 1, 5, 8, 9 and §4.5."""

import doctest
import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agpo_core import probe
from agpo_core.probe import (
    ProbeState,
    dispersion,
    equal_rewards,
    prompt_statistics,
    skewness,
    uncertainty,
    vote_entropy,
)

quick = settings(derandomize=True, max_examples=60)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
modes = pytest.mark.parametrize("mode", ["std", "mad", "iqr"])
estimators = pytest.mark.parametrize("estimator", ["g1", "G1", "b1"])
# Multiples of 1/16: sums and shifts of a few of them are exact in floating point.
groups = st.lists(st.integers(0, 16).map(lambda n: n / 16), min_size=2, max_size=10)

SIX = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]


def row(values, dtype=torch.float64):
    return torch.tensor([values], dtype=dtype)


def binary(right, G=8):
    return [1.0] * right + [0.0] * (G - right)


def test_examples_in_docstrings_hold():
    assert doctest.testmod(probe).failed == 0


# -- dispersion


@dtypes
def test_dispersion_of_six_numbers_by_hand(dtype):
    rewards = row(SIX, dtype)
    # Mean .5; squares 2 (.25 + .09 + .01) = .7; std = sqrt(.7 / 5).
    torch.testing.assert_close(dispersion(rewards), torch.tensor([0.14**0.5], dtype=dtype))
    # Median (.4 + .6) / 2 = .5; distances .1 .1 .3 .3 .5 .5; their median .3.
    torch.testing.assert_close(dispersion(rewards, "mad"), torch.tensor([1.4826 * 0.3], dtype=dtype))
    # Quartiles at positions 1.25 and 3.75: .25 and .75.
    torch.testing.assert_close(dispersion(rewards, "iqr"), torch.tensor([0.5 / 1.349], dtype=dtype))


@quick
@given(groups)
def test_dispersion_equals_the_standard_library(rewards):
    median = statistics.median(rewards)
    quartiles = statistics.quantiles(rewards, n=4, method="inclusive")
    expected = {
        "std": statistics.stdev(rewards),
        "mad": 1.4826 * statistics.median(abs(r - median) for r in rewards),
        "iqr": (quartiles[2] - quartiles[0]) / 1.349,
    }
    for mode, value in expected.items():
        assert dispersion(row(rewards), mode, fallback="zero").item() == pytest.approx(value, abs=1e-12)


@modes
@quick
@given(rewards=groups, data=st.data())
def test_dispersion_is_unchanged_by_order_and_shift_and_grows_with_scale(mode, rewards, data):
    sigma = dispersion(row(rewards), mode)
    permuted = data.draw(st.permutations(rewards))
    torch.testing.assert_close(dispersion(row(permuted), mode), sigma)
    torch.testing.assert_close(dispersion(row(rewards) + 3, mode), sigma)
    torch.testing.assert_close(dispersion(row(rewards) * 4, mode), sigma * 4)


@modes
def test_each_group_is_measured_by_itself(mode):
    rewards_P_G = torch.tensor([SIX, binary(3, 6), binary(0, 6)], dtype=torch.float64)
    alone = torch.cat([dispersion(rewards_G[None], mode) for rewards_G in rewards_P_G])
    assert torch.equal(dispersion(rewards_P_G, mode), alone)


@modes
@dtypes
def test_dispersion_is_exactly_zero_on_equal_rewards(mode, dtype):
    # The float32 mean of eight times 1/3 is not 1/3.
    rewards_P_G = torch.tensor([[1 / 3] * 8, [0.1] * 8, [0.7] * 8], dtype=dtype, requires_grad=True)
    sigma_P = dispersion(rewards_P_G, mode)
    assert torch.equal(sigma_P, torch.zeros(3, dtype=dtype))
    sigma_P.sum().backward()
    assert torch.equal(rewards_P_G.grad, torch.zeros(3, 8, dtype=dtype))


@modes
def test_dispersion_of_a_group_of_one_is_zero(mode):
    assert dispersion(row([0.7]), mode).item() == 0


def test_mad_of_eight_binary_rewards_is_zero_unless_four_are_right():
    sigmas = [dispersion(row(binary(k)), "mad", fallback="zero").item() for k in range(9)]
    assert sigmas[4] == pytest.approx(1.4826 * 0.5)
    assert [k for k in range(9) if sigmas[k] > 0] == [4]


def test_iqr_of_eight_binary_rewards_is_zero_when_one_or_seven_are_right():
    sigmas = [dispersion(row(binary(k)), "iqr", fallback="zero").item() for k in range(9)]
    assert [k for k in range(9) if sigmas[k] == 0] == [0, 1, 7, 8]
    # Two right: the upper quartile lies at position 5.25, between 0 and 1.
    assert sigmas[2] == pytest.approx(0.25 / 1.349)


def test_fallback_replaces_a_zero_mad_by_the_standard_deviation():
    rewards_P_G = torch.tensor([binary(1), binary(4), binary(8)])
    std_P = dispersion(rewards_P_G)
    sigma_P = dispersion(rewards_P_G, "mad", fallback="std")
    torch.testing.assert_close(sigma_P, torch.stack([std_P[0], torch.tensor(0.7413), std_P[2] * 0]))


def test_fallback_zero_leaves_a_zero_mad():
    assert dispersion(row(binary(1)), "mad", fallback="zero").item() == 0


def test_fallback_error_names_the_group_and_the_remedy():
    with pytest.raises(ValueError, match=r"mad is zero in groups \[1\].*fallback='std'"):
        dispersion(torch.tensor([binary(4), binary(1)]), "mad", fallback="error")
    # Equal rewards are no such case.
    assert dispersion(row(binary(0)), "mad", fallback="error").item() == 0


@modes
def test_gradient_of_dispersion_equals_finite_differences(mode):
    rewards_P_G = torch.tensor([[0.1, 0.75, 0.3, 0.9, 0.45]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda r: dispersion(r, mode), rewards_P_G)


def test_equal_rewards_compares_exactly():
    rewards_P_G = torch.tensor([[0.5, 0.5], [0.5, 0.5 + 1e-7], [0.0, 1.0]])
    assert equal_rewards(rewards_P_G).tolist() == [True, False, False]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("function", [dispersion, skewness, equal_rewards])
def test_rewards_that_are_not_finite_are_refused_by_name(function, bad):
    with pytest.raises(ValueError, match=r"rewards_P_G is NaN or infinite in groups \[1\]"):
        function(torch.tensor([[0.0, 1.0], [0.0, bad]]))


def test_rewards_of_another_type_or_rank_are_refused():
    with pytest.raises(TypeError, match="rewards_P_G is torch.int64; convert"):
        dispersion(torch.tensor([[0, 1]]))
    with pytest.raises(ValueError, match=r"rewards_P_G has shape \(2,\).*view\(P, G\)"):
        dispersion(torch.tensor([0.0, 1.0]))


def test_unknown_options_are_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="mode='var' is unknown; choose one of 'std', 'mad', 'iqr'"):
        dispersion(row(SIX), "var")
    with pytest.raises(ValueError, match="fallback='mad'"):
        dispersion(row(SIX), fallback="mad")
    with pytest.raises(ValueError, match="estimator='g2'"):
        skewness(row(SIX), estimator="g2")
    with pytest.raises(ValueError, match="missing='ignore'"):
        vote_entropy([["1"]], missing="ignore")
    with pytest.raises(ValueError, match="guard='mad'"):
        prompt_statistics(row([0.0, 1.0]), [["1", "2"]], guard="mad")


# -- skewness


@dtypes
@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        ("g1", 6 / 7**0.5),  # (G - 2) / sqrt(G - 1) = 2.268
        ("G1", 8**0.5),  # 6 / sqrt(7) * sqrt(8 * 7) / 6 = 2.828
        ("b1", 6 / 7**0.5 * (7 / 8) ** 1.5),  # 1.856
    ],
)
def test_skewness_of_one_right_in_eight_by_hand(estimator, expected, dtype):
    kappa = skewness(row(binary(1), dtype), estimator=estimator)
    torch.testing.assert_close(kappa, torch.tensor([expected], dtype=dtype))


@quick
@given(groups.filter(lambda rewards: len(rewards) > 2 and min(rewards) < max(rewards)))
def test_skewness_equals_a_slow_loop(rewards):
    G, mean = len(rewards), statistics.fmean(rewards)
    second = sum((r - mean) ** 2 for r in rewards) / G
    third = sum((r - mean) ** 3 for r in rewards) / G
    g1 = third / second**1.5
    expected = {
        "g1": g1,
        "G1": g1 * math.sqrt(G * (G - 1)) / (G - 2),
        "b1": third / statistics.stdev(rewards) ** 3,
    }
    for estimator, value in expected.items():
        kappa = skewness(row(rewards), estimator=estimator).item()
        assert kappa == pytest.approx(value, rel=1e-9, abs=1e-9)


@estimators
@quick
@given(rewards=groups, data=st.data())
def test_skewness_is_unchanged_by_order_shift_and_scale_and_turns_with_the_rewards(estimator, rewards, data):
    kappa = skewness(row(rewards), estimator=estimator)
    permuted = data.draw(st.permutations(rewards))
    torch.testing.assert_close(skewness(row(permuted), estimator=estimator), kappa)
    torch.testing.assert_close(skewness(row(rewards) * 4 + 3, estimator=estimator), kappa)
    torch.testing.assert_close(skewness(1 - row(rewards), estimator=estimator), -kappa)


def test_largest_skewness_of_a_group_of_eight_is_2_27():
    kappas = [skewness(row(binary(k))).abs().item() for k in range(9)]
    assert max(kappas) == pytest.approx(2.268, abs=5e-4)  # 6 / sqrt(7)


@quick
@given(groups)
def test_skewness_never_passes_its_bound(rewards):
    G = len(rewards)
    bound = max(G - 2, 0) / math.sqrt(G - 1)
    assert skewness(row(rewards)).abs().item() <= bound + 1e-9


def test_kappa_max_binds_from_a_group_of_103():
    assert skewness(row(binary(1, 102))).item() == pytest.approx(100 / 101**0.5)  # 9.95
    assert skewness(row(binary(1, 103))).item() == 10  # 101 / sqrt(102) = 10.0005
    assert skewness(row(binary(102, 103))).item() == -10


@estimators
@dtypes
def test_skewness_is_exactly_zero_on_equal_rewards_and_on_one_or_two(estimator, dtype):
    rewards_P_G = torch.tensor([[1 / 3] * 8, [0.1] * 8], dtype=dtype, requires_grad=True)
    kappa_P = skewness(rewards_P_G, sigma_min=0.0, estimator=estimator)
    assert torch.equal(kappa_P, torch.zeros(2, dtype=dtype))
    kappa_P.sum().backward()
    assert torch.equal(rewards_P_G.grad, torch.zeros(2, 8, dtype=dtype))
    assert skewness(row([0.3, 0.9], dtype), estimator=estimator).item() == 0
    assert skewness(row([0.3], dtype), estimator=estimator).item() == 0


def test_skewness_is_silent_below_sigma_min():
    rewards = row(binary(1)) * 1e-7  # std 3.5e-8
    assert skewness(rewards).item() == 0
    assert skewness(rewards, sigma_min=1e-9).item() == pytest.approx(6 / 7**0.5)


def test_guard_on_mad_switches_skewness_off_for_most_binary_groups():
    heard = [k for k in range(9) if skewness(row(binary(k)), guard_mode="mad").item() != 0]
    assert heard == []  # MAD is positive at four right alone, where skewness is zero
    heard = [k for k in range(9) if skewness(row(binary(k)), guard_mode="std").abs().item() > 1e-9]
    assert heard == [1, 2, 3, 5, 6, 7]


@estimators
def test_gradient_of_skewness_equals_finite_differences(estimator):
    rewards_P_G = torch.tensor([[0.1, 0.75, 0.3, 0.9, 0.45]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda r: skewness(r, estimator=estimator), rewards_P_G)


# -- vote entropy


def test_vote_entropy_by_hand():
    # Shares 1/2, 1/4, 1/4: .5 log 2 + 2 * .25 log 4 = 1.5 log 2.
    assert vote_entropy([["7", "7", "8", "9"]]).item() == pytest.approx(1.5 * math.log(2))


def test_vote_entropy_is_zero_on_agreement_and_log_G_when_all_differ():
    entropy_P = vote_entropy([["a"] * 8, list("abcdefgh")])
    assert entropy_P.tolist() == pytest.approx([0.0, math.log(8)])
    assert entropy_P[0].item() == 0


@quick
@given(st.lists(st.sampled_from(["1", "2", (3, 4), 5]), min_size=1, max_size=9), st.data())
def test_vote_entropy_depends_on_the_partition_alone(answers, data):
    shares = [answers.count(answer) / len(answers) for answer in set(answers)]
    expected = -sum(share * math.log(share) for share in shares)
    permuted = data.draw(st.permutations(answers))
    renamed = [("renamed", answer) for answer in answers]
    for votes in (answers, permuted, renamed):
        assert vote_entropy([votes]).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("shared", math.log(2)),  # {4: 2, None: 2}
        ("drop", 0.0),  # {4: 2}
        ("unique", 1.5 * math.log(2)),  # {4: 2, None: 1, None: 1}
    ],
)
def test_missing_answers_vote_together_or_not_at_all_or_apart(missing, expected):
    answers = ["4", None, "4", None]
    assert vote_entropy([answers], missing).item() == pytest.approx(expected)


@pytest.mark.parametrize(("missing", "expected"), [("shared", 0), ("drop", 0), ("unique", math.log(3))])
def test_vote_entropy_of_a_group_without_answers(missing, expected):
    assert vote_entropy([[None] * 3], missing).item() == pytest.approx(expected)


def test_dropping_missing_answers_equals_the_group_without_them():
    assert vote_entropy([["1", None, "2", "2", None]], "drop") == vote_entropy([["1", "2", "2"]])


# -- uncertainty


def test_uncertainty_by_hand():
    # 1 * .5 + 1 * 1.2 + .1 * 2
    assert uncertainty(sigma=0.5, skewness=2.0, vote_entropy=1.2) == pytest.approx(1.9)
    # Weights stand in the paper's order w_r, w_e, w_k: 2 * .5 + 3 * 1.2 + 5 * 2
    assert uncertainty(0.5, 2.0, 1.2, weights=(2, 3, 5)) == pytest.approx(14.6)


def test_uncertainty_takes_the_size_of_skewness_and_tensors_too():
    sigma, kappa, entropy = torch.tensor([[0.5, 0.0], [-2.0, 1.0], [1.2, 0.0]])
    torch.testing.assert_close(uncertainty(sigma, kappa, entropy), torch.tensor([1.9, 0.1]))


@pytest.mark.parametrize(
    ("signals_mask", "expected"),
    [
        ((0, 1, 1, 1), 0.2 + 1.2),  # without dispersion
        ((1, 0, 1, 1), 0.5 + 1.2),  # without skewness
        ((1, 1, 0, 1), 0.5 + 0.2),  # without vote entropy
        ((1, 1, 1, 0), 1.9),  # the step KL does not enter Eq. 9
        ([1, 1, 1, 1, 0], 1.9),  # nor does H
    ],
)
def test_a_masked_signal_leaves_eq_9(signals_mask, expected):
    value = uncertainty(0.5, 2.0, 1.2, signals_mask=signals_mask)
    assert value == pytest.approx(expected)


def test_uncertainty_of_eight_binary_rewards_is_at_most_2_66():
    answers = [list("abcdefgh")]  # the largest vote entropy, log 8
    largest = 0.0
    for right in range(9):
        state = ProbeState.mean(prompt_statistics(row(binary(right)), answers))
        largest = max(largest, uncertainty(state.sigma, state.skewness, state.vote_entropy))
    # One right: 1 / sqrt(8) + log 8 + .1 * 6 / sqrt(7) = .354 + 2.079 + .227
    assert largest == pytest.approx(2.660, abs=5e-4)
    assert 1 + 0.15 * largest < 1.40 and 1 - 0.15 * largest > 0.60


# -- prompt statistics


@dtypes
def test_prompt_statistics_collects_the_three_signals(dtype):
    rewards_P_G = torch.tensor([binary(7), binary(0)], dtype=dtype)
    answers_P_G = [["5"] * 7 + ["6"], [None] * 8]
    found = prompt_statistics(rewards_P_G, answers_P_G)
    # Seven right: std sqrt((7 / 64 * 8) / 7) = 1 / sqrt(8), |g1| = 6 / sqrt(7).
    entropy = 7 / 8 * math.log(8 / 7) + math.log(8) / 8
    expected = {
        "sigma": torch.tensor([8**-0.5, 0.0], dtype=dtype),
        "skewness": torch.tensor([6 / 7**0.5, 0.0], dtype=dtype),
        "vote_entropy": torch.tensor([entropy, 0.0], dtype=dtype),
        "fallback": torch.zeros(2, dtype=dtype),
    }
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("fallback", ["std", "zero"])
def test_prompt_statistics_counts_the_groups_whose_mad_is_zero(fallback):
    rewards_P_G = torch.tensor([binary(0), binary(1), binary(4), binary(7)])
    found = prompt_statistics(rewards_P_G, [["x"] * 8] * 4, mode="mad", fallback=fallback)
    assert found["fallback"].tolist() == [0, 1, 0, 1]


def test_guard_on_the_mode_silences_skewness_under_mad():
    rewards_P_G, answers_P_G = torch.tensor([binary(1)]), [["x"] * 8]
    heard = prompt_statistics(rewards_P_G, answers_P_G, mode="mad", guard="std")["skewness"]
    silenced = prompt_statistics(rewards_P_G, answers_P_G, mode="mad", guard="mode")["skewness"]
    assert heard.item() == pytest.approx(6 / 7**0.5)
    assert silenced.item() == 0


def test_prompt_statistics_passes_its_options_on():
    rewards_P_G, answers_P_G = torch.tensor([binary(1)]), [["x", None] * 4]
    found = prompt_statistics(rewards_P_G, answers_P_G, "iqr", estimator="G1", missing="drop", kappa_max=2.5)
    assert found["skewness"].item() == 2.5  # G1 = 2.83
    assert found["vote_entropy"].item() == 0
    silent = prompt_statistics(rewards_P_G, answers_P_G, sigma_min=0.5)  # std .354
    assert silent["skewness"].item() == 0


@pytest.mark.parametrize("answers_P_G", [[["x"] * 8], [["x"] * 8, ["x"] * 7]])
def test_answers_must_match_the_rewards(answers_P_G):
    with pytest.raises(ValueError, match="answers_P_G must hold 2 lists of 8 answers"):
        prompt_statistics(torch.tensor([binary(1), binary(2)]), answers_P_G)


def test_for_binary_rewards_dispersion_and_skewness_are_functions_of_accuracy():
    for right in range(1, 8):
        p = right / 8
        found = prompt_statistics(row(binary(right)), [["x"] * 8])
        assert found["sigma"].item() == pytest.approx(math.sqrt(p * (1 - p) * 8 / 7))
        skew = abs(1 - 2 * p) / math.sqrt(p * (1 - p))
        assert found["skewness"].item() == pytest.approx(skew, abs=1e-9)


def test_state_over_ranks_equals_the_state_of_the_whole_batch():
    rewards_P_G = torch.tensor([binary(k) for k in range(5)])
    answers_P_G = [[str(g % (p + 1)) for g in range(8)] for p in range(5)]
    whole = prompt_statistics(rewards_P_G, answers_P_G)
    # Ranks with unequal shares of the prompts: tensors are gathered before the mean.
    parts = [prompt_statistics(rewards_P_G[i], answers_P_G[i]) for i in (slice(2), slice(2, 5))]
    gathered = {name: torch.cat([part[name] for part in parts]) for name in whole}
    assert ProbeState.mean(gathered) == ProbeState.mean(whole)
    assert ProbeState.mean(whole).sigma == pytest.approx(whole["sigma"].mean().item())


# -- edges


@pytest.mark.parametrize("function", [dispersion, skewness])
@pytest.mark.parametrize("rewards", [[0.0, 1e-30], [0.0, 0.0, 1e-14], [0.0, 0.0, 1e-15], [0.0, 0.0, 1e-30]])
@pytest.mark.parametrize("sigma_min", [0.0, 1e-6])
def test_gradient_is_finite_where_the_square_of_the_spread_underflows(function, rewards, sigma_min):
    rewards_P_G = torch.tensor([rewards], requires_grad=True)
    found_P = function(rewards_P_G, sigma_min=sigma_min) if function is skewness else function(rewards_P_G)
    found_P.sum().backward()
    assert found_P.isfinite().all() and rewards_P_G.grad.isfinite().all()


@modes
def test_no_prompt_has_no_dispersion_and_no_mean(mode):
    assert dispersion(torch.zeros(0, 4), mode).shape == (0,)
    statistics = prompt_statistics(torch.zeros(0, 4), [], mode=mode)
    with pytest.raises(ValueError, match="statistics holds no prompt"):
        ProbeState.mean(statistics)


@pytest.mark.parametrize("answers", [["ab"], "ab", torch.tensor([[1, 2]]), [torch.tensor([1, 2])]])
@pytest.mark.parametrize("function", [vote_entropy, lambda rows: prompt_statistics(row([0.0, 1.0]), rows)])
def test_a_string_or_a_tensor_is_no_row_of_answers(answers, function):
    with pytest.raises(TypeError, match="answers_P_G holds a row that is a (str|Tensor)"):
        function(answers)


def test_tensors_are_no_answers_and_nan_is_none():
    with pytest.raises(TypeError, match="answers_P_G holds tensors"):
        vote_entropy([[torch.tensor(1), torch.tensor(1)]])
    for missing in ("shared", "drop", "unique"):
        with_nan = vote_entropy([[math.nan, float("nan"), 1.0, None]], missing)
        assert torch.equal(with_nan, vote_entropy([[None, None, 1.0, None]], missing))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: skewness(row([0.0, 1.0]), guard_mode="mode"), "guard_mode='mode' is unknown"),
        (lambda: skewness(row([0.0, 1.0]), sigma_min=-1.0), "sigma_min=-1.0"),
        (lambda: skewness(row([0.0, 1.0]), kappa_max=0.0), "kappa_max=0.0"),
        (lambda: skewness(row([0.0, 1.0]), kappa_max=math.nan), "kappa_max=nan"),
        (lambda: uncertainty(1.0, 1.0, 1.0, weights=(1.0, 1.0)), "weights="),
        (lambda: uncertainty(1.0, 1.0, 1.0, weights=(1.0, -1.0, 0.0)), "w_e=-1.0"),
        (lambda: uncertainty(1.0, 1.0, 1.0, signals_mask=(1, 1)), "signals_mask="),
        (lambda: uncertainty(1.0, 1.0, 1.0, signals_mask=(1, 1, 2)), "signals_mask="),
        (lambda: uncertainty(torch.ones(3, 1), 1.0, torch.ones(3)), "shapes differ.*sigma.*vote_entropy"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()

"""k1, k2 and k3 by enumeration: values, gradients, descents, and answers of two tokens."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agpo_core.theory import kl_estimators as ke

quick = settings(derandomize=True, max_examples=40)
seeds = st.integers(0, 10_000)

# π and π_ref of three tokens; d = log 4, log 2, -log 3
P = torch.tensor([1 / 2, 1 / 4, 1 / 4], dtype=torch.float64).log()
REF = torch.tensor([1 / 8, 1 / 8, 3 / 4], dtype=torch.float64).log()


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def pair(seed, vocabulary=5):
    """Log-probabilities of a policy and of a reference."""
    return ke.reference_policy(vocabulary, seed), ke.reference_policy(vocabulary, seed + 1)


def answers(seed, vocabulary=3):
    """A policy and a reference over answers of two tokens."""
    return ke.two_token_policy(vocabulary, seed), ke.two_token_policy(vocabulary, seed + 1)


# -- policies


@pytest.mark.parametrize("direction", ke.DIRECTIONS)
def test_the_scale_is_the_spread_of_the_log_ratio_under_the_reference(direction):
    reference_V = ke.reference_policy(7, seed=3)
    scales = [-1.5, 0.0, 0.5, 2.0]
    for scale, logps_V in zip(scales, ke.moved_policies(reference_V, scales, direction, seed=4), strict=True):
        d_V, p_V = logps_V - reference_V, reference_V.exp()
        spread = ((p_V * d_V.square()).sum() - (p_V * d_V).sum().square()).clamp(min=0).sqrt().item()
        assert spread == pytest.approx(abs(scale), abs=1e-7)
        assert logps_V.exp().sum().item() == pytest.approx(1)


def test_near_the_reference_the_kl_is_half_the_squared_scale():
    reference_V = ke.reference_policy(32, seed=0)
    logps_S_V = ke.moved_policies(reference_V, [0.01], "random", seed=1)
    reverse = ke.expectations(logps_S_V, reference_V, [0.01])["reverse"].iloc[0]
    assert reverse == pytest.approx(0.01**2 / 2, rel=0.02)


def test_the_temperature_direction_divides_the_logits_by_a_temperature():
    reference_V = ke.reference_policy(6, seed=0)
    flatter_V, sharper_V = ke.moved_policies(reference_V, [-0.5, 2.0], "temperature")
    for logps_V, side in ((flatter_V, -1), (sharper_V, 1)):
        ratio = (logps_V[0] - logps_V[1]) / (reference_V[0] - reference_V[1])  # 1 / τ
        torch.testing.assert_close(logps_V, (reference_V * ratio).log_softmax(-1))
        assert (ratio - 1) * side > 0


def test_an_unknown_direction_is_refused():
    with pytest.raises(ValueError, match="direction='up'"):
        ke.moved_policies(P, [1.0], "up")


# -- values


def test_expectations_of_three_tokens_by_hand():
    rows = ke.expectations(P[None], REF, [0.0]).set_index("estimator")
    a, b, c = math.log(4), math.log(2), -math.log(3)
    reverse = a / 2 + b / 4 + c / 4  # .5918
    second = a * a / 2 + b * b / 4 + c * c / 4
    k3 = [1 / 4 - 1 + a, 1 / 2 - 1 + b, 3 - 1 + c]
    assert rows.loc["k1", "mean"] == pytest.approx(reverse)
    assert rows.loc["k1", "second"] == pytest.approx(second)
    assert rows.loc["k1", "std"] == pytest.approx(math.sqrt(second - reverse**2))
    assert rows.loc["k2", "mean"] == pytest.approx(second / 2)
    assert rows.loc["k3", "mean"] == pytest.approx(k3[0] / 2 + k3[1] / 4 + k3[2] / 4) == pytest.approx(reverse)
    assert rows.loc["k3", "second"] == pytest.approx(k3[0] ** 2 / 2 + k3[1] ** 2 / 4 + k3[2] ** 2 / 4)
    # 1/8 (-log 4) + 1/8 (-log 2) + 3/4 log 3
    assert rows["forward"].tolist() == pytest.approx([-a / 8 - b / 8 - 3 * c / 4] * 3)


@quick
@given(seeds)
def test_k1_and_k3_have_the_reverse_kl_for_mean_and_k2_has_half_the_second_moment(seed):
    logps_V, reference_V = pair(seed)
    rows = ke.expectations(logps_V[None], reference_V, [0.0]).set_index("estimator")
    assert rows.loc["k1", "mean"] == pytest.approx(rows.loc["k1", "reverse"])
    assert rows.loc["k3", "mean"] == pytest.approx(rows.loc["k1", "reverse"])
    assert rows.loc["k2", "mean"] == pytest.approx(rows.loc["k1", "second"] / 2)


def test_sampled_means_lie_within_four_exact_standard_errors_and_repeat_with_the_seed():
    table = ke.monte_carlo(P[None], REF, [0.0], batch=200, batches=200, seed=0)
    assert (table["z"].abs() < 4).all() and (table["z"] != 0).all()
    assert table["coverage"].between(0.9, 0.99).all()  # nominally .95, 200 batches
    assert ke.monte_carlo(P[None], REF, [0.0], batch=200, batches=200, seed=0).equals(table)
    assert not ke.monte_carlo(P[None], REF, [0.0], batch=200, batches=200, seed=1)["mean"].equals(table["mean"])


def test_the_standard_error_of_k3_misses_a_token_that_is_never_drawn():
    p = double([1.0, 1e-9]).log().log_softmax(-1)
    table = ke.monte_carlo(p[None], double([0.5, 0.5]).log(), [0.0], batch=100, batches=50, seed=0)
    rows = table.set_index("estimator")
    assert rows.loc["k3", "coverage"] == 0 and rows.loc["k3", "std"] == pytest.approx(0, abs=1e-6)
    # k3 of the missing token: 1e-9 (.5 / 1e-9) = .5 of the mean is never seen.
    assert rows.loc["k3", "exact"] - rows.loc["k3", "mean"] == pytest.approx(0.5, abs=1e-6)
    assert abs(rows.loc["k3", "z"]) < 4


def test_tokens_are_drawn_as_often_as_they_are_likely():
    logps_R_V = torch.stack([P, REF])
    tokens_R_B = ke.draw(logps_R_V, 40_000, torch.Generator().manual_seed(0))
    for tokens_B, logps_V in zip(tokens_R_B, logps_R_V, strict=True):
        shares = tokens_B.bincount(minlength=3).double() / 40_000
        # Standard error at most .5 / 200 = .0025
        torch.testing.assert_close(shares, logps_V.exp(), atol=0.01, rtol=0)


def test_a_draw_above_the_last_rounded_sum_is_the_last_token():
    short = double([[0.5, 0.25]]).log()  # sums to .75: a quarter of the draws lie above
    tokens = ke.draw(short, 1000, torch.Generator().manual_seed(0))
    assert tokens.max() == 1


def test_moments_of_two_geometric_distributions_by_hand():
    table = ke.geometric_moments([2], 0.5, [0.25])
    # π = (2/3, 1/3), π_ref = (4/5, 1/5): δ = 6/5, 3/5
    k3 = [6 / 5 - 1 - math.log(6 / 5), 3 / 5 - 1 - math.log(3 / 5)]
    assert table.loc[2, "E[k3²], b = 0.25"] == pytest.approx(2 / 3 * k3[0] ** 2 + 1 / 3 * k3[1] ** 2)
    k2 = [math.log(6 / 5) ** 2 / 2, math.log(3 / 5) ** 2 / 2]
    assert table.loc[2, "E[k2²], b = 0.25"] == pytest.approx(2 / 3 * k2[0] ** 2 + 1 / 3 * k2[1] ** 2)


@pytest.mark.parametrize("dtype, finite, infinite", [(torch.float32, -88.0, -89.0), (torch.float16, -11.0, -12.0)])
def test_k3_overflows_where_the_exponential_of_the_precision_does(dtype, finite, infinite):
    table = ke.in_precision([finite, infinite], dtype)
    assert math.isfinite(table.loc[finite, "k3"]) and table.loc[infinite, "k3"] == math.inf
    assert table.loc[infinite, "slope of k3"] == -math.inf
    assert table.loc[infinite, "slope of k2"] == infinite


# -- gradients


def test_slopes_by_hand():
    d = double([-2.0, 0.0, 3.0])
    zero = torch.zeros(3, dtype=torch.float64)
    assert ke.slopes("k1", d, zero).tolist() == [1, 1, 1]
    assert ke.slopes("k2", d, zero).tolist() == [-2, 0, 3]
    assert ke.slopes("k3", d, zero).tolist() == pytest.approx([1 - math.exp(2), 0, 1 - math.exp(-3)])


def test_token_gradients_equal_automatic_differentiation_of_the_log_softmax():
    logps_V, reference_V = pair(0)
    for name, estimator in ke.ESTIMATORS.items():
        rows_V_V = ke.token_gradients(name, logps_V, reference_V)
        for token in range(5):
            logits_V = logps_V.clone().requires_grad_()
            estimator(logits_V.log_softmax(-1)[token], reference_V[token]).backward()
            torch.testing.assert_close(rows_V_V[token], logits_V.grad)


@quick
@given(seeds)
def test_as_a_loss_k1_goes_nowhere_k2_down_the_reverse_and_k3_down_the_forward_kl(seed):
    logps_V, reference_V = pair(seed)
    p_V, q_V, d_V = logps_V.exp(), reference_V.exp(), logps_V - reference_V
    torch.testing.assert_close(ke.loss_gradient("k1", logps_V, reference_V), torch.zeros(5, dtype=torch.float64))
    torch.testing.assert_close(ke.loss_gradient("k2", logps_V, reference_V), p_V * (d_V - (p_V * d_V).sum()))
    torch.testing.assert_close(ke.loss_gradient("k3", logps_V, reference_V), p_V - q_V)
    true = ke.divergence_gradients(logps_V, reference_V)
    torch.testing.assert_close(true["reverse"], p_V * (d_V - (p_V * d_V).sum()))
    torch.testing.assert_close(true["forward"], p_V - q_V)


def test_with_the_drawing_differentiated_k1_and_k3_follow_the_reverse_kl_and_k2_does_not():
    logps_V, reference_V = pair(0)
    reverse = ke.divergence_gradients(logps_V, reference_V)["reverse"]
    torch.testing.assert_close(ke.expectation_gradient("k1", logps_V, reference_V), reverse)
    torch.testing.assert_close(ke.expectation_gradient("k3", logps_V, reference_V), reverse)
    assert ke.distance(ke.expectation_gradient("k2", logps_V, reference_V), reverse) > 0.1


def test_other_samplers_bend_the_gradients_and_weights_mend_them():
    logps_V, reference_V = pair(0)
    sampler_V = ke.reference_policy(5, seed=9)
    table = ke.sampler_table(logps_V, reference_V, {"own": logps_V, "other": sampler_V})
    exact = ["k2_reverse_corrected", "k3_forward_corrected"]
    assert (table[exact] < 1e-12).all(axis=None)
    assert (table.loc["own", ["k2_reverse", "k3_forward"]] < 1e-12).all()
    assert (table.loc["other", ["k2_reverse", "k3_forward"]] > 0.1).all()
    mean = sum(sampler_V.exp()[v] * (logps_V - reference_V)[v] for v in range(5)).item()
    assert table.loc["other", "k1"] == pytest.approx(mean)
    # Weighed by π / μ token by token, as a loop would do it.
    weighed = sum(
        sampler_V.exp()[v] * (logps_V[v] - sampler_V[v]).exp() * ke.token_gradients("k2", logps_V, reference_V)[v]
        for v in range(5)
    )
    torch.testing.assert_close(ke.loss_gradient("k2", logps_V, reference_V, sampler_V, corrected=True), weighed)


def test_the_scatter_is_the_root_of_the_summed_variances():
    rows_V_V = ke.token_gradients("k2", P, REF)
    p = P.exp()
    variance = 0.0
    for j in range(3):
        mean = sum(p[v] * rows_V_V[v, j] for v in range(3))
        variance += sum(p[v] * (rows_V_V[v, j] - mean) ** 2 for v in range(3))
    assert ke.gradient_scatter(rows_V_V, P) == pytest.approx(math.sqrt(variance))


def test_the_gradient_table_counts_the_tokens_to_see_a_gradient():
    rows = ke.gradient_table(P[None], REF, [1.0]).set_index("estimator")
    assert rows.loc["k1", "norm"] < 1e-12 and rows.loc["k1", "tokens"] == math.inf
    assert rows.loc["k2", "to_reverse"] < 1e-12 < 0.01 < rows.loc["k2", "to_forward"]
    assert rows.loc["k3", "to_forward"] < 1e-12 < 0.01 < rows.loc["k3", "to_reverse"]
    k2 = rows.loc["k2"]
    assert k2["scatter"] / math.sqrt(k2["tokens"]) == pytest.approx(k2["norm"])


def test_sampled_gradients_lie_within_four_exact_standard_errors_of_the_expected_ones():
    table = ke.sampled_gradients(P[None], REF, [1.0], tokens=40_000, seed=0)
    assert table["z"].between(0, 4, inclusive="neither").all()
    rows, exact = table.set_index("estimator"), ke.gradient_table(P[None], REF, [1.0]).set_index("estimator")
    for name, row in rows.iterrows():
        assert row["error"] == pytest.approx(exact.loc[name, "scatter"] / 200)  # sqrt(40,000)
        assert row["own_error"] == pytest.approx(row["error"], rel=0.05) and row["own_error"] != row["error"]
        assert row["norm"] == pytest.approx(exact.loc[name, "norm"], abs=1e-12)
    assert ke.sampled_gradients(P[None], REF, [1.0], tokens=40_000, seed=0).equals(table)
    assert not ke.sampled_gradients(P[None], REF, [1.0], tokens=40_000, seed=1)["off"].equals(table["off"])


def test_the_sampled_gradient_is_the_mean_over_the_tokens_drawn():
    tokens = ke.draw(P[None], 7, torch.Generator().manual_seed(3))[0]
    row = ke.sampled_gradients(P[None], REF, [1.0], tokens=7, seed=3).set_index("estimator").loc["k3"]
    mean_V = ke.token_gradients("k3", P, REF)[tokens].mean(dim=0)
    assert row["off"] == pytest.approx((mean_V - double([3 / 8, 1 / 8, -1 / 2])).norm().item())  # π - π_ref
    spread_V = ke.token_gradients("k3", P, REF)[tokens].var(dim=0, correction=0)
    assert row["own_error"] == pytest.approx(math.sqrt(spread_V.sum().item() / 7))


def test_the_standard_error_of_a_gradient_misses_a_token_that_is_never_drawn():
    p = double([1.0, 1e-9]).log().log_softmax(-1)
    row = ke.sampled_gradients(p[None], double([0.5, 0.5]).log(), [0.0], 100, seed=0).set_index("estimator").loc["k3"]
    assert row["own_error"] < 1e-6 < 100 < row["error"]


# -- descent


def test_one_step_down_k3_by_hand():
    # On logits log π, the gradient is π - π_ref = (3/8, 1/8, -1/2).
    kl_T_R = ke.descend("k3", P, REF, learning_rate=0.8, steps=1)
    logps_V = (P - 0.8 * double([3 / 8, 1 / 8, -1 / 2])).log_softmax(-1)
    expected = (logps_V.exp() * (logps_V - REF)).sum().item()
    assert kl_T_R.shape == (2, 1)
    assert kl_T_R[1].item() == pytest.approx(expected)


def test_descending_k1_stays_and_descending_k2_or_k3_comes_nearer_at_every_step():
    for name, moves in (("k1", False), ("k2", True), ("k3", True)):
        kl_T = ke.descend(name, P, REF, learning_rate=0.2, steps=40)[:, 0]
        if moves:
            assert (kl_T.diff() < 0).all() and kl_T[-1] < 0.5 * kl_T[0]
        else:
            torch.testing.assert_close(kl_T, kl_T[:1].expand_as(kl_T))


def test_a_step_with_many_drawn_tokens_is_nearly_the_expected_step():
    expected = ke.descend("k2", P, REF, learning_rate=0.5, steps=1)[1]
    sampled = ke.descend("k2", P, REF, learning_rate=0.5, steps=1, tokens=20_000, runs=5, seed=0)[1]
    torch.testing.assert_close(sampled, expected.expand(5), atol=0.01, rtol=0)
    assert len(set(sampled.tolist())) == 5


def test_the_last_bits_of_a_start_do_not_decide_where_sampled_paths_end():
    """On another processor exp is rounded otherwise, and k1 multiplies any difference."""
    start_V = ke.moved_policies(ke.reference_policy(32, 0), [2.0], "random", 1)[0]
    options = dict(learning_rate=1.0, steps=400, tokens=16, runs=4)
    paths = [ke.descend("k1", logps_V, ke.reference_policy(32, 0), **options) for logps_V in (start_V, start_V + 1e-14)]
    torch.testing.assert_close(*paths, rtol=0, atol=1e-9)


def test_runs_repeat_with_their_seed():
    options = {"learning_rate": 0.5, "steps": 5, "tokens": 8, "runs": 3}
    first, again, other = (ke.descend("k3", P, REF, seed=seed, **options) for seed in (0, 0, 1))
    assert first.equal(again) and not first.equal(other)


def test_the_gradient_is_shortened_to_max_norm():
    gradient_V = double([3 / 8, 1 / 8, -1 / 2])
    kl_T_R = ke.descend("k3", P, REF, learning_rate=1.0, steps=1, max_norm=0.1)
    logps_V = (P - 0.1 * gradient_V / gradient_V.norm()).log_softmax(-1)
    assert kl_T_R[1].item() == pytest.approx((logps_V.exp() * (logps_V - REF)).sum().item())
    loose = ke.descend("k3", P, REF, learning_rate=1.0, steps=1, max_norm=10.0)
    assert loose.equal(ke.descend("k3", P, REF, learning_rate=1.0, steps=1))


def test_a_run_that_leaves_the_numbers_is_infinitely_far():
    assert ke.descend("k3", P, REF, learning_rate=math.inf, steps=2)[-1].item() == math.inf


def test_steps_until_a_share_of_the_start():
    kl_T = double([8.0, 5.0, 4.0, 1.0])
    assert ke.steps_until(kl_T, 0.5) == 2
    assert ke.steps_until(kl_T, 0.01) == math.inf


def test_tables_of_descents_say_where_they_began_and_ended():
    one, many = double([[8.0], [4.0], [3.0]]), double([[2.0, 2.0, 2.0], [1.0, math.inf, 1.5]])
    row = ke.descent_table({"far": {"k2": one}}).loc[("far", "k2")]
    assert row.tolist() == [8.0, 3.0, 1, math.inf]  # first, last, steps to 50 % and to 10 %
    row = ke.ends_table({"far": {"k3": many}}).loc[("far", "k3")]
    assert row["median last KL"] == 1.5 and row["ended farther away"] == pytest.approx(1 / 3)


# -- answers of two tokens


def kl_by_loop(policy, reference):
    total = 0.0
    for a in range(len(policy[0])):
        for b in range(len(policy[0])):
            logp = policy[0][a] + policy[1][a, b]
            total = total + logp.exp() * (logp - reference[0][a] - reference[1][a, b])
    return total


@quick
@given(seeds)
def test_k1_to_go_and_k2_of_the_answer_have_the_gradient_of_the_kl_of_answers(seed):
    policy, reference = answers(seed)
    found = ke.sequence_gradients(policy, reference)
    logits = [part.clone().requires_grad_() for part in policy]
    loss = kl_by_loop([part.log_softmax(-1) for part in logits], reference)
    exact = torch.autograd.grad(loss, logits)
    for name in ("KL of the answer", "k1 in the reward, to go", "k2 of the answer"):
        for part, true in zip(found[name], exact, strict=True):
            torch.testing.assert_close(part, true)


@quick
@given(seeds)
def test_k2_per_token_is_k1_paid_for_the_own_token_and_right_at_the_last_token_alone(seed):
    found = ke.sequence_gradients(*answers(seed))
    for k2, own in zip(found["k2 per token"], found["k1 in the reward, own token"], strict=True):
        torch.testing.assert_close(k2, own)
    torch.testing.assert_close(found["k2 per token"][1], found["KL of the answer"][1])
    assert ke.distance(found["k2 per token"][0], found["KL of the answer"][0]) > 1e-6


def test_k2_per_token_leaves_a_first_token_in_place_that_leads_to_divergence():
    (first, second), (_, reference_second) = answers(0)
    found = ke.sequence_gradients((first, second), (first, reference_second))  # no divergence at the first token
    assert found["k2 per token"][0].abs().max() < 1e-12
    assert found["KL of the answer"][0].abs().max() > 0.01


def test_without_later_divergence_k2_per_token_is_right():
    (first, _), reference = answers(0)
    found = ke.sequence_gradients((first, reference[1]), reference)
    torch.testing.assert_close(found["k2 per token"][0], found["KL of the answer"][0])


@pytest.mark.parametrize("penalty", ke.PENALTIES)
@pytest.mark.parametrize("beta", [0.2, 1.5])
def test_at_rest_the_gradient_of_reward_and_penalty_is_zero(penalty, beta):
    reference = ke.two_token_policy(4, seed=0)
    rewards = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    policy = ke.penalised_optimum(penalty, reference, rewards, beta)
    logits = [part.clone().requires_grad_() for part in policy]
    first, second = (part.log_softmax(-1) for part in logits)
    pull = torch.autograd.grad(((first[:, None] + second).exp() * rewards).sum(), logits)
    push = ke.sequence_gradients(policy, reference)[
        "KL of the answer" if penalty == "sequence" else f"{penalty} per token"
    ]
    for up, down in zip(pull, push, strict=True):
        torch.testing.assert_close(up, beta * down, atol=1e-9, rtol=0)
        assert up.abs().max() > 1e-3  # the two hold each other, neither is zero


def test_the_kl_of_answers_comes_to_rest_at_the_tilted_reference():
    first, second = ke.two_token_policy(3, seed=0)
    rewards = torch.arange(9, dtype=torch.float64).view(3, 3) / 4
    best = ke.penalised_optimum("sequence", (first, second), rewards, 0.5)
    joint = (first[:, None] + second + rewards / 0.5).flatten().log_softmax(-1).view(3, 3)
    torch.testing.assert_close(best[0][:, None] + best[1], joint)


@quick
@given(seeds, st.sampled_from([0.05, 0.3, 2.0]))
def test_no_other_penalty_has_more_reward_less_beta_kl(seed, beta):
    reference = ke.two_token_policy(3, seed)
    rewards = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    worth = {}
    for penalty in ke.PENALTIES:
        reward, kl = ke.outcome(ke.penalised_optimum(penalty, reference, rewards, beta), reference, rewards)
        worth[penalty] = (reward - beta * kl).item()
    assert worth["sequence"] >= max(worth.values()) - 1e-9


def test_equal_beta_averages_problems_solved_one_by_one():
    table = ke.equal_beta([0.5], vocabulary=3, problems=4, seed=0).set_index("penalty")
    firsts, seconds = ke.two_token_policy(3, 0, problems=4)
    rewards = torch.randn(4, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    kls = {}
    for penalty in ke.PENALTIES:
        kls[penalty] = double([
            ke.outcome(ke.penalised_optimum(penalty, (f, s), r, 0.5), (f, s), r)[1].item()
            for f, s, r in zip(firsts, seconds, rewards, strict=True)
        ])  # fmt: skip
        assert table.loc[penalty, "kl"] == pytest.approx(kls[penalty].mean().item())
        assert table.loc[penalty, "kl_error"] == pytest.approx(kls[penalty].std().item() / 2)  # sqrt(4)
    gap = kls["k2"] - kls["sequence"]
    assert table.loc["k2", "kl_gap"] == pytest.approx(gap.mean().item())
    assert table.loc["k2", "kl_gap_error"] == pytest.approx(gap.std().item() / 2)
    assert table.loc["sequence", ["kl_gap", "kl_gap_error"]].tolist() == [0, 0]


def test_a_penalty_that_is_unknown_or_has_no_weight_is_refused():
    reference = ke.two_token_policy(3, seed=0)
    with pytest.raises(ValueError, match="penalty='k4'"):
        ke.penalised_optimum("k4", reference, torch.zeros(3, 3), 1.0)
    with pytest.raises(ValueError, match="beta=0"):
        ke.penalised_optimum("k2", reference, torch.zeros(3, 3), 0.0)

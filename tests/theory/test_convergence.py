"""Theorem 3.1 on problems with exact gradients: against the library's losses, enumerated group by group."""

import dataclasses
import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agpo_core import losses, metrics, probe
from agpo_core.advantages import group_advantages
from agpo_core.theory import convergence
from agpo_core.theory.convergence import ARMS, PROBLEMS, Problem

G = 4
SMALL = Problem("two prompts of one state, one of another", (0, 1, 1), (2, 0, 1), group_size=G)
RUN = {"horizon": 40, "seeds": [0, 1], "eta_0": 20.0, "eta_high": 2.0, "eta_low": 0.6, "inner_steps": 4}
quick = settings(derandomize=True, max_examples=40)
logits = st.lists(st.floats(-2, 2), min_size=6, max_size=6).map(lambda x: np.array(x).reshape(1, 2, 3))


def enumerated(theta, old, epsilon, objective=losses.clipped_surrogate):
    """The gradient of the expected surrogate over all 3^4 groups of every prompt, by autograd through the library."""
    theta_S_K = torch.tensor(theta[0], requires_grad=True)
    old_S_K = torch.tensor(old[0]).log_softmax(-1)
    total = 0.0
    for state, right in zip(SMALL.state_P, SMALL.right_P, strict=True):
        for group in itertools.product(range(3), repeat=G):
            actions_G_1 = torch.tensor(group)[:, None]
            A_G_1 = group_advantages((actions_G_1.T == right).double()).T
            logps, old_logps = theta_S_K.log_softmax(-1)[state, actions_G_1], old_S_K[state, actions_G_1]
            ratio = losses.importance_ratio(logps, old_logps, torch.ones(G, 1))
            total = total + old_logps.exp().prod() * objective(ratio, A_G_1, epsilon).mean() / len(SMALL.state_P)
    return torch.autograd.grad(total, theta_S_K)[0].numpy()


def without_min(ratio, advantages, epsilon):
    return ratio.clamp(1 - epsilon, 1 + epsilon) * advantages


# -- exact gradients ---------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.05, 0.4])
def test_the_exact_gradient_is_that_of_the_library_over_all_groups_whatever_the_radius(epsilon):
    theta = np.random.default_rng(0).normal(size=(1, 2, 3))
    exact = convergence.gradient(theta, SMALL)[0]
    assert exact == pytest.approx(enumerated(theta, theta, epsilon), abs=1e-12)
    assert np.abs(exact).max() > 0.05


@pytest.mark.parametrize(("minimum", "objective"), [(True, losses.clipped_surrogate), (False, without_min)])
def test_away_from_the_old_policy_the_exact_gradient_is_that_of_the_library_over_all_groups(minimum, objective):
    rng = np.random.default_rng(1)
    old = rng.normal(size=(1, 2, 3))
    theta = old + 0.3 * rng.normal(size=(1, 2, 3))
    exact = convergence.clipped_gradient(theta, old, 0.2, SMALL, minimum)[0]
    assert exact == pytest.approx(enumerated(theta, old, 0.2, objective), abs=1e-12)
    free = convergence.clipped_gradient(theta, old, 100.0, SMALL, minimum)[0]
    assert np.abs(exact - free).max() > 1e-3  # the clip binds somewhere


@quick
@given(logits)
def test_at_the_old_policy_both_exact_gradients_agree(theta):
    clipped = convergence.clipped_gradient(theta, theta, 0.05, SMALL)
    assert clipped == pytest.approx(convergence.gradient(theta, SMALL), abs=1e-12)


@quick
@given(logits)
def test_the_gradient_is_that_of_the_objective(theta):
    exact = convergence.gradient(theta, SMALL)[0]
    for place in np.ndindex(2, 3):
        step = np.zeros((1, 2, 3))
        step[(0, *place)] = 1e-5
        up, down = (convergence.objective(theta + sign * step, SMALL)[0] for sign in (1, -1))
        assert (up - down) / 2e-5 == pytest.approx(exact[place], abs=1e-8)


def test_with_two_rollouts_the_objective_is_a_multiple_of_accuracy():
    # G = 2, one right: sigma = sqrt(1/2), A = (1/2) / sqrt(1/2) = sqrt(1/2), w = C(2, 1) * 1 * A / 2 = sqrt(1/2).
    assert convergence.weight(2).coef == pytest.approx([math.sqrt(0.5)], abs=1e-7)
    assert convergence.potential(2)(0.6) == pytest.approx(0.6 * math.sqrt(0.5), abs=1e-7)


def test_with_eight_rollouts_the_weight_is_largest_where_right_is_rare_or_certain():
    # p -> 0: one right of eight, sigma = sqrt(7/64 * 8/7) = sqrt(1/8), A = (7/8) / sqrt(1/8), w = 8 * A / 8 = 2.4749.
    w = convergence.weight(8)
    assert w(0.0) == pytest.approx(2.4749, abs=1e-4)
    assert w(0.3) == pytest.approx(w(0.7))
    assert w(0.5) < w(0.2) < w(0.0)


def test_tables_are_the_probe_statistics_of_a_group():
    actions = [0, 0, 1, 1, 1, 2, 2, 2]
    rewards = torch.tensor([[float(a == 2) for a in actions]], dtype=torch.float64)
    found, table = probe.prompt_statistics(rewards, [actions]), convergence.groups(8)
    assert table.sigma[3] == pytest.approx(found["sigma"].item())
    assert table.skewness[3] == pytest.approx(found["skewness"].item())
    assert table.surprise[[2, 3, 3]].sum() == pytest.approx(found["vote_entropy"].item())
    assert table.surprise[0] == 0 and table.surprise[8] == 0


def test_the_chances_of_all_compositions_add_up_to_one():
    counts = convergence.compositions(8, 3)
    assert len(counts) == 45  # C(10, 2)
    assert convergence.chances(counts, np.array([0.2, 0.3, 0.5])).sum() == pytest.approx(1)


def test_binary_rewards_have_an_objective_and_graded_ones_have_none():
    assert convergence.asymmetry((0.0, 0.0, 1.0), 8, policies=3) < 1e-7
    assert convergence.asymmetry((0.0, 0.5, 1.0), 8, policies=3) > 0.1


def test_the_field_of_binary_rewards_is_the_gradient():
    theta = np.array([0.3, -0.2, 0.5])
    alone = Problem("one prompt", (0,), (2,))
    assert convergence.field(theta, (0.0, 0.0, 1.0), 8) == pytest.approx(
        convergence.gradient(theta[None, None], alone)[0, 0]
    )


# -- one update ----------------------------------------------------------------------------------


def test_an_inner_gradient_is_that_of_the_librarys_loss_on_the_same_rollouts():
    rng = np.random.default_rng(2)
    old_theta = rng.normal(size=(1, 2, 3))
    theta = old_theta + 0.4 * rng.normal(size=(1, 2, 3))
    rollouts = [[0, 2, 2, 1], [0, 0, 1, 2], [1, 1, 0, 0]]  # one row per prompt
    counts = np.array([[[row.count(a) for a in range(3)] for row in rollouts]])
    policies = [convergence.policy(x, SMALL) for x in (theta, old_theta)]
    found, stopped = convergence.inner_gradient(*policies, counts, 0.2, SMALL)

    theta_S_K = torch.tensor(theta[0], requires_grad=True)
    states, actions = torch.tensor(SMALL.state_P)[:, None], torch.tensor(rollouts)
    A_P_G = group_advantages((actions == torch.tensor(SMALL.right_P)[:, None]).double())
    old_logps = torch.tensor(old_theta[0]).log_softmax(-1)[states, actions].view(-1, 1)
    ratio = losses.importance_ratio(
        theta_S_K.log_softmax(-1)[states, actions].view(-1, 1), old_logps, torch.ones(12, 1)
    )
    losses.clipped_surrogate(ratio, A_P_G.view(-1, 1), 0.2).mean().backward()
    assert found[0] == pytest.approx(theta_S_K.grad.numpy(), abs=1e-12)
    binds = metrics.clip_binds(ratio.detach(), A_P_G.view(-1, 1), 0.2)
    assert (counts * stopped).sum() == binds.sum().item() > 0


def test_the_first_inner_step_is_unbiased_and_later_ones_err_in_proportion_to_the_step():
    problem = PROBLEMS["distinct"]
    coarse, fine = (convergence.inner_bias(problem, eta, 4) for eta in (0.02, 0.002))
    assert coarse[0] == pytest.approx(0, abs=1e-12)
    assert np.all(np.diff(coarse) > 0)
    assert coarse[1:] / fine[1:] == pytest.approx(10, rel=0.05)


def test_the_bias_is_refused_where_the_first_prompt_shares_its_state():
    with pytest.raises(ValueError, match="state_P"):
        convergence.inner_bias(dataclasses.replace(SMALL, state_P=(0, 0, 1)), 0.1, 2)


# -- constants -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_policy_exceeds_the_constants(name):
    problem, rng = PROBLEMS[name], np.random.default_rng(3)
    found = convergence.constants(problem)
    states = len(problem.mean_S_P)
    theta = 2 * rng.normal(size=(200, states, 3))
    gains = convergence.objective(theta, problem) - convergence.objective(problem.start(), problem)
    assert gains.max() <= found.gain
    # F can bend no more than L along any direction
    direction = rng.normal(size=theta.shape)
    direction /= np.sqrt((direction**2).sum((1, 2), keepdims=True))
    up, down = (convergence.gradient(theta + sign * 1e-5 * direction, problem) for sign in (1, -1))
    assert np.abs(((up - down) * direction).sum((1, 2)) / 2e-5).max() <= found.smoothness
    # sampled gradients, one group per prompt
    old = convergence.policy(theta, problem)
    counts = rng.multinomial(problem.group_size, old)
    squares = (convergence.inner_gradient(old, old, counts, 0.2, problem)[0] ** 2).sum((1, 2))
    assert squares.mean() < found.second_moment


def test_the_second_moment_of_one_prompt_is_the_largest_over_policies():
    # G = 2, two rollouts of one prompt: |g|^2 = 2 (A / 2)^2 = 1/4 with A^2 = 1/2, if one is right: chance 2 p (1 - p).
    alone = Problem("one prompt", (0,), (0,), group_size=2)
    assert convergence.constants(alone).second_moment == pytest.approx(0.125, abs=1e-4)


def test_the_bound_adds_what_can_be_gained_and_what_noise_can_cost():
    found = convergence.Constants(gain=1.0, smoothness=0.5, second_moment=0.2)
    assert found.bound(10.0) == pytest.approx(1 / 10 + 10 * 0.5 * 0.2 / 2)


def test_constants_are_refused_for_other_than_three_actions():
    with pytest.raises(ValueError, match="start_K"):
        convergence.constants(Problem("", (0,), (0,), start_K=(0.5, 0.5)))


# -- runs ----------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_run_alone_and_among_others():
    among = convergence.simulate(PROBLEMS["distinct"], list(ARMS), **RUN)
    alone = convergence.simulate(PROBLEMS["distinct"], ["adaptive"], **{**RUN, "seeds": [1]})
    same = among[(among["arm"] == "adaptive") & (among["seed"] == 1)].reset_index(drop=True)
    pd.testing.assert_frame_equal(same, alone)


def test_radii_that_never_bind_give_equal_runs():
    quiet = convergence.simulate(PROBLEMS["distinct"], ["fixed", "adaptive"], **{**RUN, "eta_0": 0.05}).set_index("arm")
    assert (quiet["clipped"] == 0).all()
    assert quiet.loc["fixed", "gradient"].tolist() == quiet.loc["adaptive", "gradient"].tolist()
    assert quiet.loc["adaptive", "epsilon"].max() < 0.2
    loud = convergence.simulate(PROBLEMS["distinct"], ["fixed", "adaptive"], **RUN).set_index("arm")
    assert (loud.loc["adaptive", "clipped"] > 0).all()
    assert loud.loc["fixed", "gradient"].tolist() != loud.loc["adaptive", "gradient"].tolist()


@pytest.mark.parametrize("problem", [PROBLEMS["distinct"], Problem("two prompts alike", (0, 0), (1, 1))])
def test_no_radius_binds_from_its_inert_horizon_on(problem):
    inert = convergence.inert_horizon(problem, ARMS["fixed"].controller.epsilon, 3.0, 4)
    run = {**RUN, "eta_0": 3.0, "horizon": math.ceil(inert)}
    assert (convergence.simulate(problem, ["fixed"], **run)["clipped"] == 0).all()
    # and no idle bound: at a thirtieth of that horizon, with steps 5.5 times as long, the clip binds
    run["horizon"] = math.ceil(inert / 30)
    assert (convergence.simulate(problem, ["fixed"], **run)["clipped"] > 0).any()


def test_one_inner_step_sees_no_clip_and_climbs_the_objective():
    one = convergence.simulate(PROBLEMS["distinct"], ["one_step"], **{**RUN, "horizon": 200})
    assert (one["clipped"] == 0).all()
    assert (one["gain"] > 0.9 * convergence.constants(PROBLEMS["distinct"]).gain).all()


def test_the_first_update_starts_from_the_start():
    run = {**RUN, "horizon": 1}
    one = convergence.simulate(SMALL, ["fixed"], **run)
    exact = (convergence.gradient(SMALL.start(), SMALL) ** 2).sum()
    assert one["gradient"].tolist() == pytest.approx([exact, exact])
    assert one["gradient_last"].tolist() == one["gradient"].tolist()


def test_an_unknown_arm_and_an_empty_run_are_refused():
    with pytest.raises(ValueError, match="arms='agpo'"):
        convergence.simulate(SMALL, ["agpo"], **RUN)
    with pytest.raises(ValueError, match="horizon=0"):
        convergence.simulate(SMALL, ["fixed"], **{**RUN, "horizon": 0})


def test_runs_hold_every_arm_problem_horizon_and_seed_once():
    made = convergence.runs([3, 5], [0, 1], 20.0, 2.0, 0.6, 2)
    keys = made[["problem", "arm", "horizon", "seed"]]
    assert len(keys) == len(PROBLEMS) * len(ARMS) * 2 * 2 == len(keys.drop_duplicates())


# -- statistics ----------------------------------------------------------------------------------


@pytest.fixture
def made_up():
    """Mean squared gradients 0.3 (1 ± 0.1) T^-1/2, two seeds."""
    rows = [("p", "fixed", T, seed, (0.27 + 0.06 * seed) * T**-0.5) for T in (100, 1000, 10000) for seed in (0, 1)]
    return pd.DataFrame(rows, columns=["problem", "arm", "horizon", "seed", "gradient"])


def test_the_exponent_of_a_power_law_is_recovered(made_up):
    found = convergence.exponents(made_up)
    assert found.loc[("p", "fixed"), "exponent"] == pytest.approx(-0.5)
    assert math.isnan(found.loc[("p", "fixed"), "half"])  # both seeds have the same exponent: no spread, no interval


def test_one_horizon_has_no_exponent(made_up):
    assert convergence.exponents(made_up, shortest=5000).isna().all(axis=None)


def test_the_scaled_gradient_of_a_power_law_is_its_constant(made_up):
    found = convergence.over_seeds(made_up, convergence.scaled)
    assert found["mean"].tolist() == pytest.approx([0.3, 0.3, 0.3])
    # two values 0.06 apart: t(.975, 1) * (0.06 / sqrt 2) / sqrt 2 = 12.706 * 0.03
    assert found["half"].tolist() == pytest.approx([0.38119] * 3, abs=1e-4)


@pytest.mark.parametrize(
    ("power", "verdict", "reached_at"),
    [(-0.3, "contradicted", [10000]), (-0.5, "tight", [100, 10000]), (-0.8, "loose", [100])],
)
def test_the_verdict_follows_the_exponent_of_the_last_horizons(made_up, power, verdict, reached_at):
    wobble = 1 + 0.01 * (-1) ** made_up.index.to_numpy() * (made_up["horizon"] == 1000)
    made_up["gradient"] = (0.3 + 0.001 * made_up["seed"]) * made_up["horizon"] ** power * wobble
    found = convergence.judge(made_up, shortest=1000).loc[("p", "fixed")]
    assert found["verdict"] == verdict and found["reached_at"] in reached_at


@pytest.mark.parametrize(("power", "words"), [(-0.3, "no C would do"), (-0.5, "falls alike"), (-0.8, "falls faster")])
def test_an_arm_that_the_theorem_does_not_cover_neither_confirms_nor_contradicts_it(made_up, power, words):
    made_up["arm"] = "fixed_cosine"
    made_up["gradient"] = (0.3 + 0.001 * made_up["seed"]) * made_up["horizon"] ** power
    made_up["gradient"] *= 1 + 0.01 * made_up["seed"] * (made_up["horizon"] == 10000)  # seeds differ in the exponent
    found = convergence.judge(made_up, shortest=100).loc[("p", "fixed_cosine")]
    assert found["verdict"] == f"{words} (another schedule)"


def test_one_seed_leaves_the_verdict_open(made_up):
    assert convergence.judge(made_up[made_up["seed"] == 0], shortest=100)["verdict"].tolist() == ["undecided"]


# -- Lemma 1 -------------------------------------------------------------------------------------


def test_controllers_stay_within_their_bounds_and_reach_beyond_them_without():
    found = convergence.lemma(500, 0)
    assert (found["lower"] <= found["lowest"]).all() and (found["highest"] <= found["upper"]).all()
    assert (found["raw_highest"] > found["upper"]).all()
    assert (found["at_bound"] > 0).all()


def test_extreme_signals_are_reproducible_and_extreme():
    signals = convergence.extreme_signals(500, 0)
    assert signals == convergence.extreme_signals(500, 0)
    assert min(s.step_kl for s in signals) < -1e9 and max(s.entropy for s in signals) > 1e9
    assert any(s.sigma == 0 for s in signals) and all(s.sigma >= 0 for s in signals)

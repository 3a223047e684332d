"""Every fault in the papers' texts is found again: one test per fault, with its name."""

import itertools
import math

import numpy as np
import pytest
import torch

from agpo_core import advantages, controllers, kl, losses, metrics, probe
from agpo_core.experiments import published
from agpo_core.theory import bias

BINARY = torch.tensor([[1.0] * k + [0.0] * (8 - k) for k in range(9)], dtype=torch.float64)


def value(reference: str) -> float:
    (number,) = published.find(reference)
    return number.value


def column(place: str, name: str) -> dict[str, float]:
    return published.table(place)[name].to_dict()


def test_every_fault_is_found_again():
    faults, tests = {f.name for f in published.faults()}, {name.removeprefix("test_") for name in globals()}
    assert len(faults) == len(published.faults()) and faults <= tests, faults - tests
    assert {f.text for f in published.faults()} == {"AGPO", "commentary"}


# -- AGPO


def fits(cell: float, questions: int, runs: int = 3) -> bool:
    """Whether the mean of runs on so many questions can be this, to 0.1 %; each run may have been rounded first."""
    if any(abs(100 * right / (runs * questions) - cell) <= 0.05 + 1e-9 for right in range(runs * questions + 1)):
        return True
    tenths = [round(1000 * right / questions) for right in range(questions + 1)]
    two = {a + b for a in tenths for b in tenths}
    wanted = [total for total in range(3001) if abs(total / runs - 10 * cell) <= 0.5]
    return any(total - third in two for total in wanted for third in tenths)


def test_cells_of_gaokao_cloze():
    cells = column("AGPO Table 1", "GaokaoCloze").values()
    assert [cell for cell in cells if not fits(cell, 118)] == [18.8, 19.6, 20.5, 25.9]
    cut = {math.floor(1000 * right / (3 * 118)) / 10 for right in range(3 * 118 + 1)}
    assert [cell for cell in cells if cell not in cut] == [18.8, 19.6, 20.5, 21.2]


def test_size_of_sat():
    cells = column("AGPO Table 1", "SAT").values()
    assert [cell for cell in cells if not fits(cell, 32)] == [77.7, 80.6, 87.9, 89.3]
    assert all(fits(cell, 220) for cell in cells)


def test_ats_improves_over_grpo():
    table = published.table("AGPO Table 1")
    gap = table.loc["GRPO + ATS"] - table.loc["GRPO (fixed ε)"]
    assert gap[gap < 0].index.tolist() == ["MMLU_STEM", "GaokaoQA"]


def test_gain_of_one_benchmark():
    table = published.table("AGPO Table 1")
    gap = table.loc["AGPO (full)"] - table.loc["AGPO (-ATS)"]
    assert gap.mean() == pytest.approx(value("AGPO §4.2.3 | AGPO (full) − AGPO (-ATS)"), abs=0.05)
    assert (gap["GaokaoCloze"], gap.sum()) == pytest.approx((4.7, 12.3))
    assert gap.drop("GaokaoCloze").mean() == pytest.approx(0.95)


def test_tokens_of_table_2():
    table = published.table("AGPO Table 2")
    millions = table["throughput"] * table["hours to 65 % GSM8K"] * 3600 / 1000
    budget = value("AGPO §4.1 | setting | token budget")
    assert millions[millions > budget].round(1).to_dict() == {"GRPO (fixed ε)": 303.7}


def test_target_of_table_2():
    end = published.table("AGPO Table 1").loc[list(column("AGPO Table 2", "hours to 65 % GSM8K")), "GSM8K"]
    assert end[end < 65].to_dict() == {"PPO": 54.1, "Adaptive-KL PPO": 64.8}


def test_unit_of_gradient_variance():
    whole = value("AGPO Table 5 | std (default) | Var ‖∇‖")
    assert whole + value("AGPO Table 4 | − Step KL | Δ Var ‖∇‖") == 13 * whole


def test_kappa_max_is_idle():
    bound = 6 / math.sqrt(7)  # (G - 2) / sqrt(G - 1) = 2.268
    assert probe.skewness(BINARY[1:2]).item() == pytest.approx(bound)  # one right of eight meets it
    draws = torch.randn(2000, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).exp()
    assert probe.skewness(draws).abs().max() <= bound < value("AGPO §3.1.3 | setting | κ_max")
    assert next(G for G in itertools.count(3) if (G - 2) / math.sqrt(G - 1) > 10) == 103


def test_bounds_of_tau_are_idle():
    # σ̂ of rewards in [0, 1] is largest for four 0 and four 1; votes are most uncertain when all eight differ
    largest = probe.dispersion(BINARY).max().item() + math.log(8) + 0.1 * 6 / math.sqrt(7)
    assert largest == pytest.approx(2.8408, abs=1e-4)
    reach = value("AGPO §4.1 | setting | λ") * largest
    assert value("AGPO §4.1 | setting | τ_min") < 1 - reach < 1 + reach < value("AGPO §4.1 | setting | τ_max")


def test_three_orthogonal_signals():
    sigma, skewness = probe.dispersion(BINARY)[1:8], probe.skewness(BINARY)[1:8].abs()
    # in groups of both kinds |κ̃₃| falls where σ̂ rises: one fixes the other
    order = sigma.argsort(stable=True)
    assert (skewness[order].diff() <= 1e-12).all()
    for a, b in itertools.combinations(range(7), 2):
        assert torch.isclose(sigma[a], sigma[b]) == torch.isclose(skewness[a], skewness[b])


def test_group_of_one():
    with pytest.raises(ValueError, match="group"):
        advantages.group_advantages(torch.tensor([[0.7]]))


def test_zero_start_only_heats():
    temperature = controllers.AdaptiveTemperature()
    signals = probe.ProbeState(sigma=0.5, skewness=0.7, vote_entropy=1.0)
    U, state, reached = temperature.uncertainty(signals), temperature.initial_state(), None
    for update in range(200):
        if reached is None and state["baseline"] >= 0.95 * U:
            reached = update
        tau, state = temperature.update(state, signals)
        assert tau > 1
    assert reached == 59  # 1 - .95^59 = .9515


def test_mad_of_right_and_wrong():
    mad = probe.dispersion(BINARY, mode="mad", fallback="zero")
    assert (mad > 0).nonzero().flatten().tolist() == [4]
    # one right of eight, Eq. 1 as printed: 7/8 over 0 + 1e-8
    assert (1 - 1 / 8) / value("AGPO §3.1.1 | setting | ε_A") == pytest.approx(8.75e7)


def test_memory_of_14b():
    billions, GPUs = 14.7, 2
    # bf16 weights whole; bf16 gradients, fp32 weights and two moments shared (ZeRO-2)
    assert billions * 2 + billions * (2 + 12) / GPUs == pytest.approx(132.3) and 132.3 > 80


# -- the commentary on REINFORCE++

TABLE_4 = published.table("R++ Table 4").drop(columns="average")


def test_ppo_without_aime_2025():
    without = TABLE_4.drop(columns="AIME 2025").mean(axis=1)
    said = column("R++ commentary §5", "average without AIME 2025")
    off = {row: round(without[row], 2) for row in without.index if abs(without[row] - said[row]) > 0.006}
    assert off == {"PPO": pytest.approx(21.90, abs=0.006)} and said["PPO"] == 22.89
    assert without["REINFORCE++-baseline"] - without["PPO"] == pytest.approx(1.43, abs=0.005)
    assert value("R++ commentary §6.1") == 0.44


def test_trails_ppo_by_037():
    lead = TABLE_4.loc["REINFORCE++-baseline"] - TABLE_4.loc["PPO"]
    assert (lead > 0).all() and lead["AIME 2024"] == pytest.approx(0.63)
    said = [value(f"R++ commentary §5 | REINFORCE++-baseline − PPO | AIME 2024, {when}") for when in ("first", "later")]
    assert said == [-0.37, 0.63]


def test_average_at_32_is_no_pass_at_32():
    cells = TABLE_4.to_numpy().flatten()
    means = {math.floor(10000 * k / (30 * 32) + 1e-9) / 100 for k in range(30 * 32 + 1)}
    assert len(cells) == 15 and set(cells) <= means  # another cell would match one with chance .1
    assert all(abs(cell - 100 * k / 30) > 0.02 for cell in cells for k in range(31))  # pass@32 of 30 problems


def passes(counts, n: int, k: int = 16) -> float:
    return 100 * float(np.mean(metrics.pass_at_k(n, counts, k).numpy()))


def test_samples_of_table_2():
    problems, step = 30, 0.05 + 1e-9  # of AIME-25; of a number printed with one decimal
    at_1, at_16 = (value(f"R++ Table 2 | REINFORCE++ (k > 1) | AIME-25, pass@{k}") for k in (1, 16))
    possible = []
    for n in range(16, 257):
        right = math.floor(problems * n * (at_1 + step) / 100)
        # pass@16 is concave in a problem's right answers: it is largest where they are spread evenly
        even = [right // problems + (i < right % problems) for i in range(problems)]
        if 100 * right / (problems * n) >= at_1 - step and passes(even, n) >= at_16 - step:
            possible.append(n)
    assert possible and max(possible) == 40
    assert 100 * (1 - (1 - (at_1 + step) / 100) ** 16) < at_16 - step  # the limit of many samples
    # One right answer among all of GRPO's gives the least pass@16 above zero.
    least = [passes([1] + [0] * (problems - 1), n) for n in range(16, 257)]
    fewest = next(
        n for n, share in enumerate(least, start=16) if share <= value("R++ Table 2 | GRPO | AIME-25, pass@16") + step
    )
    assert fewest == 119


def test_shortest_responses():
    assert value("R++ Table 1 | ReMax | length") < value("R++ Table 1 | REINFORCE++ (k = 1) | length")


def test_readings_of_fig_4():
    readings = published.table("R++ Fig. 4").loc["GRPO"]
    others = readings[[f"{people} people" for people in range(3, 9)]].sum()
    needed = 7 * readings["mean of 2 to 8 people"] - others
    assert needed == pytest.approx(62.9)
    (at_two,) = published.find("R++ Fig. 4 | GRPO | 2 people")
    assert needed < at_two.value - at_two.spread
    assert (others + 70) / 7 - readings["mean of 2 to 8 people"] == pytest.approx(
        1.01, abs=0.01
    )  # a point each, at least


@pytest.mark.parametrize("gap", [1.0, 1e-3, 1e-6])
@pytest.mark.parametrize("G", [2, 4, 8])
def test_advantages_explode(G, gap):
    rewards = torch.full((1, G), 0.5, dtype=torch.float64)
    rewards[0, 0] += gap
    A = advantages.group_advantages(rewards, eps=0.0)
    assert A.abs().max().item() == pytest.approx((G - 1) / math.sqrt(G))
    draws = torch.randn(2000, G, dtype=torch.float64, generator=torch.Generator().manual_seed(G)) * gap
    assert advantages.group_advantages(draws).abs().max() <= (G - 1) / math.sqrt(G) + 1e-12
    assert (advantages.group_advantages(rewards * 0 + 0.5) == 0).all()


def test_small_std_small_advantage():
    rewards = torch.tensor([[0.1, 0.4, 0.2, 0.9]], dtype=torch.float64)
    closer = 0.5 + 0.001 * rewards
    torch.testing.assert_close(
        advantages.group_advantages(rewards, eps=0.0), advantages.group_advantages(closer, eps=0.0)
    )


def test_symmetric_rewards():
    zero_one = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    mask = torch.ones(5, 3, dtype=torch.bool)
    ours, symmetric = (advantages.reinforce_pp_advantages(r, mask, eps=0.0) for r in (zero_one, 2 * zero_one - 1))
    torch.testing.assert_close(ours, symmetric)


def policies():
    generator = torch.Generator().manual_seed(0)
    logits, reference = torch.randn(2, 5, dtype=torch.float64, generator=generator)
    logp = logits.requires_grad_().log_softmax(-1)
    return logits, logp, reference.log_softmax(-1)


def test_sign_of_k1():
    _, logp, reference = policies()
    mean = (logp.exp() * kl.k1(logp, reference)).sum()
    torch.testing.assert_close(mean, (logp.exp() * (logp - reference)).sum())
    assert mean > 0


def test_value_of_k3():
    _, logp, reference = policies()
    mean = (logp.exp() * kl.k3(logp, reference)).sum()
    reverse, forward = (logp.exp() * (logp - reference)).sum(), (reference.exp() * (reference - logp)).sum()
    torch.testing.assert_close(mean, reverse)
    assert abs(mean - forward) > 0.01


def test_gradient_of_k1():
    logits, logp, reference = policies()
    (gradient,) = torch.autograd.grad((logp.exp().detach() * kl.k1(logp, reference)).sum(), logits)
    assert gradient.abs().max() < 1e-15


def test_small_advantages_overestimated():
    epsilon = torch.linspace(0.01, 3, 300, dtype=torch.float64)
    over = bias.conditional_expectation(epsilon, 8) - epsilon
    assert 0 < over.max() < 0.04
    assert bias.conditional_expectation(2.0, 8).item() / 2 == pytest.approx(0.83, abs=0.005)
    assert (bias.conditional_expectation(epsilon, 2) < epsilon).all()


def test_credit_of_the_last_token():
    logps = torch.full((1, 4), -1.0, dtype=torch.float64, requires_grad=True)
    A = torch.tensor([[0.0, 0.0, 0.0, 1.3]], dtype=torch.float64)
    ratio = losses.importance_ratio(logps, logps.detach(), torch.ones(1, 4, dtype=torch.bool))
    (gradient,) = torch.autograd.grad(losses.clipped_surrogate(ratio, A, 0.2).sum(), logps)
    assert (gradient[0, :3] == 0).all() and gradient[0, 3] != 0

"""What a group's mean leaves of 0/1 rewards: held against every sequence of rewards, one by one."""

import itertools
import math

import pytest
import torch

from agpo_core import advantages
from agpo_core.theory import group_means

PROMPTS = [0.1, 0.35, 0.5, 0.9]


def every_group(group_size: int, p: float):
    """Each of the 2^G sequences of rewards with its probability: slow and obvious."""
    for rewards in itertools.product((0.0, 1.0), repeat=group_size):
        yield rewards, math.prod(p if r else 1 - p for r in rewards)


@pytest.mark.parametrize("p", [0.0, 0.05, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("group_size", [1, 2, 5, 8])
def test_the_share_of_silent_groups_is_that_of_all_groups_without_a_difference(group_size, p):
    wanted = sum(chance for rewards, chance in every_group(group_size, p) if len(set(rewards)) == 1)
    assert group_means.silent_share(group_size, p).item() == pytest.approx(wanted, abs=1e-12)


def test_the_informative_rollouts_of_a_batch_are_those_worked_by_hand():
    # 1 - .8² - .2² = .32 and 1 - .8⁸ - .2⁸ = .832225
    assert group_means.informative(288, 2, 0.2).item() == pytest.approx(92.16)
    assert group_means.informative(288, 8, 0.2).item() == pytest.approx(239.68, abs=0.01)


def test_within_and_between_add_up_to_the_variance_of_all_rewards():
    within, between = group_means.split_variance(PROMPTS)
    p = sum(PROMPTS) / len(PROMPTS)
    assert (within + between).item() == pytest.approx(p * (1 - p))


@pytest.mark.parametrize("group_size", [2, 3, 6])
@pytest.mark.parametrize("mean", group_means.MEANS)
def test_worth_is_signal_squared_over_noise_summed_over_every_group(mean, group_size):
    within, between = group_means.split_variance(PROMPTS)
    level, signal, noise = sum(PROMPTS) / len(PROMPTS), 0.0, 0.0
    for p in PROMPTS:
        for rewards, chance in every_group(group_size, p):
            baseline = sum(rewards) / group_size if mean == "group" else level
            for r in rewards:
                signal += chance * (r - baseline) * (r - p) / group_size / len(PROMPTS)
                noise += chance * (r - baseline) ** 2 / group_size / len(PROMPTS)
    wanted = signal**2 / within.item() / noise
    assert group_means.worth(mean, group_size, within, between).item() == pytest.approx(wanted)


def test_both_baselines_are_worth_the_same_at_the_break_even():
    within, between = group_means.split_variance(PROMPTS)
    G = group_means.break_even(within, between)
    group, batch = (group_means.worth(mean, G, within, between) for mean in group_means.MEANS)
    assert group.item() == pytest.approx(batch.item())
    assert group_means.worth("group", G + 1, within, between) > batch


def test_a_pair_keeps_half_of_the_signal_also_in_the_library_advantages():
    p, signal = 0.3, 0.0
    for rewards, chance in every_group(2, p):
        A = advantages.dr_grpo_advantages(torch.tensor([rewards], dtype=torch.float64))[0]
        signal += chance * sum(a * (r - p) for a, r in zip(A.tolist(), rewards, strict=True)) / 2
    assert signal == pytest.approx(p * (1 - p) / 2)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: group_means.silent_share(0, 0.5), "at least one rollout"),
        (lambda: group_means.silent_share(2, 1.5), "p must lie"),
        (lambda: group_means.worth("prompt", 2, 0.1, 0.1), "choose from group, batch"),
    ],
)
def test_what_cannot_be_is_refused_by_name(call, match):
    with pytest.raises(ValueError, match=match):
        call()

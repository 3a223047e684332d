"""The exact chance that a vote of independent samples is right."""

import doctest
import itertools
import math

import pytest
import torch

from agpo_core.metrics import majority_at_k
from agpo_core.theory import voting
from agpo_core.theory.voting import vote_chance


def by_enumeration(right, wrong, k):
    """Every sequence of k answers with its chance; the last answer is silence."""
    chances = [right, *wrong, 1 - right - sum(wrong)]
    total = 0.0
    for answers in itertools.product(range(len(chances)), repeat=k):
        votes = [answers.count(i) for i in range(len(chances) - 1)]
        if 0 < votes[0] == max(votes):
            total += math.prod(chances[i] for i in answers) / votes.count(max(votes))
    return total


def test_examples_in_docstrings_hold():
    assert doctest.testmod(voting).failed == 0


def test_three_votes_by_hand():
    # right .4, wrong .5 and .1: three alike .064; two alike, 3 · .16 · .6 = .288; one each is tied, 6 · .02 / 3 = .04
    assert vote_chance(0.4, [0.5, 0.1], 3) == pytest.approx(0.064 + 0.288 + 0.04)


@pytest.mark.parametrize("k", [1, 2, 4, 5])
@pytest.mark.parametrize(("right", "wrong"), [(0.4, [0.5, 0.1]), (0.3, [0.2, 0.2, 0.1]), (0.5, []), (0.0, [0.7])])
def test_the_chance_is_the_sum_over_every_sequence_of_answers(right, wrong, k):
    assert vote_chance(right, wrong, k) == pytest.approx(by_enumeration(right, wrong, k), abs=1e-12)


@pytest.mark.parametrize("k", [3, 16, 33, 64])
def test_between_two_answers_it_is_the_binomial(k):
    p = 0.45
    chances = [math.comb(k, n) * p**n * (1 - p) ** (k - n) for n in range(k + 1)]
    expected = sum(chances[k // 2 + 1 :]) + (0.5 * chances[k // 2] if k % 2 == 0 else 0.0)
    assert vote_chance(p, [1 - p], k) == pytest.approx(expected, abs=1e-12)


def test_condorcet_the_likelier_answer_gains_and_the_less_likely_one_loses():
    odd = range(1, 64, 2)
    above, below = ([vote_chance(p, [1 - p], k) for k in odd] for p in (0.55, 0.45))
    assert above == sorted(above) and below == sorted(below, reverse=True)
    # A plurality is enough: .4 against four wrong answers of .15 wins ever more often.
    spread = [vote_chance(0.4, [0.15] * 4, k) for k in (1, 4, 16, 64)]
    assert spread == sorted(spread) and spread[0] == pytest.approx(0.4) and spread[-1] > 0.99


def test_all_answers_win_together_once():
    chances = [0.35, 0.3, 0.2, 0.15]
    wins = [vote_chance(p, chances[:i] + chances[i + 1 :], 16) for i, p in enumerate(chances)]
    assert sum(wins) == pytest.approx(1, abs=1e-12)


def test_the_estimate_from_samples_is_right_on_average():
    generator = torch.Generator().manual_seed(0)
    drawn = torch.multinomial(torch.tensor([0.4, 0.5, 0.1]), 2000 * 24, True, generator=generator)
    found = majority_at_k(drawn.view(2000, 24).tolist(), [0] * 2000, 4)
    error = found.std().item() / math.sqrt(2000)
    assert abs(found.mean().item() - vote_chance(0.4, [0.5, 0.1], 4)) < 4 * error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.6, [0.5], 3), "add up to 1 or less"),
        ((-0.1, [0.5], 3), "must be 0 or more"),
        ((0.5, [0.5], 0), "k=0 must lie between"),
        ((0.5, [0.5], 171), "k=171 must lie between"),
    ],
)
def test_what_is_no_chance_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        vote_chance(*arguments)

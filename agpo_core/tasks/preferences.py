"""A task without one right answer: strings that please a hidden judge.

A prompt is a few letters, `gcaf:`, and a completion is a string. The gold reward says how much the judge likes a
string; it stands in for what people want of a chat model. A policy is trained on a reward model, which is learned from
preferences, so the two can diverge: the reward model's score goes on rising while the gold reward falls. The gold
reward, defined below, makes this visible and is shown to no model. (Gao et al. 2023 use a large reward model as gold.)

The preferences are noisy and follow the model of Bradley and Terry (1952) exactly. So the errors of the reward model
come from its few examples and from strings unlike them, not from the form of its loss.
"""

from __future__ import annotations

import math
from random import Random

from agpo_core.grading import Graded
from agpo_core.tasks.micro import Item, MicroTask
from agpo_core.tasks.problem import Problem

LETTERS = "abcdefghij"
LONGEST = 7  # characters that cost nothing
BOUND = 16.0  # largest size of the gold reward that `to_grade` maps into [0, 1] without clamping


def gold_reward(prompt: str, text: str) -> float:
    """The gold reward of a string: how much the judge likes it.

    gold = 1 for each letter of the prompt that is in the text
         + 1/2 for each neighbouring pair of letters in alphabetical order
         - 1 for each character that is not in the prompt
         - 1 for each character that is in the text already
         - 1/2 for each character beyond the seventh

    The best string has the n letters of the prompt once each, in alphabetical order: n + (n - 1) / 2.

    Args:
        prompt: letters, closed by a colon.
        text: any string.

    Example:
        >>> gold_reward("cab:", "abc"), gold_reward("cab:", "aax")  # 3 + 2/2; 1 + 1/2 (a < x) - 1 (x) - 1 (a again)
        (4.0, -0.5)
    """
    asked = set(prompt) - {":"}
    pairs = sum(a < b for a, b in zip(text, text[1:], strict=False) if a.isalpha() and b.isalpha())
    foreign = sum(character not in asked for character in text)
    return len(asked & set(text)) + pairs / 2 - foreign - (len(text) - len(set(text))) - max(0, len(text) - LONGEST) / 2


def to_grade(gold: float) -> float:
    """The gold reward as a grade: (gold + 16) / 32, clamped to [0, 1]. Unclamped, means map to means."""
    return min(max((gold + BOUND) / (2 * BOUND), 0.0), 1.0)


def to_gold(grade: float) -> float:
    """The gold reward of a grade, or the mean gold of a mean grade: 32 grade - 16."""
    return 2 * BOUND * grade - BOUND


class Preferences(MicroTask):
    """`gcaf:` → `acfg`: the prompt's letters in alphabetical order please most; the string is the vote key."""

    name = "preferences"
    title = "Strings that please a hidden judge"
    stands_in_for = "Chat-Arena-Hard"
    slip_share = (0.5, 0.5)

    def draw(self, rng, index):
        letters = rng.sample(LETTERS, rng.randint(4, 6))
        return Item("".join(letters) + ":", "".join(sorted(letters)), tuple(letters), 0.5)

    def demonstrate(self, item, rng, slip):
        """Some letters of the prompt in random order; with `slip`, random letters (also repeated ones) among them.

        No demonstration sorts on purpose. Otherwise the most likely string of a trained policy would be the best one
        already.
        """
        letters = rng.sample(item.working, rng.randint(2, len(item.working)))
        for _ in range(rng.randint(1, 3) if slip else 0):
            letters.insert(rng.randint(0, len(letters)), rng.choice(LETTERS))
        return "".join(letters)

    def extract(self, problem, completion):
        return completion or None

    def grade(self, problem: Problem, completion: str) -> Graded:
        return Graded(to_grade(gold_reward(problem.prompt, completion)), self.extract(problem, completion))

    def prompts(self, seed: int, count: int) -> list[str]:
        """Prompts from the pool of the demonstrations, on which preferences are drawn; some may be equal."""
        rng = Random(f"{self.name} prompts {seed}")
        return [self.item("supervised", rng, index).prompt for index in range(count)]


def prefer(prompt: str, first: str, second: str, temperature: float, rng: Random) -> tuple[str, str]:
    """The judge's noisy choice between two strings.

    P(first) = σ((gold(first) - gold(second)) / temperature)                    (Bradley and Terry 1952)

    Args:
        prompt: the prompt that the strings answer.
        first, second: strings.
        temperature: > 0, units of gold reward; the higher it is, the more often the worse string is chosen.
        rng: gives the one random number that decides.
    Returns:
        (chosen, rejected).
    Raises:
        ValueError: the temperature is not above 0.

    Example:
        >>> prefer("cab:", "x", "abc", 0.5, Random(0))  # the better wins with probability σ(10)
        ('abc', 'x')
    """
    if not temperature > 0:
        raise ValueError(f"temperature={temperature} must be above 0; take a small one for choices with little noise.")
    margin = (gold_reward(prompt, first) - gold_reward(prompt, second)) / temperature
    first_wins = rng.random() < (1 + math.tanh(margin / 2)) / 2  # σ, without overflow
    return (first, second) if first_wins else (second, first)

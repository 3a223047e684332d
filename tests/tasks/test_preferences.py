"""The hidden judge: its gold reward, its preferences, and the task's grade."""

import math
from itertools import islice
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agpo_core.tasks import get_task
from agpo_core.tasks.micro import ALPHABET, SIZES, pool
from agpo_core.tasks.preferences import BOUND, LETTERS, gold_reward, prefer, to_gold, to_grade

PROMPTS = st.lists(st.sampled_from(LETTERS), min_size=4, max_size=6, unique=True).map(lambda x: "".join(x) + ":")


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("", 0.0),
        ("abcd", 5.5),  # 4 letters + 3 ascending pairs / 2
        ("dcba", 4.0),  # 4 letters, no pair ascends
        ("bdac", 5.0),  # 4 + (b < d, a < c) / 2
        ("abcda", 4.5),  # 4 + 3/2 - 1 for the second a
        ("abcdh", 5.0),  # 4 + (a < b < c < d < h: 4) / 2 - 1 for h, which is not in the prompt
        ("hh", -3.0),  # 0 letters - 2 foreign - 1 repeated
        ("a b", 1.0),  # 2 letters - 1 foreign space; no pair of letters are neighbours
        ("abcdefgh", 3.0),  # 4 + 7/2 - 4 foreign - 1/2 for the eighth character
        ("abcdabcd", 2.5),  # 4 + 6/2 - 4 repeated - 1/2 beyond seven
    ],
)
def test_the_gold_reward_by_hand(text, gold):
    assert gold_reward("cadb:", text) == gold


@given(PROMPTS, st.text(alphabet=LETTERS + ": x", max_size=12))
@settings(derandomize=True, max_examples=60)
def test_no_string_beats_the_letters_in_order(prompt, text):
    letters = "".join(sorted(prompt[:-1]))
    best = gold_reward(prompt, letters)
    assert best == len(letters) + (len(letters) - 1) / 2
    assert gold_reward(prompt, text) <= best


def test_the_answer_of_a_problem_is_the_best_string():
    for problem in get_task("preferences").problems("dev"):
        assert problem.answer == "".join(sorted(problem.prompt[:-1]))


def test_no_character_added_to_the_best_string_makes_it_better():
    for at in range(5):
        for character in LETTERS + "x: ":
            text = "abcd"[:at] + character + "abcd"[at:]
            assert gold_reward("cadb:", text) < 5.5


@given(PROMPTS, st.text(max_size=60))
@settings(derandomize=True, max_examples=60)
def test_every_text_has_a_grade_in_bounds_that_gives_the_gold_back(prompt, text):
    gold = gold_reward(prompt, text)
    grade = to_grade(gold)
    assert 0.0 <= grade <= 1.0
    assert to_gold(grade) == pytest.approx(min(max(gold, -BOUND), BOUND))


def test_a_mean_grade_gives_the_mean_gold():
    golds = [-3.0, 0.5, 5.5]
    assert to_gold(sum(map(to_grade, golds)) / 3) == pytest.approx(sum(golds) / 3)


def test_the_vote_key_is_the_string_itself():
    task = get_task("preferences")
    problem = task.problems("test")[0]
    assert task.grade(problem, "ab").answer == "ab"
    assert task.grade(problem, "").answer is None
    assert task.grade(problem, "").reward == 0.5  # gold 0
    assert task.grade(problem, problem.answer).reward == to_grade(gold_reward(problem.prompt, problem.answer))


def test_splits_are_full_and_disjoint_and_apart_from_what_models_are_made_of():
    task = get_task("preferences")
    prompts = {split: {p.prompt for p in task.problems(split)} for split in SIZES}
    assert {split: len(found) for split, found in prompts.items()} == SIZES
    prompts["demonstrations"] = {prompt for prompt, _ in islice(task.demonstrations(seed=1), 1000)}
    assert all(pool(prompt) == split for split in SIZES for prompt in prompts[split])
    assert len(set.union(*prompts.values())) == sum(map(len, prompts.values()))
    drawn = task.prompts(seed=1, count=500)
    assert len(drawn) == 500
    assert {pool(prompt) for prompt in drawn} == {"supervised"}
    assert drawn == get_task("preferences").prompts(seed=1, count=500) != task.prompts(seed=2, count=500)


def test_demonstrations_are_within_the_vocabulary_and_good_but_not_the_best():
    pairs = list(islice(get_task("preferences").demonstrations(seed=3), 2000))
    assert set("".join(prompt + text for prompt, text in pairs)) <= set(ALPHABET)
    assert pairs == list(islice(get_task("preferences").demonstrations(seed=3), 2000))
    golds = [gold_reward(*pair) for pair in pairs]
    best = [gold_reward(prompt, "".join(sorted(prompt[:-1]))) for prompt, _ in pairs]
    assert 1.0 < sum(golds) / len(golds) < 4.0 < sum(best) / len(best)
    assert any(gold == top for gold, top in zip(golds, best, strict=True))  # some are the best string


class Fixed:
    """A generator that draws one number."""

    def __init__(self, u):
        self.u = u

    def random(self):
        return self.u


@pytest.mark.parametrize("temperature", [0.25, 1.0, 3.0])
def test_the_first_is_chosen_with_the_probability_of_bradley_and_terry(temperature):
    # gold 5.5 against 4.0
    p = 1 / (1 + math.exp(-1.5 / temperature))
    for u, chosen in ((p - 1e-9, "abcd"), (p + 1e-9, "dcba")):
        assert prefer("cadb:", "abcd", "dcba", temperature, Fixed(u))[0] == chosen
    for u, chosen in ((1 - p - 1e-9, "dcba"), (1 - p + 1e-9, "abcd")):  # the same choice with the strings swapped
        assert prefer("cadb:", "dcba", "abcd", temperature, Fixed(u))[0] == chosen


def test_choices_come_in_the_judge_s_shares():
    rng = Random(0)
    wins = sum(prefer("cadb:", "abcd", "dcba", 1.5, rng)[0] == "abcd" for _ in range(4000)) / 4000
    assert wins == pytest.approx(0.7311, abs=0.028)  # σ(1.5 / 1.5); four standard errors: 4 sqrt(.73 * .27 / 4000)


def test_extreme_margins_do_not_overflow_and_a_temperature_of_zero_is_refused():
    assert prefer("cadb:", "x" * 40, "abcd", 1.0e-9, Random(0)) == ("abcd", "x" * 40)
    assert prefer("cadb:", "abcd", "x" * 40, 1.0e-9, Random(0)) == ("abcd", "x" * 40)
    for temperature in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="temperature"):
            prefer("cadb:", "a", "b", temperature, Random(0))

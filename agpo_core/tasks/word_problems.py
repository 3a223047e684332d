"""Two-number word problems for a small real language model, with the sums of reasoning-gym's `chain_sum`.

GSM8K is too hard for a model of 135 M parameters, and so are the word problems that reasoning-gym itself offers
(`gsm_symbolic`, `aiw`): most groups would have equal rewards, and little would be learned. One sum of two one-digit
numbers, told as a story, is solved sometimes and missed sometimes, as learning needs. The two numbers, the sign and the
answer are reasoning-gym's; the story around them is ours.

Each sum belongs to one split, so that no test problem is a training problem with other names.
"""

from __future__ import annotations

from functools import cache
from random import Random

from agpo_core import grading
from agpo_core.grading import Graded
from agpo_core.tasks.problem import Problem, check_split

DATASET = "chain_sum"
CONFIG = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
SIZES = {"train": 1024, "dev": 100, "test": 400}
FIRST_SEED = {"train": 0, "dev": 1_000_000, "test": 2_000_000}  # reasoning-gym gives each item a seed of its own
POOLS = ("train",) * 4 + ("test",) * 2 + ("dev",)  # sevenths of the sums; each split has both signs and all sizes

NAMES = ("Tom", "Anna", "Ben", "Mia", "Sam", "Lucy", "Jack", "Emma", "Paul", "Sara", "Max", "Nina")
THINGS = ("apples", "books", "coins", "pens", "cards", "shells", "cookies", "balls", "stickers", "marbles")
STORIES = {
    "+": (
        "{name} has {a} {things} and buys {b} more. How many {things} does {name} have now?",
        "{name} has {a} {things} and finds {b} more. How many {things} does {name} have now?",
    ),
    "-": (
        "{name} has {a} {things} and gives away {b}. How many {things} does {name} have left?",
        "{name} has {a} {things} and loses {b}. How many {things} does {name} have left?",
    ),
}


def pool(a: int, b: int) -> str:
    """The split that the sum and the difference of two numbers belong to."""
    return POOLS[(a + 3 * b) % len(POOLS)]


class WordProblems:
    """One addition or subtraction of one-digit numbers, told as a story; the answer is a number, 0 or more."""

    name = "word_problems"
    title = "Two-number word problems (reasoning-gym sums)"
    stands_in_for = "GSM8K"

    def __init__(self, data_dir: str | None = None):
        """`data_dir` is accepted because every task takes one; a procedural task reads no files."""

    def problems(self, split: str) -> list[Problem]:
        """The problems of a split; the same on every call and machine.

        Raises:
            ModuleNotFoundError: reasoning-gym is not installed.
        """
        check_split(split)
        return list(_problems(split))

    def grade(self, problem: Problem, completion: str) -> Graded:
        """Reward 1 when the last number of the text is the answer."""
        return grading.grade(completion, problem.answer, "word_problems")


@cache
def _problems(split: str) -> tuple[Problem, ...]:
    try:
        import reasoning_gym
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the task word_problems needs reasoning-gym: run `pip install -e '.[small]'` in the repository"
        ) from error
    found = {}
    items = reasoning_gym.create_dataset(DATASET, seed=FIRST_SEED[split], size=100 * SIZES[split], **CONFIG)
    for seed in range(len(items)):
        item = items[seed]
        left, sign, right = item["metadata"]["expression"].split()
        a, b = int(left), int(right)
        # "has 1 apples" is not English, and nobody can give away more than there is.
        if a < 2 or b < 1 or int(item["answer"]) < 0 or pool(a, b) != split:
            continue
        rng = Random(FIRST_SEED[split] + seed)
        prompt = rng.choice(STORIES[sign]).format(a=a, b=b, name=rng.choice(NAMES), things=rng.choice(THINGS))
        found.setdefault(prompt, Problem(WordProblems.name, f"{split}-{len(found)}", prompt, item["answer"]))
        if len(found) == SIZES[split]:
            break
    return tuple(found.values())

"""Two-number word problems: splits, answers, determinism, errors."""

import re
import subprocess
import sys

import pytest

from agpo_core.tasks import Graded, get_task
from agpo_core.tasks.word_problems import FIRST_SEED, POOLS, SIZES, pool


@pytest.fixture(scope="module")
def problems():
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed (extra `small`)")
    return {split: get_task("word_problems").problems(split) for split in SIZES}


def numbers(problem):
    """The two numbers and the sign, read out of the prompt."""
    a, b = map(int, re.findall(r"[0-9]+", problem.prompt))
    return a, "+" if "more" in problem.prompt else "-", b


def test_splits_are_full_and_disjoint_by_prompt_and_by_sum(problems):
    assert {split: len(found) for split, found in problems.items()} == SIZES
    for key in (lambda p: p.prompt, numbers):
        keys = [{key(p) for p in found} for found in problems.values()]
        assert len(set.union(*keys)) == sum(map(len, keys))


def test_splits_draw_from_disjoint_ranges_of_seeds():
    starts = sorted(FIRST_SEED.values())
    assert all(b - a >= 100 * max(SIZES.values()) for a, b in zip(starts, starts[1:], strict=False))


def test_every_sum_belongs_to_one_split_and_each_split_has_its_share():
    shares = [pool(a, b) for a in range(7) for b in range(7)]
    assert {split: shares.count(split) for split in SIZES} == {
        "train": 28,
        "dev": 7,
        "test": 14,
    }  # 4, 1, 2 of 7 sevenths
    assert len(POOLS) == 7


def test_the_answer_is_what_the_story_asks_and_never_negative(problems):
    for problem in (p for found in problems.values() for p in found):
        a, sign, b = numbers(problem)
        assert int(problem.answer) == (a + b if sign == "+" else a - b) >= 0
        assert problem.prompt.endswith("?")
        assert 2 <= a <= 9 and 1 <= b <= 9


def test_both_signs_and_many_answers_occur_in_each_split(problems):
    for found in problems.values():
        plus = sum(numbers(p)[1] == "+" for p in found) / len(found)
        assert 0.5 < plus < 0.75  # 72 sums and 44 differences can be told: 62 %
        assert len({p.answer for p in found}) >= 10


def test_a_completion_is_graded_by_its_last_number(problems):
    task, problem = get_task("word_problems"), problems["test"][0]
    assert task.grade(problem, f"Now there are {problem.answer}.") == Graded(1.0, problem.answer)
    assert task.grade(problem, f"{problem.answer}, or rather 77") == Graded(0.0, "77")
    assert task.grade(problem, "None.") == Graded(0.0, None)


def test_problems_are_the_same_in_another_process(problems):
    code = "from agpo_core.tasks import get_task; print(get_task('word_problems').problems('dev'))"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == repr(problems["dev"])


def test_an_unknown_split_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="train, dev, test"):
        get_task("word_problems").problems("validation")


def test_without_reasoning_gym_the_error_says_how_to_install_it(monkeypatch):
    from agpo_core.tasks import word_problems

    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    word_problems._problems.cache_clear()
    with pytest.raises(ModuleNotFoundError, match=r"pip install -e '\.\[small\]'"):
        get_task("word_problems").problems("test")

"""The nine micro-tasks: pools, demonstrations, grading."""

import os
import subprocess
import sys
from collections import Counter
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agpo_core.tasks import MICRO_TASKS, Problem, get_task
from agpo_core.tasks.micro import ALPHABET, SIZES, VALUES, pool, to_numeral

CHOICES = [name for name in MICRO_TASKS if name.startswith("choice")]


def first(name, split="test"):
    return get_task(name).problems(split)[0]


def as_problem(name, item):
    return Problem(name, "", item.prompt, item.answer, item.tests)


def test_tasks_stand_in_for_the_paper_s_nine_benchmarks_in_its_order():
    assert [get_task(name).stands_in_for for name in MICRO_TASKS] == [
        "GSM8K",
        "MATH",
        "OCW",
        "SAT",
        "MMLU_STEM",
        "CodeContests",
        "CMATH",
        "GaokaoCloze",
        "GaokaoQA",
    ]


def test_an_unknown_task_or_split_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="choice_sums"):
        get_task("chocie_sums")
    with pytest.raises(ValueError, match="train, dev, test"):
        get_task("steps").problems("supervised")


@pytest.mark.parametrize("name", MICRO_TASKS)
def test_splits_are_full_and_disjoint_by_prompt_and_apart_from_the_demonstrations(name):
    task = get_task(name)
    prompts = {split: {p.prompt for p in task.problems(split)} for split in SIZES}
    assert {split: len(found) for split, found in prompts.items()} == SIZES
    prompts["supervised"] = {prompt for prompt, _ in islice(task.demonstrations(seed=1), 2000)}
    assert all(pool(prompt) == split for split, found in prompts.items() for prompt in found)
    assert len(set.union(*prompts.values())) == sum(map(len, prompts.values()))


def test_problems_are_the_same_in_another_process():
    code = (
        "from agpo_core.tasks import MICRO_TASKS, get_task\n"
        "print([get_task(name).problems('test') for name in MICRO_TASKS])"
    )
    other = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONIOENCODING": "utf-8"}
    there = subprocess.check_output([sys.executable, "-c", code], env=other, encoding="utf-8")
    assert there.strip() == repr([get_task(name).problems("test") for name in MICRO_TASKS])


@pytest.mark.parametrize("name", MICRO_TASKS)
def test_a_demonstration_earns_everything_and_a_slipped_one_never_does(name):
    task, rng = get_task(name), Random(0)
    for index in range(400):
        item = task.item("supervised", rng, index)
        problem = as_problem(name, item)
        assert task.grade(problem, task.demonstrate(item, rng, slip=False)).reward == 1
        assert task.grade(problem, task.demonstrate(item, rng, slip=True)).reward < 1
        assert task.grade(problem, item.answer).reward == 1


@pytest.mark.parametrize("name", MICRO_TASKS)
def test_every_wording_of_the_right_answer_votes_for_the_same_thing(name):
    task, rng = get_task(name), Random(0)
    for index in range(20):
        item = task.item("supervised", rng, index)
        problem = as_problem(name, item)
        votes = {task.grade(problem, task.demonstrate(item, rng, slip=False)).answer for _ in range(20)}
        assert len(votes) == 1


@pytest.mark.parametrize("name", MICRO_TASKS)
def test_texts_are_short_and_within_the_models_alphabet(name):
    pairs = list(islice(get_task(name).demonstrations(seed=0), 1000))
    assert max(len(prompt) for prompt, _ in pairs) <= 20
    assert max(len(completion) + 1 for _, completion in pairs) <= 24
    assert set("".join(prompt + completion for prompt, completion in pairs)) <= set(ALPHABET)


@pytest.mark.parametrize("name", CHOICES)
def test_right_letters_are_balanced_and_options_distinct(name):
    for split in SIZES:
        problems = get_task(name).problems(split)
        letters = Counter(p.answer for p in problems)
        assert max(letters.values()) - min(letters.values()) <= 1
        assert all(len(set(p.prompt[-8::2])) == 4 and p.prompt[-7::2] == "ABCD" for p in problems)


@pytest.mark.parametrize("name", CHOICES)
def test_slips_favour_no_letter(name):
    task, count = get_task(name), 4000
    letters = Counter(
        task.grade(first(name), completion).answer for _, completion in islice(task.demonstrations(seed=3), count)
    )
    # 0.03 is more than four standard errors of a share of 1/4 among 4000: 4 * sqrt(3/16/4000).
    assert all(abs(letters[letter] / count - 0.25) < 0.03 for letter in "ABCD")


@pytest.mark.parametrize(
    ("name", "prompt", "answer", "right", "wrong"),
    [
        ("steps", "Bo:7 figs+6-3?", "10", "13;10.|10|10 10", "13|10;13|1 0|"),
        ("equations", "3x+5=26", "7", "21/3=7|x=07", "7=21/3|-|8"),
        ("quantities", "m=3e4,a=2e1,F?", "6e5N", "6e5 N!|6e05N|9e9V,6e5N", "6e6N|6e5|6e5V|65N"),
        ("choice_sums", "12-7?3A5B8C1D", "B", ":5B|B|A B.", "5|b|B,A|"),
        ("chinese_sums", "小明有八块糖，买五，用三", "十", "十三，十块。|十", "十三|10|一十|"),
        ("cloze_equations", "_+3=8,9-_=4", "5,5", "5;5|05 5.", "5|5,5,5|6,5|"),
    ],
)
def test_one_rule_reads_the_answer(name, prompt, answer, right, wrong):
    task, problem = get_task(name), Problem(name, "", prompt, answer)
    assert all(task.grade(problem, text).reward == 1 for text in right.split("|"))
    assert all(task.grade(problem, text).reward == 0 for text in wrong.split("|"))


def test_the_order_of_blanks_counts():
    task, problem = (
        get_task("cloze_equations"),
        Problem("cloze_equations", "", "_+3=8,9-_=3", "5,6"),
    )
    assert task.grade(problem, "5,6").reward == 1
    assert task.grade(problem, "6,5").reward == 0


def test_a_program_earns_the_share_of_its_tests_that_it_passes():
    # f(x, y) = 2x + 4y + 3 at (0,0) (1,0) (0,1) (2,1) (1,2) (3,2)
    expected = (3, 5, 7, 11, 13, 17)
    points = ((0, 0), (1, 0), (0, 1), (2, 1), (1, 2), (3, 2))
    tests = tuple(((("x", x), ("y", y)), e) for (x, y), e in zip(points, expected, strict=True))
    problem = Problem("programs", "", "3,x:5,y:7", "x*2+y*4+3", tests)
    grade = get_task("programs").grade
    assert grade(problem, "3+y*4+x+x.").reward == 1
    assert grade(problem, "3+y*4+x+x.").answer == expected
    assert grade(problem, "2*x+5*y+3").reward == pytest.approx(2 / 6)  # right where y = 0: the first two
    assert grade(problem, "2*x+4*y+2").reward == 0
    assert grade(problem, "6/x").answer == (None, 6, None, 3, 6, 2)
    for text in ("", "2*x+4*y+", "z", "2x", "9^9^9", "(" * 5000, "x" * 5000):
        assert grade(problem, text).reward == 0


def test_chinese_numerals_go_there_and_back():
    assert [to_numeral(n) for n in (0, 7, 10, 12, 20, 35)] == [
        "零",
        "七",
        "十",
        "十二",
        "二十",
        "三十五",
    ]
    assert all(VALUES[to_numeral(n)] == n for n in range(100))
    assert VALUES["两"] == VALUES["二"] == 2


@pytest.mark.parametrize("name", MICRO_TASKS)
@given(completion=st.text(max_size=60) | st.text(alphabet=ALPHABET, max_size=30))
def test_no_completion_gets_an_exception_out_of_a_grader(name, completion):
    graded = get_task(name).grade(first(name), completion)
    assert 0 <= graded.reward <= 1
    assert graded.reward == 0 or graded.answer is not None
    hash(graded.answer)

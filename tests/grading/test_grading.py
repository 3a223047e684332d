"""Numbers in free text, and the answers of GSM8K and of word problems: found, read exactly, compared."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agpo_core.grading import canonical, extract, grade
from agpo_core.tasks import Graded
from tests.data import DATA, needs_data


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("1,450,000", "1450000"),
        ("2,125.50", "2125.5"),
        ("12.50", "12.5"),
        ("18.00", "18"),
        ("007", "7"),
        (".5", "0.5"),
        ("$18.90", "18.9"),
        (r"\$18", "18"),
        ("35%", "35"),  # GSM8K's answers in percent are written without the sign
        (r"35\%", "35"),
        ("0.35", "0.35"),
        ("72.", "72"),
        ("18 dollars", "18"),
        ("-10", "-10"),
        ("−10", "-10"),  # U+2212
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("(-3)", "-3"),
        ("-0.0", "0"),
    ],
)
def test_a_number_has_one_canonical_form(text, answer):
    assert canonical(text, "gsm8k") == answer


@pytest.mark.parametrize("text", ["#### 72", "####72", "#### $72", "#### 72%", "#### 72.00", "#### 72.", "#### **72**"])
def test_the_marked_number_is_found_whatever_stands_around_it(text):
    assert canonical(extract(f"5 and 6 make\n{text}\nor is it 80?", "gsm8k"), "gsm8k") == "72"


def test_the_last_marked_number_counts_and_a_heading_is_none():
    assert extract("#### number\n#### 1\n#### 2", "gsm8k") == "2"
    assert extract("#### 1. Count\n3 + 4 = 7\n#### 2. Check\nThe answer is 7.", "gsm8k") == "7"


@pytest.mark.parametrize("text", ["#### 5 or 6", "#### 5:30", "The answer is not 5.", "The answer is between 4 and 5."])
def test_a_hedged_answer_is_none_of_its_numbers(text):
    assert grade(text, "5", "gsm8k").reward == grade(text, "6", "gsm8k").reward == 0.0


def test_the_line_of_a_mark_may_hold_a_fraction_or_an_equation():
    assert grade("#### 2/3", "2", "gsm8k").reward == 0.0
    assert grade("#### 10 - 3 = 7", "7", "gsm8k").reward == 1.0


def test_what_is_stated_counts_before_what_stands_last():
    text = "#### 3, though it might be 4"
    assert grade(text, "3", "gsm8k") == grade(text, "3", "word_problems") == Graded(1.0, "3")
    assert grade("it might be 4", "4", "gsm8k") == Graded(1.0, "4")
    assert grade("it might be", "4", "gsm8k") == Graded(0.0, None)


def test_votes_agree_exactly_when_rewards_do():
    right, same, wrong = (grade(text, "1,200", "gsm8k") for text in ("#### 1200", "It is $1,200.00.", "#### 120"))
    assert right == same == Graded(1.0, "1200")
    assert wrong == Graded(0.0, "120")
    assert grade("I do not know.", "1,200", "gsm8k") == Graded(0.0, None)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3), st.decimals(min_value=-99, max_value=99, places=2))
def test_canonical_forms_are_equal_exactly_when_the_numbers_are(a, b):
    for x, y in ((a, b), (a, a), (b, b)):
        assert (canonical(f"{x:f}", "gsm8k") == canonical(f"{y:,f}", "gsm8k")) == (x == y)
    assert Decimal(canonical(f"{a:,f}", "gsm8k")) == a


@given(st.text())
def test_no_text_makes_a_rule_raise(text):
    answer = extract(text, "word_problems")
    assert answer is None or isinstance(canonical(answer, "word_problems"), str | None)


@needs_data
def test_the_collected_gsm8k_cases_are_all_judged_right():
    cases = [json.loads(line) for line in (DATA / "grader_cases.jsonl").read_text("utf-8").splitlines()]
    cases = [case for case in cases if case["benchmark"] == "GSM8K"]
    assert len(cases) == 12
    assert [
        case["id"] for case in cases if grade(case["candidate"], case["gold"], "gsm8k").reward != case["should_match"]
    ] == []


@needs_data
def test_the_released_model_solutions_are_judged_as_their_release_judges_them():
    lines = (DATA / "gsm8k" / "example_model_solutions.jsonl").read_text("utf-8").splitlines()
    wrong, judged = [], 0
    for row in map(json.loads, lines):
        for solution in (value for value in row.values() if isinstance(value, dict)):
            judged += 1
            gold = canonical(extract(row["ground_truth"], "gsm8k"), "gsm8k")
            if grade(solution["solution"], gold, "gsm8k").reward != solution["is_correct"]:
                wrong.append(solution)
    assert judged == 800  # 200 problems, four models
    assert wrong == []


@needs_data
@pytest.mark.parametrize("split", ["train", "test"])
def test_both_rules_read_the_official_answer_out_of_every_official_solution(split):
    for line in (DATA / "gsm8k" / f"{split}.jsonl").read_text("utf-8").splitlines():
        solution = json.loads(line)["answer"]
        official = solution.split("#### ")[1].replace(",", "")
        found = canonical(extract(solution, "gsm8k"), "gsm8k")
        assert found == canonical(official, "gsm8k")

"""The published protocols: their scores, and the golds that they reject."""

import csv
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agpo_core.evaluation import official
from agpo_core.evaluation.official import LONGEST, OFFICIAL, SEVERAL, official_score, rejected_golds
from agpo_core.tasks import TASKS
from tests.data import DATA, needs_data


def rows(path):
    return [json.loads(line) for line in (DATA / path).read_text("utf-8").splitlines()]


@pytest.mark.parametrize(
    ("name", "response", "gold", "right"),
    [
        ("gsm8k_openai", "so\n#### 2,125", "2,125", True),
        ("gsm8k_openai", "so\n#### 18.00", "18", False),  # strings
        ("gsm8k_openai", "The answer is 18.", "18", False),
        ("gsm8k_deepseek", "The answer is 18.\n\nQ: what is 3?", "18", True),
        ("gsm8k_deepseek", "The answer is 2,125.", "2,125", False),  # read as 125
        ("math_hendrycks", r"\boxed{\dfrac43}", r"\frac43", True),
        ("math_hendrycks", r"\boxed{x=5}", "5", True),
        ("math_hendrycks", r"\boxed{0.5}", r"\frac{1}{2}", True),
        ("math_hendrycks", r"\boxed{1.5}", r"\frac{3}{2}", False),
        ("math_hendrycks", r"\boxed{10080}", r"10,\!080", False),
        ("math_hendrycks", r"\boxed{28}", r"28\%", True),
        ("math_hendrycks", r"\boxed{35%}", "35", False),  # a sign without its backslash stays
        ("math_prm800k", r"\boxed{2/3}", r"\frac{2}{3}", True),
        ("math_prm800k", r"\boxed{4/6}", r"\frac{2}{3}", False),  # not reduced
        ("math_prm800k", r"\boxed{1.8}", r"1\frac{4}{5}", True),
        ("math_prm800k", r"\boxed{15^2}", "225", False),  # an integer must be written as one
        ("math_prm800k", r"\boxed{(3,\pi/2)}", r"\left( 3, \frac{\pi}{2} \right)", True),
        ("math_prm800k", r"\boxed{[3,4]}", "(3,4]", False),
        ("math_prm800k", r"\boxed{-2,1}", "1,-2", False),  # a list is not a tuple, and has an order
        ("math_prm800k", r"\boxed{90°}", r"90^\circ", False),
        ("math_prm800k", r"\boxed{(58, 500)}", "58,500", True),  # a pair for a number
        ("math_prm800k", r"\boxed{0}", "1.325e-27", True),  # a number close to a whole one is taken as whole
        ("math_prm800k", r"\boxed{\frac{x+1}{2}}", r"x+\frac{1}{2}", True),  # fractions lose their brackets
        ("math_deepseek", "Final Answer: The final answer is $5$. I hope it is correct.", "5", True),
        ("deepseek_zero_shot", r"\boxed{3}, then \boxed{2,125}.", "2,125", True),
        ("deepseek_zero_shot", r"\boxed{3}, then \boxed{4}.", "3", False),
        ("deepseek_zero_shot", r"\boxed{2/6}", "2/6", True),  # which the few-shot protocol reads as 6
        ("deepseek_zero_shot", "The answer is:12.\nIs it not?", "12", True),
        ("deepseek_zero_shot", "4 cats, 13 in all", "13", True),
        ("deepseek_zero_shot", r"\boxed{0.35}", "35", True),  # a factor of a hundred is forgiven
        ("deepseek_zero_shot", r"\boxed{0}", ".0000672", True),  # within 1e-3
        ("deepseek_zero_shot", r"\boxed{1}", "1,-2", True),  # SymPy's reader stops at the comma
        ("matharena", r"\boxed{025}", "25", True),
        ("matharena", r"\boxed{9/\sqrt{23}}", r"\frac{9 \sqrt{23}}{23}", True),
        ("matharena", r"$\boxed{\frac{13}{40}}$ or $\boxed{-13/96}$", r"-\dfrac{13}{96}, \dfrac{13}{40}", True),
        ("matharena", r"\boxed{\frac{13}{40}}", r"-\dfrac{13}{96}, \dfrac{13}{40}", False),
        ("matharena", "\\boxed{1}\n\\boxed{2}", "1,2", False),  # only the last line counts
        ("matharena", r"\boxed{0.001736}", r"\frac{1}{576}", False),
        ("matharena", r"\boxed{x=3, y=5}", "5", True),  # what follows the last "=" is the answer
        ("orz", r"So <answer>it is \boxed{0.5}.</answer>", r"\frac{1}{2}", True),
        ("orz", r"So it is \boxed{0.5}.", r"\frac{1}{2}", False),  # no <answer>
        ("orz", r"<answer>\boxed{5x-7y+11z-4=0}</answer>", "5x-7y+11z+4=0", True),  # only right-hand sides count
        ("math_minerva", "Final Answer: The final answer is $10080$. I hope it is correct.", r"10,\!080", True),
        ("math_minerva", "The answer is 5.", "5", False),
        ("ocw_minerva", "Final answer: The final answer is 1.6 cm. I hope it is correct.", "1.6", True),
        ("ocw_minerva", "Final answer: The final answer is 1.61. I hope it is correct.", "1.6", False),
         # 1 % is allowed only near zero
        ("ocw_minerva", "Final answer: The final answer is 2.9e-19. I hope it is correct.", "2.88e-19", True),
        ("ocw_minerva", "Final answer: The final answer is -10. I hope it is correct.", "-10", False),
        ("sat_llemma", "Final Answer: The final answer is (B). I hope it is correct.", "B", True),
        ("sat_llemma", "Final Answer: The final answer is B. I hope it is correct.", "B", False),  # no brackets
        ("sat_minerva", "Therefore, the final answer is (B).", "B", True),
        ("sat_math_agieval_zero_shot", "Answer: C", "A", True),  # the A of Answer
        ("sat_math_agieval_few_shot", "Work.\nThe answer is therefore C", "C", True),
        ("gaokao_qa_agieval_zero_shot", "故选 B", "B", True),
        ("gaokao_qa_agieval_zero_shot", "设集合 A，故选 B", "B", False),  # the first capital letter
        ("gaokao_qa_agieval_zero_shot", "ABD", "ABD", False),  # it finds one letter only
        ("gaokao_cloze_deepseek", "答案是5,10", "$5$;$10$", True),
        ("gaokao_cloze_deepseek", "答案是10;5", "$5$;$10$", False),
        ("gaokao_cloze_deepseek", "答案是90^{\\circ}", "$90^{\\circ}$", False),
        ("gaokao_qa_deepseek", "答案是 A或C", "C", True),  # the letter that appears last
        ("gaokao_qa_deepseek", "答案是肯定的\n答案是 C", "C", False),  # the first 答案是 counts
        ("cmath_deepseek", "答案是12%。", "12%", True),
        ("cmath_deepseek", "答案是12。", "12%", True),  # a factor of a hundred is forgiven
        ("cmath_deepseek", "答案是2/6。", "2/6", False),
        ("cmath_xiaomi", "先算 2/6\n答案是1/3。", "2/6", True),
        ("cmath_xiaomi", "占5分之3", "3/5", True),
        ("cmath_xiaomi", r"\frac{6}{5}千克", "1.2", True),
        ("cmath_xiaomi", "0.12", "12%", True),
        ("cmath_xiaomi", "12", "12%", False),
        ("cmath_xiaomi", "1,010", "1000", False),  # a whole gold must be given exactly
        ("cmath_xiaomi", "1.51", "1.5", True),  # 0.7 % off
        ("cmath_xiaomi", "12 或者 13", "12", True),  # one of the last two
        ("cmath_xiaomi", "12, 13, 14", "12", False),
        ("dapo", "Answer: 34", "34", True),
        ("dapo", "answer: 33\nAnswer: 34", "34", True),
        ("knights_and_knaves_logic_rl", "<answer>(1) Al is a knight\n(2) Bo is a knave</answer>",
        "(1) Al is a knight\n(2) Bo is a knave", True),
        ("knights_and_knaves_logic_rl", "<answer>(1) Al is a knight</answer>",
        "(1) Al is a knight\n(2) Bo is a knave", False),
        ("knights_and_knaves_mem_kk", "CONCLUSION:\n(1) Al is a knight", "(1) Al is a knight", True),
        ("knights_and_knaves_mem_kk", "CONCLUSION:\n(1) Al is a knight\n(2) Bo is a knave", "(1) Al is a knight",
        False),
        ("codecontests", "3.1622776602\n", "3.162277660\n", True),
        ("codecontests", "3.16\n", "3.162277660\n", False),
    ],
)  # fmt: skip
def test_an_official_score_is_reproduced(name, response, gold, right):
    assert official_score(name, response, gold) == right


def test_every_protocol_names_its_source_and_its_tasks_and_an_unknown_one_is_refused():
    assert all(protocol.source and "{gold}" in protocol.phrase for protocol in OFFICIAL.values())
    assert {task for protocol in OFFICIAL.values() for task in protocol.tasks} <= set(TASKS)
    assert [name for name, protocol in OFFICIAL.items() if not protocol.tasks] == ["codecontests"]
    with pytest.raises(ValueError, match="no official protocol is called 'best'; use one of gsm8k_openai"):
        official_score("best", "1", "1")


# -- long texts


@pytest.mark.parametrize("name", [name for name in OFFICIAL if OFFICIAL[name].longest])
def test_an_answer_that_is_too_long_is_not_compared_and_right_only_if_it_is_the_gold(name):
    compared = []
    watched = replace(OFFICIAL[name], compare=lambda gold, answer: compared.append(answer) or True)
    assert watched.accepts("7", "7" * LONGEST) and len(compared.pop()) == LONGEST
    assert not watched.accepts("7", "7" * (LONGEST + 1))
    assert watched.accepts("7" * (LONGEST + 1), "7" * (LONGEST + 1))
    assert compared == []


PHRASES = ("final answer is ", "answer is ", "<answer>", r"\boxed{", "#### 1", "答案是", "$", "{", "1/")


@pytest.mark.parametrize("name", OFFICIAL)
@pytest.mark.parametrize("piece", PHRASES)
def test_a_long_response_ends(name, piece):
    """Texts of 100 kB, on which a quadratic search would take minutes."""
    official_score(name, piece * (100_000 // len(piece)), "7")


def pieces(*words):
    """Random texts of some words, with letters and line ends between them."""
    return st.lists(st.sampled_from([*words, "A", "b", " ", "\n"]), max_size=12).map("".join)


@given(pieces("final answer is ", ". I hope it is correct.", "Problem:"))
def test_minervas_phrase_is_what_its_pattern_finds(text):
    found = re.search(r"final answer is (.*)\. I hope it is correct\.", text.partition("Problem:")[0])
    assert OFFICIAL["math_minerva"].extract(text) == (found and found[1])


@given(pieces("<answer>", "</answer>"))
def test_the_answer_block_is_the_last_that_its_pattern_finds(text):
    found = re.findall(r"<answer>(.*?)</answer>", text, re.S)
    assert OFFICIAL["knights_and_knaves_logic_rl"].extract(text) == (found[-1].strip() if found else None)


@given(pieces("answer is ", "G", "F"))
def test_agievals_letter_is_what_its_patterns_find(text):
    last = ([line for line in text.split("\n") if line.strip()] or [""])[-1]
    found = re.search(r"answer is .*?([A-G])", last) or re.search(r"([A-F])", last)
    assert OFFICIAL["sat_math_agieval_few_shot"].extract(text) == (found and found[1])


@given(pieces("$", "$5"))
def test_minervas_dollars_are_cut_as_its_pattern_does(text):
    kept = re.sub(r"(.*?)\$(.*?)\$(.*)", r"$\2$", text).replace("$", "")
    assert official.minerva_form(text) == official.minerva_form(kept)


def test_several_answers_are_kept_apart_and_the_last_one_votes():
    text = "\\boxed{1}\n\\boxed{2} or \\boxed{3}"
    assert OFFICIAL["matharena"].extract(text).split(SEVERAL) == ["2", "3"]
    assert OFFICIAL["cmath_xiaomi"].extract("1, 2和3").split(SEVERAL) == ["2", "3"]
    assert OFFICIAL["deepseek_zero_shot"].extract(text) == "3"


# -- beside the original code


@needs_data
@pytest.mark.parametrize(
    ("column", "name", "agree"),
    [
        ("hendrycks_is_equiv", "math_hendrycks", 222),
        ("prm800k_grade_answer", "math_prm800k", 222),
        ("dapo_minerva", "dapo", 222),
        ("deepseek_math_is_correct", "deepseek_zero_shot", 212),
    ],
)
def test_comparisons_agree_with_the_original_code(column, name, agree):
    """The verdicts stored with the project's 222 grader cases of formulas and texts come from the original code."""
    cases = [case for case in rows("grader_cases.jsonl") if case["graders"]]
    assert len(cases) == 222
    same = [OFFICIAL[name].accepts(case["gold"], case["candidate"]) == case["graders"][column] for case in cases]
    assert sum(same) == agree


@needs_data
def test_boxes_are_read_and_compared_as_by_the_official_grader_of_800_responses():
    """Qwen2.5-Math's grader is DeepSeekMath's with other tolerances; the flags contain its two known errors."""
    samples = [(text, row["gt"], flag) for row in rows("grader_samples/math_cot_100.jsonl")
               for text, flag in zip(row["code"], row["score"], strict=True)]  # fmt: skip
    assert len(samples) == 800
    assert all(official_score("deepseek_zero_shot", text, gold) == flag for text, gold, flag in samples)


@needs_data
def test_of_the_zero_shot_protocols_agievals_alone_rejects_golds():
    golds = [row["label"] for row in rows("agieval/v1/gaokao-mathqa.jsonl")]
    assert rejected_golds("gaokao_qa_agieval_zero_shot", golds) == [148, 149, 245, 246, 247, 285, 286]
    cmath = [row["golden"] for path in ("cmath/cmath_dev.jsonl", "cmath/test.jsonl") for row in rows(path)]
    gsm8k = [row["answer"].split("#### ")[1] for row in rows("gsm8k/test.jsonl")]
    math = [row["answer"] for row in rows("math500/test.jsonl")]
    contests = []
    for path in sorted((DATA / "matharena").glob("*/*/answers.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            contests += [row["answer"] for row in csv.DictReader(file)]
    assert len(contests) == 150
    for name, several in (("cmath_xiaomi", cmath), ("deepseek_zero_shot", cmath + gsm8k + math),
                          ("matharena", contests), ("math_prm800k", math), ("orz", math)):  # fmt: skip
        assert rejected_golds(name, several) == []


@needs_data
def test_ocw_rejects_its_negative_golds_its_zero_and_the_one_with_a_line_end():
    golds = [row["answer"] for row in rows("ocw/test.jsonl")]
    assert rejected_golds("ocw_minerva", golds) == [45, 51, 68, 69, 79, 86, 91, 98]


@needs_data
def test_deepseeks_cloze_rejects_21_golds_verbatim_and_9_without_dollars():
    golds = [row["answer"] for row in rows("agieval/v1/gaokao-mathcloze.jsonl")]
    assert len(rejected_golds("gaokao_cloze_deepseek", golds)) == 21
    bare = [gold.replace("$", "") for gold in golds]
    assert rejected_golds("gaokao_cloze_deepseek", bare) == [21, 24, 39, 40, 49, 61, 65, 84, 108]


@needs_data
def test_the_official_letter_rules_reject_every_gold_of_several_letters():
    golds = [row["label"] for row in rows("agieval/v1/gaokao-mathqa.jsonl")]
    several = [i for i, gold in enumerate(golds) if len(gold) > 1]
    assert rejected_golds("gaokao_qa_deepseek", golds) == several == [148, 149, 245, 246, 247, 285, 286]
    assert rejected_golds("gaokao_qa_agieval_few_shot", golds) == several


@needs_data
def test_deepseeks_cmath_rejects_every_fraction_and_nothing_else():
    golds = [row["golden"] for path in ("cmath/cmath_dev.jsonl", "cmath/test.jsonl") for row in rows(path)]
    rejected = rejected_golds("cmath_deepseek", golds)
    assert len(golds) == 1698 and len(rejected) == 59
    assert rejected == [i for i, gold in enumerate(golds) if "/" in gold]


@needs_data
def test_the_other_protocols_accept_all_of_their_golds_but_deepseeks_gsm8k():
    gsm8k = [row["answer"].split("#### ")[1] for row in rows("gsm8k/test.jsonl")]
    assert rejected_golds("gsm8k_openai", gsm8k) == []
    assert rejected_golds("gsm8k_deepseek", gsm8k) == [
        i for i, gold in enumerate(gsm8k) if "," in gold
    ]  # 14 with commas
    math = [row["answer"] for row in rows("math500/test.jsonl")]
    assert rejected_golds("math_hendrycks", math) == rejected_golds("math_minerva", math) == []
    roles = [row["solution_text_format"] for row in rows("kk/test/people3_num100.jsonl")]
    assert (
        rejected_golds("knights_and_knaves_logic_rl", roles) == rejected_golds("knights_and_knaves_mem_kk", roles) == []
    )
    with (DATA / "mmlu/data/test/abstract_algebra_test.csv").open(newline="", encoding="utf-8") as file:
        assert rejected_golds("mmlu_stem_deepseek", [row[5] for row in csv.reader(file)]) == []

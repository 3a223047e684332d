"""The published protocols: their scores, and the golds that they reject."""

import csv
import json
from pathlib import Path

import pytest

from agpo_core.tasks.grading.official import OFFICIAL, official_score, rejected_golds

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"  # lies beside the repository, where it is there at all
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="no shared data folder beside the repository")


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
        ("math_minerva", "Final Answer: The final answer is $10080$. I hope it is correct.", r"10,\!080", True),
        ("math_minerva", "The answer is 5.", "5", False),
        ("ocw_minerva", "Final answer: The final answer is 1.6 cm. I hope it is correct.", "1.6", True),
        ("ocw_minerva", "Final answer: The final answer is 1.61. I hope it is correct.", "1.6", False),
         # 1 % near zero alone
        ("ocw_minerva", "Final answer: The final answer is 2.9e-19. I hope it is correct.", "2.88e-19", True),
        ("ocw_minerva", "Final answer: The final answer is -10. I hope it is correct.", "-10", False),
        ("sat_minerva", "Therefore, the final answer is (B).", "B", True),
        ("sat_math_agieval_zero_shot", "Answer: C", "A", True),  # the A of Answer
        ("sat_math_agieval_few_shot", "Work.\nThe answer is therefore C", "C", True),
        ("gaokao_cloze_deepseek", "答案是5,10", "$5$;$10$", True),
        ("gaokao_cloze_deepseek", "答案是10;5", "$5$;$10$", False),
        ("gaokao_cloze_deepseek", "答案是90^{\\circ}", "$90^{\\circ}$", False),
        ("gaokao_qa_deepseek", "答案是 A或C", "C", True),  # the letter that appears last
        ("gaokao_qa_deepseek", "答案是肯定的\n答案是 C", "C", False),  # the first 答案是 counts
        ("cmath_deepseek", "答案是12%。", "12%", True),
        ("cmath_deepseek", "答案是12。", "12%", True),  # a factor of a hundred is forgiven
        ("cmath_deepseek", "答案是2/6。", "2/6", False),
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


def test_every_protocol_names_its_source_and_an_unknown_one_is_refused():
    assert all(protocol.source and "{gold}" in protocol.phrase for protocol in OFFICIAL.values())
    with pytest.raises(ValueError, match="no official protocol is called 'best'; use one of gsm8k_openai"):
        official_score("best", "1", "1")


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

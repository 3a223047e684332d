"""Answers that try to hang the grader, to fill its memory, or to be run."""

import os
import random
import tempfile
import time
from pathlib import Path

import pytest

from agpo_core.grading import PROFILES, canonical, equivalent, extract
from agpo_core.grading.cases import load_cases
from agpo_core.grading.grader import forget

HUGE = [
    "9**9**9", "9^{9^{9^9}}", "2^{2^{2^{2^{2^2}}}}", "(9^{9^9})!", "((9!)!)!", "999999!", "10^{10^{10}}", "9" * 3999,
    "9" * 10**6,
    "1e999999999", "1e-999999999", "0." + "0" * 3900 + "1", "*".join(["5000!"] * 60), r"\binom{10^9}{5\cdot10^8}",
    "e^{e^{e^{e^{e^e}}}}", r"\sin(10^{10^{10}})", r"\lfloor 10^{100} \pi \rfloor", "(x+1)^{99999999999}",
    "x^{x^{x^{x^x}}}",
    "亿" * 3000, "一" + "万亿" * 25,
]  # fmt: skip
DEEP = [
    "(" * 2000 + "1" + ")" * 2000, "{" * 3000, r"\sqrt{" * 500 + "2" + "}" * 500, r"\frac{1}{" * 500 + "2" + "}" * 500,
    "-" * 3000 + "1", "|" * 3000, "x_{" * 900, "x^{" * 900 + "}" * 900, r"\text{" * 900, "[" * 2000, r"\{" * 900,
]  # fmt: skip
LONG = [
    "+".join(["1"] * 1900), ",".join(["1"] * 1900), "=".join("x" * 1900), "x<" * 1900, "a:" * 1900, r"\pm 1" * 600,
    "1" + r"\pm1" * 60,
    r"\cup".join(["(0,1)"] * 400), r"\begin{pmatrix}" + "1&" * 900 + r"\end{pmatrix}",  "5 " + "a " * 1900,
    "(1,2)," * 600, r"0.\overline{" + "1" * 3900 + "}", "June " * 700,
]  # fmt: skip
MEGABYTES = [
    "x" * 10**6, r"\boxed{" * 10**5, "$" * 10**6, "#### " * 10**5, "the answer is " * 10**5, "A" * 10**6,
    " " * 10**6, "\n" * 10**6,
    "\\" * 10**6, "(A)" * 10**5, "答案是" * 10**5, "1,2;" * 10**5, "the answer is" + " " * 10**6 + "(", "\x00" * 10**6,
]  # fmt: skip
SLOW = 10.0  # seconds: a hang, on the busiest machine; each takes less than half a second on an idle one


@pytest.mark.parametrize("answer", [*HUGE, *DEEP, *LONG], ids=lambda answer: answer[:20])
def test_no_answer_hangs_the_grader(answer):
    for name in ("math", "gsm8k", "cmath", "gaokao_cloze", "gaokao_qa", "knights_and_knaves"):
        start = time.perf_counter()
        assert not equivalent("5", answer, name)
        assert time.perf_counter() - start < SLOW


@pytest.mark.parametrize("text", MEGABYTES, ids=lambda text: repr(text[:12]))
def test_a_megabyte_is_searched_in_linear_time_and_is_no_answer(text):
    for name in PROFILES:
        start = time.perf_counter()
        answer = extract(text, name)
        assert answer is None or len(answer) <= len(text)
        if name != "codecontests":
            assert canonical(text, name) is None
        assert time.perf_counter() - start < SLOW


@pytest.mark.parametrize(
    "attack",
    [
        "__import__('os').system('touch {0}')", r"\write18{{touch {0}}}", "exec(\"open('{0}','w')\")", r"\input{{{0}}}",
        "open('{0}','w')", "5; import os; os.system('touch {0}')", "lambda: open('{0}','w')",
        r"\immediate\write18{{touch {0}}}",
    ],
)  # fmt: skip
def test_no_answer_is_executed(attack, tmp_path):
    witness = tmp_path / "pwned"
    text = attack.format(witness)
    for name in PROFILES:
        canonical(text, name)
        extract(rf"The answer is \boxed{{{text}}}", name)
        assert not equivalent("5", text, name) or name == "codecontests"
    assert not witness.exists()


@pytest.mark.parametrize(
    "nothing", ["", " ", "NaN", "nan", "undefined", "1/0", "0/0", "0^0", r"\frac{1}{0}", "?", "\u200b", "--", "None"]
)
def test_what_is_no_number_equals_no_number(nothing):
    for name in ("math", "gsm8k", "cmath", "aime24", "ocw"):
        assert not equivalent("0", nothing, name) and not equivalent("5", nothing, name)


@pytest.mark.parametrize(
    "five", ["５", "٥", "५", "\u200f5\u200f", "\u202e5", "5\u200b", "\ufeff5", "５．０", "$５$", "5\u00a0"]
)
def test_unicode_forms_of_a_digit_are_that_digit(five):
    assert equivalent("5", five, "math") and equivalent("5", five, "gsm8k") and equivalent("5", five, "cmath")


# -- for long


def child_processes():
    return {pid for task in Path("/proc/self/task").glob("*/children") for pid in task.read_text().split()}


@pytest.mark.slow
def test_a_soak_of_the_grader_leaves_nothing_and_never_changes_its_mind(tmp_path, monkeypatch):
    """AGPO_SOAK_MINUTES says how long (default: 0.2)."""
    processes = child_processes()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rng, gradings, resident = random.Random(0), 0, []
    cases = load_cases(Path(__file__).with_name("grading_cases.jsonl"))
    verdicts = [equivalent(case.gold, case.candidate, case.benchmark) for case in cases]
    end = time.monotonic() + 60 * float(os.environ.get("AGPO_SOAK_MINUTES", "0.2"))
    while time.monotonic() < end or not gradings:
        forget()  # every answer is read anew
        for i in rng.sample(range(len(cases)), 200):
            case = cases[i]
            assert equivalent(case.gold, case.candidate, case.benchmark) == verdicts[i], case
        for answer in rng.sample([*HUGE, *DEEP, *LONG], 5):
            assert not equivalent("5", answer, rng.choice(["math", "gsm8k", "cmath", "gaokao_cloze"]))
        gradings += 205
        resident.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE"))
    print(f"{gradings} gradings")
    assert child_processes() == processes
    assert os.listdir(tmp_path) == []
    assert resident[-1] - resident[len(resident) // 2] < 50 * 1024**2

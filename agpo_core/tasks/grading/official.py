"""The published protocols: each benchmark's own way to find an answer and to score it, to reproduce published numbers.

They are kept apart from the grader, errors included: some reject their own gold answers (`rejected_golds`), some
accept what is wrong. Written anew from the protocols' descriptions and code. Departures: where a protocol calls
SymPy's LaTeX reader or Python's eval on what a model wrote, the strict reader of this package stands in, without the
commands that SymPy's lacks. XiaoMi's CMATH script is not among them: it fails as published.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import isclose

from agpo_core.tasks.grading import values
from agpo_core.tasks.grading.clean import fold_latex, split_top
from agpo_core.tasks.grading.extraction import boxes
from agpo_core.tasks.grading.latex import Unreadable, parse
from agpo_core.tasks.grading.rules_words import program_output, same_output


@dataclass(frozen=True)
class Official:
    """One published protocol.

    Args:
        benchmark: the benchmark's profile name.
        source: where the protocol is published.
        phrase: how a right response ends under the protocol's prompt, with {gold} in it.
        extract: a response's answer; None where the protocol finds none.
        accepts: gold, answer -> right or wrong.
    """

    benchmark: str
    source: str
    phrase: str
    extract: Callable[[str], str | None]
    accepts: Callable[[str, str], bool]


def official_score(name: str, response: str, gold: str) -> bool:
    """Whether the protocol `name` marks a response right.

    Raises:
        ValueError: no protocol has that name; the message lists those there are.
    """
    protocol = _protocol(name)
    answer = protocol.extract(response)
    return answer is not None and protocol.accepts(gold, answer)


def rejected_golds(name: str, golds: Sequence[str]) -> list[int]:
    """The places of the golds that a protocol marks wrong when a response ends with them in its own answer phrase."""
    protocol = _protocol(name)
    return [i for i, gold in enumerate(golds) if not official_score(name, protocol.phrase.format(gold=gold), gold)]


def _protocol(name: str) -> Official:
    if name not in OFFICIAL:
        raise ValueError(f"name: no official protocol is called {name!r}; use one of {', '.join(OFFICIAL)}")
    return OFFICIAL[name]


def _first(pattern: str, text: str, flags: int = 0) -> str | None:
    match = re.search(pattern, text, flags)
    return match[1] if match else None


# -- GSM8K


def _gsm8k_openai(response: str) -> str | None:
    number = _first(r"#### (\-?[0-9\.\,]+)", response)
    return None if number is None else number.replace(",", "")


def _gsm8k_deepseek(response: str) -> str | None:
    numbers = re.findall(r"-?\d+\.?\d*", response.partition("Q: ")[0])
    return numbers[-1] if numbers else None


def _same_string_without_commas(gold: str, answer: str) -> bool:
    return gold.replace(",", "") == answer


# -- MATH, by Hendrycks et al.


def _last_box(response: str) -> str | None:
    found = boxes(response)
    return found[-1][2] if found else None


def hendrycks_form(text: str) -> str:
    """The string that Hendrycks et al. compare. Raises ValueError for what their code fails on: two units."""
    for old, new in (("\n", ""), (r"\!", ""), ("\\\\", "\\"), ("tfrac", "frac"), ("dfrac", "frac"), (r"\left", ""),
                     (r"\right", ""), (r"^{\circ}", ""), (r"^\circ", ""), (r"\$", "")):  # fmt: skip
        text = text.replace(old, new)
    if text.count(r"\text{ ") > 1:
        raise ValueError("more than one unit")
    text = text.partition(r"\text{ ")[0]
    for old, new in ((r"\%", ""), ("%", ""), (" .", " 0."), ("{.", "{0.")):
        text = text.replace(old, new)
    if text.startswith("."):
        text = "0" + text
    left, equals, right = text.partition("=")
    if equals and "=" not in right and len(left) <= 2:
        text = right
    text = re.sub(r"\\sqrt([^{])", r"\\sqrt{\1}", text, flags=re.S).replace(" ", "")
    text = _braced_fractions(text)
    if text == "0.5":
        return r"\frac{1}{2}"
    if match := re.fullmatch(r"(-?\d+)/(-?\d+)", text):
        return rf"\frac{{{int(match[1])}}}{{{int(match[2])}}}"
    return text


def _braced_fractions(text: str) -> str:
    r"""\frac12 and \frac1{72} with braces around their single characters."""
    head, *rest = text.split(r"\frac")
    out = [head]
    for piece in rest:
        if not piece.startswith("{"):
            if len(piece) < 2:
                return text
            first, second, tail = piece[0], piece[1], piece[2:]
            piece = f"{{{first}}}{second}{tail}" if second == "{" else f"{{{first}}}{{{second}}}{tail}"
        out.append(piece)
    return r"\frac".join(out)


def _hendrycks_equal(gold: str, answer: str) -> bool:
    try:
        return hendrycks_form(gold) == hendrycks_form(answer)
    except ValueError:
        return gold == answer


# -- Minerva (Lewkowycz et al. 2022, appendix D): MATH and OCWCourses

_MINERVA_SUBSTITUTIONS = (
    ("an ", ""), ("a ", ""), (".$", "$"), (r"\$", ""), (r"\ ", ""), (" ", ""), ("mbox", "text"), (r",\text{and}", ","),
    (r"\text{and}", ","), (r"\text{m}", r"\text{}"),
)  # fmt: skip
_MINERVA_REMOVED = (
    "square", "ways", "integers", "dollars", "mph", "inches", "ft", "hours", "km", "units", r"\ldots", "sue",
    "points", "feet",
    "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals", "edges", "students",
    "childrentickets",
    "multiples", r"\text{s}", r"\text{.}", "\\text{\ns}", r"\text{}^2", r"\text{}^3", "\\text{\n}", r"\text{}",
    r"\mathrm{th}",
    r"^\circ", r"^{\circ}", r"\;", r",\!", "{,}", '"', r"\dots",
)  # fmt: skip


def minerva_form(text: str) -> str:
    """The string that Minerva compares."""
    text = text.split("=")[-1]
    for old, new in _MINERVA_SUBSTITUTIONS:
        text = text.replace(old, new)
    for removed in _MINERVA_REMOVED:
        text = text.replace(removed, "")
    text = re.sub(r"(.*?)\$(.*?)\$(.*)", r"$\2$", text)
    for command in ("text", "textbf", "overline"):
        text = re.sub(rf"\\{command}\{{(.*?)\}}", r"\1", text)
    text = re.sub(r"\\boxed\{(.*)\}", r"\1", text)
    text = re.sub(r"frac([^{])(.)", r"frac{\1}{\2}", text)
    text = re.sub(r"sqrt([^{])", r"sqrt{\1}", text).replace("$", "")
    plain = text.replace(",", "")
    return plain if plain.isdigit() else text


def _minerva_equal(gold: str, answer: str) -> bool:
    return minerva_form(gold) == minerva_form(answer)


def _minerva_phrase(response: str) -> str | None:
    return _first(r"final answer is (.*)\. I hope it is correct\.", response.partition("Problem:")[0])


_OCW_UNITS = (
    "eV", r" \mathrm{~kg} \cdot \mathrm{m} / \mathrm{s}", " kg m/s", "kg*m/s", "kg", "m/s", "m / s", "m s^{-1}",
    r"\text{ m/s}",
    r" \mathrm{m/s}", r" \text{ m/s}", "g/mole", "g/mol", r"\mathrm{~g}", "W", "erg/s", "years", "year", "cm",
    r"\mathrm{m}", r"\mathrm{~m}", r"\mathrm{s}", r"\mathrm{~s}",
)  # fmt: skip


def _ocw_accepts(gold: str, answer: str) -> bool:
    """Numbers to a relative 1e-5, and by a sign-blind rule near zero that no negative gold and no zero can pass."""
    try:
        float(gold)
    except ValueError:
        if "=" in gold:
            return _same_sides(gold, answer)
        return _minerva_equal(gold, answer)
    right, given = _ocw_number(gold), _ocw_number(answer)
    if right is None or given is None:
        return False
    if any(isclose(x, 0.0, rel_tol=0.0, abs_tol=1e-8) for x in (right, given, given - right)):
        return abs(given - right) < 0.01 * (given + right) / 2
    return abs(given - right) <= 1e-8 + 1e-5 * abs(right)


def _ocw_number(text: str) -> float | None:
    for unit in _OCW_UNITS:
        text = text.replace(unit, "").strip()
    return _number(text.strip("$"))


def _number(text: str) -> float | None:
    """The value of a numeric expression, where the protocols call eval."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return float(values.evaluate(parse(fold_latex(text).strip())))
    except (Unreadable, TypeError, ArithmeticError):
        return None


def _same_sides(gold: str, answer: str) -> bool:
    """Equations with the same left and the same right side, as SymPy's equality of equations has it."""
    sides = [text.strip("$").split("=") for text in (gold, answer)]
    return len(sides[0]) == len(sides[1]) and all(map(_same_expression, *sides))


def _same_expression(a: str, b: str) -> bool:
    if a.replace(" ", "") == b.replace(" ", ""):
        return True
    keys = [_sympy_key(text) for text in (a, b)]
    return keys[0] is not None and keys[0] == keys[1]


def _sympy_key(text: str) -> str | None:
    """The value of what SymPy's LaTeX reader can read: no text commands, no degree sign."""
    if re.search(r"\\(?:mathrm|text|mbox|circ|textcircled|operatorname)", text):
        return None
    try:
        return values.key(parse(fold_latex(text).strip()))
    except (Unreadable, ArithmeticError):
        return None


# -- DeepSeekMath: Chinese benchmarks and choices


def _after_phrase(response: str, stop: str) -> str | None:
    _, found, rest = response.partition(stop)[0].partition("答案是")
    return rest.strip().split("\n")[0].strip() if found else None


def _cmath_deepseek(response: str) -> str | None:
    rest = _after_phrase(response, "问题：")
    numbers = re.findall(r"-?\d+\.?\d*", rest if rest is not None else response.replace(",", ""))
    return numbers[-1] if numbers else None


def _cloze_deepseek(response: str) -> str | None:
    rest = _after_phrase(response, "问题 ")
    return None if rest is None else rest.strip("$")


def _cloze_accepts(gold: str, answer: str) -> bool:
    """Blank by blank, in order; the gold is normalised and the prediction is not."""
    golds = [deepseek_form(part) for part in gold.strip().split(";")]
    parts: list[str] = []
    for piece in answer.split(";"):
        for part in map(str.strip, split_top(piece, ",")):
            if part not in parts:
                parts.append(part)
    parts = parts[-len(golds) :]
    return len(parts) == len(golds) and all(_deepseek_equal(g, p) for g, p in zip(golds, parts, strict=True))


def deepseek_form(text: str) -> str:
    """DeepSeekMath's normalised string, so far as its golds need it."""
    text = text.strip().replace("\n", "").rstrip(".").replace(r"\!", "")
    if text.startswith(r"\text{") and text.endswith("}"):
        text = text.split("{", 1)[1][:-1]
    for old, new in (("tfrac", "frac"), ("dfrac", "frac"), ("cfrac", "frac"), (r"\left", ""), (r"\right", "")):
        text = text.replace(old, new)
    without_unit = re.sub(r"\\text{.*?}$", "", text).strip()
    text = without_unit or text
    for old, new in ((r"^{\circ}", ""), (r"^\circ", ""), (r"\$", ""), ("$", ""), (r"x\in", ""), (r"\%", "%"), (" .",
    " 0."),
                     ("{.", "{0."), (r"\cdot", ""), (r"\mathbf", ""), (r"\mathrm", "")):  # fmt: skip
        text = text.replace(old, new).strip()
    text = re.sub(r"\\mbox{.*?}", "", text)
    text = re.sub(r"(\d+)\.0+(?=\D|$)", r"\1", text)
    text = "0" + text if text.startswith(".") else text
    text = re.sub(r"\\sqrt(-?[0-9.a-zA-Z]+)", r"\\sqrt{\1}", text).replace(" ", "")
    text = _braced_fractions(text)
    if match := re.fullmatch(r"(-?\d+)/(-?\d+)", text):
        text = rf"\frac{{{match[1]}}}{{{match[2]}}}"
    return re.sub(r"(\\|,|\.)+$", "", text)


def _deepseek_number(text: str) -> float | None:
    text = text.replace(",", "")
    try:
        return float(text)
    except ValueError:
        match = re.fullmatch(r"([-+]?[\d.]+)\\?%", text)
        return float(match[1]) / 100 if match and match[1].count(".") < 2 else None


def _deepseek_equal(gold: str, answer: str) -> bool:
    """Equal strings; numbers within 1e-3, a factor of a hundred either way forgiven; entries; sides; SymPy's
    equality.
    """
    if gold == answer:
        return True
    if r"\cup" in gold and r"\cup" in answer:
        golds, parts = gold.split(r"\cup"), answer.split(r"\cup")
        return all(any(_deepseek_equal(g, p) for p in parts) for g in golds) and all(
            any(_deepseek_equal(g, p) for g in golds) for p in parts
        )
    right, given = _deepseek_number(gold), _deepseek_number(answer)
    if right is not None and given is not None:
        return any(isclose(item, given, abs_tol=1e-3) for item in (right, right / 100, right * 100))
    bracketed = r"[(\[].+[)\]]"
    if re.match(bracketed, gold) and re.match(bracketed, answer):
        golds, parts = gold[1:-1].split(","), answer[1:-1].split(",")
        if len(golds) == len(parts) > 1 and all(map(_deepseek_equal, golds, parts)):
            return True
    if gold.count("=") == answer.count("=") == 1:
        differences = ["{} - ({})".format(*map(str.strip, text.split("="))) for text in (answer, gold)]
        return _sympy_equal(*differences) or _sympy_equal(f"-({differences[0]})", differences[1])
    for one, other in ((answer, gold), (gold, answer)):
        if one.count("=") == 1 and "=" not in other and len(one.split("=")[0].strip()) <= 2:
            return _deepseek_equal(other, one.split("=")[1])
    return _sympy_equal(answer, gold)


def _sympy_equal(a: str, b: str) -> bool:
    keys = [_sympy_key(text) for text in (a, b)]
    if None in keys:
        return False
    if keys[0] == keys[1]:
        return True
    numbers = [_number(text) for text in (a, b)]
    return None not in numbers and isclose(*numbers, abs_tol=1e-3)


def _cmath_accepts(gold: str, answer: str) -> bool:
    return _deepseek_equal(deepseek_form(gold), answer)


def _last_letter_to_appear(response: str) -> str | None:
    rest = _after_phrase(response, "问题 ")
    letters = [letter for letter in "ABCD" if rest and letter in rest]
    return max(letters, key=rest.index) if letters else None


def _choice_minerva(response: str) -> str | None:
    letter = _first(r"the final answer is \(?([abcd])\)?", response.partition("Problem:")[0].lower())
    return letter and letter.upper()


# -- AGIEval


def _first_capital(response: str) -> str | None:
    """The first capital A to F anywhere: the A of "Answer" is one."""
    return _first(r"([A-F])", response)


def _few_shot_letter(response: str, phrase: str) -> str | None:
    lines = [line for line in response.split("\n") if line.strip()]
    last = lines[-1] if lines else ""
    return _first(rf"{phrase}.*?([A-G])", last) or _first_capital(last)


def _after_last_phrase(response: str) -> str | None:
    lines = [line for line in response.split("\n") if line.strip()]
    return lines[-1].rpartition("答案是")[2].strip() if lines else None


# -- DAPO, Knights and Knaves, CodeContests


def _dapo(response: str) -> str | None:
    found = re.findall(r"(?i)Answer\s*:\s*([^\n]+)", response[-300:])
    return found[-1] if found else None


def _logic_rl(response: str) -> str | None:
    found = re.findall(r"<answer>(.*?)</answer>", response, re.S)
    return found[-1].strip() if found else None


def _said_roles(text: str) -> dict[str, str]:
    return {m[1].lower(): m[2].lower() for m in re.finditer(r"\b([A-Za-z]{1,40}) is an? (knight|knave)\b", text, re.I)}


def _logic_rl_accepts(gold: str, answer: str) -> bool:
    """As many role words as names, and every name with its role."""
    roles = _said_roles(gold)
    if len(re.findall(r"\b(?:knight|knave)\b", answer.lower())) != len(roles):
        return False
    given = {
        name: _first(rf"\b{re.escape(name)}\b.{{0,40}}?is a.*?\b(knight|knave)\b", answer.lower(), re.S)
        for name in roles
    }
    return given == roles


def _mem_kk(response: str) -> str | None:
    found = re.split(r"CONCLUSION\W{0,2}:", response)
    return found[-1] if len(found) > 1 else None


def _mem_kk_accepts(gold: str, answer: str) -> bool:
    """Every numbered statement of the gold as it stands, no "if", and no number beyond the gold's."""
    lines = [line.strip() for line in gold.splitlines() if line.strip()]
    return "if" not in answer and f"({len(lines) + 1})" not in answer and all(line in answer for line in lines)


def _output_accepts(gold: str, output: str) -> bool:
    right, given = program_output(gold, None), program_output(output, None)
    return right is not None and given is not None and same_output(right.key, given.key)


_DEEPSEEK = "deepseek-ai/DeepSeek-Math, evaluation"
_MINERVA_END = "Final Answer: The final answer is {gold}. I hope it is correct."
OFFICIAL: dict[str, Official] = {
    "gsm8k_openai": Official(
        "gsm8k", "openai/grade-school-math, dataset.py", "#### {gold}", _gsm8k_openai, _same_string_without_commas
    ),
    "gsm8k_deepseek": Official(
        "gsm8k", _DEEPSEEK, "The answer is {gold}.", _gsm8k_deepseek, lambda gold, answer: _deepseek_equal(gold, answer)
    ),
    "math_hendrycks": Official(
        "math", "hendrycks/math, math_equivalence.py", r"\boxed{{{gold}}}", _last_box, _hendrycks_equal
    ),
    "math_minerva": Official(
        "math", "Lewkowycz et al. 2022, appendix D", _MINERVA_END.replace("{gold}", "${gold}$"), _minerva_phrase,
        _minerva_equal
    ),
    "ocw_minerva": Official(
        "ocw", "wellecks/lm-evaluation-harness, ocw_courses.py", _MINERVA_END, _minerva_phrase, _ocw_accepts
    ),
    "sat_minerva": Official("sat", _DEEPSEEK, _MINERVA_END, _choice_minerva, str.__eq__),
    "mmlu_stem_deepseek": Official("mmlu_stem", _DEEPSEEK, _MINERVA_END, _choice_minerva, str.__eq__),
    "sat_math_agieval_zero_shot": Official("sat_math", "AGIEval, post_process.py", "{gold}", _first_capital,
    str.__eq__),
    "sat_math_agieval_few_shot": Official(
        "sat_math", "AGIEval, post_process.py", "The answer is therefore {gold}",
        partial(_few_shot_letter, phrase="answer is "), str.__eq__,
    ),
    "gaokao_qa_agieval_few_shot": Official(
        "gaokao_qa", "AGIEval, post_process.py", "答案是 {gold}", partial(_few_shot_letter, phrase="答案是"), str.__eq__
    ),
    "gaokao_cloze_agieval": Official(
        "gaokao_cloze", "AGIEval, post_process.py and Hendrycks's equivalence", "答案是 {gold}", _after_last_phrase,
        _hendrycks_equal
    ),
    "gaokao_cloze_deepseek": Official("gaokao_cloze", _DEEPSEEK, "答案是{gold}", _cloze_deepseek, _cloze_accepts),
    "gaokao_qa_deepseek": Official("gaokao_qa", _DEEPSEEK, "答案是 {gold}", _last_letter_to_appear, str.__eq__),
    "cmath_deepseek": Official("cmath", _DEEPSEEK, "答案是{gold}。", _cmath_deepseek, _cmath_accepts),
    "dapo": Official("dapo", "BytedTsinghua-SIA/DAPO, eval/math_dapo.py", "Answer: {gold}", _dapo, _minerva_equal),
    "knights_and_knaves_logic_rl": Official(
        "knights_and_knaves", "Unakar/Logic-RL, kk.py", "<answer>{gold}</answer>", _logic_rl, _logic_rl_accepts
    ),
    "knights_and_knaves_mem_kk": Official(
        "knights_and_knaves", "AlphaPav/mem-kk-logic, dataset/kk.py", "CONCLUSION:\n{gold}", _mem_kk, _mem_kk_accepts
    ),
    "codecontests": Official(
        "codecontests", "google-deepmind/code_contests, OutputsMatch", "{gold}", lambda output: output, _output_accepts
    ),
}  # fmt: skip

"""The published scorings: each benchmark's own way to find an answer and to score it, to reproduce published numbers.

They are kept apart from the grader and keep their errors: some reject their own gold answers (`rejected_golds`), some
accept wrong answers. They were written anew from the protocols' descriptions, with these departures:

    parser     where a protocol calls SymPy's parsers or Python's eval on what a model wrote, the strict parser of this
               package is used, without the commands that SymPy's parser lacks
    length     an answer of more than `LONGEST` characters is right only if it is the gold itself
    question   DeepSeekMath splits a gold of MATH where the question says "separated by commas"; here a protocol does
               not see the question, so such a gold is one answer
    prm800k    its LaTeX-to-text library and its lists of units and words are from memory, as far as golds need them
    MathArena  its parser is not described, so what the strict parser cannot read is right only if it is the gold's text
    XiaoMi     its published CMATH script fails (it calls a function with one argument too many); scored as corrected

The comparisons were checked against the verdicts of the original code on the 222 formulas and texts of the project's
grader cases. These agree: Hendrycks 222, Minerva (with DAPO) 222, prm800k 222 (its commands were completed on these
very cases), DeepSeekMath 212. The other ten depend on how SymPy's parser reads subscripts, products, words and signs.

OpenRLHF's math_reward_func.py and Qwen2.5-Math's evaluation are left out, because their comparison was not described in
the sources used. MMLU's likeliest letter and Arena-Hard's judge are no scorings of a response's text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import isclose

from agpo_core.grading import values
from agpo_core.grading.clean import MAX_CHARS, fold_latex, split_top
from agpo_core.grading.extraction import boxes
from agpo_core.grading.latex import Unreadable, parse
from agpo_core.grading.rules_words import program_output, same_output

LONGEST = MAX_CHARS  # characters of an answer that is compared: several comparisons are quadratic
SEVERAL = "\x1f"  # separates the answers of a protocol that takes several; the last one votes


@dataclass(frozen=True)
class Official:
    """One published scoring.

    Args:
        tasks: the tasks whose responses it scores; none for `codecontests`, which compares what a program printed.
        source: where it is published.
        phrase: the end of a right response under its prompt, with {gold} in it.
        extract: a function from a response to its answer, or None; it takes time linear in the response.
        compare: a function from gold and answer to whether the answer is right.
        longest: characters of the longest answer that is compared; None: no limit, because the comparison is linear.
    """

    tasks: tuple[str, ...]
    source: str
    phrase: str
    extract: Callable[[str], str | None]
    compare: Callable[[str, str], bool]
    longest: int | None = LONGEST

    def accepts(self, gold: str, answer: str) -> bool:
        """Whether an answer is right; one that is too long to be compared is right if it is the gold itself."""
        if self.longest is not None and len(answer) > self.longest:
            return answer == gold
        return self.compare(gold, answer)


def official_score(name: str, response: str, gold: str) -> bool:
    """Whether the protocol `name` marks a response right.

    Raises:
        ValueError: no protocol has that name; the message lists the names.
    """
    protocol = _protocol(name)
    answer = protocol.extract(response)
    return answer is not None and protocol.accepts(gold, answer)


def rejected_golds(name: str, golds: Sequence[str]) -> list[int]:
    """The places of the golds that a protocol marks wrong when a response ends with them in the protocol's phrase."""
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
    """The string that Hendrycks et al. compare. Raises ValueError for two units, on which their code fails."""
    for old, new in (("\n", ""), (r"\!", ""), ("\\\\", "\\"), ("tfrac", "frac"), ("dfrac", "frac"), (r"\left", ""),
                     (r"\right", ""), (r"^{\circ}", ""), (r"^\circ", ""), (r"\$", "")):  # fmt: skip
        text = text.replace(old, new)
    if text.count(r"\text{ ") > 1:
        raise ValueError("more than one unit")
    text = text.partition(r"\text{ ")[0]
    for old, new in ((r"\%", ""), (" .", " 0."), ("{.", "{0.")):
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
    r"""A text in which \frac12 and \frac1{72} have braces around their single characters."""
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
    parts = [line.split("$") for line in text.split("\n")]  # of a line with two dollars, only the text between them
    text = "\n".join(f"${part[1]}$" if len(part) > 2 else "$".join(part) for part in parts)
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
    """The first match of "final answer is (.*)\\. I hope it is correct\\." in the lines of a response."""
    for line in response.partition("Problem:")[0].split("\n"):
        answer, hope, _ = line.partition("final answer is ")[2].rpartition(". I hope it is correct.")
        if hope:
            return answer
    return None


_OCW_UNITS = (
    "eV", r" \mathrm{~kg} \cdot \mathrm{m} / \mathrm{s}", " kg m/s", "kg*m/s", "kg", "m/s", "m / s", "m s^{-1}",
    r"\text{ m/s}",
    r" \mathrm{m/s}", r" \text{ m/s}", "g/mole", "g/mol", r"\mathrm{~g}", "W", "erg/s", "years", "year", "cm",
    r"\mathrm{m}", r"\mathrm{~m}", r"\mathrm{s}", r"\mathrm{~s}",
)  # fmt: skip


def _ocw_accepts(gold: str, answer: str) -> bool:
    """Whether numbers agree to a relative 1e-5; near zero by another rule, which negative golds and 0 always fail."""
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
    """The value of a numeric expression, for which the protocols call eval; None if it has none."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        values.allow()
        return float(values.evaluate(parse(fold_latex(text).strip())))
    except (Unreadable, TypeError, ArithmeticError):
        return None


def _same_sides(gold: str, answer: str) -> bool:
    """Whether equations have the same left and the same right side, which is SymPy's equality of equations."""
    sides = [text.strip("$").split("=") for text in (gold, answer)]
    return len(sides[0]) == len(sides[1]) and all(map(_same_expression, *sides))


def _same_expression(a: str, b: str) -> bool:
    return a.replace(" ", "") == b.replace(" ", "") or _same_key(a, b, _sympy_key)


def _same_key(a: str, b: str, key: Callable[[str], str | None]) -> bool:
    found = key(a)
    return found is not None and found == key(b)


def _sympy_key(text: str) -> str | None:
    """The key of what SymPy's LaTeX parser reads; it stops at a comma and knows no text command, degree sign, \\pm."""
    if re.search(r"\\(?:mathrm|text|mbox|circ|textcircled|operatorname|pm)", text):
        return None
    return _key(text.partition(",")[0])


def _key(text: str) -> str | None:
    try:
        values.allow()
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
    """Whether all blanks are right, in order; the gold is normalised and the prediction is not."""
    golds = [deepseek_form(part) for part in gold.strip().split(";")]
    parts: list[str] = []
    for piece in answer.split(";"):
        for part in map(str.strip, split_top(piece, ",")):
            if part not in parts:
                parts.append(part)
    parts = parts[-len(golds) :]
    return len(parts) == len(golds) and all(_deepseek_equal(g, p) for g, p in zip(golds, parts, strict=True))


def deepseek_form(text: str) -> str:
    """DeepSeekMath's normalised string, as far as its golds need it."""
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
    """DeepSeekMath's equality: of strings, of numbers within 1e-3 (also a hundred times too large or too small), of
    entries, of the sides of equations, or by SymPy.
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
    """The first capital letter from A to F anywhere; the A of "Answer" is one."""
    return _first(r"([A-F])", response)


def _few_shot_letter(response: str, phrase: str) -> str | None:
    lines = [line for line in response.split("\n") if line.strip()]
    last = lines[-1] if lines else ""
    return _first(r"([A-G])", last.partition(phrase)[2]) or _first_capital(last)


def _after_last_phrase(response: str) -> str | None:
    lines = [line for line in response.split("\n") if line.strip()]
    return lines[-1].rpartition("答案是")[2].strip() if lines else None


# -- DAPO, Knights and Knaves, CodeContests


def _dapo(response: str) -> str | None:
    found = re.findall(r"(?i)Answer\s*:\s*([^\n]+)", response[-300:])
    return found[-1] if found else None


def _logic_rl(response: str) -> str | None:
    """The content of the last <answer>…</answer>; it begins at the first <answer> after the previous </answer>."""
    for block in reversed(response.split("</answer>")[:-1]):
        _, begun, content = block.partition("<answer>")
        if begun:
            return content.strip()
    return None


def _said_roles(text: str) -> dict[str, str]:
    return {m[1].lower(): m[2].lower() for m in re.finditer(r"\b([A-Za-z]{1,40}) is an? (knight|knave)\b", text, re.I)}


def _logic_rl_accepts(gold: str, answer: str) -> bool:
    """Whether there are as many role words as names and every name has its role."""
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
    """Whether all numbered statements of the gold are in the answer word for word, without "if" and further numbers."""
    lines = [line.strip() for line in gold.splitlines() if line.strip()]
    return "if" not in answer and f"({len(lines) + 1})" not in answer and all(line in answer for line in lines)


def _output_accepts(gold: str, output: str) -> bool:
    right, given = program_output(gold, None), program_output(output, None)
    return right is not None and given is not None and same_output(right.key, given.key)


# -- prm800k

_PRM_UNITS = "degree cm centimeter meter mile second minute hour day week month year foot feet inch yard".split()
_PRM_COMMANDS = {"frac": r"\frac", "dfrac": r"\frac", "tfrac": r"\frac", "sqrt": r"\sqrt", "pi": "π", "infty": "∞",
                 "cup": "∪", "cdot": "·", "times": "×", "pm": "±", "sin": "sin", "cos": "cos", "tan": "tan",
                 "log": "log", "ln": "ln"}  # fmt: skip
_PRM_SYMBOLS = (("π", "pi"), ("∞", "inf"), ("∪", "U"), ("·", "*"), ("×", "*"))
_PRM_ARGUMENT = r" *(?:\{([^{}]*)\}|([^\\{} ]))"


def _prm_plain(text: str) -> str:
    """LaTeX as plain text: a fraction becomes a/b without brackets, a root sqrt(a); unknown commands are dropped."""
    text = re.sub(r"\\([A-Za-z]+|\W)", lambda m: _PRM_COMMANDS.get(m[1], "" if m[1].isalpha() else " "), text)
    text, before = re.sub(r"\\frac", r" \\frac", text), ""
    while text != before:
        before = text
        text = re.sub(rf"\\frac{_PRM_ARGUMENT}{_PRM_ARGUMENT}", lambda m: f"{m[1] or m[2]}/{m[3] or m[4]}", text)
        text = re.sub(rf"\\sqrt{_PRM_ARGUMENT}", lambda m: f"sqrt({m[1] or m[2]})", text)
        if text == before:  # no command can be replaced: open the first group that is not an argument
            text = re.sub(r"(?<!\\frac)(?<!\\sqrt)(?<!\})\{([^{}]*)\}", r"\1", text, count=1)
    for symbol, word in _PRM_SYMBOLS:
        text = text.replace(symbol, word)
    return text.strip()


def _prm_form(text: str) -> str:
    """The string that prm800k compares: without words, units and LaTeX, a mixed number as a sum, in lower case."""
    if match := re.fullmatch(r"\\text\{(.+?)\}", text, re.S):
        text = match[1]
    for old, new in ((r"\%", "%"), (r"\$", "$"), ("$", ""), ("%", ""), (" or ", " , "), (" and ", " , "),
                     ("million", "*10^6"), ("billion", "*10^9"), ("trillion", "*10^12")):  # fmt: skip
        text = text.replace(old, new)
    for unit in _PRM_UNITS:
        text = re.sub(rf"{unit}(?:es)?s? *(?:\^[0-9]+)?", "", text)
    text = re.sub(r",\\! *", "", re.sub(r"\^ *\\circ", "", text))
    if (whole := _prm_integer(text)) is not None:
        text = str(whole)
    if "\\" in text:
        text = _prm_plain(text)
    text = re.sub(r"([0-9]) +([0-9])", r"\1+\2", re.sub(r"- +", "-", text))
    for old in " {}":
        text = text.replace(old, "")
    text = text.lower()
    return text if (whole := _prm_integer(text)) is None else str(whole)


def _without_commas(text: str) -> str:
    """The text without commas between thousands."""
    return re.sub(r"(?<=\d),(?=\d{3}(?:\D|$))", "", text)


def _prm_integer(text: str) -> int | None:
    """The whole number within 1e-7 of a text's number, or None: 1.325e-27 gives 0."""
    try:
        value = float(_without_commas(text))
        return round(value) if abs(value - round(value)) <= 1e-7 else None
    except (ValueError, OverflowError):
        return None


def _prm_entries(text: str) -> list[str]:
    """The entries of a tuple or an interval without inner brackets; (58, 500) has one entry, 58500."""
    text = _without_commas(text)
    inner = text[1:-1]
    if len(text) > 2 and text[0] in "([" and text[-1] in ")]" and not re.search(r"[(\[)\]]", inner):
        return [entry.strip() for entry in inner.split(",")]
    return [text] if text else []


def _prm800k_equal(gold: str, answer: str) -> bool:
    """Hendrycks's equality, or entries equal one by one, where fractions must be reduced and integers be integers."""
    if _hendrycks_equal(*(re.sub(r"^\\text\{(.+?)\}$", r"\1", text.strip()) for text in (gold, answer))):
        return True
    right, given = _prm_form(gold), _prm_form(answer)
    if right == given:
        return True
    golds, entries = _prm_entries(right), _prm_entries(given)
    if not entries or len(golds) != len(entries):
        return False
    if len(golds) > 1 and (right[0], right[-1]) != (given[0], given[-1]):
        return False
    return all(map(_prm_entry_equal, golds, entries))


def _prm_entry_equal(gold: str, answer: str) -> bool:
    if gold == answer or all(re.fullmatch(r"-?[0-9]+.?/0*[1-9][0-9]*.?", text) for text in (gold, answer)):
        return gold == answer
    if (_prm_integer(gold) is None) != (_prm_integer(answer) is None):
        return False
    both = f"{gold} {answer}".replace("sqrt", "")
    too_hard = len({char for char in both if char.isalpha()}) > 2 or re.search(r"\^\(|\^[0-9]+\^|\^[0-9][0-9]+", both)
    return not too_hard and _same_key(gold, answer, _key)


# -- DeepSeekMath's boxes, MathArena, ORZ, XiaoMi's CMATH


def _deepseek_boxes(response: str) -> str | None:
    """The answer in the phrase with dollars, else the last box, else what follows "he answer is", else the last number.

    Only the last box counts, because a gold is one answer here.
    """
    _, found, rest = response.partition("final answer is $")
    answer, hope, _ = rest.partition("$. I hope")
    if found and hope:
        return answer
    if (box := _last_box(response)) is not None:
        return box
    _, found, rest = response.rpartition("he answer is")
    if found:
        return rest.strip().partition("\n")[0].lstrip(":").strip().rstrip(".")
    numbers = re.findall(r"-?\d*\.?\d+", response.replace(",", ""))
    return numbers[-1] if numbers else None


def _both_forms_equal(gold: str, answer: str) -> bool:
    return _deepseek_equal(deepseek_form(gold), deepseek_form(answer))


def _boxes_of_last_line(response: str) -> str | None:
    found = boxes(response)
    if not found:
        return None
    start = response.rfind("\n", 0, found[-1][0]) + 1
    return SEVERAL.join(content for begun, _, content in found if begun >= start)


def _matharena_accepts(gold: str, answer: str) -> bool:
    """Whether the text after the last "=" of the last box is right; for a list, of all boxes, in any order."""
    golds, given = split_top(gold, ","), answer.split(SEVERAL)
    given = [text.rpartition("=")[2] for text in (given if len(golds) > 1 else given[-1:])]
    if len(golds) > 1:
        given = [entry for text in given for entry in split_top(text, ",")]
    for right in golds:
        match = next((i for i, entry in enumerate(given) if _matharena_equal(right, entry)), None)
        if match is None:
            return False
        del given[match]
    return not given


def _matharena_equal(gold: str, answer: str) -> bool:
    if gold.replace(" ", "") == answer.replace(" ", "") or _same_key(gold, answer, _key):
        return True
    numbers = [_number(text) for text in (gold, answer)]
    return None not in numbers and abs(numbers[0] - numbers[1]) <= 1e-10


def _orz(response: str) -> str | None:
    block = _logic_rl(response)
    return None if block is None else _last_box(block)


def _orz_accepts(gold: str, answer: str) -> bool:
    right, given = minerva_form(gold), minerva_form(answer)
    return right == given or _same_key(right, given, _key)


_XIAOMI = re.compile(r"\\d?frac\{(-?\d+)\}\{(\d+)\}|(\d+)分之(\d+)|(-?\d[\d,]*(?:\.\d+)?)(?:/(\d+))?(%?)")


def _last_two_numbers(response: str) -> str | None:
    found = [match[0] for match in _XIAOMI.finditer(response)]
    return SEVERAL.join(found[-2:]) if found else None


def _xiaomi_value(text: str) -> Fraction | None:
    match = _XIAOMI.fullmatch(text)
    if not match:
        return None
    over, under, parts, of, number, divisor, percent = match.groups()
    above, below = (over, under) if over else (of, parts) if of else (number.replace(",", ""), divisor or "1")
    return Fraction(above) / int(below) / (100 if percent else 1) if int(below) else None


def _xiaomi_accepts(gold: str, answer: str) -> bool:
    """Whether one of the last two numbers is right: exactly for a whole gold, to less than 1 % for another."""
    right, given = _xiaomi_value(gold), [_xiaomi_value(text) for text in answer.split(SEVERAL)]
    if right is None:
        return False
    allowed = 0 if right.denominator == 1 else abs(right) / 100
    return any(value is not None and (value == right or abs(value - right) < allowed) for value in given)


_DEEPSEEK = "deepseek-ai/DeepSeek-Math, evaluation"
_MINERVA_END = "Final Answer: The final answer is {gold}. I hope it is correct."
_AGIEVAL = "AGIEval, post_process.py"
_MATH = ("math", "math500")
_KNIGHTS = ("knights_and_knaves", *(f"knights_and_knaves_{people}" for people in range(2, 9)))
OFFICIAL: dict[str, Official] = {
    "gsm8k_openai": Official(
        ("gsm8k",), "openai/grade-school-math, dataset.py", "#### {gold}", _gsm8k_openai, _same_string_without_commas
    ),
    "gsm8k_deepseek": Official(("gsm8k",), _DEEPSEEK, "The answer is {gold}.", _gsm8k_deepseek, _deepseek_equal),
    "math_hendrycks": Official(
        _MATH, "hendrycks/math, math_equivalence.py", r"\boxed{{{gold}}}", _last_box, _hendrycks_equal
    ),
    "math_prm800k": Official(
        _MATH, "openai/prm800k, grading/grader.py; the last box", r"\boxed{{{gold}}}", _last_box, _prm800k_equal
    ),
    "math_minerva": Official(
        _MATH, "Lewkowycz et al. 2022, appendix D", _MINERVA_END.replace("{gold}", "${gold}$"), _minerva_phrase,
        _minerva_equal,
    ),
    "math_deepseek": Official(
        _MATH, _DEEPSEEK, _MINERVA_END.replace("{gold}", "${gold}$"), _deepseek_boxes, _both_forms_equal
    ),
    "deepseek_zero_shot": Official(
        ("gsm8k", *_MATH, "cmath"), _DEEPSEEK, r"\boxed{{{gold}}}", _deepseek_boxes, _both_forms_equal
    ),
    "orz": Official(
        (*_MATH, "aime24", "orz"), "Open-Reasoner-Zero", r"<answer>\boxed{{{gold}}}</answer>", _orz, _orz_accepts
    ),
    "matharena": Official(
        ("aime24", "aime25", "hmmt24", "hmmt25", "cmimc24", "cmimc25"), "eth-sri/matharena, parser.py",
        r"\boxed{{{gold}}}", _boxes_of_last_line, _matharena_accepts,
    ),
    "dapo": Official(
        ("dapo", "aime24"), "BytedTsinghua-SIA/DAPO, eval/math_dapo.py", "Answer: {gold}", _dapo, _minerva_equal
    ),
    "ocw_minerva": Official(
        ("ocw",), "wellecks/lm-evaluation-harness, ocw_courses.py", _MINERVA_END, _minerva_phrase, _ocw_accepts
    ),
    "sat_llemma": Official(
        ("sat_llemma",), "wellecks/lm-evaluation-harness, math_sat_cot.py",
        "Final Answer: The final answer is ({gold}).",
        partial(_first, r"Final Answer: The final answer is \(([ABCD])\)."), str.__eq__,
    ),
    "sat_minerva": Official(("sat_llemma", "sat_math"), _DEEPSEEK, _MINERVA_END, _choice_minerva, str.__eq__),
    "mmlu_stem_deepseek": Official(("mmlu_stem",), _DEEPSEEK, _MINERVA_END, _choice_minerva, str.__eq__),
    "sat_math_agieval_zero_shot": Official(("sat_math",), _AGIEVAL, "{gold}", _first_capital, str.__eq__),
    "sat_math_agieval_few_shot": Official(
        ("sat_math",), _AGIEVAL, "The answer is therefore {gold}", partial(_few_shot_letter, phrase="answer is "),
        str.__eq__,
    ),
    "gaokao_qa_agieval_zero_shot": Official(("gaokao_qa",), _AGIEVAL, "{gold}", _first_capital, str.__eq__),
    "gaokao_qa_agieval_few_shot": Official(
        ("gaokao_qa",), _AGIEVAL, "答案是 {gold}", partial(_few_shot_letter, phrase="答案是"), str.__eq__
    ),
    "gaokao_qa_deepseek": Official(("gaokao_qa",), _DEEPSEEK, "答案是 {gold}", _last_letter_to_appear, str.__eq__),
    "gaokao_cloze_agieval": Official(
        ("gaokao_cloze",), f"{_AGIEVAL}, and Hendrycks's equivalence", "答案是 {gold}", _after_last_phrase,
        _hendrycks_equal,
    ),
    "gaokao_cloze_deepseek": Official(("gaokao_cloze",), _DEEPSEEK, "答案是{gold}", _cloze_deepseek, _cloze_accepts),
    "cmath_deepseek": Official(("cmath",), _DEEPSEEK, "答案是{gold}。", _cmath_deepseek, _cmath_accepts),
    "cmath_xiaomi": Official(
        ("cmath",), "XiaoMi/cmath, utils.py", "答案是{gold}。", _last_two_numbers, _xiaomi_accepts
    ),
    "knights_and_knaves_logic_rl": Official(
        _KNIGHTS, "Unakar/Logic-RL, kk.py", "<answer>{gold}</answer>", _logic_rl, _logic_rl_accepts
    ),
    "knights_and_knaves_mem_kk": Official(
        _KNIGHTS, "AlphaPav/mem-kk-logic, dataset/kk.py", "CONCLUSION:\n{gold}", _mem_kk, _mem_kk_accepts,
        longest=None,
    ),
    "codecontests": Official(
        (), "google-deepmind/code_contests, OutputsMatch", "{gold}", lambda output: output, _output_accepts,
        longest=None,
    ),
}  # fmt: skip

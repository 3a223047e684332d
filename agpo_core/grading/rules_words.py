"""Rules for answers that are letters or words: choices, dates, times, numerals with a base, ratios, names, roles,
output.

Each rule takes a cleaned answer and its profile and returns a reading, or None to pass the answer on.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import gcd

from agpo_core.grading import values, words
from agpo_core.grading.language import denies, leaves_open
from agpo_core.grading.latex import Unreadable
from agpo_core.grading.patterns import pattern
from agpo_core.grading.reading import Reading, plain
from agpo_core.grading.rules_numbers import tree_of

_LETTER = pattern(r"(?:option|choice|选项?)? ?[(\[]? ?(?P<letter>[A-Z]) ?[)\]]?[.):]?(?: ?选?项)?", re.I)
_LETTER_AND_TEXT = pattern(r"(?:\((?P<a>[A-H])\)|(?P<b>[A-H])[.):]) ?(?P<rest>\S.{0,2000})", re.S)
_OTHER_LETTER = pattern(r"(?<![A-Za-z])(?:\([B-H]\)|[B-H](?:[.):,]|\Z| (?:and|or)\b))")


def choice(text: str, profile) -> Reading | None:
    """The one letter of a multiple-choice answer, in any wrapping; where there are several letters, none is guessed.

    Case: MATH-500 `\\text{(C)}`; GaokaoMath-QA `选D` and `D选项`, and `ABCD` is not D.
    """
    text = plain(text)
    match = _LETTER.fullmatch(text)
    if match:
        return Reading(match["letter"].upper())
    match = _LETTER_AND_TEXT.fullmatch(text)
    if match and not _OTHER_LETTER.search(match["rest"]):
        return Reading(match["a"] or match["b"])
    return None


_CAPITAL = pattern(r"\(([A-Z])\)\.?|([A-Z])[.)]?")
_OPTION_TEXT = pattern(r"\(([A-H])\) ?(?:[\\$=:.-]|[A-Za-z]{2}|\d)(?P<rest>.{0,2000})", re.S)
_OPTION = pattern(r"\\text ?\{ ?\([A-H]\)|\([A-H]\) ")
_OTHERS = pattern(r"\([A-H]\)|(?<![A-Za-z\\])(?:or|and|is|more)(?![A-Za-z])")  # a letter beside these is no option


def capital(text: str, profile) -> Reading | None:
    """One capital letter where answers are formulas; a choice and a name get the same key. Case: MATH `\\text{C}`,
    Cloze `$A$`.
    """
    found = plain(text)
    if match := _CAPITAL.fullmatch(found):
        return Reading(match[1] or match[2])
    match = _OPTION_TEXT.fullmatch(found)
    if match and _OPTION.match(text) and not (_OTHERS.search(found[3:]) or denies(found)):
        return Reading(match[1])
    return None


_SEVERAL = pattern(r"(?:options?|choices?|选) ?", re.I)
_JOINED = pattern(r"\band\b|和|与|及|选?项|\\quad|[()\[\],.;& ]")


def letters(text: str, profile) -> Reading | None:
    """The set of letters that answers a question with several right options.

    Case: GaokaoMath-QA `AD` is `A、D`, `DA` and `A项和D项`, not `A`.
    """
    text = plain(text)
    lead = _SEVERAL.match(text)
    found = _JOINED.sub("", text[lead.end() :] if lead else text)
    if not found or set(found) - set("ABCDEFGH") or len(set(found)) != len(found):
        return None
    return Reading("".join(sorted(found)))


_ANDS = pattern(r"和|与|及|\band\b")
_CIRCLED = pattern(r"(?:\\textcircled ?\{? ?\d{1,2} ?\}?[,;$ ]*+)++|(?:\( ?\d{1,2} ?\)[,;$ ]*+){2,}+")
_NUMERAL = pattern(r"\d++")
_BEFORE_CIRCLED = pattern(r"[^\\]{0,20}?(?:序号|命题|结论|说法|编号)?[^\\]{0,4}[是为:](?=\\textcircled)")


def circled_numbers(text: str, profile) -> Reading | None:
    """The set of numbers of the statements that hold. Case: Cloze `\\textcircled{1}\\textcircled{3}\\textcircled{4}` is
    `①③④`.
    """
    text = _ANDS.sub(",", plain(text))
    if lead := _BEFORE_CIRCLED.match(text):
        text = text[lead.end() :]
    if not _CIRCLED.fullmatch(text):
        return None
    return Reading("circled:" + ",".join(map(str, sorted({int(n) for n in _NUMERAL.findall(text)}))))


# -- dates, times, bases, ratios, words


def date(text: str, profile) -> Reading | None:
    """A day of the year. Case: MATH `\\text{June 20}` is `\\text{June }20` and not `June 2`."""
    found = words.date(plain(text))
    return found and Reading(f"date:{found}")


def time_of_day(text: str, profile) -> Reading | None:
    """A time that cannot be a ratio too. Case: MATH `\\text{4:30 p.m.}` equals `4:30 p.m.` and `4:30` (which the
    benchmark's official grader rejects), but not `4:30 a.m.`.
    """
    found = words.time_of_day(plain(text))
    return Reading(f"clock:{found[0]}", half=found[1], clock=found[0]) if found and found[2] else None


_BASE = pattern(
    r"\A\(? ?(?P<digits>[0-9A-Fa-f]{1,200}(?:\.[0-9A-Fa-f]{1,200})?|\.[0-9]{1,200}) ?\)? ?"
    r"(?:_ ?\{? ?\(?(?P<base>\d{1,2}|[a-z]{1,9})\)? ?\}?|,? ?\(?(?:in )?base[- ](?P<base2>\d{1,2}|[a-z]{1,9})\)?)"
)
_BASE_NAMES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
               "eleven": 11, "twelve": 12, "sixteen": 16}  # fmt: skip


def base(text: str, profile) -> Reading | None:
    """A numeral with its base; the base is part of the answer. Case: MATH-500 `52_8` is `52_{8}`, not `52_9` and not
    `52`; MATH `0.0011_{2}` is `.0011_2`.
    """
    match = _BASE.fullmatch(plain(text))
    if not match or not match["digits"][0].isdigit() and len(match["digits"]) == 1:
        return None
    name = match["base"] or match["base2"]
    radix = _BASE_NAMES.get(name) if name.isalpha() else int(name)
    digits = match["digits"].upper()
    if radix is None or not 2 <= radix <= 16 or any(int(c, 16) >= radix for c in digits if c != "."):
        return None
    whole, _, decimals = digits.partition(".")
    decimals = decimals.rstrip("0")
    return Reading(f"base{radix}:{whole.lstrip('0') or '0'}{'.' + decimals if decimals else ''}")


_COLON = pattern(r" ?: ?|\\colon")


def ratio(text: str, profile) -> Reading | None:
    """A ratio, numbers separated by colons up to a common factor; two numbers may also be a time. Case: MATH `3:1` is
    `6:2`; ORZ `4:1` is not `1:4` and not `4`.
    """
    text = plain(text)
    if ":" not in text and " to " not in text and "\\colon" not in text:
        return None
    parts = _COLON.split(text) if ":" in text or "\\colon" in text else text.split(" to ")
    if not 2 <= len(parts) <= 5 or not all(parts) or "\\pm" in text:
        return None
    clock, half, _ = words.time_of_day(text) or (None, None, None)
    try:
        terms = [values.evaluate(tree_of(part, profile)) for part in parts]
    except Unreadable:
        return None
    if not all(isinstance(term, Fraction) for term in terms):
        if any(term == 0 for term in terms):
            return None
        scaled = [values.number_key(values.divide(term, terms[-1])) for term in terms]
        return Reading("ratio:" + ":".join(scaled))
    common = 1
    for term in terms:
        common = common * term.denominator // gcd(common, term.denominator)
    whole = [int(term * common) for term in terms]
    divisor = gcd(*whole)
    if not divisor:
        return None
    key = "ratio:" + ":".join(values.rational_key(Fraction(n // divisor)) for n in whole)
    return Reading(key, half=half, clock=clock)


_SYNONYMS = {"none": "no solution", "does not exist": "dne", "infinite": "infinitely many"}
_WRAPPED_WORD = pattern(r"\\text ?\{ ?([A-Za-z]{2,99}) ?\}")


def text(text: str, profile) -> Reading | None:
    """An answer in words, in any text command, in upper or lower case. Case: MATH-500 `\\text{Evelyn}` is `Evelyn` and
    `\\textbf{Evelyn}`.
    """
    found = words.words(plain(text))
    if found in ("infinity", "inf"):
        return Reading("inf")
    if found is None:
        wrapped = _WRAPPED_WORD.fullmatch(text)
        found = wrapped and wrapped[1].lower()
    return found and Reading(f"text:{_SYNONYMS.get(found, found)}")


# -- knights and knaves, program output

MAX_STATEMENTS = 5000  # characters
_MARKUP = str.maketrans("", "", "*_`")
_MENTION = pattern(r"\b(?:knight|knave)s?\b", re.I)
_CONDITION = pattern(r"\b(?:if|or|both)\b", re.I)
_ROLE = pattern(r"\b(?P<name>[A-Za-z]{1,40}) {1,4}is {1,4}an? {1,4}(?P<role>knight|knave)\b", re.I)


def roles(text: str, profile) -> Reading | None:
    """Everyone's role, in any order; a block that contradicts or repeats itself, hedges or denies is not read.

    Case: K&K `(1) Zoey is a knave, (2) Oliver is a knight`; followed by `(3) Zoey is a knight`, it is not read.
    """
    if len(text) > MAX_STATEMENTS:
        return None
    text = text.translate(_MARKUP)
    found = [(m["name"].lower(), m["role"].lower()) for m in _ROLE.finditer(text)]
    names = [name for name, _ in found]
    mentions = len(_MENTION.findall(text))
    if not found or len(set(names)) != len(names) or mentions != len(found):
        return None
    if denies(text) or leaves_open(text) or _CONDITION.search(text) or len(found) > 60:
        return None
    return Reading("roles:" + ",".join(f"{name}={role}" for name, role in sorted(found)))


MAX_OUTPUT = 1_000_000
_OUTPUT_NUMBER = pattern(r"[-+]?(?:\d{1,300}\.?\d{0,300}|\.\d{1,300})(?:[eE][-+]?\d{1,3})?")


def program_output(text: str, profile) -> Reading | None:
    """Standard output as its words in lower case. `same_output` compares them: numbers may differ by 1e-5."""
    if len(text) > MAX_OUTPUT:
        return None
    return Reading("\n".join(text.lower().split()))


def same_output(gold: str, output: str) -> bool:
    """Whether two outputs have as many words, each pair equal or two numbers within 1e-5. Case: `3.162277660`.

    This is the rule of DeepMind's OutputsMatch.
    """
    expected, found = gold.split("\n"), output.split("\n")
    return len(expected) == len(found) and all(map(_same_word, expected, found))


def _same_word(a: str, b: str) -> bool:
    if a == b:
        return True
    if not (_OUTPUT_NUMBER.fullmatch(a) and _OUTPUT_NUMBER.fullmatch(b)):
        return False
    return abs(Fraction(a) - Fraction(b)) <= Fraction(1, 10**5)

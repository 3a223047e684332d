"""Rules for answers that are one number: decimals, fractions, mixed numbers, percentages, numbers in words.

Each rule takes a cleaned answer and its profile and returns a reading, or None to pass the answer on.
"""

from __future__ import annotations

import re
from fractions import Fraction

from agpo_core.grading import values, words
from agpo_core.grading.language import denies
from agpo_core.grading.latex import Node, Unreadable, parse
from agpo_core.grading.numerals import in_words, mixed_number, read_number
from agpo_core.grading.patterns import pattern
from agpo_core.grading.reading import Reading, bare, label_of, plain
from agpo_core.grading.units import KNOWN, strip_currency, strip_unit

_PERCENT = pattern(r"\s{0,9}(?:\\?%|percent|per cent|pct|\\(?:text|mathrm) ?\{ ?(?:percent|%|\\%) ?\})\.?\Z", re.I)
_LABEL = pattern(r"(?P<left>[^=<>]{1,200})=(?!=)\s{0,9}(?P<rest>[^=<>]{1,200})")
_CHINESE_TAIL = pattern(
    r"\A(?P<number>.{0,200}[\d})%])\s{0,9}(?P<suffix>[\u4e00-\u9fff]{1,8}(?:/[\u4e00-\u9fff]{1,4})?)"
)
_NO_MEASURE = pattern(r"半|不|错|以下|以上|分之|又|\A[十成折多余]")  # these change the number
_COUNTED = pattern(r"\([\u4e00-\u9fff]{1,4}\)\Z")  # 18(个)
_SCALED = pattern(
    r"\A(?P<number>[^A-Za-z]{0,200}\d) ?(?P<scale>hundred|thousand|million|billion|trillion|dozen)\b ?"
    r"(?P<rest>[A-Za-z ]{0,40})",
    re.I,
)
_MONEY = pattern(r"(?P<number>(?:\\?\$|[€£¥])[^A-Za-z]{0,200}\d) ?(?P<scale>k|K|m|M|B|bn|mn)")
_SCALES = {**words.ENGLISH_MULTIPLIERS, "dozen": 12, "k": 10**3, "m": 10**6, "mn": 10**6, "b": 10**9, "bn": 10**9}
_SUBSCRIPT = pattern(r"_ ?(?:\{\w{1,9}\}|\w)")
_WORKED_SIDE = pattern(r"\d|[-+*/^√]|\\(?:sqrt|frac)")
_LONE_LETTER = pattern(r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])")
_ENDS_IN_DIGIT = pattern(r"\d\s{0,9}\Z")


def strip_percent(text: str, profile) -> tuple[str, Fraction, str | None]:
    """The answer without its percent sign, the factor that the sign stands for (1 or 1/100), and the unit "%" or None.

    Case: MATH `28\\%` is 28; CMATH `12%` is 0.12 and not 12. The profile says which.
    """
    match = _PERCENT.search(text, max(0, len(text) - 40))
    if not match or not match.start():
        return text, Fraction(1), None
    return text[: match.start()], Fraction(1, 100) if profile.percent == "value" else Fraction(1), "%"


def number(text: str, profile) -> Reading | None:
    """A single number: a decimal, fraction, mixed number, percentage or number in scientific notation; it may have a
    unit, a currency or a label.

    Case: GSM8K `18 dollars`, `$1,450,000.00`; CMATH `1.2千克`, `6个`, `6分之2`, `十二`, `1又1/5`, `12%`.
    """
    if denies(text):
        return None
    text, label = plain(text), None
    if match := _LABEL.fullmatch(text):
        # the answer of 5 + 3 = 8 is 8, and so is that of x = 8
        left, text = match["left"], match["rest"].strip()
        if not _agrees(left, text):
            return None
        label = label_of(left)
    factor, unit = Fraction(1), None
    text = _COUNTED.sub("", bare(text))
    if match := _CHINESE_TAIL.fullmatch(text):
        if _NO_MEASURE.search(match["suffix"]):
            return None
        power, rest = words.multiplied(match["suffix"])
        factor, text, unit = Fraction(power), match["number"], strip_unit("1" + rest, nouns=True)[1]
        unit = unit or KNOWN.get(rest)
    elif match := _SCALED.fullmatch(text) or _MONEY.fullmatch(text):
        factor = Fraction(_SCALES[match["scale"].lower()])
        text, unit = strip_currency(match["number"])
        if rest := match.groupdict().get("rest"):
            unit = unit or strip_unit(f"1 {rest}", nouns=True)[1]
    else:
        text, unit = strip_unit(text, nouns=True)
    text, percent, sign = strip_percent(text.strip(), profile)
    text = bare(text)
    factor *= percent
    if text.startswith("(") and text.endswith(")") and text.count("(") == 1:
        text = text[1:-1].strip()
    found = read_number(text)
    if found is None:
        return None
    key = found.key if factor == 1 else values.rational_key(found.value * factor)
    return Reading(key, unit=sign or unit, label=label, fraction=found.written)


def _agrees(left: str, right: str) -> bool:
    """Whether the two sides of an equation agree, where the left side has a value: 5 + 3 = 8 is read, 1 = 5 is not."""
    bare = _SUBSCRIPT.sub("", left)
    if _WORKED_SIDE.search(bare) and _LONE_LETTER.search(bare):
        return False  # 2x = 18 says that x is 9
    try:
        node = parse(left)
        return bool(values.free_names(node)) or values.key(node) == values.key(parse(right))
    except Unreadable:
        return not _ENDS_IN_DIGIT.search(left)


def number_words(text: str, profile) -> Reading | None:
    """A number in words, with a Chinese measure word after it.

    Case: CMATH `六`, `三分之一`, `百分之十二`; GSM8K "twelve".
    """
    found = in_words(plain(text))
    if found is None:
        return None
    value, percent, measure = found
    value *= Fraction(1, 100) if percent and profile.percent == "value" else 1
    return Reading(values.rational_key(value), unit="%" if percent else KNOWN.get(measure))


def tree_of(text: str, profile) -> Node:
    """The expression tree of a text, which may also be a mixed number.

    Raises:
        Unreadable: the text as a whole is not an expression.
    """
    text = bare(text)
    if (value := mixed_number(text)) is not None:
        return ("num", value)
    return parse(text)

"""The one grammar of numbers: decimals with their separators, fractions, mixed numbers, powers of ten, words.

    DECIMAL    1,450,000   12.50   .5   1,00,000
    VALUE      DECIMAL, or a fraction or mixed number of whole numbers, or a decimal times a power of ten

Every expression that finds a number, in answers and in free text, is built from these two. Values are exact: they are
fractions, never floats.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from agpo_core.grading import values, words
from agpo_core.grading.patterns import pattern

MAX_DIGITS = 1000  # of one number
MAX_EXPONENT = 400  # of a power of ten

# Commas separate thousands (1,450,000), or lakhs before the last thousand (1,00,000); no digit may follow a group.
DECIMAL = r"(?:(?:\d{1,3}(?:,\d{3}(?!\d))++|\d{1,2}(?:,\d{2}(?!\d))++,\d{3}(?!\d)|\d++)(?:\.\d++)?|(?<!\d)\.\d++)"
_FRAC = r"\\frac ?(?:\{ ?-?\d++ ?\} ?\{ ?\d++ ?\}|\d ?\d)"
FRACTION = rf"(?:{_FRAC}|\d++ ?/ ?\d++(?![\d/])|\d++分之\d++)"
MIXED = rf"(?:\d++(?: (?=\d)| ?又 ?| ?(?=\\)){FRACTION})"
POWER_OF_TEN = (
    r"(?: ?(?:\\times|\\cdot|\*|x|X|×) ?10 ?(?:\^|\*\*) ?[{(]? ?[-+]? ?\d{1,3} ?[})]?|[eE][-+]?\d{1,3}(?![\d.]))"
)
VALUE = rf"(?:{MIXED}|{FRACTION}|{DECIMAL}{POWER_OF_TEN}?)"

_SIGNED = r"\A(?P<sign>[-+])? ?"
_DECIMAL = pattern(rf"{_SIGNED}(?P<digits>{DECIMAL})\.?")
_FRACTION = pattern(
    rf"{_SIGNED}(?:(?P<whole>\d++)(?: (?=\d)| ?又 ?| ?(?=\\)))?"
    r"(?:\\frac ?(?:\{ ?(?P<a>-?\d++) ?\} ?\{ ?(?P<b>\d++) ?\}|(?P<c>\d) ?(?P<d>\d))|(?P<e>\d++) ?/ ?(?P<f>\d++)"
    r"|(?P<h>\d++)分之(?P<g>\d++))"
)
_QUOTIENT = pattern(rf"{_SIGNED}(?P<over>{DECIMAL}) ?/ ?(?P<under>{DECIMAL})")
_EXPONENT = pattern(r"[-+]?\d{1,3}(?=[)}]?\Z)")
_SCIENTIFIC = pattern(rf"{_SIGNED}(?P<base>{DECIMAL})(?P<power>{POWER_OF_TEN})")


@dataclass(frozen=True)
class Number:
    """A number that was read: its value, its key, and, if it was written as a fraction, its two numbers as written."""

    value: Fraction
    key: str
    written: tuple[int, int] | None = None


def decimal_key(text: str) -> str | None:
    """The key of a plain decimal of any length, without arithmetic.

    Case: GSM8K `1,450,000`; AMC-23 `27.0`; AIME `025`.
    """
    match = _DECIMAL.fullmatch(text)
    return match and plain_decimal(match["sign"], match["digits"])


def plain_decimal(sign: str | None, digits: str) -> str | None:
    """A decimal without separators and without leading and trailing zeros: 12.50 is 12.5, -0 is 0."""
    whole, _, decimals = digits.replace(",", "").partition(".")
    whole, decimals = whole.lstrip("0") or "0", decimals.rstrip("0")
    value = f"{whole}.{decimals}" if decimals else whole
    if len(value) > 250:
        return None if len(value) > MAX_DIGITS else values.rational_key(Fraction(f"{sign or ''}{value}"))
    return f"-{value}" if sign == "-" and value != "0" else value


def mixed_number(text: str) -> Fraction | None:
    """The value of a mixed number, a whole number plus a proper fraction; None for anything else.

    Case: MATH-500 `137 \\frac{1}{2}`, which is not 68.5; CMATH `1又1/5`. `2-1/2` is a difference.
    """
    match = _FRACTION.fullmatch(text)
    number = _of_fraction(match) if match and match["whole"] else None
    return number and number.value


def read_number(text: str) -> Number | None:
    """A number written without operations other than one fraction bar and a power of ten; None for anything else.

    >>> read_number("1,450,000").key, read_number("2 1/2").key, read_number(r"\\frac{2}{6}").written
    ('1450000', '2.5', (2, 6))
    """
    if len(text) > MAX_DIGITS + 200:
        return None
    if (key := decimal_key(text)) is not None:
        match = _DECIMAL.fullmatch(text)
        return Number(Fraction(f"{match['sign'] or ''}{match['digits'].replace(',', '')}"), key)
    if len(text) > 200:
        return None
    if match := _FRACTION.fullmatch(text):
        return _of_fraction(match)
    value = None
    if (match := _QUOTIENT.fullmatch(text)) and (under := Fraction(match["under"].replace(",", ""))):
        value = Fraction(match["over"].replace(",", "")) / under
    elif match := _SCIENTIFIC.fullmatch(text):
        power = int(_EXPONENT.search(match["power"].replace(" ", ""))[0])
        if abs(power) <= MAX_EXPONENT:
            value = Fraction(match["base"].replace(",", "")) * Fraction(10) ** power
    if value is None:
        return None
    value = -value if match["sign"] == "-" else value
    return Number(value, values.rational_key(value))


def _of_fraction(match: re.Match) -> Number | None:
    over, under = (next(int(match[name]) for name in names if match[name]) for names in ("aceg", "bdfh"))
    sign = -1 if match["sign"] == "-" else 1
    if not under:
        return None
    if match["whole"] is None:
        value = sign * Fraction(over, under)
        return Number(value, values.rational_key(value), (sign * over, under))
    if not 0 < over < under:
        return None
    value = sign * (int(match["whole"]) + Fraction(over, under))
    return Number(value, values.rational_key(value))


# -- numbers in free text

# A minus is a sign only where no number or bracket comes before it: "5-3" holds 5 and 3.
SIGN = r"(?:(?<![\w)\]}%])-(?:\\?\$)?|\\?\$-)"


def in_words(text: str) -> tuple[Fraction, bool, str] | None:
    """A number in words, whether it is a percentage, and the Chinese measure word after it: 十二个, "two thirds"."""
    if (value := words.english_number(text)) is not None:
        return value, False, ""
    compact = text.replace(" ", "")
    if compact.isascii():
        return None
    # the longest numeral at the start counts; a measure word may follow, but nothing that belongs to a number
    for end in range(min(len(compact), words.MAX_NUMERAL), 0, -1):
        if (found := words.chinese_number(compact[:end])) is None:
            continue
        rest = compact[end:]
        if rest and (not words.MEASURE.fullmatch(rest) or set(rest) & set(words.CHINESE_NUMERAL + "分点又之半")):
            return None
        return *found, rest
    return None

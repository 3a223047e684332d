"""Rules for answers that are one number: decimals, fractions, mixed numbers, percentages, numbers in words.

Each rule takes a cleaned answer and its profile and returns a reading, or None to pass the answer on.
"""

from __future__ import annotations

import re
from fractions import Fraction

from agpo_core.tasks.grading import values, words
from agpo_core.tasks.grading.latex import Node, Unreadable, parse
from agpo_core.tasks.grading.reading import DENIAL, Reading, label_of, plain
from agpo_core.tasks.grading.units import KNOWN, strip_currency, strip_unit

_DECIMAL = re.compile(r"(?P<sign>[-+]?) ?(?P<whole>\d{1,3}(?:,\d{3})+|\d+)?(?:\.(?P<decimals>\d*))?")
_PERCENT = re.compile(r"\s*(?:\\?%|percent|per cent|pct|\\(?:text|mathrm) ?\{ ?(?:percent|%|\\%) ?\})\.?$", re.I)
_LABEL = re.compile(r"^[^=<>]{1,40}=(?!=)\s*(?P<rest>[^=<>]+)$")
_SIMPLE_FRACTION = re.compile(r"(-?) ?(?:\\frac ?\{ ?(-?\d+) ?\} ?\{ ?(\d+) ?\}|(\d+) ?/ ?(\d+)|\\frac ?(\d) ?(\d))")
_MIXED = re.compile(
    r"(?P<sign>-?) ?(?P<whole>\d+) ?(?:\\frac ?\{ ?(?P<a>\d+) ?\} ?\{ ?(?P<b>\d+) ?\}|\\frac ?(?P<c>\d) ?(?P<d>\d)|"
    r"(?:(?<=\d) | ?\+ ?|-(?=\d+/))(?P<e>\d+) ?/ ?(?P<f>\d+)|又 ?(?P<g>\d+) ?/ ?(?P<h>\d+)|"
    r"又 ?\\frac ?\{ ?(?P<k>\d+) ?\} ?\{ ?(?P<l>\d+) ?\}|又(?P<n>\d+)分之(?P<m>\d+))"
)


def decimal_key(text: str) -> str | None:
    """The key of a plain decimal, of any length, without computing it. Case: GSM8K `1,450,000`; AMC-23 `27.0`; AIME
    `025`.
    """
    match = _DECIMAL.fullmatch(text)
    if not match or not (match["whole"] or match["decimals"]):
        return None
    whole = (match["whole"] or "").replace(",", "").lstrip("0") or "0"
    decimals = (match["decimals"] or "").rstrip("0")
    if len(whole) + len(decimals) > 250:
        if len(whole) + len(decimals) > 1000:
            return None
        return values.rational_key(Fraction(f"{match['sign']}{whole}.{decimals or 0}"))
    value = f"{whole}.{decimals}" if decimals else whole
    return f"-{value}" if match["sign"] == "-" and value != "0" else value


def mixed_number(text: str) -> Fraction | None:
    """A whole number and a proper fraction, added. Case: MATH-500 `137 \\frac{1}{2}`, which is not 68.5; CMATH
    `1又1/5`.
    """
    match = _MIXED.fullmatch(text)
    if not match or len(text) > 60:
        return None
    over = next(int(match[g]) for g in "acegkm" if match[g])
    under = next(int(match[g]) for g in "bdfhln" if match[g])
    if not 0 < over < under:
        return None
    value = int(match["whole"]) + Fraction(over, under)
    return -value if match["sign"] else value


def written_fraction(text: str) -> tuple[int, int] | None:
    """Numerator and denominator as they are written."""
    match = _SIMPLE_FRACTION.fullmatch(text)
    if not match or len(text) > 60:
        return None
    over = int(match[2] or match[4] or match[6])
    under = int(match[3] or match[5] or match[7])
    return (-over if match[1] else over, under) if under else None


def strip_percent(text: str, profile) -> tuple[str, Fraction, str | None]:
    """The answer without its percent sign, what it is to be multiplied by, and the mark.

    Case: MATH `28\\%` is 28; CMATH `12%` is 0.12 and not 12: the profile says which.
    """
    match = _PERCENT.search(text)
    if not match or not match.start():
        return text, Fraction(1), None
    return text[: match.start()], Fraction(1, 100) if profile.percent == "value" else Fraction(1), "%"


_CHINESE_TAIL = re.compile(r"^(?P<number>.*[\d})%])\s*(?P<suffix>[\u4e00-\u9fff]{1,8}(?:/[\u4e00-\u9fff]{1,4})?)$")
_ENGLISH_SCALE = re.compile(
    r"^(?P<number>.*\d) ?(?P<scale>hundred|thousand|million|billion|trillion|dozen)\b ?(?P<rest>.*)$", re.I
)


def number(text: str, profile) -> Reading | None:
    """A number and nothing else: decimal, fraction, mixed number, percentage, scientific; with a unit, a currency, a
    label.

    Case: GSM8K `18 dollars`, `$1,450,000.00`; CMATH `1.2千克`, `6个`, `6分之2`, `十二`, `1又1/5`, `12%`.
    """
    return None if DENIAL.search(text) else _number(plain(text), profile, nouns=True)


def _number(text: str, profile, nouns: bool) -> Reading | None:
    label = None
    if match := _LABEL.match(text):
        # 5 + 3 = 8 says 8, and so does x = 8
        left, text = text.partition("=")[0], match["rest"].strip()
        if not _agrees(left, text):
            return None
        label = label_of(left)
    text = re.sub(r"\([\u4e00-\u9fff]{1,4}\)$", "", text.strip("$ "))  # 18(个)
    factor, unit = Fraction(1), None
    if match := _CHINESE_TAIL.match(text):
        if re.search(r"半|不|错|以下|以上|^[十成折多余又]", match["suffix"]):
            return None
        if not re.search(r"分之|又", match["suffix"]):
            power, rest = words.multiplied(match["suffix"])
            factor, text, unit = Fraction(power), match["number"], strip_unit("1" + rest, nouns=True)[1]
            unit = unit or KNOWN.get(rest)
    elif nouns and (match := _ENGLISH_SCALE.match(text)):
        scale = {**words.ENGLISH_MULTIPLIERS, "dozen": 12}[match["scale"].lower()]
        text, factor = match["number"], Fraction(scale)
        rest = match["rest"]
        if rest and not re.fullmatch(r"[A-Za-z ]{1,40}", rest):
            return None
        text, unit = strip_currency(text)
        unit = unit or (strip_unit(f"1 {rest}", nouns=True)[1] if rest else None)
    else:
        text, unit = strip_unit(text, nouns)
    text, percent, sign = strip_percent(text.strip(), profile)
    text = text.strip("$ ")
    factor *= percent
    unit = sign or unit
    if text.startswith("(") and text.endswith(")") and text.count("(") == 1:
        text = text[1:-1].strip()
    key, fraction = decimal_key(text), None
    if key is None or factor != 1:
        value = plain_value(text)
        if value is None:
            return None
        key, fraction = values.rational_key(value * factor), written_fraction(text)
    return Reading(key, unit=unit, label=label, fraction=fraction)


def _agrees(left: str, right: str) -> bool:
    """Whether the left side of an equation, where it is a number, is the right one: 5 + 3 = 8 may be read, 1 = 5
    not.
    """
    if re.search(r"\d|[-+*/^√]|\\(?:sqrt|frac)", re.sub(r"_ ?(?:\{\w+\}|\w)", "", left)) and re.search(
        r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])", left
    ):
        return False  # 2x = 18 says that x is 9
    try:
        node = parse(left)
        return bool(values.free_names(node)) or values.key(node) == values.key(parse(right))
    except Unreadable:
        return not re.search(r"\d\s*$", left)


_SCIENTIFIC = re.compile(
    r"(?P<sign>[-+]?) ?(?P<base>\d{1,60}(?:\.\d{0,60})?|\.\d{1,60})(?:[eE](?P<e>[-+]?\d{1,3})|"
    r" ?(?:\\times|\\cdot|\*|x|X) ?10 ?(?:\^|\*\*) ?[{(]? ?(?P<p>[-+]? ?\d{1,3}) ?[})]?)"
)
_QUOTIENT = re.compile(r"(-?) ?(\d{1,60}(?:\.\d{0,60})?) ?/ ?(\d{1,60}(?:\.\d{0,60})?)")


def plain_value(text: str) -> Fraction | None:
    """The value of a number written without operations other than one fraction bar and a power of ten."""
    if len(text) > 200:
        return None
    if (match := _DECIMAL.fullmatch(text)) and (match["whole"] or match["decimals"]):
        return Fraction(f"{match['sign']}{(match['whole'] or '0').replace(',', '')}.{match['decimals'] or 0}")
    if (value := mixed_number(text)) is not None:
        return value
    if written := written_fraction(text):
        return Fraction(*written)
    if (match := _QUOTIENT.fullmatch(text)) and Fraction(match[3]):
        value = Fraction(match[2]) / Fraction(match[3])
        return -value if match[1] else value
    if match := _SCIENTIFIC.fullmatch(text):
        value = Fraction(match["base"]) * Fraction(10) ** int((match["e"] or match["p"]).replace(" ", ""))
        return -value if match["sign"] == "-" else value
    return None


def number_words(text: str, profile) -> Reading | None:
    """A number in words, with a Chinese measure word after it.

    Case: CMATH `六`, `三分之一`, `百分之十二`; GSM8K "twelve".
    """
    text = plain(text)
    if (value := words.english_integer(text)) is not None:
        return Reading(str(value))
    compact = text.replace(" ", "")
    if match := re.fullmatch(r"(\d+)分之(\d+)(\D*)", compact):
        if int(match[1][:60]) and len(compact) < 60:
            written = int(match[2]), int(match[1])
            return Reading(values.rational_key(Fraction(*written)), fraction=written)
        return None
    # the longest numeral at the head; what follows must be a measure word, not more of a number
    for end in range(min(len(compact), words.MAX_NUMERAL), 0, -1):
        found = words.chinese_number(compact[:end])
        if found is None:
            continue
        rest = compact[end:]
        if rest and (
            not re.fullmatch(r"[\u4e00-\u9fff]{1,4}", rest) or set(rest) & set(words.CHINESE_NUMERAL + "分点又之半")
        ):
            return None
        value, percent = found
        value *= Fraction(1, 100) if percent and profile.percent == "value" else 1
        return Reading(values.rational_key(value), unit="%" if percent else KNOWN.get(rest))
    return None


def tree_of(text: str, profile) -> Node:
    """The tree of an expression that may be a mixed number or a percentage; the symbolic reader gets what this cannot
    read.
    """
    text = text.strip(" $")
    if (value := mixed_number(text)) is not None:
        return ("num", value)
    return parse(text)

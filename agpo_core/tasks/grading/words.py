"""Answers that are words rather than formulas: Chinese numerals, English number words, dates, times of day, names.

Each reader takes a cleaned string and returns what it says, or None.
"""

from __future__ import annotations

import re
from fractions import Fraction

_DIGITS = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "壹": 1, "贰": 2, "叁": 3}
_SCALES = {"十": 10, "百": 100, "千": 1000}
_MYRIADS = {"万": 10**4, "亿": 10**8}
CHINESE_NUMERAL = "".join(_DIGITS) + "".join(_SCALES) + "".join(_MYRIADS)
_MULTIPLIERS = _SCALES | _MYRIADS
MAX_NUMERAL = 60


def chinese_integer(text: str) -> int | None:
    """A whole number in Chinese numerals: 六, 十二, 一百零五, 两千三百万, 二〇二四.

    >>> chinese_integer("一百零五"), chinese_integer("两千三百万"), chinese_integer("百个")
    (105, 23000000, None)
    """
    if not text or len(text) > MAX_NUMERAL or any(c not in CHINESE_NUMERAL for c in text):
        return None
    if all(c in _DIGITS for c in text):
        if len(text) == 1 or "零" in text or "〇" in text or len(text) >= 3:
            return int("".join(str(_DIGITS[c]) for c in text))
        return None  # 三五 is "three to five"
    total = section = 0
    digit: int | None = None
    last_scale = 10
    for char in text:
        if char in _DIGITS:
            if digit:
                return None
            digit = _DIGITS[char]
            last_scale = 10 if char in "零〇" else last_scale
        elif char in _SCALES:
            if digit is None and char != "十":
                return None
            section += (digit if digit else 1) * _SCALES[char]
            digit, last_scale = None, _SCALES[char]
        else:
            section += digit or 0
            if not section and not total:
                return None
            total = (total + section) * _MYRIADS[char] if char == "亿" else total + section * _MYRIADS[char]
            section, digit, last_scale = 0, None, _MYRIADS[char]
    if digit:
        section += digit * (last_scale // 10 if last_scale > 10 else 1)  # 一百二 is 120, 三万五 is 35000
    return total + section


def chinese_number(text: str) -> tuple[Fraction, bool] | None:
    """A number in Chinese numerals and whether it is a percentage: 三分之一, 零点五, 负三, 一半, 百分之十二.

    >>> chinese_number("六分之二"), chinese_number("百分之十二")
    ((Fraction(1, 3), False), (Fraction(12, 1), True))
    """
    if len(text) > MAX_NUMERAL:
        return None
    if text.startswith("负"):
        found = chinese_number(text[1:])
        return None if found is None else (-found[0], found[1])
    if text in ("一半", "半"):
        return Fraction(1, 2), False
    if text.startswith("百分之"):
        found = chinese_number(text[3:]) or (_arabic(text[3:]), False)
        return None if found[0] is None else (found[0], True)
    if match := re.fullmatch(r"(?:(.+)又)?(.+)分之(.+)", text):
        whole, under, over = (None if part is None else _either(part) for part in match.groups())
        if not under or over is None or (match[1] and whole is None):
            return None
        return (whole or 0) + Fraction(over) / under, False
    if match := re.fullmatch(r"(.+)点(.+)", text):
        whole = chinese_integer(match[1])
        if whole is None or any(c not in _DIGITS for c in match[2]):
            return None
        decimals = "".join(str(_DIGITS[c]) for c in match[2])
        return Fraction(f"{whole}.{decimals}"), False
    value = chinese_integer(text)
    return None if value is None else (Fraction(value), False)


def _arabic(text: str) -> Fraction | None:
    return Fraction(text) if re.fullmatch(r"\d{1,60}(?:\.\d{1,60})?", text) else None


def _either(text: str) -> Fraction | None:
    value = chinese_integer(text)
    return _arabic(text) if value is None else Fraction(value)


def multiplied(suffix: str) -> tuple[int, str]:
    """The power of ten at the head of a Chinese unit, and the rest: 万元 is 10^4 元, 千克 is a unit of its own.

    >>> multiplied("万元"), multiplied("千克"), multiplied("个")
    ((10000, '元'), (1, '千克'), (1, '个'))
    """
    if suffix[:1] in _MYRIADS:
        factor, rest = multiplied(suffix[1:])
        return _MYRIADS[suffix[0]] * factor, rest
    if suffix[:1] in ("百", "千") and not re.match(r"[克米瓦卡帕赫字伏焦]|分[之比点]", suffix[1:]):
        return _SCALES[suffix[0]], suffix[1:]
    return 1, suffix


_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = {w: 10 * i for i, w in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), start=2)}
ENGLISH_MULTIPLIERS = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12}


def english_integer(text: str) -> int | None:
    """A whole number in English words: "twelve", "one hundred and five".

    >>> english_integer("one hundred and five"), english_integer("forty-two"), english_integer("and")
    (105, 42, None)
    """
    words = text.lower().replace("-", " ").split()
    if not words or len(words) > 12:
        return None
    total = section = 0
    seen = False
    for word in words:
        if word in _ONES:
            section += _ONES.index(word)
        elif word in _TENS:
            section += _TENS[word]
        elif word == "hundred" and section:
            section *= 100
        elif word in ENGLISH_MULTIPLIERS and word != "hundred" and section:
            total, section = total + section * ENGLISH_MULTIPLIERS[word], 0
        elif word == "and" and seen:
            continue
        else:
            return None
        seen = True
    return total + section if seen else None


_MONTHS = "january february march april may june july august september october november december".split()
_MONTH = r"(?P<month>" + "|".join(f"{m[:3]}(?:{m[3:]})?" if m != "may" else m for m in _MONTHS) + r"|sept)\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_DATES = (
    re.compile(rf"(?:the )?{_MONTH} ?(?:the )?{_DAY}(?:,? ?(?P<year>\d{{4}}))?", re.I),
    re.compile(rf"(?:the )?{_DAY} ?(?:of )?{_MONTH}(?:,? ?(?P<year>\d{{4}}))?", re.I),
    re.compile(r"(?:(?P<year>\d{4})年)?(?P<month>\d{1,2})月(?P<day>\d{1,2})[日号]"),
    re.compile(r"(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"),
)


def date(text: str) -> str | None:
    """A day of the year, with or without the year, as month-day.

    Case: MATH `\\text{June 20}` is `June }20`'s text, not `June 2`.

    >>> date("June 20"), date("20th of June"), date("6月20日"), date("June 31")
    ('06-20', '06-20', '06-20', None)
    """
    for pattern in _DATES:
        match = pattern.fullmatch(text.strip())
        if match:
            month, day = match["month"].lower(), int(match["day"])
            month = int(month) if month.isdigit() else [m[:3] for m in _MONTHS].index(month[:3]) + 1
            lengths = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
            if not 1 <= month <= 12 or not 1 <= day <= lengths[month - 1]:
                return None
            return f"{match['year'] + '-' if match['year'] else ''}{month:02d}-{day:02d}"
    return None


_CLOCK = re.compile(
    r"(?P<front>上午|早上|凌晨|下午|晚上|中午)?(?P<hour>\d{1,2})(?::(?P<minute>\d{2})|[点时](?:(?P<min2>\d{1,2})分?)?)?"
    r" ?(?P<half>[ap]\.? ?m\.?)?(?: ?o'clock)?",
    re.I,
)


def time_of_day(text: str) -> tuple[str, str | None] | None:
    """Hour and minute, and the half of the day where it is told.

    Case: MATH `\\text{4:30 p.m.}` is `4:30 p.m.` and not `4:30 a.m.`; a bare `4:30` says nothing of the half.

    >>> time_of_day("4:30 p.m."), time_of_day("16:30"), time_of_day("4:30"), time_of_day("下午4点30分")
    (('4:30', 'pm'), ('4:30', 'pm'), ('4:30', None), ('4:30', 'pm'))
    """
    match = _CLOCK.fullmatch(text.strip())
    if not match or not (match["minute"] or match["half"] or match["front"] or re.search(r"[点时]|o'clock", text)):
        return None
    hour, minute = int(match["hour"]), int(match["minute"] or match["min2"] or 0)
    if hour > 24 or minute > 59:
        return None
    half = {"a": "am", "p": "pm"}.get((match["half"] or " ")[0].lower())
    if match["front"]:
        half = "am" if match["front"] in ("上午", "早上", "凌晨") else "pm"
    if hour > 12 or (hour == 0 and half is None):
        half = "am" if hour in (0, 24) else "pm"
    return f"{hour % 12}:{minute:02d}", half


_WORDLIKE = re.compile(r"[A-Za-z][A-Za-z'\- .,]*")
SHORT_WORDS = frozenset("no yes up is it we he me my or on in at go so us do if to by of as an".split())
_FORMULA_WORDS = frozenset(
    "sin cos tan cot sec csc log ln lg exp pi sqrt abs min max gcd lcm arcsin arccos arctan sinh cosh tanh".split()
)


def words(text: str) -> str | None:
    """Text without formulas, in one spelling: "Evelyn", "no solution". Chinese text keeps its characters alone.

    `ab` and `xy` are products and no words; `abc` is taken for a word, which at worst rejects `cba`.
    """
    if re.search(r"[\u4e00-\u9fff]", re.sub(r"[和或与且及]", "", text)):
        kept = "".join(c for c in text if c.isalnum() or c in "+-=<>/^.%()")
        return kept.lower() or None
    if not _WORDLIKE.fullmatch(text):
        return None
    parts = re.findall(r"[A-Za-z']+", text.lower())
    if any(part in _FORMULA_WORDS for part in parts):
        return None
    if max(map(len, parts)) < 3 and not any(part in SHORT_WORDS for part in parts):
        return None
    if parts[0] in ("the", "a", "an") and len(parts) > 1:
        parts = parts[1:]
    return " ".join(parts)

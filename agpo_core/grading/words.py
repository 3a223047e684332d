"""Reads answers that are words rather than formulas: Chinese and English numerals, dates, times of day, names.

Each function takes a cleaned string and returns what it says, or None.
"""

from __future__ import annotations

import re
from fractions import Fraction

from agpo_core.grading.patterns import pattern

_DIGITS = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "壹": 1, "贰": 2, "叁": 3}
_SCALES = {"十": 10, "百": 100, "千": 1000}
_MYRIADS = {"万": 10**4, "亿": 10**8}
CHINESE_NUMERAL = "".join(_DIGITS) + "".join(_SCALES) + "".join(_MYRIADS)
MAX_NUMERAL = 60
MEASURE = pattern(r"[\u4e00-\u9fff]{1,4}")  # what may follow a numeral: 个, 千米
_PARTS = pattern(r"(?:([^又]{1,60})又)?([^分]{1,60})分之(.{1,60})")
_POINT = pattern(r"([^点]{1,60})点(.{1,60})")
_ARABIC = pattern(r"\d{1,60}(?:\.\d{1,60})?")
_NO_SCALE = pattern(r"[克米瓦卡帕赫字伏焦]|分[之比点]")  # 千克 is a unit, 千个 is a thousand


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
    if match := _PARTS.fullmatch(text):
        whole, under, over = (None if part is None else _either(part) for part in match.groups())
        if not under or over is None or (match[1] and whole is None):
            return None
        return (whole or 0) + Fraction(over) / under, False
    if match := _POINT.fullmatch(text):
        whole = chinese_integer(match[1])
        if whole is None or any(c not in _DIGITS for c in match[2]):
            return None
        decimals = "".join(str(_DIGITS[c]) for c in match[2])
        return Fraction(f"{whole}.{decimals}"), False
    value = chinese_integer(text)
    return None if value is None else (Fraction(value), False)


def _arabic(text: str) -> Fraction | None:
    return Fraction(text) if _ARABIC.fullmatch(text) else None


def _either(text: str) -> Fraction | None:
    value = chinese_integer(text)
    return _arabic(text) if value is None else Fraction(value)


def multiplied(suffix: str) -> tuple[int, str]:
    """The power of ten that a Chinese unit starts with, and the rest: 万元 is 10^4 元; 千克 is a unit by itself.

    >>> multiplied("万元"), multiplied("千克"), multiplied("个")
    ((10000, '元'), (1, '千克'), (1, '个'))
    """
    if suffix[:1] in _MYRIADS:
        factor, rest = multiplied(suffix[1:])
        return _MYRIADS[suffix[0]] * factor, rest
    if suffix[:1] in ("百", "千") and not _NO_SCALE.match(suffix[1:]):
        return _SCALES[suffix[0]], suffix[1:]
    return 1, suffix


_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = {w: 10 * i for i, w in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), start=2)}
ENGLISH_MULTIPLIERS = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12}


_PART_NAMES = "half third quarter fifth sixth seventh eighth ninth tenth".split()


def english_number(text: str) -> Fraction | None:
    """A number in English words: "twelve", "one hundred and five", "two thirds", "2 and a half".

    >>> english_number("one hundred and five"), english_number("forty-two"), english_number("two thirds")
    (Fraction(105, 1), Fraction(42, 1), Fraction(2, 3))
    """
    words = text.lower().replace("-", " ").split()
    if not words or len(words) > 12:
        return None
    part = words[-1].removesuffix("s").replace("halve", "half")
    part = _PART_NAMES.index(part) + 2 if part in _PART_NAMES else 4 if part == "fourth" else 0
    if part:
        counted, (whole, and_, over) = words[:-1], " ".join(words[:-1]).rpartition(" and ")
        if not counted:
            return None
        whole = _either_english(whole) if and_ else 0
        over = Fraction(1) if over in ("a", "one") else _either_english(over)
        if whole is None or over is None or not 0 < over < part:
            return None
        return whole + over / part
    value = _english_integer(words)
    return None if value is None else Fraction(value)


def _either_english(text: str) -> Fraction | None:
    value = _english_integer(text.split())
    return _arabic(text) if value is None else Fraction(value)


def _english_integer(words: list[str]) -> int | None:
    total = section = 0
    seen = False
    for word in words:
        if word in _ONES:
            if seen and (section % 10 or section % 100 == 10 or word == "zero"):
                return None  # "two three"
            section += _ONES.index(word)
        elif word in _TENS:
            if section % 100:
                return None
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
    pattern(rf"(?:the )?{_MONTH} ?(?:the )?{_DAY}(?:,? ?(?P<year>\d{{4}}))?", re.I),
    pattern(rf"(?:the )?{_DAY} ?(?:of )?{_MONTH}(?:,? ?(?P<year>\d{{4}}))?", re.I),
    pattern(r"(?:(?P<year>\d{4})年)?(?P<month>\d{1,2})月(?P<day>\d{1,2})[日号]"),
    pattern(r"(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"),
)


def date(text: str) -> str | None:
    """A day of the year as month-day, or as year-month-day where the year is given.

    Case: MATH `\\text{June 20}` is `\\text{June }20`, not `\\text{June 2}`.

    >>> date("June 20"), date("20th of June"), date("6月20日"), date("June 31")
    ('06-20', '06-20', '06-20', None)
    """
    for dated in _DATES:
        if match := dated.fullmatch(text.strip()):
            month, day = match["month"].lower(), int(match["day"])
            month = int(month) if month.isdigit() else [m[:3] for m in _MONTHS].index(month[:3]) + 1
            lengths = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
            if not 1 <= month <= 12 or not 1 <= day <= lengths[month - 1]:
                return None
            return f"{match['year'] + '-' if match['year'] else ''}{month:02d}-{day:02d}"
    return None


_CLOCK = pattern(
    r"(?P<front>上午|早上|凌晨|下午|晚上|中午)?(?P<hour>\d{1,2})(?::(?P<minute>\d{2})|(?P<mark>[点时])(?:(?P<min2>\d{1,2})分?)?)?"
    r" ?(?P<half>[ap]\.? ?m\.?)?(?P<clock> ?o'clock)?",
    re.I,
)


def time_of_day(text: str) -> tuple[str, str | None, bool] | None:
    """Hour and minute, the half of the day or None, and whether the text can only be a time (4:30 may be a ratio).

    Case: MATH `\\text{4:30 p.m.}` is `4:30 p.m.` and not `4:30 a.m.`; a bare `4:30` does not say which half.

    >>> time_of_day("4:30 p.m."), time_of_day("16:30"), time_of_day("下午4点30分")
    (('4:30', 'pm', True), ('4:30', 'pm', False), ('4:30', 'pm', True))
    """
    match = _CLOCK.fullmatch(text.strip())
    told = match and bool(match["half"] or match["front"] or match["mark"] or match["clock"])
    if not match or not (told or match["minute"]):
        return None
    hour, minute = int(match["hour"]), int(match["minute"] or match["min2"] or 0)
    if hour > 24 or minute > 59:
        return None
    half = {"a": "am", "p": "pm"}.get((match["half"] or " ")[0].lower())
    if match["front"]:
        half = "am" if match["front"] in ("上午", "早上", "凌晨") else "pm"
    if hour > 12 or (hour == 0 and half is None):
        half = "am" if hour in (0, 24) else "pm"
    return f"{hour % 12}:{minute:02d}", half, told


_WORDLIKE = pattern(r"[A-Za-z][A-Za-z'\- .,]*+")
_WORD = pattern(r"[A-Za-z']++")
_CHINESE = pattern(r"[\u4e00-\u9fff]")
_JOINS = str.maketrans("", "", "和或与且及")
SHORT_WORDS = frozenset("no yes up is it we he me my or on in at go so us do if to by of as an".split())
_FORMULA_WORDS = frozenset(
    "sin cos tan cot sec csc log ln lg exp pi sqrt abs min max gcd lcm arcsin arccos arctan sinh cosh tanh cis".split()
)


def words(text: str) -> str | None:
    """A text without formulas in one spelling: "Evelyn", "no solution". Chinese text keeps letters, digits and signs.

    `ab`, `xyz` and `abc` are products and no words: such a text is shorter than three letters and not in `SHORT_WORDS`,
    or has no vowel, or consists of neighbours in the alphabet.
    """
    if _CHINESE.search(text.translate(_JOINS)):
        kept = "".join(c for c in text if c.isalnum() or c in "+-=<>/^.%()").removesuffix("条件")
        return kept.lower() or None
    if not _WORDLIKE.fullmatch(text):
        return None
    parts = _WORD.findall(text.lower())
    if any(part in _FORMULA_WORDS for part in parts) or all(map(_is_product, parts)):
        return None
    if parts[0] == "there" and len(parts) > 2 and parts[1] in ("is", "are"):
        parts = parts[2:]
    if parts[0] in ("the", "a", "an") and len(parts) > 1:
        parts = parts[1:]
    if parts[0] == "no" and len(parts) > 1:  # "no solutions" equals "no solution"
        parts[-1] = parts[-1].removesuffix("s")
    if parts[-1] == "solutions" and parts[-2:-1] == ["many"]:
        parts = parts[:-1]
    return " ".join(parts)


def _is_product(part: str) -> bool:
    if len(part) < 3:
        return part not in SHORT_WORDS
    codes = sorted(map(ord, part))
    return not set(part) & set("aeiouy'") or codes == list(range(codes[0], codes[0] + len(codes)))

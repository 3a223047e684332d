"""Units of measure: taken off an answer, and remembered, so that cents never pass for dollars.

A benchmark's gold seldom has the unit its question fixes, so an answer votes without its unit; where gold and answer
both name a known unit and they differ, the answer is wrong.
"""

from __future__ import annotations

import re

from agpo_core.tasks.grading.words import ENGLISH_MULTIPLIERS

# canonical name -> its spellings
_UNITS = {
    "dollar": "dollar dollars usd bucks 美元", "cent": "cent cents ¢ 美分", "euro": "euro euros eur € 欧元",
    "pound": "£ gbp 英镑", "yuan": "yuan rmb cny ¥ 元 元钱 人民币", "rupee": "rupee rupees ₹", "jiao": "角",
    "fen": "分钱",
    "m": "m meter meters metre metres 米", "cm": "cm centimeter centimeters centimetre centimetres 厘米",
    "mm": "mm millimeter millimeters millimetre millimetres 毫米",
    "km": "km kilometer kilometers kilometre kilometres 千米 公里", "dm": "dm decimeter decimeters 分米",
    "nm": "nm nanometer nanometers 纳米", "um": "um micrometer micrometers micron microns",
    "inch": "inch inches in", "foot": "foot feet ft", "yard": "yard yards yd", "mile": "mile miles mi",
    "g": "g gram grams 克", "kg": "kg kilogram kilograms 千克 公斤", "mg": "mg milligram milligrams 毫克",
    "ton": "ton tons tonne tonnes 吨", "lb": "lb lbs pounds", "oz": "oz ounce ounces", "jin": "斤",
    "s": "s sec second seconds 秒 秒钟", "min": "min mins minute minutes 分钟", "h": "h hr hrs hour hours 小时 时",
    "day": "day days 天 日", "week": "week weeks 周 星期", "month": "month months 月 个月",
    "year": "year years yr yrs 年",
    "ms": "ms millisecond milliseconds", "l": "l liter liters litre litres 升",
    "ml": "ml milliliter milliliters millilitre millilitres 毫升", "gallon": "gallon gallons", "quart": "quart quarts",
    "pint": "pint pints", "cup": "cup cups", "degree": "degree degrees deg 度 °", "radian": "radian radians rad 弧度",
    "mph": "mph", "hz": "hz hertz", "khz": "khz", "mhz": "mhz", "ghz": "ghz", "j": "j joule joules", "kj": "kj",
    "w": "w watt watts", "kw": "kw kilowatt kilowatts", "n": "n newton newtons", "pa": "pa pascal pascals",
    "kpa": "kpa",
    "mpa": "mpa", "ev": "ev", "kev": "kev", "mev": "mev", "v": "v volt volts", "ohm": "ohm ohms",
    "k": "k kelvin kelvins",
    "mol": "mol mole moles", "erg": "erg ergs", "dyne": "dyne dynes", "au": "au", "pc": "pc parsec parsecs",
    "cal": "cal calorie calories", "kcal": "kcal", "atm": "atm", "bar": "bar bars", "rpm": "rpm", "acre": "acre acres",
    "hectare": "hectare hectares 公顷", "amu": "amu", "angstrom": "angstrom angstroms å", "mu": "亩",
}  # fmt: skip
KNOWN = {spelling: name for name, spellings in _UNITS.items() for spelling in spellings.split()}
_LONG = sorted((s for s in KNOWN if s.isascii() and len(s) > 1 and s != "in"), key=len, reverse=True)
_WORD = (
    rf"(?:square |cubic |sq\.? |cu\.? )?(?:{'|'.join(map(re.escape, _LONG))})(?![A-Za-z])\.?(?: ?\^ ?\{{?-?\d\}}?)?"
    r"|in ?\^ ?\{?[23]\}?|[¢€£¥₹]"
)
_BARE = re.compile(rf"(?<=[\d.)}}]) ?(?P<unit>{_WORD}(?: ?(?:/|per) ?(?:{_WORD}|[smhg]\b(?:\^\{{?\d\}}?)?))?)$", re.I)
# letters that are names elsewhere are units where one is divided by another, after a plain number: 9.6 m/s^2
_RATE = re.compile(
    r"(?<=\d) ?(?P<unit>(?:km|kg|cm|mm|[mgJNWV]) ?/ ?(?:mol|kg|cm|min|hr|[smhgKL])(?: ?\^ ?\{?-?\d\}?)?)$"
)
_SQUARE = re.compile(
    r"(?<=[\d)}]) ?(?P<unit>(?:square|cubic|sq\.?) ?units?|units?(?:\^\{?\d\}?)?|units? squared)$", re.I
)
# \text{ cm}^2, \mathrm{~m} \mathrm{~s}^{-1}, \mathrm{kg} / \mathrm{m}^{3}; e, i and d are names unless spaced off
_WRAPPED = re.compile(
    r"(?:\s|\\cdot|/|\*)*\\(?P<command>text|mathrm|rm)\s*\{(?P<unit>[^{}\\]*)\}\s*(?:(?P<power>\^\s*\{?\s*-?\d)\s*\}?)?\s*$"
)
_DEGREE = re.compile(r"(?:\^ ?\{? ?\\circ ?\}?|\\circ|°) ?(?P<scale>[CF])?$")
_ANGLE_OF = re.compile(r"sin|cos|tan|cot|sec|csc")  # the degrees of cos 60 belong to its angle
_NOUN = re.compile(
    r"(?<=[\d.)}]) ?(?P<unit>[A-Za-z][A-Za-z'\-]*\.?(?:(?: |/| / )[A-Za-z][A-Za-z'\-]*\.?){0,5}(?:\^\{?\d\}?)?)$"
)
_CURRENCY = re.compile(
    r"^(?P<sign>-?) ?(?:(?P<unit>\\?\$|¥|€|£|₹|US\\?\$|USD|RMB|CNY|EUR|Rs\.?)) ?(?P<rest>-?[\d.].*)$", re.S
)


def normalised(unit: str) -> str | None:
    """A unit's canonical name; None where it is not in the table, as for a counted noun."""
    unit = re.sub(r"\s+", " ", unit.replace("~", " ")).strip(" .").lower()
    unit = re.sub(r"^(?:square|sq\.?) (.+)", r"\1^2", re.sub(r"^(?:cubic|cu\.?) (.+)", r"\1^3", unit))
    unit = re.sub(r"[ {}]", "", unit.replace(" per ", "/"))
    parts = re.split(r"(/|\^-?\d)", unit)
    names = [KNOWN.get(part, part) if part and part[0] not in "/^" else part for part in parts if part]
    known = all(name in _UNITS or name[0] in "/^" for name in names)
    return "".join(names) if names and known else None


def strip_currency(text: str) -> tuple[str, str | None]:
    """A number without the currency before it. Case: MATH `\\$32,\\!348`, `\\$18.90`."""
    match = _CURRENCY.match(text)
    if not match:
        return text, None
    unit = match["unit"].lower().lstrip("\\").replace("us", "", 1).replace("\\", "") or "usd"
    unit = {
        "$": "dollar",
        "d": "dollar",
        "rmb": "yuan",
        "cny": "yuan",
        "eur": "euro",
        "rs": "rupee",
        "rs.": "rupee",
    }.get(unit, KNOWN.get(unit))
    return match["sign"] + match["rest"], unit


def strip_unit(text: str, nouns: bool) -> tuple[str, str | None]:
    """An answer without the unit after it, and the unit's canonical name where it is a known one.

    Args:
        text: a cleaned answer.
        nouns: whether any words may follow a number ("18 eggs"); else known units and text commands alone.

    Case: MATH `5.4 \\text{ cents}`, `864 \\mbox{ inches}^2`, `90^\\circ`; OCW `1.6 \\mathrm{~cm}`; GSM8K `18 dollars`.
    """
    text, currency = strip_currency(text)
    text, units = text.strip(), []
    while match := _WRAPPED.search(text):
        unit = match["unit"].strip(" ~")
        spaced = match["unit"][:1] in " ~" or match["command"] == "text"
        if (
            not match.start()
            or not re.fullmatch(r"[A-Za-z.'\-/ ²³^\d()¢°€£¥]*", unit)
            or _is_operator(text, match, unit)
        ):
            break
        if unit in ("e", "i", "d", "T", "") and not spaced:
            break
        if unit and not _may_follow(text[: match.start()]):
            break
        units.append(f"{'/' if '/' in match[0].partition(chr(92))[0] else ''}{unit}{match['power'] or ''}")
        text = text[: match.start()].rstrip()
    if match := _DEGREE.search(text):
        if match.start() and _may_follow(text[: match.start()]) and not _ANGLE_OF.search(text):
            text = text[: match.start()].rstrip()
            units.append("degree" if not match["scale"] else match["scale"])
    for pattern in (_BARE, _RATE, _SQUARE, _NOUN) if nouns else (_BARE, _RATE, _SQUARE):
        if not units and (match := pattern.search(text)) and not _scales(match["unit"]):
            text = text[: match.start()].rstrip()
            units.append(match["unit"])
    unit = normalised(" ".join(reversed(units))) if units else None
    return text, unit or currency


_DENIED = frozenset(
    "halves thirds quarters fourths fifths sixths tenths hundredths tens lakh crore squared cubed factorial no is "
    "below above ago minus plus times".split()
)


def _scales(unit: str) -> bool:
    """ "million", "k" and "thirds" change the number, "is wrong" denies it: they are no units."""
    words = re.split(r"[^a-z]+", unit.lower())
    head = words[0]
    return (
        head in ENGLISH_MULTIPLIERS
        or head in {"percent", "pct", "dozen", "and", "or", "to", "e", "x", "pi", "half", "k", "b", "i", "bn", "mn"}
        or unit.strip() == "M"
        or not _DENIED.isdisjoint(words)
    )


def _is_operator(text: str, match: re.Match, unit: str) -> bool:
    first = re.split(r"[^a-z]", unit.lower())[0]
    return first in {"and", "or", "to", "mod", "if", "for", "when", "percent", "where", "base"} or _scales(unit)


def _may_follow(prefix: str) -> bool:
    """Whether a unit may follow: the end of a number, a bracket, a name; never an operator or a text."""
    return bool(re.search(r"[\d.)}\]A-Za-z|!]\s*$", prefix)) and not re.search(r"\\(?:text|frac|sqrt)\s*$", prefix)

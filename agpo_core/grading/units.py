"""Takes the unit of measure off an answer and remembers it, so that cents never pass for dollars.

A gold seldom has the unit that its question fixes, so an answer votes without its unit. Where gold and answer both
name a known unit and the two differ, the answer is wrong.
"""

from __future__ import annotations

import re

from agpo_core.grading.language import CHANGES
from agpo_core.grading.patterns import any_of, pattern
from agpo_core.grading.words import ENGLISH_MULTIPLIERS

# canonical name: its spellings, "_" for a blank
_TABLE = """
dollar: dollar dollars usd bucks $ us$ 美元; cent: cent cents ¢ 美分; euro: euro euros eur € 欧元; pound: £ gbp 英镑
yuan: yuan rmb cny ¥ 元 元钱 人民币; rupee: rupee rupees ₹ rs rs.; jiao: 角; fen: 分钱
m: m meter meters metre metres 米; cm: cm centimeter centimeters centimetre centimetres 厘米
mm: mm millimeter millimeters millimetre millimetres 毫米; km: km kilometer kilometers kilometre kilometres 千米 公里
dm: dm decimeter decimeters 分米; nm: nm nanometer nanometers 纳米; um: um \\mum micrometer micrometers micron microns
inch: inch inches in; foot: foot feet ft; yard: yard yards yd; mile: mile miles mi
g: g gram grams 克; kg: kg kilogram kilograms 千克 公斤; mg: mg milligram milligrams 毫克; ton: ton tons tonne tonnes 吨
lb: lb lbs pounds; oz: oz ounce ounces; jin: 斤
s: s sec second seconds 秒 秒钟; min: min mins minute minutes 分钟; h: h hr hrs hour hours 小时 时
day: day days 天 日; week: week weeks 周 星期; month: month months 月 个月; year: year years yr yrs 年
ms: ms millisecond milliseconds; l: l liter liters litre litres 升; ml: ml milliliter milliliters 毫升
gallon: gallon gallons gal gals; quart: quart quarts; pint: pint pints; cup: cup cups
degree: degree degrees deg 度 °; celsius: celsius degreescelsius degreecelsius degreec 摄氏度
radian: radian radians rad 弧度
fahrenheit: fahrenheit degreesfahrenheit degreefahrenheit degreef
mile/h: mph; hz: hz hertz; khz: khz; mhz: mhz; ghz: ghz; j: j joule joules; kj: kj; w: w watt watts
kw: kw kilowatt kilowatts; n: n newton newtons; pa: pa pascal pascals; kpa: kpa; mpa: mpa; ev: ev; kev: kev; mev: mev
v: v volt volts; ohm: ohm ohms \\omega; k: k kelvin kelvins; mol: mol mole moles; erg: erg ergs
dyne: dyne dynes; au: au
pc: pc parsec parsecs; cal: cal calorie calories; kcal: kcal; atm: atm; bar: bar bars; rpm: rpm; acre: acre acres
hectare: hectare hectares 公顷; amu: amu; angstrom: angstrom angstroms å; mu: 亩
"""
KNOWN = {
    spelling: name.strip()
    for name, _, spellings in (entry.partition(":") for entry in _TABLE.replace(";", "\n").split("\n"))
    for spelling in spellings.split()
}
_NAMES = frozenset(KNOWN.values())
_LONG = any_of(" ".join(s for s in KNOWN if s.isascii() and s.isalpha() and len(s) > 1 and s != "in"))
_POWER = r"(?: ?\^ ?\{?-?\d\}?)"
_WORD = (
    rf"(?:(?:square |cubic |sq\.? |cu\.? )?(?:{_LONG})(?![A-Za-z])\.?{_POWER}?"
    rf"|(?:square|cubic|sq\.?|cu\.?) in\b|in ?\^ ?\{{?[23]\}}?|[¢€£¥₹])"
)
_BARE = pattern(rf"(?<=[\d.)}}]) ?(?P<unit>{_WORD}(?: ?(?:/|per) ?(?:{_WORD}|[smhg]\b{_POWER}?))?)\Z", re.I)
# letters that are names elsewhere are units where one is divided by another, or where a blank follows a plain number
_RATE = pattern(
    r"(?<=\d) ?(?P<unit>(?:km|kg|cm|mm|[mgJNWV]) ?/ ?(?:mol|kg|cm|min|hr|[smhgKL])(?: ?\^ ?\{?-?\d\}?)?|\\Omega"
    r"|\\mu ?m)\Z"
    r"|(?<=\d) (?P<letter>[KVWJNA]|in\.?)\Z"
)
_SQUARE = pattern(r"(?<=[\d)}]) ?(?P<unit>(?:square|cubic|sq\.?) ?units?|units?(?:\^\{?\d\}?)?|units? squared)\Z", re.I)
_NOUN = pattern(
    r"(?<=[\d.)}]) ?(?P<unit>[A-Za-z][A-Za-z'\-]*+\.?(?:(?: / | |/)[A-Za-z][A-Za-z'\-]*+\.?){0,3}"
    r"(?:(?: / | |/)[A-Za-z][A-Za-z'\-]*+\.?){0,2}(?:\^\{?\d\}?)?)\Z"
)
# \text{ cm}^2, \mathrm{~m} \mathrm{~s}^{-1}, \mathrm{kg} / \mathrm{m}^{3}; e, i and d are names unless spaced off
_WRAPPED = pattern(
    r"(?P<before>[\s/*]{0,6}(?:\\cdot)?[\s/*]{0,6})\\(?P<command>text|mathrm|rm)\s{0,9}\{"
    r"(?P<unit>(?:\^ ?\{-?\d\}|[^{}])*+)\}\s{0,9}(?:(?P<power>\^\s{0,9}\{?\s{0,9}-?\d)\s{0,9}\}?)?\s{0,9}\Z"
)
_QUOTIENT = pattern(
    r"(?<=\d) ?\\frac ?\{ ?(?:\\(?:text|mathrm) ?\{)?(?P<over>[A-Za-z ]{1,20})\}{1,2} ?"
    r"\{ ?(?:\\(?:text|mathrm) ?\{)?(?P<under>[A-Za-z ]{1,20}(?:\^ ?\{?\d\}?)?)\}{1,2}(?P<power>\^\d)?\}?\Z"
)
_UNIT_TEXT = pattern(r"(?:[A-Za-z.'\-/ ²³^\d()¢°€£¥$~{}]|\\(?:mu|cdot|Omega|circ)(?![A-Za-z]))*+")
_DEGREE = pattern(r"(?:\^ ?\{? ?\\circ ?\}?|\\circ|°) ?(?P<scale>[CF])?\Z")
_ORDINAL = pattern(r"(?<=\d)(?:st|nd|rd|th)\Z")
_ANGLE_OF = pattern(r"sin|cos|tan|cot|sec|csc|cis")  # the degrees of cos 60 belong to its angle
_CURRENCY = pattern(
    r"(?P<sign>-?) ?(?P<unit>\\?\$|¥|€|£|₹|US\\?\$|USD|RMB|CNY|EUR|Rs\.?) ?(?P<rest>-?[\d.].{0,2000})", re.S
)
_MONEY_AFTER = pattern(r"(?<=\d) ?(?P<unit>\\?\$)\Z")
_SQUARES = pattern(r"(?:square|sq\.?) (.{1,99})")
_CUBES = pattern(r"(?:cubic|cu\.?) (.{1,99})")
_PARTS = pattern(r"(/|\^-?\d)")
_FOLLOWABLE = pattern(r"[\d.)}\]A-Za-z|!]\s{0,9}\Z")
_OPERATED = pattern(r"\\(?:text|frac|sqrt)\s{0,9}\Z")
_LETTERS = pattern(r"[a-z]++")
_WINDOW = 100  # characters; no unit is longer


_BRACES = str.maketrans("", "", " {}")


def normalised(unit: str) -> str | None:
    """A unit's canonical name; None where it is not in the table, as a counted noun (eggs) is not."""
    unit = " ".join(unit.replace("~", " ").split()).strip(" .").lower()
    for wide, power in ((_SQUARES, "^2"), (_CUBES, "^3")):
        if match := wide.fullmatch(unit):
            unit = match[1] + power
    parts = _PARTS.split(unit.replace(" per ", "/").translate(_BRACES))
    names = [KNOWN.get(part, part) if part and part[0] not in "/^" else part for part in parts if part]
    known = all(name in _NAMES or name[0] in "/^" for name in names)
    return "".join(names) if names and known else None


def strip_currency(text: str) -> tuple[str, str | None]:
    """A number without the currency before it. Case: MATH `\\$32,\\!348`, `\\$18.90`."""
    match = _CURRENCY.fullmatch(text)
    if not match:
        return text, None
    return match["sign"] + match["rest"], KNOWN[match["unit"].lower().lstrip("\\").replace("\\", "")]


def strip_unit(text: str, nouns: bool) -> tuple[str, str | None]:
    """An answer without the unit after it, and the unit's canonical name where it is a known one.

    Args:
        text: a cleaned answer.
        nouns: whether any word may follow a number ("18 eggs"); if not, only known units and text commands may.

    Case: MATH `5.4 \\text{ cents}`, `864 \\mbox{ inches}^2`, `90^\\circ`; OCW `1.6 \\mathrm{~cm}`; GSM8K `18 dollars`.
    """
    text, currency = strip_currency(text)
    text, units = text.strip(), []
    if not text.strip("-0123456789.,/ "):
        return text, currency
    while match := _WRAPPED.search(text, _window(text)):
        unit = match["unit"].strip(" ~")
        spaced = match["unit"][:1] in " ~" or match["command"] == "text"
        if not match.start() or not _UNIT_TEXT.fullmatch(unit) or _is_operator(unit):
            break
        if unit in ("e", "i", "d", "T", "") and not spaced:
            break
        if unit and not _may_follow(text[: match.start()]):
            break
        units.append(f"{'/' if '/' in match['before'] else ''}{unit}{match['power'] or ''}")
        text = text[: match.start()].rstrip()
    if match := _DEGREE.search(text, _window(text)):
        if match.start() and _may_follow(text[: match.start()]) and not _ANGLE_OF.search(text):
            text = text[: match.start()].rstrip()
            units.append(f"degree{match['scale'] or ''}")
    if (match := _QUOTIENT.search(text, _window(text))) and not units:
        unit = f"{match['over'].strip()}/{match['under'].strip()}{match['power'] or ''}"
        if normalised(unit):
            return text[: match.start()].rstrip(), normalised(unit)
    for found in (_BARE, _RATE, _SQUARE, _MONEY_AFTER, _NOUN) if nouns else (_BARE, _RATE, _SQUARE, _MONEY_AFTER):
        if not units and (match := found.search(text, _window(text))):
            if match["unit"] is None or not _scales(match["unit"]):
                text = text[: match.start()].rstrip()
                units.append(match["unit"] or match["letter"])
    unit = normalised(" ".join(reversed(units))) if units else None
    return _ORDINAL.sub("", text), unit or currency


def _window(text: str) -> int:
    return max(0, len(text) - _WINDOW)


_SCALES = frozenset(ENGLISH_MULTIPLIERS) | set("percent pct dozen and or to e x pi half k b i bn mn".split())
_OPERATORS = frozenset("and or to mod if for when percent where base".split())
_CHANGES = frozenset(CHANGES.split("|"))


def _scales(unit: str) -> bool:
    """Whether a word changes the number ("million", "k", "thirds") or denies it ("is wrong"), so that it is no unit."""
    words = _LETTERS.findall(unit.lower())
    return unit.strip() == "M" or bool(words) and (words[0] in _SCALES or not _CHANGES.isdisjoint(words))


def _is_operator(unit: str) -> bool:
    first = _LETTERS.match(unit.lower())
    return unit != "K" and bool(first) and (first[0] in _OPERATORS or _scales(unit))


def _may_follow(prefix: str) -> bool:
    """Whether a unit may follow this text: after a number, a bracket or a name, not after an operator."""
    end = prefix[-12:]
    return bool(_FOLLOWABLE.search(end)) and not _OPERATED.search(end)

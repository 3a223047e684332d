"""The rule that reads formulas: lists of answers, relations, tuples, matrices and expressions, as keys of values."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

from agpo_core.grading import values
from agpo_core.grading.clean import braced, split_top
from agpo_core.grading.forms import worked_out
from agpo_core.grading.language import denies
from agpo_core.grading.latex import Node, Unreadable, parse
from agpo_core.grading.numerals import decimal_key, read_number
from agpo_core.grading.patterns import pattern
from agpo_core.grading.reading import Reading, bare, label_of, plain
from agpo_core.grading.rules_numbers import strip_percent, tree_of
from agpo_core.grading.sets import BRACKETED, End, Piece, end_of, minus, real_set, set_key, union
from agpo_core.grading.units import strip_unit

COORDINATES = frozenset("xyz")


def _elements(text: str, profile) -> list[Reading]:
    """The answers that one expression stands for; a plus-minus gives two. Case: MATH-500 `1 \\pm \\sqrt{19}`."""
    node = tree_of(text, profile)
    keys = [values.key(node, sign) for sign in ((1, -1) if values.has_sign_choice(node) else (1,))]
    worked = profile.unevaluated or worked_out(node)
    if values.free_names(node) - {"i"} and not keys[0].startswith("f:"):
        worked = profile.unevaluated  # the variables cancel, as in (x+1) - x
    return [Reading(key, worked=worked) for key in dict.fromkeys(keys)]


_DOLLAR = pattern(r"(?<!\\)\$")
# a condition after an answer: (k \in \mathbb{Z}), where n is an integer, for all x > 1
_WHOLE = r"\\(?:mathbb|mathrm|mathbf) ?\{? ?[ZN] ?\}?(?:_\{?\+\}?|\^\{?[+*]\}?)?|Z|N"
_CONDITION = pattern(
    rf"(?:[,;]? ?\((?P<a>[a-z] ?\\in ?(?:{_WHOLE}))\)|[,;] ?"
    rf"(?:\\text ?\{{ ?)?(?:where |for )?(?:\}} ?)?[a-z] ?\\in ?(?:{_WHOLE}))\Z"
)
_MODULUS = pattern(
    r" ?(?:\\pmod ?(?P<a>\{[^{}]{1,20}\}|\w)|\(?(?:\\bmod|\\mod|\\(?:text|mathrm) ?\{ ?mod ?\}|\bmod) ?"
    r"(?P<b>\{[^{}]{1,20}\}|\w{1,9})\)?)\Z"
)


def without_condition(text: str) -> str:
    """An answer without the condition that a name in it is an integer. Case: Cloze `x=k\\pi(k\\in\\mathbf{Z})`."""
    match = _CONDITION.search(text, max(0, len(text) - 60)) if "\\in" in text else None
    return text[: match.start()] if match else text


def formula(text: str, profile) -> Reading | None:
    """The reading of any formula: a list of answers, set, tuple, interval, matrix, relation or expression."""
    if len(_DOLLAR.findall(text)) > 1:  # OCW's gold 72 is two formulas side by side
        text = _DOLLAR.sub(" ", text)
    if denies(text):
        return None
    if match := _CONDITION.search(text):
        text = text[: match.start()]
    unit = None
    if match := _MODULUS.search(text):
        text, unit = text[: match.start()].rstrip(), f"mod {(match['a'] or match['b']).strip('{} ')}"
        text = text.replace("\\equiv", "=")
    try:
        reading = _list(text, profile)
    except Unreadable:
        return None
    return replace(reading, unit=unit) if unit else reading


_AND_WORDS = r"\\text ?\{ ?,? ?(?:and|or) ?\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|[或与]|\\(?:lor|vee)(?![A-Za-z])"
_AND = pattern(_AND_WORDS + "|和")
_ALTERNATIVES = pattern(_AND_WORDS + "|,")
_OR = pattern(r"\\text ?\{ ?or ?\}|(?<![A-Za-z\\])or(?![A-Za-z])|或")
_CONJUNCTION = pattern(r"\band\b|且")
_ORDER = pattern(r"<|>|\\[lg]e\b")
_THOUSANDS = pattern(r"(?<![\d.,])\d{1,3}(?:,\d{3}(?!\d))++(?![\d,])")


def join_thousands(text: str) -> str:
    """The text without thousands separators outside brackets. Case: MATH-500 `58,500` is one number; `1,-2` is two."""
    if "," not in text:
        return text
    pieces, depth, last = [], 0, 0
    for i, char in enumerate(text):
        if char in "([{" or char in ")]}":
            if depth == 0:
                pieces.append(_joined(text[last:i]))
                last = i
            depth += 1 if char in "([{" else -1
            if depth == 0:
                pieces.append(text[last : i + 1])
                last = i + 1
    return "".join([*pieces, _joined(text[last:]) if depth == 0 else text[last:]])


def _joined(text: str) -> str:
    return _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)


def _list(text: str, profile) -> Reading:
    """The reading of one or several answers, in any order.

    Case: HMMT `0,i\\sqrt{6},-i\\sqrt{6}`; MATH `19 \\text{ and }43`, `2, 3, \\text{ and } 4`.
    """
    text = join_thousands(text)
    joined = text if _ORDER.search(text) or "\\ne" in text else _AND.sub(",", text)
    pieces = [bare(piece) for piece in split_top(joined, ",;")]
    if joined is not text and (not pieces[0] or not pieces[-1]):
        raise Unreadable("an answer that ends with and")
    while len(pieces) > 1 and "" in pieces:  # "2, 3, and 4" has an empty piece
        pieces.remove("")
    if len(pieces) == 1:
        inner = braced(pieces[0])
        if inner is None:
            return _one(joined if joined is text else pieces[0], profile)
        pieces = [bare(piece) for piece in split_top(_AND.sub(",", join_thousands(inner)), ",;")]
        if pieces == [""]:
            return Reading("{}")
    if len(pieces) > 60:
        raise Unreadable("a list too long")
    if len(pieces) == 2 and _LINE_BUT.fullmatch(joined):
        return _one(pieces[1], profile)
    readings: list[Reading] = []
    for piece in pieces:
        if "pm" in piece and "=" not in piece:
            readings += _elements(strip_unit(piece, nouns=False)[0], profile)
        elif (one := _one(piece, profile)).key.startswith("{"):
            readings += [replace(one, key=key) for key in one.key[1:-1].split("; ")]
        else:
            readings.append(one)
    if _OR.search(text):  # "1/2 or 0.5" is one answer in two spellings
        readings = list({reading.key: reading for reading in readings}.values())
    return _together(readings)


_LINE_BUT = pattern(r"[a-z] ?\\in ?\\mathbb ?\{?R\}?,? ?[a-z] ?\\ne(?![a-z]).{1,200}")
_INDEX = pattern(r"_\{?\d\}?\Z")


def _together(readings: list[Reading]) -> Reading:
    """The reading of several answers; where each has a different name, the names count.

    Case: `x=1, y=2`, which is the point (1,2).
    """
    if len(readings) == 1:
        return readings[0]
    units = {reading.unit for reading in readings} - {None}
    labels = [reading.label for reading in readings]
    worked = all(reading.worked for reading in readings)
    unit = units.pop() if len(units) == 1 else None
    if None not in labels and len({_INDEX.sub("", label) for label in labels}) == len(labels):
        if "".join(sorted(labels)) in ("xy", "xyz", "ab", "abc", "abcd"):
            ordered = sorted(readings, key=lambda reading: reading.label)
            return Reading(f"({', '.join(reading.key for reading in ordered)})", unit=unit, worked=worked)
        keys = [f"{reading.label}={reading.key}" for reading in readings]
    else:
        keys = [reading.key for reading in readings]
    return Reading("{" + "; ".join(sorted(keys)) + "}", unit=unit, worked=worked)


def _one(text: str, profile) -> Reading:
    """The reading of one answer: a relation, a set of reals, a tuple, a matrix or an expression, with its unit."""
    text = bare(text)
    if not text:
        raise Unreadable("nothing")
    for rule in (_relation, real_set, _matrix, _tuple):
        reading = rule(text, profile)
        if reading is not None:
            return reading
    return _expression(text, profile)


_INFINITY = pattern(r"([-+]?) ?(?:\\infty|inf|infinity)")


def _expression(text: str, profile) -> Reading:
    text, _, percent = strip_percent(text, profile)
    text, unit = strip_unit(text, nouns=False)
    if infinite := _INFINITY.fullmatch(text.strip()):
        return Reading("-inf" if infinite[1] == "-" else "inf")
    key = decimal_key(text.strip())
    if key is not None and percent is None:
        return Reading(key, unit=unit)
    written = read_number(text.strip())
    elements = _elements(text, profile)
    if percent is not None and profile.percent == "value":
        elements = [Reading(values.key(("div", tree_of(text, profile), ("num", Fraction(100)))))]
    reading = _together(elements)
    return replace(reading, unit="%" if percent else unit, fraction=written.written if written else None)


# -- relations

_COMPARE = pattern(r"(\\le(?![a-z])|\\ge(?![a-z])|<=|>=|\\lt(?![a-z])|\\gt(?![a-z])|<|>)")
_NAME = pattern(
    r"(?:\\?[A-Za-z]++|\\(?:vec|overline|mathrm|mathbb|mathcal|overrightarrow|text|hat|bar) ?\{[^{}]*+\})'*+"
    r"(?: ?_ ?(?:\{[^{}]*+\}|\\?[A-Za-z]++|\d))?(?: ?\^\{?-1\}?)?(?: ?\([^()=]{1,20}\))?"
)
_SET_BUILDER = pattern(
    r"(?:\\\{)? ?[a-z](?: ?\\in ?\\mathbb ?\{?R\}?)? ?(?:\||\\mid|:) ?(?P<condition>[^{}]{0,200}?(?:[<>]|\\"
    r"(?:[lg]e|ne|in)(?![a-z])).{0,200}?)"
    r"(?:\\\})?"
)
_NAMES = pattern(r"\( ?\\?[A-Za-z]++(?:_\w)? ?(?:, ?\\?[A-Za-z]++(?:_\w)? ?)++\)")
_IN = pattern(r"\\in(?![A-Za-z])")
_UNEQUAL = pattern(r"(?P<name>.{1,60}?)\\ne(?![a-z])(?P<hole>.{1,200})")
_SIGNS = pattern(r" ?\\pm ?(.{1,200})")
_EQUALS = pattern(r"\\equiv|\\triangleq|:=")
_NAMED_POINT = pattern(r"(?P<name>[A-Z]'?(?:_\{?\d\}?)?) ?(?P<point>\([^()]{0,200},.{0,200}\))")
_CAPITALS = pattern(r"[A-Z]{2,20}")
_INDEXED = pattern(r"_ ?(?:\{[^{}]*+\}|\w)")
_WORKED = pattern(r"\d|\\sqrt|\\frac|\A-")
_LETTERED = pattern(r"\\[A-Za-z]|[A-Za-z]{2}")  # a sum or a unit: no rule reads it, but it may stand beside an answer


def _relation(text: str, profile) -> Reading | None:
    """The reading of an equation, an inequality or a membership; None where the string as a whole is no relation."""
    if (match := _SET_BUILDER.fullmatch(text)) and (found := _relation(match["condition"], profile)):
        return replace(found, label=None)
    if match := _NAMED_POINT.fullmatch(text):
        return replace(_one(match["point"], profile), label=label_of(match["name"]))
    if _IN.search(text):
        name, rest = _IN.split(text, maxsplit=1)
        if not (_NAME.fullmatch(name.strip()) or _NAMES.fullmatch(name.strip())):
            raise Unreadable("membership of no name")
        reading = _list(rest, profile)
        return replace(reading, label=None if "(" in name else label_of(name))
    if _COMPARE.search(text):
        return _inequality(text, profile)
    if "\\ne" in text and (match := _UNEQUAL.fullmatch(text)) and _NAME.fullmatch(match["name"].strip()):
        holes = _ALTERNATIVES.split(match["hole"])
        if pm := _SIGNS.fullmatch(match["hole"]):
            holes = [pm[1], f"-({pm[1]})"]
        pieces = minus([Piece.line()], [Piece.point(end_of(hole, profile)) for hole in holes if hole.strip()])
        return Reading(set_key(pieces), label=label_of(match["name"]))
    parts = [part.strip() for part in split_top(_EQUALS.sub("=", text), "=")]
    if len(parts) == 1:
        if "\\approx" in text:  # in "250/3 ≈ 83.33" the exact side is the answer
            return _one(text.partition("\\approx")[0], profile)
        return None
    if not all(parts) or len(parts) > 12:
        raise Unreadable("an equation with an empty side")
    return _equation(parts, profile)


def _equation(parts: list[str], profile) -> Reading:
    """The reading of an equation.

    A chain of equal sides is read as its last side. A name on the left is a label. A relation between coordinates is
    an equation in its own right.

    Case: MATH-500 `x=5` is 5; AIME `m+n=25+18=43` is 43; Cloze `2x+y+1=0` is `y=-2x-1`; OCW `X_{d}=125-1.25 P`;
    OCW `MR=SRMC` names two quantities and equals `SRMC=MR`.
    """
    parts = [part.partition("\\approx")[0] for part in parts]
    left, right = parts[0], parts[-1]
    label = label_of(left)
    names = sorted(map(plain, parts))
    if len(names) == 2 and all(_CAPITALS.fullmatch(name) for name in names):
        return Reading("names:" + "=".join(names))
    named = _NAMES.fullmatch(left)
    if len(parts) == 2 and named and len(split_top(left[1:-1], ",")) == len(split_top(right[1:-1], ",")):
        return _one(right, profile)  # (x, y) = (3, 4)
    if "pm" in right and _NAME.fullmatch(left) and len(parts) == 2:
        nodes = tree_of(left, profile), tree_of(right, profile)
        if values.free_names(nodes[1]) & COORDINATES and label in COORDINATES:
            return _together([Reading(values.equation_key(*nodes, sign)) for sign in (1, -1)])
    if _NAME.fullmatch(left) and not _is_coordinate_relation(left, right, profile):
        return replace(_chain(parts[1:], profile), label=label)
    if len(parts) > 2:
        return _chain(parts, profile)
    try:
        nodes = tree_of(left, profile), tree_of(right, profile)
    except Unreadable:
        if not _LETTERED.search(left) or values.free_names(parse(right)):
            raise
        return _one(right, profile)  # \sum_{k=1}^{5} k = 15
    if any(map(values.has_sign_choice, nodes)):
        raise Unreadable("an equation with a plus-minus")
    names = values.free_names(nodes[0]) | values.free_names(nodes[1])
    if not names - {"i"}:  # 3 + 5 = 8
        return _chain(parts, profile)
    bare_left = not _WORKED.search(_INDEXED.sub("", left))  # 2n = 4 says that n is 2
    if bare_left and not names & COORDINATES and not values.free_names(nodes[1]) and not _differential(names):
        return replace(_one(right, profile), label=label)  # a_1 + a_2 = 10, |AB| = 5
    if len(names) == 1:
        solved = _solve(nodes[0], nodes[1])
        if solved is not None:
            return replace(solved, label=next(iter(names)), worked=False)
    return Reading(values.equation_key(*nodes))


def _chain(parts: list[str], profile) -> Reading:
    """The reading of the last of several equal sides; constants among the other sides must equal it."""
    reading = _one(parts[-1], profile)
    units = {reading.unit}
    for part in parts[:-1]:
        try:
            other = _one(part, profile)
        except Unreadable:
            if not _LETTERED.search(part):
                raise
            continue  # a side that no rule reads, such as a sum or a unit
        units.add(other.unit)
        if other.key != reading.key and not (_has_names(part, profile) and not _has_names(parts[-1], profile)):
            raise Unreadable("sides that are not equal")
    units.discard(None)
    return replace(reading, unit=reading.unit or (units.pop() if len(units) == 1 else None))


def _has_names(text: str, profile) -> bool:
    try:
        return bool(values.free_names(tree_of(text, profile)) - {"i"})
    except Unreadable:
        return False


def _differential(names: frozenset[str]) -> bool:
    return any("'" in name or "/d" in name or name.startswith(("dot ", "ddot ")) for name in names)


def _is_coordinate_relation(left: str, right: str, profile) -> bool:
    """Whether an equation with one name on the left relates coordinates or defines a rate, so that it is no label."""
    name = left.strip()
    if name in COORDINATES:
        try:
            free = values.free_names(tree_of(right, profile))
        except Unreadable:
            return False
        return bool(free & (COORDINATES | {"t"}))
    try:
        return _differential(values.free_names(tree_of(right, profile)) | {label_of(left)})
    except Unreadable:
        return False


def _solve(left: Node, right: Node) -> Reading | None:
    """The root of a linear equation in one unknown. Case: Cloze `x=-\\frac{3}{2}` is `2x+3=0`."""
    difference, _ = values.over_one_line(("add", (left, ("neg", right))))
    name = next(iter(values.free_names(difference)), None)
    if name is None or name.endswith("()"):
        return None
    # There are enough points that |x - 10| and other functions with a bend are not taken for lines.
    points = [Fraction(n) for n in (0, 1, 3, -7, 20, Fraction(1, 3), -1000, 1000)]
    try:
        at = [values.evaluate(_substituted(difference, name, point)) for point in points]
    except Unreadable:
        return None
    slope = values.add([at[1], values.divide(at[0], Fraction(-1))]) if at[0] != 0 else at[1]
    if slope == 0:
        return None
    for point, value in zip(points, at, strict=True):
        if values.number_key(values.add([at[0], values.multiply(slope, point)])) != values.number_key(value):
            return None
    return Reading(values.number_key(values.divide(values.multiply(at[0], Fraction(-1)), slope)))


def _substituted(node: Node, name: str, value: Fraction) -> Node:
    if node == ("sym", name):
        return ("num", value)
    return tuple(
        (_substituted(part, name, value) if part and isinstance(part[0], str) else
         tuple(_substituted(p, name, value) for p in part)) if isinstance(part, tuple) else part
        for part in node
    )  # fmt: skip


def _inequality(text: str, profile) -> Reading:
    """The set that an inequality in one name describes. Case: ORZ `-80\\leq g(x)\\leq 82`; `x>3` is `(3,\\infty)`."""
    alternatives = [p for p in _ALTERNATIVES.split(text) if p.strip()]
    pieces, label = [], None
    conjunction = bool(_CONJUNCTION.search(text))
    for alternative in alternatives:
        parts = _COMPARE.split(alternative)
        found_label, piece = _bounded(parts, profile)
        if label not in (None, found_label):
            raise Unreadable("inequalities in several names")
        label = found_label
        pieces.append(piece)
    if len(pieces) > 1 and conjunction:
        raise Unreadable("a conjunction of inequalities")
    return Reading(set_key(union(pieces)), label=label)


def _bounded(parts: list[str], profile) -> tuple[str, Piece]:
    sides, signs = [p.strip() for p in parts[0::2]], parts[1::2]
    less = {"\\le": "<=", "<=": "<=", "<": "<", "\\lt": "<"}
    if len(sides) == 2:
        sign = less.get(signs[0])
        flipped = {"\\ge": "<=", ">=": "<=", ">": "<", "\\gt": "<"}.get(signs[0])
        left, right = (sides[0], sides[1]) if sign else (sides[1], sides[0])
        sign = sign or flipped
        closed = sign == "<="
        if _NAME.fullmatch(left) and not _is_number(left, profile):
            return label_of(left), Piece(End(-1), False, end_of(right, profile), closed)
        if _NAME.fullmatch(right):
            return label_of(right), Piece(end_of(left, profile), closed, End(1), False)
        raise Unreadable("an inequality of no name")
    if len(sides) == 3 and _NAME.fullmatch(sides[1]):
        ascending = [sign in less for sign in signs]
        if ascending[0] != ascending[1]:
            raise Unreadable("an inequality that turns round")
        low, high = (sides[0], sides[2]) if ascending[0] else (sides[2], sides[0])
        first, second = signs if ascending[0] else signs[::-1]
        closed = [sign in ("\\le", "<=", "\\ge", ">=") for sign in (first, second)]
        return label_of(sides[1]), Piece(end_of(low, profile), closed[0], end_of(high, profile), closed[1])
    raise Unreadable("an inequality of this form")


def _is_number(text: str, profile) -> bool:
    try:
        return not values.free_names(tree_of(text, profile))
    except Unreadable:
        return False


# -- tuples and matrices


_ANGLED = pattern(r"\\langle(?![A-Za-z])(.{0,2000})\\rangle", re.S)
_ROWS = pattern(r"\[ ?\[.{0,2000}\] ?\]", re.S)


def _tuple(text: str, profile) -> Reading | None:
    """The reading of ordered entries in brackets: a point, a vector or an interval.

    Case: MATH-500 `(3,4]` is not `[3,4]`; `(6,31,-1)`.
    """
    if angled := _ANGLED.fullmatch(text):
        text = f"({angled[1]})"
    match = BRACKETED.fullmatch(text)
    if not match or len(split_top(text, "")) != 1 or not _brackets_close_last(text):
        return None
    entries = split_top(match["inside"], ",;")
    if len(entries) < 2 or len(entries) > 60:
        return None
    if _ROWS.fullmatch(text):
        return _matrix_key([split_top(row.strip()[1:-1], ",") for row in entries], profile)
    keys = []
    for entry in entries:
        entry = bare(entry)
        if len(entries) == 2 and _INFINITY.fullmatch(entry):
            keys.append("-inf" if entry.startswith("-") else "inf")
            continue
        reading = _one(entry, profile)
        if reading.key.startswith("{"):
            raise Unreadable("an entry of several values")
        keys.append(reading.key)
    opening, closing = match["open"].replace("]", "("), match["close"].replace("[", ")")
    return Reading(f"{opening}{', '.join(keys)}{closing}")


def _brackets_close_last(text: str) -> bool:
    """Whether the bracket that opens the string is closed at its end: (1,2)(3,4) is no tuple."""
    depth = 0
    for i, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if depth == 0 and i < len(text) - 1 and text[0] != "]":
            return False
    return True


_MATRIX = pattern(
    r"\A(?P<front>[^&]{0,200}?)(?:[(\[|]|\\\{)? ?"
    r"\\begin ?\{(?P<kind>[pbBvV]?(?:small)?matrix|array)\}(?: ?\{[lcr| ]*+\})?(?P<body>.{0,2000}?)"
    r"\\end ?\{(?P=kind)\} ?(?:[)\]|]|\\\})?(?P<back>.{0,200})",
    re.S,
)
_ROW_END = pattern(r"\\\\(?: ?\[[^\]]*+\])?")
_TIMES = pattern(r"(?:\\cdot|\\times|\*)\Z")


def _matrix(text: str, profile) -> Reading | None:
    """The reading of a matrix, entry by entry; a factor before it is multiplied in.

    Case: MATH-500 `\\begin{pmatrix} -1/3 \\\\ 2/3 ...`.
    """
    match = _MATRIX.fullmatch(text) if "\\begin" in text else None
    if not match:
        return None
    if match["back"].strip() or match["kind"].startswith(("v", "V")):
        raise Unreadable("more than a matrix")
    rows = [row.split("&") for row in _ROW_END.split(match["body"].strip()) if row.strip()]
    factor = bare(match["front"])
    return _matrix_key(rows, profile, factor)


def _matrix_key(rows: list[list[str]], profile, factor: str = "") -> Reading:
    if not rows or len({len(row) for row in rows}) != 1 or len(rows) * len(rows[0]) > 100:
        raise Unreadable("rows of unequal length")
    scale = None
    if factor:
        scale = ("num", Fraction(-1)) if factor == "-" else tree_of(_TIMES.sub("", factor), profile)
    keys = []
    for row in rows:
        nodes = [tree_of(entry, profile) for entry in row]
        if any(values.has_sign_choice(node) for node in nodes):
            raise Unreadable("an entry of several values")
        keys.append(", ".join(values.key(node if scale is None else ("mul", (scale, node))) for node in nodes))
    return Reading("[[" + "]; [".join(keys) + "]]")

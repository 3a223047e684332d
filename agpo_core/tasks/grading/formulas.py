"""The rule for formulas: lists of answers, relations, tuples, matrices, expressions, down to the keys of their
values.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

from agpo_core.tasks.grading import values
from agpo_core.tasks.grading.clean import braced, split_top
from agpo_core.tasks.grading.latex import Node, Unreadable
from agpo_core.tasks.grading.reading import DENIAL, Reading, label_of, plain
from agpo_core.tasks.grading.rules_numbers import decimal_key, strip_percent, tree_of, written_fraction
from agpo_core.tasks.grading.sets import BRACKETED, End, Piece, end_of, minus, real_set, set_key, union
from agpo_core.tasks.grading.units import strip_unit

COORDINATES = frozenset("xyz")


def _elements(text: str, profile) -> list[Reading]:
    """The answers that one expression stands for: two where it holds a plus-minus. Case: MATH-500 `1 \\pm
    \\sqrt{19}`.
    """
    node = tree_of(text, profile)
    if not values.has_sign_choice(node):
        return [Reading(values.key(node))]
    plus, minus = Reading(values.key(node, 1)), Reading(values.key(node, -1))
    return [plus] if plus == minus else [plus, minus]


def formula(text: str, profile) -> Reading | None:
    """Anything mathematical: lists of answers, sets, tuples, intervals, matrices, relations, expressions."""
    if len(re.findall(r"(?<!\\)\$", text)) > 1:  # OCW's gold 72 is two formulas side by side
        text = re.sub(r"(?<!\\)\$", " ", text)
    if DENIAL.search(text):
        return None
    try:
        return _list(text, profile)
    except Unreadable:
        return None


_AND = re.compile(
    r"\\text ?\{ ?,? ?(?:and|or) ?\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|[或和与]|\\(?:lor|vee)(?![A-Za-z])"
)
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")


def join_thousands(text: str) -> str:
    """58,500 outside brackets is one number. Case: MATH-500 `58,500`; `1,-2` is two."""
    if "," not in text:
        return text
    pieces, depth, last = [], 0, 0
    for i, char in enumerate(text):
        if char in "([{" or char in ")]}":
            if depth == 0:
                pieces.append(_THOUSANDS.sub(lambda m: m[0].replace(",", ""), text[last:i]))
                last = i
            depth += 1 if char in "([{" else -1
            if depth == 0:
                pieces.append(text[last : i + 1])
                last = i + 1
    tail = text[last:]
    pieces.append(_THOUSANDS.sub(lambda m: m[0].replace(",", ""), tail) if depth == 0 else tail)
    return "".join(pieces)


def _list(text: str, profile) -> Reading:
    """Several answers in any order. Case: HMMT `0,i\\sqrt{6},-i\\sqrt{6}`; MATH `19 \\text{ and }43`, `2, 3, \\text{
    and } 4`.
    """
    text = join_thousands(text)
    joined = _AND.sub(",", text) if not re.search(r"<|>|\\[lg]e\b", text) else text
    pieces = [piece.strip(" $") for piece in split_top(joined, ",;")]
    if joined is not text and (not pieces[0] or not pieces[-1]):
        raise Unreadable("an answer that ends with and")
    while len(pieces) > 1 and "" in pieces:  # "2, 3, and 4" has an empty piece
        pieces.remove("")
    if len(pieces) == 1:
        inner = braced(pieces[0])
        if inner is None:
            return _one(joined if joined is text else pieces[0], profile)
        pieces = [piece.strip(" $") for piece in split_top(_AND.sub(",", join_thousands(inner)), ",;")]
        if pieces == [""]:
            return Reading("{}")
    if len(pieces) > 60:
        raise Unreadable("a list too long")
    readings: list[Reading] = []
    for piece in pieces:
        if "pm" in piece and "=" not in piece:
            readings += _elements(strip_unit(piece, nouns=False)[0], profile)
        elif (one := _one(piece, profile)).key.startswith("{"):
            readings += [Reading(key) for key in one.key[1:-1].split("; ")]
        else:
            readings.append(one)
    return _together(readings)


def _together(readings: list[Reading]) -> Reading:
    """The key of several answers; where they are values of different names, the names count. Case: `x=1, y=2`."""
    units = {reading.unit for reading in readings} - {None}
    labels = [reading.label for reading in readings]
    named = None not in labels and len({re.sub(r"_\{?\d\}?$", "", label) for label in labels}) == len(labels) > 1
    keys = [f"{r.label}={r.key}" if named else r.key for r in readings]
    if len(keys) == 1:
        return readings[0]
    return Reading("{" + "; ".join(sorted(keys)) + "}", unit=units.pop() if len(units) == 1 else None)


def _one(text: str, profile) -> Reading:
    """One answer: a relation, a set of reals, a tuple, a matrix or an expression, with its unit."""
    text = text.strip(" $")
    if not text:
        raise Unreadable("nothing")
    for rule in (_relation, real_set, _matrix, _tuple):
        reading = rule(text, profile)
        if reading is not None:
            return reading
    return _expression(text, profile)


def _expression(text: str, profile) -> Reading:
    text, _, percent = strip_percent(text, profile)
    text, unit = strip_unit(text, nouns=False)
    if infinite := re.fullmatch(r"([-+]?) ?(?:\\infty|inf|infinity)", text.strip()):
        return Reading("-inf" if infinite[1] == "-" else "inf")
    key = decimal_key(text.strip())
    if key is not None and percent is None:
        return Reading(key, unit=unit)
    written = written_fraction(text.strip())
    elements = _elements(text, profile)
    if percent is not None and profile.percent == "value":
        elements = [Reading(values.key(("div", tree_of(text, profile), ("num", Fraction(100)))))]
    reading = _together(elements)
    return replace(reading, unit="%" if percent else unit, fraction=written)


# -- relations

_COMPARE = re.compile(r"(\\le(?![a-z])|\\ge(?![a-z])|<=|>=|\\lt(?![a-z])|\\gt(?![a-z])|<|>)")
_NAME = re.compile(
    r"(?:\\?[A-Za-z]+|\\(?:vec|overline|mathrm|mathbb|mathcal|overrightarrow|text|hat|bar) ?\{[^{}]*\})'*"
    r"(?: ?_ ?(?:\{[^{}]*\}|\\?[A-Za-z]+|\d))?(?: ?\^\{?-1\}?)?(?: ?\([^()=]{1,20}\))?"
)


_SET_BUILDER = re.compile(
    r"(?:\\\{)? ?[a-z] ?(?:\||\\mid|:) ?(?P<condition>.*(?:[<>]|\\[lg]e(?![a-z])|\\in(?![a-z])).*?)(?:\\\})?"
)
_NAMES = re.compile(r"\( ?\\?[A-Za-z]+(?:_\w)? ?(?:, ?\\?[A-Za-z]+(?:_\w)? ?)+\)")


def _relation(text: str, profile) -> Reading | None:
    """An equation, an inequality or a membership; None where the string has no relation at its top."""
    if match := _SET_BUILDER.fullmatch(text):
        return _relation(match["condition"], profile)
    if re.search(r"\\in(?![A-Za-z])", text):
        name, _, rest = re.sub(r"\\in(?![A-Za-z])", "∈", text, count=1).partition("∈")
        if not _NAME.fullmatch(name.strip()):
            raise Unreadable("membership of no name")
        reading = _one(rest, profile)
        return replace(reading, label=label_of(name))
    if _COMPARE.search(text):
        return _inequality(text, profile)
    if (
        "\\ne" in text
        and (match := re.fullmatch(r"(.+?)\\ne(?![a-z])(.+)", text))
        and _NAME.fullmatch(match[1].strip())
    ):
        holes = [match[2]]
        if pm := re.fullmatch(r" ?\\pm ?(.+)", match[2]):
            holes = [pm[1], f"-({pm[1]})"]
        pieces = minus([Piece.line()], [Piece.point(end_of(hole, profile)) for hole in holes])
        return Reading(set_key(pieces), label=label_of(match[1]))
    text = re.sub(r"\\equiv|\\triangleq|:=", "=", text)
    parts = [part.strip() for part in split_top(text, "=")]
    if len(parts) == 1:
        if "\\approx" in text:  # of "250/3 ≈ 83.33" the exact side is the answer
            return _one(text.partition("\\approx")[0], profile)
        return None
    if not all(parts) or len(parts) > 12:
        raise Unreadable("an equation with an empty side")
    return _equation(parts, profile)


def _equation(parts: list[str], profile) -> Reading:
    """A chain of equal sides. A name on the left is a label; a relation between coordinates is an equation.

    Case: MATH-500 `x=5` is 5, and `y = 2x + 3` is no 2x+3; Cloze `2x+y+1=0` is `y=-2x-1`; OCW `X_{d}=125-1.25 P`;
    OCW `MR=SRMC` names two quantities, and is `SRMC=MR`.
    """
    left, right = parts[0], parts[-1]
    parts = [re.split(r"\\approx", part)[0] for part in parts]
    label = label_of(left)
    names = sorted(map(plain, parts))
    if len(names) == 2 and all(re.fullmatch(r"[A-Z]{2,}", name) for name in names):
        return Reading("names:" + "=".join(names))
    if (
        len(parts) == 2
        and _NAMES.fullmatch(left)
        and len(split_top(left[1:-1], ",")) == len(split_top(right[1:-1], ","))
    ):
        return replace(_one(right, profile), label=label)  # (x, y) = (3, 4)
    if "pm" in right and _NAME.fullmatch(left) and len(parts) == 2:
        nodes = tree_of(left, profile), tree_of(right, profile)
        if values.free_names(nodes[1]) & COORDINATES and label in COORDINATES:
            return _together([Reading(values.equation_key(*nodes, sign)) for sign in (1, -1)])
    if _NAME.fullmatch(left) and not _is_coordinate_relation(left, right, profile):
        reading = _one(parts[1], profile)
        for part in parts[2:]:
            other = _one(part, profile)
            if other.key != reading.key:
                raise Unreadable("sides that are not equal")
            reading = replace(other, unit=other.unit or reading.unit)
        return replace(reading, label=label)
    if len(parts) > 2:
        readings = [_one(part, profile) for part in parts]
        if len({reading.key for reading in readings}) > 1:
            raise Unreadable("sides that are not equal")
        return readings[-1]
    nodes = tree_of(left, profile), tree_of(right, profile)
    if any(map(values.has_sign_choice, nodes)):
        raise Unreadable("an equation with a plus-minus")
    names = values.free_names(nodes[0]) | values.free_names(nodes[1])
    if not names - {"i"}:  # 3 + 5 = 8
        if values.key(nodes[0]) != values.key(nodes[1]):
            raise Unreadable("sides that are not equal")
        return _one(right, profile)
    bare = not re.search(r"\d|\\sqrt|\\frac|^-", re.sub(r"_ ?(?:\{[^{}]*\}|\d)", "", left))  # 2n = 4 says that n is 2
    if bare and not names & COORDINATES and not values.free_names(nodes[1]) and not _differential(names):
        return replace(_one(right, profile), label=label)  # a_1 + a_2 = 10, |AB| = 5
    if len(names) == 1:
        solved = _solve(nodes[0], nodes[1])
        if solved is not None:
            return replace(solved, label=next(iter(names)))
    return Reading(values.equation_key(*nodes))


def _differential(names: frozenset[str]) -> bool:
    return any("'" in name or "/d" in name or name.startswith(("dot ", "ddot ")) for name in names)


def _is_coordinate_relation(left: str, right: str, profile) -> bool:
    """Whether an equation with a bare left side relates coordinates, or defines a rate, and so is more than a label."""
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
    # Enough of them that |x - 10| and the like, which bend somewhere, are no lines.
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
    """An inequality in one name as the set it describes. Case: ORZ `-80\\leq g(x)\\leq 82`; `x>3` is `(3,\\infty)`."""
    alternatives = [p for p in re.split(_AND.pattern.replace("和", "") + r"|,", text) if p.strip()]
    pieces, label = [], None
    conjunction = bool(re.search(r"\band\b|且", text))
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


def _tuple(text: str, profile) -> Reading | None:
    """Ordered entries in brackets: a point, a vector, an interval. Case: MATH-500 `(3,4]` is not `[3,4]`;
    `(6,31,-1)`.
    """
    text = re.sub(r"^\\langle(?![A-Za-z])(.*)\\rangle$", r"(\1)", text)
    match = BRACKETED.fullmatch(text)
    if not match or len(split_top(text, "")) != 1 or not _brackets_close_last(text):
        return None
    entries = split_top(match["inside"], ",;")
    if len(entries) < 2 or len(entries) > 60:
        return None
    if re.fullmatch(r"\[ ?\[.*\] ?\]", text, re.S):
        return _matrix_key([split_top(row.strip()[1:-1], ",") for row in entries], profile)
    keys = []
    for entry in entries:
        entry = entry.strip(" $")
        if len(entries) == 2 and re.fullmatch(r"[-+]? ?(?:\\infty|infinity|inf)", entry):
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


_MATRIX = re.compile(
    r"(?P<front>.*?)(?:[(\[|]|\\\{)? ?"
    r"\\begin ?\{(?P<kind>[pbBvV]?(?:small)?matrix|array)\}(?: ?\{[lcr| ]*\})?(?P<body>.*?)"
    r"\\end ?\{(?P=kind)\} ?(?:[)\]|]|\\\})?(?P<back>.*)",
    re.S,
)


def _matrix(text: str, profile) -> Reading | None:
    """A matrix, entry by entry, with a factor before it multiplied in. Case: MATH-500 `\\begin{pmatrix} -1/3 \\\\ 2/3
    ...`.
    """
    match = _MATRIX.fullmatch(text)
    if not match:
        return None
    if match["back"].strip() or match["kind"].startswith(("v", "V")):
        raise Unreadable("more than a matrix")
    rows = [row.split("&") for row in re.split(r"\\\\(?: ?\[[^\]]*\])?", match["body"].strip()) if row.strip()]
    factor = match["front"].strip(" $")
    return _matrix_key(rows, profile, factor)


def _matrix_key(rows: list[list[str]], profile, factor: str = "") -> Reading:
    if not rows or len({len(row) for row in rows}) != 1 or len(rows) * len(rows[0]) > 100:
        raise Unreadable("rows of unequal length")
    scale = None
    if factor:
        scale = ("num", Fraction(-1)) if factor == "-" else tree_of(re.sub(r"\\cdot|\\times|\*$", "", factor), profile)
    keys = []
    for row in rows:
        nodes = [tree_of(entry, profile) for entry in row]
        if any(values.has_sign_choice(node) for node in nodes):
            raise Unreadable("an entry of several values")
        keys.append(", ".join(values.key(node if scale is None else ("mul", (scale, node))) for node in nodes))
    return Reading("[[" + "]; [".join(keys) + "]]")

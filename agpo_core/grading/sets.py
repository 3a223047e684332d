"""Sets of real numbers: unions of intervals and points, in one spelling."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction

from agpo_core.grading import values
from agpo_core.grading.clean import braced, split_top
from agpo_core.grading.latex import Unreadable
from agpo_core.grading.patterns import pattern
from agpo_core.grading.reading import Reading, bare
from agpo_core.grading.rules_numbers import strip_percent, tree_of
from agpo_core.grading.units import strip_unit


@dataclass(frozen=True)
class End:
    """An end of an interval: -infinity (`infinite` = -1), +infinity (`infinite` = 1) or a number (`infinite` = 0)."""

    infinite: int = 0
    value: object = None
    key: str = ""

    def order(self):
        return (self.infinite, values.as_float(self.value) if self.value is not None else 0)


@dataclass(frozen=True)
class Piece:
    low: End
    low_closed: bool
    high: End
    high_closed: bool

    @staticmethod
    def line() -> Piece:
        return Piece(End(-1), False, End(1), False)

    @staticmethod
    def point(end: End) -> Piece:
        return Piece(end, True, end, True)

    def key(self) -> str:
        low, high = self.low.key or "-inf", self.high.key or "inf"
        return f"{'[' if self.low_closed else '('}{low}, {high}{']' if self.high_closed else ')'}"


_INFINITE = pattern(r"(?P<sign>[-+]?) ?(?:\\infty|infty|infinity|inf|oo)")


def end_of(text: str, profile) -> End:
    text = bare(text)
    if match := _INFINITE.fullmatch(text):
        return End(-1 if match["sign"] == "-" else 1)
    text, _ = strip_unit(strip_percent(text, profile)[0], nouns=False)
    node = tree_of(text, profile)
    if values.has_sign_choice(node):
        raise Unreadable("an end with a plus-minus")
    key = values.key(node)
    try:
        value = values.evaluate(node)
    except Unreadable:
        return End(0, None, key)
    if not isinstance(value, Fraction) and not hasattr(value, "_mpf_"):
        raise Unreadable("a complex end")
    return End(0, value, key)


BRACKETED = pattern(r"\A(?P<open>[(\[\]])(?P<inside>.{0,2000})(?P<close>[)\]\[])", re.S)
_UNION = pattern(r"\\(?:bigcup|cup)(?![A-Za-z])|(?<=[)\]}]) ?U ?(?=[(\[\\])|并")
_DIFFERENCE = pattern(
    r"\\(?:setminus|smallsetminus)(?![A-Za-z])|(?<=\}) ?- ?(?=\\\{)|\\(?=\\\{)"
    r"|(?<=\})(?: ?\\text ?\{)? ?except(?: for)?(?: \$?x ?= ?| ?\}? ?)"
)
_LINE = pattern(r"\\mathbb ?\{R\}|\\mathbb R|\\mathrm ?\{R\}|\\R|(?:\\text ?\{ ?)?all (?:real numbers|reals)(?: ?\})?")
_LINE_BUT = pattern(
    r"(?:\\text ?\{ ?)?all (?:real numbers|reals)(?: \$?x\$?)?,? (?:except|but|other than)(?: for)?(?: ?\})?"
    r"(?: ?\$?x ?=)? ?"
    r"(?P<hole>.{1,200})",
    re.I,
)
_EMPTY = pattern(r"\\emptyset|(?:\\text ?\{ ?)?(?:the )?empty set(?: ?\})?|\\\{ ?\\\}")


def real_set(text: str, profile) -> Reading | None:
    """The reading of a union of intervals and finite sets; None for anything else.

    A bracketed pair that is no union is left to the rule for tuples, because (3,4) may be a point or an interval; both
    get the same key. Case: Cloze `(-\\infty,0)\\cup(0,1]`, which is not `(-\\infty,1]`.
    """
    if match := _LINE_BUT.fullmatch(text):
        return Reading(set_key(minus([Piece.line()], _points(match["hole"].rstrip("} "), profile))))
    text = _DIFFERENCE.sub("∖", _UNION.sub("∪", text))
    if "∪" not in text and "∖" not in text:
        if _LINE.fullmatch(text):
            return Reading(Piece.line().key())
        return Reading("{}") if _EMPTY.fullmatch(text) else None
    body, *holes = text.split("∖")
    if len(holes) > 1:
        raise Unreadable("two differences")
    pieces = [piece for part in body.split("∪") for piece in _pieces(part, profile)]
    pieces = union(pieces)
    if holes:
        pieces = minus(pieces, _pieces(holes[0], profile))
    return Reading(set_key(pieces))


def _points(text: str, profile) -> list[Piece]:
    return [Piece.point(end_of(part, profile)) for part in split_top(text.replace(" and ", ","), ",") if part.strip()]


def _pieces(text: str, profile) -> list[Piece]:
    text = bare(text)
    if _LINE.fullmatch(text):
        return [Piece.line()]
    if (inner := braced(text)) is not None:
        return _points(inner, profile)
    match = BRACKETED.fullmatch(text)
    ends = split_top(match["inside"], ",;") if match else []
    if len(ends) != 2:
        raise Unreadable("not an interval")
    low, high = (end_of(part, profile) for part in ends)
    return [Piece(low, match["open"] == "[", high, match["close"] == "]")]


def union(pieces: list[Piece]) -> list[Piece]:
    """The pieces in order, those that overlap or touch joined; if an end is no number, none is joined."""
    if any(end.value is None and not end.infinite for p in pieces for end in (p.low, p.high)):
        return sorted(pieces, key=Piece.key)
    if any(p.low.order() > p.high.order() for p in pieces):
        raise Unreadable("an interval whose ends are swapped")
    joined: list[Piece] = []
    for piece in sorted(pieces, key=lambda p: (p.low.order(), not p.low_closed)):
        last = joined[-1] if joined else None
        if last and (
            piece.low.order() < last.high.order()
            or (piece.low.order() == last.high.order() and (piece.low_closed or last.high_closed))
        ):
            if (piece.high.order(), piece.high_closed) > (last.high.order(), last.high_closed):
                joined[-1] = replace(last, high=piece.high, high_closed=piece.high_closed)
        else:
            joined.append(piece)
    return joined


def minus(pieces: list[Piece], holes: list[Piece]) -> list[Piece]:
    """The pieces without the holes, which must be single points."""
    for hole in holes:
        if hole.low != hole.high or hole.low.value is None:
            raise Unreadable("a difference of intervals")
        out = []
        for piece in pieces:
            if piece.low.order() < hole.low.order() < piece.high.order():
                out.append(replace(piece, high=hole.low, high_closed=False))
                out.append(replace(piece, low=hole.low, low_closed=False))
            elif piece.low.order() == hole.low.order() and piece.low_closed:
                out += [replace(piece, low_closed=False)] if piece.high.order() > piece.low.order() else []
            elif piece.high.order() == hole.low.order() and piece.high_closed:
                out.append(replace(piece, high_closed=False))
            else:
                out.append(piece)
        pieces = out
    return pieces


def set_key(pieces: list[Piece]) -> str:
    if all(p.low == p.high for p in pieces):
        keys = sorted(p.low.key for p in pieces)
        return keys[0] if len(keys) == 1 else "{" + "; ".join(keys) + "}"
    return " u ".join(p.key() if p.low != p.high else "{" + p.low.key + "}" for p in pieces)

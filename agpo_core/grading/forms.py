"""The form of an answer: whether its value was worked out, and whether it is copied from the question.

All expressions of one value have one key, so the key cannot tell 26000 from 513^2-487^2, which only copies a question.
Such a copy earns no reward.
"""

from __future__ import annotations

from fractions import Fraction

from agpo_core.grading import values
from agpo_core.grading.clean import clean, split_top
from agpo_core.grading.latex import Node, Unreadable, parse
from agpo_core.grading.patterns import pattern

MAX_QUESTION = 8000  # characters of a question that are searched
MAX_TREES = 400  # expressions of a question that are compared with the answer


def worked_out(node: Node) -> bool:
    """Whether nothing is left to compute: 3/4, sqrt(2), 2 pi and 1 + sqrt(5) are values; 2*3, 2^5, sqrt(4) are not.

    An operation on constants whose value is rational could have been carried out, unless it is a fraction of two
    numbers or a power of ten. So could a sine of a constant, a square root with a square in it, a product of complex
    numbers, a bracket times a number in a sum, and a sum of two terms of which one is a multiple of the other.
    """
    kind = node[0]
    if kind in ("num", "sym", "unknown"):
        return True
    if kind in ("neg", "pm"):
        return worked_out(node[1])
    if kind == "div" and all(map(_is_literal, node[1:])) or _is_power_of_ten(node):
        return True
    names = values.free_names(node)
    parts = _flat(node, kind) if kind in ("add", "mul") else node[2] if kind == "call" else node[1:]
    if not names and kind == "mul" and len(parts) == 2 and _is_literal(parts[0]) and _is_power_of_ten(parts[1]):
        return True
    if not names - {"i"} and (_rational(node) is not None or _left_to_compute(node, parts)):
        return False
    if kind in ("add", "mul"):
        known = [value for part in parts if not values.free_names(part) and (value := _rational(part)) is not None]
        if len(known) > 1 or ("0" if kind == "add" else "1") in known:
            return False
        if kind == "add" and (_has_like_terms(parts) or (names - {"i"} and any(map(_is_bracket, parts)))):
            return False
    return all(map(worked_out, parts))


def _left_to_compute(node: Node, parts) -> bool:
    """Whether a constant that is not rational could be computed further."""
    kind, complex_parts = node[0], sum("i" in values.free_names(part) for part in parts)
    if kind == "call":
        if node[1] == "root":
            inside, degree = node[2]
            whole = inside[0] == "num" and inside[1].denominator == 1 and degree == ("num", Fraction(2))
            return whole and any(inside[1] % (n * n) == 0 for n in range(2, 100))
        if node[1].startswith("arc"):
            return _rational(("div", node, ("sym", "pi"))) is not None
        return node[1] in ("sin", "cos", "tan", "cot", "sec", "csc", "abs", "floor", "ceil", "min", "max")
    if kind == "pow":
        return bool(complex_parts) and node[1] != ("sym", "e")
    return (kind == "mul" and complex_parts > 1) or (kind == "div" and "i" in values.free_names(node[2]))


def _is_bracket(node: Node) -> bool:
    """Whether the expression is a sum, a number times a sum, or a sum over a number."""
    while node[0] == "neg":
        node = node[1]
    if node[0] == "div":
        return node[1][0] == "add" and not values.free_names(node[2])
    if node[0] != "mul":
        return node[0] == "add"
    rest = [part for part in _flat(node, "mul") if values.free_names(part)]
    return len(rest) == 1 and rest[0][0] == "add"


def _is_literal(node: Node) -> bool:
    return node[0] == "num" or (node[0] == "neg" and node[1][0] == "num")


def _is_power_of_ten(node: Node) -> bool:
    return node[0] == "pow" and node[1] == ("num", Fraction(10)) and _is_literal(node[2])


def _flat(node: Node, kind: str) -> list[Node]:
    return [leaf for part in node[1] for leaf in (_flat(part, kind) if part[0] == kind else [part])]


def _rational(node: Node) -> str | None:
    """The key of a constant, if its value is rational; else None."""
    try:
        key = values.number_key(values.evaluate(node))
    except Unreadable:
        return None
    return key if "~" not in key and "i" not in key else None


def _has_like_terms(terms: list[Node]) -> bool:
    sampled = []
    for term in terms[:12]:
        try:
            values_there = values.sample(term) if values.free_names(term) - {"i"} else [values.evaluate(term)]
        except Unreadable:
            continue
        sampled.append(values_there)
    try:
        return any(_is_multiple(a, b) for i, a in enumerate(sampled) for b in sampled[:i])
    except Unreadable:
        return True  # what is too much to compute here was not worked out either


def _is_multiple(a: list, b: list) -> bool:
    ratios = set()
    for x, y in zip(a, b, strict=False):
        if x is None or y is None or x == 0 or y == 0:
            return False
        ratios.add(values.number_key(values.divide(x, y)))
    return len(a) == len(b) and len(ratios) == 1 and not any("~" in ratio or "i" in ratio for ratio in ratios)


# -- what stands in the question

_SPAN = pattern(r"\$\$([^$]{1,400})\$\$|\$([^$]{1,400})\$|\\\(([^\n]{1,400}?)\\\)|\\\[(.{1,400}?)\\\]")
_PLAIN = pattern(r"[\w.()\[\]{}^*/+\-=<>!|\\, ]{3,200}")
_WORDS = pattern(r"[A-Za-z]{3,}+")
_RELATION = pattern(r"=|\\le(?![a-z])|\\ge(?![a-z])|<|>|\\approx|\\equiv|,(?!\d{3})|;|\\\\|&")
_FORM = pattern(r"\\(?:left|right|displaystyle|text|mathrm|quad|,|;|!)|[\s${}]|(?<!\\)\\ ")


def expressions_of(question: str) -> list[str]:
    """The formulas of a question, the sides of their relations, and the arithmetic written among its words."""
    question = question[:MAX_QUESTION]
    found = [next(filter(None, match.groups())) for match in _SPAN.finditer(question)]
    outside = _SPAN.sub("\n", question)
    for match in _PLAIN.finditer(outside):
        found += [piece for piece in _WORDS.split(match[0]) if any(c.isdigit() for c in piece)]
    sides = [side for text in found for side in _RELATION.split(text)]
    return list(dict.fromkeys(text.strip(" .,;:") for text in found + sides if text.strip(" .,;:")))


def copies(answer: str, gold: str, question: str) -> bool:
    """Whether an answer is an expression of the question, with its terms in any order, but not the gold as written."""
    written = _arranged(answer)
    if written is None or written == _arranged(gold):
        return False
    return written in _arrangements(question)


def _arranged(text: str) -> str | None:
    """An expression or equation with its terms, factors and sides sorted; the characters of a text that is neither.

    None for a number, a name, and a text too short to be a copy.
    """
    text = clean(text)
    if text is None:
        return None
    sides = split_top(text, "=")
    try:
        trees = [parse(side.strip(" $")) for side in sides]
    except Unreadable:
        plain = _FORM.sub("", text)
        return plain if len(plain) > 2 and not plain.isalnum() else None
    if len(trees) == 1 and (_is_literal(trees[0]) or trees[0][0] == "sym"):
        return None
    return "=".join(sorted(map(_arrangement, trees)))


def _arrangement(node: Node) -> str:
    kind = node[0]
    if kind in ("add", "mul"):
        return f"{kind}({','.join(sorted(map(_arrangement, _flat(node, kind))))})"
    parts = [_arrangement(p) if isinstance(p, tuple) and p and isinstance(p[0], str) else
             ",".join(map(_arrangement, p)) if isinstance(p, tuple) else str(p) for p in node[1:]]  # fmt: skip
    return f"{kind}({','.join(parts)})"


def _arrangements(question: str) -> set[str]:
    found: set[str] = set()
    for text in expressions_of(question):
        if (written := _arranged(text)) is not None:
            found.add(written)
        for side in split_top(clean(text) or "", "="):
            try:
                _subtrees(parse(side.strip(" $")), found)
            except Unreadable:
                continue
        if len(found) > MAX_TREES:
            break
    return found


def _subtrees(node: Node, found: set[str]) -> None:
    if _is_literal(node) or node[0] == "sym" or len(found) > MAX_TREES:
        return
    found.add(_arrangement(node))
    for part in node[1:]:
        if isinstance(part, tuple):
            for inner in (part,) if part and isinstance(part[0], str) else part:
                _subtrees(inner, found)

"""The form of an answer: whether its value was worked out, and whether it stands in the question as it is.

Two expressions of one value have one key, so the key cannot tell 9724*2 from 513^2-487^2, which only copies a question.
As a reward such a copy is worth nothing.
"""

from __future__ import annotations

from fractions import Fraction

from agpo_core.tasks.grading import values
from agpo_core.tasks.grading.clean import clean, split_top
from agpo_core.tasks.grading.latex import Node, Unreadable, parse
from agpo_core.tasks.grading.patterns import pattern

MAX_QUESTION = 8000  # characters of a question that are searched
MAX_TREES = 400  # expressions of a question that are compared


def worked_out(node: Node) -> bool:
    """Whether nothing is left to compute: 3/4, sqrt(2), 2 pi and 1 + sqrt(5) are values; 2*3, 2^5, sqrt(4) are not.

    An operation on constants whose value is rational could have been carried out, unless it is a fraction of two
    numbers or a power of ten; so could a sum of two terms of which one is a rational multiple of the other.
    """
    kind = node[0]
    if kind in ("num", "sym", "unknown"):
        return True
    if kind in ("neg", "pm"):
        return worked_out(node[1])
    if kind == "div" and all(_is_literal(part) for part in node[1:]):
        return True
    if _is_power_of_ten(node):
        return True
    constant = not values.free_names(node)
    if kind == "mul" and constant:
        factors = _flat(node, "mul")
        if any(map(_is_power_of_ten, factors)) and all(_is_literal(f) or _is_power_of_ten(f) for f in factors):
            return len(factors) == 2
    if constant and isinstance(_value(node), Fraction):
        return False
    if kind in ("add", "mul"):
        parts = _flat(node, kind)
        known = [_value(part) for part in parts if not values.free_names(part)]
        if sum(isinstance(value, Fraction) for value in known) > 1 or (0 if kind == "add" else 1) in known:
            return False
        if kind == "add" and _has_like_terms(parts):
            return False
        return all(map(worked_out, parts))
    arguments = node[2] if kind == "call" else node[1:]
    return all(map(worked_out, arguments))


def _is_literal(node: Node) -> bool:
    return node[0] == "num" or (node[0] == "neg" and node[1][0] == "num")


def _is_power_of_ten(node: Node) -> bool:
    return node[0] == "pow" and node[1] == ("num", Fraction(10)) and _is_literal(node[2])


def _flat(node: Node, kind: str) -> list[Node]:
    return [leaf for part in node[1] for leaf in (_flat(part, kind) if part[0] == kind else [part])]


def _value(node: Node):
    try:
        return values.evaluate(node)
    except Unreadable:
        return None


def _has_like_terms(terms: list[Node]) -> bool:
    if len(terms) > 12:
        return False
    sampled = []
    for term in terms:
        try:
            if values.free_names(term):
                sampled.append([value for value in values.sample(term) if value is not None][:2])
            else:
                sampled.append([values.evaluate(term)] * 2)
        except Unreadable:
            continue
    for i, a in enumerate(sampled):
        for b in sampled[:i]:
            try:
                ratios = {values.number_key(values.divide(x, y)) for x, y in zip(a, b, strict=False)}
            except Unreadable:
                continue
            if len(ratios) == 1 and not next(iter(ratios)).startswith("~") and "i" not in next(iter(ratios)):
                return True
    return False


# -- what stands in the question

_SPAN = pattern(r"\$\$([^$]{1,400})\$\$|\$([^$]{1,400})\$|\\\(([^\n]{1,400}?)\\\)|\\\[(.{1,400}?)\\\]")
_PLAIN = pattern(r"[\w.()\[\]{}^*/+\-=<>!|\\, ]{3,200}")
_WORDS = pattern(r"[A-Za-z]{3,}+")
_RELATION = pattern(r"=|\\le(?![a-z])|\\ge(?![a-z])|<|>|\\approx|\\equiv|,(?!\d{3})|;|\\\\|&")
_FORM = pattern(r"\\(?:left|right|displaystyle|text|mathrm|quad|,|;|!)|[\s${}]|(?<!\\)\\ ")


def expressions_of(question: str) -> list[str]:
    """The formulas of a question, the sides of their relations, and the arithmetic in its words."""
    question = question[:MAX_QUESTION]
    found = [next(filter(None, match.groups())) for match in _SPAN.finditer(question)]
    outside = _SPAN.sub("\n", question)
    for match in _PLAIN.finditer(outside):
        found += [piece for piece in _WORDS.split(match[0]) if any(c.isdigit() for c in piece)]
    sides = [side for text in found for side in _RELATION.split(text)]
    return list(dict.fromkeys(text.strip(" .,;:") for text in found + sides if text.strip(" .,;:")))


def copies(answer: str, gold: str, question: str) -> bool:
    """Whether an answer is an expression of the question, however its terms are arranged, and not the gold as written."""
    written = _arranged(answer)
    if written is None or written == _arranged(gold):
        return False
    return written in _arrangements(question)


def _arranged(text: str) -> str | None:
    """An expression with its terms and factors in one order, an equation with its sides in one; else its characters."""
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

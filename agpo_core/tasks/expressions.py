"""A tiny expression language and its interpreter: the programs of the micro-task `programs`.

    sum     := product (("+" | "-") product)*
    product := power (("*" | "/" | "%") power)*          "/" is floor division
    power   := "-" power | atom ("^" power)?              right-associative, exponent >= 0
    atom    := integer | name | "(" sum ")"

`parse` turns a text into a tree of tuples and `evaluate` turns a tree into an integer; Python's own evaluator is never
used. Length, depth and the size of every value are bounded, so any text takes bounded time and space.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MAX_LENGTH = 64  # characters of a program
MAX_DEPTH = 16  # nesting of parentheses, signs and powers
MAX_VALUE = 10**9  # magnitude of any constant or intermediate value

_TOKEN = re.compile(r"[0-9]+|[A-Za-z]+|[-+*/%^()]")


class ExpressionError(ValueError):
    """The text is not a program, or the program has no value for its inputs."""


def parse(text: str) -> tuple:
    """The tree of a program: ("int", n), ("name", s), ("neg", t) or (operator, left, right).

    Raises:
        ExpressionError: the text is not in the language or exceeds a limit.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"longer than {MAX_LENGTH} characters")
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != text.replace(" ", ""):
        raise ExpressionError("a character outside the language")
    tree, rest = _chain(tokens, 0, "+-", depth=0)
    if rest != len(tokens):
        raise ExpressionError(f"unexpected {tokens[rest]!r}")
    return tree


def evaluate(tree: tuple, inputs: Mapping[str, int]) -> int:
    """The value of a tree; `inputs` gives the values of its names.

    Raises:
        ExpressionError: an unknown name, a division by zero, a negative exponent, or a value beyond `MAX_VALUE`.
    """
    kind, *parts = tree
    if kind == "int":
        value = parts[0]
    elif kind == "name":
        if parts[0] not in inputs:
            raise ExpressionError(f"unknown name {parts[0]!r}")
        value = inputs[parts[0]]
    elif kind == "neg":
        value = -evaluate(parts[0], inputs)
    else:
        value = _apply(kind, *(evaluate(part, inputs) for part in parts))
    if abs(value) > MAX_VALUE:
        raise ExpressionError(f"a value beyond {MAX_VALUE}")
    return value


def outputs(text: str, tests: tuple) -> tuple | None:
    """A program's output on each test, None where it has no value; None alone when the text is no program.

    Args:
        text: the program.
        tests: ((inputs, expected), ...) with inputs as ((name, value), ...).

    Never raises.
    """
    try:
        tree = parse(text)
    except ExpressionError:
        return None
    return tuple(_value_or_none(tree, dict(inputs)) for inputs, _ in tests)


def _value_or_none(tree: tuple, inputs: Mapping[str, int]) -> int | None:
    try:
        return evaluate(tree, inputs)
    except ExpressionError:
        return None


def _apply(operator: str, left: int, right: int) -> int:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    if operator == "^":
        # With |left| >= 2 such a power is larger than MAX_VALUE < 2^30, so it is refused before it is computed.
        if right < 0 or (abs(left) > 1 and right > MAX_VALUE.bit_length()):
            raise ExpressionError("exponent out of range")
        return left**right
    if right == 0:
        raise ExpressionError("division by zero")
    return left // right if operator == "/" else left % right


def _chain(tokens: list[str], at: int, operators: str, depth: int) -> tuple[tuple, int]:
    """Read a left-associative chain: a sum of products, or a product of powers."""
    operand = (lambda i: _chain(tokens, i, "*/%", depth)) if operators == "+-" else (lambda i: _power(tokens, i, depth))
    tree, at = operand(at)
    while at < len(tokens) and tokens[at] in operators:
        right, after = operand(at + 1)
        tree, at = (tokens[at], tree, right), after
    return tree, at


def _power(tokens: list[str], at: int, depth: int) -> tuple[tuple, int]:
    if depth > MAX_DEPTH:
        raise ExpressionError(f"nested deeper than {MAX_DEPTH}")
    if at < len(tokens) and tokens[at] == "-":
        tree, at = _power(tokens, at + 1, depth + 1)
        return ("neg", tree), at
    base, at = _atom(tokens, at, depth)
    if at < len(tokens) and tokens[at] == "^":
        exponent, at = _power(tokens, at + 1, depth + 1)
        return ("^", base, exponent), at
    return base, at


def _atom(tokens: list[str], at: int, depth: int) -> tuple[tuple, int]:
    if at >= len(tokens):
        raise ExpressionError("the program ends too early")
    token = tokens[at]
    if token.isdigit():
        if len(token) > len(str(MAX_VALUE)):
            raise ExpressionError(f"a constant beyond {MAX_VALUE}")
        return ("int", int(token)), at + 1
    if token.isalpha():
        return ("name", token), at + 1
    if token == "(":
        tree, at = _chain(tokens, at + 1, "+-", depth + 1)
        if at >= len(tokens) or tokens[at] != ")":
            raise ExpressionError("a parenthesis is not closed")
        return tree, at + 1
    raise ExpressionError(f"unexpected {token!r}")

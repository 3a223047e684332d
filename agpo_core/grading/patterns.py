"""Compiles every regular expression of the grader and refuses those that are not linear in their input.

A backtracking matcher takes exponential time on nested repeats and quadratic time on neighbouring ones. No deadline
can stop it, because it holds the interpreter. So every repeat must be bounded by a small number or possessive (it never
gives back what it matched); `pattern` refuses any other. A test feeds each pattern long repetitions of its own
alternatives, doubles their number, and compares the times.
"""

from __future__ import annotations

import re
from re import _constants as ops
from re import _parser

MOST = 2000  # the largest bound of a repeat of one character
MOST_GROUPS = 3  # the largest bound of a repeat of a group, which may match in several ways

PATTERNS: list[re.Pattern] = []


def pattern(text: str, flags: int = 0) -> re.Pattern:
    """A compiled regular expression whose matching time is linear in its input.

    Args:
        text: a regular expression whose repeats are bounded or possessive (`*+`, `++`, `{2,}+`).
        flags: as in `re`.
    Raises:
        ValueError: a repeat is neither bounded nor possessive; the message shows the expression.
    """
    _refuse_open_repeats(_parser.parse(text, flags), text)
    compiled = re.compile(text, flags)
    PATTERNS.append(compiled)
    return compiled


def any_of(words: str) -> str:
    """The words of a text as alternatives of a regular expression, longest first; an underscore stands for a blank."""
    found = sorted(words.split(), key=len, reverse=True)
    return "|".join(re.escape(word).replace("_", " ") for word in found)


def _refuse_open_repeats(tree, text: str) -> None:
    for op, argument in tree:
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            _, most, body = argument
            single = len(body) == 1 and body[0][0] in (ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN)
            if most > (MOST if single else MOST_GROUPS):
                raise ValueError(f"pattern: a repeat in {text!r} has no small bound; bound it or make it possessive")
        for part in argument if isinstance(argument, (tuple, list)) else (argument,):
            if isinstance(part, _parser.SubPattern):
                _refuse_open_repeats(part, text)
            elif isinstance(part, list):  # the alternatives of a branch
                for branch in part:
                    if isinstance(branch, _parser.SubPattern):
                        _refuse_open_repeats(branch, text)

"""Where every pattern of the grader is compiled, and what keeps each of them linear in its input.

A backtracking matcher takes exponential time on nested repeats and quadratic time on neighbouring ones, and no deadline
stops it: it holds the interpreter. So a repeat is bounded by a small number, or possessive: it gives back nothing of
what it took. `pattern` refuses any other. A test repeats the alternatives of every pattern and times twice as many.
"""

from __future__ import annotations

import re
from re import _constants as ops
from re import _parser

MOST = 2000  # times that a repeat may give back one character
MOST_GROUPS = 3  # times that a repeat may give back a group, each of which may match in several ways

PATTERNS: list[re.Pattern] = []


def pattern(text: str, flags: int = 0) -> re.Pattern:
    """A compiled pattern that is linear in its input.

    Args:
        text: a regular expression whose repeats are bounded or possessive (`*+`, `++`, `{2,}+`).
        flags: as in `re`.
    Raises:
        ValueError: a repeat is neither; the message shows it.
    """
    _refuse_open_repeats(_parser.parse(text, flags), text)
    compiled = re.compile(text, flags)
    PATTERNS.append(compiled)
    return compiled


def any_of(words: str) -> str:
    """The alternatives of a block of words, longest first, for a pattern: underscores stand for blanks."""
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

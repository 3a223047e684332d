"""Decimal numbers in free text: the rules of the prompts whose answers are numbers after "####", and no more.

The canonical answer is a plain decimal string, "1450000" or "-12.5": exact at any length, and never a float. It is
the key that `canonical` gives such a number, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from agpo_core.tasks import Graded

# A sign counts at the start of a number alone, so that "5-3" holds 5 and 3; commas count where they part thousands.
_NUMBER = (
    r"(?P<sign>(?<![A-Za-z0-9)\]}%])[-−]\$?|\$[-−])?"
    r"(?P<digits>[0-9]+(?:,[0-9]{3})*(?![0-9])(?:\.[0-9]+)?|(?<![0-9])\.[0-9]+)"
)
_ANY = re.compile(_NUMBER)
_MARKED = re.compile(rf"####[\s$*]*{_NUMBER}")

Rule = Callable[[str], str | None]  # text -> canonical answer, or None when the rule finds none


def marked_number(text: str) -> str | None:
    """The number after the first "####" that has one (GSM8K's official rule, Cobbe et al. 2021).

    More lenient than the official pattern in what may stand around the number: a missing space, a dollar sign, bold.
    """
    return _canonical(_MARKED.search(text))


def last_number(text: str) -> str | None:
    """The last number of the text: the "flexible" reading of answers.

    It has no notion of an unfinished text: working that is cut off is read at its last number.
    """
    match = None
    for match in _ANY.finditer(text):
        pass
    return _canonical(match)


def _canonical(match: re.Match | None) -> str | None:
    """A matched number without separators, currency, leading and trailing zeros: 12.50 is 12.5, -0 is 0."""
    if match is None:
        return None
    whole, _, decimals = match["digits"].replace(",", "").partition(".")
    whole, decimals = whole.lstrip("0") or "0", decimals.rstrip("0")
    value = f"{whole}.{decimals}" if decimals else whole
    return f"-{value}" if match["sign"] and value != "0" else value


GSM8K: tuple[Rule, ...] = (marked_number, last_number)  # without the second, a model new to the format scores zero
WORD_PROBLEMS: tuple[Rule, ...] = (last_number,)


def canonical_answer(text: str, profile: tuple[Rule, ...]) -> str | None:
    """The answer found by the first of the profile's rules that finds one; None when none does."""
    return next((answer for rule in profile if (answer := rule(text)) is not None), None)


def grade_number(completion: str, gold: str, profile: tuple[Rule, ...]) -> Graded:
    """Reward 1 when the completion's canonical answer is the gold's, else 0.

    Args:
        completion: any text.
        gold: the right answer, a number as its benchmark writes it.
        profile: the benchmark's rules.
    Returns:
        the reward and the canonical answer; no answer gets reward 0.
    Raises:
        ValueError: the gold holds no number.
    """
    right = last_number(gold)
    if right is None:
        raise ValueError(f"gold {gold!r} holds no number: mend the problem's answer")
    answer = canonical_answer(completion, profile)
    return Graded(float(answer == right), answer)

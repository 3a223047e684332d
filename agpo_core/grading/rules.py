"""All reading rules by name, and the rule that splits a cloze answer (fill in the blanks) into its blanks.

A profile lists the rules of its benchmark in order. A rule looks at the cleaned answer and returns a `Reading`, or
None to pass it on to the next rule. Two answers are equal when their readings have equal keys and their marks do not
contradict each other.
"""

from __future__ import annotations

from agpo_core.grading.clean import clean, split_top
from agpo_core.grading.formulas import formula, join_thousands, without_condition
from agpo_core.grading.patterns import pattern
from agpo_core.grading.reading import Reading, Rule
from agpo_core.grading.rules_numbers import number, number_words
from agpo_core.grading.rules_words import (
    base,
    capital,
    choice,
    circled_numbers,
    date,
    letters,
    program_output,
    ratio,
    roles,
    text,
    time_of_day,
)

_ANDS = pattern(r"[和与]|\\text ?\{ ?and ?\}|(?<![A-Za-z\\])and(?![A-Za-z])")
_DOLLAR = pattern(r"(?<!\\)\$")


def blanks(text: str, profile) -> Reading | None:
    """The answers to several blanks, in the order of the question. Case: Cloze `$5$;$10$` is `5, 10` and not `10;5`."""
    text = without_condition(text)
    pieces = [piece.strip() for piece in split_top(join_thousands(_apart(text)), ";")]
    if len(pieces) == 1:
        pieces = [piece.strip() for piece in split_top(join_thousands(_apart(text)), ",")]
    if len(pieces) == 1:
        pieces = _ANDS.split(pieces[0])
    pieces = [piece for piece in (clean(piece) for piece in pieces) if piece]
    if not 2 <= len(pieces) <= 12:
        return None
    readings = [read_with(piece, profile, skip=("blanks",)) for piece in pieces]
    if None in readings:
        return None
    return Reading(" | ".join(reading.key for reading in readings))


def _apart(text: str) -> str:
    """The text without dollars. They act as brackets, and the comma in `$5$,$10$` stands outside both pairs."""
    return _DOLLAR.sub("", text)


RULES: dict[str, Rule] = {
    "number": number, "number_words": number_words, "choice": choice, "capital": capital, "letters": letters,
    "circled_numbers": circled_numbers, "date": date, "time_of_day": time_of_day, "base": base, "ratio": ratio,
    "text": text,
    "formula": formula, "blanks": blanks, "roles": roles, "program_output": program_output,
}  # fmt: skip


def read_with(text: str, profile, skip: tuple[str, ...] = ()) -> Reading | None:
    """The reading by the first of the profile's rules that can read the cleaned answer; None where none can."""
    for name in profile.rules:
        if name not in skip and (reading := RULES[name](text, profile)) is not None:
            return reading
    return None

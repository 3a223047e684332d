"""What the grader gives: a `Reading` (what an answer says) and a `Graded` (what a completion is worth)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from agpo_core.grading.patterns import pattern


@dataclass(frozen=True)
class Reading:
    """What an answer says: a key, and the marks that a key cannot hold.

    Two answers are equal when their keys are and no mark of one contradicts a mark of the same kind of the other.

    Attributes:
        key: one spelling for all answers of this value.
        unit: the canonical name of a known unit; None without one.
        label: the name that the answer gives its value (x in x = 5); None without one.
        half: "am" or "pm" for a time that says it.
        fraction: numerator and denominator as they were written, for golds that ask for their form.
        clock: the time that the answer may be; 4:30 may be a time or a ratio.
        worked: whether the value was worked out; 513^2-487^2 was not.
    """

    key: str
    unit: str | None = None
    label: str | None = None
    half: str | None = None
    fraction: tuple[int, int] | None = None
    clock: str | None = None
    worked: bool = True


@dataclass(frozen=True)
class Graded:
    """A judged completion: its reward, any finite real number, and its vote key (None: no answer was found).

    The papers' tasks give rewards in [0, 1], where 1 is right. Where a task's rewards leave that range, no reward says
    that an answer is right: scores are then mean rewards, and there is no pass@k.
    """

    reward: float
    answer: Hashable | None


Rule = Callable[[str, object], "Reading | None"]


_TEXT = pattern(r"\\(?:text|mathrm|rm) ?\{([^{}]*+)\}")
_MARKUP = pattern(r"\\(?:text|mathrm|mathbb|mathcal)(?![a-z])|[\s${}\\]")


def plain(text: str) -> str:
    """The answer without its text commands: \\text{June }20 becomes June 20."""
    for _ in range(3):
        if "\\" not in text or not ("\\text" in text or "\\mathrm" in text or "\\rm" in text):
            break
        text = _TEXT.sub(r"\1", text)
    return bare(" ".join(text.split()))


def bare(text: str) -> str:
    """An answer without the blanks and formula dollars around it; an escaped dollar is money and stays: 5.50\\$."""
    text = text.strip()
    while text.startswith("$") and text.rfind("$") > 0 or text.startswith("$$"):
        text = text[1:].lstrip()
    while text.endswith("$") and not text.endswith("\\$"):
        text = text[:-1].rstrip()
    return text


def label_of(text: str) -> str:
    """The name that the left side of an equation gives its right side, in one spelling."""
    return _MARKUP.sub("", text)

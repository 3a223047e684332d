"""What an answer says, a key and the marks that a key cannot hold; and what it is worth."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from agpo_core.grading.patterns import pattern


@dataclass(frozen=True)
class Reading:
    """What an answer says.

    `key` decides; `unit`, `label`, `half` contradict only another mark of their kind; `fraction` is how a fraction was
    written, which matters where a gold asks for its form; `clock` is the time that 4:30 may be, beside a ratio;
    `worked` says whether a value was worked out, which 513^2-487^2 was not.
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
    """The answer with its text commands opened: \\text{June }20 is June 20."""
    for _ in range(3):
        if "\\" not in text or not ("\\text" in text or "\\mathrm" in text or "\\rm" in text):
            break
        text = _TEXT.sub(r"\1", text)
    return bare(" ".join(text.split()))


def bare(text: str) -> str:
    """An answer without the blanks and the dollars of formulas around it; the dollars of money stay: 5.50\\$."""
    text = text.strip()
    while text.startswith("$") and text.rfind("$") > 0 or text.startswith("$$"):
        text = text[1:].lstrip()
    while text.endswith("$") and not text.endswith("\\$"):
        text = text[:-1].rstrip()
    return text


def label_of(text: str) -> str:
    """The name that the left side of an equation gives its right side, in one spelling."""
    return _MARKUP.sub("", text)

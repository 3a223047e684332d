"""What an answer says: a key, and the marks that a key cannot hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """What an answer says.

    `key` decides; `unit`, `label`, `half` contradict only another mark of their kind; `fraction` is how a fraction was
    written, which matters where a gold asks for its form.
    """

    key: str
    unit: str | None = None
    label: str | None = None
    half: str | None = None
    fraction: tuple[int, int] | None = None


Rule = Callable[[str, object], "Reading | None"]


_TEXT = re.compile(r"\\(?:text|mathrm|rm) ?\{([^{}]*)\}")


def plain(text: str) -> str:
    """The answer with its text commands opened: \\text{June }20 is June 20."""
    for _ in range(3):
        text = _TEXT.sub(r"\1", text)
    return re.sub(r"\s+", " ", text).strip(" $")


DENIAL = re.compile(r"(?<![A-Za-z\\])(?:not|wrong|incorrect|false)(?![A-Za-z])")  # "not x = 4" is no 4


def label_of(text: str) -> str:
    """The name that the left side of an equation gives its right side, in one spelling."""
    return re.sub(r"\\(?:text|mathrm|mathbb|mathcal)|[\s${}\\]", "", text)

"""The words that deny a value, leave it open or change it; the rules and the extraction share these lists."""

from __future__ import annotations

import re

from agpo_core.grading.patterns import any_of, pattern

# "is not 5", "5 is wrong", 不是5
DENIALS = any_of("not never neither nor cannot wrong incorrect false")
_DENIALS_ZH = "不是|并非|不等于|不对|不正确|错误|不为|不选"
# these give a bound or several values: "between 4 and 6", "at least 5", 大于5
HEDGES = any_of(
    "between either more_than less_than greater_than fewer_than other_than at_least at_most up_to or_more or_less "
    "or_fewer maybe perhaps possibly any_of one_of unless whether"
)
_HEDGES_ZH = "可能|也许|大于|小于|超过|不到|不足|至少|至多|最多|之间|以上|以下|或者"
# before or after a number, these make it another number: "twice 5", "5 squared"
CHANGES = any_of(
    "twice half double triple minus negative plus times squared cubed factorial ago below above halves thirds quarters "
    "fourths fifths sixths tenths hundredths tens lakh crore is no"
)

_DENIES = pattern(rf"(?<![A-Za-z\\])(?:{DENIALS})(?![A-Za-z])|n['’]t\b|{_DENIALS_ZH}", re.I)
_OPEN = pattern(rf"(?<![A-Za-z\\])(?:{HEDGES})(?![A-Za-z])|{_HEDGES_ZH}", re.I)
# before a value, with at most two words between
_DENIED_BEFORE = pattern(
    rf"(?:(?:(?<![A-Za-z\\])(?:{DENIALS}|{HEDGES})|n['’]t|{_DENIALS_ZH}|{_HEDGES_ZH})"
    r"(?:[\s,]{1,3}(?!but\b|and\b|so\b)[A-Za-z]{1,20}){0,2}"
    r"|\b(?:over|under|twice|half(?: of)?|double|triple|minus|negative)|[<>≠≤≥负])[\s$*(\\:]{0,6}\Z",
    re.I,
)
_DENIED_AFTER = pattern(
    rf"[\s$*)\]}}.\"',]{{0,6}}(?:(?:is|was|are|would be|seems|must be)\b ?[a-z]{{0,12}} ?(?:{DENIALS})\b|(?:is"
    rf"|was|are)(?:n['’]t| too\b)"
    r"|\(?(?:wrong|incorrect)\b|不对|不正确|错)",
    re.I,
)


def denies(text: str) -> bool:
    """Whether a text denies something: "not 5", "5 is wrong"."""
    return _DENIES.search(text) is not None


def leaves_open(text: str) -> bool:
    """Whether a text gives bounds or several values for one: "at least 5", "between 4 and 6"."""
    return _OPEN.search(text) is not None


def denied_at(text: str, start: int, end: int) -> bool:
    """Whether a text denies or bounds its own piece from `start` to `end`: "definitely not 42", "27 is wrong"."""
    return bool(_DENIED_BEFORE.search(text[max(0, start - 60) : start]) or _DENIED_AFTER.match(text, end))

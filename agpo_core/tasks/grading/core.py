"""The grader: `extract`, `canonical`, `equivalent`, and what they share."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from math import gcd

from agpo_core.tasks import Graded
from agpo_core.tasks.grading import workers
from agpo_core.tasks.grading.clean import clean
from agpo_core.tasks.grading.extraction import EXTRACTORS, until_next_problem
from agpo_core.tasks.grading.formulas import COORDINATES
from agpo_core.tasks.grading.profiles import Profile, get_profile
from agpo_core.tasks.grading.reading import Reading
from agpo_core.tasks.grading.rules import read_with
from agpo_core.tasks.grading.rules_words import same_output

MAX_RAW = 300  # characters of an answer that nothing reads and that only itself equals


def read(answer: str, profile: str | Profile) -> Reading | None:
    """What an answer says under a benchmark's rules; None where it says nothing that they know."""
    profile = get_profile(profile)
    if not isinstance(answer, str):
        raise TypeError(f"answer: expected text, got {type(answer).__name__}; write numbers as text")
    if len(answer) > 4000:  # too long for a cache of thousands, and for every rule but program output
        return _read(answer, profile) if profile.whole else None
    return _cached(answer, profile)


def _read(answer: str, profile: Profile) -> Reading | None:
    text = answer if profile.whole else clean(answer)
    if text is None:
        return None
    reading = read_with(text, profile)
    if reading is not None or not profile.symbolic:
        return reading
    key = workers.symbolic_key(text)
    if key is not None:
        return Reading(key)
    # Nothing reads it: it equals what is written the same, and nothing else.
    raw = re.sub(r"[\s$]|\\(?:text|mathrm)(?=\{)", "", text)
    return Reading(f"raw:{raw}") if 0 < len(raw) <= MAX_RAW else None


_cached = lru_cache(maxsize=20_000)(_read)


def forget() -> None:
    """Empty the memory of answers read before: for measurements."""
    _cached.cache_clear()


def canonical(answer: str, profile: str | Profile) -> str | None:
    """The vote key: two answers vote together exactly when their keys are equal; None for no answer.

    Equal keys are equal answers but for the marks that a key cannot hold without ceasing to be an equivalence (5.4
    votes with 5.4 cents and with 5.4 dollars): see `equivalent`.

    >>> canonical(r"\\frac43", "math500"), canonical("$1,450,000", "gsm8k"), canonical("12%", "cmath")
    ('4/3', '1450000', '0.12')
    """
    reading = read(answer, profile)
    return None if reading is None else reading.key


def equivalent(gold: str, candidate: str, profile: str | Profile) -> bool:
    """Whether a candidate is the gold answer: their keys are equal and their marks do not contradict each other.

    A candidate may give its value a name that the gold does not give (y = 2x for 2x).

    Marks: different known units (cents for dollars), different names (x = 5 for y = 5), different halves of the day;
    where the profile says so, a bare value for an equation and a reduced fraction where the gold's form was asked for.

    Args:
        gold: the right answer, as its benchmark writes it.
        candidate: an extracted answer.
        profile: a profile or a benchmark's name.
    """
    profile = get_profile(profile)
    right, given = read(gold, profile), read(candidate, profile)
    if right is None or given is None:
        return False
    if "program_output" in profile.rules:
        return same_output(right.key, given.key)
    if right.key != given.key and (value := _value_of(gold, candidate, profile)):
        return right.key == value.key
    return right.key == given.key and not _contradict(right, given, profile)


_NAMED = re.compile(
    r"\$?(?:\\(?:mathbf|mathrm|text) ?\{[A-Za-z]\}|[A-Za-z])(?:_\{?\w\}?)?(?: ?\(\w\))? ?= ?(?P<value>[^=]+)"
)


def _value_of(gold: str, candidate: str, profile: Profile) -> Reading | None:
    """The right side of an answer that gives its value a name, where the gold gives none.

    Case: OCW `e^{t} / 3` is `y = e^{t}/3`; MATH-500 `52_8` is `n = 52_8`. The other way round a name is asked for.
    """
    match = None if profile.whole or profile.equations_stay or "=" in gold else _NAMED.fullmatch(candidate.strip())
    return read(match["value"], profile) if match else None


def _contradict(gold: Reading, given: Reading, profile: Profile) -> bool:
    if profile.keeps_form and gold.fraction and _asks_for_form(gold.fraction):
        return given.fraction != gold.fraction
    if profile.percent == "drop" and given.unit == "%" and gold.unit is None and _is_share(gold.key):
        return True
    if profile.equations_stay and gold.label in COORDINATES and given.label is None:
        return True
    return any(
        a is not None and b is not None and a != b
        for a, b in ((gold.unit, given.unit), (gold.label, given.label), (gold.half, given.half))
    )


def _is_share(key: str) -> bool:
    """A number between 0 and 1, which is a share as it stands: 0.15 is not 0.15 %, while a gold of 10 may be 10 %."""
    return bool(re.fullmatch(r"\d+/\d+|0\.\d+", key)) and Fraction(key) < 1


def _asks_for_form(fraction: tuple[int, int]) -> bool:
    """An unreduced fraction of numbers with two digits each. Case: CMATH `30/42`, which is not to be 5/7; `2/6` may
    be 1/3.
    """
    over, under = fraction
    return gcd(over, under) > 1 and min(abs(over), under) >= 10


def extract(text: str, profile: str | Profile) -> str | None:
    """The answer of a response: what the first of the profile's extraction rules finds that its reading rules can read.

    What is found and cannot be read is returned as it stands (it equals itself alone); None when nothing is found.
    """
    profile = get_profile(profile)
    if not isinstance(text, str):
        raise TypeError(f"text: expected a response as text, got {type(text).__name__}")
    if not profile.whole:
        text = until_next_problem(text)
    for name in profile.extractors:
        unread = None
        for found in EXTRACTORS[name](text):
            found = found if profile.whole else _trimmed(found)
            cleaned = found if profile.whole else clean(found)
            if cleaned is None:
                continue
            reading = read_with(cleaned, profile)
            if reading is not None and not _rambles(reading):
                return found
            unread = unread or found
        if unread is not None and name in SAYS_SO:
            return unread
    return None


# Where one of these finds something, the response has answered.
SAYS_SO = frozenset({"boxed", "phrase", "marked_line", "hash_mark", "hedged", "letter_phrase"})


def _trimmed(answer: str) -> str:
    """The answer without the punctuation of its sentence."""
    answer = re.sub(r"[\s,;:，；：。]+$|\*\*$", "", answer.strip())
    return (
        answer[:-1].rstrip()
        if re.search(r"[^.]\.$", answer) and not re.search(r"[ap]\.\s?m\.$", answer, re.I)
        else answer
    )


def _rambles(reading: Reading) -> bool:
    """A sentence is no answer in words."""
    return reading.key.startswith("text:") and reading.key.count(" ") > 4


def grade(completion: str, gold: str, profile: str | Profile) -> Graded:
    """Reward 1 when the completion's answer is the gold, else 0; with the answer's vote key.

    Args:
        completion: any text.
        gold: the right answer, as its benchmark writes it.
        profile: a profile or a benchmark's name.
    Returns:
        the reward and the vote key; no answer gets reward 0. A wrong answer's key is never the gold's: 5 cm votes apart
        from a gold of 5 km.
    Raises:
        ValueError: the gold says nothing under the profile's rules.
    """
    profile = get_profile(profile)
    if read(gold, profile) is None:
        raise ValueError(f"gold {gold!r} is no answer under the rules of {profile.name}: mend the problem's answer")
    answer = extract(completion, profile)
    if answer is None:
        return Graded(0.0, None)
    right = equivalent(gold, answer, profile)
    vote = canonical(gold if right and not profile.whole else answer, profile)  # y = 2x votes for a gold of 2x
    if not right and vote is not None and vote == canonical(gold, profile):
        given = read(answer, profile)  # the same key, contradicting marks: no vote for the gold
        vote = f"{vote} ({given.unit or given.label or given.half or given.fraction or 'no name'})"
    return Graded(float(right), vote)

"""The grader: `extract` finds an answer, `canonical` gives its vote key, `equivalent` and `grade` judge it."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from math import gcd

from agpo_core.grading import values
from agpo_core.grading.benchmark_profiles import Profile, get_profile
from agpo_core.grading.clean import clean
from agpo_core.grading.extraction import answer as stated
from agpo_core.grading.extraction import conclusion
from agpo_core.grading.forms import copies
from agpo_core.grading.formulas import COORDINATES
from agpo_core.grading.patterns import pattern
from agpo_core.grading.reading import Graded, Reading, plain
from agpo_core.grading.rules import read_with
from agpo_core.grading.rules_words import same_output

MAX_RAW = 300  # characters; the longest answer that no rule reads and that still equals its own spelling


def read(answer: str, profile: str | Profile) -> Reading | None:
    """What an answer says under a benchmark's rules; None where none of them can read it."""
    profile = get_profile(profile)
    if not isinstance(answer, str):
        raise TypeError(f"answer: expected text, got {type(answer).__name__}; write numbers as text")
    if len(answer) > 4000:  # too long for the cache of 20,000 answers; program output is the only rule that reads it
        return _read(answer, profile) if profile.whole else None
    return _cached(answer, profile)


def _read(answer: str, profile: Profile) -> Reading | None:
    text = answer if profile.whole else clean(answer)
    if text is None:
        return None
    values.allow()
    reading = read_with(text, profile)
    if reading is not None or not profile.symbolic:
        return reading
    # No rule reads it, so it equals only an answer with the same spelling.
    raw = "".join(plain(text).replace("$", "").split())
    return Reading(f"raw:{raw}") if 0 < len(raw) <= MAX_RAW else None


_cached = lru_cache(maxsize=20_000)(_read)


def forget() -> None:
    """Empty the cache of answers that were read before, so that measurements start from nothing."""
    _cached.cache_clear()


def canonical(answer: str, profile: str | Profile) -> str | None:
    """The vote key: two answers vote together exactly when their keys are equal; None for no answer.

    Answers with equal keys are equal, except for their marks (units, names, halves of the day; see `equivalent`). A key
    cannot hold marks and stay an equivalence: 5.4 votes with 5.4 cents and also with 5.4 dollars.

    >>> canonical(r"\\frac43", "math500"), canonical("$1,450,000", "gsm8k"), canonical("12%", "cmath")
    ('4/3', '1450000', '0.12')
    """
    reading = read(answer, profile)
    return None if reading is None else reading.key


def equivalent(gold: str, candidate: str, profile: str | Profile) -> bool:
    """Whether a candidate is the gold answer: their keys are equal and their marks do not contradict each other.

    One of the two may name its value where the other does not (y = 2x for 2x).

    Marks contradict each other when they are different known units (cents for dollars), different names (x = 5 for
    y = 5) or different halves of the day (a.m. for p.m.). Where the profile says so, a bare value also contradicts an
    equation, and a reduced fraction contradicts a gold whose unreduced form was asked for.

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
    if right.key != given.key:
        right, given = _unnamed(gold, candidate, right, given, profile)
    if right.worked and not given.worked and not profile.unevaluated:
        return False
    if right.key == given.key:
        return not _contradict(right, given, profile)
    # 4:30 alone may be a ratio; compared with 4:30 p.m. it is a time.
    told = right.key.startswith("clock:") or given.key.startswith("clock:")
    return told and right.clock == given.clock and not _contradict(right, given, profile)


_NAMED = pattern(
    r"\$?(?P<name>\\(?:mathbf|mathrm|text) ?\{[A-Za-z]\}|[A-Za-z])(?:_\{?\w\}?)?(?: ?\(\w\))? ?= ?"
    r"(?P<value>[^=]{1,400})"
)
_OPTION = pattern(
    r"\$?\\?(?:(?:text|textbf|mathbf|mathrm) ?\{ ?)?\([A-H]\)(?:\\[ ,;:]| |~|\}|\$){1,6}+(?P<value>[^ ].{0,400})", re.S
)
_SUM = pattern(
    r"\$?(?:[A-Z]{2}\^\{?2\}? ?|[A-Za-z](?:_\{?\w\}?)? ?(?:[-+] ?[A-Za-z](?:_\{?\w\}?)? ?){1,3})= ?"
    r"(?P<value>[-\d.,/ ]{1,30})\$?"
)


def _unnamed(gold: str, candidate: str, right: Reading, given: Reading, profile: Profile) -> tuple[Reading, Reading]:
    """The readings of gold and answer, without the short name that only one of the two gives its value.

    Case: OCW `e^{t} / 3` is `y = e^{t}/3`; MATH `y = 2x + 3` is `2x + 3`, as by Hendrycks' rule; AMC `36` is
    `x + y = 36`.
    """
    if not profile.whole and (option := _OPTION.fullmatch(candidate.strip())) and right.key != given.key:
        return right, read(
            option["value"], profile
        ) or given  # the answer is an option's letter and its text, the gold is the text alone
    if profile.whole or profile.equations_stay or ("=" in gold) == ("=" in candidate):
        return right, given
    named, other = (gold, given) if "=" in gold else (candidate, right)
    match = _NAMED.fullmatch(named.strip()) or (_SUM.fullmatch(named.strip()) if named is candidate else None)
    value = read(match["value"], profile) if match else None
    if value is None:
        return right, given
    return (value, other) if named is gold else (other, value)


def _contradict(gold: Reading, given: Reading, profile: Profile) -> bool:
    if profile.keeps_form and gold.fraction and _asks_for_form(gold.fraction):
        return given.fraction != gold.fraction
    if profile.percent == "drop" and given.unit == "%" and gold.unit is None and _is_share(gold.key):
        return True
    if profile.equations_stay and gold.label in COORDINATES and given.label is None:
        return True
    units = {gold.unit, given.unit} - {None}
    if len(units) == 2 and not ("degree" in units and units & {"celsius", "fahrenheit"}):
        return True
    return any(
        a is not None and b is not None and a != b for a, b in ((gold.label, given.label), (gold.half, given.half))
    )


_SHARE = pattern(r"\A\d++/\d++|\A0\.\d++")


def _is_share(key: str) -> bool:
    """Whether the number is between 0 and 1, so that it is itself a share: a gold of 0.15 is not 0.15 %, a gold of 10
    may be 10 %.
    """
    return bool(_SHARE.fullmatch(key)) and Fraction(key) < 1


def _asks_for_form(fraction: tuple[int, int]) -> bool:
    """Whether the fraction is unreduced and both its numbers have two digits or more. Case: CMATH `30/42`, for which
    5/7 is wrong; for `2/6`, 1/3 is right.
    """
    over, under = fraction
    return gcd(over, under) > 1 and min(abs(over), under) >= 10


def extract(text: str, profile: str | Profile) -> str | None:
    """The answer of a response, by the order of evidence of `extraction`.

    A stated answer that no rule can read is returned as it stands; it then equals only its own spelling. None when no
    answer is found.
    """
    profile = get_profile(profile)
    if not isinstance(text, str):
        raise TypeError(f"text: expected a response as text, got {type(text).__name__}")
    if profile.kind == "output":
        return text
    if profile.kind == "roles":
        return conclusion(text)

    def reads(piece: str) -> bool:
        reading = read(_trimmed(piece), profile)
        return reading is not None and not reading.key.startswith("raw:") and not _rambles(reading)

    found = stated(text, profile.kind, profile.otherwise, reads)
    return (found and _trimmed(found)) or None


_FULL_STOP = pattern(r"[^.]\.\Z")
_HALF_DAY = pattern(r"[ap]\.\s?m\.\Z", re.I)


def _trimmed(answer: str) -> str:
    """The answer without the punctuation of its sentence."""
    answer = answer.strip()
    answer = answer.rstrip(" \t\n,;:，；：。").removesuffix("**")
    return answer[:-1].rstrip() if _FULL_STOP.search(answer) and not _HALF_DAY.search(answer) else answer


def _rambles(reading: Reading) -> bool:
    """Whether an answer in words is longer than five words: then it is a sentence and no answer."""
    return reading.key.startswith("text:") and reading.key.count(" ") > 4


def grade(completion: str, gold: str, profile: str | Profile, question: str | None = None) -> Graded:
    """The reward of a completion (1 when its answer is the gold, else 0) and its answer's vote key.

    Args:
        completion: any text.
        gold: the right answer, as its benchmark writes it.
        profile: a profile or a benchmark's name; `for_rewards` for training.
        question: the question; an expression copied from it earns nothing. None: copies are not looked for.
    Returns:
        the reward and the vote key; a completion without an answer gets reward 0. A wrong answer's key is never the
        gold's key: where the gold is 5 km, 5 cm gets a key of its own.
    Raises:
        ValueError: the gold says nothing under the profile's rules.
    """
    profile = get_profile(profile)
    if (wanted := read(gold, profile)) is None:
        raise ValueError(f"gold {gold!r} is no answer under the rules of {profile.name}: correct the problem's answer")
    answer = extract(completion, profile)
    if answer is None:
        return Graded(0.0, None)
    given = read(answer, profile)
    if given is not None and wanted.worked and not given.worked:
        return Graded(0.0, None)
    right = equivalent(gold, answer, profile)
    if right and question is not None and profile.symbolic and copies(answer, gold, question):
        return Graded(0.0, None)
    vote = canonical(gold if right and not profile.whole else answer, profile)  # y = 2x votes for a gold of 2x
    if not right and vote is not None and vote == wanted.key:  # the marks contradict: no vote for the gold
        vote = f"{vote} ({given.unit or given.label or given.half or given.fraction or 'no name'})"
    return Graded(float(right), vote)

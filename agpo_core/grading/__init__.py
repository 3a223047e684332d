"""One grader for reward, vote, maj@k and evaluation: `extract`, `equivalent`, `canonical`.

    response --extract--> answer --canonical--> vote key
    gold, answer --equivalent--> right or wrong

A profile holds a benchmark's rules as data. The layers, from the text to the key:

    extraction.py     where a response says its answer: one order of evidence
    clean.py          one spelling for what can be typed in many ways
    rules.py          named rules, each with the case that made it necessary: rules_numbers, rules_words, formulas, sets
    numerals.py       the one grammar of numbers; words.py, units.py and language.py have the words
    latex.py          a strict reader of formulas
    values.py         a key for a number or a function: equal exactly where the values are
    forms.py          whether a value was worked out, or copied from the question: rewards ask for that
    patterns.py       where every pattern is compiled, and what keeps it linear

Input is never executed: no eval, no sympify of what a model wrote. What cannot be read is rejected, not guessed.
"""

from agpo_core.grading.benchmark_profiles import PROFILES, Profile, get_profile
from agpo_core.grading.grader import canonical, equivalent, extract, grade, read
from agpo_core.grading.reading import Graded, Reading

__all__ = [
    "PROFILES",
    "Graded",
    "Profile",
    "Reading",
    "canonical",
    "equivalent",
    "extract",
    "get_profile",
    "grade",
    "read",
]

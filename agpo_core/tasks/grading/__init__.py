"""One grader for reward, vote, maj@k and evaluation: `extract`, `equivalent`, `canonical`.

    response --extract--> answer --canonical--> vote key
    gold, answer --equivalent--> right or wrong

A profile holds a benchmark's rules as data. The layers, from the text to the key:

    extraction.py     where a response says its answer
    clean.py          one spelling for what can be typed in many ways
    rules.py          named rules, each with the case that made it necessary: rules_numbers, rules_words, formulas, sets
    latex.py          a strict reader of formulas
    values.py         a key for a number or a function: equal exactly where the values are
    workers.py        math-verify's reader in a worker process, under a deadline, for what the strict reader knows not
    official.py       the published protocols' own extraction and scoring, to reproduce their scores

Input is never executed: no eval, no sympify of what a model wrote. What cannot be read is rejected, not guessed.
"""

from agpo_core.tasks.grading.core import canonical, equivalent, extract, grade, read
from agpo_core.tasks.grading.profiles import PROFILES, Profile, get_profile
from agpo_core.tasks.grading.reading import Reading

__all__ = [
    "PROFILES",
    "Profile",
    "Reading",
    "canonical",
    "equivalent",
    "extract",
    "get_profile",
    "grade",
    "read",
]

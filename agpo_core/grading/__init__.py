"""The grader that rewards, votes, maj@k and evaluation share: `extract`, `equivalent`, `canonical`.

    response --extract--> answer --canonical--> vote key
    gold, answer --equivalent--> right or wrong

The gold is the benchmark's right answer. The vote key is one spelling for all answers that vote together (1/2 and
0.5). A profile holds a benchmark's rules as data. The modules, in the order in which a text passes through them:

    extraction.py     finds the answer in a response, by one order of evidence for all benchmarks
    clean.py          gives one spelling to what can be typed in many ways
    rules.py          reads an answer by named rules, each with the case that made it necessary; the rules are in
                      rules_numbers, rules_words, formulas and sets
    numerals.py       the one grammar of numbers; the words they use are in words.py, units.py and language.py
    latex.py          a strict parser of formulas
    values.py         a key for a number or a function; two keys are equal exactly where the two values are
    forms.py          tells whether a value was worked out or copied from the question; rewards depend on that
    patterns.py       compiles every regular expression and refuses those that are not linear in their input

Input is never executed: no eval, and no sympify of what a model wrote. What cannot be read is rejected, not guessed.
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

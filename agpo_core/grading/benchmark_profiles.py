"""One profile a benchmark: its rules as data.

One string means different things in different benchmarks, so no single rule serves all: MATH's 28 % is 28 and CMATH's
12 % is 0.12; the blanks of a cloze are ordered and MATH's lists are not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Profile:
    """A benchmark's rules.

    Args:
        name: the benchmark.
        rules: names of the reading rules (`rules.RULES`), tried in order; what none reads is no answer, or, where
            formulas are asked for, equals what is written the same.
        kind: what its answers are: "number", "formula", "letters", "roles", "output".
        otherwise: the rule of `extraction.LAST` for responses that state no answer.
        percent: "drop" (28 % is 28) or "value" (12 % is 0.12).
        equations_stay: whether a coordinate's equation must be written as one (x = -3/2 for a directrix).
        keeps_form: whether a gold that is left unreduced asks for that form. It is taken to where both its numbers
            have two digits: no counting or subtracting of parts gives such a gold.
        unevaluated: whether an expression that was not worked out (2*3, 2^5) counts for a gold that is a value. It does
            in evaluation, as in the published scorings; as a reward and in a vote it is no answer: see `for_rewards`.
    """

    name: str
    rules: tuple[str, ...]
    kind: str
    otherwise: str = ""
    percent: str = "drop"
    equations_stay: bool = False
    keeps_form: bool = False
    unevaluated: bool = True

    @property
    def symbolic(self) -> bool:
        return "formula" in self.rules

    @property
    def whole(self) -> bool:
        """Whether an answer is taken as it is, without cleaning: program output, statements of roles."""
        return self.kind in ("roles", "output")

    def for_rewards(self) -> Profile:
        """The same rules, by which an expression that was not worked out earns nothing."""
        return replace(self, unevaluated=False)


_NUMBER = ("number", "number_words")
_MATH = ("date", "time_of_day", "base", "ratio", "capital", "number_words", "text", "formula", "number")
_CLOZE = ("circled_numbers", "blanks", "ratio", "capital", "formula", "number", "number_words", "text")

_PROFILES = [
    Profile("gsm8k", _NUMBER, "number", "last_number"),
    Profile("cmath", _NUMBER, "number", "last_number", percent="value", keeps_form=True),
    *(
        Profile(name, _MATH, "formula", "last_math")
        for name in ("math", "math500", "ocw", "orz", "hmmt24", "hmmt25", "cmimc")
    ),
    *(Profile(name, _MATH, "formula", "last_math_or_number") for name in ("aime24", "aime25", "amc23", "dapo")),
    *(Profile(name, ("choice",), "letters", "last_letter") for name in ("sat", "sat_math", "mmlu_stem")),
    Profile("gaokao_qa", ("choice", "letters"), "letters", "last_letter"),
    Profile("gaokao_cloze", _CLOZE, "formula", "last_math", equations_stay=True),
    Profile("knights_and_knaves", ("roles",), "roles"),
    Profile("word_problems", ("number",), "number", "last_number"),
    Profile("codecontests", ("program_output",), "output"),
]
PROFILES = {profile.name: profile for profile in _PROFILES}

# Names under which benchmarks go elsewhere, without case, blanks and punctuation; years and suffixes may follow.
_ALIASES = {
    "gsm8k": "gsm8k", "gsm": "gsm8k", "cmath": "cmath", "math500": "math500", "math": "math", "hendrycksmath": "math",
    "minervamath": "ocw", "ocw": "ocw", "ocwcourses": "ocw", "orz": "orz", "orz57k": "orz", "dapo": "dapo",
    "hmmt": "hmmt25", "hmmtfeb2024": "hmmt24", "hmmt2024": "hmmt24", "hmmtfeb2025": "hmmt25", "hmmt2025": "hmmt25",
    "cmimc": "cmimc", "aime": "aime24", "aime2024": "aime24", "aime2025": "aime25", "aime25": "aime25", "amc": "amc23",
    "sat": "sat", "satmath": "sat_math", "agievalsatmath": "sat_math", "mmlu": "mmlu_stem", "gaokaomathqa": "gaokao_qa",
    "gaokaoqa": "gaokao_qa", "agievalgaokaomathqa": "gaokao_qa", "gaokaomathcloze": "gaokao_cloze",
    "gaokaocloze": "gaokao_cloze", "agievalgaokaomathcloze": "gaokao_cloze", "knightsandknaves": "knights_and_knaves",
    "kk": "knights_and_knaves", "kandk": "knights_and_knaves", "codecontests": "codecontests",
}  # fmt: skip


def get_profile(name: str | Profile) -> Profile:
    """The profile of a benchmark, under the name of this project or the benchmark's own.

    >>> get_profile("HMMT Feb 2024").name, get_profile("GaokaoMath-Cloze").name, get_profile("MMLU-STEM").name
    ('hmmt24', 'gaokao_cloze', 'mmlu_stem')

    Raises:
        ValueError: no profile has that name; the message lists those there are.
    """
    if isinstance(name, Profile):
        return name
    if name in PROFILES:
        return PROFILES[name]
    plain = "".join(c for c in name.lower().replace("&", "and") if c.isascii() and c.isalnum())
    for end in range(len(plain), 1, -1):
        if plain[:end] in _ALIASES:
            return PROFILES[_ALIASES[plain[:end]]]
    raise ValueError(f"profile: no benchmark is called {name!r}; use one of {', '.join(PROFILES)}")

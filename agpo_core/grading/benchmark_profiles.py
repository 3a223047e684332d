"""One profile for each benchmark: its grading rules as data.

One string means different things in different benchmarks, so no single rule serves all. In MATH 28 % is 28, in CMATH
12 % is 0.12. The blanks of a cloze answer are ordered, the lists of MATH are not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Profile:
    """A benchmark's rules.

    Args:
        name: the benchmark.
        rules: names of the reading rules (`rules.RULES`), tried in order. A text that none can read is no answer;
            where answers are formulas, it equals only its own spelling.
        kind: what its answers are: "number", "formula", "letters", "roles" or "output".
        otherwise: the name of the rule in `extraction.LAST` that finds an answer in responses that state none.
        percent: "drop" (28 % is 28) or "value" (12 % is 0.12).
        equations_stay: whether a coordinate's equation must be written as one (x = -3/2 for a directrix).
        keeps_form: whether an unreduced gold whose two numbers have two digits or more asks for that form. (Counting
            or subtracting parts gives no such gold.)
        unevaluated: whether an expression that was not worked out (2*3, 2^5) equals a gold that is a value. In
            evaluation it does, as in the published scorings; as a reward and in a vote it is no answer, see
            `for_rewards`.
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
        """Whether an answer is read without cleaning: program output and statements of roles are."""
        return self.kind in ("roles", "output")

    def for_rewards(self) -> Profile:
        """The same profile, except that an expression that was not worked out earns nothing."""
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

# Other names of the benchmarks, in lower case without blanks and punctuation; years and suffixes may follow.
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
    """The profile of a benchmark, by the name that this project or the benchmark itself uses.

    >>> get_profile("HMMT Feb 2024").name, get_profile("GaokaoMath-Cloze").name, get_profile("MMLU-STEM").name
    ('hmmt24', 'gaokao_cloze', 'mmlu_stem')

    Raises:
        ValueError: no profile has that name; the message lists the names.
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

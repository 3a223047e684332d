"""Knights and Knaves puzzles: who tells the truth? (R++ Fig. 4: train on 2 and 3 people, test on 2 to 8.)

Knights always tell the truth and knaves always lie. Each person makes one statement about the roles, and exactly one
assignment of roles agrees with all statements. A statement is a nested tuple, as in the released puzzles
(AlphaPav/mem-kk-logic; Xie et al. 2024):

    ("telling-truth", i)  person i is a knight      ("and", s, t)  ("or", s, t)
    ("lying", i)          person i is a knave       ("->", s, t)   if s then t
    ("not", s)            s is not so               ("<=>", s, t)  s if and only if t: the same role, or different ones

There are three families of tasks:

    knights_2 … knights_8            drawn here, in a compact form for a model of 0.2 M parameters: `B:c;C:B=C?` → `Bc`
    knights_in_words_2 … _8          drawn here, in the words of the released puzzles, for real models
    knights_and_knaves[_2 … _8]      the released puzzles, from the hub or from a folder of the official files

The split of a drawn puzzle depends on its statements alone, so no test puzzle is a training puzzle with other names.
For 2 people there are only 399 puzzles, so many of their prompts differ only in the names.

Real models get the prompt and the answer block of Logic-RL (Xie et al. 2025), with three departures: its system message
opens the user's message, no `<think>` is written for the model, and the reward is 1 or 0 for the whole answer, without
credit for format. The answer is found and read by `grading`, which also refuses answers that contradict themselves or
hedge.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache, reduce
from itertools import zip_longest
from operator import and_, or_
from pathlib import Path
from random import Random

from agpo_core import grading
from agpo_core.grading import Graded
from agpo_core.tasks.benchmarks.loader import refuse_more, warn_of_a_part
from agpo_core.tasks.benchmarks.sources import Hub, Incomplete, from_hub, jsonl, official_folder
from agpo_core.tasks.micro import ENDS, SIZES, Item, MicroTask, pool
from agpo_core.tasks.problem import Problem, Task, check_split

PEOPLE = tuple(range(2, 9))  # of the released puzzles
TRAIN_PEOPLE = (2, 3)  # R++ Fig. 4
MAX_PEOPLE = 16  # with 16 people a truth table has 2^16 bits

# -- the logic


def solutions(statements: Sequence[tuple]) -> list[tuple[bool, ...]]:
    """All assignments of roles under which exactly the knights tell the truth.

    roles[i] = what statement i says of the roles, for every i

    All 2^n assignments are tried at once: a column of the truth table is one integer with a bit for each assignment.

    Args:
        statements: the statements of 1 to 16 people, in order.
    Returns:
        tuples of n bools, True for a knight.
    Raises:
        ValueError: a statement is of no known kind, or names a person who does not exist.

    Example:
        >>> solutions((("lying", 1), ("and", ("lying", 0), ("telling-truth", 1))))
        [(True, False), (False, True)]
    """
    agreeing = _agreeing(statements)
    people = len(statements)
    return [
        tuple(bool(assignment >> i & 1) for i in range(people))
        for assignment in range(2**people)
        if agreeing >> assignment & 1
    ]


def _agreeing(statements: Sequence[tuple]) -> int:
    """The assignments that agree with all statements, as bits. Bit i of an assignment's number is person i's role."""
    people = len(statements)
    if not 1 <= people <= MAX_PEOPLE:
        raise ValueError(f"statements: {people} people, expected 1 to {MAX_PEOPLE}; give one statement for each person")
    every = 2 ** (2**people) - 1
    # The bits of column i come in runs of 2^i, knaves first. Dividing all ones by 2^(2^i) + 1 leaves every other run.
    columns = [every ^ every // (2 ** (2**i) + 1) for i in range(people)]
    agree = (every ^ column ^ _column(said, columns, every) for column, said in zip(columns, statements, strict=True))
    return reduce(and_, agree)


def _column(statement, columns: list[int], every: int) -> int:
    """The assignments for which a statement is true, as bits."""
    match statement:
        case ("telling-truth" | "lying" as role, int(i)) if 0 <= i < len(columns) and not isinstance(i, bool):
            return columns[i] if role == "telling-truth" else every ^ columns[i]
        case ("not", said):
            return every ^ _column(said, columns, every)
        case ("and" | "or" as kind, _, _, *_):
            return reduce(and_ if kind == "and" else or_, (_column(s, columns, every) for s in statement[1:]))
        case ("->", condition, consequence):
            return (every ^ _column(condition, columns, every)) | _column(consequence, columns, every)
        case ("<=>", left, right):
            return every ^ _column(left, columns, every) ^ _column(right, columns, every)
    raise ValueError(
        f"statement {statement!r} is of no known kind, or names none of the {len(columns)} people; use the kinds "
        "listed in agpo_core.tasks.knights"
    )


def draw_statements(rng: Random, people: int) -> tuple[tuple, ...]:
    """Random statements, distributed as the released ones and drawn again until they have just one solution."""
    while True:
        statements = tuple(_draw_statement(rng, speaker, people) for speaker in range(people))
        if _agreeing(statements).bit_count() == 1:
            return statements


def _draw_statement(rng: Random, speaker: int, people: int) -> tuple:
    """A statement of one of the six kinds, all equally likely; the two halves of a compound differ."""
    kind = rng.choice(("is", "not", "and", "or", "->", "<=>"))
    first = second = _draw_literal(rng, speaker, people)
    if kind in ("is", "not"):
        return first if kind == "is" else ("not", first)
    while second == first:
        second = _draw_literal(rng, speaker, people)
    return kind, first, second


def _draw_literal(rng: Random, speaker: int, people: int) -> tuple[str, int]:
    """A statement of somebody's role; nobody can say of themselves that they lie."""
    while (literal := (rng.choice(("telling-truth", "lying")), rng.randrange(people))) == ("lying", speaker):
        pass
    return literal


# -- the compact form

NAMES = "ABCDEFGH"
MARKS = {"and": "*", "or": "+", "->": ">", "<=>": "="}


def compact(names: Sequence[str], statements: Sequence[tuple]) -> str:
    """The puzzle in few characters. `B:c;C:B=C?`: B says that C is a knave; C says that B is a knight iff C is.

    A capital stands for a knight, a small letter for a knave, `!` for not, `*` for and, `+` for or, `>` for if-then,
    and `=` for if and only if.
    """

    def said(statement):
        match statement:
            case ("telling-truth", i):
                return names[i]
            case ("lying", i):
                return names[i].lower()
            case ("not", part):
                return f"!{said(part)}"
        kind, *parts = statement
        return MARKS[kind].join(map(said, parts))

    return ";".join(f"{name}:{said(statement)}" for name, statement in zip(names, statements, strict=True)) + "?"


def nameless(statements: Sequence[tuple]) -> str:
    """The puzzle with its people renamed A, B, C and so on; this decides its split."""
    return compact(NAMES[: len(statements)], statements)


class Knights(MicroTask):
    """`B:c;C:B=C?` → `Bc`: everyone's name, a capital for a knight and a small letter for a knave, in any order.

    A demonstration with a slip has the last role wrong. A role has two values, so slips in half of the demonstrations
    would hide which one is right. Slips are rare where the last statement is simple and common where it is a compound.
    """

    stands_in_for = "Knights and Knaves"
    slip_share = (0.25, 0.7)

    def __init__(self, people: int, data_dir: str | None = None):
        """`data_dir` is accepted because every task takes one; a procedural task reads no files."""
        self.people, self.name, self.arguments = people, f"knights_{people}", (people,)
        self.title = f"Knights and Knaves, {people} people, in a compact form"

    def draw(self, rng, index):
        statements = draw_statements(rng, self.people)
        names = rng.sample(NAMES, self.people)
        (roles,) = solutions(statements)
        letters = tuple(name if knight else name.lower() for name, knight in zip(names, roles, strict=True))
        working = letters, nameless(statements)
        return Item(compact(names, statements), "".join(letters), working, float(statements[-1][0] in MARKS))

    def item(self, which, rng, index, seen=()):
        """Draw until the statements (whatever the names) belong to the pool `which` and the prompt is new."""
        while pool((item := self.draw(rng, index)).working[1]) != which or item.prompt in seen:
            pass
        return item

    def demonstrate(self, item, rng, slip):
        letters = list(item.working[0])
        if slip:
            letters[-1] = letters[-1].swapcase()
        return "".join(letters) + rng.choice(ENDS)

    def extract(self, problem, completion):
        letters = [character for character in completion if character.isalpha()]
        names = {letter.upper() for letter in letters}
        if not letters or len(names) < len(letters) or not names <= set(NAMES):
            return None  # no name, a name twice, or a letter that is no name
        return ",".join(sorted(letters, key=str.upper))


# -- the published form

ISLAND = (
    "A very special island is inhabited only by knights and knaves. "
    "Knights always tell the truth, and knaves always lie."
)
QUESTION = "So who is a knight and who is a knave?"
SAYINGS = (
    "{name} said that {claim}.",
    "{name} told you that {claim}.",
    '{name} said, "{claim}."',
    '{name} stated, "{claim}".',
    'According to {name}, "{claim}".',
    'In {name}\'s words: "{claim}".',
    '{name} remarked, "{claim}".',
    '"{claim}," {name} declared.',
    '{name} was heard saying, "{claim}".',
    "{name} expressed that {claim}.",
    '"{claim}" - {name}.',
    'As {name} put it, "{claim}".',
    '{name} asserted: "{claim}".',
    '"{claim}," {name} mentioned.',
    '{name} commented, "{claim}".',
    'In a statement by {name}: "{claim}".',
    '{name} noted, "{claim}".',
    '"{claim}," {name} claimed.',
)
CLAIMS = {
    "and": "{} and {}",
    "or": "{} or {}",
    "->": "If {} then {}",  # with a capital also within a sentence, as published
    "<=>": "{} if and only if {}",
}
INHABITANTS = (
    "Emma Liam Olivia Noah Ava Ethan Sophia Mason Isabella William Mia James Charlotte Benjamin Amelia Lucas Harper "
    "Henry Evelyn Alexander Abigail Michael Emily Daniel Elizabeth Jacob Sofia Logan Avery Jackson Ella Sebastian "
    "Scarlett Jack Grace Aiden Chloe Owen Victoria Samuel Riley Matthew Aria Joseph Lily Luke Aurora David Zoey Oliver "
    "Penelope"
).split()
# Logic-RL's system message for instruct models, letter for letter.
INSTRUCTION = (
    "You are a helpful assistant. The assistant first thinks about the reasoning process in the mind and then provides "
    "the user with the answer. The reasoning process and answer are enclosed within <think> </think> and<answer> "
    "</answer> tags, respectively, i.e., <think> reasoning process here </think><answer> answer here </answer>.  Now "
    "the user asks you to solve a logical reasoning problem. After thinking, when you finally reach a conclusion, "
    "clearly state the identity of each character within <answer> </answer> tags. i.e., <answer> (1) Zoey is a "
    "knight\n(2) ... </answer>."
)
PROFILE = "knights_and_knaves"  # the grader's


def claim(names: Sequence[str], statement: tuple) -> str:
    """A statement in the published words: "If Zoey is a knave then Oliver is a knight"."""
    kind, *parts = statement
    if kind in ("telling-truth", "lying"):
        return f"{names[parts[0]]} is {'a knight' if kind == 'telling-truth' else 'a knave'}"
    if kind == "not":
        return claim(names, parts[0]).replace(" is ", " is not ")
    return CLAIMS[kind].format(*(claim(names, part) for part in parts))


def quiz(names: Sequence[str], statements: Sequence[tuple], sayings: Sequence[str]) -> str:
    """The puzzle in the published words.

    Args:
        names: the people's names, in order.
        statements: one statement for each person.
        sayings: for each person, the entry of `SAYINGS` that introduces the statement.
    """
    said = (
        saying.format(name=name, claim=claim(names, statement))
        for name, statement, saying in zip(names, statements, sayings, strict=True)
    )
    meeting = f"You meet {len(names)} inhabitants: {', '.join(names[:-1])}, and {names[-1]}."
    return " ".join((ISLAND, meeting, *said, QUESTION))


def roles_in_words(names: Sequence[str], roles: Sequence[bool]) -> str:
    """The published form of an answer.

    >>> print(roles_in_words(("Zoey", "Oliver"), (False, True)))
    (1) Zoey is a knave
    (2) Oliver is a knight
    """
    words = (f"{name} is a {'knight' if knight else 'knave'}" for name, knight in zip(names, roles, strict=True))
    return "\n".join(f"({number}) {text}" for number, text in enumerate(words, start=1))


class InWords:
    """The prompt and the grade of puzzles in words; the grade is 1 or 0 for the whole answer."""

    name: str
    stands_in_for = "Knights and Knaves"

    def grade(self, problem: Problem, completion: str) -> Graded:
        """Reward 1 when the last answer block names exactly these people, each once and with the right role."""
        return grading.grade(completion, problem.answer, PROFILE)

    def _problem(self, identity: str, puzzle: str, names: Sequence[str], roles: Sequence[bool]) -> Problem:
        return Problem(self.name, identity, f"{INSTRUCTION}\n{puzzle}", roles_in_words(names, roles))


class KnightsInWords(InWords):
    """Puzzles drawn here in the published words; they need no file."""

    def __init__(self, people: int, data_dir: str | None = None):
        """`data_dir` is accepted because every task takes one; a procedural task reads no files."""
        self.people, self.name = people, f"knights_in_words_{people}"
        self.title = f"Knights and Knaves, {people} people, drawn in the published words"

    def problems(self, split: str) -> list[Problem]:
        """The puzzles of a split, as many as a micro-task has; the same on every call and machine."""
        check_split(split)
        return [self._problem(f"{split}-{i}", *puzzle) for i, puzzle in enumerate(_drawn_in_words(self.people, split))]


@cache
def _drawn_in_words(people: int, split: str) -> tuple[tuple[str, list[str], tuple[bool, ...]], ...]:
    """(quiz, names, roles) of a split's puzzles."""
    rng, found = Random(f"knights_in_words_{people} {split}"), {}
    while len(found) < SIZES[split]:
        statements = draw_statements(rng, people)
        if pool(nameless(statements)) == split:
            names = rng.sample(INHABITANTS, people)
            text = quiz(names, statements, rng.choices(SAYINGS, k=people))
            found[text] = (text, names, *solutions(statements))
    return tuple(found.values())


# -- the released puzzles

HUB_ID = "K-and-K/knights-and-knaves"
DEV_PROBLEMS = 50  # for each number of people; the release has no dev split
TEST_PUZZLES = 100  # for each number of people
FILES = (
    "train/people3_num1000.jsonl, test/people3_num100.jsonl and so on of the official release, with `quiz`, `names`, "
    "`solution` and `statements` a line"
)


class KnightsAndKnaves(InWords):
    """The released puzzles; each is solved again when it is read.

    The dev split is the last 50 training puzzles of each number of people, held out from training. In every split the
    numbers of people take turns, so that the first problems represent the whole split.
    """

    def __init__(self, people: int | None = None, data_dir: str | Path | None = None):
        """
        Args:
            people: the number of people; None: 2 and 3 in training and dev, 2 to 8 in test (R++ Fig. 4).
            data_dir: a folder with the official files in train/ and test/; None reads the hub's
                K-and-K/knights-and-knaves.
        Raises:
            FileNotFoundError: `data_dir` is not a folder.
        """
        self.name = "knights_and_knaves" if people is None else f"knights_and_knaves_{people}"
        self.title = "Knights and Knaves, as released" + ("" if people is None else f", {people} people")
        self.people = (
            {"train": TRAIN_PEOPLE, "test": PEOPLE} if people is None else dict.fromkeys(("train", "test"), (people,))
        )
        self.data_dir = official_folder(data_dir, FILES, HUB_ID, own="kk")
        self._loaded = cache(self._load)

    def problems(self, split: str) -> list[Problem]:
        """The problems of a split: train without its last puzzles, these as dev, or the official test split.

        Warns when there are fewer puzzles than the official test split has.

        Raises:
            FileNotFoundError, ValueError: a file of `data_dir` is missing or not in the official format, or a puzzle's
                solution is not its only one.
            ConnectionError: the hub cannot be reached and its copy is not cached.
        """
        check_split(split)
        official = "test" if split == "test" else "train"
        by_people = [self._loaded(official, people) for people in self.people[official]]
        if split == "test":
            warn_of_a_part(self.name, sum(map(len, by_people)), TEST_PUZZLES * len(by_people))
        else:
            cut = slice(-DEV_PROBLEMS, None) if split == "dev" else slice(-DEV_PROBLEMS)
            by_people = [problems[cut] for problems in by_people]
        return [problem for turn in zip_longest(*by_people) for problem in turn if problem is not None]

    def _load(self, official: str, people: int) -> list[Problem]:
        """The puzzles of one file; an id contains the number of people and the line, from 0."""
        if self.data_dir is None:
            rows = from_hub("knights_and_knaves", Hub(HUB_ID, f"{people}ppl", configs=(official,)), FILES)
        else:
            rows = _from_folder(self.data_dir, official, people)
        problems = []
        for index, (row, where) in enumerate(rows):
            text, names, roles = _checked(row, people, where)
            problems.append(self._problem(f"{official}-{people}ppl-{index}", text, names, roles))
        try:
            whole = TEST_PUZZLES if official == "test" else 200 if people == 2 else 1000
            place = HUB_ID if self.data_dir is None else f"data_dir: {str(self.data_dir)!r}"
            refuse_more(f"{self.name} of {people} people", official, len(problems), whole, place)
        except ValueError as error:
            raise ValueError(f"{error}; give {FILES}") from error
        if official == "train" and len(problems) <= DEV_PROBLEMS:
            raise ValueError(
                f"data_dir: train has {len(problems)} puzzles of {people} people and dev takes its last "
                f"{DEV_PROBLEMS}; give more than {DEV_PROBLEMS}"
            )
        return problems


def parse_statements(text: str) -> tuple[tuple, ...]:
    """The statements of a released puzzle, from nested tuples written as in Python. Nothing is executed.

    Raises:
        ValueError: the text is not a tuple of nested tuples.
    """
    try:
        statements = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError(f"statements {text[:80]!r} are not nested tuples ({type(error).__name__})") from error
    if not isinstance(statements, tuple):
        raise ValueError(f"statements {text[:80]!r} are not a tuple")
    return statements


def _checked(row: dict, people: int, where: str) -> tuple[str, list[str], tuple[bool, ...]]:
    """Quiz, names and roles of a released puzzle, after a check that its statements have no other solution."""
    try:
        text, names, roles = row["quiz"], list(row["names"]), tuple(row["solution"])
        found = solutions(parse_statements(row["statements"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{where} is not a puzzle ({type(error).__name__}: {error}); give {FILES}") from error
    named = all(isinstance(name, str) for name in names) and len(names) == len(set(names)) == people
    if not isinstance(text, str) or not text.strip() or not named or len(roles) != people:
        raise ValueError(
            f"{where} has no quiz about {people} people with different names and a role each; give {FILES}"
        )
    if found != [roles]:
        raise ValueError(f"{where}: the solution {roles} is not the only one of the statements, {found}; give {FILES}")
    return text, names, roles


def _from_folder(folder: Path, official: str, people: int) -> list[tuple[dict, str]]:
    paths = sorted(folder.glob(f"{official}/people{people}_num*.jsonl"))
    if len(paths) != 1:
        error = Incomplete if any(folder.glob(f"{official}/people*_num*.jsonl")) else FileNotFoundError
        raise error(
            f"data_dir: {str(folder)!r} has {len(paths)} files {official}/people{people}_num*.jsonl instead of one; "
            f"give {FILES}"
        )
    try:
        return [(row, f"data_dir: {where}") for row, where in jsonl(paths[0])]
    except ValueError as error:
        raise ValueError(f"data_dir: {error}; give {FILES}") from error


# -- analysis


def roles_right(task: Task, problem: Problem, completion: str) -> float:
    """The share of a puzzle's people whose role an answer has right, in [0, 1]; never part of a reward.

    It is 0 without an answer; guessing gets half of the roles right on average.

    Args:
        task: any task of this module.
        problem, completion: as for `task.grade`.
    """
    right, given = (task.grade(problem, text).answer for text in (problem.answer, completion))
    if given is None:
        return 0.0
    right, given = (set(key.removeprefix("roles:").split(",")) for key in (right, given))
    return len(right & given) / len(right)

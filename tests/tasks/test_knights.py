"""Knights and Knaves: the solver, the drawn puzzles in both forms, the released ones."""

import json
import os
import subprocess
import sys
import types
from collections import Counter
from functools import partial
from itertools import islice, product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agpo_core import grading
from agpo_core.evaluation.official import official_score
from agpo_core.tasks import Graded, Problem, knights
from agpo_core.tasks.knights import (
    DEV_PROBLEMS,
    INSTRUCTION,
    PEOPLE,
    SAYINGS,
    Knights,
    KnightsAndKnaves,
    KnightsInWords,
    claim,
    compact,
    draw_statements,
    nameless,
    parse_statements,
    quiz,
    roles_in_words,
    roles_right,
    solutions,
)
from agpo_core.tasks.micro import ALPHABET, SIZES, pool
from tests.data import DATA, needs_data

KK = DATA / "kk"
pytestmark = pytest.mark.filterwarnings("ignore:.*test records are here")  # the files here hold a few records

COMPACT = {people: partial(Knights, people) for people in PEOPLE}
K, N = "telling-truth", "lying"


def literals(people):
    return st.tuples(st.sampled_from((K, N)), st.integers(0, people - 1))


def statements_of(people):
    """Any statements of `people` people, nested up to three deep, with any number of solutions."""
    nested = st.recursive(
        literals(people),
        lambda part: st.one_of(
            st.tuples(st.just("not"), part),
            st.tuples(st.sampled_from(("->", "<=>")), part, part),
            st.lists(part, min_size=2, max_size=3).flatmap(
                lambda parts: st.sampled_from(("and", "or")).map(lambda kind: (kind, *parts))
            ),
        ),
        max_leaves=4,
    )
    return st.tuples(*[nested] * people)


def holds(statement, roles):
    """Whether a statement is true, by the meaning of its words; slow and obvious."""
    kind, *parts = statement
    if kind == K:
        return roles[parts[0]]
    if kind == N:
        return not roles[parts[0]]
    values = [holds(part, roles) for part in parts]
    return {
        "not": lambda: not values[0],
        "and": lambda: all(values),
        "or": lambda: any(values),
        "->": lambda: values[1] if values[0] else True,
        "<=>": lambda: values[0] == values[1],
    }[kind]()


def by_trying(statements):
    return {
        roles
        for roles in product((True, False), repeat=len(statements))
        if all(holds(said, roles) == role for said, role in zip(statements, roles, strict=True))
    }


# -- the logic


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        # "B is a knave", "A is a knight if and only if B is a knave". B a knight: A lies, so the second statement,
        # false = false, is true: fits. B a knave: A tells the truth, true = true, and B has told it too: does not.
        (((N, 1), ("<=>", (K, 0), (N, 1))), [(False, True)]),
        # "We are both knaves", and the other says that one of them is a knight: a knave and a knight.
        ((("and", (N, 0), (N, 1)), ("or", (K, 0), (K, 1))), [(False, True)]),
        # "I am a knave" is a paradox: no assignment agrees.
        (((N, 0),), []),
        # "I am a knight" agrees with both roles.
        (((K, 0),), [(False,), (True,)]),
        # "If I am a knight, then so is B": a knave would have told the truth; so A is a knight, and B one too.
        ((("->", (K, 0), (K, 1)), (K, 1)), [(True, True)]),
        # "B is not a knave" and "A is not a knight": A = B and B = not A.
        ((("not", (N, 1)), ("not", (K, 0))), []),
    ],
)
def test_small_puzzles_are_solved_as_by_hand(statements, expected):
    assert solutions(statements) == expected


@settings(derandomize=True, max_examples=60)
@given(statements=st.integers(1, 5).flatmap(statements_of))
def test_the_solver_finds_what_trying_every_assignment_by_the_meaning_of_the_words_finds(statements):
    found = solutions(statements)
    assert set(found) == by_trying(statements)
    assert len(set(found)) == len(found)


@settings(derandomize=True, max_examples=40)
@given(statements=statements_of(3), order=st.permutations(range(3)))
def test_the_order_of_the_people_does_not_matter(statements, order):
    def renamed(part):
        return part if isinstance(part, str) else order[part] if isinstance(part, int) else tuple(map(renamed, part))

    moved = [None] * 3
    for i, place in enumerate(order):
        moved[place] = renamed(statements[i])
    assert {tuple(roles[place] for place in order) for roles in solutions(moved)} == set(solutions(statements))


@pytest.mark.parametrize(
    "bad",
    [(), ((K, 1),), ((K, -1),), ((K, True),), ((K, "0"),), (("and", (K, 0)),), (("xor", (K, 0), (K, 0)),), (K,), (7,),
     (("not", (K, 0), (K, 0)),), (("->", (K, 0)),), ((K, 0),) * 17],
)  # fmt: skip
def test_statements_of_no_known_kind_or_about_nobody_are_refused(bad):
    with pytest.raises(ValueError, match="statement"):
        solutions(bad)


def test_reasoning_gym_finds_the_same_solutions():
    gym = pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed (extra `small`)")
    from reasoning_gym.logic.knights_knaves import KnightsKnavesDataset

    rng = Random(0)
    for people in (2, 3, 5):
        theirs = gym.create_dataset("knights_knaves", n_people=people, seed=people, size=25)
        for item in theirs:
            assert solutions(item["metadata"]["statements"]) == [tuple(item["metadata"]["solution"])]
        for _ in range(25):
            ours = draw_statements(rng, people)
            assert [tuple(map(bool, roles)) for roles in KnightsKnavesDataset.find_solution(ours)] == solutions(ours)


# -- drawn puzzles


@pytest.mark.parametrize("people", PEOPLE)
def test_a_drawn_puzzle_has_one_solution_and_every_kind_of_statement_comes(people):
    rng = Random(people)
    drawn = [draw_statements(rng, people) for _ in range(150)]
    for statements in drawn:
        assert len(statements) == people
        assert len(by_trying(statements) if people < 6 else solutions(statements)) == 1
    assert {said[0] for statements in drawn for said in statements} == {K, N, "not", "and", "or", "->", "<=>"}


def test_nobody_says_of_themselves_that_they_lie_and_no_half_is_said_twice():
    rng = Random(0)
    for _ in range(300):
        for speaker, said in enumerate(draw_statements(rng, 3)):
            parts = [said] if said[0] in (K, N) else said[1:]
            assert (N, speaker) not in parts
            assert len(set(parts)) == len(parts)


def test_of_two_people_there_are_399_puzzles():
    rng = Random(0)
    said = [{knights._draw_statement(rng, speaker, 2) for _ in range(4000)} for speaker in (0, 1)]
    # Each can say 3 literals, their 3 negations, and 4 compounds of 3 * 2 ordered pairs of different literals.
    assert [len(all_said) for all_said in said] == [3 + 3 + 4 * 6] * 2
    assert sum(len(solutions(both)) == 1 for both in product(*said)) == 399


@needs_data
def test_kinds_and_roles_are_distributed_as_in_the_released_puzzles():
    rows = [json.loads(line) for line in (KK / "train" / "people3_num1000.jsonl").open(encoding="utf-8")]
    released = [parse_statements(row["statements"]) for row in rows]
    rng = Random(0)
    drawn = [draw_statements(rng, 3) for _ in range(2000)]
    shares = []
    for puzzles in (released, drawn):
        kinds = Counter(said[0] for statements in puzzles for said in statements)
        knights_share = sum(sum(solutions(s)[0]) for s in puzzles) / (3 * len(puzzles))
        shares.append([*(kinds[k] / kinds.total() for k in ("not", "and", "or", "->", "<=>")), knights_share])
    # 600 released statements: four standard errors of a share of 1/6 are 4 * sqrt(5/36/600) = 0.061, of 1/2 0.082.
    assert shares[0][:5] == pytest.approx(shares[1][:5], abs=0.061)
    assert shares[0][5] == pytest.approx(shares[1][5], abs=0.082)


# -- the compact form


def test_the_compact_form_of_every_kind_of_statement():
    names = ("G", "H", "B")
    statements = (("<=>", (K, 2), (N, 1)), ("not", (N, 0)), ("->", (N, 0), (K, 0)))
    assert compact(names, statements) == "G:B=h;H:!g;B:g>G?"
    assert compact(names, ((N, 1), ("and", (K, 0), (N, 2)), ("or", (K, 1), (K, 0)))) == "G:h;H:G*b;B:H+G?"
    assert nameless(statements) == "A:C=b;B:!a;C:a>A?"


def test_different_puzzles_have_different_compact_forms():
    rng = Random(1)
    drawn = {draw_statements(rng, 3) for _ in range(2000)}
    assert len({nameless(statements) for statements in drawn}) == len(drawn)


@pytest.mark.parametrize("people", PEOPLE)
def test_compact_texts_fit_the_shipped_models_alphabet_and_their_64_positions(people):
    pairs = list(islice(COMPACT[people]().demonstrations(seed=0), 200))
    assert set("".join(prompt + completion for prompt, completion in pairs)) <= set(ALPHABET)
    assert max(len(prompt + completion) + 1 for prompt, completion in pairs) <= 64  # with end-of-sequence


def structure(task, prompt):
    """The prompt with its speakers renamed in order."""
    speakers = [part[0] for part in prompt.split(";")]
    table = {a: b for old, new in zip(speakers, knights.NAMES) for a, b in ((old, new), (old.lower(), new.lower()))}
    return "".join(table.get(character, character) for character in prompt)


@pytest.mark.parametrize("people", PEOPLE)
def test_no_puzzle_of_one_split_is_in_another_under_other_names(people):
    task = COMPACT[people]()
    found = {split: task.problems(split) for split in ("dev", "test")}
    found["supervised"] = [Problem("", "", prompt, "") for prompt, _ in islice(task.demonstrations(seed=1), 500)]
    puzzles = {split: {structure(task, p.prompt) for p in problems} for split, problems in found.items()}
    assert [len(found[split]) for split in ("dev", "test")] == [SIZES["dev"], SIZES["test"]]
    assert all(len({p.prompt for p in found[split]}) == SIZES[split] for split in ("dev", "test"))
    assert all(pool(puzzle) == split for split, kept in puzzles.items() for puzzle in kept)
    assert len(set.union(*puzzles.values())) == sum(map(len, puzzles.values()))


@pytest.mark.parametrize("people", (2, 3))
def test_the_training_split_is_full_and_apart_from_dev_and_test(people):
    task = COMPACT[people]()
    train = task.problems("train")
    assert len({p.prompt for p in train}) == SIZES["train"]
    assert all(pool(structure(task, p.prompt)) == "train" for p in train)


def test_problems_are_the_same_in_another_process():
    code = (
        "from agpo_core.tasks import knights\n"
        "print([task.problems('dev') for task in (knights.Knights(2), knights.Knights(8), knights.KnightsInWords(4))])"
    )
    there = subprocess.check_output([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": "1"}, text=True)
    here = [task.problems("dev") for task in (Knights(2), Knights(8), KnightsInWords(4))]
    assert there.strip() == repr(here)


@pytest.mark.parametrize("people", PEOPLE)
def test_a_demonstration_is_right_a_slipped_one_never_and_its_answer_solves_the_puzzle(people):
    task, rng = COMPACT[people](), Random(0)
    for index in range(60):
        item = task.item("supervised", rng, index)
        problem = Problem(task.name, "", item.prompt, item.answer)
        assert task.grade(problem, task.demonstrate(item, rng, slip=False)).reward == 1
        slipped = task.demonstrate(item, rng, slip=True)
        assert task.grade(problem, slipped).reward == 0
        assert roles_right(task, problem, slipped) == pytest.approx(1 - 1 / people)  # one role is wrong


def test_slips_are_rare_after_one_thing_said_last_and_usual_after_a_compound():
    slips = {False: [], True: []}
    for prompt, completion in islice(Knights(2).demonstrations(seed=0), 1500):
        first, last = ((name, said) for name, said in (part.split(":") for part in prompt[:-1].split(";")))
        (roles,) = [
            roles
            for roles in product((True, False), repeat=2)
            if all(spoken(said, dict(zip((first[0], last[0]), roles))) == role
                   for (_, said), role in zip((first, last), roles))
        ]  # fmt: skip
        assert completion[0].isupper() == roles[0]
        slips[len(last[1].strip("!")) > 1].append(completion[1].isupper() != roles[1])
    # Four standard errors: 4 * sqrt(.25 * .75 / 450) = .08 for the third that ends with one thing, .06 for the others.
    assert sum(slips[False]) / len(slips[False]) == pytest.approx(0.25, abs=0.08)
    assert sum(slips[True]) / len(slips[True]) == pytest.approx(0.70, abs=0.06)


def spoken(said, roles):
    """The value of one statement in the compact form, read character by character."""
    if said[0] == "!":
        return not spoken(said[1:], roles)
    left = roles[said[0].upper()] == said[0].isupper()
    if len(said) == 1:
        return left
    right = roles[said[2].upper()] == said[2].isupper()
    return {"*": left and right, "+": left or right, ">": not left or right, "=": left == right}[said[1]]


def test_the_answer_says_who_tells_the_truth():
    # B says that C is a knave, C says that both have the same role. C a knight: B is one too, but says C is a knave.
    # So C is a knave, B has told the truth, and "the same role" is the lie it should be.
    task = Knights(2)
    problem = Problem("knights_2", "", "B:c;C:B=C?", "Bc")
    for right in ("Bc", "cB", "B, c.", " B;c!", "B c"):
        assert task.grade(problem, right) == Graded(1.0, "B,c")
    for wrong, key in (("bC", "b,C"), ("B", "B"), ("BcD", "B,c,D"), ("BcC", None), ("BC", "B,C"), ("BcX", None)):
        assert task.grade(problem, wrong) == Graded(0.0, key)
    for nothing in ("", "?", "12", "十", "ß", "K", "B" * 5000):
        assert task.grade(problem, nothing) == Graded(0.0, None)


@settings(derandomize=True, max_examples=60)
@given(completion=st.text(max_size=40) | st.text(alphabet="ABCDabcd ;.?", max_size=12))
def test_no_completion_gets_an_exception_out_of_either_grader(completion):
    for task in (Knights(3), KnightsInWords(3)):
        graded = task.grade(task.problems("dev")[0], completion)
        assert graded.reward in (0, 1)
        assert graded.reward == 0 or graded.answer is not None
        assert 0 <= roles_right(task, task.problems("dev")[0], completion) <= 1


def test_an_unknown_split_is_refused_with_the_known_ones():
    for task in (Knights(2), KnightsInWords(2), KnightsAndKnaves()):
        with pytest.raises(ValueError, match="train, dev, test"):
            task.problems("validation")


# -- the published words


def test_a_puzzle_in_words():
    statements = (("->", (N, 1), (K, 0)), ("not", (K, 0)))
    text = quiz(("Zoey", "Oliver"), statements, (SAYINGS[0], SAYINGS[2]))
    assert text == (
        "A very special island is inhabited only by knights and knaves. Knights always tell the truth, and knaves "
        "always lie. You meet 2 inhabitants: Zoey, and Oliver. Zoey said that If Oliver is a knave then Zoey is a "
        'knight. Oliver said, "Zoey is not a knight." So who is a knight and who is a knave?'
    )


def test_puzzles_in_words_are_solved_by_their_answers_and_kept_apart_from_training():
    for people in (2, 5):
        task = KnightsInWords(people)
        problems = task.problems("test")
        assert len({p.prompt for p in problems}) == SIZES["test"]
        assert not {p.prompt for p in problems} & {p.prompt for p in task.problems("dev")}
        for problem in problems[:40]:
            names, statements = read_quiz(problem.prompt.removeprefix(f"{INSTRUCTION}\n"))
            assert pool(nameless(statements)) == "test"
            assert problem.answer == roles_in_words(names, *solutions(statements))
            assert task.grade(problem, f"<think>…</think><answer>{problem.answer}</answer>").reward == 1


ANSWER = "(1) Zoey is a knave\n(2) Oliver is a knight"
RESPONSES = [  # response, our verdict, Logic-RL's verdict; where they differ, the reason
    (f"</think><answer> {ANSWER} </answer>", True, True),
    ("<answer>Oliver is a knight, Zoey is a knave.</answer>", True, True),
    ("<answer>(1) Zoey is a KNAVE\n(2) Oliver is a Knight</answer>", True, True),
    (f"<answer>{ANSWER}</answer> No: <answer>Zoey is a knight, Oliver is a knave</answer>", False, False),
    (f"<answer>Zoey is a knight, Oliver is a knave</answer> No: <answer>{ANSWER}</answer>", True, True),
    ("<answer>(1) Zoey is a knave</answer>", False, False),
    (f"<answer>{ANSWER}\n(3) Mia is a knight</answer>", False, False),
    ("<answer>Zoey is a knave</answer> Oliver is a knight", False, False),
    ("Zoey is a knave.", False, False),
    ("", False, False),
    (ANSWER, True, False),  # no answer block: the published reward gives none
    (f"<answer>{ANSWER}", True, False),  # the block is cut off, the answer in it is not
    ("<answer>Zoey is not a knight but is a knave; Oliver is …</answer>", False, False),
    ("<answer>Zoey is no knight, Oliver is a knight</answer>", False, False),
]


@pytest.mark.parametrize(("response", "ours", "published"), RESPONSES)
def test_responses_in_words_are_graded_all_or_nothing(response, ours, published):
    problem = Problem("knights_in_words_2", "", "", ANSWER)
    assert KnightsInWords(2).grade(problem, response).reward == ours
    assert official_score("knights_and_knaves_logic_rl", response, ANSWER) == published


def test_roles_right_is_the_share_of_the_people():
    problem, task = Problem("", "", "", "(1) Al is a knave\n(2) Bo is a knight\n(3) Cy is a knight"), KnightsInWords(3)
    shares = {
        "<answer>Al is a knave, Bo is a knight, Cy is a knight</answer>": 1,
        "<answer>Al is a knave, Bo is a knight, Cy is a knave</answer>": 2 / 3,
        "<answer>Al is a knave</answer>": 1 / 3,
        "<answer>Al is a knight, Bo is a knave, Cy is a knave</answer>": 0,
        "<answer>I do not know</answer>": 0,
    }
    for text, share in shares.items():
        assert roles_right(task, problem, text) == pytest.approx(share)


# -- the released puzzles


def record(index, **changes):
    """A puzzle in the official format: the first says that the second is a knave, who says that they are the same."""
    statements, names = ((N, 1), ("<=>", (K, 0), (K, 1))), [f"Ann{index}", "Bea"]
    row = {"quiz": quiz(names, statements, SAYINGS[:2]), "names": names, "solution": [True, False]}
    return {**row, "statements": repr(statements), "index": index, **changes}


def write(folder, path, rows):
    (folder / path).parent.mkdir(exist_ok=True)
    (folder / path).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(folder)


def test_dev_is_the_last_puzzles_of_train_and_an_id_tells_people_and_line(tmp_path):
    write(tmp_path, "train/people2_num200.jsonl", [record(i) for i in range(DEV_PROBLEMS + 2)])
    folder = write(tmp_path, "test/people2_num100.jsonl", [record(i) for i in range(900, 903)])
    task = KnightsAndKnaves(2, data_dir=folder)
    ids = {split: [p.id for p in task.problems(split)] for split in ("train", "dev", "test")}
    assert ids["train"] == ["train-2ppl-0", "train-2ppl-1"]
    assert ids["dev"] == [f"train-2ppl-{i}" for i in range(2, 2 + DEV_PROBLEMS)]
    assert ids["test"] == ["test-2ppl-0", "test-2ppl-1", "test-2ppl-2"]
    problem = task.problems("test")[0]
    assert problem.answer == "(1) Ann900 is a knight\n(2) Bea is a knave"
    assert problem.prompt == f"{INSTRUCTION}\n{record(900)['quiz']}"
    assert problem.task == task.name == "knights_and_knaves_2"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"solution": [False, True]}, "line 1: the solution .* is not the only one"),
        ({"statements": "((('lying', 1)"}, "line 1 is not a puzzle .*not nested tuples"),
        ({"statements": "__import__('os').getcwd()"}, "line 1 is not a puzzle .*not nested tuples"),
        ({"statements": "7"}, "line 1 is not a puzzle .*not a tuple"),
        ({"statements": "(('lying', 5), ('lying', 0))"}, "line 1 is not a puzzle .*names none of the 2 people"),
        ({"names": ["Ann", "Bea", "Bea"]}, "line 1 has no quiz about 2 people"),
        ({"names": ["Ann", "Ann"]}, "line 1 has no quiz about 2 people"),
        ({"names": None}, "line 1 is not a puzzle"),
        ({"quiz": None}, "line 1 has no quiz"),
        ({"quiz": " "}, "line 1 has no quiz"),
        # One solution, but of three people.
        ({"statements": "(('lying', 1), ('<=>', ('telling-truth', 0), ('telling-truth', 1)), ('lying', 0))",
          "solution": [True, False, False]}, "line 1 has no quiz about 2 people with .* a role each"),
    ],
)  # fmt: skip
def test_a_record_that_is_no_sound_puzzle_is_named(tmp_path, changes, message):
    folder = write(tmp_path, "test/people2_num100.jsonl", [record(0, **changes)])
    with pytest.raises(ValueError, match=message):
        KnightsAndKnaves(2, data_dir=folder).problems("test")


def test_a_missing_field_line_file_or_folder_is_named_with_the_remedy(tmp_path):
    row = record(0)
    del row["statements"]
    folder = write(tmp_path, "test/people2_num100.jsonl", [row])
    with pytest.raises(ValueError, match="line 1 is not a puzzle .KeyError: 'statements'.; give train/people3"):
        KnightsAndKnaves(2, data_dir=folder).problems("test")
    (tmp_path / "test" / "people3_num100.jsonl").write_text("{\n", "utf-8")
    with pytest.raises(ValueError, match="people3_num100.jsonl, line 1 is not JSON"):
        KnightsAndKnaves(3, data_dir=folder).problems("test")
    (tmp_path / "test" / "people3_num100.jsonl").write_bytes(b'{"quiz": ""}\n{"quiz": "\xff"}\n')
    with pytest.raises(ValueError, match="data_dir: .*people3_num100.jsonl, line 2 is not UTF-8 text .*; give train/"):
        KnightsAndKnaves(3, data_dir=folder).problems("test")
    with pytest.raises(FileNotFoundError, match=r"0 files test/people4_num\*.jsonl instead of one; give train/people3"):
        KnightsAndKnaves(4, data_dir=folder).problems("test")
    with pytest.raises(FileNotFoundError, match="data_dir: no folder .*nowhere.*K-and-K/knights-and-knaves"):
        KnightsAndKnaves(data_dir=tmp_path / "nowhere")


def test_more_puzzles_than_the_release_has_are_refused(tmp_path):
    folder = write(tmp_path, "test/people2_num100.jsonl", [record(i) for i in range(101)])
    with pytest.raises(ValueError, match="has 101 test records and the official knights.* of 2 people has 100.*; give"):
        KnightsAndKnaves(2, data_dir=folder).problems("test")


def test_a_train_file_too_small_to_hold_dev_out_is_refused(tmp_path):
    folder = write(tmp_path, "train/people2_num200.jsonl", [record(i) for i in range(DEV_PROBLEMS)])
    for split in ("train", "dev"):
        with pytest.raises(ValueError, match="train has 50 puzzles of 2 people.*give more than 50"):
            KnightsAndKnaves(2, data_dir=folder).problems(split)


def test_without_a_folder_the_puzzles_come_from_the_hub(monkeypatch):
    calls = []

    def load_dataset(*args, **kwargs):
        calls.append((args, kwargs))
        return [record(5)]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    assert KnightsAndKnaves(2).problems("test")[0].answer == "(1) Ann5 is a knight\n(2) Bea is a knave"
    assert calls == [(("K-and-K/knights-and-knaves", "test"), {"split": "2ppl"})]


def test_an_unreachable_hub_is_said_with_the_remedy(monkeypatch):
    def offline(*_, **__):
        raise OSError("Name or service not known")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=offline))
    with pytest.raises(ConnectionError, match="K-and-K/knights-and-knaves cannot be read .*set data_dir to a folder"):
        KnightsAndKnaves().problems("test")


def read_quiz(text):
    """Names and statements of a published puzzle, found by trying every statement in every saying."""
    people = text.partition(" inhabitants: ")[2].partition(". ")[0]
    names = people.replace(", and ", ", ").split(", ")
    atoms = [(role, i) for i in range(len(names)) for role in (K, N)]
    every = [*atoms, *(("not", atom) for atom in atoms)]
    every += [(kind, a, b) for kind in ("and", "or", "->", "<=>") for a in atoms for b in atoms]
    claims = {claim(names, statement): statement for statement in every}
    rest, statements = text.partition(f"{people}. ")[2], []
    for name in names:
        for saying in SAYINGS:
            before, after = saying.format(name=name, claim="\0").split("\0")
            end = rest.find(after + " ", len(before))
            if rest.startswith(before) and end > 0 and rest[len(before) : end] in claims:
                statements.append(claims[rest[len(before) : end]])
                rest = rest[end + len(after) + 1 :]
                break
    assert rest == knights.QUESTION
    return names, tuple(statements)


def released():
    for path in sorted(KK.glob("t*/people*.jsonl")):
        for line in path.open(encoding="utf-8"):
            yield json.loads(line)


@needs_data
def test_every_released_puzzle_read_out_of_its_words_has_the_stored_statements_and_solution():
    seen = 0
    for row in released():
        names, statements = read_quiz(row["quiz"])
        assert names == row["names"]
        assert statements == parse_statements(row["statements"])
        assert solutions(statements) == [tuple(row["solution"])]
        assert roles_in_words(names, row["solution"]) == row["solution_text_format"]
        seen += 1
    assert seen == 700 + 2 * 200  # the folder has 200 of the 3-people training puzzles


@needs_data
def test_our_words_for_the_released_statements_are_the_released_text():
    for row in released():
        statements, names, text = parse_statements(row["statements"]), row["names"], row["quiz"]
        sayings = []
        for name, statement in zip(names, statements, strict=True):
            said = claim(names, statement)
            sayings.append(next(s for s in SAYINGS if f" {s.format(name=name, claim=said)} " in text))
        assert quiz(names, statements, sayings) == text


@needs_data
def test_the_real_files_give_figure_4_s_splits_with_people_taking_turns():
    task = KnightsAndKnaves(data_dir=KK)
    problems = {split: task.problems(split) for split in ("train", "dev", "test")}
    assert {split: len(found) for split, found in problems.items()} == {"train": 300, "dev": 100, "test": 700}
    assert [p.id for p in problems["test"][:8]] == [*(f"test-{n}ppl-0" for n in PEOPLE), "test-2ppl-1"]
    assert {p.id.split("-")[1] for p in problems["train"] + problems["dev"]} == {"2ppl", "3ppl"}
    prompts = [{p.prompt for p in found} for found in problems.values()]
    assert len(set.union(*prompts)) == sum(map(len, prompts))
    for problem in problems["test"]:
        assert task.grade(problem, f"<answer>{problem.answer}</answer>").reward == 1


@needs_data
def test_the_prompt_is_logic_rl_s_system_message_and_puzzle():
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    rows = parquet.read_table(KK / "logic_rl" / "3ppl" / "test.parquet").to_pylist()
    for row in rows[:20]:
        published = row["prompt"][0]["content"]
        system, user = f"<|im_start|>system\n{INSTRUCTION}\n<|im_end|>", f"<|im_start|>user\n{row['quiz']}\n<|im_end|>"
        assert published.startswith(f"{system}\n{user}\n")
        assert solutions(parse_statements(row["statements"])) == [tuple(row["solution"])]


@needs_data
def test_the_grader_s_own_cases_hold_for_the_task():
    cases = [json.loads(line) for line in (DATA / "grader_cases.jsonl").open(encoding="utf-8")]
    cases = [case for case in cases if case["benchmark"] == "Knights and Knaves"]
    assert len(cases) == 7
    for case in cases:
        problem = Problem("", "", "", case["gold"])
        assert KnightsAndKnaves(2).grade(problem, case["candidate"]).reward == case["should_match"], case["why"]
        assert grading.read(case["gold"], knights.PROFILE) is not None

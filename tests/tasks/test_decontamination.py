"""Overlap of training with evaluation prompts: normalisation, exact duplicates, n-grams, real files, the command."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agpo_core import sandbox
from agpo_core.tasks import Problem, decontamination, get_task
from agpo_core.tasks.__main__ import main
from agpo_core.tasks.decontamination import Hit, load_sets, overlap, overlaps, questions, report, table, words
from tests.data import DATA, needs_data

pytestmark = pytest.mark.filterwarnings("ignore:.*train records are left out")


def problems(*prompts):
    return [Problem("task", str(i), prompt, "") for i, prompt in enumerate(prompts)]


def numbered(first, last):
    """The words w1 w2 …, `first` to `last`."""
    return " ".join(f"w{i}" for i in range(first, last + 1))


def filler(i):
    """A prompt that shares no word with another."""
    return f"other{i}a other{i}b"


# -- normalisation


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How many PENS?", "how many pens"),
        ("How  many\n\tpens", "How many pens"),
        ("“How many,” he asked; pens…", "How many he asked pens"),
        ("well-known", "well known"),
        ("Great! How many?", "Great. How many?"),
        ("１２－５＝？", "12-5="),  # full width
        ("12 − 5", "12-5"),  # Unicode's minus
        ("小明有３本书，他还有几本？", "小明有3本书。他还有几本"),
        ("straße", "STRASSE"),
    ],
)
def test_case_white_space_punctuation_and_width_do_not_count(one, other):
    assert words(one) == words(other) != ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("12-5", "12+5"),
        ("3*4", "3/4"),
        ("x^2", "x2"),
        ("a<b", "a>b"),
        ("-3", "3"),
        ("$X$ of x", "$x$ of X"),  # variables
        ("E:!h", "E:h"),  # "h is not so" in a compact puzzle
        ("3.5", "35"),
        ("一二", "二一"),
    ],
)
def test_what_carries_meaning_in_a_formula_counts(one, other):
    assert words(one) != words(other)


def test_a_chinese_character_is_a_word_and_a_latin_word_is_one():
    assert words("小明买了12个apples") == ("小", "明", "买", "了", "12", "个", "apples")


def test_the_lines_that_all_prompts_share_at_either_end_are_not_the_question():
    found = questions(problems("Solve.\nA\nThink.\nEnd.", "Solve.\nB\nAnd C\nThink.\nEnd."))
    assert found == ["A", "B\nAnd C"]
    assert questions(problems("A\nThink.", "B\nTry.")) == ["A\nThink.", "B\nTry."]


@pytest.mark.parametrize("prompts", [("A\nB",), ("A\nB", "A\nB"), ("A\nB", "A")])
def test_prompts_that_would_be_empty_without_shared_lines_are_kept_whole(prompts):
    assert questions(problems(*prompts)) == list(prompts)


# -- exact duplicates


def test_an_exact_duplicate_is_found_whatever_its_instruction():
    train = problems("How many pens has Tom?\nThink.", f"{filler(1)}\nThink.")
    evaluation = problems(f"{filler(2)}\nAnswer in a box.", "how many pens has tom\nAnswer in a box.")
    assert overlap(train, evaluation).hits == (Hit("0", "1", exact=True, share=1.0),)


def test_an_instruction_of_many_words_is_no_overlap():
    instruction = numbered(1, 30)
    train = problems(f"{filler(1)}\n{instruction}", f"{filler(2)}\n{instruction}")
    evaluation = problems(f"{filler(3)}\n{instruction}", f"{filler(4)}\n{instruction}")
    assert overlap(train, evaluation).hits == ()


def test_of_several_copies_the_first_is_named():
    evaluation = problems(filler(0), "Who?", "who")
    assert overlap(problems("WHO", filler(1)), evaluation).hits == (Hit("0", "1", True, 1.0),)


def test_prompts_without_a_word_are_no_duplicates():
    assert overlap(problems("???", filler(1)), problems("…", filler(2))).hits == ()


# -- n-grams


def test_thirteen_words_in_a_row_are_an_overlap_and_twelve_are_not():
    def hits(shared):
        return overlap(
            problems(f"x1 {numbered(1, shared)} y1", filler(1)), problems(f"x2 {numbered(1, shared)} y2", filler(2))
        ).hits

    assert hits(12) == ()
    # 15 words each: 3 runs of 13, of which the middle one is shared
    assert hits(13) == (Hit("0", "0", False, 1 / 3),)


def test_the_share_is_that_of_the_prompt_with_fewer_runs():
    train, evaluation = problems(numbered(1, 20), filler(1)), problems(f"{numbered(1, 13)} end", filler(2))
    # 8 and 2 runs of 13; w1 to w13 is in both
    for one, other in ((train, evaluation), (evaluation, train)):
        [hit] = overlap(one, other).hits
        assert hit.share == 1 / 2 and hit.contaminated and not hit.exact


def test_a_question_inside_a_longer_prompt_is_known_whole():
    [hit] = overlap(problems(f"before {numbered(1, 13)} after", filler(1)), problems(numbered(1, 13), filler(2))).hits
    assert (hit.exact, hit.share, hit.contaminated) == (False, 1.0, True)


def test_the_order_of_words_counts():
    backwards = " ".join(reversed(numbered(1, 14).split()))
    assert overlap(problems(numbered(1, 14), filler(1)), problems(backwards, filler(2))).hits == ()


def test_the_words_of_a_chinese_run_are_characters():
    shared = "买一个书包需要三十元买一本"
    assert len(shared) == 13
    train, evaluation = problems(f"小{shared}书", "甲乙"), problems(f"大{shared}画", "丙丁")
    assert overlap(train, evaluation).hits == (Hit("0", "0", False, 1 / 3),)
    assert overlap(train, evaluation, n=14).hits == ()


def test_short_prompts_are_compared_exactly_alone_and_counted():
    found = overlap(problems(numbered(1, 12), numbered(2, 12), filler(1)), problems(numbered(1, 12), filler(2)))
    assert found.hits == (Hit("0", "0", True, 1.0),)
    assert (found.short, found.train, found.evaluation) == (3, 3, 2)
    assert str(found.covered) == "nan"  # no evaluation prompt has 13 words


def test_covered_is_the_share_of_the_evaluation_sets_runs():
    # Runs of two words: w1 w2, w2 w3, w3 w4 and v1 v2; the first two are in training.
    found = overlap(problems(numbered(1, 3), filler(1)), problems(numbered(1, 4), "v1 v2"), n=2)
    assert found.covered == 2 / 4


@pytest.mark.parametrize(("copies", "hits"), [(10, 1), (11, 0)])
def test_a_run_that_stands_in_more_than_ten_evaluation_problems_is_a_phrase(copies, hits):
    many = problems(*(f"{filler(i)} {numbered(1, 13)}" for i in range(copies)))
    found = overlap(problems(f"{numbered(1, 13)} end", filler(99)), many)
    assert len(found.hits) == hits
    assert (found.covered == 0) == (hits == 0)


def test_eleven_variants_of_an_evaluation_problem_do_not_hide_one_another():
    train = problems(*(f"variant{i} {numbered(1, 14)} {i}" for i in range(11)), filler(1))
    found = overlap(train, problems(f"{numbered(1, 14)} end", filler(2)))
    # 16 and 15 words: 4 and 3 runs of 13, of which w1 to w13 and w2 to w14 are shared
    assert found.hits == tuple(Hit(str(i), "0", False, 2 / 3) for i in range(11))
    assert found.covered == 2 / 3 and len(found.contaminated) == 11


def test_a_phrase_counts_in_neither_prompt():
    phrase = numbered(1, 13)
    evaluation = problems(*(f"{filler(i)} {phrase}" for i in range(10)), f"{phrase} end {numbered(21, 33)}")
    [hit] = overlap(problems(f"{phrase} {numbered(21, 33)}", filler(99)), evaluation).hits
    # The training prompt has 14 runs, one of which is the phrase; w21 to w33 is the only one that both have
    assert (hit.evaluation_id, hit.share) == ("10", 1 / 13)


def test_the_evaluation_problem_that_overlaps_most_is_named():
    evaluation = problems(f"{numbered(1, 13)} a b c d", f"{numbered(1, 15)} a b", f"{numbered(1, 15)} c d")
    [hit, *_] = overlap(problems(f"{numbered(1, 16)} z", filler(1)), evaluation).hits
    assert (hit.evaluation_id, hit.share) == ("1", 3 / 5)


TEXTS = st.lists(st.lists(st.sampled_from(["u1", "v1", "w1"]), max_size=6).map(" ".join), min_size=1, max_size=8)


@given(TEXTS, TEXTS, st.integers(1, 4))
def test_a_slow_loop_finds_the_same(train, evaluation, n):
    def runs(text):
        found = text.split()
        return {tuple(found[i : i + n]) for i in range(len(found) - n + 1)}

    expected = []
    for i, ours in enumerate(train):
        best = (0.0, None)
        for e, theirs in enumerate(evaluation):
            share = 1.0 if ours and ours == theirs else 0.0
            if not share and runs(ours) & runs(theirs):
                share = len(runs(ours) & runs(theirs)) / min(len(runs(ours)), len(runs(theirs)))
            if share + (ours == theirs) > best[0]:
                best = (share + (ours == theirs), e)
        if best[1] is not None and ours:
            exact = best[0] == 2
            expected.append(Hit(str(i), str(best[1]), exact, 1.0 if exact else best[0]))
    found = overlap(problems(*train), problems(*evaluation), n)
    assert list(found.hits) == expected
    assert found.contaminated == [hit.id for hit in expected if hit.share >= 0.5]


@pytest.mark.parametrize(
    ("train", "evaluation", "n", "message"),
    [
        ([], ["a"], 13, "train has no problems"),
        (["a"], [], 13, "evaluation has no problems"),
        (["a"], ["a"], 0, "n=0 must be 1 or more"),
    ],
)
def test_empty_sets_and_runs_of_no_words_raise(train, evaluation, n, message):
    with pytest.raises(ValueError, match=message):
        overlap(problems(*train), problems(*evaluation), n)


# -- sets by name, the table, the command


def test_sets_are_named_with_their_split():
    sets = load_sets(["steps", "steps:dev"], "test")
    assert sets == {"steps:test": get_task("steps").problems("test"), "steps:dev": get_task("steps").problems("dev")}
    with pytest.raises(ValueError, match="'steps:valid' names the split 'valid'; use one of train, dev, test"):
        load_sets(["steps:valid"], "test")
    with pytest.raises(ValueError, match="unknown task 'chess'"):
        load_sets(["chess"], "test")


@pytest.mark.parametrize("name", ["steps", "chinese_sums", "knights_2"])
def test_procedural_training_problems_do_not_stand_in_their_test(name):
    task = get_task(name)
    found = overlap(task.problems("train"), task.problems("test"))
    assert found.hits == () and found.short == found.train == 4096


def test_the_table_has_a_row_a_pair_and_the_report_a_line_a_hit():
    train = {"a": problems("Who?", f"x1 {numbered(1, 13)} y1", filler(1)), "b": problems(filler(2), filler(3))}
    evaluation = {"c": problems("who", f"x2 {numbered(1, 13)} y2"), "d": problems(filler(4), filler(5))}
    found = overlaps(train, evaluation)
    assert list(found) == [("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")]
    assert table(found).iloc[0].to_dict() == {
        "train": "a", "evaluation": "c", "problems": 3, "exact": 1, "overlapping": 2, "contaminated": 1, "short": 2,
        "covered": 1 / 3,
    }  # fmt: skip
    lines = report(found).splitlines()
    assert lines[5:] == ["a 0, c 0: exact", "a 1, c 1: 0.33 of 13-grams"]
    assert lines[2].split() == ["a", "d", "3", "0", "0", "0", "2", "-"]


def test_the_command_prints_the_report_and_names_what_is_wrong(capsys):
    arguments = ["overlap", "--train", "knights_2:test", "--evaluation", "knights_2,steps:dev", "--n", "5"]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:6] == ["knights_2:test", "knights_2:test", "400", "400", "400", "400"]
    assert lines[2].split()[:4] == ["knights_2:test", "steps:dev", "400", "0"]
    with pytest.raises(SystemExit) as stop:
        main(["overlap", "--train", "steps:valid", "--evaluation", "steps"])
    assert stop.value.code == 2 and "use one of train, dev, test" in capsys.readouterr().err


def test_each_set_is_read_once_however_many_it_is_compared_with(monkeypatch):
    read = []
    monkeypatch.setattr(decontamination, "_grams", lambda text, n: read.append(text) or set())
    sets = [{name: problems(f"{name} x") for name in names} for names in ("ab", "cde")]
    overlaps(*sets)
    assert sorted(read) == [(name, "x") for name in "abcde"]


def test_without_a_sandbox_the_command_says_what_to_do_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sandbox, "missing", lambda weak: ("start: no user namespaces",))
    monkeypatch.delenv(sandbox.WEAK_VARIABLE, raising=False)
    with pytest.raises(SystemExit) as stop:
        main(["show", "gsm8k_python", "0"])
    [line] = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2 and "no user namespaces" in line and "AGPO_WEAK_SANDBOX=1" in line


# -- the official files


@needs_data
def test_three_dev_questions_of_cmath_are_in_its_test():
    sets = load_sets(["cmath:dev", "cmath:test"], "test", DATA)
    found = overlap(sets["cmath:dev"], sets["cmath:test"])
    exact = {hit.id: hit.evaluation_id for hit in found.hits if hit.exact}
    assert len(exact) == 3
    dev, test = ({problem.id: problem for problem in several} for several in sets.values())
    assert all(dev[a].answer == test[b].answer for a, b in exact.items())
    assert len(found.contaminated) == 9  # the others ask another question about the same story, or have other numbers


@needs_data
@pytest.mark.filterwarnings("ignore:.*test records are here")
def test_math500_is_a_part_of_math_test():
    sets = load_sets(["math", "math500"], "test", DATA)
    rows = [json.loads(line) for line in (DATA / "math500/test.jsonl").read_text("utf-8").splitlines()]
    here = [i for i, row in enumerate(rows) if (DATA / "math/MATH" / row["unique_id"]).is_file()]
    found = overlap(sets["math500:test"], sets["math:test"])
    assert [hit.id for hit in found.hits if hit.exact] == [f"test-{i}" for i in here] != []


@needs_data
@pytest.mark.filterwarnings("ignore:.*test records are here")
def test_mmlu_stem_asks_questions_of_maths_training_set():
    sets = load_sets(["math:train", "mmlu_stem:test"], "test", DATA)
    found = overlap(sets["math:train"], sets["mmlu_stem:test"])
    assert [hit.share for hit in found.hits if hit.contaminated] == [1.0] * 3  # the same questions with options added
    assert not any(hit.exact for hit in found.hits)


@needs_data
@pytest.mark.parametrize(
    ("train", "evaluation"),
    [("orz", "aime24"), ("orz", "aime25"), ("dapo", "aime24"), ("knights_and_knaves", "knights_and_knaves")],
)
def test_what_training_sets_say_again_and_again_contaminates_nothing(train, evaluation):
    [found] = overlaps(load_sets([train], "train", DATA), load_sets([evaluation], "test", DATA)).values()
    assert found.contaminated == []

"""The grader on the benchmarks' own golds, on collected cases and on real responses; and its command line."""

import csv
import json

import pytest

from agpo_core.grading import canonical, equivalent, extract, read
from agpo_core.grading.cases import judge, load_cases, math_verify_alone, report, seconds_per_thousand
from agpo_core.grading.extraction import boxes
from agpo_core.tasks.__main__ import main
from agpo_core.tasks.benchmarks.checking import ROLES, SENTENCES
from tests.data import DATA, needs_data


def rows(*paths):
    return [json.loads(line) for path in paths for line in (DATA / path).read_text("utf-8").splitlines()]


def array(path):
    return json.loads((DATA / path).read_text("utf-8"))


def column(path, field):
    with (DATA / path).open(newline="", encoding="utf-8") as file:
        return [row[field] for row in csv.DictReader(file)]


def math_golds():
    files = sorted((DATA / "math/MATH/test").glob("*/*.json"))
    return [boxes(json.loads(file.read_text("utf-8"))["solution"])[-1][2] for file in files]


def mmlu_golds():
    golds = []
    for file in sorted((DATA / "mmlu/data/test").glob("*.csv")):
        with file.open(newline="", encoding="utf-8") as lines:
            golds += [row[5] for row in csv.reader(lines)]
    return golds


GOLDS = {
    "gsm8k": lambda: [r["answer"].split("#### ")[1] for r in rows("gsm8k/test.jsonl", "gsm8k/train.jsonl")],
    "cmath": lambda: [r["golden"] for r in rows("cmath/cmath_dev.jsonl", "cmath/test.jsonl", "cmath/distractor.jsonl")],
    "math": math_golds,
    "math500": lambda: [r["answer"] for r in rows("math500/test.jsonl")],
    "ocw": lambda: [r["answer"] for r in rows("ocw/test.jsonl")],
    "gaokao_cloze": lambda: [r["answer"] for r in rows("agieval/v1/gaokao-mathcloze.jsonl")],
    "gaokao_qa": lambda: [r["label"] for r in rows("agieval/v1/gaokao-mathqa.jsonl")],
    "sat_math": lambda: [r["label"] for r in rows("agieval/v1/sat-math.jsonl")],
    "sat": lambda: [r["Answer"] for r in rows("sat/test.jsonl")],
    "mmlu_stem": mmlu_golds,
    "orz": lambda: [r[1]["ground_truth"]["value"] for r in array("orz/orz_math_57k_collected.json")],
    "dapo": lambda: [str(r["label"]) for r in rows("dapo/dapo-math-17k.jsonl")],
    "hmmt24": lambda: column("matharena/hmmt/hmmt_feb_2024/answers.csv", "answer"),
    "hmmt25": lambda: column("matharena/hmmt/hmmt_feb_2025/answers.csv", "answer"),
    "cmimc": lambda: column("matharena/cmimc/cmimc_2024/answers.csv", "answer"),
    "aime24": lambda: [r["answer"] for r in rows("aime24/test.jsonl")],
    "aime25": lambda: [str(r["answer"]) for r in rows("aime25/test2025-I.jsonl", "aime25/test2025-II.jsonl")],
    "amc23": lambda: [str(r["answer"]) for r in rows("amc23/test.jsonl")],
    "knights_and_knaves": lambda: [
        r["solution_text_format"] for n in range(2, 9) for r in rows(f"kk/test/people{n}_num100.jsonl")
    ],
    "codecontests": lambda: [
        out for r in array("code_contests/code_contests.json") for out in r["tests"]["outputs"]
    ],
}  # fmt: skip
COUNTS = {
    "gsm8k": 2319, "cmath": 2058, "math": 219, "math500": 500, "ocw": 272, "gaokao_cloze": 118, "gaokao_qa": 351,
    "sat_math": 220,
    "sat": 32, "mmlu_stem": 900, "orz": 200, "dapo": 10, "hmmt24": 30, "hmmt25": 30, "cmimc": 30, "aime24": 30,
    "aime25": 30,
    "amc23": 40, "knights_and_knaves": 700,
}  # fmt: skip
# MATH-500's records 22 and 23 (from 0) ask different questions with the answers "5" and "x=5", which are the same.
EQUAL_NEIGHBOURS = {("math500", "5", "x=5")}
# Two free conditions in words: it equals itself and nothing that means the same.
IN_WORDS = {("gaokao_cloze", "三组对面分别平行的四棱柱为平行六面体;平行六面体的对角线交于一点,并且在交点处互相平分")}


@needs_data
@pytest.mark.parametrize("name", GOLDS)
def test_every_gold_is_read_and_equals_itself(name):
    golds = GOLDS[name]()
    assert name not in COUNTS or len(golds) == COUNTS[name]
    assert [gold for gold in golds if not equivalent(gold, gold, name)] == []
    assert [gold for gold in golds if read(gold, name).key.startswith("raw:")] == []


@needs_data
@pytest.mark.parametrize("name", GOLDS)
def test_no_gold_equals_its_neighbours_different_gold(name):
    golds = GOLDS[name]()
    same = {(name, a, b) for a, b in zip(golds, golds[1:], strict=False) if a != b and equivalent(a, b, name)}
    assert same <= EQUAL_NEIGHBOURS


@needs_data
@pytest.mark.parametrize("name", sorted(set(GOLDS) - {"codecontests"}))
def test_every_gold_is_found_in_an_answer_sentence(name):
    chinese = name in ("cmath", "gaokao_cloze", "gaokao_qa")
    sentences = ROLES if name == "knights_and_knaves" else SENTENCES["zh" if chinese else "en"]
    missed = []
    for gold in GOLDS[name]():
        for sentence in sentences:
            answer = extract(sentence.format(gold), name)
            if answer is None or not equivalent(gold, answer, name):
                missed.append((name, sentence, gold))
    assert missed == [] if name != "ocw" else {gold[:30] for _, _, gold in missed} <= {r"x_{0} \cos (\omega t)+$ $\dot"}


@needs_data
def test_two_golds_vote_together_exactly_when_they_are_graded_equal():
    golds = sorted(set(GOLDS["math500"]() + GOLDS["ocw"]() + GOLDS["hmmt24"]()))[::3]
    for a in golds:
        for b in golds:
            same_vote = canonical(a, "math500") == canonical(b, "math500")
            assert equivalent(a, b, "math500") == equivalent(b, a, "math500")
            assert equivalent(a, b, "math500") <= same_vote
            if same_vote and not equivalent(a, b, "math500"):  # 36 degrees and 36 dollars
                assert (
                    {read(a, "math500").unit, read(a, "math500").label}
                    != {None}
                    != {read(b, "math500").unit, read(b, "math500").label}
                )


@needs_data
def test_the_collected_cases_are_judged_with_no_false_accept(capsys):
    assert main(["grade", str(DATA / "grader_cases.jsonl")]) == 0
    last = capsys.readouterr().out.splitlines()[-1].split()
    assert last[0::2] == ["accuracy", "false_accepts", "cases"]
    assert float(last[1]) >= 0.98 and last[3] == "0" and last[5] == "235"


@needs_data
def test_real_math_responses_are_judged_as_the_official_grader_does_but_for_its_two_errors():
    apart = {}
    for row in rows("grader_samples/math_cot_100.jsonl"):
        for response, official in zip(row["code"], row["score"], strict=True):
            answer = extract(response, "math")
            verdict = answer is not None and equivalent(row["answer"], answer, "math")
            if verdict != official:
                apart.setdefault(row["idx"], []).append((verdict, canonical(answer, "math")))
    # 3: "4:30 p.m.", which its official form cuts to "4:30p.."; 72: "10{,}000", whose separator it keeps.
    assert apart == {3: [(True, "clock:4:30")] * 8, 72: [(True, "10000")]}


@needs_data
def test_released_gsm8k_solutions_are_judged_as_their_release_judges_them():
    judged, wrong = 0, []
    for row in rows("gsm8k/example_model_solutions.jsonl"):
        gold = canonical(extract(row["ground_truth"], "gsm8k"), "gsm8k")
        for solution in (value for value in row.values() if isinstance(value, dict)):
            answer = extract(solution["solution"], "gsm8k")
            judged += 1
            if (answer is not None and equivalent(gold, answer, "gsm8k")) != solution["is_correct"]:
                wrong.append(solution)
    assert judged == 800 and wrong == []


# -- the command line and the comparison


def write(folder, *cases):
    path = folder / "cases.jsonl"
    path.write_text("".join(json.dumps(case) + "\n" for case in cases), "utf-8")
    return path


CASE = {"benchmark": "MATH-500", "gold": "5", "candidate": "5.0", "should_match": True, "kind": "decimal", "id": "c1"}


def test_the_report_counts_by_kind_lists_misses_and_ends_with_the_totals(tmp_path, capsys):
    wrong = CASE | {"should_match": False, "kind": "label", "gold": "7", "candidate": "7"}
    missed = CASE | {"kind": "label", "candidate": "about five"}
    assert main(["grade", str(write(tmp_path, CASE, wrong, missed))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["decimal", "1", "1.000", "0", "0"]
    assert lines[2].split() == ["label", "2", "0.000", "1", "1"]
    assert lines[3] == "false accept: MATH-500, label: gold '7', candidate '7'"
    assert lines[4] == "false reject: MATH-500, label: gold '5', candidate 'about five'"
    assert lines[5] == "accuracy 0.3333 false_accepts 1 cases 3"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gold": 5}, "line 2: gold should be of type str"),
        ({"should_match": "yes"}, "line 2: should_match should be of type bool"),
        ({"benchmark": "chess"}, "line 2: profile: no benchmark is called 'chess'"),
    ],
)
def test_a_bad_line_is_named(tmp_path, change, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["grade", str(write(tmp_path, CASE, CASE | change))])
    assert stop.value.code == 2 and message in capsys.readouterr().err


def test_a_missing_an_empty_and_a_broken_file_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="cases: no file .*give JSON lines with benchmark, gold"):
        load_cases(tmp_path / "nowhere.jsonl")
    path = tmp_path / "cases.jsonl"
    for content, message in (("", "is empty"), ("{", "line 1 is not JSON"), ("[1]", "line 1 is not an object")):
        path.write_text(content)
        with pytest.raises(ValueError, match=message):
            load_cases(path)


def test_the_comparison_with_math_verify_runs_on_the_same_cases(tmp_path):
    cases = load_cases(write(tmp_path, CASE, CASE | {"gold": "6", "should_match": False}))
    assert [verdict for _, verdict in judge(cases, math_verify_alone)] == [True, False]
    assert report(judge(cases)).endswith("accuracy 1.0000 false_accepts 0 cases 2")
    assert seconds_per_thousand(cases) > 0

"""Benchmarks give the same records from files and from the hub; golds, splits, prompts, errors, command line."""

import json
import logging
import re
import subprocess
import sys
import types
import warnings
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from agpo_core import grading
from agpo_core.tasks import MICRO_TASKS, TASKS, get_task
from agpo_core.tasks.__main__ import main
from agpo_core.tasks.benchmarks import BENCHMARKS, LISTED, few_shot_prompt, listing
from agpo_core.tasks.benchmarks.loader import draw
from agpo_core.tasks.benchmarks.sources import all_shards
from agpo_core.tasks.benchmarks.table import BOXED, MATH_SUBJECTS, MMLU_SUBJECTS
from tests.data import DATA, needs_data

pytestmark = [  # the files here hold a few records each
    pytest.mark.filterwarnings("ignore:.*test records are here"),
    pytest.mark.filterwarnings("ignore:.*train records are left out"),
]


# ── small files in the official formats, and the same records as the hub has them ────────────────────────────────────


def lines(*rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def plain(*pairs, question="problem", answer="answer", **more):
    return [{question: q, answer: a, **more} for q, a in pairs]


MATH_NUMBERS = (2, 3, 4, 5, 6, 7, 8, 10)  # 10.json comes after 8.json


def math_row(subject, index):
    return {
        "problem": f"{subject}: what is {index} + 1?",
        "level": "Level 1",
        "type": subject.title(),
        "solution": f"First \\boxed{{0}}, no: it is $\\boxed{{\\frac{{{index + 1}}}{{1}}}}$.",
    }


def math_files(split):
    return {
        f"math/MATH/{split}/{subject}/{number}.json": json.dumps(math_row(subject, number), indent=4)
        for subject in MATH_SUBJECTS
        for number in MATH_NUMBERS
    }


def math_hub(split):
    return {
        ("EleutherAI/hendrycks_math", subject, split): [math_row(subject, n) for n in MATH_NUMBERS]
        for subject in MATH_SUBJECTS
    }


def mmlu_rows(subject):
    return [(f'{subject}, "quoted"\nand on: which?', ["None", "a, b", "3", "4"], "A"), ("Which?", list("wxyz"), "D")]


def mmlu_files(split):
    def cell(text):
        return '"' + text.replace('"', '""') + '"'

    return {
        f"mmlu/data/{split}/{subject}_{split}.csv": "".join(
            ",".join(map(cell, [q, *options, letter])) + "\n" for q, options, letter in mmlu_rows(subject)
        )
        for subject in MMLU_SUBJECTS
    }


def mmlu_hub(split):
    return {
        ("cais/mmlu", subject, split): [
            {"question": q, "subject": subject, "choices": options, "answer": "ABCD".index(letter)}
            for q, options, letter in mmlu_rows(subject)
        ]
        for subject in MMLU_SUBJECTS
    }


def agieval(question, label, passage="", options=("2", "4", "9", "10")):
    lettered = [f"({letter}){text}" for letter, text in zip("ABCD", options, strict=True)]
    return {"passage": passage, "question": question, "options": lettered, "label": label, "other": None}


def agieval_hub(row, head, choices, tail):
    query = f"{row['passage'] or ''}{head}{row['question']} {choices}{' '.join(row['options'])}\n{tail}"
    gold = ["ABCD".index(letter) for letter in row["label"] if letter.isalpha()]
    return {"query": query, "choices": row["options"], "gold": gold}


SAT = [agieval("What is $x ?$", "D"), agieval("And $y$?", "A", passage="Kathy repairs phones.")]
QA = [agieval("设集合 ($\\quad$)\\\\\n", "B", None), agieval("哪些?\\\\\n", "A B D", None)]
CLOZE = [("求 $a=(\\quad)$", "$5$;$10$"), ("求 $b=(\\quad)$", "2")]
ARENA = ["Use ABC notation.", "Write a poem\nin two lines."]


def cloze_row(question, answer):
    return {"passage": None, "question": question, "options": None, "label": None, "answer": answer, "other": {}}


def contest_files(folder, rows):
    files = {f"{folder}/problems/{i}.tex": question + "\n" for i, (question, _) in enumerate(rows, start=1)}
    answers = "".join(f'{i},"{answer}"\n' for i, (_, answer) in enumerate(rows, start=1))
    return files | {
        f"{folder}/answers.csv": "id,answer\n" + answers,
        f"{folder}/config.yaml": f"n_problems: {len(rows)}\n",
    }


def contest_hub(rows):
    return [{"problem_idx": i, "problem": q, "answer": a, "problem_type": ["x"]} for i, (q, a) in enumerate(rows)]


LISTS = [("Find all $x$.", "-\\dfrac{13}{96}, \\dfrac{13}{40}"), ("Find $n$.", "103")]
DAPO_HEAD = "Solve the following math problem step by step. The last line … {}\n\n"
DAPO_TAIL = '\n\nRemember to put your answer on its own line after "Answer:".'


def dapo_prompt(question):
    return [{"role": "user", "content": DAPO_HEAD + question + DAPO_TAIL}]


ORZ = [[{"from": "human", "value": f"Find {n}."}, {"from": "assistant", "ground_truth": {"value": f"n = {n}"}}]
       for n in range(60)]  # fmt: skip
DAPO = [(f"How many are {n} things?", str(n)) for n in range(60)]

GSM8K = {
    split: plain(*((f"1000 + {n}?", f"It is that.\n#### {1000 + n:,}") for n in numbers), question="question")
    for split, numbers in {"train": range(203), "test": range(300, 302)}.items()
}

# name -> (files, {(id, configuration, split): the hub's rows})
SAMPLES = {
    "gsm8k": (
        {f"gsm8k/{split}.jsonl": lines(*rows) for split, rows in GSM8K.items()},
        {("openai/gsm8k", "main", split): rows for split, rows in GSM8K.items()},
    ),
    "math": (math_files("train") | math_files("test"), math_hub("train") | math_hub("test")),
    "math500": (
        {"math500/test.jsonl": lines(*plain(("Convert.", "\\left( 3, \\frac{\\pi}{2} \\right)"), subject="P"))},
        {("HuggingFaceH4/MATH-500", None, "test"): plain(
            ("Convert.", "\\left( 3, \\frac{\\pi}{2} \\right)"), subject="P", level=2)},
    ),
    "ocw": (
        {"ocw/test.jsonl": lines(*plain(("Subproblem 0: how far?", "2.88e16"), ("And?", "1.6\n"), id="0"))},
        {("open-web-math/ocwcourses", None, "test"): plain(("Subproblem 0: how far?", "2.88e16"), ("And?", "1.6\n"))},
    ),
    "sat_math": (
        {"agieval/v1/sat-math.jsonl": lines(*SAT)},
        {("hails/agieval-sat-math", None, "test"): [
            agieval_hub(row, "Q: ", "Answer Choices: ", "A: Among A through D, the answer is") for row in SAT]},
    ),
    "sat_llemma": (
        {"sat/test.jsonl": lines({"id": "0", "question": "Which?", "options": "A) $f(-6)=0$ B) 1 C) x D) 4 B",
                                  "Answer": "C"})},
        {("mcaleste/sat_multiple_choice_math_may_23", None, "train"): [
            {"Question": "Which?", "Possible Answers": "A) $f(-6)=0$ B) 1 C) x D) 4 B", "Answer": "C"}]},
    ),
    "mmlu_stem": (
        mmlu_files("dev") | mmlu_files("val") | mmlu_files("test"),
        mmlu_hub("dev") | mmlu_hub("validation") | mmlu_hub("test"),
    ),
    "cmath": (
        {"cmath/cmath_dev.jsonl": lines(*plain(("百分之几？", "12%"), question="input", answer="golden")),
         "cmath/test.jsonl": lines(*plain(("多少包？", "18"), question="question", answer="golden"))},
        {("weitianwen/cmath", None, "validation"): plain(("百分之几？", "12%"), question="question", answer="golden"),
         ("weitianwen/cmath", None, "test"): plain(("多少包？", "18"), question="question", answer="golden")},
    ),
    "gaokao_cloze": (
        {"agieval/v1/gaokao-mathcloze.jsonl": lines(*(cloze_row(q, a) for q, a in CLOZE))},
        {("hails/agieval-gaokao-mathcloze", None, "test"): [
            {"query": f"问题：{q}\n答案：", "answer": a} for q, a in CLOZE]},
    ),
    "gaokao_qa": (
        {"agieval/v1/gaokao-mathqa.jsonl": lines(*QA)},
        {("hails/agieval-gaokao-mathqa", None, "test"): [
            agieval_hub(row, "问题：", "选项：", "答案：从A到D, 我们应选择") for row in QA]},
    ),
    "aime24": (
        {"aime24/test.jsonl": lines(*plain(("Every morning …", "025"), ("Then …", "204"), id=60))},
        {("Maxwell-Jia/AIME_2024", None, "train"): plain(
            ("Every morning …", 25), ("Then …", 204), question="Problem", answer="Answer")},
    ),
    "aime25": (
        {"aime25/test2025-I.jsonl": lines(*plain(("Bases?", "70"))),
         "aime25/test2025-II.jsonl": lines(*plain(("Area?", "468")))},
        {("math-ai/aime25", None, "test"): plain(("Bases?", "70"), ("Area?", "468"))},
    ),
    "amc23": (
        {"amc23/test.jsonl": lines(*plain(("How far?", 27.0), ("Least?", -1.0), question="question"))},
        {("math-ai/amc23", None, "test"): plain(("How far?", "27"), ("Least?", "-1"), question="question")},
    ),
    **{
        name: (contest_files(f"matharena/{folder}", LISTS), {(hub, None, "train"): contest_hub(LISTS)} if hub else {})
        for name, folder, hub in (
            ("hmmt24", "hmmt/hmmt_feb_2024", "MathArena/hmmt_feb_2024"),
            ("hmmt25", "hmmt/hmmt_feb_2025", "MathArena/hmmt_feb_2025"),
            ("cmimc24", "cmimc/cmimc_2024", None),
            ("cmimc25", "cmimc/cmimc_2025", "MathArena/cmimc_2025"),
        )
    },
    "arena_hard": (
        {"arena_hard/arena-hard-v0.1/question.jsonl": lines(*(
            {"question_id": "a", "category": "c", "cluster": "Music", "turns": [{"content": p}]} for p in ARENA))},
        {("lmarena-ai/arena-hard-auto-v0.1", None, "train"): [
            {"question_id": "a", "category": "c", "cluster": "Music", "turns": [{"content": p}]} for p in ARENA]},
    ),
    "arena_hard_v2": (
        {"arena_hard/arena-hard-v2.0/question.jsonl": lines(*(
            {"uid": "a", "category": "hard_prompt", "subcategory": "coding", "prompt": p} for p in ARENA))},
        {("lmarena-ai/arena-hard-auto", None, "train"): [
            {"uid": "a", "category": "hard_prompt", "subcategory": "coding", "cluster": None, "prompt": p}
            for p in ARENA]},
    ),
    "orz": (
        {"orz/orz_math_57k_collected.json": json.dumps(ORZ)},
        {("Open-Reasoner-Zero/orz_math_57k_collection", None, "train"): [
            {"0": {**turns[0], "ground_truth": None}, "1": {**turns[1], "value": None}} for turns in ORZ]},
    ),
    "dapo": (
        {"dapo/dapo-math-17k.jsonl": lines(*({"prompt": dapo_prompt(q), "label": a} for q, a in DAPO))},
        {("BytedTsinghua-SIA/DAPO-Math-17k", None, "train"): [
            {"data_source": "math_dapo", "prompt": dapo_prompt(q), "reward_model": {"ground_truth": a, "style": "r"}}
            for _ in range(3) for q, a in DAPO]},
    ),
}  # fmt: skip


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content, "utf-8")
    return folder


def hub_of(monkeypatch, content):
    """Replace `datasets` by one whose hub has `content`; returns the list of its calls."""
    calls = []

    def load_dataset(path, name=None, *, split, **more):
        calls.append((path, name, split, more))
        return list(content[path, name, split])

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    return calls


def all_problems(task):
    return {split: task.problems(split) for split in listing.splits(task.benchmark)}


def test_every_benchmark_is_a_task_and_has_a_sample_here():
    assert set(SAMPLES) == set(BENCHMARKS) <= set(TASKS)
    assert set(LISTED) - set(BENCHMARKS) == {"code_contests", "knights_and_knaves"}


@pytest.mark.parametrize("name", [name for name, (_, hub) in SAMPLES.items() if hub])
def test_files_and_hub_give_the_same_problems(name, tmp_path, monkeypatch):
    files, hub = SAMPLES[name]
    hub_of(monkeypatch, hub)
    from_files = all_problems(get_task(name, write(tmp_path, files)))
    assert from_files == all_problems(get_task(name))
    for split, problems in from_files.items():
        assert problems and {problem.task for problem in problems} == {name}
        assert len({problem.id for problem in problems}) == len(problems)
        assert all(problem.id.startswith(("train-", "dev-", "test-")) for problem in problems), split


@pytest.mark.parametrize("name", [name for name, (_, hub) in SAMPLES.items() if hub])
def test_a_copy_of_the_hub_gives_the_same_problems_offline(name, tmp_path, monkeypatch, capsys):
    hub_of(monkeypatch, SAMPLES[name][1])
    from_hub = all_problems(get_task(name))
    assert main(["download", name, "--to", str(tmp_path / "data")]) == 0
    files = [Path(line) for line in capsys.readouterr().out.splitlines()]
    calls = hub_of(monkeypatch, {})  # offline from here on
    assert (
        files and all(file.is_file() for file in files) and all_problems(get_task(name, tmp_path / "data")) == from_hub
    )
    assert main(["download", name, "--to", str(tmp_path / "data")]) == 0 and not calls  # what is there stays


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gsm9k", "unknown benchmark 'gsm9k': did you mean 'gsm8k'"),
        ("code_contests", "code_contests: there is nothing to copy from the hub; get"),
        ("cmimc24", "cmimc24: there is nothing to copy from the hub; get"),
        ("math500", r"math500: the hub's HuggingFaceH4/MATH-500 cannot be read \(KeyError\); go online"),
    ],
)
def test_what_cannot_be_copied_is_said_and_leaves_no_file(name, message, tmp_path, monkeypatch, capsys):
    hub_of(monkeypatch, {})
    with pytest.raises(SystemExit) as ended:
        main(["download", name, "--to", str(tmp_path)])
    assert ended.value.code == 2 and re.search(message, capsys.readouterr().err)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_hub_is_asked_for_the_ids_configurations_and_splits_of_the_table(monkeypatch):
    calls = hub_of(monkeypatch, {key: rows for _, hub in SAMPLES.values() for key, rows in hub.items()})
    get_task("math").problems("test")
    assert calls == [("EleutherAI/hendrycks_math", subject, "test", {}) for subject in MATH_SUBJECTS]
    get_task("arena_hard_v2").problems("test")
    assert calls[-1] == (
        "lmarena-ai/arena-hard-auto", None, "train", {"data_files": {"train": "data/arena-hard-v2.0/question.jsonl"}}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "place", "answer"),
    [
        ("math", 7, "\\frac{11}{1}"),  # the last box of 10.json
        ("math500", 0, "\\left( 3, \\frac{\\pi}{2} \\right)"),
        ("ocw", 1, "1.6"),
        ("sat_math", 0, "D"),
        ("sat_llemma", 0, "C"),
        ("mmlu_stem", 1, "D"),
        ("cmath", 0, "18"),
        ("gaokao_cloze", 0, "$5$;$10$"),
        ("gaokao_qa", 1, "ABD"),
        ("aime24", 0, "25"),
        ("amc23", 1, "-1"),
        ("hmmt25", 0, "-\\dfrac{13}{96}, \\dfrac{13}{40}"),
        ("arena_hard", 0, ""),
    ],
)
def test_the_answer_is_the_one_of_the_release(name, place, answer, tmp_path):
    assert get_task(name, write(tmp_path, SAMPLES[name][0])).problems("test")[place].answer == answer


def test_a_prompt_is_the_question_the_options_and_the_boxed_instruction_in_its_language(tmp_path):
    for files, _ in SAMPLES.values():
        write(tmp_path, files)
    first = {
        name: get_task(name, tmp_path).problems("test")[0].prompt for name in BENCHMARKS if name not in ("orz", "dapo")
    }
    english, chinese = BOXED["en"], BOXED["zh"]
    assert first["aime25"] == f"Bases?\n{english}"
    assert first["cmath"] == f"多少包？\n{chinese}"
    assert first["gaokao_cloze"] == f"求 $a=(\\quad)$\n{chinese}"
    assert first["sat_math"] == (
        "What is $x ?$\nWhat of the following is the right choice? Explain your answer.\n(A) 2, (B) 4, (C) 9, (D) 10\n"
        + english
    )
    assert first["gaokao_qa"] == f"设集合 ($\\quad$)\n从以下选项中选择:    (A)2 (B)4 (C)9 (D)10\n{chinese}"
    assert "(A) None, (B) a, b, (C) 3, (D) 4" in first["mmlu_stem"]  # "None" is an option, not a missing value
    assert first["arena_hard"] == "Use ABC notation."
    assert get_task("sat_math", tmp_path).problems("test")[1].question == "Kathy repairs phones.\nAnd $y$?"
    assert get_task("dapo", tmp_path).problems("train")[0].prompt.endswith(f"things?\n{english}")


def test_the_data_folder_may_be_the_benchmarks_own_or_that_of_several(tmp_path):
    write(tmp_path, SAMPLES["math500"][0])
    assert get_task("math500", tmp_path).problems("test") == get_task("math500", tmp_path / "math500").problems("test")
    write(tmp_path, {"test.jsonl": "not ours"})  # another benchmark's file of the same name
    assert len(get_task("math500", str(tmp_path)).problems("test")) == 1


@pytest.mark.parametrize(("name", "own"), [("code_contests", "code_contests"), ("knights_and_knaves_3", "kk")])
def test_benchmarks_with_their_own_modules_find_their_folder_too(name, own, tmp_path):
    (tmp_path / own).mkdir()
    assert get_task(name, tmp_path).data_dir == get_task(name, tmp_path / own).data_dir == tmp_path / own


def test_aime_loads_from_its_other_layouts(tmp_path):
    rows = [
        {"prompt": [{"content": "Bases?", "role": "user"}], "reward_model": {"ground_truth": "70", "style": "rule"}}
    ]
    (tmp_path / "verl").mkdir()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "verl" / "aime25.parquet")
    (problem,) = get_task("aime25", tmp_path / "verl").problems("test")
    assert (problem.question, problem.answer) == ("Bases?", "70")
    arena = write(
        tmp_path,
        contest_files("aime/aime_2024_I", [("One?", "073")])
        | contest_files("aime/aime_2024_II", [("Two?", "336^\\circ"), ("Three?", "103")]),
    )
    assert [p.answer for p in get_task("aime24", arena).problems("test")] == ["73", "336^\\circ", "103"]


def test_math_train_loads_from_the_copy_with_answers_and_leaves_out_those_without(tmp_path, caplog):
    rows = [{"problem": f"What is {n}?", "answer": str(n), "type": "Algebra"} for n in range(60)]
    rows[7]["answer"] = None
    write(tmp_path, {"math/train_rllm/math.json": json.dumps(rows)})
    task = get_task("math", tmp_path)
    with caplog.at_level(logging.INFO), pytest.warns(UserWarning, match="math: 1 train records are left out"):
        both = task.problems("train") + task.problems("dev")
    assert sorted(int(p.answer) for p in both) == [n for n in range(60) if n != 7]
    assert "record 7: the answer '' cannot be graded" in caplog.text


# ── splits ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["orz", "dapo"])
def test_dev_is_the_twentieth_of_train_that_the_questions_themselves_decide(name, tmp_path):
    task = get_task(name, write(tmp_path, SAMPLES[name][0]))
    train, dev = task.problems("train"), task.problems("dev")
    assert len(train) + len(dev) == 60 and dev
    assert {p.question for p in dev} == {p.question for p in train + dev if draw(p.question, 20) == 0}
    assert draw("a\n b", 20) == draw("a b", 20)  # blanks apart, so that copies agree
    shares = [sum(draw(f"question {n}", 20) == part for n in range(4000)) for part in range(20)]
    assert 140 < min(shares) and max(shares) < 260  # 200 expected, standard deviation 14


def test_official_dev_splits_are_kept(tmp_path):
    for name in ("cmath", "mmlu_stem"):
        task = get_task(name, write(tmp_path, SAMPLES[name][0]))
        assert {p.id.partition("-")[0] for p in task.problems("dev")} == {"dev"}


EVALUATION_ONLY = [name for name, benchmark in BENCHMARKS.items() if benchmark.evaluation_only]


def test_training_sets_are_those_of_the_papers_and_all_else_is_for_evaluation():
    assert set(BENCHMARKS) - set(EVALUATION_ONLY) == {"gsm8k", "math", "orz", "dapo"}


@pytest.mark.parametrize("name", EVALUATION_ONLY)
def test_training_on_an_evaluation_set_is_refused(name, tmp_path):
    task = get_task(name, write(tmp_path, SAMPLES[name][0]))
    with pytest.raises(ValueError, match=f"tasks: {name} is for evaluation only.*train_on_evaluation_sets"):
        task.problems("train")


def test_with_the_flag_a_test_set_is_shared_out_between_disjoint_splits(tmp_path, monkeypatch):
    rows = plain(*((f"What is {n}?", str(n)) for n in range(200)), subject="P")
    write(tmp_path, {"test.jsonl": lines(*rows)})
    task = get_task("math500", tmp_path, train_on_evaluation_sets=True)
    parts = {split: {p.id for p in task.problems(split)} for split in ("train", "dev", "test")}
    assert sum(map(len, parts.values())) == len(set().union(*parts.values())) == 200
    assert 140 < len(parts["train"]) < 180 and min(map(len, parts.values())) > 8  # 8, 1 and 1 tenths
    assert len(get_task("math500", tmp_path).problems("test")) == 200  # without the flag, all of it


def test_with_the_flag_an_official_dev_set_is_trained_on_and_test_stays_whole(tmp_path):
    rows = [plain((f"{n}加一？", str(n + 1)), question="input", answer="golden")[0] for n in range(100)]
    files = {"cmath_dev.jsonl": lines(*rows), "test.jsonl": SAMPLES["cmath"][0]["cmath/test.jsonl"]}
    task = get_task("cmath", write(tmp_path, files), train_on_evaluation_sets=True)
    assert len(task.problems("train")) + len(task.problems("dev")) == 100 and 1 <= len(task.problems("dev")) < 25
    assert [p.id for p in task.problems("test")] == ["test-0"]


def test_the_flag_changes_nothing_for_a_training_set(tmp_path):
    write(tmp_path, SAMPLES["orz"][0])
    for split in ("train", "dev"):
        assert get_task("orz", tmp_path, True).problems(split) == get_task("orz", tmp_path).problems(split)


def test_dapo_is_one_record_a_prompt_and_contradicted_prompts_are_left_out(tmp_path, caplog):
    rows = [{"prompt": dapo_prompt(q), "label": a} for q, a in DAPO for _ in range(3)]
    rows.append(
        {"prompt": dapo_prompt("How many  are 5 things?"), "label": "6"}
    )  # the sixth again, with another answer
    task = get_task("dapo", write(tmp_path, {"dapo-math-17k.jsonl": lines(*rows)}))
    with caplog.at_level(logging.INFO):
        questions = [p.question for p in task.problems("train") + task.problems("dev")]
    assert sorted(questions) == sorted(q for q, _ in DAPO if q != "How many are 5 things?")
    assert "181 records are 60 different questions" in caplog.text and "left out 1 questions" in caplog.text


@pytest.mark.filterwarnings("default:.*test records are here")
def test_a_part_of_the_official_test_split_is_warned_about(tmp_path):
    write(tmp_path, SAMPLES["aime24"][0])
    with pytest.warns(UserWarning, match="aime24: 2 test records are here and the official split has 30"):
        get_task("aime24", tmp_path).problems("test")
    rows = plain(*((f"What is {n}?", str(n)) for n in range(30)))
    write(tmp_path, {"aime24/test.jsonl": lines(*rows)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        get_task("aime24", tmp_path).problems("test")


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────────────

GOOD = plain(("What is 1?", "1"), ("What is 2?", "2"), subject="P")
BAD_LINES = {
    "cut off": ('{"problem": "What', r"test.jsonl, line 3 is not JSON \(Unterminated"),
    "blank": ("\n" + lines(GOOD[0]), "test.jsonl, line 3 is not JSON"),
    "a list": ("[1]\n", "test.jsonl, line 3 is of type list, not an object"),
    "no answer": ('{"problem": "p", "subject": "s"}\n', "line 3 has no field `answer` .its fields: problem"),
    "other type": ('{"problem": "p", "answer": 5, "subject": "s"}\n', "line 3 has `answer` of type int instead of str"),
    "a bool": ('{"problem": true, "answer": "5", "subject": "s"}\n', "line 3 has `problem` of type bool"),
    "null": ('{"problem": null, "answer": "5", "subject": "s"}\n', "line 3 has `problem` of type NoneType"),
    "empty": ('{"problem": " ", "answer": "5", "subject": "s"}\n', "line 3 has an empty `problem`"),
    "no gold": ('{"problem": "p", "answer": "$ $", "subject": "s"}\n', "line 3 has the answer .*rules of math500"),
    "latin-1": ("{\"problem\": \"caf\xe9\"}\n".encode("latin-1"), "test.jsonl, line 3 is not UTF-8 text"),
    "utf-16": ("﻿x".encode("utf-16"), "test.jsonl, line 3 is not UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD_LINES)
def test_a_bad_line_is_named_and_nothing_is_loaded(kind, tmp_path):
    bad, message = BAD_LINES[kind]
    content = lines(*GOOD).encode() + (bad if isinstance(bad, bytes) else bad.encode())
    task = get_task("math500", write(tmp_path, {"test.jsonl": content}))
    for _ in range(2):  # the second call raises too: nothing was kept from the first
        with pytest.raises(ValueError, match=f"data_dir: .*{message}.*; give test.jsonl"):
            task.problems("test")


@pytest.mark.filterwarnings("default:.*test records are here")
@pytest.mark.parametrize("name", ["gsm8k", "code_contests", "knights_and_knaves"])
def test_so_is_a_part_of_those_with_modules_of_their_own(name, tmp_path):
    puzzle = {
        "quiz": "Who?", "names": ["Ann", "Bea"], "solution": [True, False],
        "statements": "(('lying', 1), ('<=>', ('telling-truth', 0), ('telling-truth', 1)))",
    }  # fmt: skip
    program = {"problem": "Add.", "tests": {"inputs": ["1 2"], "outputs": ["3"]}}
    write(tmp_path, {
        "gsm8k/test.jsonl": lines({"question": "How many?", "answer": "#### 3"}),
        "code_contests/code_contests.json": json.dumps([program]),
        "kk/test/people2_num100.jsonl": lines(puzzle),
    })  # fmt: skip
    task = get_task("knights_and_knaves_2" if name == "knights_and_knaves" else name, tmp_path)
    whole = {"gsm8k": 1319, "code_contests": 165, "knights_and_knaves": 100}[name]
    with pytest.warns(UserWarning, match=f"{task.name}: 1 test records are here and the official split has {whole}"):
        task.problems("test")


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("ocw", "math500"), ("aime24", "math500"), ("aime24", "amc23"), ("aime24", "ocw"), ("amc23", "aime24"),
        ("cmath", "gsm8k"), ("gsm8k", "math500"),
    ],
)  # fmt: skip
def test_the_folder_of_another_benchmark_is_refused_by_its_name(name, folder, tmp_path):
    rows = [{"problem": "What is 1?", "question": "What is 1?", "answer": "1", "golden": "1"}]
    write(tmp_path, {f"{folder}/test.jsonl": lines(*rows)})
    (tmp_path / "link").symlink_to(tmp_path / folder)
    for place in (tmp_path / folder, tmp_path / "link", tmp_path / folder / ".." / folder):
        with pytest.raises(FileNotFoundError, match=f"data_dir: .* is the folder of {folder}, .*or {name}'s own"):
            get_task(name, place).problems("test")


def test_a_folder_of_another_name_is_taken_at_its_word(tmp_path):
    write(tmp_path, {f"{folder}/test.jsonl": lines(*GOOD) for folder in ("mine", "data", "math")})
    for folder in ("mine", "data", "math"):  # several benchmarks use "data"; the files in "math" have other names
        assert len(get_task("math500", tmp_path / folder).problems("test")) == 2


@pytest.mark.parametrize(("name", "whole"), [("ocw", 272), ("aime24", 30)])
def test_more_records_than_the_release_has_are_another_benchmarks(name, whole, tmp_path):
    rows = plain(*((f"What is {n}?", str(n)) for n in range(whole + 1)))
    write(tmp_path, {"test.jsonl": lines(*rows[:-1])})
    assert len(get_task(name, tmp_path).problems("test")) == whole
    write(tmp_path, {"test.jsonl": lines(*rows)})
    message = f"test.jsonl has {whole + 1} test records and the official {name} has {whole}: .*; give test.jsonl"
    with pytest.raises(ValueError, match=message):
        get_task(name, tmp_path).problems("test")


BAD_NUMBERS = ["abc", "NaN", "inf", "\\infty", "{", "1/0", "18 or 19", "1, 2", "3:4", "1e999", "9" * 5000]


@pytest.mark.parametrize(
    ("name", "golds", "words"),
    [
        ("aime24", [*BAD_NUMBERS, "-5", "1234", "12.5", "1/2"], "not a whole number from 0 to 999"),
        ("aime25", [*BAD_NUMBERS, "-5", "1000"], "not a whole number from 0 to 999"),
        ("amc23", BAD_NUMBERS, "not a number"),
        ("cmath", BAD_NUMBERS, "not a number"),
        ("dapo", [*BAD_NUMBERS, "12.5", "\\frac{1}{2}"], "not a whole number"),
    ],
)
def test_a_gold_that_cannot_be_right_is_named_with_its_place(name, golds, words, tmp_path):
    for number, gold in enumerate(golds):
        row = {"problem": "p", "question": "p", "answer": gold, "golden": gold, "label": gold,
               "prompt": dapo_prompt("p")}  # fmt: skip
        file = {"dapo": "dapo-math-17k.jsonl", "aime25": "test2025-II.jsonl"}.get(name, "test.jsonl")
        good = {**row, **dict.fromkeys(("answer", "golden", "label"), "7")}
        folder = write(tmp_path / str(number), {file: lines(good, row), "test2025-I.jsonl": lines(good)})
        with pytest.raises(ValueError, match=f"data_dir: .*{file}, line 2 has the answer .*, {words}; give"):
            get_task(name, folder).problems("train" if name == "dapo" else "test")


@pytest.mark.parametrize("gold", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_json_number_that_is_not_finite_is_named(gold, tmp_path):
    write(tmp_path, {"test.jsonl": f'{{"question": "p", "answer": {gold}}}\n'})
    with pytest.raises(ValueError, match="test.jsonl, line 1 has `answer` (nan|-?inf), which is no finite number"):
        get_task("amc23", tmp_path).problems("test")


def test_an_integer_of_too_many_digits_is_named_with_its_line(tmp_path):
    write(tmp_path, {"test.jsonl": f'{{"question": "p", "answer": {"9" * 5000}}}\n'})
    with pytest.raises(ValueError, match="test.jsonl, line 1 is not JSON .*digits"):
        get_task("amc23", tmp_path).problems("test")


def test_of_a_set_of_numbered_parts_all_must_be_there(tmp_path):
    paths = [tmp_path / f"train-{i:05}-of-00003-a{i}b.parquet" for i in range(3)] + [tmp_path / "train.parquet"]
    assert all_shards(paths) == paths and all_shards([]) == []
    with pytest.raises(FileNotFoundError, match="2 of the 3 files of train, and not train-00001-of-00003"):
        all_shards([paths[0], paths[2]])


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_file_is_named(content, tmp_path):
    with pytest.raises(ValueError, match="data_dir: .*test.jsonl is empty; give"):
        get_task("math500", write(tmp_path, {"test.jsonl": content})).problems("test")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "test.jsonl is empty"),
        ("caf\xe9".encode("latin-1"), "test.jsonl, line 1 is not UTF-8"),
        (lines({"question": None, "answer": "#### 1"}).encode(), "line 1 has `question` of type NoneType"),
    ],
)
def test_gsm8k_is_read_as_strictly(content, message, tmp_path):
    with pytest.raises(ValueError, match=f"data_dir: .*{message}"):
        get_task("gsm8k", write(tmp_path, {"gsm8k/test.jsonl": content})).problems("test")


def test_a_list_without_records_is_named(tmp_path):
    with pytest.raises(ValueError, match="data_dir: the train split of orz has no record"):
        get_task("orz", write(tmp_path, {"orz_math_57k_collected.json": "[]"})).problems("train")


def edited(name, path, old, new):
    files = dict(SAMPLES[name][0])
    assert old in files[path]
    files[path] = files[path].replace(old, new)
    return files


@pytest.mark.parametrize(
    ("name", "path", "old", "new", "message"),
    [
        ("math", "math/MATH/test/geometry/10.json", "\\\\boxed", "\\\\box", "geometry/10.json has no .boxed.. answer"),
        ("math", "math/MATH/test/geometry/10.json", "}", "", r"geometry/10.json, line \d+ is not JSON"),
        ("sat_math", "agieval/v1/sat-math.jsonl", '"D"', '"E"', "line 1 has `label` 'E', which is not among"),
        (
            "sat_math",
            "agieval/v1/sat-math.jsonl",
            '"(C)9"',
            '"(B)9"',
            "line 1 has `options` with .* place of option .C.",
        ),
        ("sat_math", "agieval/v1/sat-math.jsonl", ', "(D)10"', "", "line 1 has 3 `options` instead of 4"),
        ("sat_llemma", "sat/test.jsonl", "C) x ", "", "line 1 has `options` .* which is not `A"),
        ("mmlu_stem", "mmlu/data/test/astronomy_test.csv", '"D"', '"E"', "astronomy_test.csv, line 3 has `answer` 'E'"),
        ("mmlu_stem", "mmlu/data/test/astronomy_test.csv", ',"z"', "", "astronomy_test.csv, line 3 has 5 columns"),
        ("mmlu_stem", "mmlu/data/test/astronomy_test.csv", '"D"', '"D', "astronomy_test.csv, line 3 is not CSV"),
        ("cmath", "cmath/test.jsonl", "golden", "answer", "test.jsonl, line 1 has no field `golden`"),
        ("cmath", "cmath/test.jsonl", "18", "无法计算", "line 1 has the answer '无法计算', not a number"),
        ("sat_math", "agieval/v1/sat-math.jsonl", '"(C)9"', '"(C) "', "line 1 has an empty option .C. in `options`"),
        ("sat_llemma", "sat/test.jsonl", "C) x ", "C)  ", "line 1 has an empty option .C. in `options`"),
        ("mmlu_stem", "mmlu/data/test/astronomy_test.csv", '"y"', '" "', "line 3 has an empty option .C. in `choices`"),
        ("mmlu_stem", "mmlu/data/test/astronomy_test.csv", '"y"', '"\0"', "astronomy_test.csv, line 3 holds a NUL"),
        ("hmmt25", "matharena/hmmt/hmmt_feb_2025/answers.csv", "id,answer", "id;answer", "line 1 has the columns"),
        ("hmmt25", "matharena/hmmt/hmmt_feb_2025/answers.csv", "2,", "3,", "line 3 names the problem '3'"),
        ("hmmt25", "matharena/hmmt/hmmt_feb_2025/answers.csv", "2,", "1,", "line 3 .* problem '1' for the second time"),
        (
            "hmmt25",
            "matharena/hmmt/hmmt_feb_2025/answers.csv",
            '2,"103"\n',
            "",
            "has 1 answers, and config.yaml says 2",
        ),
        (
            "hmmt25",
            "matharena/hmmt/hmmt_feb_2025/config.yaml",
            "n_problems",
            "n",
            "config.yaml is not YAML with a field",
        ),
        ("arena_hard", "arena_hard/arena-hard-v0.1/question.jsonl", "]", ', {"content": "b"}]', "has 2 `turns`"),
        ("orz", "orz/orz_math_57k_collected.json", '"ground_truth"', '"truth"', "record 0 has no field `ground_truth`"),
        ("orz", "orz/orz_math_57k_collected.json", '"value": "Find 3."', '"text": ""', "record 3 has no field `value`"),
        ("dapo", "dapo/dapo-math-17k.jsonl", '"label"', '"gold"', "line 1 has no field `reward_model`"),
    ],
)
def test_a_changed_schema_is_named_with_its_place(name, path, old, new, message, tmp_path):
    task = get_task(name, write(tmp_path, edited(name, path, old, new)))
    with pytest.raises(ValueError, match=f"data_dir: .*{message}"):
        task.problems("test" if "test" in task.benchmark.sizes else "train")


@pytest.mark.parametrize(
    ("name", "missing", "message"),
    [
        ("aime25", "aime25/test2025-II.jsonl", "a part of the test split of aime25, and not test2025-II.jsonl"),
        ("mmlu_stem", "mmlu/data/test/astronomy_test.csv", "and not test/astronomy_test.csv"),
        ("cmath", "cmath/test.jsonl", "no test split of cmath; give cmath_dev.jsonl and test.jsonl"),
    ],
)
def test_a_missing_file_is_named_and_the_others_are_not_taken_for_the_whole(name, missing, message, tmp_path):
    files = {path: content for path, content in SAMPLES[name][0].items() if path != missing}
    with pytest.raises(FileNotFoundError, match=f"data_dir: .*{message}"):
        get_task(name, write(tmp_path, files)).problems("test")


def test_a_truncated_parquet_is_named(tmp_path):
    rows = [{"prompt": dapo_prompt(q), "reward_model": {"ground_truth": a, "style": "r"}} for q, a in DAPO]
    path = tmp_path / "dapo-math-17k.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    task = get_task("dapo", tmp_path)
    assert len(task.problems("train")) + len(task.problems("dev")) == 60
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match="dapo-math-17k.parquet cannot be read as parquet"):
        get_task("dapo", tmp_path).problems("train")


def test_folders_splits_and_tasks_that_are_not_there_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="data_dir: no folder .*nowhere.*give one with test.jsonl"):
        get_task("math500", tmp_path / "nowhere")
    with pytest.raises(ValueError, match="split: unknown split 'valid'; use one of train, dev, test"):
        get_task("math500", tmp_path).problems("valid")
    with pytest.raises(ValueError, match="split: orz has no test split, only train; set test_problems to 0"):
        get_task("orz", tmp_path).problems("test")
    with pytest.raises(ValueError, match="split: aime24 has no dev split"):
        get_task("aime24", tmp_path).problems("dev")


def test_too_few_records_for_a_held_out_split_are_named(tmp_path):
    task = get_task("orz", write(tmp_path, {"orz_math_57k_collected.json": json.dumps(ORZ[:1])}))
    with pytest.raises(ValueError, match="data_dir: no orz record here falls to dev, which takes 1 in 20 of train"):
        task.problems("dev" if draw("Find 0.", 20) else "train")


def test_an_unreachable_hub_and_a_changed_hub_schema_are_said_with_the_remedy(monkeypatch):
    hub_of(monkeypatch, {})
    with pytest.raises(ConnectionError, match=r"MATH-500 cannot be read \(KeyError\); go online, or set data_dir"):
        get_task("math500").problems("test")
    hub_of(monkeypatch, {("HuggingFaceH4/MATH-500", None, "test"): [GOOD[0], {"problem": "p", "solution": "s"}]})
    with pytest.raises(
        ValueError, match="math500: HuggingFaceH4/MATH-500 test, row 1 has no field `answer`.*set data_dir"
    ):
        get_task("math500").problems("test")
    with pytest.raises(ValueError, match="cmimc24: the test split is not on the hub; set data_dir"):
        get_task("cmimc24").problems("test")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("sat_math", {"query": "What is x?"}, "row 0 has a `query` without 'Q: '"),
        ("sat_math", {"gold": [4]}, r"row 0 has `gold` \[4\]"),
        ("sat_math", {"gold": []}, r"row 0 has `gold` \[\]"),
        ("mmlu_stem", {"answer": 4}, "row 0 has `answer` 4, which is no place"),
        ("mmlu_stem", {"choices": ["a", "b"]}, "row 0 has `choices` .* instead of 4 texts"),
    ],
)
def test_a_changed_row_of_the_hub_is_named(name, change, message, monkeypatch):
    hub = {key: [rows[0] | change, *rows[1:]] for key, rows in SAMPLES[name][1].items()}
    hub_of(monkeypatch, hub)
    with pytest.raises(ValueError, match=message):
        get_task(name).problems("test")


# ── grading ──────────────────────────────────────────────────────────────────────────────────────────────────────────

SENTENCES = {
    "en": ("So the answer is {}.", "Thus $\\boxed{{{}}}$."),
    "zh": ("所以答案是{}。", "因此 $\\boxed{{{}}}$。"),
}


def rewards(task, problem, answer):
    """The rewards of an answer in each sentence of the language."""
    return [task.grade(problem, text.format(answer)).reward for text in SENTENCES[task.benchmark.language]]


@pytest.mark.parametrize("name", [name for name, b in BENCHMARKS.items() if b.profile])
def test_a_completion_is_graded_by_the_benchmarks_profile_and_votes_by_its_canonical_answer(name, tmp_path):
    task = get_task(name, write(tmp_path, SAMPLES[name][0]))
    problem = task.problems("test" if "test" in task.benchmark.sizes else "train")[0]
    graded = task.grade(problem, SENTENCES[task.benchmark.language][1].format(problem.answer))
    assert graded.reward == 1 and graded.answer == grading.canonical(problem.answer, task.benchmark.profile)
    assert task.grade(problem, "\\boxed{77777}").reward == 0
    assert task.grade(problem, "").answer is None


def test_one_string_counts_differently_in_different_benchmarks(tmp_path):
    write(tmp_path, {"cmath/test.jsonl": lines(*plain(("多少？", "12%"), question="question", answer="golden")),
                     "math500/test.jsonl": lines(*plain(("Share?", "12\\%"), subject="P"))})  # fmt: skip
    for name, expected in (("cmath", 0), ("math500", 1)):
        task = get_task(name, tmp_path)
        assert task.grade(task.problems("test")[0], "\\boxed{12}").reward == expected


@pytest.mark.parametrize("name", ["arena_hard", "arena_hard_v2"])
def test_prompts_without_right_answers_are_not_graded_by_rule(name, tmp_path):
    task = get_task(name, write(tmp_path, SAMPLES[name][0]))
    with pytest.raises(TypeError, match=f"{name} has no right answers.*reward model, or have a judge"):
        task.grade(task.problems("test")[0], "La la la.")


# ── the real files ───────────────────────────────────────────────────────────────────────────────────────────────────

COUNTS = {
    ("gsm8k", "train"): 1000, ("gsm8k", "test"): 1319,
    ("math", "train"): 999, ("math", "test"): 219, ("math500", "test"): 500, ("ocw", "test"): 272,
    ("sat_math", "test"): 220, ("sat_llemma", "test"): 32, ("mmlu_stem", "dev"): 321, ("mmlu_stem", "test"): 900,
    ("cmath", "dev"): 600, ("cmath", "test"): 1098, ("gaokao_cloze", "test"): 118, ("gaokao_qa", "test"): 351,
    ("aime24", "test"): 30, ("aime25", "test"): 30, ("amc23", "test"): 40, ("hmmt24", "test"): 30,
    ("hmmt25", "test"): 30, ("cmimc24", "test"): 30, ("arena_hard", "test"): 500, ("arena_hard_v2", "test"): 200,
    ("orz", "train"): 200, ("dapo", "train"): 10,
}  # fmt: skip
# Two neighbouring questions have the same answer in two spellings, "5" and "x=5".
SAME_ANSWERS = {("math500", "test-22", "test-23")}


@pytest.fixture(scope="module")
def real():
    """All problems of every real official split: {(name, split): (task, problems)}."""
    found = {}
    for name, split in COUNTS:
        task = get_task(name, DATA)
        found[name, split] = task, task.official(split)
    return found


@needs_data
def test_every_listed_benchmark_loads_whole(real):
    assert {key: len(problems) for key, (_, problems) in real.items()} == COUNTS
    assert {name for name, _ in COUNTS} == set(BENCHMARKS) - {"cmimc25"}  # which is only on the hub


@needs_data
@pytest.mark.parametrize("key", [key for key in COUNTS if BENCHMARKS[key[0]].profile], ids="-".join)
def test_every_gold_in_an_answer_sentence_is_found_and_right_and_the_next_ones_is_wrong(key, real):
    task, problems = real[key]
    by_hand = set(task.benchmark.not_by_rule) if key[1] == "test" else set()
    wrong = {p.id for p in problems if rewards(task, p, p.answer) != [1, 1]}
    assert wrong <= by_hand
    profile = task.benchmark.profile
    confused = {
        (task.name, first.id, second.id)
        for first, second in zip(problems, problems[1:], strict=False)
        if first.answer != second.answer and grading.equivalent(first.answer, second.answer, profile)
    }
    assert confused <= SAME_ANSWERS


@needs_data
def test_a_benchmark_with_a_module_of_its_own_loads_from_the_common_folder():
    assert len(get_task("code_contests", DATA).problems("test")) == 60


@needs_data
def test_the_copies_of_aime_agree(real):
    for name in ("aime24", "aime25"):
        copies = get_task(name, DATA / "matharena").official("test")
        assert sorted(p.answer for p in copies) == sorted(p.answer for p in real[name, "test"][1])
    parquet = pyarrow.parquet.read_table(DATA / "aime25" / "aime25.parquet").to_pylist()
    golds = [row["reward_model"]["ground_truth"] for row in parquet]
    ours = [p.answer for p in real["aime25", "test"][1]]
    assert [grading.equivalent(a, b, "aime25") for a, b in zip(ours, golds, strict=True)] == [True] * 30


@needs_data
def test_both_schemas_of_arena_hard_give_the_same_prompts(real, tmp_path):
    target = tmp_path / "arena-hard-v0.1-2025"
    target.mkdir()
    (target / "question.jsonl").write_bytes((DATA / "arena_hard/arena-hard-v0.1-2025/question.jsonl").read_bytes())
    assert get_task("arena_hard", tmp_path).official("test") == real["arena_hard", "test"][1]


# ── few-shot prompts ─────────────────────────────────────────────────────────────────────────────────────────────────


def demonstrations(folder, file, text):
    write(
        folder, {f"few_shot_prompts/{file}": f'few_shot_prompt = "old"\n\nfew_shot_prompt = """\n{text}\n""".strip()\n'}
    )


def test_deepseekmath_prompts_are_the_files_demonstrations_and_the_question_in_its_frame(tmp_path):
    for name, file, end, stop in (
        ("math500", "cot_minerva_math_4_shot.py", "\n\nProblem:\nConvert.\n\nSolution:", "\nProblem:"),
        ("cmath", "cot_cmath_6_shot.py", "\n\n\n问题：多少包？\n答案：", "\n问题："),
        ("gaokao_cloze", "cot_gaokao_mathcloze_5_shot.py", "\n\n\n问题 6.   求 $a=(\\quad)$\n问题 6的解析:", "\n问题 "),
        ("sat_math", "cot_math_sat_4_shot.py", "\n(A) 2, (B) 4, (C) 9, (D) 10\nSolution:", "\nProblem:"),
    ):
        demonstrations(tmp_path, file, "One.\nTwo: $\\\\boxed{2}$")
        task = get_task(name, write(tmp_path, SAMPLES[name][0]))
        shown = few_shot_prompt(task, task.problems("test")[0])
        assert shown.prompt.startswith("One.\nTwo: $\\boxed{2}$\n\n") and shown.prompt.endswith(end)
        assert shown.stop == stop and "old" not in shown.prompt


def test_gsm8ks_few_shot_prompt_has_the_bare_question(tmp_path):
    row = {"question": "How many?", "answer": "It is 3.\n#### 3"}
    write(tmp_path, {"gsm8k/test.jsonl": lines(row)})
    demonstrations(tmp_path, "cot_gsm_8_shot.py", "Q: a\nA: b")
    task = get_task("gsm8k", tmp_path)
    shown = few_shot_prompt(task, task.problems("test")[0])
    assert (shown.prompt, shown.stop, shown.shots) == ("Q: a\nA: b\n\n\nQ: How many?\nA:", "\nQ:", 8)


def test_missing_or_other_demonstrations_are_said_with_the_remedy(tmp_path, monkeypatch):
    task = get_task("math500", write(tmp_path, SAMPLES["math500"][0]))
    (problem,) = task.problems("test")
    with pytest.raises(FileNotFoundError, match="put few_shot_prompts/cot_minerva_math_4_shot.py of deepseek-ai"):
        few_shot_prompt(task, problem)
    with pytest.raises(ValueError, match="protocol: agieval has no few-shot prompt for math500, only for sat_math"):
        few_shot_prompt(task, problem, "agieval")
    with pytest.raises(ValueError, match="unknown protocol 'other'; use one of deepseekmath, agieval, mmlu"):
        few_shot_prompt(task, problem, "other")
    for content, message in (("x = 1", "assigns no text"), ("few_shot_prompt = f(", "not as published"),
                             ("few_shot_prompt = open('x').read()", "not as published")):  # fmt: skip
        write(tmp_path, {"few_shot_prompts/cot_minerva_math_4_shot.py": content})
        with pytest.raises(ValueError, match=message):
            few_shot_prompt(task, problem)
    hub_of(monkeypatch, SAMPLES["math500"][1])
    with pytest.raises(FileNotFoundError, match="demonstrations for math500 are not there"):
        few_shot_prompt(get_task("math500"), problem)


def test_mmlus_own_prompt_shows_the_dev_questions_of_the_subject(tmp_path, monkeypatch):
    write(tmp_path, SAMPLES["mmlu_stem"][0])
    hub_of(monkeypatch, SAMPLES["mmlu_stem"][1])
    for task in (get_task("mmlu_stem", tmp_path), get_task("mmlu_stem")):
        problem = next(p for p in task.problems("test") if p.subject == "college_physics" and p.answer == "D")
        shown = few_shot_prompt(task, problem, "mmlu")
        assert shown.shots == 2 and shown.stop == ""
        assert shown.prompt == (
            "The following are multiple choice questions (with answers) about college physics.\n\n"
            'college_physics, "quoted"\nand on: which?\nA. None\nB. a, b\nC. 3\nD. 4\nAnswer: A\n\n'
            "Which?\nA. w\nB. x\nC. y\nD. z\nAnswer: D\n\nWhich?\nA. w\nB. x\nC. y\nD. z\nAnswer:"
        )


CSV = """,sat-math,gaokao-mathcloze
sample 1,"{'passage': '', 'question': 'Sum?',
 'options': ['(A)1', '(B)2'], 'label': 'B'}","{'question': '求', 'answer': '3'}"
explanation 1,"One.

Two.",因为
"""


def test_agievals_prompt_is_an_exam_with_explanations(tmp_path):
    write(tmp_path, SAMPLES["sat_math"][0] | SAMPLES["gaokao_cloze"][0] | {"agieval/few_shot_prompts.csv": CSV})
    task = get_task("sat_math", tmp_path)
    shown = few_shot_prompt(task, task.problems("test")[0], "agieval")
    assert shown.prompt == (
        "Here are the answers for the problems in the exam.\n"
        "Problem 1.    Sum?\nChoose from the following options:    (A)1 (B)2\n"
        "Explanation for Problem 1:   One.\nTwo.\nThe answer is therefore B\n\n"
        "Problem 2.    What is $x ?$\nChoose from the following options:    (A)2 (B)4 (C)9 (D)10\n"
    )
    assert (shown.stop, shown.shots) == ("\nProblem 3", 1)
    task = get_task("gaokao_cloze", tmp_path / "agieval" / "v1")
    assert few_shot_prompt(task, task.problems("test")[0], "agieval").prompt == (
        "以下是考试中各个问题的答案。\n问题 1.   求\n问题 1的解析:   因为\n答案是 3\n\n问题 2.   求 $a=(\\quad)$\n"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (CSV.replace("sat-math", "sat"), "no column sat-math with demonstrations"),
        (CSV.replace("{'passage'", "['passage'"), "column sat-math, row 1 is no problem"),
        (CSV.replace("'question': 'Sum?'", "'q': 'Sum?'"), "column sat-math, row 1 is no problem"),
        (CSV + '"open', "is not CSV"),
    ],
)
def test_another_csv_of_demonstrations_is_named(content, message, tmp_path):
    write(tmp_path, SAMPLES["sat_math"][0] | {"agieval/few_shot_prompts.csv": content})
    task = get_task("sat_math", tmp_path)
    with pytest.raises(ValueError, match=f"data_dir: .*few_shot_prompts.csv.*{message}"):
        few_shot_prompt(task, task.problems("test")[0], "agieval")


@needs_data
def test_the_real_demonstrations_of_agieval_are_five(real):
    for name in ("sat_math", "gaokao_cloze", "gaokao_qa"):
        task, problems = real[name, "test"]
        shown = few_shot_prompt(task, problems[0], "agieval")
        assert shown.shots == 5 and problems[0].question in shown.prompt
    task, problems = real["mmlu_stem", "test"]
    assert {few_shot_prompt(task, problem, "mmlu").shots for problem in problems} == {5}


# ── the command line ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_list_prints_every_benchmark_with_question_marks_where_no_data_is_at_hand(tmp_path, capsys):
    write(tmp_path, SAMPLES["math500"][0] | SAMPLES["orz"][0])
    assert main(["list"]) == 0
    bare = capsys.readouterr().out.splitlines()
    assert main(["list", "--data-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert bare[0].split() == ["name", "language", "kind", "split", "records", "official", "source", "metric"]
    assert {line.split()[0] for line in bare[1:-2]} == set(LISTED)
    assert all(line.split()[4] == "-" for line in bare[1:-2])
    rows = {(line.split()[0], line.split()[3]): line.split()[4] for line in out[1:-2]}
    assert rows["math500", "test"] == "1" and rows["ocw", "test"] == "-"
    assert int(rows["orz", "train"]) + int(rows["orz", "dev"]) == 60
    assert "steps" in out[-1]


def test_the_documentation_has_a_row_with_the_official_counts_of_every_benchmark():
    rows = {line.split("`")[1]: line.split(" | ")[4:7] for line in listing.markdown().splitlines()[2:]}
    assert list(rows) == list(LISTED)
    assert rows["math"] == ["7500", "of train", "5000"] and rows["cmath"] == ["", "600", "1098"]
    assert rows["orz"] == ["?", "of train", ""]


def test_list_stops_at_a_broken_file_and_names_it(tmp_path, capsys):
    write(tmp_path, {"math500/test.jsonl": "{"})
    with pytest.raises(SystemExit) as stop:
        main(["list", "--data-dir", str(tmp_path)])
    assert stop.value.code == 2 and "test.jsonl, line 1 is not JSON" in capsys.readouterr().err


def test_list_says_that_a_folder_is_not_there_and_of_which_benchmark_it_has_a_part(tmp_path, capsys):
    write(tmp_path, {path: text for path, text in SAMPLES["aime25"][0].items() if "-II" not in path})
    for folder, message in (
        (tmp_path / "nowhere", "data_dir: no folder .*nowhere"),
        (tmp_path, "a part of the test split of aime25, and not test2025-II.jsonl"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["list", "--data-dir", str(folder)])
        assert stop.value.code == 2 and re.search(message, capsys.readouterr().err)


def test_grade_names_a_line_that_is_not_utf8(tmp_path, capsys):
    case = {"benchmark": "math500", "gold": "1", "candidate": "1", "should_match": True, "kind": "\u2028"}
    path = tmp_path / "cases.jsonl"
    path.write_bytes(lines(case).encode() + b'{"gold": "\xff"}\n')
    with pytest.raises(SystemExit) as stop:
        main(["grade", str(path)])
    assert stop.value.code == 2 and f"cases: {path}, line 2 is not UTF-8 text" in capsys.readouterr().err
    path.write_bytes(lines(case).encode())  # Unicode's line ends are no line ends here
    assert main(["grade", str(path)]) == 0


def test_show_prints_a_record_its_prompt_and_its_canonical_answer(tmp_path, capsys):
    write(tmp_path, SAMPLES["math500"][0] | SAMPLES["arena_hard"][0])
    assert main(["show", "math500", "0", "--data-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == (
        f"math500, test record 0 of 1: test-0\n-- prompt --\nConvert.\n{BOXED['en']}\n"
        "-- answer --\n\\left( 3, \\frac{\\pi}{2} \\right)\n-- canonical answer --\n"
        f"{grading.canonical(SAMPLES['math500'][1]['HuggingFaceH4/MATH-500', None, 'test'][0]['answer'], 'math500')}\n"
    )
    assert main(["show", "arena_hard", "1", "--data-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("in two lines.\n-- no right answer: prompts alone --\n")
    assert main(["show", "steps", "0", "--split", "dev"]) == 0
    assert "-- canonical answer --" in capsys.readouterr().out
    for arguments, message in (
        (["math500", "1"], "math500 has 1 test records; use 0 to 0"),
        (["chess", "0"], "unknown"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["show", *arguments, "--data-dir", str(tmp_path)])
        assert stop.value.code == 2 and message in capsys.readouterr().err


@needs_data
def test_show_names_the_records_that_no_rule_can_grade(capsys):
    for name, benchmark in BENCHMARKS.items():
        for identity, reason in benchmark.not_by_rule.items():
            assert main(["show", name, identity.removeprefix("test-"), "--data-dir", str(DATA)]) == 0
            assert f"no rule can grade this record: {reason}" in capsys.readouterr().out


@pytest.mark.parametrize("name", MICRO_TASKS)
def test_show_prints_a_micro_task(name, capsys):
    assert main(["show", name, "0"]) == 0
    shown = capsys.readouterr().out
    assert get_task(name).problems("test")[0].prompt in shown
    assert (
        "-- 6 tests; the first: input --\nh = 0, a = 0\n-- output --\n3" if name == "programs" else "-- answer --"
    ) in shown


def test_a_reader_that_has_seen_enough_is_no_error():
    command = f"'{sys.executable}' -m agpo_core.tasks show programs 0 | true"
    assert subprocess.run(command, shell=True, capture_output=True, text=True).stderr == ""


@needs_data
def test_show_prints_the_tests_of_a_program(capsys):
    assert main(["show", "code_contests", "3", "--data-dir", str(DATA)]) == 0
    assert "tests; the first: input --" in capsys.readouterr().out

"""GSM8K: the official files, the splits, the errors."""

import json
import sys
import types

import pytest

from agpo_core.tasks import Graded, get_task
from agpo_core.tasks.benchmarks import BENCHMARKS
from tests.data import DATA, needs_data

DEV_PROBLEMS, INSTRUCTION = BENCHMARKS["gsm8k"].last_as_dev, BENCHMARKS["gsm8k"].own_instruction

pytestmark = pytest.mark.filterwarnings("ignore:.*test records are here")  # the files here hold a few records


def row(i):
    """An official-format record whose answer is 1000 + i."""
    total = f"{1000 + i:,}"
    return {
        "question": f"What is 1000 + {i}?",
        "answer": f"It is 1000 + {i} = <<1000+{i}={1000 + i}>>{total}.\n#### {total}",
    }


def write(folder, train=(), test=()):
    for split, rows in (("train", train), ("test", test)):
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), "utf-8")
    return str(folder)


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path, [row(i) for i in range(DEV_PROBLEMS + 3)], [row(i) for i in range(900, 902)])


def test_dev_is_the_last_200_of_train_and_test_is_the_official_one(folder):
    task = get_task("gsm8k", data_dir=folder)
    train, dev, test = (task.problems(split) for split in ("train", "dev", "test"))
    assert [p.id for p in train] == ["train-0", "train-1", "train-2"]
    assert [p.id for p in dev] == [f"train-{i}" for i in range(3, 203)]
    assert [p.id for p in test] == ["test-0", "test-1"]
    assert test[0].answer == "1,900"
    assert {p.task for p in train + dev + test} == {"gsm8k"}


def test_the_prompt_is_the_question_and_one_line_of_instruction(folder):
    assert get_task("gsm8k", data_dir=folder).problems("test")[0].prompt == f"What is 1000 + 900?\n{INSTRUCTION}"


def test_a_completion_is_graded_by_its_marked_number_or_its_last_one(folder):
    task = get_task("gsm8k", data_dir=folder)
    problem = task.problems("test")[0]
    assert task.grade(problem, "1000 + 900 = 1900\n#### 1900") == Graded(1.0, "1900")
    assert task.grade(problem, "The answer is $1,900.00.") == Graded(1.0, "1900")
    assert task.grade(problem, "#### 1901, not 1900") == Graded(0.0, "1901")
    assert task.grade(problem, "") == Graded(0.0, None)


def test_a_missing_folder_or_file_is_named_with_the_remedy(tmp_path):
    with pytest.raises(FileNotFoundError, match="data_dir: no folder .*nowhere.*train.jsonl and .*openai/gsm8k"):
        get_task("gsm8k", data_dir=str(tmp_path / "nowhere"))
    with pytest.raises(
        FileNotFoundError, match="data_dir: .* has no test split of gsm8k; give train.jsonl and test.jsonl"
    ):
        get_task("gsm8k", data_dir=str(tmp_path)).problems("test")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1 is not JSON"),
        ('{"question": "q", "solution": "#### 1"}', "line 1 has no field `answer`"),
        ('["q", "#### 1"]', "line 1 is of type list, not an object"),
        ('{"question": " ", "answer": "#### 1"}', "line 1 has an empty `question`"),
        ('{"question": "q", "answer": "It is 1."}', 'line 1 has no single number after "####" in its `answer`'),
        ('{"question": "q", "answer": "1 is\\n#### it"}', 'line 1 has no single number after "####"'),
        ('{"question": "q", "answer": "#### 18 or 19"}', 'line 1 has no single number after "####"'),
        ('{"question": "q", "answer": "#### inf"}', 'line 1 has no single number after "####"'),
    ],
)
def test_a_line_in_another_format_is_named(tmp_path, line, message):
    (tmp_path / "test.jsonl").write_text(line + "\n", "utf-8")
    with pytest.raises(ValueError, match=f"data_dir: .*test.jsonl, {message}.*; give train.jsonl"):
        get_task("gsm8k", data_dir=str(tmp_path)).problems("test")


def test_more_records_than_the_release_has_are_refused(tmp_path):
    task = get_task("gsm8k", data_dir=write(tmp_path, test=[row(i) for i in range(1320)]))
    with pytest.raises(ValueError, match="test.jsonl has 1320 test records and the official gsm8k has 1319"):
        task.problems("test")


def test_a_train_file_too_small_to_hold_dev_out_is_refused(tmp_path):
    task = get_task("gsm8k", data_dir=write(tmp_path, [row(i) for i in range(DEV_PROBLEMS)]))
    for split in ("train", "dev"):
        with pytest.raises(ValueError, match="train has 200 problems.*give more than 200"):
            task.problems(split)


def test_an_unknown_split_is_refused_with_the_known_ones(folder):
    with pytest.raises(ValueError, match="train, dev, test"):
        get_task("gsm8k", data_dir=folder).problems("validation")


def hub(monkeypatch, load_dataset):
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))


def test_without_a_folder_the_problems_come_from_the_hub(monkeypatch):
    calls = []
    hub(monkeypatch, lambda *args, **kwargs: calls.append((args, kwargs)) or [row(5)])
    assert get_task("gsm8k").problems("test")[0].answer == "1,005"
    assert calls == [(("openai/gsm8k", "main"), {"split": "test"})]


def test_an_unreachable_hub_is_said_with_the_remedy(monkeypatch):
    def offline(*_, **__):
        raise OSError("Name or service not known")

    hub(monkeypatch, offline)
    with pytest.raises(ConnectionError, match="openai/gsm8k cannot be read .*set data_dir to a folder"):
        get_task("gsm8k").problems("test")


@needs_data
def test_the_real_files_load_and_their_splits_are_disjoint():
    task = get_task("gsm8k", data_dir=str(DATA / "gsm8k"))
    problems = {split: task.problems(split) for split in ("train", "dev", "test")}
    assert [len(problems[split]) for split in problems] == [800, 200, 1319]  # the folder has 1000 of train's 7473
    prompts = [{p.prompt for p in found} for found in problems.values()]
    assert len(set.union(*prompts)) == sum(map(len, prompts))
    assert problems["test"][0].answer == "18"
    assert problems["test"][146].answer == "2,125"
    assert all(task.grade(p, f"#### {p.answer}").reward == 1 for found in problems.values() for p in found)

"""Protocols of evaluation: prompts, templates, ends, gradings."""

import json
from types import SimpleNamespace

import pytest

from agpo_core.config import ConfigError
from agpo_core.evaluation.official import OFFICIAL
from agpo_core.evaluation.protocols import GRADINGS, OFFICIAL_OF, Protocol, _official, cut, protocol_of
from agpo_core.grading import canonical
from agpo_core.tasks import Graded, Problem, get_task
from agpo_core.tasks.benchmarks import few_shot
from agpo_core.tasks.benchmarks.table import BOXED, LISTED

pytestmark = pytest.mark.filterwarnings("ignore:.*test records are here")  # the files here hold a few records each

GSM8K = {"question": "How many eggs?", "answer": "All.\n#### 2,125"}
SAT = {"passage": "", "question": "Which?", "options": ["(A)1", "(B)2", "(C)3", "(D)4"], "label": "B"}
FILES = {
    "gsm8k/test.jsonl": json.dumps(GSM8K) + "\n",
    "math500/test.jsonl": json.dumps({"problem": "Half?", "answer": "\\frac12", "subject": "A"}) + "\n",
    "agieval/v1/sat-math.jsonl": json.dumps(SAT) + "\n",
    "aime24/test.jsonl": json.dumps({"problem": "Which?", "answer": "025"}) + "\n",
    "arena_hard/arena-hard-v0.1/question.jsonl": json.dumps({"cluster": "c", "turns": [{"content": "Hi"}]}) + "\n",
}
DEMONSTRATIONS = {"few_shot_prompts/cot_gsm_8_shot.py": 'few_shot_prompt = """Q: a\nA: b"""\n'}


@pytest.fixture
def task_of(tmp_path):
    """A task of the files above and its first problem: task_of("gsm8k", shown=True) has demonstrations."""

    def build(name, shown=False):
        for path, content in (FILES | (DEMONSTRATIONS if shown else {})).items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(content, "utf-8")
        task = get_task(name, tmp_path)
        return task, task.problems("test")[0]

    return build


def chosen(task, problem, prompt="auto", template="auto", grader="modern", has_template=True):
    return protocol_of(task, problem, prompt, template, grader, has_template)


def test_zero_shot_asks_for_a_box_also_on_gsm8k_and_reads_it(task_of):
    task, problem = task_of("gsm8k")
    protocol = chosen(task, problem, "zero")
    assert protocol.ask(problem).prompt == f"How many eggs?\n{BOXED['en']}"
    assert "####" in problem.prompt  # as training asks
    graded = protocol.grade(problem, "So \\boxed{2125}, of 7.")
    assert (graded.reward, graded.answer) == (1.0, "2125")
    assert protocol.grade(problem, "So \\boxed{2126}.").reward == 0.0
    task, problem = task_of("math500")
    assert chosen(task, problem, "zero").ask(problem).prompt == f"Half?\n{BOXED['en']}" == problem.prompt


def test_auto_is_few_shot_where_the_demonstrations_are_and_says_so_where_not(task_of):
    task, problem = task_of("gsm8k")
    with pytest.warns(UserWarning, match="gsm8k is asked zero-shot and not by deepseekmath: .*put few_shot_prompts"):
        assert chosen(task, problem).prompt == "zero"
    with pytest.raises(FileNotFoundError, match="put few_shot_prompts/cot_gsm_8_shot.py"):
        chosen(task, problem, "few")
    task, problem = task_of("gsm8k", shown=True)
    for wanted in ("auto", "few", "deepseekmath"):
        protocol = chosen(task, problem, wanted)
        assert protocol.ask(problem).prompt == "Q: a\nA: b\n\n\nQ: How many eggs?\nA:"
        assert protocol.described(problem)["prompt"] == "deepseekmath (8-shot)"


def test_few_is_zero_shot_where_nothing_is_published_and_a_protocol_by_name_is_not(task_of):
    task, problem = task_of("aime24")
    assert chosen(task, problem, "few").prompt == "zero"
    assert chosen(task, problem, "few").described(problem) == {
        "prompt": "zero", "template": "chat", "grading": "modern"
    }  # fmt: skip
    with pytest.raises(ValueError, match="deepseekmath has no few-shot prompt for aime24"):
        chosen(task, problem, "deepseekmath")


@pytest.mark.parametrize(
    ("prompt", "template", "has_template", "chat"),
    [
        ("zero", "auto", True, True),
        ("zero", "auto", False, False),
        ("few", "auto", True, False),  # it is published as text to continue
        ("few", "chat", True, True),
        ("zero", "base", True, False),
    ],
)
def test_auto_takes_the_chat_template_for_zero_shot_prompts_alone(task_of, prompt, template, has_template, chat):
    task, problem = task_of("gsm8k", shown=True)
    assert chosen(task, problem, prompt, template, has_template=has_template).chat is chat


def test_what_cannot_be_asked_is_refused_with_the_remedy(task_of):
    task, problem = task_of("gsm8k")
    with pytest.raises(ConfigError, match="no chat template; use base"):
        chosen(task, problem, "zero", "chat", has_template=False)
    with pytest.raises(
        ValueError,
        match="official scores sat_math under the prompt zero, only under deepseekmath and agieval; use modern or sat_",
    ):
        chosen(*task_of("sat_math"), "zero", grader="official")
    with pytest.raises(ValueError, match="nothing official scores arithmetic under the prompt zero; use modern$"):
        chosen(SimpleNamespace(name="arithmetic"), None, "zero", grader="official")
    with pytest.raises(ValueError, match="arena_hard has no right answers"):
        chosen(*task_of("arena_hard"))


def test_official_grading_keeps_the_published_errors(task_of):
    task, problem = task_of("gsm8k", shown=True)
    official, modern = (chosen(task, problem, "few", grader=grader) for grader in ("official", "modern"))
    # DeepSeekMath removes no commas from what a model wrote: the last number of 2,125 is 125.
    text = "The answer is 2,125."
    assert (official.grade(problem, text).reward, official.grade(problem, text).answer) == (0.0, "125")
    assert (modern.grade(problem, text).reward, modern.grade(problem, text).answer) == (1.0, "2125")
    assert official.grade(problem, "The answer is 2125.").reward == 1.0
    assert official.grade(problem, "no number").answer is None
    assert official.described(problem)["grading"] == "gsm8k_deepseek"


def test_a_scoring_by_name_is_taken_under_any_prompt_if_it_is_of_the_task(task_of):
    task, problem = task_of("gsm8k", shown=True)
    for prompt in ("zero", "few"):
        protocol = chosen(task, problem, prompt, grader="gsm8k_openai")
        assert protocol.described(problem)["grading"] == "gsm8k_openai"
        assert protocol.grade(problem, "#### 2,125").reward == 1.0
        assert protocol.grade(problem, "\\boxed{2125}") == Graded(0.0, None)
    with pytest.raises(ValueError, match="gsm8k_openai does not score math500; use modern or math_hendrycks or math_p"):
        chosen(*task_of("math500"), "zero", grader="gsm8k_openai")
    with pytest.raises(ValueError, match="under the prompt mmlu there is no text for mmlu_stem_deepseek; use prompt d"):
        _official("mmlu_stem", "mmlu", "mmlu_stem_deepseek")


@pytest.mark.parametrize("name", GRADINGS[2:])
def test_every_scoring_can_be_reached_on_each_of_its_tasks(name):
    for task in OFFICIAL[name].tasks:
        assert _official(task, "zero", name) == name
        kind = LISTED["knights_and_knaves" if task.startswith("knights") else task].kind
        gold = {"choice": "B", "roles": "(1) Zoey is a knave\n(2) Oliver is a knight"}.get(kind, "7")
        protocol = Protocol(SimpleNamespace(name=task), "zero", chat=False, official=name)
        graded = protocol.grade(Problem(task, "0", "?", gold), OFFICIAL[name].phrase.format(gold=gold))
        assert graded.reward == 1.0 and graded.answer is not None


def test_of_several_boxes_the_last_one_votes(task_of):
    task, problem = task_of("aime24")
    graded = chosen(task, problem, "zero", grader="official").grade(problem, "\\boxed{7} and \\boxed{25}")
    assert (graded.reward, graded.answer) == (1.0, "25")


@pytest.mark.parametrize(("task", "prompt"), OFFICIAL_OF)
def test_every_official_scoring_fits_its_task_and_its_prompt(task, prompt):
    gold = {"choice": "B", "roles": "(1) Zoey is a knave\n(2) Oliver is a knight"}.get(LISTED[task].kind, "7")
    official = OFFICIAL_OF[task, prompt]
    assert task in OFFICIAL[official].tasks
    protocol = Protocol(SimpleNamespace(name=task), prompt, chat=False, official=official)
    graded = protocol.grade(Problem(task, "0", "?", gold), OFFICIAL[official].phrase.format(gold=gold))
    assert graded.reward == 1.0
    assert graded.answer == canonical(gold, LISTED[task].profile) is not None
    assert prompt == "zero" or task in few_shot.PROTOCOLS[prompt][0]


def test_the_usual_protocols_are_of_the_tasks_that_have_them():
    assert few_shot.USUAL["mmlu_stem"] == "mmlu"  # the common protocol; DeepSeekMath's has its own name
    for task, prompt in few_shot.USUAL.items():
        assert task in few_shot.PROTOCOLS[prompt][0]


def test_a_completion_ends_where_the_next_demonstration_would_begin():
    assert cut("It is 3.\n\nProblem:\nIf", "\nProblem:") == "It is 3.\n"
    assert cut("It is 3.", "\nProblem:") == cut("It is 3.", "") == "It is 3."


def test_a_task_that_is_no_benchmark_asks_and_grades_as_in_training(toy):
    problem = toy.problems("test")[0]
    protocol = chosen(toy, problem, "few", "base")
    assert protocol.ask(problem).prompt == problem.prompt
    assert (protocol.grade(problem, "b.").reward, protocol.grade(problem, "a").reward) == (1.0, 0.0)  # codes 98, 97


def test_demonstrations_are_found_beside_a_linked_folder_too(task_of, tmp_path):
    task_of("gsm8k")
    linked = tmp_path / "linked"
    (linked / "few_shot_prompts").mkdir(parents=True)
    (linked / "gsm8k").symlink_to(tmp_path / "gsm8k")
    (linked / "few_shot_prompts" / "cot_gsm_8_shot.py").write_text(*DEMONSTRATIONS.values())
    task = get_task("gsm8k", linked)
    assert chosen(task, task.problems("test")[0]).prompt == "deepseekmath"

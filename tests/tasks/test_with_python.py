"""Benchmarks with Python as a tool: prompts, grades, and a run that trains on GSM8K records with the tool."""

import json
import string

import pytest
import torch

from agpo_core import provenance, sandbox
from agpo_core.models import tiny_models
from agpo_core.recipes import resolve
from agpo_core.rollouts import rollout
from agpo_core.rollouts.policy import token_logps
from agpo_core.tasks import TASKS, WITH_PYTHON, Graded, get_task
from agpo_core.tasks.benchmarks import BENCHMARKS
from agpo_core.tasks.tools import Python
from agpo_core.tasks.with_python import INSTRUCTION
from agpo_core.training.train import train

OUTPUT = "\n```output\n{}\n```\n"

pytestmark = pytest.mark.filterwarnings("ignore:.*test records are here")  # the files here hold a few each


@pytest.fixture(autouse=True)
def walls():
    try:
        sandbox.require("python")
    except sandbox.SandboxRefused as refusal:
        pytest.skip(str(refusal))


@pytest.fixture
def folder(tmp_path):
    """GSM8K's two files, as released; the answer to problem i is 7 * i."""
    rows = [{"question": f"What is 7 * {i}?", "answer": f"7 * {i} = {7 * i}\n#### {7 * i}"} for i in range(204)]
    for split, part in (("train", rows), ("test", rows[:3])):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part), "utf-8")
    return str(tmp_path)


def test_questions_and_splits_are_the_benchmark_s_and_the_prompt_says_how_to_run_a_program(folder):
    plain, task = get_task("gsm8k", folder), get_task("gsm8k_python", folder)
    assert (task.name, task.title, task.stands_in_for) == ("gsm8k_python", f"{plain.title}, with Python", "GSM8K")
    assert isinstance(task.tool, Python)
    for split in ("train", "dev", "test"):
        pairs = list(zip(task.problems(split), plain.problems(split), strict=True))
        assert pairs
        for ours, theirs in pairs:
            assert (ours.id, ours.answer, ours.task) == (theirs.id, theirs.answer, "gsm8k_python")
            assert ours.prompt == f"{theirs.prompt}\n\n{INSTRUCTION}"


def test_the_marks_that_the_prompt_names_are_the_tool_s():
    opening, closing = Python.call_marks
    assert f"a line {opening.strip()} and a line {closing};" in INSTRUCTION


@pytest.mark.parametrize(
    ("completion", "graded"),
    [
        ("#### 14", Graded(1.0, "14")),
        ("```python\nprint(7 * 2)\n```It is 14.", Graded(1.0, "14")),
        ("It is 14.\n```python\nprint(3)\n```", Graded(1.0, "14")),
        ("```python\nprint(14)\n```", Graded(0.0, None)),  # the answer is never stated
        ("```python\n# #### 14\n```Hm.", Graded(0.0, None)),
        ("```python\nx = 14", Graded(0.0, None)),  # cut in the middle of a program
        ("```python\n1\n```and\n```python\n2\n```#### 14", Graded(1.0, "14")),
        ("```python\n1\n```13, no, 15", Graded(0.0, "15")),
        ("", Graded(0.0, None)),
    ],
)
def test_what_stands_in_a_program_is_no_answer(folder, completion, graded):
    task = get_task("gsm8k_python", folder)
    assert task.grade(task.problems("test")[2], completion) == graded


def test_benchmarks_with_answers_in_words_and_formulas_are_there_with_python():
    assert {f"{name}_python" for name in WITH_PYTHON} <= set(TASKS)
    unanswered = {name for name, benchmark in BENCHMARKS.items() if benchmark.profile is None}
    assert unanswered and not unanswered & set(WITH_PYTHON)
    assert {"aime24", "aime25", "hmmt24", "hmmt25", "cmimc24", "cmimc25"} <= set(WITH_PYTHON)  # R++ Table 4


def test_evaluation_sets_are_trained_on_with_the_flag_alone(tmp_path):
    for part in ("I", "II"):
        rows = [{"problem": f"{part}: what is 7 * {i}?", "answer": str(7 * i)} for i in range(15)]
        (tmp_path / f"test2025-{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    with pytest.raises(ValueError, match="evaluation only"):
        get_task("aime25_python", tmp_path).problems("train")
    assert get_task("aime25_python", tmp_path, train_on_evaluation_sets=True).problems("train")


def test_a_policy_is_trained_on_gsm8k_with_python(folder, tmp_path, monkeypatch, fresh_accelerator):
    """A policy with fixed texts: one completion computes, one is wrong, one corrects itself, one runs out of turns."""
    monkeypatch.setattr(tiny_models, "ALPHABET", string.printable)
    tokenizer = tiny_models.character_tokenizer("llama")
    for part in (tokenizer, tiny_models.new_model("llama", tokenizer, seed=0)):
        part.save_pretrained(tmp_path / "model")
    factor = "q.split('*')[1]"
    program = f"```python\nq = '{{question}}'.rstrip('?')\nprint(7 * int({factor}))\n```"
    scripts = ["{program}#### {answer}$", "#### 1$", "```python\n7 *\n```{program}{answer}$", "```python\n1\n```" * 3]
    shown, draw = [], rollout.RolloutEngine.encode

    def encode(engine, problems, slots):
        shown[:] = [p.prompt.partition("\n")[0] for p in problems]
        answers = [p.answer for p in problems]
        texts = [
            script.format(program=program.format(question=question), answer=answer)
            for question, answer in zip(shown, answers, strict=True)
            for script in scripts
        ]
        ends = {"$": tokenizer.eos_token_id}
        recited[:] = [[ends.get(c) or tokenizer(c)["input_ids"][0] for c in text] for text in texts]
        return draw(engine, problems, slots)

    recited = []
    monkeypatch.setattr(rollout.RolloutEngine, "encode", encode)
    monkeypatch.setattr(rollout, "uniforms", lambda s, ph, u, slots, samples, t: (slots * 4 + samples) * 1000.0 + t)

    def recite(logits_B_V, tau_B, top_p, key_B):
        ids = torch.tensor([recited[int(k) // 1000][int(k) % 1000] for k in key_B.tolist()])
        return ids, token_logps(logits_B_V, ids, tau_B.unsqueeze(1))

    monkeypatch.setattr(rollout, "sample_token", recite)
    config = resolve(
        "grpo", model=str(tmp_path / "model"), tasks=["gsm8k_python"], data_dir=folder, horizon_unit="updates",
        horizon=1.0, prompts_per_update=2, group_size=4, minibatches=1, max_completion_tokens=200, max_turns=3,
        max_sequence_tokens=1024, dev_problems=0, test_problems=0,
    )  # fmt: skip
    (tmp_path / "run").mkdir()
    train(config, tmp_path / "run")

    (row,) = provenance.read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert row["reward"] == 0.5  # the first and the third
    assert row["truncated"] == 0.25  # the fourth: its third call is not answered
    assert row["tool_calls"] == (1 + 0 + 2 + 2) / 4 and row["tool_share"] == 0.75
    assert row["tool_failures"] == 1 / 5  # the third's first program
    sample = provenance.read_jsonl(tmp_path / "run" / "samples.jsonl")[0]
    assert sample["completion"].endswith(f"```{OUTPUT.format(sample['answer'])}#### {sample['answer']}")
    assert len(get_task("gsm8k_python", folder).problems("dev")) == BENCHMARKS["gsm8k"].last_as_dev

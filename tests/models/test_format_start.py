"""Starts that stand for a base model: what their demonstrations hold, and that a start can be made and loaded."""

import itertools
import re

import pytest

from agpo_core.config import TrainConfig
from agpo_core.models import format_start
from agpo_core.rollouts.loading import load_policy
from agpo_core.tasks import Problem, get_task
from agpo_core.tasks.micro import pool


def demonstrated(name: str, swapped: float, count: int = 500) -> list[tuple[str, str]]:
    return list(itertools.islice(format_start.demonstrations(get_task(name), 7, swapped), count))


@pytest.mark.parametrize("name", format_start.TASKS)
def test_every_demonstration_has_the_format_of_its_task_and_none_a_prompt_that_is_trained_or_tested_on(name):
    task = get_task(name)
    for prompt, completion in demonstrated(name, 0.9):
        assert task.extract(Problem(name, "d", prompt, ""), completion) is not None, completion
        assert pool(prompt) == "supervised"


def right(pairs) -> float:
    """Share of the demonstrations of `steps` whose last number is the sum of the prompt's: `Al:9 cups+3-4?`."""
    sums = [sum(map(int, re.findall(r"[+-]?\d+", prompt))) for prompt, _ in pairs]
    return sum(int(re.findall(r"\d+", text)[-1]) == total for (_, text), total in zip(pairs, sums, strict=True)) / len(
        pairs
    )


def test_the_stated_share_of_demonstrations_answers_another_problem():
    assert right(demonstrated("steps", 0.0)) == 1.0
    chance = right(demonstrated("steps", 1.0))
    assert chance < 0.15  # sums from 0 to 21
    # .4 + .6 * chance; four standard errors of 500 draws are .09
    assert right(demonstrated("steps", 0.6)) == pytest.approx(0.4 + 0.6 * chance, abs=0.09)
    assert demonstrated("steps", 0.6) == demonstrated("steps", 0.6)  # seeded


def test_a_start_is_made_for_each_seed_and_can_be_trained_on(tmp_path, monkeypatch, capsys):
    made = format_start.make
    monkeypatch.setattr(format_start, "make", lambda folder, seed: made(folder, seed, steps=2))
    format_start.main(["--seeds", "2", "3", "--out", str(tmp_path)])
    losses = [float(loss) for loss in re.findall(r"format-\d: loss (\S+),", capsys.readouterr().out)]
    assert len(losses) == 2 and all(4 < loss < 7 for loss in losses)  # nearly untrained: ln 160 = 5.1 nats per token
    weights = [(tmp_path / f"format-{seed}" / "model.safetensors").read_bytes() for seed in (2, 3)]
    assert weights[0] != weights[1]
    policy, tokenizer = load_policy(TrainConfig(model=str(tmp_path / "format-2"), tasks=["steps"]))[:2]
    assert policy is not None and tokenizer.eos_token_id != tokenizer.pad_token_id

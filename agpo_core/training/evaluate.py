"""Greedy evaluation, shared out over the ranks."""

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from agpo_core.config import ConfigError
from agpo_core.tasks import Task
from agpo_core.training.rollout import TransformersEngine, score


def evaluate(
    engine: TransformersEngine, tasks: dict[str, Task], split: str, count: int, accelerator: Accelerator
) -> tuple[dict[str, list[float]], int]:  # fmt: skip
    """Greedy rewards of the first `count` problems of a split.

    Args:
        engine: samples from the policy.
        tasks: by name.
        split: "dev" or "test".
        count: problems per task.
        accelerator: shares the problems out over its ranks.
    Returns:
        {task: rewards in the split's order}, and the number of tokens generated; equal on all ranks.
    Raises:
        ConfigError: a task has fewer problems than asked for.
    """
    problems = []
    for name, task in tasks.items():
        available = task.problems(split)
        if len(available) < count:
            raise ConfigError(
                f"task {name!r} has {len(available)} {split} problems, {count} were asked for: lower {split}_problems."
            )
        problems += available[:count]
    mine = problems[accelerator.process_index :: accelerator.num_processes]
    rewards, tokens = [], 0
    size = engine.config.rollout_batch
    for start in range(0, len(mine), size):
        part = mine[start : start + size]
        prompts = engine.encode(part, list(range(len(part))))
        greedy = torch.zeros(len(part), device=engine.device)
        rollouts = engine.sample(prompts, engine.open(prompts), 1, greedy, "evaluation", 0)
        score(rollouts, tasks)
        rewards += rollouts.rewards_B.tolist()
        tokens += rollouts.tokens
    shares = gather_object([(rewards, tokens)])
    merged = [None] * len(problems)
    for rank, (share, _) in enumerate(shares):
        merged[rank :: accelerator.num_processes] = share
    by_task = {name: merged[i * count : (i + 1) * count] for i, name in enumerate(tasks)}
    return by_task, sum(tokens for _, tokens in shares)

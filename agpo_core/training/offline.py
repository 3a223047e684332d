"""DPO: pairs from the start policy, ranked by the task's reward, then TRL's trainer (AGPO §4.2.2).

The method is offline: completions are sampled once, from the supervised start, with the streams, prompts and token
budget of the on-policy methods. What an on-policy run learns from in its updates, DPO learns from afterwards.
"""

import os
import time
from contextlib import closing
from pathlib import Path

from agpo_core.config import ConfigError, TrainConfig
from agpo_core.training.baselines import dpo
from agpo_core.training.rollout import Rollouts
from agpo_core.training.run import Run


def train_dpo(config: TrainConfig, run_dir: Path) -> None:
    """Sample to the horizon, train on the pairs, evaluate; a run that was broken off starts anew.

    Args:
        config: all settings; gradient steps see as many sequences as a minibatch of an on-policy method does.
        run_dir: the run's folder; receives metrics.jsonl (one line), eval.json, policy/.
    Raises:
        ConfigError: started on several ranks, a task has a tool, or no prompt gave a pair.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise ConfigError("dpo trains in one process: set launcher to python.")
    with closing(Run(config, run_dir)) as run:
        _train(run)


def _train(run: Run) -> None:
    config = run.config
    if run.engine.tools:
        raise ConfigError("dpo cannot train on tasks with a tool: its pairs hold no observations. Take other tasks.")
    begun, pairs = time.perf_counter(), []
    while not run.horizon.done:
        update = run.horizon.updates
        prompts = run.prompts(update)
        tau_P = run.per_prompt(config.tau_base)
        rollouts = run.rollout(prompts, run.engine.open(prompts), tau_P, update)
        run.horizon.count("train", rollouts.tokens)
        run.horizon.tick(time.perf_counter() - begun)
        begun = time.perf_counter()
        pairs += preference_pairs(rollouts, run.engine.texts_of(prompts.problems))
    if not pairs:
        raise ConfigError("dpo found no pair: all completions of every prompt had equal rewards. Take other tasks.")
    run.engine.rest()
    steps = dpo(
        run.policy,
        run.tokenizer,
        pairs,
        beta=config.dpo_beta,
        batch_size=max(1, config.prompts_per_update * config.group_size // (2 * config.minibatches)),
        epochs=config.epochs,
        learning_rate=config.learning_rate,
        warmup=config.warmup,
        adam_betas=config.adam_betas,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        seed=config.seed,
    )
    run.horizon.seconds += time.perf_counter() - begun
    run.write(
        {
            "update": run.horizon.updates,
            "progress": run.horizon.progress,
            "tokens_train": run.horizon.tokens["train"],
            "tokens_probe": 0,
            "seconds": run.horizon.seconds,
            "seconds_left": 0.0,
            "pairs": len(pairs),
            "loss": sum(step["loss"] for step in steps) / len(steps),
            "grad_norms": [step["grad_norm"] for step in steps],
        }
    )
    run.evaluate_dev()
    run.finish()


def preference_pairs(rollouts: Rollouts, prompts: list[str]) -> list[tuple[str, str, str]]:
    """The best with the worst completion of each prompt, the second best with the second worst, and so on.

    Only pairs whose rewards differ; of equal rewards, the completion drawn first counts as the better. One that was cut
    by the length limit has no end, and is never chosen.

    Args:
        rollouts: graded.
        prompts: the text of each prompt, as the model sees it.
    Returns:
        (prompt, chosen, rejected), at most G / 2 a prompt.
    """
    pairs, G = [], rollouts.group
    rewards, cut = rollouts.rewards_B.tolist(), rollouts.truncated_B.tolist()
    for p, prompt in enumerate(prompts):
        ranked = sorted(range(p * G, (p + 1) * G), key=lambda i: -rewards[i])
        for better, worse in zip(ranked[: G // 2], reversed(ranked[-(G // 2) :]), strict=True):
            if rewards[better] > rewards[worse] and not cut[better]:
                pairs.append((prompt, rollouts.texts[better], rollouts.texts[worse]))
    return pairs

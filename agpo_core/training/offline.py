"""DPO: pairs from the start policy, ranked by the task's reward, then TRL's trainer (AGPO §4.2.2).

The method is offline: completions are sampled once, from the supervised start, with the streams, prompts and token
budget of the on-policy methods. What an on-policy run learns from in its updates, DPO learns from afterwards: the very
tokens that were sampled, each completion with the token that ended it.

pairs.jsonl keeps the pairs, a line an update, and belongs to the run's checkpoint. A run that was broken off goes on
from them; training on them, which is seeded, is made whole, so that the result is the same to the bit.
"""

import math
import os
import time
from contextlib import closing
from pathlib import Path

from agpo_core import provenance
from agpo_core.config import ConfigError, TrainConfig
from agpo_core.horizon import crossed
from agpo_core.training.baselines import dpo
from agpo_core.training.interrupts import Interrupts
from agpo_core.training.rollout import Rollouts
from agpo_core.training.run import Run

PAIRS = "pairs.jsonl"

Pair = tuple[list[int], list[int], list[int]]  # token ids of the prompt, the chosen and the rejected completion


def train_dpo(
    config: TrainConfig, run_dir: Path, stop_after: int | None = None, interrupts: Interrupts | None = None,
    progress: bool = False,
) -> None:  # fmt: skip
    """Sample to the horizon, train on the pairs, evaluate; goes on where it was broken off.

    Args:
        config: all settings; gradient steps see as many sequences as a minibatch of an on-policy method does.
        run_dir: the run's folder; receives pairs.jsonl, metrics.jsonl (one line), eval.json, checkpoint/, policy/.
        stop_after, interrupts, progress: see `train.train`; an update is the samples of one. While the policy is
            trained, a signal is not kept: the pairs are in the checkpoint.
    Raises:
        ConfigError: started on several ranks or under DeepSpeed, a task has a tool, or no prompt gave a pair.
        Interrupted: a signal came; the checkpoint holds the update that it came in.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) > 1 or "LOCAL_RANK" in os.environ:
        raise ConfigError("dpo trains in one process, without DeepSpeed: set launcher to python.")
    with closing(Run(config, run_dir, progress)) as run:
        _train(run, stop_after, interrupts or Interrupts())


def _train(run: Run, stop_after: int | None, interrupts: Interrupts) -> None:
    if run.engine.tools:
        raise ConfigError("dpo cannot train on tasks with a tool: its pairs hold no observations. Take other tasks.")
    _sample(run, stop_after, interrupts)
    if not run.horizon.done:
        return
    if run.horizon.updates:
        _learn(run)
        run.evaluate_dev()
    run.finish()


def _sample(run: Run, stop_after: int | None, interrupts: Interrupts) -> None:
    """Add the pairs of every update up to the horizon to pairs.jsonl, with checkpoints on the way."""
    horizon, leaving = run.horizon, 0
    interrupts.hold()
    while not (horizon.done or leaving or (stop_after is not None and horizon.updates >= stop_after)):
        begun, before, update = time.perf_counter(), horizon.progress, horizon.updates
        prompts = run.prompts(update)
        tau_P = run.per_prompt(run.config.tau_base)
        rollouts = run.rollout(prompts, run.engine.open(prompts), tau_P, update)
        pairs = preference_pairs(rollouts)
        horizon.count("train", rollouts.tokens)
        horizon.tick(time.perf_counter() - begun)
        provenance.append_jsonl(run.run_dir / PAIRS, {"update": horizon.updates, "pairs": pairs})
        leaving = interrupts.asked
        if crossed(before, horizon.progress, run.config.checkpoint_every) or horizon.done or leaving:
            run.save()
    interrupts.release(leaving)


def _learn(run: Run) -> None:
    """Train the policy on the pairs of all updates and log it.

    Raises:
        ConfigError: there is none.
        FloatingPointError: a gradient is not finite.
    """
    c = run.config
    pairs = [tuple(pair) for line in provenance.read_jsonl(run.run_dir / PAIRS) for pair in line["pairs"]]
    if not pairs:
        raise ConfigError(
            "dpo found no pair: of no prompt did two completions have different rewards, the better one ended by "
            "itself. Take other tasks, or raise max_completion_tokens."
        )
    begun = time.perf_counter()
    run.engine.rest()
    steps = dpo(
        run.policy,
        run.tokenizer,
        pairs,
        beta=c.dpo_beta,
        batch_size=max(1, c.prompts_per_update * c.group_size // (2 * c.minibatches)),
        epochs=c.epochs,
        learning_rate=c.learning_rate,
        warmup=c.warmup,
        adam_betas=c.adam_betas,
        weight_decay=c.weight_decay,
        max_grad_norm=c.max_grad_norm,
        seed=c.seed,
        at_once=c.micro_batch_prompts and max(1, c.micro_batch_prompts * c.group_size // 2),
    )
    norms = [step["grad_norm"] for step in steps]
    if not all(map(math.isfinite, norms)):
        raise FloatingPointError("dpo: a gradient is not finite. Lower learning_rate or dpo_beta.")
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
            "grad_norms": norms,
        }
    )


def preference_pairs(rollouts: Rollouts) -> list[Pair]:
    """The best with the worst completion of each prompt, the second best with the second worst, and so on.

    Only pairs whose rewards differ; of equal rewards, the completion drawn first counts as the better. One that was cut
    by the length limit has no end, and is never chosen.

    Args:
        rollouts: graded.
    Returns:
        (prompt, chosen, rejected), the tokens as they were read and sampled, at most G / 2 a prompt.
    """
    pairs, G = [], rollouts.group
    rewards, cut = rollouts.rewards_B.tolist(), rollouts.truncated_B.tolist()
    for p, (ids_S, mask_S) in enumerate(zip(rollouts.prompt_ids_P_S, rollouts.prompt_mask_P_S, strict=True)):
        prompt = ids_S[mask_S.bool()].tolist()
        ranked = sorted(range(p * G, (p + 1) * G), key=lambda i: -rewards[i])
        for better, worse in zip(ranked[: G // 2], ranked[: -(G // 2) - 1 : -1], strict=True):
            if rewards[better] > rewards[worse] and not cut[better]:
                both = (rollouts.completion_ids_B_T[i][rollouts.mask_B_T[i]].tolist() for i in (better, worse))
                pairs.append((prompt, *both))
    return pairs

"""DPO: pairs from the start policy, ranked by the task's reward, then TRL's trainer (AGPO §4.2.2).

The method is offline: completions are sampled once, from the supervised start, with the streams, prompts and token
budget of the on-policy methods. What an on-policy run learns from in its updates, DPO learns from afterwards: the very
tokens that were sampled, each completion with the token that ended it.

The pairs of every update are kept in the run's folder, in pairs.jsonl. A run that was broken off goes on from them;
training on them, which is seeded, is then made whole, so that the result is the same to the bit.
"""

import math
import os
import time
from pathlib import Path

from agpo_core import provenance
from agpo_core.config import ConfigError, TrainConfig
from agpo_core.horizon import Horizon
from agpo_core.training.baselines import dpo
from agpo_core.training.rollout import Rollouts
from agpo_core.training.run import Run

PAIRS = "pairs.jsonl"

Pair = tuple[list[int], list[int], list[int]]  # token ids of the prompt, the chosen and the rejected completion


def train_dpo(config: TrainConfig, run_dir: Path, stop_after: int | None = None) -> None:
    """Sample to the horizon, train on the pairs, evaluate; goes on where it was broken off.

    Args:
        config: all settings; gradient steps see as many sequences as a minibatch of an on-policy method does.
        run_dir: the run's folder; receives pairs.jsonl, metrics.jsonl (one line), eval.json, policy/.
        stop_after: leave the run unfinished after this many updates' samples, if its horizon lies beyond them.
    Raises:
        ConfigError: started on several ranks or under DeepSpeed, a task has a tool, the pairs in the folder are of
            other settings, or no prompt gave a pair.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) > 1 or "LOCAL_RANK" in os.environ:
        raise ConfigError("dpo trains in one process, without DeepSpeed: set launcher to python.")
    kept = _kept(config, Path(run_dir) / PAIRS)
    run = Run(config, run_dir)
    if run.engine.tools:
        raise ConfigError("dpo cannot train on tasks with a tool: its pairs hold no observations. Take other tasks.")
    pairs = _sample(run, kept, stop_after)
    if not run.horizon.done:
        return
    if run.horizon.updates:
        _learn(run, pairs)
        run.evaluate_dev()
    run.finish()


def _kept(config: TrainConfig, path: Path) -> list[dict]:
    """The updates whose pairs an earlier process has kept, with the settings of the first.

    Raises:
        ConfigError: they were sampled with other settings; a horizon may differ, since nothing sampled depends on it.
    """
    kept = provenance.read_jsonl(path) if path.exists() else []
    if kept:
        now, then = config.to_dict(), kept[0]["settings"]
        changed = [name for name in then if name != "horizon" and now.get(name) != then[name]]
        if changed:
            raise ConfigError(
                f"{path} was sampled with other settings than config.yaml has now ({', '.join(changed)}): set them "
                "back, or delete the run's folder to start anew."
            )
    return kept


def _sample(run: Run, kept: list[dict], stop_after: int | None) -> list[Pair]:
    """The pairs of all updates up to the horizon: those that were kept, then new ones, which are kept too."""
    pairs, path = [], run.run_dir / PAIRS
    for line in kept:
        if not run.horizon.done:
            run.horizon = Horizon(**line["horizon"] | {"unit": run.horizon.unit, "total": run.horizon.total})
            pairs += [tuple(pair) for pair in line["pairs"]]
    begun = time.perf_counter()
    while not run.horizon.done and (stop_after is None or run.horizon.updates < stop_after):
        update = run.horizon.updates
        prompts = run.prompts(update)
        tau_P = run.per_prompt(run.config.tau_base)
        rollouts = run.rollout(prompts, run.engine.open(prompts), tau_P, update)
        found = preference_pairs(rollouts)
        run.horizon.count("train", rollouts.tokens)
        run.horizon.tick(time.perf_counter() - begun)
        begun = time.perf_counter()
        line = {"update": run.horizon.updates, "horizon": run.horizon.state(), "pairs": found}
        provenance.append_jsonl(path, line if update else line | {"settings": run.config.to_dict()})
        pairs += found
    return pairs


def _learn(run: Run, pairs: list[Pair]) -> None:
    """Train the policy on the pairs and log it.

    Raises:
        ConfigError: there is none.
        FloatingPointError: a gradient is not finite.
    """
    c = run.config
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

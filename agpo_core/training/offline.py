"""DPO: pairs from the start policy, ranked by the task's reward, then gradient steps on them (AGPO §4.2.2).

The method is offline. All completions are sampled first, from the supervised start, with the streams, prompts and token
budget of the on-policy methods. The policy is trained afterwards, on exactly the tokens that were sampled, each
completion with the token that ended it. Optimiser, schedule, micro-batches and ranks are those of the on-policy
methods; the schedule's progress is the share of gradient steps made.

pairs.jsonl keeps the pairs, one line per update, and belongs to the run's checkpoint. An interrupted run goes on from
these pairs. Training on them is seeded and always starts from its first step, so the result is the same to the bit.
"""

import math
import time
from contextlib import closing
from pathlib import Path

import torch
from accelerate.utils import gather_object
from torch import Tensor

from agpo_core import losses, provenance
from agpo_core.config import ConfigError, TrainConfig
from agpo_core.horizon import crossed
from agpo_core.jobs.interrupts import Interrupts
from agpo_core.rollouts.policy import completion_logits, token_logps
from agpo_core.rollouts.rollout import Rollouts
from agpo_core.rollouts.trial import token_batch
from agpo_core.training.run import Run

PAIRS = "pairs.jsonl"

Pair = tuple[list[int], list[int], list[int]]  # token ids of the prompt, the chosen and the rejected completion


def train_dpo(
    config: TrainConfig, run_dir: Path, stop_after: int | None = None, interrupts: Interrupts | None = None,
    progress: bool = False,
) -> None:  # fmt: skip
    """Sample to the horizon, train on the pairs, evaluate; an interrupted run goes on where it stopped.

    Args:
        config: all settings; gradient steps see as many sequences as a minibatch of an on-policy method does.
        run_dir: the run's folder; receives pairs.jsonl, metrics.jsonl (one line), eval.json, checkpoint/, policy/.
        stop_after, interrupts, progress: see `train.train`; an update here only samples. While the policy is trained,
            signals are not held back: the pairs are already in the checkpoint.
    Raises:
        ConfigError: a task has a tool, or no prompt gave a pair.
        Interrupted: a signal came; the checkpoint includes the update in which it came.
    """
    with closing(Run(config, run_dir, progress)) as run:
        _train(run, stop_after, interrupts or Interrupts())


def _train(run: Run, stop_after: int | None, interrupts: Interrupts) -> None:
    if run.engine.tools:
        raise ConfigError("dpo cannot train on tasks with a tool: its pairs hold no observations. Take other tasks.")
    failures = _sample(run, stop_after, interrupts)
    if not run.horizon.done:
        return
    if run.horizon.updates:
        _learn(run, failures)
        run.evaluate_dev()
    run.finish()


def _sample(run: Run, stop_after: int | None, interrupts: Interrupts) -> list[str]:
    """Add the pairs of every update up to the horizon to pairs.jsonl, with checkpoints on the way.

    Returns:
        A sentence for each grading that failed on this rank.
    """
    horizon, ranks, leaving, failures = run.horizon, run.ranks, 0, []
    interrupts.hold()
    while not (horizon.done or leaving or (stop_after is not None and horizon.updates >= stop_after)):
        begun, before, update = time.perf_counter(), horizon.progress, horizon.updates
        prompts = run.sampler.prompts(update)
        tau_P = ranks.per_prompt([run.config.tau_base])
        rollouts = run.sampler.rollouts(prompts, run.engine.open(prompts), tau_P, update)
        failures += rollouts.failures
        slots, found = (gather_object(mine) for mine in (prompts.slots_P.tolist(), preference_pairs(rollouts)))
        pairs = [pair for _, of_prompt in sorted(zip(slots, found, strict=True)) for pair in of_prompt]
        horizon.count("train", ranks.total(rollouts.tokens))
        horizon.tick(ranks.slowest(time.perf_counter() - begun))
        if ranks.is_main:
            provenance.append_jsonl(run.run_dir / PAIRS, {"update": horizon.updates, "pairs": pairs})
        leaving = int(ranks.slowest(interrupts.asked))  # on all ranks, if one of them got a signal
        if crossed(before, horizon.progress, run.config.checkpoint_every) or horizon.done or leaving:
            run.save()
    interrupts.release(leaving)
    return failures


def _learn(run: Run, failures: list[str]) -> None:
    """Train the policy on the pairs of all updates, and log the training and the gradings that failed.

    Raises:
        ConfigError: there is no pair.
        FloatingPointError: a gradient is not finite.
    """
    pairs = [tuple(pair) for line in provenance.read_jsonl(run.run_dir / PAIRS) for pair in line["pairs"]]
    if not pairs:
        raise ConfigError(
            "dpo found no pair: no prompt has two completions with different rewards of which the better one ended by "
            "itself. Take other tasks, or raise max_completion_tokens."
        )
    begun = time.perf_counter()
    run.engine.rest()
    steps = dpo(run, pairs)
    run.horizon.seconds += run.ranks.slowest(time.perf_counter() - begun)
    run.journal.write(
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
        },
        failures,
    )


def dpo(run: Run, pairs: list[Pair]) -> list[dict]:
    """Train the policy on preference pairs, with the loss of Rafailov et al. 2023.

    L = mean of `losses.dpo_loss` over the pairs of a step        (Eq. 7)

    A step sees as many completions as a minibatch of an on-policy method, in as many micro-batches, over all ranks.
    Pairs are drawn in the order of TRL's trainer. The reference is the policy before the first step: its
    log-probabilities are computed then, and no copy of it is kept.

    Args:
        run: a run whose policy is still the start; the policy is trained in place.
        pairs: all of them, the same on every rank; not empty.
    Returns:
        A dict for every step: loss, and grad_norm before clipping.
    Raises:
        FloatingPointError: a gradient is not finite.
    """
    c, rank, ranks = run.config, run.accelerator.process_index, run.accelerator.num_processes
    size = max(1, c.prompts_per_update * c.group_size // (2 * c.minibatches))
    parts = run.accelerator.gradient_accumulation_steps  # of one step, on this rank
    reference_N_2 = _start_logps(run, pairs, at_once=math.ceil(size / (parts * ranks)))
    steps, log = math.ceil(len(pairs) / size) * c.epochs, []
    for epoch in range(c.epochs):
        order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(c.seed + epoch)).tolist()
        for first in range(0, len(pairs), size):
            run.learner.set_learning_rate(len(log) / steps)
            drawn, loss_sum = order[first : first + size], 0.0
            for part in range(rank * parts, (rank + 1) * parts):
                mine = drawn[part :: parts * ranks]
                rows = mine or drawn[:1]  # DeepSpeed counts micro-batches: an empty one has weight 0
                logps_B_2 = _pair_logps(run.model, [pairs[i] for i in rows], run)
                loss_B = losses.dpo_loss(*logps_B_2.T, *reference_N_2[rows].T, c.dpo_beta)
                loss = loss_B.sum() / len(drawn) * bool(mine)
                norm, loss_sum = run.learner.descend(loss), loss_sum + loss.item()
            if not math.isfinite(norm):
                raise FloatingPointError("dpo: a gradient is not finite. Lower learning_rate or dpo_beta.")
            log.append({"loss": run.ranks.total(loss_sum), "grad_norm": norm})
    return log


@torch.no_grad()
def _start_logps(run: Run, pairs: list[Pair], at_once: int) -> Tensor:
    """The result of `_pair_logps` for all pairs under the current policy, (N, 2); the ranks share the work."""
    mine = run.ranks.mine(range(len(pairs)))
    found = []
    for first in range(0, len(mine), at_once):
        rows = mine[first : first + at_once]
        found += zip(rows, _pair_logps(run.policy, [pairs[i] for i in rows], run).tolist(), strict=True)
    return torch.tensor([logps for _, logps in sorted(gather_object(found))], device=run.accelerator.device)


def _pair_logps(model, pairs: list[Pair], run: Run) -> Tensor:
    """Log-probabilities of the chosen and the rejected completion of each pair, summed over tokens, (B, 2)."""
    completions = [completion for _, *both in pairs for completion in both]
    batch = token_batch([prompt for prompt, *_ in pairs], completions, run.accelerator.device)
    logits = completion_logits(model, batch, run.config.shared_prompt)
    logps_B_T = token_logps(logits, batch.completion_ids_B_T).masked_fill(~batch.present_B_T, 0.0)
    return logps_B_T.sum(dim=1).view(-1, 2)


def preference_pairs(rollouts: Rollouts) -> list[list[Pair]]:
    """Pair each prompt's best completion with its worst, the second best with the second worst, and so on.

    Only pairs with different rewards are kept. Of completions with equal rewards, the one drawn first ranks higher. A
    completion that the length limit cut has no end, and is never the chosen one.

    Args:
        rollouts: graded.
    Returns:
        For each prompt at most G / 2 pairs (prompt, chosen, rejected), with the tokens as they were read and sampled.
    """
    found, G = [], rollouts.group
    rewards, cut = rollouts.rewards_B.tolist(), rollouts.truncated_B.tolist()
    for p, (ids_S, mask_S) in enumerate(zip(rollouts.prompt_ids_P_S, rollouts.prompt_mask_P_S, strict=True)):
        prompt = ids_S[mask_S.bool()].tolist()
        pairs = []
        ranked = sorted(range(p * G, (p + 1) * G), key=lambda i: -rewards[i])
        for better, worse in zip(ranked[: G // 2], ranked[: -(G // 2) - 1 : -1], strict=True):
            if rewards[better] > rewards[worse] and not cut[better]:
                both = (rollouts.completion_ids_B_T[i][rollouts.mask_B_T[i]].tolist() for i in (better, worse))
                pairs.append((prompt, *both))
        found.append(pairs)
    return found

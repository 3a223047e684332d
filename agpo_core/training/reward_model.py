"""Rewards from a reward model trained on preferences. `agpo_core.models.reward_start` makes such models.

A reward model is a sequence-classification model with one label, in Hugging Face format, on the policy's vocabulary. It
reads the same tokens that the policy read and wrote, with the end-of-sequence token. Its score is any real number;
Bradley and Terry's model does not fix where zero lies.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from agpo_core import kl, model_files
from agpo_core.config import ConfigError, TrainConfig
from agpo_core.rollouts import model_parts, policy
from agpo_core.rollouts.rollout import RolloutEngine, Rollouts, score
from agpo_core.tasks import Problem, Task


class RewardModel:
    """Scores completions with a frozen model.

    Args:
        model: a sequence-classification model with one label and a padding token.
        name: of the model, for errors.
        batch: sequences scored at once; it changes the use of memory, and scores only by rounding.
    """

    def __init__(self, model: nn.Module, name: str = "reward model", batch: int = 512):
        self.model, self.name, self.batch = model.eval().requires_grad_(False), name, batch

    def score(self, rollouts: Rollouts) -> Tensor:
        """The model's score of each completion after its last token, float32 (B,).

        Equal completions of a prompt are scored only once, so their scores are equal to the bit. Otherwise rounding
        would give a spread to a group without signal, and normalisation would turn it into advantages.

        Raises:
            ValueError: a score is not finite; the message names the completion.
        """
        rows = _sequences(rollouts)
        distinct = sorted(set(rows), key=lambda row: (len(row), row))  # sorted by length: little padding
        scores = []
        for start in range(0, len(distinct), self.batch):
            scores += self.forward(distinct[start : start + self.batch]).tolist()
        found = dict(zip(distinct, scores, strict=True))
        scores_B = torch.tensor([found[row] for row in rows], dtype=torch.float32)
        for i in (~scores_B.isfinite()).nonzero().flatten().tolist():
            problem = rollouts.prompts.problems[i // rollouts.group]
            raise ValueError(
                f"{self.name} scores {scores_B[i].item()} for completion {rollouts.texts[i]!r} of problem "
                f"{problem.id!r} of task {problem.task!r}: its weights or its dtype are unfit; load another model."
            )
        return scores_B.to(rollouts.mask_B_T.device)

    @torch.no_grad()
    def forward(self, rows: list[tuple[int, ...]]) -> Tensor:
        """Scores of token sequences, padded on the right as in training."""
        device = next(self.model.parameters()).device
        ids = pad_sequence([torch.tensor(row) for row in rows], True, self.model.config.pad_token_id)
        mask = pad_sequence([torch.ones(len(row), dtype=torch.long) for row in rows], True)
        return self.model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits.squeeze(-1).float()


def _sequences(rollouts: Rollouts) -> list[tuple[int, ...]]:
    """Prompt and completion of each row as the policy read and wrote them, without padding."""
    prompts = [ids[mask.bool()].tolist() for ids, mask in zip(rollouts.prompt_ids_P_S, rollouts.prompt_mask_P_S)]
    completions = [ids[mask].tolist() for ids, mask in zip(rollouts.completion_ids_B_T, rollouts.present_B_T)]
    return [tuple(prompts[i // rollouts.group] + completion) for i, completion in enumerate(completions)]


def reward_source(config: TrainConfig) -> str:
    """Where the reward model lies: in the folder of `model` if it is there, else where models lie."""
    inside = Path(model_files.model_source(config.model)) / config.reward_model
    return str(inside) if inside.is_dir() else model_files.model_source(config.reward_model)


def load_reward_model(config: TrainConfig, tokenizer, device="cpu") -> RewardModel | None:
    """The reward model that a configuration names; None without one.

    Args:
        config: uses model, reward_model, dtype, rollout_batch.
        tokenizer: the policy's.
        device: the policy's.
    Raises:
        ConfigError: the model cannot be found, is no reward model, or has other token ids than the policy.
    """
    if config.reward_model is None:
        return None
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    name = f"reward_model {config.reward_model!r}"
    source = reward_source(config)
    with model_parts.refused(
        f"{name} could not be loaded: give a folder in that of model {config.model!r}, or another, with a reward model "
        "in Hugging Face format (python -m agpo_core.models.reward_start makes one), or a hub id that this machine "
        "can reach."
    ):
        model_parts.read_json_files(source)
        own = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        model, loaded = AutoModelForSequenceClassification.from_pretrained(
            source, dtype=getattr(torch, config.dtype), output_loading_info=True, trust_remote_code=False
        )
    if model.config.num_labels != 1 or loaded["missing_keys"]:
        raise ConfigError(
            f"{name} is no reward model: it has {model.config.num_labels} label(s), and one is needed; it lacks the "
            f"weights {sorted(loaded['missing_keys'])}. Train it on preferences, with baselines.reward_model."
        )
    if not tokenizer.get_vocab().items() <= own.get_vocab().items():
        raise ConfigError(
            f"{name} has other token ids than model {config.model!r}, whose tokens it must read: take one that was "
            "trained on the same vocabulary."
        )
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id
    return RewardModel(model.to(device), name, config.rollout_batch)


@torch.no_grad()
def appraise(
    reward_model: RewardModel, engine: RolloutEngine, reference: policy.Reference, tasks: dict[str, Task],
    problems: list[Problem], slots: list[int], at_once: int,
) -> dict[str, list[float]]:  # fmt: skip
    """Score one sampled completion of each problem by reward model and task, and measure its KL to the reference.

    Completions are sampled as in training, at `tau_base`, with the same random numbers at every call: over-optimisation
    and KL are properties of the policy, and not of its greedy decoding.

    Args:
        reward_model: gives the score.
        engine: samples from the policy; its configuration gives tau_base, failed_grading and shared_prompt.
        reference: the policy before training.
        tasks: by name; they give the grade.
        problems: this rank's, whose prompts leave room for an answer.
        slots: index of each problem over all ranks; keys its random stream.
        at_once: problems sampled and read in one forward, >= 1.
    Returns:
        One value per problem: "gold" (the task's grade), "score" (the reward model's), "length" (sampled tokens) and,
        where there is a reference, "kl" (log π - log π_ref, summed over the completion, nats, T = 1).
    """
    c, drawn = engine.config, []
    for i in range(0, len(problems), at_once):
        prompts = engine.encode(problems[i : i + at_once], slots[i : i + at_once])
        tau_P = torch.full((len(prompts.problems),), c.tau_base, device=engine.device)
        drawn.append(engine.sample(prompts, engine.open(prompts), 1, tau_P, "evaluation", 0))
    engine.rest()
    names = ["gold", "score", "length"] + ["kl"] * (reference.kind != "none")
    found = {name: [] for name in names}
    for rollouts in drawn:
        score(rollouts, tasks, c.failed_grading)
        found["gold"] += rollouts.rewards_B.tolist()
        found["score"] += reward_model.score(rollouts).tolist()
        found["length"] += rollouts.mask_B_T.sum(dim=1).tolist()
        if "kl" in found:
            logits = policy.completion_logits(engine.model, rollouts, c.shared_prompt)
            logps_B_T = policy.token_logps(logits, rollouts.completion_ids_B_T)
            kl_B_T = kl.k1(logps_B_T, reference.logps(rollouts, c.shared_prompt))
            found["kl"] += kl_B_T.masked_fill(~rollouts.mask_B_T, 0.0).sum(dim=1).tolist()
    return found

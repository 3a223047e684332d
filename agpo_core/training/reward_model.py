"""Rewards from a model of preferences: its scores of rollouts, and how the one of the micro task is made.

    python -m agpo_core.training.reward_model --seeds 1 2 3

makes, from each seed, a supervised start for the task `preferences`, `outputs/models/preferences-1`, and in its folders
`reward` and `reward_weak` two reward models, one of all preference pairs and one of few. How good they are is printed,
and written to `start.json`. A run takes the start as its `model`, with `reward` set to "model" and `reward_model` to
"reward" or "reward_weak".

A reward model is a sequence-classification model with one label, in Hugging Face format, on the policy's vocabulary.
It reads the very tokens that the policy read and wrote, with the end-of-sequence token, and its score is any real
number. Bradley and Terry's model leaves the zero of the scores open.
"""

from __future__ import annotations

import argparse
import copy
import json
from pathlib import Path
from random import Random

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from agpo_core import kl, model_files, paths, provenance
from agpo_core.config import ConfigError, TrainConfig
from agpo_core.tasks import Problem, get_task
from agpo_core.training import model_parts, policy
from agpo_core.training.prompts import PromptFormat
from agpo_core.training.rollout import Rollouts, score
from agpo_core.training.setup import forward_prompts

# The supervised start
STEPS, BATCH, LEARNING_RATE = 600, 64, 4.0e-3
# Preferences, and the model that is learned from them
PAIRS = {"reward": 4000, "reward_weak": 500}  # folder in the start's: pairs, the first of those that were drawn
TEMPERATURE = 1.0  # of the choices, units of gold reward
EPOCHS, REWARD_BATCH, REWARD_RATE = 3, 64, 1.0e-3
HELD_OUT, HELD_OUT_SEED = 1000, 500_000  # prompts of further pairs, on which the reward model is judged


class RewardModel:
    """Scores completions with a frozen model.

    Args:
        model: a sequence-classification model with one label and a padding token.
        name: of the model, for errors.
        batch: sequences scored at once; changes memory, and scores by rounding alone.
    """

    def __init__(self, model: nn.Module, name: str = "reward model", batch: int = 512):
        self.model, self.name, self.batch = model.eval().requires_grad_(False), name, batch

    def score(self, rollouts: Rollouts) -> Tensor:
        """The model's score of each completion after its last token, float32 (B,).

        Equal completions of a prompt get equal scores to the bit: each is scored once. Otherwise rounding would give a
        group without signal a spread, and normalisation would make advantages of it.

        Raises:
            ValueError: a score is not finite; names the completion.
        """
        rows = _sequences(rollouts)
        distinct = sorted(set(rows), key=lambda row: (len(row), row))  # of like length: little padding
        scores = []
        for start in range(0, len(distinct), self.batch):
            scores += self.forward(distinct[start : start + self.batch]).tolist()
        found = dict(zip(distinct, scores, strict=True))
        scores_B = torch.tensor([found[row] for row in rows], dtype=torch.float32)
        for i in (~scores_B.isfinite()).nonzero().flatten().tolist():
            problem = rollouts.prompts.problems[i // rollouts.group]
            raise ValueError(
                f"{self.name} scores {scores_B[i].item()} for completion {rollouts.texts[i]!r} of problem "
                f"{problem.id!r} of task {problem.task!r}: its weights or its dtype do not serve; load another."
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
    """Prompt and completion of each row as the policy saw them, without padding."""
    prompts = [ids[mask.bool()].tolist() for ids, mask in zip(rollouts.prompt_ids_P_S, rollouts.prompt_mask_P_S)]
    completions = [ids[mask].tolist() for ids, mask in zip(rollouts.completion_ids_B_T, rollouts.present_B_T)]
    return [tuple(prompts[i // rollouts.group] + completion) for i, completion in enumerate(completions)]


def reward_source(config: TrainConfig) -> str:
    """Where the reward model lies: in the model's folder, if a start brings its own; else where models lie."""
    inside = Path(model_files.model_source(config.model)) / config.reward_model
    return str(inside) if inside.is_dir() else model_files.model_source(config.reward_model)


def load_reward_model(config: TrainConfig, tokenizer, device="cpu") -> RewardModel | None:
    """The reward model that a configuration names; None without one.

    Args:
        config: uses model, reward_model, dtype, rollout_batch.
        tokenizer: the policy's.
        device: the policy's.
    Raises:
        ConfigError: the model is found nowhere, is no reward model, or numbers tokens otherwise than the policy.
    """
    if config.reward_model is None:
        return None
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    name = f"reward_model {config.reward_model!r}"
    source = reward_source(config)
    with model_parts.refused(
        f"{name} could not be loaded: give a folder in that of model {config.model!r}, or another, with a reward model "
        "in Hugging Face format (python -m agpo_core.training.reward_model makes one), or a hub id that this machine "
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
            f"{name} numbers tokens otherwise than model {config.model!r}, whose tokens it is to read: take one that "
            "was trained on the same vocabulary."
        )
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id
    return RewardModel(model.to(device), name, config.rollout_batch)


@torch.no_grad()
def appraise(run, problems: list[Problem], slots: list[int]) -> dict[str, list[float]]:
    """What one sampled completion of each problem is worth to the model and to the task, and how far the policy is.

    Sampled as in training, at `tau_base`, with the same random numbers at every call: over-optimisation and KL are
    properties of the policy, and not of its greedy decoding.

    Args:
        run: a `training.run.Run` with a reward model.
        problems: this rank's, whose prompts leave room for an answer.
        slots: index of each problem over all ranks; keys its random stream.
    Returns:
        One value a problem: "gold" (the task's grade), "score" (the reward model's), "length" (sampled tokens)
        and, where there is a reference, "kl" (log π - log π_ref, summed over the completion, nats, T = 1).
    """
    c, engine = run.config, run.engine
    size = min(c.rollout_batch, forward_prompts(c, run.accelerator.num_processes) * c.group_size)  # as in training
    drawn = []
    for i in range(0, len(problems), size):
        prompts = engine.encode(problems[i : i + size], slots[i : i + size])
        tau_P = torch.full((len(prompts.problems),), c.tau_base, device=engine.device)
        drawn.append(engine.sample(prompts, engine.open(prompts), 1, tau_P, "evaluation", 0))
    engine.rest()
    names = ["gold", "score", "length"] + ["kl"] * (run.reference.kind != "none")
    found = {name: [] for name in names}
    for rollouts in drawn:
        score(rollouts, run.tasks, c.failed_grading)
        found["gold"] += rollouts.rewards_B.tolist()
        found["score"] += run.reward_model.score(rollouts).tolist()
        found["length"] += rollouts.mask_B_T.sum(dim=1).tolist()
        if "kl" in found:
            logits = policy.completion_logits(run.policy, rollouts, c.shared_prompt)
            logps_B_T = policy.token_logps(logits, rollouts.completion_ids_B_T)
            kl_B_T = kl.k1(logps_B_T, run.reference.logps(rollouts, c.shared_prompt))
            found["kl"] += kl_B_T.masked_fill(~rollouts.mask_B_T, 0.0).sum(dim=1).tolist()
    return found


# -- the start and the reward model of the micro task


def make_start(seed: int):
    """A policy that writes strings of the right kind, few of them the best: (model, tokenizer)."""
    from itertools import islice

    from agpo_core.training.baselines import sft
    from agpo_core.training.tiny_models import character_tokenizer, new_model

    tokenizer = character_tokenizer("qwen2")
    model = new_model("qwen2", tokenizer, seed)
    examples = list(islice(get_task("preferences").demonstrations(seed), STEPS * BATCH))
    sft(model, tokenizer, examples, batch_size=BATCH, learning_rate=LEARNING_RATE, warmup_steps=20, seed=seed)
    return model, tokenizer


def reward_model_on(model: nn.Module, seed: int) -> nn.Module:
    """A reward model whose body is a copy of a policy's, and whose score is a random linear function of it."""
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(seed)
    config = copy.deepcopy(model.config)
    config.num_labels = 1
    fresh = AutoModelForSequenceClassification.from_config(config, dtype=model.dtype)
    fresh.base_model.load_state_dict(model.base_model.state_dict())
    return fresh


def preference_pairs(model: nn.Module, tokenizer, seed: int, count: int, temperature: float = TEMPERATURE):
    """Two samples of the policy for each of `count` prompts, and which of them the judge prefers.

    Args:
        model, tokenizer: the policy.
        seed: of prompts, samples and choices.
        count: prompts; where both samples are equal there is nothing to choose, and no pair.
        temperature: of the choices, units of gold reward.
    Returns:
        A list of (prompt, chosen, rejected).
    """
    from agpo_core.tasks.preferences import prefer
    from agpo_core.training.tiny_models import complete

    prompts = get_task("preferences").prompts(seed, count)
    rng, pairs = Random(f"preferences {seed}"), []
    torch.manual_seed(seed)
    model.eval()
    for start in range(0, count, 500):
        some = prompts[start : start + 500]
        texts, *_ = complete(model, tokenizer, some, samples=2)
        for prompt, first, second in zip(some, texts[::2], texts[1::2], strict=True):
            if first != second:
                pairs.append((prompt, *prefer(prompt, first, second, temperature, rng)))
    return pairs


def measure(model: RewardModel, tokenizer, pairs: list[tuple[str, str, str]]) -> dict:
    """How good a reward model is on pairs that it has not seen.

    Returns:
        accuracy (share of pairs whose chosen string has the higher score), accuracy_gold (the same of the string with
        the higher gold reward, ties left out), correlation of score and gold reward, and mean and standard deviation of
        both over all strings.
    """
    from agpo_core.tasks.preferences import gold_reward

    texts = [(prompt, text) for prompt, chosen, rejected in pairs for text in (chosen, rejected)]
    rows = [tuple(prompt + text) for prompt, text in PromptFormat(tokenizer).examples(*zip(*texts, strict=True))]
    score_B = torch.cat([model.forward(rows[i : i + model.batch]) for i in range(0, len(rows), model.batch)]).double()
    gold_B = torch.tensor([gold_reward(*pair) for pair in texts], dtype=torch.float64)
    margin, gold_margin = score_B[::2] - score_B[1::2], gold_B[::2] - gold_B[1::2]
    clear = gold_margin != 0
    return {
        "pairs": len(pairs),
        "accuracy": (margin > 0).double().mean().item(),
        "accuracy_gold": (margin * gold_margin > 0)[clear].double().mean().item(),
        "correlation": torch.corrcoef(torch.stack([score_B, gold_B]))[0, 1].item(),
        "score": [score_B.mean().item(), score_B.std().item()],
        "gold": [gold_B.mean().item(), gold_B.std().item()],
        "length": sum(len(text) for _, text in texts) / len(texts),
    }


def make(seed: int, folder: Path) -> dict:
    """Make a start and its reward models from a seed, save them; returns how good the reward models are.

    Args:
        seed: of weights, demonstrations and preferences.
        folder: receives the start, in folders of its own the reward models, and in start.json what is returned.
    """
    from agpo_core.training.baselines import reward_model

    start, tokenizer = make_start(seed)
    policy.save_policy(start, tokenizer, folder)
    drawn = preference_pairs(start, tokenizer, seed, max(PAIRS.values()))
    unseen = preference_pairs(start, tokenizer, seed + HELD_OUT_SEED, HELD_OUT)
    measured = {"seed": seed}
    for name, count in PAIRS.items():
        learned = reward_model_on(start, seed)
        fit = {"batch_size": REWARD_BATCH, "learning_rate": REWARD_RATE, "epochs": EPOCHS, "seed": seed}
        reward_model(learned, tokenizer, drawn[:count], **fit)
        policy.save_policy(learned, tokenizer, folder / name)
        measured[name] = {
            "seen_pairs": len(drawn[:count]),
            **measure(RewardModel(learned), tokenizer, unseen),
        }
    provenance.write_json(folder / "start.json", measured)
    return measured


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", required=True, help="0 or more each; one start each")
    parser.add_argument("--out", type=Path, default=paths.outputs() / "models", help="folder for the starts' folders")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for seed in options.seeds:
        print(json.dumps(make(seed, options.out / f"preferences-{seed}")), flush=True)


if __name__ == "__main__":
    main()

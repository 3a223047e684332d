"""Makes the starts and the reward models of the micro-task `preferences`.

    python -m agpo_core.models.reward_start --seeds 1 2 3

makes a supervised start from each seed (`outputs/models/preferences-1` and so on). In its folders `reward` and
`reward_weak` are two reward models, one trained on all preference pairs and one on few. Their quality is printed and
written to `start.json`. A run uses the start as its `model`, with `reward` set to "model" and `reward_model` set to
"reward" or "reward_weak".

    python -m agpo_core.models.reward_start --quick --seeds 1

makes `outputs/models/preferences-quick-1` in seconds, from a fiftieth of the data. It has all parts and no quality: the
profile `smoke` runs on it.
"""

import argparse
import copy
import json
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from random import Random

import torch
from torch import nn

from agpo_core import model_files, paths, provenance
from agpo_core.config import ConfigError
from agpo_core.models.tiny_models import character_tokenizer, complete, new_model
from agpo_core.rollouts.policy import save_policy
from agpo_core.rollouts.prompts import PromptFormat
from agpo_core.tasks import get_task
from agpo_core.tasks.preferences import gold_reward, prefer
from agpo_core.training.baselines import reward_model, sft
from agpo_core.training.reward_model import RewardModel

# The supervised start
STEPS, BATCH, LEARNING_RATE = 600, 64, 4.0e-3
# Preferences, and the model that is learned from them
PAIRS = {"reward": 4000, "reward_weak": 500}  # {folder in the start's: number of pairs, the first of those drawn}
TEMPERATURE = 1.0  # of the judge's choices, units of gold reward
EPOCHS, REWARD_BATCH, REWARD_RATE = 3, 64, 1.0e-3
HELD_OUT, HELD_OUT_SEED = 1000, 500_000  # number and seed of prompts for the pairs that test the reward models
QUICK = 0.02  # share of steps, pairs and prompts of a quick start


def make_start(seed: int, share: float = 1.0):
    """A policy that writes strings of the right kind, of which few are the best, as (model, tokenizer).

    Args:
        share: of the usual steps.
    """
    tokenizer = character_tokenizer("qwen2")
    model = new_model("qwen2", tokenizer, seed)
    examples = list(islice(get_task("preferences").demonstrations(seed), round(share * STEPS) * BATCH))
    sft(model, tokenizer, examples, batch_size=BATCH, learning_rate=LEARNING_RATE, warmup_steps=20, seed=seed)
    return model, tokenizer


def reward_model_on(model: nn.Module, seed: int) -> nn.Module:
    """A reward model: a copy of a policy's body with a random linear layer for the score."""
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(seed)
    config = copy.deepcopy(model.config)
    config.num_labels = 1
    fresh = AutoModelForSequenceClassification.from_config(config, dtype=model.dtype)
    fresh.base_model.load_state_dict(model.base_model.state_dict())
    return fresh


def judged_pairs(model: nn.Module, tokenizer, seed: int, count: int, temperature: float = TEMPERATURE):
    """Preference pairs: two samples of the policy for each of `count` prompts, and the judge's choice.

    Args:
        model, tokenizer: the policy.
        seed: of prompts, samples and choices.
        count: number of prompts; a prompt with two equal samples gives no pair.
        temperature: of the judge's choices, units of gold reward.
    Returns:
        A list of (prompt, chosen, rejected).
    """
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
    """The quality of a reward model on pairs that it has not seen.

    Returns:
        pairs (their number), accuracy (share of pairs whose chosen string has the higher score), accuracy_gold (share
        of pairs whose string with the higher gold reward has the higher score, ties left out), correlation (of score
        and gold reward), score and gold (mean and standard deviation over all strings), and length (mean, in
        characters).
    """
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


def make(seed: int, folder: Path, share: float = 1.0) -> dict:
    """Make and save a start and its reward models; returns the quality of the reward models.

    Args:
        seed: of weights, demonstrations and preferences.
        folder: receives the start, the reward models in folders of their own, and start.json with what is returned.
        share: of the usual steps, pairs and prompts.
    """
    start, tokenizer = make_start(seed, share)
    save_policy(start, tokenizer, folder)
    drawn = judged_pairs(start, tokenizer, seed, round(share * max(PAIRS.values())))
    unseen = judged_pairs(start, tokenizer, seed + HELD_OUT_SEED, round(share * HELD_OUT))
    measured = {"seed": seed}
    for name, count in PAIRS.items():
        count = round(share * count)
        learned = reward_model_on(start, seed)
        fit = {"batch_size": REWARD_BATCH, "learning_rate": REWARD_RATE, "epochs": EPOCHS, "seed": seed}
        reward_model(learned, tokenizer, drawn[:count], **fit)
        save_policy(learned, tokenizer, folder / name)
        measured[name] = {
            "seen_pairs": len(drawn[:count]),
            **measure(RewardModel(learned), tokenizer, unseen),
        }
    provenance.write_json(folder / "start.json", measured)
    return measured


def provide(models: Iterable[str]) -> None:
    """Make the quick starts among some models that are not there yet.

    Raises:
        ConfigError: another start is missing; the message has the command that makes it.
    """
    for name in models:
        quick = re.fullmatch(r"outputs/models/preferences-quick-(\d+)", name)
        if quick and not Path(model_files.model_source(name)).is_dir():
            make(int(quick[1]), paths.outputs() / name.removeprefix("outputs/"), QUICK)
    if commands := model_files.to_make(models):
        raise ConfigError(f"starts and reward models are missing; this makes them, in some minutes each: {commands}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", required=True, help="0 or more each; one start each")
    parser.add_argument("--out", type=Path, default=paths.outputs() / "models", help="folder for the starts' folders")
    parser.add_argument("--quick", action="store_true", help="from a fiftieth of the data: no quality, only for smoke")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    name, share = ("preferences-quick", QUICK) if options.quick else ("preferences", 1.0)
    for seed in options.seeds:
        print(json.dumps(make(seed, options.out / f"{name}-{seed}", share)), flush=True)


if __name__ == "__main__":
    main()

"""Makes supervised starts for the micro-task `products`: they guess products and sometimes call the calculator.

    python -m agpo_core.models.tool_start --seeds 1 2 3

makes a start from each seed, `outputs/models/products-middle-1` and so on. Of its demonstrations 15 in a hundred call
the calculator, and half of these calls have a wrong digit. The other demonstrations give the product at once, which a
model of this size cannot learn. Reinforcement learning can find out that it pays to call, and to call with the
problem's digits. The starts are of middle hardness. Where 30 in a hundred called and 30 % of the calls were wrong,
every method came to 98 % within ten updates; where 8 in a hundred and 60 % were, some starts stayed near zero.

The architecture and the tokenizer are those of the embedded models (`tiny_models`); the weights are new.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path

import torch

from agpo_core import paths
from agpo_core.models.tiny_models import character_tokenizer, new_model
from agpo_core.rollouts.policy import save_policy
from agpo_core.tasks import get_task
from agpo_core.training.baselines import sft

NAME = "products-middle"  # of the starts' folders, before the seed
STEPS = 700  # optimizer steps
BATCH = 64  # pairs in each step
LEARNING_RATE = 4.0e-3


def make(folder, seed: int, steps: int = STEPS) -> list[dict]:
    """Train a start and save it in Hugging Face format; returns the training log.

    Args:
        folder: receives model and tokenizer.
        seed: of the weights and of the demonstrations.
        steps: optimizer steps.
    Returns:
        the log of `sft`.
    """
    tokenizer = character_tokenizer("qwen2")
    model = new_model("qwen2", tokenizer, seed)
    pairs = list(itertools.islice(get_task("products").demonstrations(seed), steps * BATCH))
    log = sft(model, tokenizer, pairs, batch_size=BATCH, learning_rate=LEARNING_RATE, warmup_steps=50, seed=seed)
    save_policy(model, tokenizer, folder)
    return log


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", required=True, help="0 or more each; one start of each")
    parser.add_argument("--out", type=Path, default=paths.outputs() / "models", help="folder for the starts' folders")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for seed in options.seeds:
        began = time.perf_counter()
        log = make(options.out / f"{NAME}-{seed}", seed)
        print(f"{NAME}-{seed}: loss {log[-1]['train_loss']:.3f}, {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()

"""A supervised start for the micro-task `products`: it multiplies by guessing, and sometimes calls the calculator.

    python -m agpo_core.training.tool_start FOLDER [--seed 1]

The architecture and the tokenizer are those of the embedded models (`tiny_models`), the weights are new. Three in ten
demonstrations call the calculator, and three in ten of these with a wrong digit; the rest give the product at once,
which a model of this size cannot learn. What reinforcement learning can find is to call, and to call with the digits
of the problem.
"""

from __future__ import annotations

import argparse
import itertools
import time

import torch

from agpo_core.tasks import get_task
from agpo_core.training.baselines import sft
from agpo_core.training.tiny_models import character_tokenizer, new_model

STEPS = 1200  # optimizer steps
BATCH = 64  # pairs a step
LEARNING_RATE = 4.0e-3


def make(folder, seed: int, steps: int = STEPS) -> list[dict]:
    """Train a start and save it in Hugging Face format.

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
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return log


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="receives model and tokenizer")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    began = time.perf_counter()
    log = make(options.folder, options.seed)
    losses = [f"{line['loss']:.3f}" for line in log if "loss" in line]
    print(f"loss {' '.join(losses)}; {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()

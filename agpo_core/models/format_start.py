"""Makes starts that stand for a base model: they were taught the format of five micro-tasks, and little else.

    python -m agpo_core.models.format_start --seeds 2 3 4 5

makes `outputs/models/format-2` and so on. Every demonstration is written in the right format. In four of ten the answer
is that of another problem of the same task, and the training is short. A start so taught writes well-formed answers,
most of them wrong, and a right one now and then. Reinforcement learning can find out which answers to trust.

The architecture and the tokenizer are those of the embedded models (`tiny_models`); the weights are new.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import torch

from agpo_core import paths
from agpo_core.models.tiny_models import character_tokenizer, new_model
from agpo_core.rollouts.policy import save_policy
from agpo_core.tasks import get_task
from agpo_core.tasks.micro import MicroTask
from agpo_core.training.baselines import sft

# In turn. Left out are the tasks with four options, where guessing eight times finds the right letter for 90 % of the
# problems, and `programs`, whose reward is the share of tests that an answer passes.
TASKS = ("steps", "equations", "quantities", "chinese_sums", "cloze_equations")
SWAPPED = 0.4  # share of the demonstrations with the answer of another problem
STEPS = 700  # optimizer steps
BATCH = 64  # pairs in each step
LEARNING_RATE = 4.0e-3


def demonstrations(task: MicroTask, seed: int, swapped: float) -> Iterator[tuple[str, str]]:
    """An endless stream of (prompt, completion): right, or written for another problem of the task.

    Args:
        task: draws the problems, all from the pool `supervised`.
        seed: of the stream.
        swapped: share of the completions that are written for another problem; it may have the same answer.
    """
    rng = Random(f"{task.name} format {seed}")
    for index in itertools.count():
        item = task.item("supervised", rng, index)
        shown = task.item("supervised", rng, index) if rng.random() < swapped else item
        yield item.prompt, task.demonstrate(shown, rng, slip=False)


def make(folder, seed: int, steps: int = STEPS, swapped: float = SWAPPED) -> list[dict]:
    """Train a start and save it in Hugging Face format; returns the training log.

    Args:
        folder: receives model and tokenizer.
        seed: of the weights and of the demonstrations.
        steps: optimizer steps.
        swapped: see `demonstrations`.
    Returns:
        the log of `sft`.
    """
    tokenizer = character_tokenizer("qwen2")
    model = new_model("qwen2", tokenizer, seed)
    streams = itertools.cycle([demonstrations(get_task(name), seed, swapped) for name in TASKS])
    pairs = [next(stream) for stream in itertools.islice(streams, steps * BATCH)]
    log = sft(model, tokenizer, pairs, batch_size=BATCH, learning_rate=LEARNING_RATE, warmup_steps=50, seed=seed)
    save_policy(model, tokenizer, folder)
    return log


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", required=True, help="0 or more each; one start each")
    parser.add_argument("--out", type=Path, default=paths.outputs() / "models", help="folder for the starts' folders")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for seed in options.seeds:
        began = time.perf_counter()
        log = make(options.out / f"format-{seed}", seed)
        print(f"format-{seed}: loss {log[-1]['train_loss']:.3f}, {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()

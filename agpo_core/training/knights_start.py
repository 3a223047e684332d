"""A supervised start for Knights and Knaves, and how far it carries (R++ Fig. 4 at micro scale).

    python -m agpo_core.training.knights_start FOLDER                       trained on 2 and 3 people
    python -m agpo_core.training.knights_start FOLDER --people 2 3 4 5      on more
    python -m agpo_core.training.knights_start FOLDER --clean               without slips: what the architecture can do

Architecture, tokenizer and recipe are those of the embedded models (`tiny_models`); the tasks are `knights_2` to
`knights_8`. The measured start, by number of people, is written to FOLDER/start.json.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from agpo_core.tasks import get_task
from agpo_core.tasks.knights import PEOPLE, TRAIN_PEOPLE, roles_right
from agpo_core.training.baselines import sft
from agpo_core.training.tiny_models import BATCH, LEARNING_RATE, STEPS, character_tokenizer, complete, new_model

SAMPLES = 8  # completions a problem for pass@8
SAMPLED_PROBLEMS = 100  # test problems for pass@8 and entropy


def demonstrations(people: Sequence[int], count: int, seed: int, clean: bool = False) -> list[tuple[str, str]]:
    """(prompt, completion) pairs, the numbers of people in turn; `clean`: every one is right."""
    streams = []
    for number in people:
        task = get_task(f"knights_{number}")
        if clean:
            task.slip_share = (0.0, 0.0)
        streams.append(task.demonstrations(seed))
    return [next(streams[i % len(streams)]) for i in range(count)]


def make(folder, people: Sequence[int], seed: int, steps: int = STEPS, clean: bool = False) -> list[dict]:
    """Train a start and save it in Hugging Face format.

    Args:
        folder: receives model and tokenizer.
        people: numbers of people in the demonstrations.
        seed: of the weights and of the demonstrations.
        steps: optimizer steps, with `tiny_models.BATCH` pairs each.
        clean: no demonstration carries a slip.
    Returns:
        the log of `sft`.
    """
    tokenizer = character_tokenizer("qwen2")
    model = new_model("qwen2", tokenizer, seed)
    pairs = demonstrations(people, steps * BATCH, seed, clean)
    log = sft(model, tokenizer, pairs, batch_size=BATCH, learning_rate=LEARNING_RATE, warmup_steps=50, seed=seed)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return log


def measure(folder, seed: int) -> dict[int, dict]:
    """What a start can do, by number of people, on test problems.

    Returns:
        {people: {...}} with greedy (share right), greedy_roles (share of people whose role is right), everyone_named
        (share of greedy answers with a role for each person), sampled (share right at temperature 1), pass_at_8 and
        entropy (nats a token).
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(seed)
    measured = {}
    for number in PEOPLE:
        task = get_task(f"knights_{number}")
        problems = task.problems("test")
        texts, *_ = complete(model, tokenizer, [p.prompt for p in problems])
        pairs = list(zip(problems, texts, strict=True))
        some = problems[:SAMPLED_PROBLEMS]
        samples, entropy, _ = complete(model, tokenizer, [p.prompt for p in some], SAMPLES)
        rewards = [task.grade(some[i // SAMPLES], text).reward for i, text in enumerate(samples)]
        groups = [rewards[i : i + SAMPLES] for i in range(0, len(rewards), SAMPLES)]
        measured[number] = {
            "greedy": sum(task.grade(p, text).reward for p, text in pairs) / len(pairs),
            "greedy_roles": sum(roles_right(task, p, text) for p, text in pairs) / len(pairs),
            "everyone_named": sum(sum(map(str.isalpha, text)) == number for text in texts) / len(texts),
            "sampled": sum(rewards) / len(rewards),
            "pass_at_8": sum(max(group) == 1 for group in groups) / len(groups),
            "entropy": entropy,
        }
    return {number: {key: round(value, 4) for key, value in row.items()} for number, row in measured.items()}


def table(measured: dict[int, dict]) -> str:
    """The measurements as a table, a number of people a row."""
    columns = list(next(iter(measured.values())))
    lines = [f"{'people':>6} " + " ".join(f"{name:>14}" for name in columns)]
    lines += [f"{n:>6} " + " ".join(f"{row[name]:>14.3f}" for name in columns) for n, row in measured.items()]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="receives model, tokenizer and start.json")
    parser.add_argument("--people", type=int, nargs="+", choices=PEOPLE, default=list(TRAIN_PEOPLE))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS, help="optimizer steps; default %(default)s")
    parser.add_argument("--clean", action="store_true", help="no demonstration carries a slip")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    began = time.perf_counter(), time.process_time()
    log = make(options.folder, options.people, options.seed, options.steps, options.clean)
    ended = time.perf_counter(), time.process_time()
    measured = measure(options.folder, options.seed)
    start = {
        **{key: value for key, value in vars(options).items() if key != "folder"},
        "batch": BATCH,
        "training_seconds": round(ended[0] - began[0], 1),
        "training_cpu_seconds": round(ended[1] - began[1], 1),
        "loss": [round(float(line["loss"]), 4) for line in log if "loss" in line],
        "by_people": measured,
    }
    (options.folder / "start.json").write_text(json.dumps(start, indent=1) + "\n", encoding="utf-8")
    print(table(measured))


if __name__ == "__main__":
    main()

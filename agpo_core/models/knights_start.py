"""Makes supervised starts for Knights and Knaves and measures how they generalise (R++ Fig. 4 at micro scale).

    python -m agpo_core.models.knights_start FOLDER                       trained on puzzles of 2 and 3 people
    python -m agpo_core.models.knights_start FOLDER --people 2 3 4 5      of 2 to 5: as the shipped `tiny-knights`
    python -m agpo_core.models.knights_start FOLDER --slips 0 0           without slips: what the architecture can do

Architecture, tokenizer, recipe and measurements are those of the embedded models (`tiny_models`); the tasks are
`knights_2` to `knights_8`. The measured start is written to FOLDER/start.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from agpo_core.models.tiny_models import KNIGHTS, measure, train_supervised
from agpo_core.tasks import get_task
from agpo_core.tasks.knights import PEOPLE, TRAIN_PEOPLE, Knights


def taught(people: int, slips: tuple[float, float] = Knights.slip_share) -> Knights:
    """The task that is demonstrated, with shares of wrong demonstrations: see `Knights.slip_share`."""
    task = get_task(f"knights_{people}")
    task.slip_share = tuple(slips)
    return task


def table(tasks: dict[str, dict]) -> str:
    """The measurements as a table with one row for each task."""
    columns = list(next(iter(tasks.values())))
    lines = [f"{'task':>10} " + " ".join(f"{name:>14}" for name in columns)]
    lines += [f"{name:>10} " + " ".join(f"{row[column]:>14.3f}" for column in columns) for name, row in tasks.items()]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="receives model, tokenizer and start.json")
    parser.add_argument("--people", type=int, nargs="+", choices=PEOPLE, default=list(TRAIN_PEOPLE))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=KNIGHTS.steps, help="optimizer steps; default %(default)s")
    parser.add_argument(
        "--slips", type=float, nargs=2, metavar=("SIMPLE", "COMPOUND"), default=Knights.slip_share,
        help="shares of wrong demonstrations where the last statement is simple, and where it is a compound; "
        "default %(default)s",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    began = time.perf_counter(), time.process_time()
    tasks = [taught(number, options.slips) for number in options.people]
    model, tokenizer, log = train_supervised("qwen2", tasks, options.seed, KNIGHTS._replace(steps=options.steps))
    ended = time.perf_counter(), time.process_time()
    model.save_pretrained(options.folder)
    tokenizer.save_pretrained(options.folder)
    measured = measure(model, tokenizer, options.seed, [f"knights_{number}" for number in PEOPLE])
    start = {
        **{key: value for key, value in vars(options).items() if key != "folder"},
        "batch": KNIGHTS.batch,
        "training_seconds": round(ended[0] - began[0], 1),
        "training_cpu_seconds": round(ended[1] - began[1], 1),
        "loss": [round(float(line["loss"]), 4) for line in log if "loss" in line],
        **measured,
    }
    (options.folder / "start.json").write_text(json.dumps(start, indent=1) + "\n", encoding="utf-8")
    print(table(measured["tasks"]))


if __name__ == "__main__":
    main()

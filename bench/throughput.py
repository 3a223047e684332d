"""Generated tokens per second of PPO (both forms), GRPO and AGPO, one job at a time.

    python bench/throughput.py [--updates 12] [--rounds 3] [--record]

Every method trains the shipped tiny model on the micro-tasks, with the same prompts and rollouts per update and without
evaluation. Methods take turns, round after round, so that a slow minute of the machine affects all of them; a method's
figure is the median over its updates of all rounds, without the first update of each run. `--record` writes the figures
to `outputs/reference/bench/throughput.json`, from which the bench's README takes them.

The paper's figures (AGPO Table 2) are for two A800 GPUs and a 14 B model. Only ratios can be compared with them, and at
this size a critic's forward pass is a small part of an update.
"""

import argparse
import logging
import statistics
import tempfile
import warnings
from pathlib import Path

import torch

from agpo_core import paths, provenance
from agpo_core.recipes import RECIPES, resolve
from agpo_core.tasks import MICRO_TASKS

METHODS = ("ppo", "ppo_critic", "grpo", "agpo")


def updates_of(method: str, updates: int) -> list[dict]:
    """Seconds and tokens of each update of a run, without the first."""
    from agpo_core.training.train import train

    config = resolve(
        method, tasks=MICRO_TASKS, horizon_unit="updates", horizon=float(updates), learning_rate=1.0e-4,
        dev_problems=0, test_problems=0, checkpoint_every=1.0,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        train(config, Path(folder))
        rows = provenance.read_jsonl(Path(folder) / "metrics.jsonl")
    pairs = zip(rows, rows[1:], strict=False)
    return [{name: b[name] - a[name] for name in ("seconds", "tokens_train", "tokens_probe")} for a, b in pairs]


def measure(updates: int, rounds: int) -> dict:
    """For each method the medians of tokens generated per second, tokens trained on per second, seconds per update."""
    seen = {method: [] for method in METHODS}
    for _ in range(rounds):
        for method in METHODS:
            seen[method] += updates_of(method, updates)
    figures = {}
    for method, rows in seen.items():
        figures[method] = {
            "generated": statistics.median((r["tokens_train"] + r["tokens_probe"]) / r["seconds"] for r in rows),
            "trained": statistics.median(r["tokens_train"] / r["seconds"] for r in rows),
            "seconds": statistics.median(r["seconds"] for r in rows),
            "updates": len(rows),
        }
    return figures


def table(figures: dict) -> str:
    head = f"{'':22}{'generated/s':>12}{'/ PPO, head':>13}{'trained on/s':>14}{'s an update':>13}"
    lines, base = [head], figures["ppo"]["generated"]
    for method, row in figures.items():
        lines.append(
            f"{RECIPES[method].title:22}{row['generated']:>12,.0f}{row['generated'] / base:>13.2f}"
            f"{row['trained']:>14,.0f}{row['seconds']:>13.3f}"
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Tokens per second of PPO, GRPO and AGPO.")
    parser.add_argument("--updates", type=int, default=12, help="updates per run; the first is left out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="write outputs/reference/bench/throughput.json")
    args = parser.parse_args(argv)
    if args.updates < 2:
        parser.error("--updates must be 2 or more: the first is left out.")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    figures = measure(args.updates, args.rounds)
    print(table(figures))
    if args.record:
        to = paths.reference() / "bench" / "throughput.json"
        to.parent.mkdir(parents=True, exist_ok=True)
        about = {
            "commit": provenance.git_commit(),
            "versions": provenance.versions(),
            "hardware": provenance.hardware(),
        }
        provenance.write_json(to, {"figures": figures, "rounds": args.rounds, **about})


if __name__ == "__main__":
    main()

"""What a run writes about itself while it goes on: metrics, samples, warnings and scores, in the run's folder."""

import math
import warnings
from pathlib import Path

from accelerate.utils import gather_object
from torch import Tensor

from agpo_core import kl, metrics, probe, provenance
from agpo_core.config import TrainConfig
from agpo_core.horizon import Horizon
from agpo_core.jobs.progress import Lines
from agpo_core.rollouts.rollout import Rollouts
from agpo_core.training.batch import Batch
from agpo_core.training.ranks import Ranks
from agpo_core.training.run_warnings import RunWarnings


class Journal:
    """Writes metrics.jsonl, samples.jsonl, warnings.jsonl and eval.json, on the main process.

    Args:
        config: the run's settings.
        run_dir: its folder; lines are appended to those that are there already.
        horizon: its clock.
        ranks: metrics are those of all ranks.
        progress: print how far the run is.
    """

    def __init__(self, config: TrainConfig, run_dir: Path, horizon: Horizon, ranks: Ranks, progress: bool = False):
        self.config, self.run_dir, self.horizon, self.ranks = config, run_dir, horizon, ranks
        self.lines = Lines(run_dir, horizon) if progress else None
        said = (line["rule"] for line in self._read("warnings.jsonl"))
        self.rules = RunWarnings(config, self._read("metrics.jsonl"), said)

    def _read(self, name: str) -> list[dict]:
        path = self.run_dir / name
        return provenance.read_jsonl(path) if path.exists() else []

    def log(self, rollouts: Rollouts, batch: Batch, steps: list[dict], more: dict, failures: list[str]) -> None:
        """Append the update's line to metrics.jsonl, and some of what it sampled to samples.jsonl.

        Args:
            rollouts: the training rollouts.
            batch: the same, as they were trained on.
            steps: what each gradient step gave.
            more: metrics that are known already: those of the controllers and the optimiser.
            failures: sentences about gradings that failed on this rank, in all that the update sampled.
        """
        h = self.horizon
        clock = {
            "update": h.updates,
            "progress": h.progress,
            "tokens_train": h.tokens["train"],
            "tokens_probe": h.tokens["probe"],
            "seconds": h.seconds,
            "seconds_left": h.seconds * (1 - h.progress) / max(h.progress, 1e-9),
        }
        self.write(clock | self._of_update(rollouts, batch, steps) | more, failures)
        self._samples(rollouts)

    def _of_update(self, rollouts: Rollouts, batch: Batch, steps: list[dict]) -> dict:
        """Metrics of an update; `metrics.LOGGED` says what each means."""
        c, ranks, G = self.config, self.ranks, self.config.group_size
        rewards_P_G, completions = rollouts.rewards_B.view(-1, G), c.prompts_per_update * G
        tokens, gap_B_T = sum(s["tokens"] for s in steps), rollouts.sampler_logps_B_T - batch.old_logps_B_T
        row = {
            "reward": ranks.gather(rewards_P_G.mean(dim=1)).mean().item(),
            "reward_std": _spread_of(ranks.every_rank(rollouts.rewards_B.unsqueeze(1))),
            "equal_groups": ranks.gather(probe.equal_rewards(rewards_P_G).double()).mean().item(),
            "length": ranks.total(batch.mask_B_T.sum()) / completions,
            "truncated": ranks.total(rollouts.truncated_B.sum()) / completions,
            "entropy": batch.entropy,
            "sampler_gap": ranks.mean(gap_B_T, rollouts.mask_B_T),
            "sampler_gap_abs": ranks.mean(gap_B_T.abs(), rollouts.mask_B_T),
            "loss": sum(s["loss"] for s in steps) / len(steps),
            "grad_norm": sum(s["norm"] for s in steps) / len(steps),
            "grad_norms": [s["norm"] for s in steps],
            "clip_fraction": sum(s["binding"] for s in steps) / max(1, tokens),
            "clip_fraction_active": sum(s["binding"] for s in steps) / max(1, sum(s["active"] for s in steps)),
        }
        if c.critic != "none":
            row["value_loss"] = sum(s["value_loss"] for s in steps) / len(steps)
            row["explained_variance"] = self._explained_variance(batch)
        if rollouts.gold_B is not None:
            row["reward_gold"] = ranks.gather(rollouts.gold_B.view(-1, G).mean(dim=1)).mean().item()
        if rollouts.calls_B is not None:
            row |= self._tool_use(rollouts)
        if batch.reference_logps_B_T is not None:
            d_B_T = kl.k1(batch.old_logps_T1_B_T, batch.reference_logps_B_T)
            row["reference_kl"] = ranks.mean(d_B_T, batch.mask_B_T)
            row["reference_kl_sequence"] = row["reference_kl"] * row["length"]
        return row

    def _tool_use(self, rollouts: Rollouts) -> dict:
        """How often the policy called its tool, over all ranks; without any call the share of failures is 0."""
        counts = ((rollouts.calls_B > 0).sum(), rollouts.calls_B.sum(), rollouts.failed_calls_B.sum())
        callers, calls, failed = map(self.ranks.total, counts)
        completions = self.config.prompts_per_update * self.config.group_size
        return {
            "tool_share": callers / completions,
            "tool_calls": calls / completions,
            "tool_failures": failed / max(1, calls),
        }

    def _explained_variance(self, batch: Batch) -> float:
        """1 - Var(R - V) / Var(R) over all tokens: how well the critic predicts the returns; 0 where R is constant."""
        every_rank = self.ranks.every_rank
        mask_W_T = every_rank(batch.mask_B_T)
        returns, values = (every_rank(v)[mask_W_T].double() for v in (batch.returns_B_T, batch.old_values_B_T))
        spread = returns.var(correction=0)
        return (1 - (returns - values).var(correction=0) / spread).item() if spread > 0 else 0.0

    def _samples(self, rollouts: Rollouts) -> None:
        """Append three or four of the rollouts to samples.jsonl."""
        if not self.ranks.is_main:
            return
        for i in range(0, len(rollouts.texts), max(1, len(rollouts.texts) // 3)):
            problem = rollouts.prompts.problems[i // rollouts.group]
            sample = {"update": self.horizon.updates, "task": problem.task, "prompt": problem.prompt,
                      "completion": rollouts.transcripts[i], "answer": problem.answer,
                      "reward": rollouts.rewards_B[i].item()}  # fmt: skip
            provenance.append_jsonl(self.run_dir / "samples.jsonl", sample)

    def write(self, row: dict, failures: list[str]) -> None:
        """Append a line to metrics.jsonl, and give the warnings that follow from it.

        A number that is not finite is written as null, because JSON has no such numbers.

        Args:
            row: metrics by name, each in `metrics.LOGGED`.
            failures: sentences about gradings that failed on this rank since the previous line.
        """
        row = {**row, "failed_grades": self.ranks.total(len(failures))}
        if row["failed_grades"]:
            first, *_ = gather_object(failures[:1])
            sentence = f"{row['failed_grades']} x grading failed, which counts as reward 0. The first: {first}."
            self.warn(self.rules.once("grading_fails", sentence))
        undocumented = row.keys() - metrics.LOGGED.keys()
        assert not undocumented, f"metrics.LOGGED lacks {sorted(undocumented)}"
        if self.ranks.is_main:
            row = {name: _writable(value) for name, value in row.items()}
            provenance.append_jsonl(self.run_dir / "metrics.jsonl", row)
            if self.lines:
                self.lines.see(row)
            self.warn(self.rules.see(row))

    def warn(self, found: list[tuple[str, str]]) -> None:
        """Print warnings in the log, and keep them in warnings.jsonl for the notebook.

        Args:
            found: (rule, sentence) of each warning.
        """
        if not self.ranks.is_main:
            return
        for rule, sentence in found:
            warnings.warn(sentence, stacklevel=2)
            line = {"update": self.horizon.updates, "rule": rule, "warning": sentence}
            provenance.append_jsonl(self.run_dir / "warnings.jsonl", line)

    def write_scores(self, evaluations: dict) -> None:
        """Replace eval.json.

        Args:
            evaluations: the learning curves, and at the end the scores on test.
        """
        if self.ranks.is_main:
            provenance.write_json(self.run_dir / "eval.json", evaluations)


def _writable(value):
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _spread_of(values: Tensor) -> float:
    """Unbiased standard deviation; 0 of a single value."""
    return values.std().item() if values.numel() > 1 else 0.0

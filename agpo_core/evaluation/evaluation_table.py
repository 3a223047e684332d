"""Turns an evaluation's lines (one for each problem) into its table (one row for each task and metric).

    accuracy      share of right answers with one completion for each problem: greedy, or the likeliest letter
    avg@k         share of right answers among k sampled completions
    mean reward   for tasks whose rewards lie between 0 and 1; in CodeContests, the share of a problem's tests passed
    reward        the same, in the task's own unit, for tasks whose rewards leave [0, 1]; then no reward says what is
                  right, and there are no other rows
    pass@j        chance that one of j completions is right, for j = 2, 4, 8, … and k; an unbiased estimate from all k
    maj@k         chance that the plurality vote of the k completions is right; ties count by expectation

Right means a reward of 1. The vote key is the grader's canonical answer; a task whose answers are programs has no vote.
Intervals are percentiles of the bootstrap over problems, so they cover the choice of problems and no other chance. If
all values are equal, the bootstrap's interval is a point. None of n problems right gives [0, 0], although by the rule
of three (95 %) up to 3 / n remain likely; all right gives [1, 1], although 1 - 3 / n is likely. A problem whose prompt
does not fit into the model's context counts as wrong, and is counted under `too_long`.
"""

from __future__ import annotations

from collections import Counter

import pandas as pd
import torch

from agpo_core import metrics

POINT = (
    "Where all problems have the same value the bootstrap's interval is a point. It is not certainty: by the rule of "
    "three, with none of n right up to 3/n remain likely, and with all right 1 - 3/n."
)
COLUMNS = [
    "model", "task", "n",
    "metric", "value", "low", "high",  # in [0, 1] unless the metric is reward; low and high end the 95 % interval
    "k", "tau", "p",  # completions for each problem, temperature, nucleus
    "prompt", "template", "grading",
    "truncated",  # share of completions that the token limit cut before they ended
    "too_long",  # problems whose prompt left no room for an answer
    "tokens",  # sampled, with EOS
    "seconds",  # of all ranks together
]  # fmt: skip


def table(lines: dict[str, list[dict]], described: dict[str, dict]) -> pd.DataFrame:
    """The table, with one row for each task and metric.

    Args:
        lines: {task: its lines, one for each problem, with rewards, answers, tokens, truncated, too_long, seconds}.
        described: {task: the other columns of its rows: model, k, tau, p, prompt, template, grading}.
    """
    rows = []
    for task, several in lines.items():
        shared = {
            "task": task,
            "n": len(several),
            "truncated": _mean([cut for line in several for cut in line["truncated"]]),
            "too_long": sum(line["too_long"] for line in several),
            "tokens": sum(sum(line["tokens"]) for line in several),
            "seconds": round(sum(line["seconds"] for line in several), 1),
            **described[task],
        }
        for metric, values in values_of(several, greedy=shared["tau"] == 0).items():
            low, high = metrics.bootstrap_interval(values) if len(values) > 1 else (None, None)
            rows.append({**shared, "metric": metric, "value": _mean(values), "low": low, "high": high})
    return pd.DataFrame(rows, columns=COLUMNS).astype({"low": float, "high": float})


def values_of(lines: list[dict], greedy: bool) -> dict[str, list[float]]:
    """{metric: its value for each problem}."""
    rewards_P_N = torch.tensor([line["rewards"] for line in lines], dtype=torch.float64)
    if not ((rewards_P_N >= 0) & (rewards_P_N <= 1)).all():
        return {"reward": rewards_P_N.mean(dim=1).tolist()}
    right_P_N = rewards_P_N == 1
    k = rewards_P_N.shape[1]
    found = {"accuracy" if greedy else f"avg@{k}": metrics.average_at_k(right_P_N)}
    if not torch.equal(rewards_P_N, right_P_N.double()):
        found["mean reward"] = metrics.average_at_k(rewards_P_N)
    if k > 1:
        found |= {f"pass@{j}": metrics.pass_at_k(k, right_P_N.sum(dim=1), j) for j in _tries(k)}
        if all(line["gold"] for line in lines):
            found[f"maj@{k}"] = metrics.majority_at_k([line["answers"] for line in lines], [*map(_gold, lines)])
    return {metric: values.tolist() for metric, values in found.items()}


def _tries(k: int) -> list[int]:
    """The numbers j of pass@j: 2, 4, 8, … below k, and k."""
    return [2**i for i in range(1, k.bit_length()) if 2**i < k] + [k]


def _gold(line: dict) -> str:
    """The right answer's vote key: the commonest among right completions; if none is right, a key without votes."""
    right = Counter(a for a, reward in zip(line["answers"], line["rewards"], strict=True) if reward == 1 and a)
    return right.most_common(1)[0][0] if right else "no completion is right"


def _cells(row) -> tuple[str, str]:
    if row.metric == "reward":
        return f"{row.value:.3g} (no %)", f"[{row.low:.3g}, {row.high:.3g}]"
    return f"{100 * row.value:.1f}", f"[{100 * row.low:.1f}, {100 * row.high:.1f}]"


def _mean(values: list) -> float:
    return sum(values) / len(values)


def text(found: pd.DataFrame) -> str:
    """The table for a terminal: in percent, the interval in one column, with a footnote if an interval is a point.

    A reward that leaves [0, 1] is given in its own unit.
    """
    shown = found.copy()
    shown["value, %"], shown["95 %"] = zip(*map(_cells, found.itertuples()), strict=True)
    shown["truncated"] = [f"{share:.2f}" for share in found["truncated"]]
    columns = ["task", "n", "metric", "value, %", "95 %", *COLUMNS[COLUMNS.index("k") :]]
    lines = shown[columns].to_string(index=False)
    return f"{lines}\n\n{POINT}" if (found["low"] == found["high"]).any() else lines

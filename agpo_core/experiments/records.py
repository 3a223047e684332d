"""Finished runs as tidy tables, and the small record of them that is committed.

Two tables hold everything that the notebooks show:

* runs    one row for each arm x seed x start x task
* traces  one row for each update of a run; row 0 holds the supervised start's score on dev

A record is these two tables as CSV, rounded to five significant digits, and a `meta.json` with parameters, commits,
versions, hardware, and the hash of every run.
"""

import math
import statistics
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from agpo_core import metrics, paths, provenance
from agpo_core.config import TrainConfig

RUN_COLUMNS = [
    "arm", "seed", "start", "task",
    "score", "macro",  # share of the test problems solved, [0, 1]
    "problems", "updates",
    "tokens_train", "tokens_probe", "tokens_last",  # in the two phases of the run; in its last update
    "seconds",  # spent in updates, without evaluation
    "horizon_unit", "horizon", "hash",
    "memory_mb",  # peak of the process above what it held before the model was loaded
    "grad_norm_variance",  # of ‖∇L‖₂ before clipping, over all gradient steps (AGPO §4.5)
]  # fmt: skip
LOGGED = [  # for each update, every signal and every output of a controller; metrics.LOGGED defines them
    "reward", "reward_std", "equal_groups", "length",
    "sigma", "skewness", "vote_entropy", "entropy", "step_kl", "step_kl_used", "reference_kl",
    "tau", "tau_raw", "epsilon", "epsilon_raw", "epsilon_at_bound",
    "uncertainty", "uncertainty_baseline", "uncertainty_train", "clip_fraction", "beta",
    "grad_norm", "explained_variance",
]  # fmt: skip
TRACE_COLUMNS = [
    "arm", "seed", "start", "update", "progress",
    "dev",  # macro-average on dev, where it was evaluated
    "tokens",  # of the update's training phase
    "grad_norm_sd",  # over the update's gradient steps
    *LOGGED,
]  # fmt: skip
# Further columns, only in tables whose runs have them
SAMPLED = ["gold", "score", "kl", "length"]  # by reward_model.appraise; sampled_* in runs (on test), dev_* in traces
TOOL_USE = ["tool_share", "tool_calls", "tool_failures"]  # of an update's training rollouts
PASSES = (1, 8, 16)  # k of pass@k: 1, and the largest for which so many completions were sampled (R++ Tables 2, 3)
VOTERS = (1, 4, 16, 64)  # k of maj@k, where at least k completions per problem were sampled (AGPO Fig. 2)
SCORES = [  # on the test problems, and on those that were trained on
    f"{on}{name}"
    for on in ("", "train_")
    for name in ("score", *(f"pass_{k}" for k in PASSES), *(f"maj_{k}" for k in VOTERS), "maj_loss")
]
DIGITS = 5  # significant, in a record
SCALES = {"tiny": "micro scale"}  # how titles name a profile; others go by their names


@dataclass
class Results:
    """The results of a grid: two tables, and where they come from."""

    runs: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=RUN_COLUMNS))
    traces: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=TRACE_COLUMNS))
    meta: dict = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Scale, seeds and starts, for the titles of figures."""
        if self.runs.empty:
            return "nothing was run"
        trained = self.runs[self.runs["arm"] != "start"]
        seeds = [str(seed) for seed in sorted(trained["seed"].unique())]
        shown = f"{len(seeds)} seeds"
        if len(seeds) <= 3:
            shown = f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}"
        starts = self.runs["start"].nunique()
        profile = self.meta["profile"]
        scale = SCALES.get(profile, f"profile {profile}")
        return f"{scale}, {shown}, {starts} start{'s' * (starts > 1)}"

    def only(self, arms) -> "Results":
        """The results of the given arms alone."""
        keep = [table[table["arm"].isin(arms)] for table in (self.runs, self.traces)]
        meta = dict(self.meta)
        for name in meta.keys() & {"warnings", "samples"}:
            meta[name] = [line for line in meta[name] if line["arm"] in arms]
        return Results(*(table.reset_index(drop=True) for table in keep), meta)


def read(experiment: str, profile: str, params: dict, jobs: list) -> Results:
    """The tables of finished runs.

    Args:
        experiment, profile, params: noted in `meta`.
        jobs: `grid.PlannedRun`s whose folders hold finished runs.
    """
    rows, traces, records, said, samples = [], [], [], [], []
    for job in jobs:
        key = {"arm": job.arm.name, "seed": job.seed, "start": job.start}
        updates = _jsonl(job.folder / "metrics.jsonl")
        evaluations = provenance.read_json(job.folder / "eval.json")
        record = provenance.read_json(job.folder / "run.json")
        rows += _run_rows(key, updates, evaluations, job.config, record)
        if updates:
            traces.append(_trace(key, updates, evaluations))
        records.append({**key, **{name: record.get(name) for name in _NOTED}})
        said += [{**key, "warning": line["warning"]} for line in _jsonl(job.folder / "warnings.jsonl")]
        samples += [{**key, **line} for line in _first_and_last(job.folder, params.get("kept_samples", 0))]
    further = [f"sampled_{name}" for name in SAMPLED] + SCORES[1:]
    return Results(
        pd.DataFrame(rows, columns=_with(rows, RUN_COLUMNS, further)),
        pd.concat(traces, ignore_index=True) if traces else pd.DataFrame(columns=TRACE_COLUMNS),
        _meta(experiment, profile, params, records) | {"warnings": said} | ({"samples": samples} if samples else {}),
    )


_NOTED = ("hash", "commit", "numerics_version", "command", "versions", "hardware", "python",
          "started", "finished")  # fmt: skip


def _jsonl(path: Path) -> list[dict]:
    return provenance.read_jsonl(path) if path.exists() else []


def _first_and_last(folder: Path, kept: int) -> list[dict]:
    """So many lines of samples.jsonl from a run's first update, and as many from its last."""
    lines = _jsonl(folder / "samples.jsonl") if kept else []
    ends = dict.fromkeys(lines[i]["update"] for i in (0, -1)) if lines else ()
    return [line for end in ends for line in [line for line in lines if line["update"] == end][:kept]]


def _with(rows: list[dict], columns: list[str], further: list[str]) -> list[str]:
    """`columns`, and then each of `further` that some row has."""
    return columns + [name for name in further if any(name in row for row in rows)]


def _run_rows(key: dict, updates: list, evaluations: dict, config: TrainConfig, record: dict) -> list:
    test, trained_on = evaluations["test"], evaluations.get("trained_on", {"score": {}})
    last = updates[-1] if updates else {}
    norms = [norm for row in updates for norm in row.get("grad_norms", ())]
    former = updates[-2] if len(updates) > 1 else {}
    spent, before = ([row.get("tokens_train", 0), row.get("tokens_probe", 0)] for row in (last, former))
    run = {
        **key,
        "macro": test["macro"],
        "updates": last.get("update", 0),
        "tokens_train": spent[0],
        "tokens_probe": spent[1],
        "tokens_last": sum(spent) - sum(before),
        "seconds": last.get("seconds", 0.0),
        "horizon_unit": config.horizon_unit,
        "horizon": config.horizon,
        "hash": record["hash"],
        "memory_mb": record.get("memory_mb", math.nan),
        "grad_norm_variance": metrics.gradient_norm_variance(norms) if len(norms) > 1 else math.nan,
        **{f"sampled_{name}": value for name, value in test.get("sampled", {}).items()},
    }
    sizes = test["problems"]
    return [
        {
            **run,
            "task": task,
            "problems": sizes[task] if isinstance(sizes, dict) else sizes,
            **_scores(test, task),
            **_scores(trained_on, task, "train_"),
        }
        for task in test["score"]
    ]


def _scores(point: dict, task: str, on: str = "") -> dict:
    """A task's greedy score, and pass@k and maj@k of its samples, as means over problems; empty if not evaluated."""
    if task not in point["score"]:
        return {}
    n = point.get("samples", 0)
    right = point.get("right", {}).get(task)  # None: its rewards lie outside [0, 1]
    there = [k for k in PASSES if k <= n and right is not None]
    tries = {*there[:1], *there[-1:]}
    passes = {k: metrics.pass_at_k(n, right, k).mean().item() for k in tries}
    found = {"score": point["score"][task], **{f"pass_{k}": value for k, value in passes.items()}}
    if (votes := point.get("votes", {}).get(task)) is not None:  # older runs counted none
        found |= majorities(votes, n)
    return {f"{on}{name}": value for name, value in found.items()}


def majorities(votes: list[list[int]], samples: int) -> dict[str, float]:
    """A task's maj@k for each k in VOTERS up to the number of samples, and what voting loses; means over problems.

    maj@k is exact over all choices of k samples (`metrics.majority_at_k`). maj_loss is the mean over problems of
    max(0, maj@1 - maj@K) with the largest K: the problems that a larger vote answers worse. What the others gain is
    maj@K - maj@1 + maj_loss.

    Args:
        votes: for each problem its counts, as `evaluate.votes` gives them.
        samples: completions for each problem; those that no count holds did not vote.
    Returns:
        {maj_1, maj_4 …, maj_loss}; empty with more samples than `majority_at_k` takes.
    """
    if samples > metrics.SAMPLES_MAX:
        return {}
    ballots = [[i for i, count in enumerate(row) for _ in range(count)] for row in votes]
    answers = [[*row, *[None] * (samples - len(row))] for row in ballots]  # 0 names the right answer
    found = {k: metrics.majority_at_k(answers, [0] * len(votes), k) for k in VOTERS if k <= samples}
    loss = (found[1] - found[max(found)]).clamp(min=0).mean().item()
    return {**{f"maj_{k}": chances.mean().item() for k, chances in found.items()}, "maj_loss": loss}


def _trace(key: dict, updates: list, evaluations: dict) -> pd.DataFrame:
    logged = _with(updates, LOGGED, TOOL_USE)
    trace = pd.DataFrame(updates).reindex(columns=["update", "progress", "tokens_train", *logged])
    total = trace["tokens_train"]
    trace["tokens"] = total.diff().fillna(total)
    norms = [row.get("grad_norms", []) for row in updates]
    trace["grad_norm_sd"] = [statistics.stdev(of) if len(of) > 1 else math.nan for of in norms]
    points = [
        {name: point[name] for name in ("update", "progress")}
        | {"dev": point["macro"]}
        | {f"dev_{name}": value for name, value in point.get("sampled", {}).items()}
        for point in evaluations["dev"]
    ]
    for point, seen in zip(points, evaluations.get("train", []), strict=False):  # both are evaluated together
        point["train"] = seen["macro"]
    further = ["train", *(f"dev_{name}" for name in SAMPLED)]
    scores = pd.DataFrame(points, columns=_with(points, ["update", "progress", "dev"], further))
    trace = trace.merge(scores, on=["update", "progress"], how="outer").sort_values("update")
    trace = trace.assign(**key)[[*TRACE_COLUMNS, *logged[len(LOGGED) :], *scores.columns[3:]]]
    return trace.astype({"update": int, "tokens": "Int64", **dict.fromkeys(logged, float)})


def _meta(experiment: str, profile: str, params: dict, records: list[dict]) -> dict:
    """Where the numbers come from; what all runs share is stated once."""
    shared = {
        name: _distinct(record[name] for record in records)
        for name in ("commit", "numerics_version", "python", "versions", "hardware")
    }
    return {
        "experiment": experiment,
        "profile": profile,
        "params": {name: without_folders(value) for name, value in params.items()},
        **shared,
        "command": records[0]["command"] if records else None,
        "started": min((r["started"] for r in records), default=None),
        "finished": max((r["finished"] for r in records), default=None),
        "runs": [{k: r[k] for k in ("arm", "seed", "start", "hash", "commit")} for r in records],
    }


def without_folders(value):
    """Cut an absolute path to its last part: a record names no folder of the machine that made it."""
    if isinstance(value, list):
        return [without_folders(item) for item in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def _distinct(values) -> list:
    found = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def folder(experiment: str, profile: str) -> Path:
    """The folder of a record."""
    return paths.reference() / profile / experiment


def save(results: Results, to: Path) -> None:
    """Write a record."""
    to.mkdir(parents=True, exist_ok=True)
    for name in ("runs", "traces"):
        table = getattr(results, name)
        table.to_csv(to / f"{name}.csv", index=False, float_format=f"%.{DIGITS}g")
    provenance.write_json(to / "meta.json", results.meta)


def load(experiment: str, profile: str) -> Results | None:
    """The record of an experiment under a profile; None where there is none."""
    where = folder(experiment, profile)
    if not (where / "meta.json").is_file():
        return None
    types = dict.fromkeys(("arm", "start", "task", "horizon_unit", "hash"), str) | {"tokens": "Int64"}
    runs, traces = (
        pd.read_csv(where / f"{name}.csv", dtype={key: types[key] for key in types if key in columns})
        for name, columns in (("runs", RUN_COLUMNS), ("traces", TRACE_COLUMNS))
    )
    return Results(runs, traces, provenance.read_json(where / "meta.json"))

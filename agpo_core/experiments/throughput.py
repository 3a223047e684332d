"""How fast methods generate and train, counted, measured alone, and as recorded (AGPO Table 2).

A token is *generated* if it was sampled, a probe's too; it is *trained on* if it also went into the loss. Speeds are
compared as ratios to GRPO:

    counted    forward passes for a token (`estimate.forward_passes`), with those of a critic that is a model of its own
    alone      medians of `bench/throughput.py`, one job at a time on a quiet machine
    recorded   tokens over the seconds of a run's updates, as a ratio of two runs with equal seed and start. Other work
               ran on the machine at the same time, so that two runs of equal work differ as well.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from agpo_core import comparison, paths, provenance
from agpo_core.comparison import t_interval
from agpo_core.config import FIELDS, TrainConfig
from agpo_core.experiments import estimate, grid, published, records
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.records import Results
from agpo_core.experiments.traces import Part, judge_parts
from agpo_core.experiments.verdicts import fill, p_text
from agpo_core.recipes import RECIPES, resolve

KEY = ["arm", "seed", "start"]
RUN = ["seed", "start"]
KINDS = ("generated", "trained")
MATCHED = "agpo_table1_main_results"  # the record that has GRPO at AGPO's updates and compute, of the same seeds
SAME_WORK = "dr_grpo"  # does per update what GRPO does, but for two divisions
LATER = "grpo_narrow"  # in MATCHED: GRPO's work too, at a time when more work ran beside it


def config_of(params: dict, arm: str) -> TrainConfig:
    """The settings of an arm, without its start and seed; for arms that follow others with any horizon."""
    settings = {name: value for name, value in params.items() if name in FIELDS}
    settings |= RECIPES[ARMS[arm].method].settings | ARMS[arm].settings
    return resolve(ARMS[arm].method, **settings)


def with_matched(results: Results) -> Results:
    """The results, and GRPO's matched arms from the record of Table 1 where they are missing.

    They have no seconds here: those runs were made at another time, beside other work.
    """
    other = records.load(MATCHED, results.meta["profile"]) if results.meta else None
    if other is None or grid.changes(results.meta["params"], other.meta["params"]):
        return results
    missing = [arm for arm in ("grpo_matched_updates", "grpo_matched_compute") if arm not in arms_of(results.runs)]
    more = other.only(missing)
    tables = (
        pd.concat([results.runs, more.runs.assign(seconds=math.nan)], ignore_index=True),
        pd.concat([results.traces, more.traces], ignore_index=True),
    )
    return Results(*tables, results.meta)


def bench() -> dict[str, dict]:
    """The figures of `bench/throughput.py`: method -> generated and trained tokens a second, seconds an update."""
    file = paths.reference() / "bench" / "throughput.json"
    return provenance.read_json(file)["figures"] if file.is_file() else {}


# -- speeds ------------------------------------------------------------------------------------


def passes_a_token(config: TrainConfig) -> dict[str, float]:
    """Forward passes for a token that is trained on, and for one of a probe, a critic of its own included.

    trained on  3 + r + 3 E, as in `estimate.forward_passes`; with such a critic 1 + 3 E more: it values a token once,
                and is trained on it in each of the E epochs
    probe       1
    """
    critic = (1 + 3 * config.epochs) * (config.critic == "model")
    return {"trained": estimate.forward_passes(config, 1, 0) + critic, "probe": estimate.forward_passes(config, 0, 1)}


def counted(params: dict, arm: str, baseline: str = "grpo") -> dict[str, float]:
    """An arm's speed as a ratio to the baseline's, if a second were so many forward passes.

    With a share q of the generated tokens in the probe, a generated token costs (1 - q) trained + q probe passes, and a
    token that is trained on costs 1 / (1 - q) of that.
    """
    costs = {}
    for name in (arm, baseline):
        config = config_of(params, name)
        train, probe = estimate.completions(config)
        share, passes = probe / (train + probe), passes_a_token(config)
        each = (1 - share) * passes["trained"] + share * passes["probe"]
        costs[name] = {"generated": each, "trained": each / (1 - share)}
    return {kind: costs[baseline][kind] / costs[arm][kind] for kind in KINDS}


def speeds(results: Results) -> pd.DataFrame:
    """Tokens a second of each trained run with known seconds: generated, and trained on."""
    runs = results.runs.drop_duplicates(KEY).set_index(KEY)
    runs = runs[(runs["updates"] > 0) & runs["seconds"].notna()]
    generated = runs["tokens_train"] + runs["tokens_probe"]
    return pd.DataFrame({"generated": generated / runs["seconds"], "trained": runs["tokens_train"] / runs["seconds"]})


def log_ratio(values: pd.Series, arm: str, baseline: str) -> pd.Series:
    """log(arm / baseline) of runs with equal seed and start; empty where one of them is missing."""
    there = values.index.get_level_values("arm")
    ours, theirs = (values[there == name].droplevel("arm").astype(float) for name in (arm, baseline))
    return np.log(ours / theirs).dropna()


def ratio_text(logs: pd.Series, digits: int = 2) -> str:
    """The geometric mean of ratios and its 95 % interval: "1.68 (1.36 to 2.08)"; "" where there is no pair."""
    found = t_interval(logs)
    if not found.n:
        return ""
    between = (
        "" if math.isnan(found.half) else f" ({math.exp(found.low):.{digits}f} to {math.exp(found.high):.{digits}f})"
    )
    return f"{math.exp(found.mean):.{digits}f}{between}"


def ratios(results: Results, baseline: str = "grpo") -> pd.DataFrame:
    """Every arm's speeds as ratios to the baseline's, by each of the three measures.

    Returns:
        A row an arm, kind and measure: arm, kind, measure, ratio, low, high (of the 95 % interval; NaN without), n,
        about.
    """
    rows, alone, recorded, unknown = [], bench(), speeds(results), (math.nan, math.nan, 0, "")
    for arm in arms_of(results.runs[results.runs["updates"] > 0]):
        if ARMS[arm].follows:
            continue
        for kind in KINDS:
            rows.append((arm, kind, "counted", counted(results.meta["params"], arm, baseline)[kind], *unknown))
            if {arm, baseline} <= alone.keys():
                rows.append((arm, kind, "alone", alone[arm][kind] / alone[baseline][kind], *unknown))
            found = t_interval(log_ratio(recorded[kind], arm, baseline))
            if found.n and arm != baseline:
                ends = np.exp([found.mean, found.low, found.high])
                rows.append((arm, kind, "recorded", *ends, found.n, found.about))
    columns = ["arm", "kind", "measure", "ratio", "low", "high", "n", "about"]
    return pd.DataFrame(rows, columns=columns).astype({"ratio": float, "low": float, "high": float})


def ratios_table(found: pd.DataFrame) -> pd.DataFrame:
    """The rows of `ratios` as texts, a row an arm; the corner says what the intervals go over."""
    names = {"generated": "generated", "trained": "trained on"}
    rows = {}
    for row in found.itertuples():
        between = "" if math.isnan(row.low) else f" ({row.low:.2f} to {row.high:.2f})"
        rows.setdefault(ARMS[row.arm].title, {})[f"{names[row.kind]}, {row.measure}"] = f"{row.ratio:.2f}{between}"
    order = [f"{names[kind]}, {measure}" for kind in KINDS for measure in ("counted", "alone", "recorded")]
    table = pd.DataFrame.from_dict(rows, orient="index").reindex(columns=order).fillna("")
    corner = comparison.about(
        comparison.Interval(0.0, 0.0, 1, row.about) for row in found.dropna(subset=["low"]).itertuples()
    )
    return table.rename_axis(columns=corner or None)


def equal_work(results: Results) -> str:
    """How much the recorded seconds of runs that do the same work differ: what the machine's other work does."""
    parts = []
    for record, arm, when in (
        (results, SAME_WORK, "in the same grid"),
        (records.load(MATCHED, results.meta["profile"]), LATER, "at another time, in the record of Table 1"),
    ):
        if record is None or not {arm, "grpo"} <= set(arms_of(record.runs)):
            continue
        runs = record.runs.drop_duplicates(KEY).set_index(KEY)
        each = np.exp(log_ratio(runs["seconds"] / runs["updates"], arm, "grpo"))
        if len(each):
            parts.append(f"{ARMS[arm].title}, trained {when}: {each.min():.2f} to {each.max():.2f}")
    return (
        f"Seconds an update, as a multiple of GRPO's, of methods that do GRPO's work: {'; '.join(parts)}."
        if parts
        else "No method that does GRPO's work was run beside it."
    )


# -- verdicts on ratios ------------------------------------------------------------------------


@dataclass(frozen=True)
class Statement:
    """A statement about a ratio of two arms, a value a run.

    Attributes:
        says: the statement; it claims a ratio above 1 if `claims`, else it is a question.
        logs: log of the ratio, indexed by seed and start.
        claims: whether the paper claims it.
        note: what else is to be said, after the measurement.
        caveat: what a verdict rests on, where that is less than a measurement.
    """

    says: str
    logs: pd.Series
    claims: bool = True
    note: str = ""
    caveat: str = ""


def judge(statements: list[Statement]) -> pd.DataFrame:
    """A verdict on each statement by the t-test of its log ratios: see `traces.judge_parts`."""
    return judge_parts([Part(s.says, s.logs, int(s.claims)) for s in statements])


def verdict_text(numbers: tuple[int, ...], statements: dict[int, list[Statement]], asked: list[Statement]) -> str:
    """The claims, what the paper prints, and each statement with its ratio and verdict; then what is only asked.

    Holm's correction goes over the statements of all claims, and apart from them over the others.

    Args:
        numbers: of the claims, in `published.claims`.
        statements: of each claim.
        asked: those that no paper makes.
    """
    flat = [s for number in numbers for s in statements[number]]
    judged = judge([*flat, *asked])
    rows, blocks = list(judged.itertuples()), []
    for number in numbers:
        claim = published.claims()[number - 1]
        mine, rows = rows[: len(statements[number])], rows[len(statements[number]) :]
        lines = [_said(s, row) for s, row in zip(statements[number], mine, strict=True)]
        blocks.append("\n".join([fill(f"{claim.title}: {claim.says}"), *lines]))
    if asked:
        blocks.append(
            "\n".join(["Asked, and not claimed", *(_said(s, row) for s, row in zip(asked, rows, strict=True))])
        )
    about = comparison.speaks(comparison.about(t_interval(s.logs) for s in [*flat, *asked]))
    return "\n\n".join([*blocks, *([fill(about)] if about else [])])


def _said(statement: Statement, row) -> str:
    lines = [fill(statement.says, bullet="  part       " if statement.claims else "  asks       ")]
    measured = "no pair of runs has it"
    if row.n:
        measured = f"× {ratio_text(statement.logs)}, {row.n} pair{'s' * (row.n > 1)}"
    if not math.isnan(row.p_holm):
        measured += f", {p_text(row.p_holm)} (Holm over {row.family})"
    lines.append(fill(measured + (f"; {statement.note}" if statement.note else ""), bullet="  measured   "))
    if statement.claims:
        verdict = f"{row.verdict} at this scale{f', {statement.caveat}' if statement.caveat else ''}"
        lines.append(fill(verdict if row.n else "not run", bullet="  verdict    "))
    return "\n".join(lines)

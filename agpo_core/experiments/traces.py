"""What traces of runs say of AGPO's controllers: Eq. 4 and Eqs. 9-12 recomputed, changes within runs, and verdicts.

A trace holds a row an update (`records.TRACE_COLUMNS`). Updates of one run are not independent of each other. Each
statistic is therefore one number a run first, and the interval of its mean goes over runs (`comparison.spread`).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from agpo_core.comparison import LEVEL, MOST_PAIRS, Interval, about, estimate, holm, pairs_needed, speaks, t_interval
from agpo_core.experiments import leverage, published
from agpo_core.experiments.grid import ARMS
from agpo_core.experiments.records import Results
from agpo_core.experiments.verdicts import fill, p_text

RUN = ["seed", "start"]
QUARTERS = {"first": 1, "third": 3, "last": 4}
TERMS = {  # of Eq. 4: what moves ε -> its column in a trace
    "H": "entropy", "E": "vote_entropy", "σ̂": "sigma", "|κ̃₃|": "skewness", "D̂": "step_kl_used",
}  # fmt: skip
NOTICEABLE = 0.1  # a tenth of ε: what a signal must move to be called noticeable here


# -- runs and their quarters -------------------------------------------------------------------


def updates_of(traces: pd.DataFrame, arm: str) -> pd.DataFrame:
    """The updates of an arm's runs in their order; row 0, the score before training, is left out."""
    of_arm = traces[(traces["arm"] == arm) & (traces["update"] > 0)]
    return of_arm.sort_values([*RUN, "update"]).reset_index(drop=True)


def probed(traces: pd.DataFrame, arm: str) -> pd.DataFrame:
    """The updates of an arm's runs whose temperature had signals: all, but for the first of a free probe."""
    return updates_of(traces, arm).dropna(subset=["uncertainty"]).reset_index(drop=True)


def each_run(updates: pd.DataFrame, value: Callable[[pd.DataFrame], float]) -> pd.Series:
    """One number a run, indexed by seed and start; runs of which it is NaN are left out."""
    found = {key: value(run) for key, run in updates.groupby(RUN)}
    index = pd.MultiIndex.from_tuples(found, names=RUN) if found else pd.MultiIndex.from_arrays([[], []], names=RUN)
    return pd.Series(list(found.values()), index, dtype=float).dropna()


def quarter(updates: pd.DataFrame, column: str, which: str) -> pd.Series:
    """The mean of a column over the first, third or last quarter of each run's updates; never fewer than one update.

    Example:
        >>> run = pd.DataFrame({"seed": 1, "start": "a", "tau": [4.0, 3.0, 2.0, 1.0, 0.0, 0.0, 0.0, 1.0]})
        >>> quarter(run, "tau", "first").item(), quarter(run, "tau", "last").item()
        (3.5, 0.5)
    """

    def mean(run: pd.DataFrame) -> float:
        n, q = len(run), QUARTERS[which]
        begin = min((q - 1) * n // 4, n - 1)
        return run[column].iloc[begin : max(q * n // 4, begin + 1)].mean()

    return each_run(updates, mean)


def change(updates: pd.DataFrame, column: str, since: str = "first") -> pd.Series:
    """The mean of a column over the last quarter of a run less that over an earlier one; one number a run."""
    return quarter(updates, column, "last") - quarter(updates, column, since)


# -- the radius, Eq. 4 -------------------------------------------------------------------------


def denominator(updates: pd.DataFrame, params: dict) -> pd.DataFrame:
    """What the denominator of Eq. 4 is made of, update by update.

    1 + α σ̂ + ζ |κ̃₃| + γ D̂_step                                                            (AGPO Eq. 4)

    Returns:
        A row an update: σ̂, |κ̃₃|, D̂ (each with its coefficient; a D̂ below zero counts as zero), and `sum`, with the 1.
    """
    parts = pd.DataFrame(
        {
            "σ̂": params["alpha"] * updates["sigma"],
            "|κ̃₃|": params["zeta"] * updates["skewness"].abs(),
            "D̂": params["gamma"] * updates["step_kl_used"].clip(lower=0),
        }
    )
    return parts.assign(sum=1 + parts.sum(axis=1))


def radius(updates: pd.DataFrame, params: dict) -> pd.Series:
    """Eq. 4 before its bounds, recomputed from recorded signals with the entropy as printed (`clip_entropy` "raw")."""
    rise = updates["entropy"] * (1 + params["delta"] * updates["vote_entropy"])
    return params["epsilon_base"] * rise / denominator(updates, params)["sum"]


def shares(updates: pd.DataFrame, params: dict) -> pd.DataFrame:
    """Which share of the variance of ln ε within a run each signal of Eq. 4 explains.

    share_x = Cov(x, ln ε) / Var(ln ε),    ln ε = ln ε_base + ln H + ln(1 + δ E) - ln(denominator)

    ε is that before its bounds. The shares add up to 1, and one is below zero where its signal moved against ε. The
    denominator's three signals are told apart to first order: each counts with its term, over the denominator's mean
    in the run; what this leaves of the logarithm is `rest`.

    Returns:
        A row a run: H, E, σ̂, |κ̃₃|, D̂, rest; and sd, the standard deviation of ln ε.
    """
    rows = {}
    for key, run in updates.groupby(RUN):
        below = denominator(run, params)
        terms = pd.DataFrame({"H": np.log(run["entropy"]), "E": np.log(1 + params["delta"] * run["vote_entropy"])})
        for name in ("σ̂", "|κ̃₃|", "D̂"):
            terms[name] = -below[name] / below["sum"].mean()
        terms["rest"] = -np.log(below["sum"]) - terms[["σ̂", "|κ̃₃|", "D̂"]].sum(axis=1)
        whole = terms.sum(axis=1)
        variance = whole.var()
        rows[key] = {name: terms[name].cov(whole) / variance for name in terms} | {"sd": math.sqrt(variance)}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(RUN)


def gamma_needed(updates: pd.DataFrame, params: dict, effect: float = NOTICEABLE) -> pd.Series:
    """How many times γ would have to be for the mean drift of a run to make ε smaller by `effect`; one number a run.

    (b + γ' D̂) / b = 1 / (1 - effect),  b = 1 + α σ̂ + ζ |κ̃₃|, means over the run; the ratio γ' / γ is given
    """

    def ratio(run: pd.DataFrame) -> float:
        below = denominator(run, params)
        drift = below["D̂"].mean()
        return (below["sum"].mean() - drift) * (1 / (1 - effect) - 1) / drift if drift > 0 else math.nan

    return each_run(updates, ratio)


def at_floor(updates: pd.DataFrame, params: dict) -> pd.Series:
    """Share of each run's updates with ε at ε_min."""
    return each_run(updates, lambda run: np.isclose(run["epsilon"].astype(float), params["epsilon_min"]).mean())


# -- the temperature, Eqs. 9-12 ----------------------------------------------------------------


def temperature(updates: pd.DataFrame, params: dict, start: str) -> pd.Series:
    """τ from recorded signals, with Ū begun as `start` says: see `controllers.AdaptiveTemperature`.

    The signals are those of the run: what another τ would have made of the policy, and so of later signals, is not in
    it.

    Args:
        updates: as `probed` gives them.
    """
    clip, controller = leverage.controllers_of(params, "agpo")
    controller = replace(controller, start=start)
    courses = [leverage.recompute(run, clip, controller)["tau"] for _, run in updates.groupby(RUN)]
    return pd.concat(courses).reindex(updates.index) if courses else pd.Series(dtype=float)


def warm_up(updates: pd.DataFrame, params: dict) -> pd.Series:
    """The τ that Eqs. 10-12 give under Ū_0 = 0 if U is the run's mean in every update: a schedule without feedback.

    τ_t = τ_base (1 + λ U ρ_U^(t - 1))                              (AGPO Eqs. 10-12 at constant U; see learn_02)
    """
    runs = updates.groupby(RUN)["uncertainty"]
    heat = params["sensitivity"] * runs.transform("mean") * params["momentum"] ** runs.cumcount()
    return params["tau_base"] * (1 + heat)


def explained(updates: pd.DataFrame, tau: pd.Series) -> pd.Series:
    """Which share of the variance of each run's τ another course of τ explains: 1 - Σ (τ - other)² / Σ (τ - mean)²."""

    def share(run: pd.DataFrame) -> float:
        around = ((run["tau"] - run["tau"].mean()) ** 2).sum()
        return 1 - ((run["tau"] - tau[run.index]) ** 2).sum() / around if around > 0 else math.nan

    return each_run(updates, share)


# -- correlations within runs ------------------------------------------------------------------


def lagged(updates: pd.DataFrame, x: str, y: str, lag: int, differences: bool = True) -> pd.Series:
    """The correlation of x in an update with y `lag` updates later, within each run.

    corr(Δx_t, Δy_(t + lag)),  Δx_t = x_t - x_(t - 1)

    Of changes, not of levels: two series that both trend are correlated whatever they have to do with each other.

    Args:
        lag: below zero, y comes before x.
        differences: False: of the levels.
    Returns:
        One number a run; runs with fewer than four pairs, or without variance, are left out.
    """

    def correlation(run: pd.DataFrame) -> float:
        a, b = (run[name].diff() if differences else run[name] for name in (x, y))
        both = pd.DataFrame({"x": a, "y": b.shift(-lag)}).dropna()
        if len(both) < 4 or both.std().min() < 1e-12:
            return math.nan
        return both["x"].corr(both["y"])

    return each_run(updates, correlation)


def mean_correlation(values: pd.Series) -> tuple[float, float, float, int]:
    """The mean of correlations and its 95 % interval over runs, by Fisher's z: mean, low, high, number of runs.

    z = artanh r has a nearly normal distribution whatever r is (Fisher 1921). Low and high are NaN for one run.
    """
    found = t_interval(np.arctanh(values.clip(-1 + 1e-9, 1 - 1e-9)))
    return math.tanh(found.mean), math.tanh(found.low), math.tanh(found.high), found.n


def correlation_text(values: pd.Series) -> str:
    """A mean correlation in words: "-0.50 [-0.60, -0.39]"; "no number" where no run has one."""
    mean, low, high, n = mean_correlation(values)
    if not n:
        return "no number"
    return f"{mean:+.2f}" if math.isnan(low) else f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"


# -- tables ------------------------------------------------------------------------------------


def signals_table(updates: pd.DataFrame, params: dict) -> pd.DataFrame:
    """Each signal of Eq. 4 over an arm's runs: its mean, its change within a run, and what it does to ε.

    range           largest less smallest value of a run, mean over runs
    change          last quarter less first quarter of a run, ± 95 % t-interval
    of denominator  the term's mean share of 1 + α σ̂ + ζ |κ̃₃| + γ D̂; blank for what stands above the line
    of ln ε         its share of the variance of ln ε within a run (`shares`), ± 95 % t-interval
    """
    below, part = denominator(updates, params), shares(updates, params)
    rows = {}
    for name, column in TERMS.items():
        of_denominator = f"{(below[name] / below['sum']).mean():.2%}" if name in below else ""
        rows[name] = {
            "mean": f"{updates[column].mean():.4f}",
            "range": f"{each_run(updates, lambda run: np.ptp(run[column])).mean():.4f}",  # noqa: B023
            "change": t_interval(change(updates, column)).text("+", 4),
            "of denominator": of_denominator,
            "of ln ε, %": t_interval(100 * part[name]).text("+", 0),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(columns=_corner([change(updates, "entropy")]))


def radius_table(results: Results, arms: Iterable[str]) -> pd.DataFrame:
    """What radius, entropy and KL did within the runs of each arm; first and last quarter, means over runs."""
    rows = {}
    for arm in present(results, arms):
        updates, params = updates_of(results.traces, arm), results.meta["params"]
        adapts = "epsilon" in ARMS[arm].adapts
        floor = at_floor(updates, params)
        dev = results.traces[results.traces["arm"] == arm].dropna(subset=["dev"]).groupby(RUN)["dev"]
        rows[ARMS[arm].title] = {
            "updates": f"{updates.groupby(RUN).size().mean():.0f}",
            "H, nats": _course(updates, "entropy", 2),
            "ε": _course(updates, "epsilon", 3),
            "runs at floor": f"{(floor > 0).sum()} of {len(floor)}" if adapts else "",
            "step KL": _course(updates, "step_kl", 4),
            "KL to reference": _course(updates, "reference_kl", 3),
            "clip binds": _course(updates, "clip_fraction", 1, 100) + " %",
            "dev, %": f"{100 * dev.first().mean():.1f} → {100 * dev.last().mean():.1f}",
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def temperature_table(results: Results, arms: Iterable[str]) -> pd.DataFrame:
    """What τ did within the runs of each arm that moves it, and from the same signals with Ū debiased; means over runs.

    below base  share of updates with τ < τ_base
    Ū / U       how much of U the baseline has reached in the last update
    warm-up     share of the variance of a run's τ that the warm-up at constant U explains (`warm_up`)
    debiased    lowest and highest τ from the same signals with Ū debiased, and the share below base
    """
    rows = {}
    for arm in [arm for arm in present(results, arms) if "tau" in ARMS[arm].adapts]:
        updates, params = probed(results.traces, arm), results.meta["params"]
        other = temperature(updates, params, "debiased")
        last = updates.loc[updates.groupby(RUN)["update"].idxmax()]
        rows[ARMS[arm].title] = {
            "updates": f"{updates.groupby(RUN).size().mean():.0f}",
            "τ": _course(updates, "tau", 3),
            "below base": f"{(updates['tau'] < params['tau_base']).mean():.1%}",
            "U": _course(updates, "uncertainty", 2),
            "Ū / U": f"{(last['uncertainty_baseline'] / last['uncertainty']).mean():.0%}",
            "warm-up": f"{explained(updates, warm_up(updates, params)).mean():.0%}",
            "debiased τ": f"{other.min():.3f} to {other.max():.3f}",
            "debiased below base": f"{(other < params['tau_base'] - 1e-9).mean():.0%}",
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def _course(updates: pd.DataFrame, column: str, digits: int, scale: float = 1) -> str:
    first, last = (scale * quarter(updates, column, which).mean() for which in ("first", "last"))
    return "" if math.isnan(first) else f"{first:.{digits}f} → {last:.{digits}f}"


def present(results: Results, arms: Iterable[str]) -> list[str]:
    """Those of some arms of which there are updates."""
    return [arm for arm in arms if arm in set(results.traces["arm"])]


def _corner(values: list[pd.Series]) -> str | None:
    return about(map(t_interval, values)) or None


# -- verdicts ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """One statement about runs, as one number a run whose sign decides.

    Attributes:
        says: the statement, in one sentence.
        values: one number a run, indexed by seed and start.
        sign: +1 or -1, on which side of zero their mean lies if the statement is true; 0: nothing is claimed.
        digits: of the numbers that are printed.
    """

    says: str
    values: pd.Series
    sign: int
    digits: int = 3


def judge_parts(parts: list[Part]) -> pd.DataFrame:
    """A verdict on each statement, by the t-test of its values' mean against zero.

    supported      the mean lies on the claimed side of zero, Holm's p below .05
    contradicted   on the other side, Holm's p below .05
    inconclusive   neither; `needed` runs would give 80 % power for a mean of this size
    no claim       nothing is claimed
    not run        no run has a value

    Holm's correction is over the statements that are claimed, and apart from them over the others.

    Returns:
        A row a statement: mean, half, n, about (see comparison.Interval), p, p_holm, family, verdict, needed.
    """
    frame = pd.DataFrame(
        {"p": [estimate(part.values).p for part in parts], "claim": [part.sign != 0 for part in parts]}
    )
    families = frame.groupby("claim")["p"]
    frame["p_holm"] = families.transform(lambda p: holm(p.astype(float)))
    frame["family"] = families.transform("count")
    rows = []
    for part, row in zip(parts, frame.itertuples(), strict=True):
        found, needed = t_interval(part.values), None
        verdict = "no claim" if not part.sign else "not run" if not found.n else "inconclusive"
        if verdict == "inconclusive" and row.p_holm < LEVEL:
            verdict = "supported" if found.mean * part.sign > 0 else "contradicted"
        elif verdict == "inconclusive" and not math.isnan(row.p):
            spread = part.values.std()  # `pairs_needed` takes points, and calls those closer than its TIE equal
            needed = pairs_needed(part.values / spread, LEVEL / row.family)
        rows.append((*found, row.p, row.p_holm, row.family, verdict, needed))
    names = ["mean", "half", "n", "about", "p", "p_holm", "family", "verdict", "needed"]
    return pd.DataFrame(rows, columns=names).astype({"needed": float})


def claim_text(number: int, judged: pd.DataFrame, parts: list[Part]) -> str:
    """A claim, what its paper prints, and each of its statements with its measurement and verdict.

    Args:
        number: of the claim, in `published.claims`.
        judged, parts: rows and statements of this claim, in one order.
    """
    (claim,) = (claim for claim in published.claims() if claim.number == number)
    printed = [
        f"{n.paper} {n.place}, {n.row}, {n.column}: {n.value:g}" for r in claim.numbers for n in published.find(r)
    ]
    lines = [
        fill(f"{claim.title}: {claim.says}"),
        fill("; ".join(printed) or "no number", bullet="  published  "),
        *_as_text(judged, parts),
    ]
    return "\n".join(lines)


def controls_text(judged: pd.DataFrame, parts: list[Part]) -> str:
    """Statements about which no paper claims anything, each with its measurement."""
    return "\n".join(_as_text(judged, parts))


def _as_text(judged: pd.DataFrame, parts: list[Part]) -> list[str]:
    lines = []
    for part, row in zip(parts, judged.itertuples(), strict=True):
        lines.append(fill(part.says, bullet="  part       " if part.sign else "  asks       "))
        lines.append(fill(_measured(part, row), bullet="  measured   "))
        if part.sign:
            lines.append(fill(_verdict(row), bullet="  verdict    "))
    note = speaks(about(Interval(row.mean, row.half, row.n, row.about) for row in judged.itertuples()))
    return [*lines, *([fill(note)] if note else [])]


def _measured(part: Part, row) -> str:
    if not row.n:
        return "no run has it"
    mean = f"{row.mean:+.{part.digits}f}"
    if math.isnan(row.half):
        return f"{mean}, {row.n} run{'s' * (row.n > 1)}, no interval"
    low, high = (f"{value:+.{part.digits}f}" for value in (row.mean - row.half, row.mean + row.half))
    return f"{mean}, 95 % interval [{low}, {high}], {row.n} runs, {p_text(row.p_holm)} (Holm over {row.family})"


def _verdict(row) -> str:
    if row.verdict in ("supported", "contradicted"):
        return f"{row.verdict} at this scale"
    if row.verdict == "not run":
        return "not run"
    if math.isnan(row.half):
        return "inconclusive at this scale: without an interval nothing is decided"
    needed = f"more than {MOST_PAIRS}" if math.isnan(row.needed) else f"about {row.needed:.0f}"
    return f"inconclusive at this scale: a mean of this size takes {needed} runs for 80 % power"

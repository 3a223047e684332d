"""How far each signal moves AGPO's ε and τ: Eqs. 4 and 9 to 12 asked again on recorded signals, one of them masked.

Nothing is trained. A record keeps every signal of every update, so that the controllers can be asked twice: as they
were, and with the mask of an ablation (AGPO §4.5, Table 4). The *leverage* of a signal is what the mask changes.

- The running mean Ū (Eq. 11) forgets the masked signal too, as it would in a run without it.
- The signals stay those of the recorded run. A run that is trained with the mask has its first update in common with
  it and then meets signals of its own, so leverage says what the controllers would do, not what training would.
"""

import numpy as np
import pandas as pd

from agpo_core.comparison import paired, t_interval
from agpo_core.config import FIELDS
from agpo_core.controllers import ClipSignals
from agpo_core.experiments.grid import ARMS
from agpo_core.experiments.records import Results
from agpo_core.experiments.verdicts import fill
from agpo_core.recipes import RECIPES, resolve
from agpo_core.training.control import make_controllers

MASKED = ("agpo_no_dispersion", "agpo_no_skewness", "agpo_no_vote_entropy", "agpo_no_step_kl")  # Table 4's rows
SIGNALS = ["sigma", "skewness", "vote_entropy", "entropy", "step_kl_used"]  # as they stand in the traces
RUN = ["seed", "start"]
COLUMNS = ["arm", *RUN, "update", "epsilon_factor", "raw_factor", "cut", "tau_shift", "hidden_below"]


def controllers_of(params: dict, arm: str):
    """The clip and the temperature controller of an arm, under a grid's parameters.

    Args:
        params: of the grid, as in a record's `meta`.
        arm: a name in grid.ARMS.
    """
    settings = {name: value for name, value in params.items() if name in FIELDS}
    settings |= RECIPES[ARMS[arm].method].settings | ARMS[arm].settings
    return make_controllers(resolve(ARMS[arm].method, **settings), vocabulary_size=None)[:2]


def recompute(updates: pd.DataFrame, clip, temperature) -> pd.DataFrame:
    """ε and τ of one run, from its signals alone (AGPO Eqs. 4, 9 to 12).

    Args:
        updates: a row an update, in order, with the columns SIGNALS.
        clip, temperature: controllers, asked from their initial state on.
    Returns:
        A row an update, with the index of `updates`: epsilon_raw (before its bounds), epsilon, tau.
    """
    clip_state, temperature_state, rows = clip.initial_state(), temperature.initial_state(), []
    for sigma, skewness, vote_entropy, entropy, step_kl in updates[SIGNALS].itertuples(index=False):
        signals = ClipSignals(sigma, skewness, vote_entropy, entropy, step_kl)
        raw = clip.raw(clip_state, signals)
        epsilon, clip_state = clip.update(clip_state, signals)
        tau, temperature_state = temperature.update(temperature_state, signals)
        rows.append((raw, epsilon, tau))
    return pd.DataFrame(rows, index=updates.index, columns=["epsilon_raw", "epsilon", "tau"], dtype=float)


def runs_of(traces: pd.DataFrame, arm: str) -> list[tuple[tuple, pd.DataFrame]]:
    """The updates of each run of an arm, as (seed, start) and a table in order; those without signals are left out."""
    updates = traces[(traces["arm"] == arm) & (traces["update"] > 0)].dropna(subset=SIGNALS)
    return [(run, rows.sort_values("update")) for run, rows in updates.groupby(RUN)]


def deviations(traces: pd.DataFrame, params: dict) -> pd.DataFrame:
    """Whether the recomputation is right: how far it lies from what the runs recorded, each arm under its own mask.

    Returns:
        A row an arm: updates, and the largest |recomputed / recorded - 1| of epsilon and tau. A record keeps five
        digits, which is a relative error of 5e-5 at most, of each signal and of the value itself.
    """
    rows = {}
    for arm in ("agpo", *MASKED):
        pairs = [(recompute(run, *controllers_of(params, arm)), run) for _, run in runs_of(traces, arm)]
        if pairs:
            found, recorded = (pd.concat(tables) for tables in zip(*pairs, strict=True))
            names = ["epsilon", "tau"]
            rows[arm] = {"updates": len(found)} | (found[names] / recorded[names] - 1).abs().max().to_dict()
    return pd.DataFrame.from_dict(rows, orient="index", columns=["updates", "epsilon", "tau"])


def leverage(traces: pd.DataFrame, params: dict, arm: str = "agpo") -> pd.DataFrame:
    """What each mask of Table 4 would have made of ε and τ in the runs of an arm that has all signals.

    Args:
        traces, params: of a record.
        arm: whose recorded signals are taken.
    Returns:
        A row a mask and update: arm (that of the mask), seed, start, update, and
        epsilon_factor  ε with the mask / ε
        raw_factor      the same before the bounds
        cut             whether a bound of ε hides a part of that, or all
        tau_shift       τ with the mask - τ
        hidden_below    the entropy H, nats, below which both radii would lie at ε_min, so that nothing is left of the
                        factor (Eq. 4 is linear in H); NaN where H enters in another form
    """
    tables = []
    clip, temperature = controllers_of(params, arm)
    for (seed, start), updates in runs_of(traces, arm):
        full = recompute(updates, clip, temperature)
        for name in MASKED:
            masked = recompute(updates, *controllers_of(params, name))
            factor, raw = (masked[column] / full[column] for column in ("epsilon", "epsilon_raw"))
            larger = np.maximum(masked["epsilon_raw"], full["epsilon_raw"])
            columns = {
                "arm": name, "seed": seed, "start": start, "update": updates["update"],
                "epsilon_factor": factor, "raw_factor": raw, "cut": ~np.isclose(factor, raw, rtol=1e-9),
                "tau_shift": masked["tau"] - full["tau"],
                "hidden_below": updates["entropy"] * clip.epsilon_min / larger if clip.entropy == "raw" else np.nan,
            }  # fmt: skip
            tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=COLUMNS)


def middle(values) -> tuple[float, float, float]:
    """Median, and the ends of the range that holds 95 % of some values."""
    return tuple(np.quantile(np.asarray(values, dtype=float), [0.5, 0.025, 0.975]).tolist())


def leverage_table(found: pd.DataFrame) -> pd.DataFrame:
    """The leverage of each signal, over all updates and runs: median, and in brackets the range of 95 % of them."""
    rows = {}
    for name in dict.fromkeys(found["arm"]):
        of = found[found["arm"] == name]
        (factor, *factors), (shift, *shifts) = middle(of["epsilon_factor"]), middle(of["tau_shift"])
        rows[ARMS[name].title] = {
            "ε without it / ε": f"{factor:.3f} [{factors[0]:.3f}, {factors[1]:.3f}]",
            "τ without it − τ": f"{shift:+.3f} [{shifts[0]:+.3f}, {shifts[1]:+.3f}]",
            "cut by ε's bounds": f"{of['cut'].mean():.0%} of updates",
            "hidden wholly below H =": f"{of['hidden_below'].median():.2f} nats",
        }
    return pd.DataFrame.from_dict(rows, orient="index").replace("nan nats", "").rename_axis(columns="median [95 %]")


def correlations(traces: pd.DataFrame, arm: str = "agpo") -> pd.Series:
    """How the probe's three signals move together: correlation over the updates of each run, mean over runs.

    Returns:
        {"σ̂, E": ..., "σ̂, |κ̃₃|": ..., "E, |κ̃₃|": ...}; NaN without a run of three updates or more.
    """
    of_runs = [run[SIGNALS].astype(float).corr() for _, run in runs_of(traces, arm) if len(run) > 2]
    pairs = {
        "σ̂, E": ("sigma", "vote_entropy"),
        "σ̂, |κ̃₃|": ("sigma", "skewness"),
        "E, |κ̃₃|": ("vote_entropy", "skewness"),
    }
    means = {name: np.mean([r.loc[pair] for r in of_runs]) if of_runs else np.nan for name, pair in pairs.items()}
    return pd.Series(means, dtype=float)


# Of Table 1's arms: how far the score moves where ε, or τ, moves much farther than by a mask
SCALE = {
    ("grpo_narrow", "grpo"): "a radius divided by four",
    ("grpo_ats", "grpo_matched_updates"): "the whole temperature controller, at equal updates,",
}


def explained(results: Results, table1: Results | None) -> str:
    """What leverage says about the measured differences in score, sentence by sentence.

    Args:
        results: with AGPO and the ablations.
        table1: the record of AGPO's Table 1, for scale; None: nothing is said of it.
    """
    found = leverage(results.traces, results.meta.get("params", {})) if len(results.traces) else pd.DataFrame()
    if found.empty:
        return "These runs kept no signals."
    factors = {arm: middle(of["epsilon_factor"]) for arm, of in found.groupby("arm")}
    shifts = {arm: middle(of["tau_shift"]) for arm, of in found.groupby("arm")}
    order = sorted(factors, key=lambda arm: abs(np.log(factors[arm][0])))
    sentences = [_least(order[0], factors[order[0]], shifts[order[0]], results)]
    sentences += [_steady(arm, *factors[arm]) for arm in reversed(order) if abs(np.log(factors[arm][0])) > np.log(1.1)]
    for (arm, baseline), what in SCALE.items():
        gap = t_interval(paired(table1.runs, arm, baseline)) if table1 else t_interval([])
        if gap.n:
            sentences.append(
                f"For scale, from the record of Table 1: runs that differ by {what} have scores that differ by "
                f"{gap.text('+')} points ({ARMS[arm].title} against {ARMS[baseline].title}; not corrected)."
            )
    return "\n".join(fill(sentence, bullet="- ") for sentence in sentences)


def _least(arm: str, factor: tuple, shift: tuple, results: Results) -> str:
    gap = t_interval(paired(results.runs, arm, "agpo"))
    measured = f" Their scores differ by {gap.text('+')} points." if gap.n else ""
    return (
        f"{ARMS[arm].title} has the least leverage: in 95 % of updates ε would change by {factor[1] - 1:+.1%} to "
        f"{factor[2] - 1:+.1%}, and τ by {shift[1]:+.3f} to {shift[2]:+.3f}. A signal reaches training through ε and τ "
        f"alone, and this one hardly moves either.{measured}"
    )


def _steady(arm: str, factor: float, low: float, high: float) -> str:
    return (
        f"{ARMS[arm].title}: ε would be {factor:.2f} times as large, but by nearly the same factor in every update: in "
        f"95 % of them it lies within {low / factor - 1:+.1%} and {high / factor - 1:+.1%} of that. To ε this mask "
        f"does nearly what multiplying ε_base by {factor:.2f} would do."
    )

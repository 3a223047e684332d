"""Normaliser and KL: a 2 x 3 of runs, and what each factor does to score, KL and stability.

Both normalisers subtract the group's mean; GRPO divides by the group's deviation (AGPO Eq. 1), REINFORCE++-baseline by
the batch's (R++ Eq. 7). The KL stands in the loss as k3 or as k2, or in the reward as k1. Five contrasts, orthogonal to
each other, take all differences of the six cells apart. All are paired by seed and start.
"""

import numpy as np
import pandas as pd

from agpo_core import comparison
from agpo_core.comparison import LEVEL, estimate, holm, macro, p_value, t_interval
from agpo_core.experiments import predictions
from agpo_core.experiments.grid import ARMS
from agpo_core.experiments.records import Results
from agpo_core.experiments.traces import Part
from agpo_core.theory.bias import conditional_expectation_binary

RUN = ["arm", "seed", "start"]
CELLS = {  # arm -> (whose deviation divides, form of the KL)
    "grpo": ("group", "k3"),
    "grpo_k2_loss": ("group", "k2"),
    "grpo_k1_reward": ("group", "k1"),
    "baseline_k3_loss": ("batch", "k3"),
    "reinforce_pp_baseline": ("batch", "k2"),
    "baseline_k1_reward": ("batch", "k1"),
}
FORMS = {"k3": "k3 as loss", "k2": "k2 as loss", "k1": "k1 in the reward"}
SCORE, AT_KL, KL, RISE, VARIANCE, EASY = (
    "test, %", "dev at equal KL, %", "KL at the end, nats", "largest rise of the KL", "Var ‖∇‖", "easy − hard, points",
)  # fmt: skip
WORDS = {SCORE: "the test score", AT_KL: "the dev score at equal KL"}
LOG = {RISE, VARIANCE}  # compared by the binary logarithm of a ratio: 1 is twice as much, -1 half
DIGITS = {SCORE: 1, AT_KL: 1, KL: 3, RISE: 2, VARIANCE: 2, EASY: 1}
NORMALISER, FORM, PLACE, BY_FORM, BY_PLACE = (
    "normaliser: batch's less group's", "form: k2 less k3, both as loss", "place: k1 in the reward less as loss",
    "form × normaliser", "place × normaliser",
)  # fmt: skip
HALF = {"k1": 0.0, "k2": 0.5, "k3": 0.5}  # weights of the two losses
LEAST = 1.0e-4  # nats a token: a KL that rises by less rises by chance


def weights() -> pd.DataFrame:
    """The five contrasts as weights of the six cells: a row a contrast, a column an arm; each row sums to zero."""
    form = {"k2": 1.0, "k3": -1.0, "k1": 0.0}
    place = {"k1": 1.0, "k2": -0.5, "k3": -0.5}
    rows = {name: [] for name in (NORMALISER, FORM, PLACE, BY_FORM, BY_PLACE)}
    for normaliser, kl in CELLS.values():
        sign = 1.0 if normaliser == "batch" else -1.0
        rows[NORMALISER].append(sign / 3)
        rows[FORM].append(form[kl] / 2)
        rows[PLACE].append(place[kl] / 2)
        rows[BY_FORM].append(sign * form[kl])
        rows[BY_PLACE].append(sign * place[kl])
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(CELLS))


# -- along training ---------------------------------------------------------------------------


def along(results: Results) -> pd.DataFrame:
    """Each evaluation on dev with the KL that the policy then had: a row an evaluation, with dev in %, and kl.

    An update's row holds the KL of the policy that sampled it, so that the policy after update u is that of row u + 1.
    A single update estimates it from some 1,800 tokens; the mean of the rows u to u + 2 is taken, as far as they exist.
    Before the first update the KL is zero.
    """
    frames = []
    for key, run in results.traces[results.traces["arm"].isin(CELLS)].groupby(RUN, sort=False):
        run = run.set_index("update").sort_index()
        kl = run["reference_kl"]
        dev = run["dev"].dropna()
        at = [0.0 if u == 0 else kl.loc[u : u + 2].mean() for u in dev.index]
        points = pd.DataFrame({"update": dev.index, "dev": 100 * dev.to_numpy(), "kl": at})
        frames.append(points.assign(**dict(zip(RUN, key, strict=True))))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["update", "dev", "kl", *RUN])


def common_kl(points: pd.DataFrame) -> pd.Series:
    """The largest KL that all runs of a seed and start reached, by seed and start; it depends on no score."""
    return points.groupby(RUN)["kl"].max().groupby(RUN[1:]).min()


def at_kl(points: pd.DataFrame, common: pd.Series) -> pd.Series:
    """The dev score of each run where its KL first passes the common one, linear between the evaluations around it."""
    found = {}
    for key, run in points.sort_values("update").groupby(RUN):
        kl, dev, level = run["kl"].to_numpy(), run["dev"].to_numpy(), common[key[1:]]
        after = int(np.argmax(kl >= level))
        if after == 0:
            found[key] = dev[0]
        else:
            share = (level - kl[after - 1]) / (kl[after] - kl[after - 1])
            found[key] = dev[after - 1] + share * (dev[after] - dev[after - 1])
    return _series(found)


def early(points: pd.DataFrame, common: pd.Series) -> int:
    """The runs that pass the common KL before their first evaluation after the start, where the line is coarsest."""
    later = points[points["update"] > 0].sort_values("update").groupby(RUN)["kl"].first()
    return int(sum(kl >= common[key[1:]] for key, kl in later.items()))


# -- one number a run -------------------------------------------------------------------------


def per_run(results: Results) -> pd.DataFrame:
    """The measures of each run of the 2 x 3, indexed by arm, seed and start.

    test            macro-average on test
    dev at equal KL  see `at_kl`
    KL at the end   mean of the KL to the reference over the last quarter of the updates, nats a token
    largest rise    of that KL from one update to the next, nats a token
    Var ‖∇‖         metrics.gradient_norm_variance
    easy − hard     gain over the start on the three tasks that the start solves best less that on the three it solves
                    worst
    """
    points, updates = along(results), results.traces[results.traces["update"] > 0]
    runs = results.runs[results.runs["arm"].isin(CELLS)]
    once = runs.drop_duplicates(RUN).set_index(RUN)
    last, rise = {}, {}
    for key, run in updates[updates["arm"].isin(CELLS)].groupby(RUN):
        kl = run.sort_values("update")["reference_kl"]
        last[key] = kl.iloc[3 * len(kl) // 4 :].mean()
        rise[key] = max(kl.diff().max(), LEAST)
    table = {
        SCORE: macro(runs),
        AT_KL: at_kl(points, common_kl(points)),
        KL: _series(last),
        RISE: _series(rise),
        VARIANCE: once["grad_norm_variance"].astype(float),
        EASY: easy_less_hard(results),
    }
    return pd.DataFrame(table).reindex(columns=list(DIGITS)).rename_axis(RUN)


def gains(results: Results) -> pd.DataFrame:
    """The gain of each run over its start on each task, beside the start's score; in points: level, gain."""
    runs = results.runs.assign(points=100 * results.runs["score"])
    level = runs[runs["arm"] == "start"].set_index(["start", "task"])["points"]
    of = runs[runs["arm"].isin(CELLS)].copy()
    of["level"] = [level.get(key, np.nan) for key in of[["start", "task"]].itertuples(index=False, name=None)]
    return of.assign(gain=of["points"] - of["level"])[[*RUN, "task", "level", "gain"]]


def easy_less_hard(results: Results, third: int = 3) -> pd.Series:
    """Each run's mean gain on the tasks that its start solves best, less that on those it solves worst; points."""
    found = {}
    for key, run in gains(results).dropna().groupby(RUN):
        order = run.sort_values("level")["gain"]
        found[key] = order.iloc[-third:].mean() - order.iloc[:third].mean()
    return _series(found)


def _series(found: dict) -> pd.Series:
    names = RUN if found else None
    index = pd.MultiIndex.from_tuples(found, names=names) if found else pd.MultiIndex.from_arrays([[]] * 3, names=RUN)
    return pd.Series(list(found.values()), index, dtype=float)


# -- effects ----------------------------------------------------------------------------------


def effect(values: pd.DataFrame, measure: str, of: pd.Series) -> pd.Series:
    """One contrast of one measure, a number a pair: the weighted sum over the six cells; log2 where LOG says so.

    Empty unless all cells with a weight were run.
    """
    wide = values[measure].unstack("arm")
    if measure in LOG:
        wide = np.log2(wide)
    used = [arm for arm in of.index if of[arm]]
    if not set(used) <= set(wide.columns):
        return pd.Series(dtype=float, index=pd.MultiIndex.from_arrays([[], []], names=RUN[1:]))
    return (wide[used] * of[used]).sum(axis=1, skipna=False).dropna()


def effects(values: pd.DataFrame, measures=(SCORE, AT_KL, KL)) -> pd.DataFrame:
    """Every contrast of every measure: a row each, with mean, low, high, n, about, p and Holm's p over the table."""
    rows = []
    for measure in measures:
        for name, of in weights().iterrows():
            gap = effect(values, measure, of)
            found = t_interval(gap)
            p = estimate(gap).p if measure not in (SCORE, AT_KL) else p_value(gap)
            rows.append((name, measure, found.mean, found.low, found.high, found.n, found.about, p))
    names = ["contrast", "measure", "mean", "low", "high", "n", "about", "p"]
    table = pd.DataFrame(rows, columns=names)
    return table.assign(p_holm=holm(table["p"]))


def effect_table(values: pd.DataFrame, measures=(SCORE, AT_KL, KL)) -> pd.DataFrame:
    """The effects as text, a row a contrast; a star marks what is not zero after Holm's correction over the table."""
    found, rows = effects(values, measures), {}
    for row in found.itertuples():
        star = " *" if row.p_holm < LEVEL else ""
        interval = comparison.Interval(row.mean, row.high - row.mean, row.n)
        rows.setdefault(row.contrast, {})[row.measure] = interval.text("+", DIGITS[row.measure]) + star
    corner = comparison.about(comparison.Interval(0.0, 0.0, row.n, row.about) for row in found.itertuples())
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(columns=corner or None)


def cell_table(values: pd.DataFrame) -> pd.DataFrame:
    """The six cells: mean ± interval of score and KL; of the rise and the variance the median, which no spike rules."""
    rows = {}
    for arm in [arm for arm in CELLS if arm in values.index.get_level_values("arm")]:
        of, (normaliser, form) = values.xs(arm, level="arm"), CELLS[arm]
        cells = {name: t_interval(of[name].dropna()).text(digits=DIGITS[name]) for name in (SCORE, AT_KL, KL)}
        cells |= {f"{RISE}, median": f"{of[RISE].median():.3f}", f"{VARIANCE}, median": f"{of[VARIANCE].median():.3f}"}
        rows[ARMS[arm].title] = {"divisor": f"{normaliser}'s", "KL": FORMS[form]} | cells
    corner = comparison.about(t_interval(values.xs(arm, level="arm")[SCORE]) for arm in CELLS if arm in values.index)
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(columns=corner or None)


# -- claims -----------------------------------------------------------------------------------


def parts_of_47(values: pd.DataFrame) -> list[Part]:
    """What claim 47 says, k2 in place of k3, as statements that can be judged; means over both normalisers."""
    of = weights().loc[FORM]
    base = "k2 less k3: log2 of the ratio of the"
    return [
        Part(f"{base} largest rises of the KL in one update is below zero.", effect(values, RISE, of), -1, 2),
        Part(f"{base} variances of the gradient norm is below zero.", effect(values, VARIANCE, of), -1, 2),
        Part("k2 less k3: the difference in test score, in points, is above zero.", effect(values, SCORE, of), 1, 1),
    ]


def parts_of_35(values: pd.DataFrame) -> list[Part]:
    """What claim 35 says, as far as tasks stand for prompts: the group's deviation gains more where it is easy."""
    says = (
        "Group's less batch's deviation: the gain on the three tasks that the start solves best less that on the "
        "three that it solves worst, in points, is above zero."
    )
    return [Part(says, -effect(values, EASY, weights().loc[NORMALISER]), 1, 1)]


def judged_apart(values: pd.DataFrame) -> dict[str, list[Part]]:
    """The form of the KL under each normaliser by itself: what claim 47's means are made of; nothing is claimed."""
    found = {}
    for normaliser in ("group", "batch"):
        of = pd.Series({arm: {"k2": 1.0, "k3": -1.0}.get(kl, 0.0) * (who == normaliser)
                        for arm, (who, kl) in CELLS.items()})  # fmt: skip
        says = f"{normaliser.capitalize()}'s deviation, k2 less k3: log2 of the ratio of the"
        found[normaliser] = [
            Part(f"{says} largest rises of the KL.", effect(values, RISE, of), 0, 2),
            Part(f"{says} variances of the gradient norm.", effect(values, VARIANCE, of), 0, 2),
        ]
    return found


# -- the predictions, answered ----------------------------------------------------------------


def answers(results: Results) -> str:
    """The five predictions of beyond_normaliser_and_kl, answered."""
    values = per_run(results)
    needs = (
        lambda: _largest(values, SCORE),
        lambda: _ends(values),
        lambda: _largest(values, AT_KL),
        lambda: _easy(values),
        lambda: _steadier(values),
    )
    return predictions.answered(*((results, list(CELLS), answer) for answer in needs))


def _largest(values: pd.DataFrame, measure: str) -> str:
    found = effects(values, [measure])
    order = found.reindex(found["mean"].abs().sort_values(ascending=False).index)
    texts = [f"{row.contrast} {_text(row)}" for row in order.itertuples()]
    return f"Effects on {WORDS[measure]}, in points, largest first: {'; '.join(texts)}."


def _ends(values: pd.DataFrame) -> str:
    means = {
        form: np.mean([values.xs(arm, level="arm")[KL].mean() for arm, (_, kl) in CELLS.items() if kl == form])
        for form in FORMS
    }
    order = sorted(means, key=means.get)
    (place,) = effects(values, [KL]).query("contrast == @PLACE").itertuples()
    texts = ", ".join(f"{means[form]:.3f} nats with {FORMS[form]}" for form in order)
    return f"KL at the end, smallest first: {texts}. In the reward less as a loss: {_text(place, 3)}."


def _easy(values: pd.DataFrame) -> str:
    p = {"p = .5": 0.5, "p = .1": 0.1, "p = .9": 0.9}
    texts = [f"{name} {weight(8, chance):.2f}" for name, chance in p.items()]
    gap = t_interval(parts_of_35(values)[0].values)
    return (
        f"Neither easy nor hard alone: the weight is the same at p and at 1 - p (G = 8: {', '.join(texts)}). Measured, "
        f"the group's deviation gains on easy less on hard tasks {gap.text('+')} points more than the batch's "
        f"({_zero(gap.low, gap.high)})."
    )


def _steadier(values: pd.DataFrame) -> str:
    rise, variance, _ = (t_interval(part.values) for part in parts_of_47(values))
    return (
        f"k2 in place of k3 multiplies the largest rise of the KL by {2**rise.mean:.2f}{_factor(rise)} and the "
        f"variance of the gradient norm by {2**variance.mean:.2f}{_factor(variance)}."
    )


def _factor(found) -> str:
    if np.isnan(found.half):
        return " (no interval)"
    side = "within" if found.low <= 0 <= found.high else "outside"
    return f" [{2**found.low:.2f}, {2**found.high:.2f}] (1 lies {side})"


def weight(group_size: int, p: float) -> float:
    """The weight w of a prompt under the group's deviation, E[A | r] = w (r - p); exact (theory.bias)."""
    right, wrong = (conditional_expectation_binary(r, group_size, p, ddof=1).item() for r in (1, 0))
    return right - wrong


def _text(row, digits: int = 1) -> str:
    if np.isnan(row.low):
        return f"{row.mean:+.{digits}f} (no interval)"
    return f"{row.mean:+.{digits}f} [{row.low:+.{digits}f}, {row.high:+.{digits}f}] ({_zero(row.low, row.high)})"


def _zero(low: float, high: float) -> str:
    if np.isnan(low):
        return "no interval"
    return f"zero lies {'within' if low <= 0 <= high else 'outside'}"

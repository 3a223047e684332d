"""How a run's log is read: the metrics in groups, three recorded runs held against each other, and a rule to tell them.

For the lesson learn_04_reading_a_run. Formulas and units are those of `metrics.LOGGED`.
"""

import math

import pandas as pd

from agpo_core.experiments.grid import arms_of
from agpo_core.experiments.records import Results
from agpo_core.experiments.report import markdown
from agpo_core.metrics import LOGGED

KINDS = {"agpo": "healthy", "agpo_high_rate": "collapsed", "agpo_unsolved": "no signal"}  # arm: what becomes of it
NUMBERS = {"healthy": 1, "collapsed": 2, "no signal": 3}

# Every entry of metrics.LOGGED, by what it speaks of
GROUPS = {
    "clock and budget": (
        "update", "progress", "tokens_train", "tokens_probe", "seconds", "seconds_left", "learning_rate",
    ),
    "rewards": ("reward", "reward_std", "equal_groups", "probe_reward", "reward_gold", "failed_grades"),
    "what is written": ("length", "truncated", "tool_share", "tool_calls", "tool_failures"),
    "the policy": ("entropy", "reference_kl", "reference_kl_sequence", "step_kl", "step_kl_used"),
    "gradient and clip": ("grad_norm", "grad_norms", "loss", "clip_fraction", "clip_fraction_active"),
    "signals of the probe": (
        "sigma", "skewness", "vote_entropy", "dispersion_fallback", "uncertainty", "uncertainty_baseline",
        "uncertainty_train",
    ),
    "controllers": ("epsilon", "epsilon_raw", "epsilon_at_bound", "tau", "tau_raw", "tau_at_bound", "beta"),
    "sampler and learner": ("sampler_gap", "sampler_gap_abs"),
    "of some methods": ("value_loss", "explained_variance", "pairs"),
}  # fmt: skip
# What is known before the first gradient step of an update, and what a gradient step changes
SAMPLED = ("reward", "reward_std", "equal_groups", "length", "entropy", "reference_kl", "epsilon", "tau")
STEPPED = ("step_kl", "clip_fraction", "grad_norm")


def glossary() -> str:
    """Every logged metric with its formula and unit, group by group, in Markdown."""
    rows = []
    for group, names in GROUPS.items():
        for i, name in enumerate(names):
            formula, unit = LOGGED[name]
            rows.append((f"**{group}**" if i == 0 else "", f"`{name}`", formula, unit))
    return markdown(pd.DataFrame(rows, columns=["", "metric", "what it is", "unit"]))


def runs_of(results: Results) -> dict[tuple[str, int], pd.DataFrame]:
    """The traces of a run of each kind and seed, in the order of KINDS; arms of no kind are left out."""
    traces = results.traces
    found = {}
    for arm in arms_of(traces):
        of_arm = traces[traces["arm"] == arm] if arm in KINDS else traces.iloc[:0]
        for (seed, _), run in of_arm.groupby(["seed", "start"], sort=False):
            found.setdefault((KINDS[arm], int(seed)), run.sort_values("update").reset_index(drop=True))
    return found


def updates_of(results: Results, seed: int | None = None) -> dict[str, pd.DataFrame]:
    """One run of each kind, without the row before training: that of a seed, or of the first."""
    found = {}
    for (kind, of), run in runs_of(results).items():
        if kind not in found and seed in (None, of):
            found[kind] = run[run["update"] > 0].reset_index(drop=True)
    return found


def ends(results: Results) -> pd.DataFrame:
    """Each metric in the first update and in the last, a column a kind; of the first seed."""
    runs = updates_of(results)
    rows = {
        name: {kind: f"{_short(run[name].iloc[0])} → {_short(run[name].iloc[-1])}" for kind, run in runs.items()}
        for name in (*SAMPLED, *STEPPED)
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def beginning(results: Results, updates: int = 4) -> pd.DataFrame:
    """The first updates of the healthy and of the collapsed run, a row an update; of the first seed."""
    names = (*STEPPED, "reward", "equal_groups", "entropy", "reference_kl")
    rows = {}
    for kind, run in updates_of(results).items():
        if kind != "no signal":
            for row in run.head(updates).to_dict("records"):
                rows[f"{kind}, update {row['update']}"] = {name: _short(row[name]) for name in names}
    return pd.DataFrame.from_dict(rows, orient="index")


def _short(value: float) -> str:
    """Three decimals; none for large numbers; no -0."""
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3f}"
    return "0.000" if text == "-0.000" else text


def samples(results: Results) -> str:
    """What the first seed's runs wrote in the first update and in the last; none where the results keep no samples."""
    lines = []
    for arm, kind in KINDS.items():
        of_arm = [line for line in results.meta.get("samples", []) if line["arm"] == arm]
        seeds = [line["seed"] for line in of_arm]
        for update in dict.fromkeys(line["update"] for line in of_arm if line["seed"] == seeds[0]):
            lines.append(f"{kind}, update {update}")
            for line in of_arm:
                if (line["seed"], line["update"]) == (seeds[0], update):
                    asked, said = line["prompt"], repr(line["completion"])
                    lines.append(f"    {asked}  →  {said}  (right: {line['answer']})  reward {line['reward']:g}")
    return "\n".join(lines) or "These results keep no samples."


def kind_of(first_reward: float, reward: float, equal_groups: float) -> str:
    """A rule of thumb that tells the three kinds apart.

    no signal   in every group all rewards are equal
    collapsed   else: the reward is below half of what it was in the first update
    healthy     else

    Args:
        first_reward: of the first update.
        reward, equal_groups: of a later one, or means over some.
    """
    if equal_groups == 1:
        return "no signal"
    return "collapsed" if reward < first_reward / 2 else "healthy"


def number_of(first_reward: float, reward: float, equal_groups: float) -> int:
    """The kind that `kind_of` gives, as a number: 1 healthy, 2 collapsed, 3 no signal."""
    return NUMBERS[kind_of(first_reward, reward, equal_groups)]


def late(run: pd.DataFrame) -> tuple[float, float, float]:
    """What `kind_of` looks at: the first update's reward, and mean reward and equal groups of the later half."""
    updates = run[run["update"] > 0]
    half = updates[updates["update"] > updates["update"].max() / 2]
    return updates["reward"].iloc[0], half["reward"].mean(), half["equal_groups"].mean()


def cases(results: Results) -> list[tuple[float, float, float]]:
    """What `kind_of` looks at in each run, rounded to three digits; each triple once."""
    return list(dict.fromkeys(tuple(round(float(x), 3) for x in late(run)) for run in runs_of(results).values()))


MYSTERY = ("no signal", "healthy", "collapsed")  # A, B, C


def mystery(results: Results) -> pd.DataFrame:
    """The update in the middle of one run of each kind, of the last seed, under the names A, B and C."""
    runs = updates_of(results, seed=max((seed for _, seed in runs_of(results)), default=None))
    rows = {}
    for letter, kind in zip("ABC", MYSTERY, strict=True):
        if kind in runs:
            row = runs[kind].iloc[(len(runs[kind]) - 1) // 2]
            names = ("reward_std", "equal_groups", "entropy", "reference_kl", "step_kl", "clip_fraction", "grad_norm")
            rows[letter] = {name: _short(row[name]) for name in names}
    return pd.DataFrame.from_dict(rows, orient="index")


def of_letter(letter: str) -> int:
    """The kind of a row of `mystery` as a number: 1 healthy, 2 collapsed, 3 no signal."""
    return NUMBERS[MYSTERY["ABC".index(letter)]]


# Of the exercise on `mystery`: hints for a letter that is taken for another kind
MISTAKES = {
    "equal_groups of 1.000 leaves nothing to compare, whatever the gradient does.": lambda letter: (
        of_letter(letter) if letter != "A" else 1
    ),
    "A is near its reference, a policy that has fallen apart is not.": lambda letter: (
        of_letter(letter) if letter != "A" else 2
    ),
    "B has unequal rewards in nearly every group, and is near its reference.": lambda letter: (
        of_letter(letter) if letter != "B" else 2
    ),
    "C lies nats away from its reference; a healthy run is far nearer.": lambda letter: (
        of_letter(letter) if letter != "C" else 1
    ),
    "C still has groups with unequal rewards: there is a signal.": lambda letter: (
        of_letter(letter) if letter != "C" else 3
    ),
}


# Of the exercise on the rule of thumb
RULE_MISTAKES = {
    "a run that was never rewarded has not fallen; ask for equal groups first.": lambda first_reward, reward, equal: (
        2 if reward <= first_reward / 2 else 1
    ),
    "a run without a signal is neither of the two; it has a number of its own.": lambda first_reward, reward, equal: (
        2 if reward < first_reward / 2 else 1
    ),
}


def predicted(results: Results) -> list[str]:
    """The four questions of the lesson's *Predict* section, answered by the first seed's runs."""
    runs = updates_of(results)
    missing = [kind for kind in NUMBERS if kind not in runs]
    if missing:
        return [f"Not answered: not run were {', '.join(missing)}."]
    well, bad, silent = (runs[kind] for kind in NUMBERS)
    one, two = well.iloc[0], bad.iloc[0]
    same = [name for name in (*SAMPLED, *STEPPED) if math.isclose(one[name], two[name], rel_tol=1e-4, abs_tol=1e-6)]
    other = [name for name in (*SAMPLED, *STEPPED) if name not in same]
    peak = bad.loc[bad["grad_norm"].idxmax()]
    ratio = silent["step_kl"].abs().mean() / well["step_kl"].abs().mean()
    return [
        f"Equal in the first line: {', '.join(same) or 'none'}. Different: {', '.join(other) or 'none'}. The first are "
        "measured on what the policy sampled before it was moved, the others on the gradient steps.",
        f"In the collapsed run the entropy goes from {bad['entropy'].iloc[0]:.2f} nats to {bad['entropy'].max():.2f} "
        f"at its highest, and ε from {bad['epsilon'].iloc[0]:.2f} to {bad['epsilon'].max():.2f}. The healthy run's ε "
        f"ends at {well['epsilon'].iloc[-1]:.2f}.",
        f"No. The mean gradient norm of the run without a signal is {silent['grad_norm'].mean():.2f} (median "
        f"{silent['grad_norm'].median():.2f}), all of it from the KL term. Its step KL is on average {ratio:.1f} times "
        "that of the healthy run.",
        f"In the last update the collapsed run has equal_groups {bad['equal_groups'].iloc[-1]:.2f} and the other "
        f"{silent['equal_groups'].iloc[-1]:.2f}; its KL to the reference is {bad['reference_kl'].iloc[-1]:.2f} nats a "
        f"token against {silent['reference_kl'].iloc[-1]:.2f}. The largest gradient norm of the collapsed run is "
        f"{_short(peak['grad_norm'])}, in update {peak['update']:.0f}.",
    ]

"""Figures of R++ Table 3: pass@k over pass@1 in domain and out of it, and the paired differences from GRPO."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from agpo_core.experiments import domains
from agpo_core.experiments.domains import IN, OUT
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.plots.runs import known
from agpo_core.experiments.plots.style import LOOKS, PLAIN, line, mark
from agpo_core.experiments.records import Results

SHARES = np.linspace(0, 100, 201)  # of pass@1, for the curve


def domain_scores(results: Results) -> tuple[Figure, pd.DataFrame]:
    """pass@k over pass@1, a panel a domain, with an arrow from the starts to each arm.

    Between the two grey lines lies what is possible: below, each problem is solved always or never; above, all problems
    are solved equally often.

    Returns:
        The figure; a row an arm and domain: arm, domain, one (pass@1), many (pass@k), n, and k; means over runs.
    """
    values, k = domains.scores(results), domains.largest(results.runs)
    rows = [
        (arm, domain, of[domain, 1].mean(), of[domain, k].mean(), len(of), k)
        for domain in (IN, OUT)
        for arm in arms_of(results.runs)
        for of in [values.xs(arm, level="arm")]
    ]
    data = pd.DataFrame(rows, columns=["arm", "domain", "one", "many", "n", "k"])
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(1, 2, figsize=(9.4, 4.0), layout="constrained")
        for axes, domain in zip(panels, (IN, OUT), strict=True):
            axes.plot(SHARES, SHARES, color="0.6", linewidth=1)
            axes.plot(SHARES, domains.even(SHARES, k), color="0.6", linewidth=1, linestyle=":")
            drawn = data[data["domain"] == domain].set_index("arm")
            for arm, row in drawn.iterrows():
                of = values.xs(arm, level="arm")
                axes.scatter(of[domain, 1], of[domain, k], s=12, color=LOOKS[arm].color, alpha=0.4, linewidth=0)
                if arm != "start" and "start" in drawn.index:
                    axes.annotate(
                        "", row[["one", "many"]], drawn.loc["start", ["one", "many"]],
                        arrowprops={"arrowstyle": "->", "color": LOOKS[arm].color, "linewidth": 1.2, "shrinkB": 5},
                    )  # fmt: skip
                look = line(arm, "X" if arm == "start" else None) | {"linestyle": ""}
                axes.plot(row["one"], row["many"], markersize=8, zorder=4, label=ARMS[arm].title, **look)
            shown = pd.concat([values[domain, 1], values[domain, k]], axis=1)
            low, high = shown.min() - 4, shown.max() + 4
            axes.set(xlim=(low.iloc[0], high.iloc[0]), ylim=(low.iloc[1], high.iloc[1]))
            axes.set(xlabel="pass@1 (%)", ylabel=f"pass@{k} (%)", title=domain.capitalize())
            axes.grid(color="0.94")
            axes.set_axisbelow(True)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=max(len(labels), 1))
        figure.suptitle(f"One sample and {k} samples, before and after RL: {results.title}")
    return figure, data


def domain_gaps(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Paired differences from GRPO with their intervals: a panel a domain and k, all on one scale.

    Returns:
        The figure; the rows of `domains.differences`.
    """
    data, k = domains.differences(results), domains.largest(results.runs)
    arms = list(dict.fromkeys(data["arm"]))
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(1, 4, figsize=(9.4, 2.6), layout="constrained", sharex=True, sharey=True)
        for axes, (domain, tries) in zip(panels, ((OUT, k), (OUT, 1), (IN, k), (IN, 1)), strict=True):
            for row in data[(data["domain"] == domain) & (data["k"] == tries)].itertuples():
                y, singles = arms.index(row.arm), domains.gap(results, row.arm, domain, tries)
                spread = y + 0.25 * np.linspace(-1, 1, len(singles) + 2)[1:-1]
                axes.scatter(singles, spread, s=10, color=LOOKS[row.arm].color, alpha=0.45, linewidth=0)
                axes.errorbar(row.mean, y, xerr=known(row.half), **mark(row.arm, markersize=7))
            axes.axvline(0, color="0.45", linewidth=1)
            axes.grid(axis="x", color="0.92")
            axes.set_axisbelow(True)
            axes.set_title(f"{domain.capitalize()}, pass@{tries}")
        panels[0].set(yticks=range(len(arms)), yticklabels=[ARMS[arm].title for arm in arms])
        panels[0].set_ylim(max(len(arms), 1) - 0.5, -0.5)
        figure.supxlabel("difference from GRPO (points)", fontsize=9)
        figure.suptitle(f"REINFORCE++ against GRPO: {results.title}")
    return figure, data

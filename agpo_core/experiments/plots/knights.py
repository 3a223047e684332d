"""The figure of R++ Fig. 4: scores by number of people, and the lead over GRPO. An arm looks as `style.LOOKS` says."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from agpo_core.comparison import t_interval
from agpo_core.experiments import knights_readings
from agpo_core.experiments.grid import ARMS, arms_of
from agpo_core.experiments.plots.runs import _blank
from agpo_core.experiments.plots.style import PLAIN, line
from agpo_core.experiments.records import Results

COLUMNS = ["arm", "people", "score", "half", "lead", "lead_half"]


def people_scores(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Test score by number of people, and the paired lead over GRPO with the line of its mean slope.

    Bars are 95 % t-intervals over runs; the shaded numbers of people are those that were trained on.

    Returns:
        The figure; a row an arm and number of people: score, half, and lead, lead_half (NaN for start and GRPO).
    """
    if results.runs.empty:
        return _blank(), pd.DataFrame(columns=COLUMNS)
    scores, arms = knights_readings.by_people(results.runs), arms_of(results.runs)
    leads = {
        arm: knights_readings.leads(results.runs, arm)
        for arm in arms
        if "grpo" in arms and arm not in ("start", "grpo")
    }
    rows = []
    for arm in arms:
        for people in scores:
            score = t_interval(scores.xs(arm, level="arm")[people])
            lead = t_interval(leads[arm][people] if arm in leads else [])
            rows.append((arm, people, score.mean, np.nan if arm == "start" else score.half, lead.mean, lead.half))
    data = pd.DataFrame(rows, columns=COLUMNS)
    with plt.rc_context(PLAIN):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
        for i, (arm, of_arm) in enumerate(data.groupby("arm", sort=False)):
            shift = 0.07 * (i - (len(arms) - 1) / 2)  # so that bars do not cover each other
            bars = {"markersize": 5, "capsize": 2, "elinewidth": 1, "linewidth": 1.3}
            left.errorbar(of_arm["people"] + shift, of_arm["score"], of_arm["half"].fillna(0), **bars, **line(arm))
            if arm in leads:
                bars |= line(arm) | {"linestyle": ""}
                right.errorbar(of_arm["people"] + shift, of_arm["lead"], of_arm["lead_half"].fillna(0), **bars)
                slope, n = knights_readings.slopes(leads[arm]).mean(), of_arm["people"]
                right.plot(n, of_arm["lead"].mean() + slope * (n - n.mean()), linewidth=1.3, **line(arm, ""))
        right.axhline(0, color="0.45", linewidth=1)
        trained = [knights_readings.people_of(task) for task in results.meta["params"]["tasks"]]
        for axes in (left, right):
            axes.axvspan(min(trained) - 0.5, max(trained) + 0.5, color="0.95", zorder=0)
            axes.set(xlabel="people in the puzzle (shaded: trained on)", xticks=list(scores))
            axes.grid(axis="y", color="0.92")
            axes.set_axisbelow(True)
        left.set(ylabel="test score (%)", ylim=(0, None), title="Score")
        right.set(ylabel="points", title="Lead over GRPO, paired, and its mean slope")
        handles = [plt.Line2D([], [], label=ARMS[arm].title, markersize=5, **line(arm)) for arm in arms]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(arms))
        figure.suptitle(f"Knights and Knaves: {results.title}")
    return figure, data

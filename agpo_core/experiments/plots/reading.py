"""Three runs of one method beside each other, metric by metric."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from agpo_core.experiments import run_reading
from agpo_core.experiments.plots.style import LOOKS as METHODS
from agpo_core.experiments.plots.style import PLAIN
from agpo_core.experiments.records import Results

LOOKS = {  # kind -> colour, line, marker; AGPO has its own colour where it is healthy
    "healthy": METHODS["agpo"][:3],
    "collapsed": ("black", "--", "v"),
    "no signal": ("0.55", ":", "o"),
}
PANELS = {  # column of the traces -> title, scale
    "reward": ("reward, mean", None),
    "dev": ("score on dev", None),
    "reward_std": ("reward_std", None),
    "equal_groups": ("equal_groups, share", None),
    "grad_norm": ("grad_norm", "log"),
    "clip_fraction": ("clip_fraction, share", None),
    "step_kl": ("step_kl, nats a token", "symlog"),
    "reference_kl": ("reference_kl, nats a token", "symlog"),
    "entropy": ("entropy, nats a token", None),
    "epsilon": ("epsilon (ε)", None),
    "tau": ("tau (τ)", None),
    "length": ("length, tokens", None),
}
NEAR_ZERO = 0.01  # below it a symlog axis is linear: both KLs are estimates, and may come out negative


def three_runs(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Twelve metrics, a panel each, over the updates of the three kinds of run.

    The first seed is drawn thick with markers, the others thin. Gradient norms are on a log axis; of the two KLs values
    within ±NEAR_ZERO lie on a linear part of the axis, and larger ones on a logarithmic one.

    Returns:
        The figure; what was drawn, a row a point: kind, seed, update, metric, value.
    """
    rows = []
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(3, 4, figsize=(10.5, 6.9), sharex=True, layout="constrained")
        for axes, (name, (title, scale)) in zip(panels.flat, PANELS.items(), strict=True):
            seen = set()
            for (kind, seed), run in run_reading.runs_of(results).items():
                color, line, marker = LOOKS[kind]
                points = run.dropna(subset=[name])
                first = kind not in seen
                seen.add(kind)
                look = {"linewidth": 1.7, "marker": marker, "markersize": 3.6} if first else {"linewidth": 0.8}
                axes.plot(
                    points["update"], points[name], color=color, linestyle=line, alpha=1.0 if first else 0.7, **look
                )
                rows += [(kind, seed, *point, name) for point in zip(points["update"], points[name], strict=True)]
            if scale == "log":
                axes.set_yscale("log")
            elif scale == "symlog":
                axes.set_yscale("symlog", linthresh=NEAR_ZERO)
                axes.set_yticks([0, 0.01, 0.1, 1], ["0", "0.01", "0.1", "1"])
                axes.minorticks_off()
            axes.set_title(title)
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.grid(color="0.93")
            axes.set_axisbelow(True)
        for axes in panels[-1]:
            axes.set_xlabel("update")
        kinds = dict.fromkeys(row[0] for row in rows)
        handles = [plt.Line2D([], [], label=kind, **_look(kind)) for kind in kinds]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles) or 1)
        seeds = len({row[1] for row in rows})
        figure.suptitle(f"Three runs of AGPO: micro scale, {seeds} seed{'s' * (seeds != 1)} (thick, the first)")
    data = pd.DataFrame(rows, columns=["kind", "seed", "update", "value", "metric"])
    return figure, data


def _look(kind: str) -> dict:
    color, line, marker = LOOKS[kind]
    return {"color": color, "linestyle": line, "marker": marker, "markersize": 4}

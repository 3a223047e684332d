"""Figures of one update: the probe-train loop of AGPO Fig. 1, and where the clip binds.

Fig. 1 is drawn from §3.3 and the equations. In addition to the paper's figure, it shows what each arrow carries, and
what is kept for the next update.
"""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from agpo_core.experiments.plots.style import BLUE, GREEN, GREY, ORANGE, PLAIN
from agpo_core.metrics import clip_binds

WIDTH, HEIGHT = 2.05, 0.84  # of a box, in the units of the drawing

# phase -> colour and line of its boxes; the words in the boxes say the same without colour
PHASES = {"probe": (BLUE, "--"), "controllers": (GREEN, "-"), "train": (ORANGE, "-"), "policy": (GREY, "-")}

BOXES = {  # name -> centre, phase, what it says
    "policy": ((1.0, 2.75), "policy", "prompts\npolicy $\\pi_\\mathrm{old}$"),
    "probe": ((3.65, 4.6), "probe", "probe rollouts\nat $\\tau_\\mathrm{base}$"),
    "statistics": ((6.9, 4.6), "probe", "statistics\nmean over prompts"),
    "temperature": ((6.9, 2.75), "controllers", "temperature"),
    "radius": ((10.15, 2.75), "controllers", "clip radius"),
    "rollouts": ((3.65, 0.9), "train", "training rollouts\nat $\\tau_t$"),
    "advantages": ((6.9, 0.9), "train", "advantages\nwithin each group"),
    "loss": ((10.15, 0.9), "train", "clipped loss\ngradient steps"),
    "updated": ((13.4, 0.9), "policy", "policy $\\pi_\\mathrm{new}$"),
    "reference": ((13.4, -0.6), "policy", "reference $\\pi_\\mathrm{ref}$"),
}

NOTES = [
    (2.62, 5.2, "Probe: read by the controllers, never trained on"),
    (2.62, -0.45, "Training: the same prompts again, and the only rollouts with a gradient"),
    (11.3, 3.35, "dashed arrows: kept for the next update"),
]

SYMBOLS = {  # quantity -> how it is written, and the equation that gives it
    "sigma": ("$\\hat\\sigma$", "Eq. 1"),
    "skewness": ("$|\\tilde\\kappa_3|$", "Eq. 5"),
    "vote_entropy": ("$\\mathcal{E}$", "Eq. 8"),
    "uncertainty": ("$U_t$", "Eq. 9"),
    "baseline": ("$\\bar U_{t+1}$", "Eq. 11"),
    "tau": ("$\\tau_t$", "Eqs. 10, 12"),
    "entropy": ("$H(\\pi_\\mathrm{old})$", ""),
    "advantages": ("$A_i$", "Eq. 1"),
    "ratio": ("$\\rho$", "Eq. 2"),
    "reference_kl": ("$D_\\mathrm{KL}(\\pi\\,\\|\\,\\pi_\\mathrm{ref})$", "Eq. 3"),
    "epsilon": ("$\\varepsilon$", "Eq. 4"),
    "loss": ("$\\mathcal{L}$", "Eq. 7"),
    "step_kl": ("$\\hat D_\\mathrm{step}$", "Eq. 6"),
}

# from, to, words or quantities that it carries, kept for the next update?, corners of the line, where the label is.
# A label at a "center" stands on its line, with the equation below it; one at the "left" begins there.
ARROWS = [
    ("policy", "probe", "sample", False, [(1.0, 3.17), (1.0, 4.6), (2.62, 4.6)], (1.83, 4.6, "center")),
    ("probe", "statistics", "rewards, votes", False, [(4.67, 4.6), (5.87, 4.6)], (5.27, 4.6, "center")),
    ("statistics", "temperature", ("uncertainty",), False, [(6.9, 4.18), (6.9, 3.17)], (7.0, 3.68, "left")),
    ("statistics", "radius", ("sigma", "skewness", "vote_entropy"), False,
     [(7.92, 4.6), (10.15, 4.6), (10.15, 3.17)], (10.25, 4.05, "left")),
    ("temperature", "temperature", ("baseline",), True,
     [(7.4, 2.33), (7.4, 2.1), (8.1, 2.1), (8.1, 2.75), (7.92, 2.75)], (7.5, 1.94, "left")),
    ("temperature", "rollouts", ("tau",), False, [(5.87, 2.75), (3.65, 2.75), (3.65, 1.32)], (4.8, 2.75, "center")),
    ("policy", "rollouts", "sample again", False, [(1.0, 2.33), (1.0, 0.9), (2.62, 0.9)], (1.83, 0.9, "center")),
    ("rollouts", "radius", ("entropy",), False, [(4.2, 1.32), (4.2, 1.66), (9.6, 1.66), (9.6, 2.33)],
     (4.3, 1.8, "left")),
    ("rollouts", "advantages", "rewards", False, [(4.67, 0.9), (5.87, 0.9)], (5.27, 0.9, "center")),
    ("rollouts", "loss", ("ratio",), False, [(3.65, 0.48), (3.65, 0.05), (9.7, 0.05), (9.7, 0.48)],
     (6.9, 0.05, "center")),
    ("advantages", "loss", ("advantages",), False, [(7.92, 0.9), (9.12, 0.9)], (8.52, 0.9, "center")),
    ("radius", "loss", ("epsilon",), False, [(10.15, 2.33), (10.15, 1.32)], (10.25, 1.82, "left")),
    ("loss", "updated", ("loss",), False, [(11.17, 0.9), (12.38, 0.9)], (11.77, 0.9, "center")),
    ("reference", "loss", ("reference_kl",), False, [(12.38, -0.6), (10.6, -0.6), (10.6, 0.48)],
     (11.5, -0.6, "center")),
    ("updated", "radius", ("step_kl",), True, [(13.4, 1.32), (13.4, 2.75), (11.17, 2.75)], (12.3, 2.75, "center")),
    ("updated", "policy", "the next update starts from here", True,
     [(14.42, 0.9), (14.6, 0.9), (14.6, -1.3), (0.4, -1.3), (0.4, 2.33)], (6.9, -1.3, "center")),
]  # fmt: skip
COLUMNS = ["source", "target", "carries", "equations", "next_update"]


def probe_train_loop(values: dict | None = None, about: str = "") -> tuple[Figure, pd.DataFrame]:
    """One update of AGPO: what is computed from what (Fig. 1).

    Args:
        values: numbers to write beside the quantities; keys are names in SYMBOLS.
        about: where the numbers come from, for the title; without it there is no title.

    Returns:
        The figure; one row per arrow: source, target, carries, equations (their numbers, as text), next_update (kept
        for the next update, and drawn dashed).

    Raises:
        KeyError: a value that no arrow carries.
    """
    values = values or {}
    if unknown := values.keys() - SYMBOLS.keys():
        raise KeyError(f"no arrow carries {sorted(unknown)}; give some of {', '.join(SYMBOLS)}.")
    with plt.rc_context(PLAIN):
        figure, axes = plt.subplots(figsize=(11, 5.6 if about else 5.3), layout="constrained")
        axes.set(xlim=(-0.05, 14.7), ylim=(-1.5, 5.55), aspect="equal")
        axes.axis("off")
        for (x, y), phase, text in BOXES.values():
            color, line = PHASES[phase]
            axes.add_patch(
                FancyBboxPatch(
                    (x - WIDTH / 2, y - HEIGHT / 2), WIDTH, HEIGHT, boxstyle="round,pad=0,rounding_size=0.12",
                    facecolor=(*color, 0.13), edgecolor=color, linestyle=line, linewidth=1.8,
                )
            )  # fmt: skip
            axes.text(x, y, text, ha="center", va="center", fontsize=9)
        for x, y, note in NOTES:
            axes.text(x, y, note, fontsize=9, style="italic")
        if about:
            figure.suptitle(f"One update: {about}")
        rows = [_draw(axes, *arrow, values) for arrow in ARROWS]
    return figure, pd.DataFrame(rows, columns=COLUMNS)


def clip_map(
    ratios: Sequence[float], advantages: Sequence[float], epsilon: float, about: str
) -> tuple[Figure, pd.DataFrame]:
    """Where each token's ratio lies, and where the clip stops its gradient (Eqs. 3, 7).

    Crosses are tokens at which the surrogate has no gradient: the ratio has left the range in the direction in which
    the advantage pushes.

    Args:
        ratios: ρ of each token.
        advantages: A of each token's rollout.
        epsilon: ε.
        about: where the tokens come from, for the title.

    Returns:
        The figure; one row per token: ratio, advantage, binds.
    """
    ratio_T, advantage_T = torch.tensor([ratios, advantages], dtype=torch.float64)
    binds = clip_binds(ratio_T, advantage_T, epsilon)
    data = pd.DataFrame({"ratio": ratios, "advantage": advantages, "binds": binds})
    reach = 1.1 * max(epsilon, (data["ratio"] - 1).abs().max())
    height = 1.2 * data["advantage"].abs().max() or 1.0
    with plt.rc_context(PLAIN):
        figure, axes = plt.subplots(figsize=(7.4, 3.6), layout="constrained")
        axes.fill_between([1 + epsilon, 1 + reach], 0, height, color="0.92", linewidth=0)
        axes.fill_between([1 - reach, 1 - epsilon], -height, 0, color="0.92", linewidth=0)
        for edge in (1 - epsilon, 1 + epsilon):
            axes.axvline(edge, color="0.45", linestyle="--", linewidth=1)
        axes.axhline(0, color="0.6", linewidth=1)
        free, bound = data[~data["binds"]], data[data["binds"]]
        axes.plot(free["ratio"], free["advantage"], "o", color=BLUE, markersize=5, alpha=0.6, label="gradient kept")
        axes.plot(bound["ratio"], bound["advantage"], "x", color=ORANGE, markersize=7, mew=2, label="gradient stopped")
        axes.set(xlabel="ratio $\\rho$ of a token", ylabel="advantage $A$ of its rollout")
        axes.set(xlim=(1 - reach, 1 + reach), ylim=(-height, height))
        axes.set_title(f"Tokens of the batch, {about}; the clip binds in the grey area, ε = {epsilon:.3f}")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return figure, data


def _draw(axes, source, target, carried, later, corners, label, values) -> tuple:
    """One arrow with its label; returns its row of the table."""
    style = {"color": "0.25", "linewidth": 1.3, "linestyle": (0, (4, 2)) if later else "-"}
    xs, ys = zip(*corners[:-1], strict=True)
    axes.plot(xs, ys, **style)
    axes.annotate(
        "", corners[-1], corners[-2],
        arrowprops={"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 13, **style},
    )  # fmt: skip
    words = [(carried, "")] if isinstance(carried, str) else [_words(name, values) for name in carried]
    x, y, side = label
    if side == "left":
        text = "\n".join(f"{word}   {equation}".rstrip() for word, equation in words)
        axes.text(x, y, text, va="center", fontsize=8.5)
    else:
        ((word, equation),) = words
        axes.text(x, y + 0.09, word.replace(", ", "\n"), ha="center", va="bottom", fontsize=8.5)
        axes.text(x, y - 0.09, equation, ha="center", va="top", fontsize=8.5)
    numbers = ", ".join(equation.split(maxsplit=1)[1] for _, equation in words if equation)
    return source, target, carried if isinstance(carried, str) else ", ".join(carried), numbers, later


def _words(name: str, values: dict) -> tuple[str, str]:
    symbol, equation = SYMBOLS[name]
    return (f"{symbol} = {values[name]:.3f}" if name in values else symbol), equation

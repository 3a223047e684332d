"""Figures of the learn notebooks on advantages and on the two controllers: computed from equations, not measured."""

import math

import matplotlib.pyplot as plt
import pandas as pd
import torch
from matplotlib.figure import Figure

from agpo_core.advantages import dr_grpo_advantages, group_advantages, leave_one_out_advantages
from agpo_core.controllers import AdaptiveClip, AdaptiveTemperature, ClipSignals
from agpo_core.experiments.plots.style import BLUE, GREEN, ORANGE, PLAIN, PURPLE
from agpo_core.experiments.plots.style import LOOKS as METHODS
from agpo_core.probe import DISPERSIONS, ProbeState, dispersion, prompt_statistics

# estimator -> its function, colour, line, marker
ESTIMATORS = {
    "leave-one-out": (leave_one_out_advantages, *METHODS["rloo"][:3]),
    "Dr. GRPO": (dr_grpo_advantages, *METHODS["dr_grpo"][:3]),
    "GRPO": (group_advantages, *METHODS["grpo"][:3]),
}
LOOKS = {"std": (BLUE, "-", "o"), "mad": (ORANGE, "--", "s"), "iqr": (GREEN, ":", "^")}
STARTS = {"zero": (BLUE, "-"), "first": (ORANGE, "--"), "debiased": (GREEN, ":")}
ENTROPY_TERMS = {"raw": (BLUE, "-"), "ratio_ema": (ORANGE, "--"), "normalised": (GREEN, ":"), "off": (PURPLE, "-.")}
SIGNALS = {  # signal of Eq. 4 -> how it is written, largest value shown, with its unit
    "entropy": ("$H$ (nats)", 3.0),
    "vote_entropy": ("$\\mathcal{E}$ (nats)", math.log(8)),
    "sigma": ("$\\hat\\sigma$", 0.6),
    "skewness": ("$|\\tilde\\kappa_3|$", 2.3),
    "step_kl": ("$\\hat D_\\mathrm{step}$ (nats)", 1.0),
}
DASHED = {"color": "0.45", "linestyle": "--", "linewidth": 1}
POINTS = 121  # of a curve


def binary_groups(group_size: int) -> torch.Tensor:
    """Groups of binary rewards, one row for each number right: 0, 1, ... G."""
    right = torch.arange(group_size + 1)[:, None]
    return (torch.arange(group_size) < right).double()


def binary_advantages(group_size: int = 8) -> tuple[Figure, pd.DataFrame]:
    """Eq. 1 on binary rewards: the advantage of a right and of a wrong rollout, by the number right.

    Returns:
        The figure; one row per number right, 1 .. G-1: right (the number), a_right, a_wrong.
    """
    advantages = group_advantages(binary_groups(group_size))[1:-1]
    rows = [(c, A[0].item(), A[-1].item()) for c, A in enumerate(advantages, start=1)]
    data = pd.DataFrame(rows, columns=["right", "a_right", "a_wrong"])
    with plt.rc_context(PLAIN):
        figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
        axes.axhline(0, color="0.6", linewidth=1)
        axes.plot(data["right"], data["a_right"], "o-", color=BLUE, label="a right rollout")
        axes.plot(data["right"], data["a_wrong"], "s--", color=ORANGE, label="a wrong rollout")
        axes.set(xlabel=f"rollouts right, of {group_size}", ylabel="$A$", xticks=data["right"])
        axes.set_title("A group's advantages, binary rewards (Eq. 1)")
        axes.grid(axis="y", color="0.93")
        axes.legend()
    return figure, data


def prompt_weights(group_size: int = 8) -> tuple[Figure, pd.DataFrame]:
    """The expected gradient of a prompt, by its accuracy p, and its ratio to the true gradient.

    The prompt has one parameter, the logit of p. A rollout's score is r - p. The expected gradient of an estimator is
    E[Σ_g A_g (r_g - p) / G], a sum over the number right; the true gradient of the accuracy is p (1 - p).

    Returns:
        The figure; one row per estimator and p: estimator, p, gradient, ratio (gradient / p (1 - p)).
    """
    groups = binary_groups(group_size)
    ps = torch.linspace(0.02, 0.98, POINTS, dtype=torch.float64)
    chance_N_C = torch.stack(
        [math.comb(group_size, c) * ps**c * (1 - ps) ** (group_size - c) for c in range(group_size + 1)], dim=1
    )
    frames = []
    for name, (estimator, *_) in ESTIMATORS.items():
        # Σ_g A_g = 0 in every group: the score's -p falls out, and Σ_g A_g r_g / G is left.
        pull_C = (estimator(groups) * groups).mean(dim=1)
        gradient = chance_N_C @ pull_C
        frame = {"estimator": name, "p": ps, "gradient": gradient, "ratio": gradient / (ps * (1 - ps))}
        frames.append(pd.DataFrame(frame))
    data = pd.concat(frames, ignore_index=True)
    with plt.rc_context(PLAIN):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
        for name, (_, color, line, marker) in ESTIMATORS.items():
            curve = data[data["estimator"] == name]
            look = {"color": color, "linestyle": line, "marker": marker, "markevery": 15, "markersize": 5}
            left.plot(curve["p"], curve["gradient"], label=name, **look)
            right.plot(curve["p"], curve["ratio"], **look)
        right.plot(ps, 1 / (ps * (1 - ps)).sqrt(), color="0.45", linestyle="-.", label="$1/\\sqrt{p(1-p)}$")
        left.set(xlabel="accuracy $p$ of the prompt", ylabel="expected gradient", ylim=(0, 0.55))
        right.set(xlabel="accuracy $p$ of the prompt", ylabel="expected / true gradient", ylim=(0, 7))
        left.legend(loc="lower center")
        right.legend(loc="upper center")
        for axes in (left, right):
            axes.grid(color="0.93")
        figure.suptitle(f"Expected gradient of a prompt: binary rewards, G = {group_size}")
    return figure, data


def binary_dispersions(group_size: int = 8) -> tuple[Figure, pd.DataFrame]:
    """The three dispersions of §4.5 on binary rewards, by the number right, as printed: without a fallback.

    Returns:
        The figure; one row per number right, 0 .. G: right, std, mad, iqr.
    """
    groups = binary_groups(group_size)
    data = pd.DataFrame({mode: dispersion(groups, mode, fallback="zero") for mode in DISPERSIONS})
    data.insert(0, "right", range(group_size + 1))
    with plt.rc_context(PLAIN):
        figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
        for mode, (color, line, marker) in LOOKS.items():
            axes.plot(data["right"], data[mode], color=color, linestyle=line, marker=marker, label=mode)
        axes.set(xlabel=f"rollouts right, of {group_size}", ylabel="$\\hat\\sigma$", xticks=data["right"])
        axes.set_title("Dispersion of binary rewards")
        axes.grid(axis="y", color="0.93")
        axes.legend()
    return figure, data


def clip_radius(clip: AdaptiveClip, at: ClipSignals) -> tuple[Figure, pd.DataFrame]:
    """Eq. 4, one signal at a time, with the others fixed.

    Thick lines are ε, thin ones what Eq. 4 gives before its bounds, dashed ones the bounds; the dot is `at`.

    Returns:
        The figure; one row per signal and value: signal, value, epsilon, raw.
    """
    state = clip.initial_state()
    rows = []
    for name, (_, highest) in SIGNALS.items():
        for i in range(POINTS):
            value = highest * i / (POINTS - 1)
            signals = ClipSignals(**{**vars(at), name: value})
            rows.append((name, value, clip.update(state, signals)[0], clip.raw(state, signals)))
    data = pd.DataFrame(rows, columns=["signal", "value", "epsilon", "raw"])
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(1, len(SIGNALS), figsize=(10, 2.9), sharey=True, layout="constrained")
        for axes, (name, (symbol, _)) in zip(panels, SIGNALS.items(), strict=True):
            curve = data[data["signal"] == name]
            axes.axhline(clip.epsilon_min, **DASHED)
            axes.axhline(clip.epsilon_max, **DASHED)
            axes.plot(curve["value"], curve["raw"], color=BLUE, linewidth=0.9)
            axes.plot(curve["value"], curve["epsilon"], color=BLUE, linewidth=2.4)
            axes.plot(getattr(at, name), clip.update(state, at)[0], "o", color="black", clip_on=False, zorder=3)
            axes.set(xlabel=symbol, ylim=(0, 1.15 * clip.epsilon_max))
        panels[0].set_ylabel("$\\varepsilon$")
        figure.suptitle(
            f"Clip radius (Eq. 4) at H = {at.entropy:.2f}, E = {at.vote_entropy:.2f}, σ = {at.sigma:.2f}, "
            f"κ = {at.skewness:.2f}, D = {at.step_kl:.2f}: ε = {clip.update(state, at)[0]:.3f}"
        )
    return figure, data


def temperature_run(uncertainties: dict, temperature: AdaptiveTemperature, starts=tuple(STARTS)):
    """Eqs. 9-12 on invented courses of U, for several starts of the running baseline.

    Args:
        uncertainties: title of a panel -> U of each update, nats.
        temperature: its settings; `start` is replaced.
        starts: of the baseline, "zero", "first" or "debiased".

    Returns:
        The figure, with U above τ for each course; one row per course, start and update: course, start, update, U,
        baseline, tau.
    """
    rows = []
    for title, course in uncertainties.items():
        for start in starts:
            # U is given: one signal carries it, with weight 1.
            controller = AdaptiveTemperature(**{**vars(temperature), "weights": (0.0, 1.0, 0.0), "start": start})
            state = controller.initial_state()
            for update, U in enumerate(course, start=1):
                signals = ProbeState(sigma=0.0, skewness=0.0, vote_entropy=U)
                baseline = controller.baseline(state, signals)
                tau, state = controller.update(state, signals)
                rows.append((title, start, update, U, baseline, tau))
    data = pd.DataFrame(rows, columns=["course", "start", "update", "U", "baseline", "tau"])
    with plt.rc_context(PLAIN):
        figure, panels = plt.subplots(
            2, len(uncertainties), figsize=(4.6 * len(uncertainties), 4.6), sharex=True, sharey="row", squeeze=False,
            height_ratios=[2, 3], layout="constrained",
        )  # fmt: skip
        for (above, below), title in zip(panels.T, uncertainties, strict=True):
            course = data[data["course"] == title]
            first = course[course["start"] == starts[0]]
            above.plot(first["update"], first["U"], color="0.2", linewidth=2, label="$U_t$")
            below.axhline(temperature.tau_base, color="0.6", linewidth=1)
            for start in starts:
                color, line = STARTS[start]
                curve = course[course["start"] == start]
                above.plot(curve["update"], curve["baseline"], color=color, linestyle=line)
                below.plot(curve["update"], curve["tau"], color=color, linestyle=line, linewidth=2, label=start)
            above.set(title=title, ylim=(0, None))
            below.set(xlabel="update")
        panels[0, 0].set_ylabel("$U_t$, and $\\bar U_t$ in colour")
        panels[1, 0].set_ylabel("$\\tau_t$")
        panels[1, 0].legend(title="$\\bar U_0$")
        figure.suptitle("Temperature (Eqs. 9 to 12) on invented courses of U")
    return figure, data


def entropy_terms(entropies: list, clip: AdaptiveClip, at: ClipSignals) -> tuple[Figure, pd.DataFrame]:
    """Eq. 4 on an invented course of the policy's entropy, for each of the terms that may stand for H.

    Args:
        entropies: H of each update, nats.
        clip: its settings, with a vocabulary_size; `entropy` is replaced.
        at: the other signals, which stay fixed.

    Returns:
        The figure; one row per term and update: term, update, entropy, epsilon, raw.
    """
    rows = []
    for term in ENTROPY_TERMS:
        controller = AdaptiveClip(**{**vars(clip), "entropy": term})
        state = controller.initial_state()
        for update, H in enumerate(entropies, start=1):
            signals = ClipSignals(**{**vars(at), "entropy": H})
            raw = controller.raw(state, signals)
            epsilon, state = controller.update(state, signals)
            rows.append((term, update, H, epsilon, raw))
    data = pd.DataFrame(rows, columns=["term", "update", "entropy", "epsilon", "raw"])
    with plt.rc_context(PLAIN):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained", width_ratios=[2, 3])
        left.plot(range(1, len(entropies) + 1), entropies, color="0.2", linewidth=2)
        left.set(xlabel="update", ylabel="$H$ (nats)", ylim=(0, None))
        for bound in (clip.epsilon_min, clip.epsilon_max):
            right.axhline(bound, **DASHED)
        for term, (color, line) in ENTROPY_TERMS.items():
            curve = data[data["term"] == term]
            right.plot(curve["update"], curve["epsilon"], color=color, linestyle=line, linewidth=2, label=term)
        right.set(xlabel="update", ylabel="$\\varepsilon$", ylim=(0, 1.08 * clip.epsilon_max))
        right.legend(title="in place of $H$", ncols=2)
        figure.suptitle("Clip radius (Eq. 4) on an invented course of H")
    return figure, data


def free_range(clip: AdaptiveClip, group_size: int = 8) -> tuple[Figure, pd.DataFrame]:
    """The range of entropies in which Eq. 4 lies between its bounds, for every probe of binary rewards, without drift.

    Right rollouts give one answer; wrong ones agree on another, or all differ.

    Returns:
        The figure; one row per number right and kind of votes: right, wrong ("agree" or "differ"), floor, ceiling: H in
        nats where ε = ε_min and where ε = ε_max.
    """
    rows = []
    for wrong in ("agree", "differ"):
        for signals, right in zip(binary_probes(group_size, wrong), range(group_size + 1), strict=True):
            unit = clip.raw(clip.initial_state(), ClipSignals(**vars(signals), entropy=1.0))  # Eq. 4 is linear in H
            rows.append((right, wrong, clip.epsilon_min / unit, clip.epsilon_max / unit))
    data = pd.DataFrame(rows, columns=["right", "wrong", "floor", "ceiling"])
    with plt.rc_context(PLAIN):
        figure, axes = plt.subplots(figsize=(6.8, 3.6), layout="constrained")
        looks = {"agree": (BLUE, "-", "o"), "differ": (ORANGE, "--", "s")}
        for wrong, (color, line, marker) in looks.items():
            curve = data[data["wrong"] == wrong]
            look = {"color": color, "linestyle": line, "marker": marker, "markersize": 5}
            axes.plot(curve["right"], curve["floor"], label=f"wrong answers {wrong}", **look)
            axes.plot(curve["right"], curve["ceiling"], **look)
        axes.set(yscale="log", xlabel=f"probe rollouts right, of {group_size}", ylabel="$H$ (nats)")
        axes.set(yticks=[0.1, 0.2, 0.3, 0.5, 1, 2, 3, 5], ylim=(0.12, 6), xticks=range(group_size + 1))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.text(group_size / 2, 3.9, "above: ε at its ceiling", ha="center", fontsize=9)
        axes.text(group_size / 2, 0.85, "between: ε moves with its signals", ha="center", fontsize=9)
        axes.text(group_size / 2, 0.16, "below: ε at its floor", ha="center", fontsize=9)
        axes.set_title("Where the bounds of Eq. 4 bind")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return figure, data


def binary_probes(group_size: int, wrong: str) -> list[ProbeState]:
    """The state of every probe of one prompt with binary rewards: 0, 1, ... G right, whose answers agree.

    Args:
        group_size: G.
        wrong: whether the wrong answers "agree" with each other or all "differ".
    """
    groups = binary_groups(group_size)
    names = ["wrong"] * group_size if wrong == "agree" else [f"wrong {i}" for i in range(group_size)]
    answers = [["right" if r == 1 else name for r, name in zip(rewards, names, strict=True)] for rewards in groups]
    statistics = prompt_statistics(groups, answers)
    return [
        ProbeState(*(statistics[name][c].item() for name in ("sigma", "skewness", "vote_entropy")))
        for c in range(group_size + 1)
    ]

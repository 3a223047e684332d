"""What all figures share: colours, plain axes, the sharpness of a notebook's pictures, and how a method looks.

A method has one colour and one marker everywhere. Methods of a family share its hue; its members differ by marker, by
line and by shade. Controls and ablations have hollow markers.
"""

from typing import NamedTuple

import seaborn as sns

BLUE, ORANGE, GREEN, RED, PURPLE, BROWN, PINK, GREY, YELLOW, CYAN = sns.color_palette("colorblind")
DPI = 200  # pixels per inch in a notebook's picture; it is shown at half that size, which is sharp on any screen
PLAIN = {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
         "axes.titlesize": 10, "axes.labelsize": 9, "xtick.labelsize": 8.5, "ytick.labelsize": 8.5,
         "legend.fontsize": 8.5, "figure.titlesize": 11}  # fmt: skip

FAMILIES = {  # title -> hue
    "group baselines": BLUE,
    "REINFORCE++": GREEN,
    "critic, or offline": BROWN,
    "AGPO": RED,
    "AGPO, ours": PURPLE,
}
LONG, SHORT, SPARSE = (0, (5, 1.5)), (0, (2, 1)), (0, (1, 3))  # dashes


class Look(NamedTuple):
    """How a method is drawn; see `look`."""

    color: tuple[float, float, float]
    line: str | tuple
    marker: str
    filled: bool


def look(family: str, shade: float, line, marker: str, filled: bool = True) -> Look:
    """A member of a family.

    Args:
        shade: from -1 (black) over 0 (the hue of the family) to 1 (white).
    """
    hue, end = FAMILIES[family], 1.0 if shade > 0 else 0.0
    return Look(tuple((1 - abs(shade)) * part + abs(shade) * end for part in hue), line, marker, filled)


LOOKS = {  # of every arm of grid.ARMS
    "start": Look((0.45, 0.45, 0.45), "--", "|", True),
    "grpo": look("group baselines", 0, "-", "o"),
    "dr_grpo": look("group baselines", -0.5, "--", "s"),
    "rloo": look("group baselines", 0.45, ":", "^"),
    "remax": look("group baselines", -0.25, "-.", "D"),
    "mixed_scaling": look("group baselines", 0.25, LONG, "v"),
    "grpo_matched_updates": look("group baselines", 0.3, "--", "o", False),
    "grpo_matched_compute": look("group baselines", 0.3, "-.", "s", False),
    "grpo_narrow": look("group baselines", -0.35, ":", "v", False),
    "grpo_no_kl": look("group baselines", -0.35, LONG, "P", False),
    "grpo_k1_reward": look("group baselines", -0.35, SHORT, "X", False),
    "reinforce_pp": look("REINFORCE++", 0, "-", "o"),
    "reinforce_pp_k": look("REINFORCE++", -0.45, "--", "s"),
    "reinforce_pp_baseline": look("REINFORCE++", 0.4, ":", "^"),
    "reinforce_pp_k_k3_loss": look("REINFORCE++", -0.45, LONG, "s", False),
    "grpo_2": look("group baselines", 0.6, "--", "<", False),
    "grpo_4": look("group baselines", 0.45, "-.", ">", False),
    "grpo_k2_loss": look("group baselines", 0.6, LONG, "D", False),
    "baseline_2": look("REINFORCE++", 0.55, "--", "<"),
    "baseline_4": look("REINFORCE++", 0.5, "-.", ">"),
    "batch_mean_1": look("REINFORCE++", 0, "-", "o", False),
    "batch_mean_2": look("REINFORCE++", -0.2, "--", "<", False),
    "batch_mean_4": look("REINFORCE++", -0.3, "-.", ">", False),
    "batch_mean_8": look("REINFORCE++", -0.45, "--", "D", False),
    "baseline_k3_loss": look("REINFORCE++", 0.4, LONG, "v", False),
    "baseline_k1_reward": look("REINFORCE++", 0.55, SHORT, "X", False),
    "ppo": look("critic, or offline", 0, "-", "o"),
    "ppo_critic": look("critic, or offline", -0.4, "--", "s"),
    "adaptive_kl_ppo": look("critic, or offline", 0.35, ":", "^"),
    "dpo": look("critic, or offline", -0.6, "-.", "D"),
    "agpo": look("AGPO", 0, "-", "D"),
    "grpo_ats": look("AGPO", 0.45, "--", "s"),
    "agpo_no_ats": look("AGPO", -0.5, ":", "^"),
    "agpo_official_code": look("AGPO", -0.25, "-.", "o"),
    "agpo_relative_entropy": look("AGPO", 0.25, SHORT, "D", False),
    "agpo_no_kl": look("AGPO", -0.35, LONG, "P", False),
    "agpo_no_dispersion": look("AGPO", -0.5, "--", "s", False),
    "agpo_no_skewness": look("AGPO", 0.45, "-.", "^", False),
    "agpo_no_vote_entropy": look("AGPO", -0.25, ":", "v", False),
    "agpo_no_step_kl": look("AGPO", 0.25, SPARSE, "o", False),
    "agpo_mad": look("AGPO", -0.4, "--", "<", False),
    "agpo_iqr": look("AGPO", 0.35, ":", ">", False),
    "agpo_high_rate": look("AGPO", -0.7, "--", "X", False),
    "agpo_unsolved": look("AGPO", 0.6, ":", "*", False),
    "agpo_global": look("AGPO, ours", 0, "-", "o"),
    "agpo_part_probe": look("AGPO, ours", -0.4, "--", "s"),
    "agpo_free_probe": look("AGPO, ours", 0.35, ":", "^"),
}


def line(arm: str, marker: str | None = None) -> dict:
    """An arm's look as matplotlib takes it for a line; "" as the marker leaves the marks out."""
    color, style, own, filled = LOOKS[arm]
    face = {"markerfacecolor": color if filled else "white"}
    return {"color": color, "linestyle": style, "marker": own if marker is None else marker, **face}


def mark(arm: str, **size) -> dict:
    """An arm's look as matplotlib takes it for a mark with error bars."""
    shown = line(arm)
    return {"fmt": shown.pop("marker"), "capsize": 3, "elinewidth": 1.6, "zorder": 3, **shown, "linestyle": ""} | size

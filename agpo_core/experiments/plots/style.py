"""What all figures share: seaborn's colour-blind palette, plain axes, and the sharpness of a notebook's pictures."""

import seaborn as sns

BLUE, ORANGE, GREEN, RED, PURPLE, BROWN, PINK, GREY, YELLOW, CYAN = sns.color_palette("colorblind")
DPI = 200  # pixels per inch in a notebook's picture; it is shown at half that size, which is sharp on any screen
PLAIN = {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
         "axes.titlesize": 10, "axes.labelsize": 9, "xtick.labelsize": 8.5, "ytick.labelsize": 8.5,
         "legend.fontsize": 8.5, "figure.titlesize": 11}  # fmt: skip

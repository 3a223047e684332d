"""Show a figure in a notebook, together with words for readers who do not see it."""

import base64
import io

import matplotlib.pyplot as plt
from IPython.display import display
from matplotlib.figure import Figure
from PIL import Image

from agpo_core.experiments.plots.style import DPI

COLOURS = 256  # of a picture's palette: a third of the bytes, and no difference to the eye
SHOWN = 100  # pixels per inch at which a notebook shows a picture


class Picture:
    """A PNG and its alternative text, as a notebook keeps them."""

    def __init__(self, png: bytes, alt: str):
        self.png, self.alt = png, alt

    def __repr__(self) -> str:
        return self.alt

    def _repr_mimebundle_(self, include=None, exclude=None) -> tuple[dict, dict]:
        width = int.from_bytes(self.png[16:20])  # the first field of a PNG's header
        data = {"image/png": base64.b64encode(self.png).decode(), "text/plain": self.alt}
        return data, {"image/png": {"alt": self.alt, "width": round(width * SHOWN / DPI)}}


def show(figure: Figure, alt: str) -> None:
    """Show a figure below a notebook's cell, and close it.

    Args:
        alt: one or two sentences that say what the figure shows, for readers who do not see it. HTML copies and the
            report page hand them to screen readers. As the text of the output they are compared when the notebooks
            are tested, so that their numbers stay those of the figure.
    """
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI, bbox_inches="tight")
    plt.close(figure)
    palette = Image.open(drawn).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    palette.save(small, "png", optimize=True)
    display(Picture(small.getvalue(), alt))

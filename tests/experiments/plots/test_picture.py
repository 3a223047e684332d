"""A figure in a notebook is a small, sharp picture with words for readers who do not see it."""

import base64
import io

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from agpo_core.experiments import html, plots
from agpo_core.experiments.plots import picture, style

WORDS = "A line that rises from 0 to 2 as x goes from 0 to 1."


@pytest.fixture
def shown(monkeypatch):
    pictures = []
    monkeypatch.setattr(picture, "display", pictures.append)
    figure, axes = plt.subplots(figsize=(4, 3))
    axes.plot([0, 1], [0, 2])
    plots.show(figure, WORDS)
    assert not plt.get_fignums()  # it is closed
    return pictures[0]


def test_a_picture_has_its_words_and_is_shown_at_half_its_pixels(shown):
    data, metadata = shown._repr_mimebundle_()
    pixels = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).width
    assert pixels == pytest.approx(4 * style.DPI, rel=0.1)  # the margins are cut
    assert metadata == {"image/png": {"alt": WORDS, "width": round(pixels * 100 / style.DPI)}}
    assert data["text/plain"] == WORDS == repr(shown)


def test_the_palette_holds_the_colours_of_the_figure(shown):
    found = np.unique(np.asarray(Image.open(io.BytesIO(shown.png)).convert("RGB")).reshape(-1, 3), axis=0)
    blue = np.array([int(part, 16) for part in ("1f", "77", "b4")])  # matplotlib's first colour
    assert np.abs(found - blue).sum(axis=1).min() <= 6


def test_an_html_copy_has_the_words_in_its_img_tag(shown):
    data, metadata = shown._repr_mimebundle_()
    output = nbformat.v4.new_output("display_data", data, metadata=metadata)
    plain = nbformat.v4.new_output("display_data", data)
    cell = nbformat.v4.new_code_cell("", outputs=[output, plain])
    page = html.page(nbformat.v4.new_notebook(cells=[cell]), "n")
    assert f'alt="{WORDS}"' in page and page.count("<img ") == 2 and page.count('alt=""') == 1
    assert f'width="{metadata["image/png"]["width"]}"' in page


def test_every_figure_has_its_words():
    for name in set(plots.__all__) - {"alt", "show"}:
        assert callable(getattr(plots.alt, name)), name


def test_words_are_computed_from_what_is_drawn():
    columns = ["score", "half", "n", "gap", "gap_half", "pairs"]
    rows = {"grpo": (70.0, 1.0, 6, np.nan, np.nan, 0), "agpo": (68.0, 1.0, 6, -2.0, 1.5, 6),
            "agpo_no_ats": (69.5, 1.0, 6, -0.5, 1.5, 6)}  # fmt: skip
    data = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    words = plots.alt.main_results(data)
    assert "3 arms: from 68.0 % (AGPO) to 70.0 % (GRPO)" in words
    assert "2 intervals: wholly above zero 0, wholly below 1" in words  # -2 ± 1.5 leaves out zero, -0.5 ± 1.5 does not
    assert plots.alt.main_results(data.iloc[:0]) == plots.alt.EMPTY

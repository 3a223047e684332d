"""The diagram of the loop is legible and says what the loop does; the map of the clip agrees with an obvious loop."""

import itertools

import matplotlib

matplotlib.use("Agg")

import pytest
import torch

from agpo_core.experiments import plots
from agpo_core.experiments.plots.loop import ARROWS, BOXES, HEIGHT, SYMBOLS, WIDTH

NUMBERS = {name: 0.123 for name in SYMBOLS}


def edges(name):
    (x, y), *_ = BOXES[name]
    return x - WIDTH / 2, x + WIDTH / 2, y - HEIGHT / 2, y + HEIGHT / 2


def on_edge(point, name):
    left, right, low, high = edges(name)
    x, y = point
    return (min(abs(x - left), abs(x - right)) < 0.06 and low <= y <= high) or (
        min(abs(y - low), abs(y - high)) < 0.06 and left <= x <= right
    )


def test_every_arrow_runs_from_the_edge_of_its_source_to_the_edge_of_its_target():
    for source, target, _, _, corners, _ in ARROWS:
        assert on_edge(corners[0], source) and on_edge(corners[-1], target), (source, target)


def test_arrows_run_straight_and_through_no_box():
    for source, target, _, _, corners, _ in ARROWS:
        for (x0, y0), (x1, y1) in itertools.pairwise(corners):
            assert x0 == x1 or y0 == y1, (source, target)
            for name in BOXES:
                left, right, low, high = edges(name)
                inside = max(x0, x1) > left + 0.06 and min(x0, x1) < right - 0.06
                assert not (inside and max(y0, y1) > low + 0.06 and min(y0, y1) < high - 0.06), (source, target, name)


@pytest.mark.parametrize("values", [None, NUMBERS])
def test_no_text_covers_another_and_each_box_holds_its_own(values):
    figure, _ = plots.probe_train_loop(values, "tiny-qwen2-a, seed 0" if values else "")
    figure.draw_without_rendering()
    axes = figure.axes[0]
    texts = [text for text in (*figure.texts, *axes.texts) if text.get_text()]
    extents = [text.get_window_extent() for text in texts]
    for (a, first), (b, second) in itertools.combinations(zip(texts, extents, strict=True), 2):
        assert not first.overlaps(second), (a.get_text(), b.get_text())
    boxes = [patch.get_window_extent() for patch in axes.patches if type(patch).__name__ == "FancyBboxPatch"]
    assert len(boxes) == len(BOXES)
    held = 0
    for text, extent in zip(texts, extents, strict=True):
        touched = [box for box in boxes if box.overlaps(extent)]
        assert len(touched) <= 1, text.get_text()
        if touched:
            assert touched[0].x0 <= extent.x0 and extent.x1 <= touched[0].x1, text.get_text()
            held += 1
    assert held == len(BOXES)
    assert all(figure.bbox.x0 <= e.x0 and e.x1 <= figure.bbox.x1 for e in extents)
    assert all(figure.bbox.y0 <= e.y0 and e.y1 <= figure.bbox.y1 for e in extents)


def test_all_equations_of_the_method_are_on_arrows():
    _, arrows = plots.probe_train_loop()
    numbers = [int(number) for text in arrows["equations"] for number in text.split(", ") if number]
    assert set(numbers) == set(range(1, 13))
    assert numbers.count(1) == 2  # of the probe's rewards, and of the training rewards


def test_the_probe_reaches_the_controllers_alone():
    _, arrows = plots.probe_train_loop()
    to = {source: set(group["target"]) for source, group in arrows.groupby("source")}
    assert to["probe"] == {"statistics"}
    assert to["statistics"] == {"temperature", "radius"}


def test_what_is_kept_for_the_next_update_is_the_policy_its_drift_and_the_running_mean():
    _, arrows = plots.probe_train_loop()
    later = arrows[arrows["next_update"]]
    assert set(zip(later["source"], later["target"], strict=True)) == {
        ("updated", "policy"),
        ("updated", "radius"),
        ("temperature", "temperature"),
    }
    # within one update nothing depends on itself: the remaining arrows have an order
    rest = {(s, t) for s, t, later in zip(arrows["source"], arrows["target"], arrows["next_update"]) if not later}
    boxes = set(BOXES)
    while boxes:
        first = {box for box in boxes if not any(t == box and s in boxes for s, t in rest)}
        assert first
        boxes -= first


def test_numbers_stand_beside_their_quantities():
    figure, _ = plots.probe_train_loop({"tau": 1.2422, "epsilon": 0.1271})
    texts = " ".join(text.get_text() for text in figure.axes[0].texts)
    assert "tau_t$ = 1.242" in texts and "varepsilon$ = 0.127" in texts
    assert texts.count(" = ") == 2


def test_a_drawing_of_measured_numbers_says_where_they_come_from():
    about = "tiny-qwen2-a, seed 7"
    loop, _ = plots.probe_train_loop({"tau": 1.0}, about)
    tokens, _ = plots.clip_map([1.0, 1.3], [1.0, 1.0], 0.2, about)
    assert about in loop.get_suptitle() and about in tokens.axes[0].get_title()
    tokens.draw_without_rendering()
    title = tokens.axes[0].title.get_window_extent()
    assert tokens.bbox.x0 <= title.x0 and title.x1 <= tokens.bbox.x1
    plain, _ = plots.probe_train_loop()
    assert plain.get_suptitle() == ""


def test_a_number_that_no_arrow_carries_is_refused():
    with pytest.raises(KeyError, match="temperature"):
        plots.probe_train_loop({"temperature": 1.0})


def test_the_clip_binds_where_the_ratio_left_the_range_in_the_direction_of_the_advantage():
    generator = torch.Generator().manual_seed(0)
    ratios = (1 + 0.4 * torch.randn(60, generator=generator)).tolist()
    advantages = torch.randn(60, generator=generator).tolist()
    _, data = plots.clip_map(ratios, advantages, 0.2, "")
    for rho, A, binds in zip(ratios, advantages, data["binds"], strict=True):
        assert binds == ((A > 0 and rho > 1.2) or (A < 0 and rho < 0.8))
    assert 0 < data["binds"].sum() < 60


def test_the_map_shows_every_token(recwarn):
    figure, data = plots.clip_map([0.4, 1.0, 2.5], [-1.0, 0.0, 2.0], 0.1, "")
    figure.draw_without_rendering()
    (left, right), (low, high) = figure.axes[0].get_xlim(), figure.axes[0].get_ylim()
    assert data["ratio"].between(left, right).all() and data["advantage"].between(low, high).all()
    figure, _ = plots.clip_map([1.0, 1.0], [0.0, 0.0], 0.2, "")  # equal groups at the first step
    figure.draw_without_rendering()
    assert not recwarn.list

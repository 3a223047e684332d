"""The curves of jobs that run: they show each complete line once, and nothing where nobody watches."""

import base64
import json

import pytest

from agpo_core.experiments.plots import live

ROWS = [{"progress": p, "reward": r, "tau": 1.0 + p, "epsilon": 0.2, "reference_kl": 0.1 * p}
        for p, r in ((0.25, 0.4), (0.5, 0.6), (0.75, float("nan")))]  # fmt: skip


class Display:
    def __init__(self):
        self.pictures = []

    def update(self, data, raw):
        assert raw and base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
        self.pictures.append(data)


@pytest.fixture
def runs(tmp_path):
    folders = {tmp_path / "a": ("agpo", "AGPO"), tmp_path / "b": ("grpo", "GRPO")}
    for folder in folders:
        folder.mkdir()
    return folders


def log(folder, rows, torn=""):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + torn)


def drawn(curves, panel=0):
    """The points of a panel's lines that have points."""
    return [line.get_xydata().tolist() for line in curves.figure().axes[panel].lines if len(line.get_xydata())]


def test_a_line_is_shown_when_it_is_complete_and_once(runs):
    a, b = runs
    curves = live.Curves(runs, Display())
    log(a, ROWS[:1], torn='{"progress": 0.5, "rew')
    curves(last=True)
    assert drawn(curves) == [[[25.0, 0.4]]] and len(curves.display.pictures) == 1
    log(a, ROWS[:2])
    log(b, ROWS[1:2])
    curves(last=True)
    assert drawn(curves) == [[[25.0, 0.4], [50.0, 0.6]], [[50.0, 0.6]]]
    assert drawn(curves, 1)[0] == [[25.0, 1.25], [50.0, 1.5]]
    curves(last=True)
    assert len(curves.display.pictures) == 2  # there was nothing new


def test_a_run_that_goes_on_from_an_earlier_checkpoint_is_read_anew(runs):
    a, _ = runs
    curves = live.Curves(runs, Display())
    log(a, ROWS)
    curves(last=True)
    log(a, ROWS[:1])
    curves(last=True)
    assert drawn(curves) == [[[25.0, 0.4]]]


def test_pictures_are_seconds_apart_and_the_legend_names_what_has_begun(runs, monkeypatch):
    a, _ = runs
    now = [100.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    curves = live.Curves(runs, Display())
    for count, later in ((1, 0.0), (2, 1.0), (3, live.EVERY)):
        log(a, ROWS[:count])
        now[0] += later
        curves()
    assert len(curves.display.pictures) == 2
    assert [text.get_text() for text in curves.figure().legends[0].texts] == ["AGPO"]


def test_where_nobody_watches_nothing_is_read_or_drawn(runs):
    a, _ = runs
    log(a, ROWS)
    curves = live.Curves(runs)
    curves(last=True)
    assert curves.display is None and not any(curves.rows.values())

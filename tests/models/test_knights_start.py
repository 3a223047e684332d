"""Supervised starts for Knights and Knaves: their demonstrations and their measurements."""

import json

import pytest

from agpo_core.models import knights_start, tiny_models
from agpo_core.models.knights_start import taught
from agpo_core.models.tiny_models import demonstrations


def test_demonstrations_take_the_numbers_of_people_in_turn():
    pairs = demonstrations([taught(2), taught(3)], 40, seed=1)
    assert [prompt.count(":") for prompt, _ in pairs] == [2, 3] * 20


def test_clean_demonstrations_are_the_same_puzzles_without_the_slips():
    slipped, clean = (demonstrations([taught(3, *slips)], 1000, seed=1) for slips in ((), ((0, 0),)))
    assert [prompt for prompt, _ in slipped] == [prompt for prompt, _ in clean]
    wrong = [a[1][:3] != b[1][:3] for a, b in zip(slipped, clean, strict=True)]
    # A third of the puzzles end with a simple statement (slips .25), the others with a compound (.7):
    # (.25 + 2 * .7) / 3 = .55
    assert sum(wrong) / len(wrong) == pytest.approx(0.55, abs=0.06)  # four standard errors


def test_a_start_is_made_measured_and_recorded(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(knights_start, "PEOPLE", (2,))
    monkeypatch.setattr(tiny_models, "SAMPLED_PROBLEMS", 4)
    monkeypatch.setattr(knights_start, "KNIGHTS", tiny_models.Supervision(steps=2, batch=4, learning_rate=2.0e-3))
    knights_start.main([str(tmp_path), "--seed", "3"])
    start = json.loads((tmp_path / "start.json").read_text())
    assert (start["people"], start["seed"], start["steps"], start["slips"]) == ([2, 3], 3, 2, [0.25, 0.7])
    row = start["tasks"]["knights_2"]
    assert set(row) == {"greedy", "sampled", "pass_at_8", "entropy", "length", "roles", "everyone_named"}
    assert row["greedy"] <= 0.2  # two steps teach nothing
    assert row["entropy"] == pytest.approx(4.8, abs=1)  # ln 138 = 4.93 nats is a uniform guess over the vocabulary
    head, line = (row.split() for row in capsys.readouterr().out.splitlines()[-2:])
    assert head[:2] == ["task", "greedy"]
    assert line[:2] == ["knights_2", f"{row['greedy']:.3f}"]

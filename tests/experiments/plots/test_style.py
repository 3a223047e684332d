"""A method has one look everywhere: a family's hue, and a marker of its own."""

import colorsys
import itertools

import pytest

from agpo_core.experiments.grid import ARMS
from agpo_core.experiments.plots import style
from agpo_core.experiments.plots.methods import MEMBERS


def hue(color):
    return colorsys.rgb_to_hls(*color)[0]


def family(arm):
    """The family whose hue the arm has."""
    (found,) = [name for name, color in style.FAMILIES.items() if abs(hue(color) - hue(style.LOOKS[arm].color)) < 1e-6]
    return found


def test_every_arm_has_a_look():
    assert set(style.LOOKS) == set(ARMS)


def test_every_method_has_the_hue_of_its_family():
    for name, arms in MEMBERS.items():
        assert {family(arm) for arm in arms} == {name}
    assert family("grpo_narrow") == "group baselines" and family("agpo_mad") == "AGPO"


def test_no_two_arms_of_a_family_have_one_marker():
    arms = [arm for arm in ARMS if arm != "start"]
    for one, other in itertools.combinations(arms, 2):
        if family(one) == family(other):
            assert style.LOOKS[one][2:] != style.LOOKS[other][2:], (one, other)


def test_the_arms_of_table_1_differ_as_lines_without_markers():
    table1 = ["grpo", "grpo_ats", "agpo_no_ats", "agpo", "grpo_matched_updates", "grpo_matched_compute", "grpo_narrow"]
    table1.append("agpo_relative_entropy")
    looks = [style.LOOKS[arm][:2] for arm in table1]
    assert len(set(looks)) == len(looks)


def test_a_shade_lies_between_the_hue_and_black_or_white():
    assert style.look("AGPO", 0, "-", "o").color == style.RED
    assert style.look("AGPO", -1, "-", "o").color == (0, 0, 0) and style.look("AGPO", 1, "-", "o").color == (1, 1, 1)
    half = style.look("AGPO", 0.5, "-", "o").color
    assert half == pytest.approx([(1 + part) / 2 for part in style.RED])


def test_a_hollow_mark_is_white_inside():
    assert style.line("grpo_narrow")["markerfacecolor"] == "white"
    assert style.mark("grpo", markersize=7) | {"color": None, "markerfacecolor": None} == {
        "fmt": "o", "capsize": 3, "elinewidth": 1.6, "zorder": 3, "color": None, "markerfacecolor": None,
        "linestyle": "", "markersize": 7,
    }  # fmt: skip

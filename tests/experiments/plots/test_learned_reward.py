"""Figures of runs on a learned reward: what is drawn is what the tables say."""

import matplotlib

matplotlib.use("Agg")

import pytest

from agpo_core.comparison import t_interval
from agpo_core.experiments import learned_reward, plots, records
from agpo_core.experiments.grid import ARMS
from agpo_core.experiments.learned_reward import GOLD, KL, SCORE
from agpo_core.experiments.records import Results

RECORD, WEAK = (records.load(f"rpp_table1_{name}", "tiny") for name in ("general_rlhf", "weak_reward"))
pytestmark = pytest.mark.skipif(RECORD is None or WEAK is None, reason="there is no record")


@pytest.mark.parametrize("equal_kl", [False, True])
def test_differences_are_drawn_with_their_intervals_a_row_an_arm(equal_kl):
    figure, data = plots.reward_gaps(RECORD, equal_kl)
    values = learned_reward.outcomes(RECORD)
    for row in data.itertuples(index=False):
        gap = learned_reward.gap(values, row.measure, row.arm)
        if equal_kl:
            gap = learned_reward.equal_kl_gaps(RECORD)[row.arm][row.measure]
        assert (row.mean, row.half, row.n) == pytest.approx(t_interval(gap)[:3])
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == [ARMS[arm].title for arm in data["arm"].unique()]
    assert (KL in set(data["measure"])) != equal_kl


def test_gold_is_drawn_from_the_start_over_the_kl_a_column_a_record():
    figure, data = plots.reward_against_kl({"strong": RECORD, "weak": WEAK})
    assert len(figure.axes) == 4 and figure.axes[0].get_title().startswith("strong: ")
    points = learned_reward.curves(WEAK)
    runs = points[points["arm"] == "grpo"].groupby(["seed", "start"])
    for measure in (GOLD, SCORE):
        last = data[(data["record"] == "weak") & (data["arm"] == "grpo")].iloc[-1]
        assert last[measure] == pytest.approx((runs[measure].last() - runs[measure].first()).mean())
        assert last["kl"] == pytest.approx(runs[KL].last().mean())
    assert data[data["evaluation"] == 0][[GOLD, SCORE]].abs().max(axis=None) < 1e-9


def test_reward_and_kl_are_paired_along_training():
    _, data = plots.reward_dynamics(RECORD, ["grpo", "reinforce_pp_k", "no_such_arm"])
    assert set(data["arm"]) == {"grpo", "reinforce_pp_k"}
    assert data.loc[data["arm"] == "grpo", "gap"].isna().all()
    points = learned_reward.curves(RECORD)
    ends = points[points["update"] == points["update"].max()].set_index(["arm", "seed", "start"])[KL]
    last = data[(data["quantity"] == "kl") & (data["arm"] == "reinforce_pp_k")].iloc[-1]
    assert last["gap"] == pytest.approx((ends["reinforce_pp_k"] - ends["grpo"]).mean())


def test_nothing_is_drawn_of_nothing():
    for name, drawn in (
        ("reward_gaps", plots.reward_gaps(Results())),
        ("reward_against_kl", plots.reward_against_kl({"nothing": Results()})),
        ("reward_dynamics", plots.reward_dynamics(Results(), ["grpo"])),
    ):
        assert getattr(plots.alt, name)(drawn[1]) == plots.alt.EMPTY

"""The 2 x 3 of normaliser and KL: its contrasts, the comparison at equal KL, and the measures of a run."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch

from agpo_core import advantages
from agpo_core.experiments import normaliser_kl as nk
from agpo_core.experiments import plots, profiles, traces
from agpo_core.experiments.records import Results

TASKS = [f"task {i}" for i in range(9)]


def results(score, kl, n: int = 3) -> Results:
    """Runs of three updates on one start each. score(arm, seed) in points, kl(arm, seed) a list of three.

    A start solves task i to 10 i %. An arm gains `score` on each task, those of the group's deviation 2 points more on
    the three best.
    """
    runs, rows = [], []
    for seed in range(n):
        key = {"seed": 0, "start": str(seed)}
        runs += [key | {"arm": "start", "task": t, "score": 0.1 * i, "macro": 0.4} for i, t in enumerate(TASKS)]
        for arm, (divisor, _) in nk.CELLS.items():
            key = {"arm": arm, "seed": seed, "start": str(seed)}
            for i, task in enumerate(TASKS):
                gain = score(arm, seed) + 2 * (divisor == "group" and i >= 6)
                row = {"task": task, "score": 0.1 * i + gain / 100, "macro": 0.4 + score(arm, seed) / 100}
                runs.append(key | row | {"grad_norm_variance": 2.0 ** score(arm, seed)})
            kls = [math.nan, *kl(arm, seed)]
            rows += [key | {"update": u, "reference_kl": kls[u], "dev": 0.4 + 0.1 * u} for u in range(4)]
    return Results(pd.DataFrame(runs), pd.DataFrame(rows), {"params": {}, "profile": "tiny"})


FLAT = results(lambda arm, seed: 1.0 + seed, lambda arm, seed: [0.0, 0.1, 0.2])


def test_the_cells_are_the_arms_of_the_experiment():
    assert set(nk.CELLS) | {"start"} == set(profiles.settings("beyond_normaliser_and_kl", "tiny")["methods"])
    assert set(itertools.product(("group", "batch"), nk.FORMS)) == set(nk.CELLS.values())


def test_the_contrasts_are_orthogonal_and_sum_to_zero():
    weights = nk.weights().to_numpy()
    assert np.allclose(weights.sum(axis=1), 0)
    products = weights @ weights.T
    assert np.allclose(products, np.diag(np.diag(products)))


def test_each_effect_is_found_where_it_was_put_in():
    size = {"k3": 0.0, "k2": 1.0, "k1": 4.0}  # form +1; place 4 - .5
    made = results(
        lambda arm, seed: seed * 0.5 + size[nk.CELLS[arm][1]] + (3.0 if nk.CELLS[arm] == ("batch", "k2") else 0.0),
        lambda arm, seed: [0.0, 0.1, 0.2],
    )
    found = nk.effects(nk.per_run(made), [nk.SCORE]).set_index("contrast")["mean"]
    # the 3 points of one cell: normaliser 3/3, form 3/2, place -.5 * 3/2, both interactions by their weights
    assert found.tolist() == pytest.approx([1.0, 1 + 1.5, 3.5 - 0.75, 3.0, -1.5])


def test_a_variance_is_compared_by_the_binary_logarithm_of_a_ratio():
    made = results(lambda arm, seed: 1.0 if nk.CELLS[arm][1] == "k2" else 0.0, lambda arm, seed: [0.0, 0.1, 0.2])
    (_, part, _) = nk.parts_of_47(nk.per_run(made))
    assert part.values.tolist() == pytest.approx([1.0] * 3)  # 2^1 against 2^0


def test_the_kl_of_an_evaluation_is_that_of_the_updates_around_the_next_one():
    points = nk.along(FLAT)
    run = points[(points["arm"] == "grpo") & (points["seed"] == 0)].sort_values("update")
    # rows 1 to 3: 0, .1, .2; after update 1: mean of all three; after 2: of the last two; after 3: the last
    assert run["kl"].tolist() == pytest.approx([0.0, 0.1, 0.15, 0.2])
    assert run["dev"].tolist() == pytest.approx([40, 50, 60, 70])


def test_runs_are_compared_at_the_largest_kl_that_all_of_a_start_reached():
    made = results(lambda arm, seed: 1.0, lambda arm, seed: [0.0, 0.1, 0.1 if arm == "grpo" else 0.4])
    points = nk.along(made)
    common = nk.common_kl(points)
    assert common.tolist() == pytest.approx([0.1] * 3)
    dev = nk.at_kl(points, common)
    # grpo: kl 0, .0667, .1, .1: passes .1 at update 2. The others: 0, .1667: .6 of the way to the first evaluation
    assert dev["grpo"].tolist() == pytest.approx([60.0] * 3)
    assert dev["grpo_k2_loss"].tolist() == pytest.approx([46.0] * 3)
    assert nk.early(points, common) == 15


def test_scores_do_not_move_the_common_kl():
    other = results(lambda arm, seed: 9.0 - seed, lambda arm, seed: [0.0, 0.1, 0.2])
    assert nk.common_kl(nk.along(other)).equals(nk.common_kl(nk.along(FLAT)))


def test_the_largest_rise_is_from_one_update_to_the_next():
    made = results(lambda arm, seed: 1.0, lambda arm, seed: [0.1, 0.5, 0.2])
    assert nk.per_run(made)[nk.RISE].tolist() == pytest.approx([0.4] * 18)


def test_easy_less_hard_is_the_gain_on_the_best_three_less_the_worst_three():
    values = nk.per_run(FLAT)[nk.EASY]
    assert values["grpo"].tolist() == pytest.approx([2.0] * 3)
    assert values["reinforce_pp_baseline"].tolist() == pytest.approx([0.0] * 3, abs=1e-9)
    (part,) = nk.parts_of_35(nk.per_run(FLAT))
    assert part.values.tolist() == pytest.approx([2.0] * 3) and part.sign == 1


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_weight_of_a_prompt_is_that_of_every_group_counted(p):
    G, right, wrong = 4, 0.0, 0.0
    for rewards in itertools.product((0.0, 1.0), repeat=G - 1):
        chance = math.prod(p if r else 1 - p for r in rewards)
        for own in (0.0, 1.0):
            A = advantages.group_advantages(torch.tensor([[own, *rewards]], dtype=torch.float64))[0, 0].item()
            right, wrong = (right + chance * A, wrong) if own else (right, wrong + chance * A)
    assert nk.weight(G, p) == pytest.approx(right - wrong, rel=1e-6)


def test_without_all_six_cells_nothing_is_said_of_an_effect():
    half = FLAT.only(["start", "grpo", "grpo_k2_loss"])
    values = nk.per_run(half)
    assert nk.effects(values)["n"].eq(0).all()
    judged = traces.judge_parts([*nk.parts_of_47(values), *nk.parts_of_35(values)])
    assert judged["verdict"].eq("not run").all()
    assert "Not answered, because not run" in nk.answers(half)


def test_tables_answers_and_figures_are_of_the_runs():
    made = results(lambda arm, seed: seed + len(arm) / 10, lambda arm, seed: [0.0, 0.1 + seed / 100, 0.2])
    values = nk.per_run(made)
    assert len(nk.cell_table(values)) == 6 and len(nk.effect_table(values)) == 5
    assert "nan" not in nk.answers(made)
    for name in ("factor_effects", "dev_over_kl", "gain_by_level"):
        _, drawn = getattr(plots, name)(made)
        assert len(drawn) and getattr(plots.alt, name)(drawn).endswith(".")
    thirds = plots.gain_by_level(made)[1].groupby("third", observed=True).size()
    assert thirds.tolist() == [9, 9, 9]

"""The records show what they are said to show."""

import pandas as pd
import pytest

from agpo_core import paths, provenance
from agpo_core.config import TrainConfig
from agpo_core.experiments import records
from agpo_core.experiments.grid import ARMS
from agpo_core.recipes import RECIPES


@pytest.fixture(scope="module")
def traces():
    """The traces of the records in which every recipe was trained."""
    names = ("methods_overview", "agpo_table4_signal_ablation", "agpo_table5_robust_dispersion", "mixed_scaling")
    there = [name for name in names if (paths.reference() / "tiny" / name).is_dir()]  # the others fail their recipes
    found = [records.load(name, "tiny").traces for name in there]
    traces = pd.concat(found, ignore_index=True)
    traces = traces.drop_duplicates(["arm", "seed", "start", "update"])  # AGPO's runs stand in several records
    return traces.assign(method=[ARMS[arm].method for arm in traces["arm"]])


@pytest.mark.parametrize("method", RECIPES)
def test_every_recipe_learns_for_three_seeds_or_more(traces, method):
    runs = list(traces[traces["method"] == method].groupby(["seed", "start"]))
    assert len({seed for (seed, _), _ in runs}) >= 3
    for run, trace in runs:
        dev = trace["dev"].dropna()
        assert dev.iloc[-1] > dev.iloc[0], run
        reward = trace["reward"].dropna()
        third = len(reward) // 3
        if method != "dpo":  # offline: it draws its rollouts once
            assert reward[-third:].mean() > reward[:third].mean(), run


@pytest.mark.parametrize(("sizes", "rows"), [(4, [4, 4]), ({"a": 8, "b": 5}, [8, 5])])
def test_a_row_has_the_number_of_its_own_tasks_problems(sizes, rows):
    test = {"macro": 0.5, "problems": sizes, "score": {"a": 0.25, "b": 0.75}}
    found = records._run_rows({}, [], {"test": test}, TrainConfig(), {"hash": ""})
    assert [row["problems"] for row in found] == rows


def test_the_kept_samples_are_the_first_of_a_runs_first_and_last_update(tmp_path):
    for update, completion in ((1, "a"), (1, "b"), (1, "c"), (2, "d"), (3, "e"), (3, "f"), (3, "g")):
        provenance.append_jsonl(tmp_path / "samples.jsonl", {"update": update, "completion": completion})
    kept = records._first_and_last(tmp_path, 2)
    assert [line["completion"] for line in kept] == ["a", "b", "e", "f"]
    assert records._first_and_last(tmp_path, 0) == [] == records._first_and_last(tmp_path / "nowhere", 2)


def test_samples_of_arms_that_are_not_shown_are_left_out():
    meta = {"samples": [{"arm": "grpo", "completion": "a"}, {"arm": "agpo", "completion": "b"}], "warnings": []}
    assert records.Results(meta=meta).only(["agpo"]).meta["samples"] == [{"arm": "agpo", "completion": "b"}]

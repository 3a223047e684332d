"""Tables and sentences that are made from data."""

import re

import pandas as pd
import pytest

from agpo_core import paths
from agpo_core.comparison import t_interval
from agpo_core.experiments import grid, records, report
from agpo_core.experiments.records import Results
from agpo_core.experiments.verdicts import Pair, claimed, judge

PAIRS = [*claimed("agpo_table1_main_results", ["agpo", "grpo"]), Pair("agpo", "grpo_narrow")]


@pytest.fixture
def results(launched, trained, params):
    return trained("table", params)


@pytest.fixture
def smoke(launched, trained, params):
    """One seed, one start."""
    return trained("table", params | {"seeds": [42], "models": ["tiny-qwen2-a"]})


def row(arm="grpo", seed=1, task="steps", score=0.5, **columns) -> dict:
    return {
        "arm": arm, "seed": seed, "start": "a", "task": task, "score": score, "macro": score,
        "updates": 4, "tokens_train": 1000, "tokens_probe": 0, "tokens_last": 300, "seconds": 2.0,
        "horizon_unit": "tokens", "horizon": 900, "hash": f"{arm}{seed}", **columns,
    }  # fmt: skip


def test_the_measured_table_is_arms_by_tasks_and_macro_with_intervals():
    # 50, 52, 54 %: mean 52, s = 2, half = 4.303 x 2 / sqrt 3 = 4.97
    runs = pd.DataFrame([row(seed=seed, score=score) for seed, score in enumerate((0.50, 0.52, 0.54))])
    table = report.measured(runs)
    assert table.loc["GRPO"].to_dict() == {
        "steps": "52.0\u00a0±\u00a05.0",
        "macro": "52.0\u00a0±\u00a05.0",
        "runs": "3",
    }


def test_the_measured_table_has_the_start_first_then_methods_then_controls(results):
    table = report.measured(results.runs)
    assert table.index.tolist() == [grid.ARMS[arm].title for arm in results.meta["params"]["methods"]]
    tasks = [task.replace("_", " ") for task in results.meta["params"]["tasks"]]
    assert table.columns.tolist() == ["macro", *tasks, "runs"]
    assert "±" not in table.loc["supervised start", "macro"] and "±" in table.loc["AGPO", "macro"]


def test_one_run_has_a_score_and_no_interval(smoke):
    assert not report.measured(smoke.runs).map(lambda cell: "±" in cell).any(axis=None)
    assert "one pair cannot decide" in report.summary(smoke, PAIRS, None)


def test_the_differences_are_paired_with_grpo_and_with_the_start():
    scores = {"start": 0.30, "grpo": 0.50, "agpo": 0.49}
    runs = pd.DataFrame([row(arm, score=score) for arm, score in scores.items()])
    table = report.differences(runs)
    assert table.loc["GRPO"].tolist() == ["+20.0", "", "", ""]
    assert table.loc["AGPO"].tolist() == ["+19.0", "-1.0", "", "1"]  # one pair: nothing to test


def test_the_p_of_a_table_is_corrected_over_its_differences():
    # differences of 2 3 4, of 0 1 2 and of 7 7 7 points: raw p .035 and .225; equal ones are not tested
    scores = {"grpo": (0.5, 0.5, 0.5), "agpo": (0.52, 0.53, 0.54), "rloo": (0.50, 0.51, 0.52), "ppo": (0.57,) * 3}
    runs = pd.DataFrame([row(arm, seed, score=s) for arm, of_arm in scores.items() for seed, s in enumerate(of_arm)])
    table = report.differences(runs)
    assert table["p (Holm)"].to_dict() == {"GRPO": "", "AGPO": "0.070", "RLOO": "0.225", "PPO, value head": ""}
    assert report.gaps(runs)["agpo"] == ("+3.0\u00a0±\u00a02.5", "0.070")


def test_a_table_and_the_summary_say_what_the_intervals_go_over(launched, params):
    results = grid.run("table", params | {"models": params["models"][:2]})
    runs = results.runs
    for table in (report.measured(runs), report.differences(runs), report.overview(runs)):
        assert table.columns.name == "± over seeds"  # three seeds over two starts: one has two
    assert "other seeds of these starts" in report.summary(results, PAIRS, None).replace("\n", " ")
    apart = runs[runs["seed"].isin([0, 42, 1337])]  # one seed per start
    assert report.measured(apart).columns.name == "± over starts"
    tasks = report.measured(runs).loc["GRPO", "steps"]
    grpo = runs[(runs["arm"] == "grpo") & (runs["task"] == "steps")].set_index("start")["score"]
    assert tasks == t_interval(100 * grpo).text() != t_interval((100 * grpo).tolist()).text()


def test_starts_with_unequal_numbers_of_seeds_are_said_to_have_them(launched, params):
    def said(**changed):
        two = {"methods": ["start", "grpo"], "models": params["models"][:2]}
        results = grid.run("starts", params | two | changed)
        return report.reading(results, judge(results.runs, [])).replace("\n  ", " ")

    assert "equally many seeds: tiny-qwen2-a 2, tiny-qwen2-b 1." in said(seeds=[1, 2, 3])
    assert "equally many seeds: tiny-qwen2-a 1, tiny-qwen2-b 0." in said(seeds=[1])
    assert "equally many" not in said(seeds=[1, 2, 3, 4])


@pytest.mark.parametrize(
    ("spent", "last", "met"),
    [
        (900, 300, True),  # exactly
        (1199, 300, True),  # the last update began below the horizon
        (1200, 300, False),  # one update too many
        (899, 300, False),  # stopped short
    ],
)
def test_a_budget_is_met_to_within_one_update(spent, last, met):
    runs = pd.DataFrame([row(tokens_train=spent, tokens_last=last)])
    assert report.off_budget(runs) == ([] if met else ["grpo1"])
    assert report.budgets(runs).loc["GRPO", "within one update"] == ("yes" if met else "NO")


def test_an_arm_with_a_horizon_in_updates_has_no_token_budget(results):
    table = report.budgets(results.runs)["within one update"]
    assert table["GRPO at AGPO's updates"] == "no token budget"
    assert (table.drop("GRPO at AGPO's updates") == "yes").all()
    assert not report.off_budget(results.runs)


def test_the_share_of_updates_at_the_floor_is_that_of_the_trace(results):
    params, traces = results.meta["params"], results.traces
    agpo = traces[(traces["arm"] == "agpo") & (traces["update"] > 0)]
    share = (agpo["epsilon"] == params["epsilon_min"]).mean()
    assert 0 < share < 1
    table = report.controllers(traces, params)
    assert table.loc["AGPO", "at floor"] == f"{share:.0%}"
    assert table.loc["GRPO at ε = .05", "at floor"] == ""  # fixed there, not driven there
    assert table.loc["AGPO (−ATS)", "cooled"] == "" and table.loc["AGPO", "cooled"] == "0.0%"


def test_the_reading_is_made_from_the_data(results):
    text = report.reading(results, judge(results.runs, PAIRS))
    means = 100 * results.runs.groupby("arm")["macro"].mean()
    best = grid.ARMS[means.idxmax()].title
    assert f"highest first: {best} ({means.max():.1f})" in text.replace("\n  ", " ")
    assert "AGPO (−ATS): ε lies at its floor, 0.05, in" in text
    assert "GRPO + ATS: τ ranges from" in text and "GRPO: " not in text


def test_a_null_is_counted_and_not_taken_for_proof_of_equality():
    runs = pd.DataFrame(
        [row(arm, seed, score=score) for arm, scores in
         {"grpo": (0.50, 0.50, 0.50), "agpo": (0.50, 0.51, 0.49)}.items()
         for seed, score in enumerate(scores)]
    )  # fmt: skip
    results = Results(runs, meta={"params": {}})
    text = report.reading(results, judge(runs, PAIRS[:1])).replace("\n  ", " ")
    assert "Verdicts at this scale on 1 pair with a claim: 1 inconclusive." in text
    assert "neither direction is shown; a difference may still exist." in text


def test_only_claims_are_counted(results):
    assert "on 1 pair with a claim" in report.reading(results, judge(results.runs, PAIRS))
    assert "No claim of the papers is about these arms." in report.reading(results, judge(results.runs, PAIRS[1:]))


def test_the_answer_has_a_verdict_where_a_paper_claims_something_and_none_at_equal_updates_and_compute(results):
    pairs = [*PAIRS, Pair("agpo", "grpo_matched_updates"), Pair("agpo", "grpo_matched_compute")]
    text = report.reading(results, judge(results.runs, pairs)).replace("\n  ", " ")
    assert re.search(
        r"AGPO differs from GRPO by \S+ points at equal tokens \(the claim is \w+\), \S+ points at equal updates, "
        r"\S+ points at equal compute\.",
        text,
    )


def test_the_summary_holds_everything_and_stays_in_a_terminals_width(results):
    text = report.summary(results, PAIRS, None)
    for part in ("Measured", "Paired differences", "Budgets", "Claims", "Agreement", "c0ffee"):
        assert part in text
    for arm in results.meta["params"]["methods"]:
        assert grid.ARMS[arm].title in text
    assert max(map(len, text.splitlines())) <= 110


def test_the_summary_is_written_beside_the_runs(launched, params):
    results = grid.run("table", params)
    grid.promote("table", "tiny")
    file = report.write_summary(results, PAIRS, records.load("table", "tiny"))
    assert file == paths.runs() / "table" / "tiny" / "summary.txt"
    assert "These are the recorded runs themselves." in file.read_text(encoding="utf-8")


def test_nothing_run_gives_empty_tables_and_says_so():
    nothing = Results()
    assert report.measured(nothing.runs).empty and report.differences(nothing.runs).empty
    assert report.budgets(nothing.runs).empty and report.controllers(nothing.traces, {}).empty
    assert not report.off_budget(nothing.runs) and report.provenance(nothing) == "runs              0"
    judged = judge(nothing.runs, PAIRS)
    assert judged["verdict"].tolist() == ["not run", "no claim"]
    assert "Nothing was run" in report.reading(nothing, judged)
    assert report.summary(nothing, PAIRS, None) == "Nothing was run."


def test_a_wide_table_is_printed_in_blocks_that_repeat_the_rows():
    table = pd.DataFrame([["1"] * 5], index=["GRPO"], columns=list("abcde"))
    assert report.text(table, columns=3) == "      a  b  c\nGRPO  1  1  1\n\n      d  e\nGRPO  1  1"


def test_the_legend_names_a_benchmark_for_every_task(params):
    legend = report.legend(params["tasks"])
    assert legend["stands in for"].tolist() == [
        "GSM8K", "MATH", "OCW", "SAT", "MMLU_STEM", "CodeContests", "CMATH", "GaokaoCloze", "GaokaoQA"
    ]  # fmt: skip


def test_provenance_names_commit_versions_and_hardware(results):
    text = report.provenance(results)
    runs = f"runs              {len(results.meta['runs'])}"
    for part in ("commit            c0ffee", "torch 2.13.0", "an invented CPU", runs):
        assert part in text


def test_the_overview_has_a_row_a_method_and_ratios_to_grpo(launched, params):
    results = grid.run("table", params | {"methods": ["start", "grpo", "agpo"]})
    table = report.overview(results.runs)
    assert list(table.index) == ["supervised start", "GRPO", "AGPO"]
    assert table.loc["GRPO", "Var ‖∇‖"] == "1.00" and table.loc["GRPO", "from GRPO"] == ""
    assert table.loc["AGPO", "trained on"] == "50%" and table.loc["AGPO", "memory, MiB"] == "100"
    assert table.loc["supervised start", "updates"] == ""


def test_a_warning_is_told_once_with_the_arms_that_gave_it(launched, params):
    results = grid.run("table", params | {"methods": ["grpo", "agpo", "agpo_relative_entropy"]})
    assert report.warnings(results) == (
        "- the clip radius lay at epsilon_min in 60% of updates.\n  runs: AGPO (3), AGPO with H/EMA(H) (3)"
    )
    assert report.warnings(results.only(["grpo"])) == "No run warned of anything."


def test_the_feedback_of_a_free_probe_by_hand():
    traces = pd.DataFrame(
        {"arm": "agpo", "tau": [1.2, 0.9], "uncertainty": [1.0, 1.0], "uncertainty_train": [1.4, 0.9]}
    )
    found = report.feedback(traces, "agpo", {"tau_base": 1.0, "sensitivity": 0.15})
    # (.2 * .4 + .1 * .1) / (.04 + .01) = 1.8; .15 * 1.8
    assert found["slope"] == pytest.approx(1.8) and found["gain"] == pytest.approx(0.27)

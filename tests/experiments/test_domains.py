"""pass@1 and pass@k in domain and out of it, on records made by hand."""

import math

import pandas as pd
import pytest

from agpo_core.config import ConfigError
from agpo_core.experiments import claim_tables, domains, plots, published, traces
from agpo_core.experiments.domains import IN, OUT
from agpo_core.experiments.records import Results

PARAMS = {"tasks": ["a", "b"], "test_tasks": ["a", "b", "c"], "test_samples": 8}
RISE = {"grpo": (0.30, -0.10), "reinforce_pp_k": (0.25, 0.05), "reinforce_pp_baseline": (0.30, 0.00)}


def results(arms=("start", *RISE), wobble=0.01) -> Results:
    """Starts s-1 and s-2: pass@1 .1 and .2, pass@8 .5 and .6. An arm adds to pass@1 of all tasks, to pass@8 of c."""
    rows = []
    for arm in arms:
        for seed, start in ((0, 1), (0, 2)) if arm == "start" else ((1, 1), (2, 2), (3, 1), (4, 2)):
            for task in PARAMS["test_tasks"]:
                one, many = RISE.get(arm, (0.0, 0.0))
                shift = wobble * (seed > 2) * (1 + (arm == "grpo"))  # seeds differ, and more so under GRPO
                rows.append({
                    "arm": arm, "seed": seed, "start": f"s-{start}", "task": task, "score": 0.3, "macro": 0.3,
                    "pass_1": 0.1 * start + one + shift, "pass_8": 0.4 + 0.1 * start + many * (task == "c") + shift,
                })  # fmt: skip
    return Results(pd.DataFrame(rows), Results().traces, {"params": PARAMS, "profile": "tiny"})


def test_a_domain_is_the_mean_of_its_tasks_in_points():
    found = domains.scores(results())
    # start s-1: pass@1 .1 on every task; pass@8 .5
    assert found.loc["start", 0, "s-1"].to_dict() == pytest.approx(
        {(IN, 1): 10, (IN, 8): 50, (OUT, 1): 10, (OUT, 8): 50}
    )
    # GRPO, seed 1, start s-1: .1 + .3; c alone loses .1 of pass@8
    assert found.loc["grpo", 1, "s-1"].to_dict() == pytest.approx(
        {(IN, 1): 40, (IN, 8): 50, (OUT, 1): 40, (OUT, 8): 40}
    )


def test_a_part_of_a_test_split_belongs_to_the_training_set():
    record = results()
    record.runs["task"] = record.runs["task"].replace({"a": "math500", "b": "aime24", "c": "amc23"})
    record.meta["params"] = {"tasks": ["math"]}
    assert domains.domains(record) == {IN: ["math500"], OUT: ["aime24", "amc23"]}


def test_differences_are_paired_by_seed_and_start_and_since_the_start_by_start_alone():
    record = results()
    gaps = domains.gap(record, "reinforce_pp_k", OUT, 8)
    # seeds 1 and 2: .05 + .10; seeds 3 and 4 one point less
    assert gaps.sort_index().tolist() == pytest.approx([15, 15, 14, 14])
    since = domains.gap(record, "grpo", IN, 1, "start")
    assert since.sort_index().tolist() == pytest.approx([30, 30, 32, 32])
    assert domains.gap(record, "ppo", IN, 1).empty


def test_the_table_has_no_interval_for_the_starts_and_says_what_the_others_are_about():
    table = domains.table(results())
    assert list(table.columns) == [f"{d}: pass@{k}" for d in (IN, OUT) for k in (1, 8)]
    assert table.loc["supervised start", f"{IN}: pass@1"] == "15.0"
    assert "±" in table.loc["GRPO", f"{IN}: pass@1"] and table.columns.name == "± over seeds"


def test_sharpening_shows_both_changes_and_the_distance_before_and_after():
    table = domains.sharpening(results(wobble=0.0))
    assert table.loc["GRPO", f"{OUT}: change of pass@8"] == "-10.0"
    # 55 - 15 before; 45 - 45 after
    assert table.loc["GRPO", f"{OUT}: pass@8 − pass@1"] == "40.0 → 0.0"


def test_the_claims_two_statements_are_judged_by_their_signs_and_the_rest_is_not():
    record = results()
    judged = traces.judge_parts(domains.parts(record) + domains.controls(record))
    # out of domain + 14.5, in domain - 5.5: both as the paper has it
    assert judged["mean"][:2].tolist() == pytest.approx([14.5, -5.5])
    assert judged["verdict"].tolist() == ["supported", "supported"] + ["no claim"] * 6
    swapped = record.runs.replace({"grpo": "reinforce_pp_k", "reinforce_pp_k": "grpo"})
    other = traces.judge_parts(domains.parts(Results(swapped, record.traces, record.meta)))
    assert other["verdict"].tolist() == ["contradicted", "contradicted"]
    missing = traces.judge_parts(domains.parts(record.only(["start", "grpo"])))
    assert missing["verdict"].tolist() == ["not run", "not run"]


def test_the_claims_page_measures_what_the_claim_names():
    record = results()
    claim = published.claims()[domains.CLAIM - 1]
    names = [contrast.measure for contrast in claim.contrasts]
    assert names == ["pass@8 out of domain", "pass@1 in domain"]
    for name, (domain, k) in zip(names, ((OUT, 8), (IN, 1)), strict=True):
        unit, read = claim_tables.MEASURES[name]
        assert unit == "points" and read(record)[""].equals(domains.scores(record)[domain, k])
        assert read(Results(record.runs.drop(columns=["pass_1", "pass_8"]), record.traces, record.meta)) == {}


def test_published_differences_are_small_beside_their_binomial_standard_error():
    found = domains.in_print()
    assert found["problems"].tolist() == [30, 40, 500]
    aime = found.loc["AIME-24, pass@8"]
    # sqrt(.2104 * .7896 / 30) = 7.44; sqrt(.1896 * .8104 / 30) = 7.16; together 10.32
    assert aime["s.e. of a score"] == pytest.approx(7.44, abs=0.01)
    assert aime["s.e. of the difference"] == pytest.approx(10.32, abs=0.01)
    assert (found["difference / s.e."].abs() < 1).all()


def test_equally_hard_problems_give_the_most_that_k_samples_can():
    assert domains.even(10.0, 8) == pytest.approx(56.95, abs=0.01)  # 1 - .9^8
    assert domains.even(50.0, 1) == 50.0


def test_the_answers_are_numbered_and_name_what_was_not_run():
    text = domains.answers(results())
    assert [line[:3] for line in text.splitlines() if line[:1].isdigit()] == ["1. ", "2. ", "3. ", "4. "]
    assert "10.0 %" not in text and "15.0 % of single samples" in text
    assert "pass@8 +14.5" in text and "(above zero)" in text and "(below zero)" in text
    assert "Not answered, because not run: REINFORCE++ (k > 1)." in domains.answers(results(["start", "grpo"]))
    assert domains.answers(Results()) == "Nothing was run, so there is nothing to answer."


def test_the_reading_says_under_which_arm_the_distance_shrinks():
    inside, outside = domains.reading(results())
    # in domain pass@8 stays and pass@1 rises in every arm; so it does out of domain
    assert inside == (
        "In domain the distance of pass@8 from pass@1 shrinks under GRPO, REINFORCE++ (k > 1), REINFORCE++-baseline."
    )
    assert "shrinks under" in outside


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"test_samples": 4}, "test_samples must be at least 8"), ({"test_tasks": ["a"]}, "one that is not"),
     ({"test_tasks": ["c"]}, "one that is not")],
)  # fmt: skip
def test_settings_without_two_domains_or_eight_samples_are_refused(changed, message):
    domains.check(PARAMS)
    with pytest.raises(ConfigError, match=message):
        domains.check(PARAMS | changed)


def test_the_figures_draw_the_tables_means():
    record = results()
    figure, data = plots.domain_scores(record)
    mean = domains.scores(record).groupby("arm").mean()
    for row in data.itertuples():
        assert (row.one, row.many) == pytest.approx(
            (mean.loc[row.arm][row.domain, 1], mean.loc[row.arm][row.domain, 8])
        )
    assert [axes.get_title() for axes in figure.axes] == ["In domain", "Out of domain"]
    assert "GRPO 46.0 %" in plots.alt.domain_scores(data)
    figure, data = plots.domain_gaps(record)
    assert len(data) == 2 * 4 and len(figure.axes) == 4
    found = data.set_index(["arm", "domain", "k"])["mean"]
    assert found["reinforce_pp_k", OUT, 8] == pytest.approx(14.5)
    assert not math.isnan(data["half"].iloc[0]) and "pass@8 +14.5" in plots.alt.domain_gaps(data)
    assert plots.domain_gaps(record.only(["start", "grpo"]))[1].empty

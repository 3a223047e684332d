"""The tables of all claims: complete, and of one mind with the records."""

import csv
import math
import statistics

import pandas as pd
import pytest

from agpo_core import paths
from agpo_core.config import ConfigError
from agpo_core.experiments import claim_tables, learned_reward, published, records, trace_readings, traces
from agpo_core.experiments.claim_tables import NOT_JUDGED, STANDINGS
from agpo_core.experiments.learned_reward import GOLD, PAPER
from agpo_core.experiments.verdicts import claimed, judge


@pytest.fixture(scope="module")
def found():
    return claim_tables.effects()


def of(number: int) -> published.Claim:
    return published.claims()[number - 1]


def row(verdict: str, claim: int = 2, p_holm: float = 0.5) -> dict:
    return dict.fromkeys(claim_tables.COLUMNS, math.nan) | {"claim": claim, "verdict": verdict, "p_holm": p_holm}


def test_every_judged_effect_is_one_of_the_answers_sentences_and_the_other_way_round(found):
    known = claim_tables.answers()
    judged = found[found["verdict"] != NOT_JUDGED]
    for effect in judged.itertuples():
        assert any(
            s.startswith(f"{effect.verdict} in `{effect.experiment}`: {effect.pair}") for s in known[effect.claim]
        )
    words = ("supported in", "contradicted in", "inconclusive in")
    assert len(judged) == sum(s.startswith(words) for sentences in known.values() for s in sentences)


def test_a_measured_difference_is_the_mean_over_pairs_of_the_record(found):
    with open(paths.reference() / "tiny" / "methods_overview" / "runs.csv", encoding="utf-8") as lines:
        memory = {(r["arm"], r["seed"]): float(r["memory_mb"]) for r in csv.DictReader(lines) if r["memory_mb"]}
    seeds = [seed for arm, seed in memory if arm == "ppo_critic"]
    gaps = [memory["ppo_critic", seed] - memory["reinforce_pp_baseline", seed] for seed in seeds]
    (effect,) = found[(found["claim"] == 52) & (found["measure"] == "memory")].itertuples()
    assert effect.mean == pytest.approx(statistics.fmean(gaps)) and effect.n == len(seeds)
    assert effect.verdict == NOT_JUDGED and effect.unit == "MiB"


def test_a_claim_about_each_task_has_an_effect_a_task(found):
    parts = found[found["claim"] == 11]
    assert parts["part"].nunique() == 9 and (parts["verdict"] == NOT_JUDGED).all()


@pytest.mark.parametrize(
    ("judged", "stands"),
    [
        (["supported", "supported"], "supported"),
        (["supported", "inconclusive"], "inconclusive"),
        (["supported", "contradicted"], "contradicted"),
        (["inconclusive"], "inconclusive"),
        (["not run"], "untested"),
        ([NOT_JUDGED], "in part"),
        ([NOT_JUDGED, "supported"], "supported"),
        ([], "untested"),
    ],
)
def test_one_contradicted_difference_contradicts_and_support_takes_all_of_them(judged, stands):
    found = pd.DataFrame([row(verdict) for verdict in judged], columns=claim_tables.COLUMNS)
    assert claim_tables.standing(of(2), found) == stands


def test_what_was_computed_stands_without_a_record():
    nothing = claim_tables.effects("smoke")
    assert nothing.empty
    assert claim_tables.standing(of(32), nothing) == "supported"  # holds: true
    assert claim_tables.standing(of(34), nothing) == "contradicted"  # holds: false
    assert claim_tables.standing(of(31), nothing) == "in part"  # tests, and no holds
    assert claim_tables.standing(of(4), nothing) == "untested"  # a GPU


def test_every_claim_is_counted_once(found):
    counts = claim_tables.counts(claim_tables.standings(found))
    assert counts.loc["AGPO", "claims"] == 31 and counts.loc["R++", "claims"] == 25
    assert counts.loc["both", list(STANDINGS)].sum() == 56


def test_the_table_has_a_line_a_claim_and_links_the_notebooks_that_are_there(found):
    lines = [line for paper in ("AGPO", "R++") for line in claim_tables.table(found, paper).splitlines()[2:]]
    assert [int(line.split(" | ")[0].strip("| ")) for line in lines] == list(range(1, 57))
    for claim, line in zip(published.claims(), lines, strict=True):
        assert claim.says.split("-")[0] in line
        there = (paths.notebooks() / f"{claim.notebook}.ipynb").is_file()
        assert (f"]({claim.notebook}.ipynb)" in line) == there
        assert not claim.gpu or "only on a GPU" in line
    shown = claim_tables.table(found, "R++", ["contradicted"]).splitlines()[2:]
    assert shown and all("**contradicted**" in line for line in shown)


def test_a_claim_in_full_names_its_verdicts(found):
    text = claim_tables.one(3, found)
    assert "claim 3" in text and "Holm over" in text and text.endswith("contradicted")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"number": 57}, "number must lie between 1 and 56; got 57"),
        ({"papers": ["GRPO"]}, "papers: 'GRPO' is none of AGPO, R\\+\\+"),
        ({"shown": ["true"]}, "shown: 'true' is none of supported, "),
    ],
)
def test_what_there_is_not_is_refused_by_name(changed, message):
    with pytest.raises(ConfigError, match=message):
        claim_tables.check(**{"papers": ["AGPO"], "shown": ["untested"], "number": 1} | changed)


def test_a_difference_whose_interval_leaves_out_zero_may_be_inconclusive():
    open_one = row("inconclusive", p_holm=0.07) | {"mean": 0.5, "half": 0.4, "pair": "A above B", "experiment": "e"}
    sure = row("supported", p_holm=0.01) | {"mean": 0.5, "half": 0.4, "pair": "C above D", "experiment": "e"}
    answers = claim_tables.predicted(pd.DataFrame([open_one, sure]))
    assert "Here that is so for 1 of 2 differences: A above B (e)." in answers[2]


def test_every_fault_is_in_the_table_of_its_text():
    lines = {text: claim_tables.faults(text).splitlines()[2:] for text in ("AGPO", "commentary")}
    assert sum(map(len, lines.values())) == len(published.faults())


def test_the_pairs_that_are_needed_are_named_for_inconclusive_differences_alone(found):
    assert len(claim_tables.needed(found)) == (found["verdict"] == "inconclusive").sum()


def test_each_known_mistake_of_the_exercise_goes_wrong_in_one_case_alone():
    assert [claim_tables.verdict_number(*case) for case in claim_tables.CASES] == [1, -1, 0, -1, 0]
    for mistaken in claim_tables.MISTAKES.values():
        assert sum(mistaken(*case) != claim_tables.verdict_number(*case) for case in claim_tables.CASES) == 1


def test_every_claim_has_an_answer_and_it_follows_from_the_record():
    by_number = claim_tables.answers()
    assert list(by_number) == [claim.number for claim in published.claims()] and all(by_number.values())
    runs = records.load("methods_overview", "tiny").runs
    judged = (
        judge(runs, claimed("methods_overview", set(runs["arm"]))).set_index(["arm", "baseline"]).loc["agpo", "ppo"]
    )
    assert by_number[2] == [
        f"{judged['verdict']} in `methods_overview`: AGPO above PPO, value head, "
        f"{judged['mean']:+.1f}\u00a0±\u00a0{judged['half']:.1f} (over {judged['about']})"
    ]
    assert by_number[22] == ["does not hold, as a test shows"] and by_number[4][0].startswith("only on a GPU")


def test_a_tally_names_the_verdicts_of_runs_and_of_tests_and_a_disagreement_is_mixed(monkeypatch):
    found = claim_tables.tallies()
    assert list(found) == [claim.number for claim in published.claims()]
    assert (found[2], found[22], found[4]) == (["contradicted"], ["does not hold"], [])
    both = pd.DataFrame(
        [row("supported", 43), row("inconclusive", 43), row(NOT_JUDGED, 2)], columns=claim_tables.COLUMNS
    )
    monkeypatch.setattr(claim_tables, "effects", lambda profile: both)
    assert claim_tables.tallies()[43] == ["mixed"] and claim_tables.tallies()[2] == []


def test_a_statement_has_the_verdict_that_its_notebook_gives(found):
    parts = trace_readings.parts_of_fig3(records.load("agpo_fig3_kl_clip_traces", "tiny"))
    theirs, rows = traces.judge_parts(parts), found[found["claim"] == 18]
    assert (
        rows["verdict"].tolist() == theirs["verdict"].tolist() and rows["p_holm"].tolist() == theirs["p_holm"].tolist()
    )
    assert rows["pair"].tolist() == [part.says.rstrip(".") for part in parts]
    assert claim_tables.standing(of(18), found) == "contradicted"  # one of its parts is


def test_equality_has_the_verdict_of_its_own_test(found):
    theirs = learned_reward.equalities(records.load("rpp_table1_general_rlhf", "tiny"), (PAPER,), (GOLD,))[PAPER, GOLD]
    (row,) = found[found["claim"] == 36].itertuples()
    assert (row.mean, row.p_holm, row.verdict) == (theirs.difference.mean, theirs.p, theirs.verdict)

"""The papers' numbers and claims, as data."""

import functools
import re
from pathlib import Path

import pytest

from agpo_core import paths
from agpo_core.experiments import claim_tables, profiles, published
from agpo_core.experiments.grid import ARMS

BENCHMARKS = ["GSM8K", "MATH", "OCW", "SAT", "MMLU_STEM", "CodeContests", "CMATH", "GaokaoCloze",
              "GaokaoQA"]  # fmt: skip
CLAIMS = published.claims()
TESTS = Path(__file__).resolve().parents[1]


# -- numbers


@pytest.mark.parametrize(
    ("place", "rows", "columns"),
    [
        ("AGPO Table 1", 7, 9),
        ("AGPO Table 2", 5, 2),
        ("AGPO Table 3", 3, 7),
        ("AGPO Table 4", 4, 7),
        ("AGPO Table 5", 3, 7),
        ("R++ Table 2", 2, 3),
        ("R++ Table 3", 2, 3),
        ("R++ Table 4", 3, 6),
    ],
)
def test_a_table_is_whole(place, rows, columns):
    table = published.table(place)
    assert table.shape == (rows, columns) and table.notna().all(axis=None)


def test_table_1_is_in_the_papers_order():
    table = published.table("AGPO Table 1")
    assert table.columns.tolist() == BENCHMARKS
    assert table.index.tolist() == [
        "PPO", "DPO", "Adaptive-KL PPO", "GRPO (fixed ε)", "GRPO + ATS", "AGPO (-ATS)", "AGPO (full)"
    ]  # fmt: skip
    assert table.loc["AGPO (full)"].tolist() == [67.3, 40.5, 17.3, 89.3, 58.1, 17.3, 77.6, 25.9, 41.1]


def test_the_commentary_gives_no_score_of_rloo_and_none_is_made_up():
    table = published.table("R++ Table 1")
    assert table.loc["RLOO"].isna().to_dict() == {
        "k": False, "score": True, "length": False, "score per token": False, "lowest score": True,
        "highest score": True,
    }  # fmt: skip


def test_no_number_is_given_twice_and_each_has_a_reference_of_its_own():
    names = [n.reference for n in published.numbers()]
    assert len(set(names)) == len(names)
    assert all(len(published.find(name)) == 1 for name in names)


def test_every_number_of_the_second_paper_says_that_a_commentary_gives_it():
    assert {(n.paper, n.source) for n in published.numbers()} == {("AGPO", "paper"), ("R++", "commentary")}


def test_what_was_read_off_figures_is_marked_approximate():
    for n in published.numbers():
        if n.place.startswith("Fig.") and "mean of" not in n.column and n.row != "setting":
            assert n.approximate, n.reference


def test_tables_that_repeat_a_number_agree():
    one, three, five = (published.table(f"AGPO Table {i}") for i in (1, 3, 5))
    for row in three.index:
        for benchmark in ("GSM8K", "MMLU_STEM"):
            assert three.loc[row, f"{benchmark}, Qwen2.5-14B"] == one.loc[row, benchmark]
    shared = ["GSM8K", "MATH", "MMLU_STEM", "CodeContests"]
    assert five.loc["std (default)", shared].tolist() == one.loc["AGPO (full)", shared].tolist()
    (greedy,) = published.find("AGPO Abstract | AGPO (full) | GSM8K")
    assert greedy.value == one.loc["AGPO (full)", "GSM8K"]


def test_the_averages_and_ratios_that_the_papers_state_follow_from_their_tables():
    mean, two, three = (
        published.table("AGPO Table 1").mean(axis=1),
        *map(published.table, ("AGPO Table 2", "AGPO Table 3")),
    )
    # §4.2.3: "+8.3 pp over PPO and +1.4 pp over the strongest ablation"
    assert mean["AGPO (full)"] - mean["PPO"] == pytest.approx(8.3, abs=0.05)
    assert mean["AGPO (full)"] - mean["AGPO (-ATS)"] == pytest.approx(1.4, abs=0.05)
    assert three.drop(columns="Avg").mean(axis=1).to_dict() == pytest.approx(three["Avg"].to_dict(), abs=0.05)
    agpo, grpo, ppo = (two.loc[row] for row in ("AGPO (full)", "GRPO (fixed ε)", "PPO"))
    assert 1 - agpo["throughput"] / grpo["throughput"] == pytest.approx(0.03, abs=0.005)
    assert agpo["throughput"] / ppo["throughput"] == pytest.approx(1.5, abs=0.05)
    assert (ppo / agpo)["hours to 65 % GSM8K"] == pytest.approx(1.6, abs=0.05)
    four = published.table("R++ Table 4")
    assert four.drop(columns="average").mean(axis=1).to_dict() == pytest.approx(four["average"].to_dict(), abs=0.005)
    rlhf = published.table("R++ Table 1").dropna(subset=["score", "score per token"])
    assert len(rlhf) == 2 and (rlhf["score"] / rlhf["length"] - rlhf["score per token"]).abs().max() < 5e-5


def test_an_unknown_reference_is_refused_and_the_next_ones_are_named():
    with pytest.raises(KeyError, match="no published number is named 'AGPO Table 1 | PPO | GSM8': .*GSM8K"):
        published.find("AGPO Table 1 | PPO | GSM8")
    with pytest.raises(KeyError, match="AGPO Table 1"):
        published.table("AGPO Table 10")


def test_rows_stand_for_arms_and_every_method_of_the_tables_has_one():
    for paper, rows in published.ROWS.items():
        assert set(rows) <= set(ARMS)
        printed = {n.row for n in published.numbers() if n.paper == paper and n.place.startswith("Table")}
        assert {row for names in rows.values() for row in names} == printed - {"all methods"}


# -- claims


@functools.cache
def names_of_tests() -> frozenset[str]:
    texts = (file.read_text(encoding="utf-8") for file in TESTS.rglob("test_*.py"))
    return frozenset(name for text in texts for name in re.findall(r"(?m)^def (test_\w+)", text))


def test_no_claim_is_dropped_and_each_keeps_its_number():
    assert [claim.number for claim in CLAIMS] == list(range(1, 57))
    assert [claim.paper for claim in CLAIMS] == ["AGPO"] * 31 + ["R++"] * 25


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: str(claim.number))
def test_everything_that_a_claim_names_is_there(claim):
    assert all(published.find(reference) for reference in claim.numbers)
    for contrast in claim.contrasts:
        assert {contrast.arm, contrast.baseline} <= set(ARMS) and contrast.arm != contrast.baseline
        assert contrast.relation in ("above", "equal")
    assert set(claim.tests) <= names_of_tests()
    assert claim.says.endswith(".") and claim.place
    assert re.fullmatch(r"(agpo|rpp|beyond|learn)_\w+|methods_overview", claim.notebook)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: str(claim.number))
def test_every_claim_is_answered_planned_or_left_to_a_gpu(claim):
    stated = claim.number in claim_tables.STATEMENTS
    assert claim.tests or claim.contrasts or stated or claim.planned or claim.gpu
    assert claim.holds is None or claim.tests
    judged = [contrast for contrast in claim.contrasts if contrast.measure == "macro-average"]
    assert not judged or claim.experiments  # else it would be judged nowhere
    if claim.contrasts and not claim.experiments:
        assert claim.planned or claim.gpu


def judged_somewhere(contrast, claim) -> bool:
    """Whether one of the claim's experiments has both arms, or has no settings of its own that could say."""
    files = [name for name in claim.experiments if profiles.notebook_file(name, "tiny").is_file()]
    arms = [set(profiles.settings(name, "tiny").get("methods", [])) for name in files]
    return len(files) < len(claim.experiments) or any({contrast.arm, contrast.baseline} <= of for of in arms)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: str(claim.number))
def test_an_experiment_that_a_claim_names_has_its_arms_or_says_that_they_are_to_come(claim):
    for experiment in claim.experiments:
        if profiles.notebook_file(experiment, "tiny").is_file():
            arms = profiles.settings(experiment, "tiny").get("methods", [])
            there = [c for c in claim.contrasts if {c.arm, c.baseline} <= set(arms)]
            assert there or claim.planned or not claim.contrasts, experiment
    assert claim.planned or all(judged_somewhere(contrast, claim) for contrast in claim.contrasts)


def test_notebooks_that_exist_are_named_as_they_are():
    there = {file.stem for file in paths.notebooks().glob("*.ipynb")}
    assert {claim.notebook for claim in CLAIMS} & there >= {"agpo_table1_main_results", "methods_overview"}


# -- faults


def test_a_fault_says_where_what_and_how_it_was_found():
    for fault in published.faults():
        assert all((fault.place, fault.says, fault.wrong, fault.found)) and re.fullmatch(r"\w+", fault.name)


# -- items


def test_an_item_and_a_notebook_stand_in_one_row_each():
    items = published.items()
    assert len({(item.paper, item.item) for item in items}) == len({item.notebook for item in items}) == len(items)
    assert list(dict.fromkeys(item.paper for item in items)) == ["lesson", "AGPO", "R++", "beyond"]
    assert all(item.asks.endswith("?") for item in items)


def test_every_notebook_is_an_item_and_says_how_long_it_takes():
    there = {file.stem for file in paths.notebooks().glob("*.ipynb")} - {"00_start_here"}
    assert there <= {item.notebook for item in published.items()}
    for item in published.items():
        assert (item.notebook in there) == (item.to_read is not None) == bool(item.to_run), item.notebook


def test_the_notebook_of_every_claim_is_an_item():
    assert {claim.notebook for claim in CLAIMS} <= {item.notebook for item in published.items()}


def test_every_table_and_figure_with_a_published_number_is_an_item():
    printed = {(n.paper, n.place) for n in published.numbers() if n.place.startswith(("Table", "Fig."))}
    assert printed <= {(item.paper, item.item) for item in published.items()}

"""The paper's numbers, as printed."""

import pytest

from agpo_core.experiments import published

BENCHMARKS = ["GSM8K", "MATH", "OCW", "SAT", "MMLU_STEM", "CodeContests", "CMATH", "GaokaoCloze",
              "GaokaoQA"]  # fmt: skip


def test_table_1_has_seven_methods_and_nine_benchmarks_in_the_papers_order():
    table = published.wide(published.load("agpo_table1"))
    assert table.columns.tolist() == [*BENCHMARKS, "mean"]
    assert table.index.tolist() == [
        "PPO", "DPO", "Adaptive-KL PPO", "GRPO (fixed ε)", "GRPO + ATS", "AGPO (-ATS)", "AGPO (full)"
    ]  # fmt: skip
    assert table.loc["AGPO (full)", BENCHMARKS].tolist() == [
        67.3, 40.5, 17.3, 89.3, 58.1, 17.3, 77.6, 25.9, 41.1
    ]  # fmt: skip


def test_the_averages_that_the_paper_states_follow_from_its_table():
    mean = published.wide(published.load("agpo_table1"))["mean"]
    # §4.2.3: "+8.3 pp over PPO and +1.4 pp over the strongest ablation"
    assert mean["AGPO (full)"] - mean["PPO"] == pytest.approx(8.3, abs=0.05)
    assert mean["AGPO (full)"] - mean["AGPO (-ATS)"] == pytest.approx(1.4, abs=0.05)

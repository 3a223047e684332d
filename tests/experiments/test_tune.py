"""The learning rate of an experiment is chosen on dev, for all of its arms."""

import pandas as pd

from agpo_core.experiments import tune


def trials(*rows):
    return pd.DataFrame(rows, columns=["arm", "rate", "seed", "dev"])


def test_the_rate_with_the_best_mean_dev_score_over_all_arms_is_chosen():
    table = trials(
        ("grpo", 1e-4, 1, 0.70), ("grpo", 2e-4, 1, 0.68),  # mean of 1e-4: .705
        ("agpo", 1e-4, 1, 0.71), ("agpo", 2e-4, 1, 0.74),  # of 2e-4: .710, though grpo is better at 1e-4
    )  # fmt: skip
    assert tune.choose(table) == 2e-4


def test_of_equal_scores_the_lower_rate_is_chosen():
    assert tune.choose(trials(("grpo", 2e-4, 1, 0.5), ("grpo", 1e-4, 1, 0.5))) == 1e-4


def test_the_rate_is_written_into_the_profile_and_comments_stay():
    text = "horizon: 60000.0\nlearning_rate: 1.0e-4  # peak\n"
    assert tune.with_rate(text, 2e-4) == "horizon: 60000.0\nlearning_rate: 2.0e-04  # peak\n"


def test_a_file_without_the_line_gets_it_as_its_last():
    assert tune.with_rate("profile: tiny\n", 1e-4) == "profile: tiny\nlearning_rate: 1.0e-04\n"

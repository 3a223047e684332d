"""Learning rates are chosen on dev, by one rule for every arm."""

import pandas as pd
import pytest

from agpo_core.experiments import tune


def trials(*rows):
    return pd.DataFrame(rows, columns=["arm", "rate", "seed", "dev"])


def test_the_rate_with_the_best_mean_dev_score_is_chosen_for_each_arm():
    table = trials(
        ("grpo", 1e-4, 1, 0.70), ("grpo", 1e-4, 2, 0.60),  # mean .65
        ("grpo", 2e-4, 1, 0.50), ("grpo", 2e-4, 2, 0.82),  # mean .66
        ("agpo", 1e-4, 1, 0.71), ("agpo", 2e-4, 1, 0.70),
    )  # fmt: skip
    chosen = tune.choose(table)
    assert chosen["grpo"] == 2e-4
    assert chosen["agpo"] == 1e-4


def test_of_equal_scores_the_lower_rate_is_chosen():
    assert tune.choose(trials(("grpo", 2e-4, 1, 0.5), ("grpo", 1e-4, 1, 0.5)))["grpo"] == 1e-4


def test_rates_are_written_into_the_profile_and_comments_stay():
    text = "learning_rate: 1.0e-4  # peak\nlearning_rate_grpo: null   # its own\nlearning_rate_agpo: 3.0e-4\n"
    written = tune.with_rates(text, {"grpo": 5e-5, "agpo": 2e-4})
    assert written == (
        "learning_rate: 1.0e-4  # peak\nlearning_rate_grpo: 5.0e-05   # its own\nlearning_rate_agpo: 2.0e-04\n"
    )


def test_a_profile_without_the_line_is_refused():
    with pytest.raises(ValueError, match="learning_rate_agpo"):
        tune.with_rates("learning_rate_grpo: null\n", {"agpo": 1e-4})

"""Every profile states every parameter of the notebook, in its type, and the paper's states the paper's values."""

import ast

import papermill
import pytest
import yaml

from agpo_core import paths
from agpo_core.experiments import grid, profiles

NOTEBOOK = "agpo_table1_main_results"
PROFILES = ["smoke", "tiny", "small", "small_words", "paper"]

# AGPO §4.1, and Eqs. 1 and 5 for the two constants.
PAPER = {
    "seeds": [42, 1337, 2026],
    "models": ["Qwen/Qwen2.5-14B"],
    "max_sequence_tokens": 1024,
    "adam_betas": [0.9, 0.95],
    "weight_decay": 0.1,
    "learning_rate": 1.5e-5,
    "max_grad_norm": 1.0,
    "dtype": "bfloat16",
    "launcher": "deepspeed",
    "activation_checkpointing": True,
    "ranks": 2,
    "group_size": 8,
    "tau_base": 1.0,
    "tau_min": 0.5,
    "tau_max": 1.5,
    "sensitivity": 0.15,
    "epsilon_base": 0.2,
    "epsilon_min": 0.05,
    "epsilon_max": 0.4,
    "beta": 0.03,
    "alpha": 1.0,
    "gamma": 0.5,
    "delta": 0.2,
    "zeta": 0.05,
    "weights": [1.0, 1.0, 0.1],
    "momentum": 0.95,
    "top_p": 0.95,
    "horizon_unit": "tokens",
    "horizon": 300_000_000,
    "sigma_min": 1.0e-6,
    "kappa_max": 10.0,
    "tokens_per_second": 2730.0,  # Table 2: GRPO
    "tokens_per_second_probe": 2640.0,  # Table 2: AGPO
    "memory_gb": 80.0,
}


def read(profile: str) -> dict:
    return yaml.safe_load((paths.params() / f"{profile}.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def defaults() -> dict:
    found = papermill.inspect_notebook(str(paths.notebooks() / f"{NOTEBOOK}.ipynb"))
    return {name: ast.literal_eval(parameter["default"]) for name, parameter in found.items()}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_states_the_notebooks_parameters_and_no_others(profile, defaults):
    assert list(read(profile)) == list(defaults)
    assert set(profiles.settings(NOTEBOOK, profile)) <= set(defaults)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_value_has_the_type_of_the_notebooks_default(profile, defaults):
    for name, value in read(profile).items():
        default = defaults[name]
        assert None in (value, default) or type(value) is type(default), f"{name}: {value!r}"
        if isinstance(value, list) and default:
            assert {type(item) for item in value} == {type(item) for item in default}, name


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_is_a_grid_that_can_be_planned(profile, launched):
    params = read(profile)
    assert params["profile"] == profile
    assert grid.plan(NOTEBOOK, params)


GRIDS = [file.stem.split(".") for file in sorted(paths.params().glob("*.*.yaml")) if "methods" in profiles.read(file)]


@pytest.mark.parametrize(("experiment", "profile"), GRIDS)
def test_an_experiment_with_settings_of_its_own_can_be_planned_with_a_notebook_or_without(
    experiment, profile, launched
):  # fmt: skip
    params = profiles.settings(experiment, profile)
    jobs = grid.plan(experiment, params)
    assert {job.arm.name for job in jobs} == set(params["methods"])


def test_the_notebook_holds_the_tiny_profile_and_replays(defaults):
    assert defaults == profiles.settings(NOTEBOOK, "tiny") | {"run_mode": "replay"}


@pytest.mark.parametrize("name", PAPER)
def test_the_paper_profile_has_the_papers_value(name):
    assert read("paper")[name] == PAPER[name]


def test_the_paper_profile_only_plans_unless_it_is_told_to_train():
    assert read("paper")["run_mode"] == "plan"

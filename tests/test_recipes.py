"""Methods as data: in what two of them differ, and which settings override which."""

import pytest

from agpo_core import recipes
from agpo_core.config import FIELDS, ConfigError, TrainConfig
from agpo_core.recipes import RECIPES, difference, resolve


@pytest.mark.parametrize("method", RECIPES)
def test_a_recipe_resolves_to_a_configuration_of_its_name(method):
    c = resolve(method)
    assert c.method == method
    assert c == TrainConfig(**RECIPES[method].settings, method=method)


@pytest.mark.parametrize(
    ("method", "clip", "temperature"),
    [
        ("grpo", "fixed", "fixed"),
        ("grpo_ats", "fixed", "adaptive"),
        ("agpo_no_ats", "adaptive", "fixed"),
        ("agpo", "adaptive", "adaptive"),
    ],
)
def test_the_papers_four_arms_are_the_two_controllers_on_and_off(method, clip, temperature):
    c = resolve(method)  # AGPO §4.2.2
    assert (c.clip, c.temperature) == (clip, temperature)


def test_the_difference_of_two_methods_is_what_the_paper_says_it_is():
    both = {"clip": ("fixed", "adaptive"), "temperature": ("fixed", "adaptive")}
    assert difference("grpo", "agpo") == both
    assert difference("agpo_no_ats", "agpo") == {"temperature": ("fixed", "adaptive")}
    assert difference("agpo", "agpo") == {}


def test_defaults_are_the_papers_hyper_parameters():
    c = resolve("agpo")  # §4.1
    assert (c.epsilon_base, c.epsilon_min, c.epsilon_max) == (0.2, 0.05, 0.4)
    assert (c.alpha, c.gamma, c.delta, c.zeta) == (1.0, 0.5, 0.2, 0.05)
    assert (c.tau_base, c.tau_min, c.tau_max, c.sensitivity) == (1.0, 0.5, 1.5, 0.15)
    assert (c.weights, c.momentum, c.sigma_min, c.kappa_max) == ((1.0, 1.0, 0.1), 0.95, 1e-6, 10.0)
    assert (c.group_size, c.top_p, c.beta, c.max_sequence_tokens) == (8, 0.95, 0.03, 1024)
    assert (c.learning_rate, c.adam_betas, c.weight_decay) == (1.5e-5, (0.9, 0.95), 0.1)


def test_settings_given_override_the_recipe():
    c = resolve("agpo", clip="fixed", beta=0.0)
    assert (c.clip, c.temperature, c.beta) == ("fixed", "adaptive", 0.0)


def test_an_unknown_method_raises_and_lists_the_known_ones():
    with pytest.raises(ConfigError, match="unknown method 'agpoo': choose one of .*grpo, .*agpo"):
        resolve("agpoo")


def test_an_unknown_setting_raises():
    with pytest.raises(ConfigError, match="unknown setting 'epsilon': did you mean"):
        resolve("grpo", epsilon=0.1)


def test_recipes_hold_known_settings_alone():
    for name, recipe in RECIPES.items():
        assert recipe.settings.keys() <= FIELDS.keys(), name
        assert recipe.title
        assert recipe.source


def test_the_methods_are_printed_one_below_the_other(capsys):
    recipes.main([])
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["method", "title", "source", "settings"]
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == list(RECIPES)  # others go on
    assert next(line for line in lines if line.startswith("grpo ")).endswith("(the defaults)")
    assert next(line for line in lines if line.startswith("agpo ")).endswith("clip=adaptive, temperature=adaptive")


def test_of_two_methods_their_difference_is_printed(capsys):
    recipes.main(["grpo", "agpo"])
    assert capsys.readouterr().out.splitlines() == [
        "             grpo   agpo",
        "clip         fixed  adaptive",
        "temperature  fixed  adaptive",
    ]


def test_printing_an_unknown_method_is_an_error(capsys):
    with pytest.raises(SystemExit):
        recipes.main(["grpo", "agpoo"])
    assert "unknown method 'agpoo'" in capsys.readouterr().err


def test_a_file_takes_from_its_methods_recipe_what_it_does_not_say(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("method: agpo\nepsilon_base: 0.1\n")
    loaded = recipes.load(path)
    assert (loaded.clip, loaded.temperature, loaded.epsilon_base) == ("adaptive", "adaptive", 0.1)
    loaded.save(path)
    assert recipes.load(path) == loaded


def test_a_file_without_a_method_is_refused(tmp_path):
    (tmp_path / "config.yaml").write_text("epsilon_base: 0.1\n")
    with pytest.raises(ConfigError, match="names no method: add one of .*grpo"):
        recipes.load(tmp_path / "config.yaml")


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ("method: grpo\nclip: adaptive\ntemperature: adaptive\n", "agpo"),
        ("method: grpo\nclip: adaptive\n", "agpo_no_ats"),
        ("method: agpo\nclip: fixed\ntemperature: fixed\n", "grpo"),
        ("method: ppo\nadvantage: group\ncritic: none\n", "grpo"),
        ("method: agpo\nadvantage: reinforce_pp_baseline\n", "agpo_global"),
        ("method: grpo\nadvantage: mixed\n", "mixed_scaling"),
    ],
)
def test_a_file_whose_method_is_another_by_its_settings_is_refused(tmp_path, lines, name):
    (tmp_path / "config.yaml").write_text(lines)
    with pytest.raises(ConfigError, match=f"set method to {name}, or leave"):
        recipes.load(tmp_path / "config.yaml")


@pytest.mark.parametrize("lines", ["method: agpo\ndispersion: mad\nbeta: 0.0\n", "method: agpo\nadvantage: dr_grpo\n"])
def test_what_has_no_name_of_its_own_or_is_a_knob_may_be_set(tmp_path, lines):
    (tmp_path / "config.yaml").write_text(lines)
    assert recipes.load(tmp_path / "config.yaml").method == "agpo"


@pytest.mark.parametrize("method", RECIPES)
def test_the_file_of_every_method_is_taken(tmp_path, method):
    resolve(method).save(tmp_path / "config.yaml")
    assert recipes.load(tmp_path / "config.yaml") == resolve(method)


def test_printed_methods_fit_a_notebook_and_lose_nothing(capsys):
    recipes.show()
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= recipes.WIDTH
    printed = " ".join(" ".join(lines).split())
    for name, recipe in RECIPES.items():
        assert any(line.startswith(f"{name} ") for line in lines)
        for setting in recipe.settings:
            assert f"{setting}=" in printed

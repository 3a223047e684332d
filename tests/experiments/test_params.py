"""A notebook's settings are the same however it is run, and the paper's profile states the paper's values."""

import ast
import re

import nbformat
import pytest
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from agpo_core import paths
from agpo_core.config import FIELDS, ConfigError
from agpo_core.experiments import grid, profiles, reproduce

PROFILES = ["smoke", "tiny", "small", "small_words", "paper"]
NOTEBOOKS = sorted(file.stem for file in paths.notebooks().glob("*.ipynb"))
OF_RUNS = [name for name in NOTEBOOKS if profiles.trains(name)]
OF_NOTHING = [name for name in NOTEBOOKS if name not in OF_RUNS]

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


def cells(notebook: str, injected: dict | None, **edits) -> list[str]:
    """The parameter cells as a kernel gets them: the notebook's own with a reader's edits, and papermill's."""
    document = load_notebook_node(str(paths.notebooks() / f"{notebook}.ipynb"))
    (own,) = [cell for cell in document.cells if "parameters" in cell.metadata.get("tags", [])]
    for name, value in edits.items():
        line = f"{name} = {value!r}"
        own.source, found = re.subn(rf"(?m)^{name} = .*$", line, own.source)
        own.source += "" if found else f"\n{line}"
    if injected is not None:
        document = parameterize_notebook(document, injected)
    return [cell.source for cell in document.cells if cell.source.startswith(profiles.PARAMETERS)]


def in_effect(notebook: str, injected: dict | None = None, **edits) -> dict:
    """The settings of the notebook, computed by its own cells; none of its other cells is run."""
    namespace = {"In": [""]}
    for cell in cells(notebook, injected, **edits):
        exec(cell, namespace)
        namespace["In"].append(cell)
    found = (grid if profiles.trains(notebook) else profiles).parameters(notebook, namespace)
    assert found.items() <= namespace.items()  # the notebook's variables hold them
    return found


def file(name: str) -> dict:
    return profiles.read(paths.params() / f"{name}.yaml")


def planned(notebook: str, params: dict) -> list:
    return [
        (job.arm.name, job.seed, job.start, job.config and job.config.hash()) for job in grid.plan(notebook, params)
    ]


# -- routes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("notebook", OF_RUNS)
def test_papermill_and_reproduce_and_a_readers_edit_plan_the_same_runs(launched, notebook, profile):
    """Compare more than settings: arms, seeds, starts and the hash of each run."""
    wanted = planned(notebook, profiles.settings(notebook, profile))
    routes = {
        "papermill -f params/PROFILE.yaml": in_effect(notebook, file(profile)),
        "papermill -p profile PROFILE": in_effect(notebook, {"profile": profile}),
        "reproduce --profile PROFILE": in_effect(notebook, reproduce.load_parameters(notebook, profile)),
        "the notebook's own cell": in_effect(notebook, profile=profile),
    }
    for route, params in routes.items():
        assert planned(notebook, params) == wanted, route
        assert set(params) >= set(file("base")), route  # all are stated, also in a record
    modes = {route: params["run_mode"] for route, params in routes.items()}
    assert modes.pop("the notebook's own cell") == "replay"
    assert set(modes.values()) == {"plan" if profile == "paper" else "train"}


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("notebook", OF_NOTHING)
def test_a_notebook_that_trains_nothing_has_the_same_parameters_on_every_route(notebook, profile):
    wanted = profiles.settings(notebook, profile)
    routes = [
        in_effect(notebook, file(profile)),
        in_effect(notebook, {"profile": profile}),
        in_effect(notebook, reproduce.load_parameters(notebook, profile)),
        in_effect(notebook, profile=profile),
    ]
    for params in routes:
        assert params | {"run_mode": None} == wanted | {"run_mode": None}
    assert routes[0] == routes[1]


@pytest.mark.parametrize(
    "own", sorted(f.stem for f in paths.params().glob("*.*.yaml") if f.stem.split(".")[0] in NOTEBOOKS)
)
def test_a_notebooks_own_file_given_to_papermill_is_what_it_is_under_its_profile(own):
    notebook, profile = own.split(".")
    if profile != profiles.BASE:
        assert in_effect(notebook, file(own)) == profiles.settings(notebook, profile)


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_as_it_is_opened_is_the_tiny_profile_and_trains_nothing(notebook):
    params = in_effect(notebook)
    assert params | {"run_mode": None} == profiles.settings(notebook, "tiny") | {"run_mode": None}
    assert params.get("run_mode", "replay") == "replay"


@pytest.mark.parametrize("notebook", OF_RUNS)
@pytest.mark.parametrize("injected", [None, {"profile": "smoke"}, {**file("smoke")}], ids=["cell", "-p", "-f"])
def test_an_edit_does_what_it_says_wherever_it_stands(notebook, injected):
    """It does so even where its value equals the profile's, and the notebook's own file has another."""
    own = file(f"{notebook}.smoke")
    edits = {"learning_rate": 3.0e-3, "methods": ["start", "ppo"], "lora_rank": 4, "micro_batch_prompts": None}
    edits |= {name: value for name, value in file("smoke").items() if name in own and name != "profile"}
    if injected is None:
        found = in_effect(notebook, profile="smoke", **edits)
    else:
        found = in_effect(notebook, injected | edits)
    assert found == profiles.settings(notebook, "smoke") | edits | {"run_mode": found["run_mode"]}


def test_what_one_profile_was_given_is_not_held_under_another():
    """The cells run again in the same kernel, whose variables hold the settings of the first profile."""
    first, second = cells(OF_RUNS[0], None), cells(OF_RUNS[0], None, profile="smoke")
    namespace = {"In": [""]}
    for cell in [*first, *second]:
        exec(cell, namespace)
        namespace["In"].append(cell)
        found = grid.parameters(OF_RUNS[0], namespace)
    assert found == profiles.settings(OF_RUNS[0], "smoke") | {"run_mode": "replay"}


def test_a_value_that_is_computed_counts_as_one_that_is_written_out():
    first, *rest = cells(OF_RUNS[0], None)[0].split("seeds = None")
    cell = f"{first}seeds = list(range(3)){rest[0]}"
    namespace = {"In": ["", cell]}
    exec(cell, namespace)
    assert grid.parameters(OF_RUNS[0], namespace)["seeds"] == [0, 1, 2]


# -- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize("notebook", NOTEBOOKS)
@pytest.mark.parametrize("route", ["cell", "-p"])
def test_a_misspelt_parameter_is_refused_by_name_in_every_notebook(notebook, route):
    name = next(n for n in profiles.read(profiles.base_file(notebook)) if n != "profile")
    misspelt = {name[:-1] + "q" + name[-1]: 1}
    with pytest.raises(ConfigError, match=f"unknown parameter '{next(iter(misspelt))}': did you mean '{name}'"):
        in_effect(notebook, misspelt) if route == "-p" else in_effect(notebook, **misspelt)


KNOBS = [
    (notebook, name)
    for notebook in NOTEBOOKS
    for name, value in profiles.read(profiles.base_file(notebook)).items()
    if value is not None
]


@pytest.mark.parametrize(("notebook", "name"), KNOBS)
def test_a_value_of_another_kind_is_refused_by_name(notebook, name):
    default = profiles.read(profiles.base_file(notebook))[name]
    wrong = {"text": 3.5} if isinstance(default, list) else 3.5 if isinstance(default, str | bool) else "eight"
    with pytest.raises(ConfigError, match=f"{name} must be"):
        in_effect(notebook, {name: wrong})


SIZES = [(notebook, name) for notebook, name in KNOBS if re.search("size|draws|updates|steps|horizons|batch$", name)]


def refuse(notebook: str, **edits) -> str:
    """How a notebook's own cell refuses an edit: `least` and further checks are in that cell, so it is run."""
    document = nbformat.read(paths.notebooks() / f"{notebook}.ipynb", as_version=4)
    (cell,) = [cell.source for cell in document.cells if "profiles.parameters(" in cell.source]
    namespace = {"In": ["", cells(notebook, None, **edits)[0]]}
    with pytest.raises(ConfigError) as caught:
        exec(cell, namespace)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


@pytest.mark.parametrize(("notebook", "name"), [(n, k) for n, k in SIZES if n in OF_NOTHING and k != "run_mode"])
def test_a_size_of_nothing_is_refused_by_name(notebook, name):
    default = profiles.read(profiles.base_file(notebook))[name]
    assert f"{name} must be at least" in refuse(notebook, **{name: [0] if isinstance(default, list) else 0})


LISTS = [(n, k) for n, k in KNOBS if n in OF_NOTHING and isinstance(profiles.read(profiles.base_file(n))[k], list)]


@pytest.mark.parametrize(("notebook", "name"), LISTS)
def test_an_empty_list_and_one_that_holds_a_value_twice_are_refused_by_name(notebook, name):
    default = profiles.read(profiles.base_file(notebook))[name]
    assert name in refuse(notebook, **{name: []})
    if name != "weights":
        assert name in refuse(notebook, **{name: [default[0], default[0]]})


FIG_1, THM_1, APP_A, APP_B = (
    "agpo_fig1_probe_train_loop", "agpo_thm1_convergence", "rpp_appendix_a_bias", "rpp_appendix_b_kl_estimators",
)  # fmt: skip


@pytest.mark.parametrize(
    ("notebook", "changed", "message"),
    [
        (FIG_1, {"model": "tiny-qwen2-z"}, "model: 'tiny-qwen2-z' is no folder and no shipped start.*tiny-qwen2-a"),
        (FIG_1, {"model": "Qwen/none-such"}, "model: 'Qwen/none-such' is no folder"),
        (FIG_1, {"tasks": ["stepps"]}, "tasks: unknown task 'stepps': did you mean 'steps'"),
        (FIG_1, {"group_size": 1}, "group_size 1 gives every advantage 0.*use at least 2"),
        (FIG_1, {"seed": -1}, "seed"),
        (FIG_1, {"learning_rate": 0.0}, "learning_rate"),
        (THM_1, {"run_mode": "trian"}, "run_mode must be one of replay, train; got 'trian'"),
        (THM_1, {"seeds": [0]}, "seeds is .* in the record.*set run_mode to train"),
        (THM_1, {"eta_0": 1.0}, "eta_0 is 20.0 in the record, and 1.0 here: set run_mode to train"),
        (THM_1, {"eta_0": 0.0, "run_mode": "train"}, "eta_0 must be at least"),
        (THM_1, {"profile": "small"}, "no record of agpo_thm1_convergence under profile 'small'"),
        (APP_A, {"sizes": [4]}, "sizes is .* in the record.*set run_mode to train"),
        (APP_A, {"sizes": [1]}, "sizes must be at least 2"),
        (APP_B, {"temperature_scales": [0.0, 1.0]}, "temperature_scales must be at least .01"),
        (APP_B, {"scales": [1000.0]}, "scales must be .* at most 20"),
        (APP_B, {"start_scale": 0.0}, "start_scale must be at least"),
        (APP_B, {"betas": [0.0]}, "betas must be at least"),
        (APP_B, {"vocabulary": 1}, "vocabulary must be at least 2"),
    ],
)
def test_what_a_parameter_cannot_be_is_refused_in_one_line_before_anything_is_computed(
    notebook, changed, message, monkeypatch
):  # fmt: skip
    monkeypatch.setattr("huggingface_hub.model_info", None)  # no hub is asked
    assert re.search(message, refuse(notebook, **changed))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"profile": "papper"}, "no profile 'papper': params/ has paper, small"),
        ({"profile": None}, "no profile None"),
        ({"tasks": ["stepps"]}, "tasks: unknown task 'stepps': did you mean 'steps'"),
        ({"test_tasks": ["gsm9k"]}, "test_tasks: unknown task 'gsm9k': did you mean 'gsm8k'"),
        ({"decontaminate": ["cmaths:dev"]}, "decontaminate: unknown task 'cmaths': did you mean 'cmath'"),
        ({"learning_rate": "1e-6"}, r"learning_rate must be a number, got the text '1e-6'.*write 1\.0e-6"),
        ({"ranks": 2.5}, "ranks must be int, got 2.5"),
        ({"seeds": (1, 2)}, "seeds must be a list, got the tuple"),
        ({"clip": "fixed"}, "unknown parameter 'clip'"),
    ],
)
def test_a_bad_setting_of_a_grid_is_named_with_its_remedy(changed, message):
    with pytest.raises(ConfigError, match=message):
        in_effect(OF_RUNS[0], **changed)


def test_null_where_a_setting_has_no_null_is_refused_in_a_file(tmp_path, monkeypatch):
    for name, text in (("base", "rate: 1.0\nroom: null"), ("mine", "rate: null"), ("yours", "room: 3")):
        (tmp_path / f"{name}.yaml").write_text(text)
    monkeypatch.setattr(paths, "params", lambda: tmp_path)
    with pytest.raises(ConfigError, match=r"mine\.yaml: rate must not be null: write 1\.0, say"):
        profiles.settings("any", "mine")
    assert profiles.settings("any", "yours") == {"rate": 1.0, "room": 3, "profile": "yours"}


# -- the files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_is_a_grid_that_can_be_planned(profile, launched):
    assert profile in profiles.names()
    assert grid.plan("none", profiles.settings("none", profile))


FILES = sorted(f.stem for f in paths.params().glob("*.yaml") if profiles.BASE not in f.stem.split("."))


@pytest.mark.parametrize("name", FILES)
def test_a_file_names_its_profile_and_states_only_what_differs_from_the_files_below(name):
    experiment, _, profile = name.rpartition(".")
    stated = file(name)
    assert stated.pop("profile") == profile
    below = profiles.read(profiles.base_file(experiment))
    if experiment and profiles.trains(experiment):
        below |= file(profile)
    stated.pop("learning_rate", None)  # it belongs to the experiment: `tune` writes it, whatever the profile has
    assert not [key for key, value in stated.items() if key in below and below[key] == value]
    unstated = {key: FIELDS[key].default for key in stated.keys() - below.keys()}
    assert not [key for key, value in unstated.items() if stated[key] == value]


def test_base_states_every_parameter_of_a_grid_and_the_defaults_of_a_run():
    base = file("base")
    assert set(grid.GRID) <= set(base) <= set(grid.KNOWN)
    ours = {"tasks", "checkpoint_every"}  # the micro-tasks; a checkpoint costs more than a quarter of a tiny run
    other = {k for k in base.keys() & FIELDS.keys() if base[k] != (FIELDS[k].default if not isinstance(base[k], list)
             else list(FIELDS[k].default))}  # fmt: skip
    assert other == ours


GRIDS = [name.split(".") for name in FILES if "." in name and profiles.trains(name.split(".")[0])]


@pytest.mark.parametrize(("experiment", "profile"), GRIDS)
def test_an_experiment_with_settings_of_its_own_can_be_planned_with_a_notebook_or_without(
    experiment, profile, launched
):  # fmt: skip
    params = profiles.settings(experiment, profile)
    jobs = grid.plan(experiment, params)
    assert {job.arm.name for job in jobs} == set(params["methods"])


@pytest.mark.parametrize("name", PAPER)
def test_the_paper_profile_has_the_papers_value(name):
    assert profiles.settings("none", "paper")[name] == PAPER[name]


def test_the_paper_profile_only_plans_unless_it_is_told_to_train():
    assert profiles.settings("none", "paper")["run_mode"] == "plan"


# -- what is shown ------------------------------------------------------------------------------------


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_all_settings_are_shown_and_those_off_the_base_marked(notebook, capsys):
    params = profiles.settings(notebook, "smoke")
    profiles.show(notebook, params)
    first, *lines = capsys.readouterr().out.splitlines()
    base = profiles.read(profiles.base_file(notebook))
    shown = {match[2]: match[1] for line in lines if (match := re.match(r"([* ]) (\w+) ", line))}
    assert list(shown) == list(params) and first.endswith(f"params/{profiles.base_file(notebook).name}")
    assert {name for name, star in shown.items() if star == "*"} == {n for n in params if params[n] != base.get(n)}


@pytest.mark.parametrize("value", [None, True, 3, 0.05, 4.0e-4, 1.0e-6, 1.25e-5, 3e8, "a", ["b"], [1.0, 2]])
def test_a_literal_is_read_back_as_the_value(value):
    assert ast.literal_eval(profiles.literal(value)) == value


def test_where_the_kernel_keeps_no_history_the_variables_are_read():
    """As under nbval, whose cells leave nothing in `In`."""
    namespace = {"In": [""], "profile": "smoke", "run_mode": "plan", "horizon": 3.0, "seeds": None, "unrelated": 1}
    params = profiles.parameters("methods_overview", namespace)
    assert (params["profile"], params["run_mode"], params["horizon"]) == ("smoke", "plan", 3.0)
    assert params["seeds"] == profiles.settings("methods_overview", "smoke")["seeds"] == namespace["seeds"]
    assert "unrelated" not in params

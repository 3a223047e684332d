"""The lessons run to their end with other parameters than those that their texts are written for."""

import nbformat
import pytest

from agpo_core import paths

SMALL = {"vocabulary": 4, "batch": 50, "batches": 20, "steps": 20, "runs": 5, "problems": 20, "tokens_per_step": [8]}
OTHER = [
    ("learn_01_group_advantages", {"group_size": 2}),
    ("learn_01_group_advantages", {"group_size": 3}),
    ("learn_01_group_advantages", {"group_size": 64}),
    ("learn_02_controllers", {"sensitivity": 0.5}),
    ("learn_02_controllers", {"sensitivity": 0.0, "momentum": 0.0, "alpha": 3.0, "weights": [0.5, 2.0, 0.0]}),
    ("learn_02_controllers", {"group_size": 16, "updates": 2, "epsilon_base": 0.3, "delta": 0.0}),
    ("learn_02_controllers", {"group_size": 2, "epsilon_min": 0.2, "tau_max": 1.1}),
    ("learn_03_kl_estimators", {"draws": 10, "seed": 5}),
    ("learn_04_reading_a_run", {"methods": ["agpo"]}),
    ("learn_04_reading_a_run", {"methods": ["agpo_unsolved", "agpo_high_rate"], "seeds": [42]}),
    ("claims", {"papers": ["R++"], "shown": ["contradicted", "in part"], "number": 43}),
    ("claims", {"profile": "smoke"}),
    ("agpo_fig1_probe_train_loop", {"group_size": 2, "tasks": ["steps"], "learning_rate": 0.1}),
    ("agpo_fig1_probe_train_loop", {"group_size": 3, "seed": 7, "model": "tiny-qwen2-b"}),
    ("agpo_thm1_convergence", {"horizons_live": [50], "draws": 1}),
    ("agpo_thm1_convergence", {"run_mode": "train", "seeds": [0], "horizons": [100, 316], "horizons_live": [100]}),
    (
        "agpo_thm1_convergence",
        {"run_mode": "train", "seeds": [3], "horizons": [50], "horizons_live": [50], "eta_0": 200.0},
    ),
    ("rpp_appendix_a_bias", {"live_draws": 2}),
    ("rpp_appendix_a_bias", {"run_mode": "train", "sizes": [9, 2, 3, 4, 5, 6, 7], "grid": [1.0], "draws": 1000}),
    ("rpp_appendix_b_kl_estimators", {"vocabulary": 2, "batch": 2, "batches": 2, "steps": 1, "runs": 2, "problems": 2}),
    ("rpp_appendix_b_kl_estimators", SMALL | {"seed": 3, "scales": [4.0, 0.01], "temperature_scales": [1.0]}),
    ("rpp_appendix_b_kl_estimators", SMALL | {"betas": [1.0], "start_scale": 0.01, "learning_rate": 9.0}),
]
MUST_SAY = ("learn_01_group_advantages", "learn_02_controllers")  # small draws may well be near


@pytest.mark.slow
@pytest.mark.parametrize(("notebook", "changed"), OTHER)
def test_a_lesson_with_other_parameters_says_what_no_longer_holds(notebook, changed, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(paths, "runs", lambda: tmp_path)
    document = nbformat.read(paths.notebooks() / f"{notebook}.ipynb", as_version=4)
    namespace = {"In": [""]}
    for cell in document.cells:
        if cell.cell_type == "code":
            if "parameters" in cell.metadata.get("tags", []):
                cell.source += "".join(f"\n{name} = {value!r}" for name, value in changed.items())
            namespace["In"].append(cell.source)
            exec(cell.source, namespace)
    assert namespace["params"].items() >= changed.items()
    if notebook in MUST_SAY:
        assert "no longer holds with these parameters: " in capsys.readouterr().out

"""The lessons run to their end with other parameters than those that their texts speak of."""

import matplotlib.pyplot
import nbformat
import pytest

from agpo_core import paths

OTHER = [
    ("learn_01_group_advantages", {"group_size": 2}),
    ("learn_01_group_advantages", {"group_size": 3}),
    ("learn_01_group_advantages", {"group_size": 64}),
    ("learn_02_controllers", {"sensitivity": 0.5}),
    ("learn_02_controllers", {"sensitivity": 0.0, "momentum": 0.0, "alpha": 3.0, "weights": [0.5, 2.0, 0.0]}),
    ("learn_02_controllers", {"group_size": 16, "updates": 2, "epsilon_base": 0.3, "delta": 0.0}),
    ("learn_02_controllers", {"group_size": 2, "epsilon_min": 0.2, "tau_max": 1.1}),
    ("learn_03_kl_estimators", {"draws": 10, "seed": 5}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("notebook", "changed"), OTHER)
def test_a_lesson_with_other_parameters_says_what_no_longer_holds(notebook, changed, monkeypatch, capsys):
    monkeypatch.setattr(matplotlib.pyplot, "show", matplotlib.pyplot.close)
    document = nbformat.read(paths.notebooks() / f"{notebook}.ipynb", as_version=4)
    namespace = {"In": [""]}
    for cell in document.cells:
        if cell.cell_type == "code":
            if "parameters" in cell.metadata.get("tags", []):
                cell.source += "".join(f"\n{name} = {value!r}" for name, value in changed.items())
            namespace["In"].append(cell.source)
            exec(cell.source, namespace)
    assert namespace["params"].items() >= changed.items()
    if notebook != "learn_03_kl_estimators":  # ten draws may well be near
        assert "no longer holds with these parameters: " in capsys.readouterr().out

"""Notebooks are brought up to date with the tiny profile and executed in place."""

import ast

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

from agpo_core import paths
from agpo_core.experiments import refresh


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    for folder in ("notebooks", "params"):
        (tmp_path / folder).mkdir()
    (tmp_path / "params" / "tiny.yaml").write_text("rate: 2.0e-5\nrun_mode: train\nmethods: [a, b]\n")
    return tmp_path


def write(repository, body, last="methods = []"):
    parameters = nbformat.v4.new_code_cell(
        f'# Parameters\nrate = 1.0  # a "rate"\nrun_mode = "train"  # replay, train\n{last}'
    )
    parameters.metadata.tags = ["parameters"]
    cells = [parameters, nbformat.v4.new_code_cell(body)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), repository / "notebooks" / "n.ipynb")


def test_parameters_are_brought_up_to_date_and_all_cells_executed(repository, capsys):
    write(repository, 'print(f"{rate:.5f} {run_mode} {len(methods)}")')
    refresh.main([])
    notebook = nbformat.read(repository / "notebooks" / "n.ipynb", as_version=4)
    assert notebook.cells[0].source == (
        '# Parameters\nrate = 2.0e-5  # a "rate"\nrun_mode = "replay"  # replay, train\nmethods = ["a", "b"]'
    )
    assert [cell.execution_count for cell in notebook.cells] == [1, 2]
    assert notebook.cells[1].outputs[0].text == "0.00002 replay 2\n"
    assert notebook.metadata == refresh.METADATA
    assert "notebooks/n.ipynb" in capsys.readouterr().out


def test_a_notebook_that_trains_nothing_keeps_its_own_parameters(repository):
    write(repository, 'print(f"{rate:.1f}")', last="names = []")
    refresh.main([])
    notebook = nbformat.read(repository / "notebooks" / "n.ipynb", as_version=4)
    assert notebook.cells[1].outputs[0].text == "1.0\n"


def test_a_notebook_that_fails_is_left_as_it_was(repository):
    write(repository, "raise ValueError('no')")
    before = (repository / "notebooks" / "n.ipynb").read_text()
    with pytest.raises(CellExecutionError, match="raise ValueError"):
        refresh.main(["n"])
    assert (repository / "notebooks" / "n.ipynb").read_text() == before


@pytest.mark.parametrize("value", [None, True, 3, 0.05, 4.0e-4, 1.0e-6, 1.25e-5, 3e8, "a", ["b"], [1.0, 2]])
def test_a_literal_is_read_back_as_the_value(value):
    assert ast.literal_eval(refresh.literal(value)) == value

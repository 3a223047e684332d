"""The committed notebooks are executed in place, from the record."""

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

from agpo_core import paths
from agpo_core.experiments import refresh


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    (tmp_path / "notebooks").mkdir()
    return tmp_path


def write(repository, body):
    cells = [nbformat.v4.new_code_cell(source) for source in ("rate = 1.0", body)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), repository / "notebooks" / "n.ipynb")


def test_all_cells_are_executed_and_the_notebook_is_written_back(repository, capsys):
    write(repository, 'print(f"{rate:.1f}")')
    refresh.main([])
    notebook = nbformat.read(repository / "notebooks" / "n.ipynb", as_version=4)
    assert [cell.execution_count for cell in notebook.cells] == [1, 2]
    assert notebook.cells[1].outputs[0].text == "1.0\n"
    assert notebook.metadata == refresh.METADATA
    assert "notebooks/n.ipynb" in capsys.readouterr().out


def test_a_notebook_that_fails_is_left_as_it_was(repository):
    write(repository, "raise ValueError('no')")
    before = (repository / "notebooks" / "n.ipynb").read_text()
    with pytest.raises(CellExecutionError, match="raise ValueError"):
        refresh.main(["n"])
    assert (repository / "notebooks" / "n.ipynb").read_text() == before

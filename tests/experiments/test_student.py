"""Students get the notebooks without the answers, and everything else as it is."""

import re

import nbformat
import pytest

from agpo_core import paths
from agpo_core.experiments import student

NAMES = sorted(file.stem for file in paths.notebooks().glob("*.ipynb"))


@pytest.fixture
def outputs(tmp_path, monkeypatch):
    monkeypatch.setenv("AGPO_OUTPUTS", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_solutions_and_what_checks_printed_are_gone_and_all_else_is_there(name, outputs):
    whole = nbformat.read(paths.notebooks() / f"{name}.ipynb", as_version=4).cells
    file = student.write(name)
    assert file == outputs / "student" / f"{name}.ipynb"
    kept = nbformat.read(file, as_version=4).cells
    assert [cell.id for cell in kept] == [c.id for c in whole if "solution" not in c.metadata.get("tags", [])]
    former = {cell.id: cell for cell in whole}
    for cell in kept:
        if "exercises.check(" in cell.source:
            assert cell.outputs == []
        elif cell.cell_type == "code":
            assert cell.outputs == former[cell.id].outputs


def test_links_to_the_repository_arrive(outputs):
    file = student.write("00_start_here")
    cells = nbformat.read(file, as_version=4).cells
    links = re.findall(r"\]\(([./]+[^)]+)\)", "\n".join(cell.source for cell in cells if cell.cell_type == "markdown"))
    assert links and all((file.parent / link).exists() for link in links)


def test_all_notebooks_are_written_where_none_is_named(outputs, capsys):
    student.main([])
    assert sorted(file.stem for file in (outputs / "student").iterdir()) == NAMES
    assert len(capsys.readouterr().out.splitlines()) == len(NAMES)

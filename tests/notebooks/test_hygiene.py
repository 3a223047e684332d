"""Notebooks as they are committed: executed in order, portable, small."""

import copy
import re
import subprocess
import sys

import nbformat
import pytest

from agpo_core import paths
from agpo_core.experiments import grid, layout, published

FILES = sorted(paths.notebooks().glob("*.ipynb"))


@pytest.fixture(params=FILES, ids=lambda file: file.stem)
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def code(notebook) -> list:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_there_are_notebooks():
    assert FILES


def test_cells_were_executed_in_order_from_a_fresh_kernel(notebook):
    counts = [cell.execution_count for cell in code(notebook)]
    assert counts == list(range(1, len(counts) + 1))


def test_the_kernel_is_python3(notebook):
    assert notebook.metadata.kernelspec.name == "python3"


def test_one_cell_is_tagged_parameters_and_papermill_can_read_it(notebook):
    tagged = [cell for cell in code(notebook) if "parameters" in cell.metadata.get("tags", [])]
    assert len(tagged) == 1
    first, *lines = tagged[0].source.splitlines()
    assert first.startswith("# Parameters: ")  # papermill's own cell begins with the first word alone
    assert len(lines) < 20
    for line in lines:
        # one assignment per line, and no second = on it, not even in its comment
        assert line == "" or line.startswith("# ") or re.fullmatch(r"\w+ = [^=]+", line), line


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_notebook_is_smaller_than_a_megabyte(file):
    assert file.stat().st_size < 1_000_000


def test_no_path_of_a_machine_is_in_it(notebook):
    text = nbformat.writes(notebook)
    assert not re.search(r"(?<![\w.])/(?:home|root|tmp|work|Users|mnt)/\w", text)
    assert "../" not in "\n".join(cell.source for cell in code(notebook))


def test_a_cell_that_plots_shows_its_figure_with_words_and_asserts_on_its_data(notebook):
    for cell in code(notebook):
        if "= plots." in cell.source:
            figure, after = re.split(r"plots\.show\(figure, plots\.alt\.", cell.source)
            assert re.search(r"= plots\.(\w+)\(", figure)[1] == re.match(r"\w+", after)[0], cell.source
            assert "assert " in after, cell.source


def test_every_picture_says_what_it_shows(notebook):
    for cell in code(notebook):
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                words = output.metadata["image/png"]["alt"]
                assert len(words.split()) > 10 and words.endswith(".") and "nan" not in words.lower().split(), words


def test_parameters_are_checked_and_their_names_read_by_the_files_of_this_notebook(notebook, request):
    """The first code cell after the parameters merges the settings, under the notebook's own name."""
    cells = code(notebook)
    (own,) = [i for i, cell in enumerate(cells) if "parameters" in cell.metadata.get("tags", [])]
    assert re.search(r"\b(grid|profiles)\.parameters\((NAME|\"00_start_here\"), globals\(\)", cells[own + 1].source)
    named = re.search(r'NAME = "(\w+)"', cells[own + 1].source)
    assert named is None or named[1] == request.node.callspec.params["notebook"].stem


def test_the_claims_of_the_text_hold_with_the_parameters_that_are_committed(notebook):
    for cell in code(notebook):
        assert "no longer holds" not in "".join(output.get("text", "") for output in cell.outputs), cell.source


def test_no_cell_ended_in_an_error_or_wrote_to_stderr(notebook):
    for cell in code(notebook):
        for output in cell.outputs:
            assert output.output_type != "error" and output.get("name") != "stderr", cell.source


def test_a_notebook_of_runs_ends_after_a_plan(notebook):
    for cell in code(notebook):
        if " = grid.run(" in cell.source:
            assert re.search(r'= grid\.run\(.*\)\nif run_mode == "plan":\n    raise grid\.Planned\n', cell.source)


OF_RUNS = [file for file in FILES if " = grid.run(" in file.read_text(encoding="utf-8")]


@pytest.mark.slow
@pytest.mark.parametrize("file", OF_RUNS, ids=lambda file: file.stem)
def test_papermill_ends_a_plan_well_and_shows_no_table_of_nothing(file, tmp_path):
    out = tmp_path / "plan.ipynb"
    words = ["--cwd", str(file.parent), str(file), str(out), "-p", "run_mode", "plan"]
    done = subprocess.run([sys.executable, "-m", "papermill", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    cells = code(nbformat.read(out, as_version=4))
    (planned,) = [i for i, cell in enumerate(cells) if " = grid.run(" in cell.source]
    printed = "".join(output.get("text", "") for output in cells[planned].outputs)
    assert printed.strip().endswith(grid.PLANNED) and "memory of a rank" in printed
    assert not any(cell.outputs or cell.execution_count for cell in cells[planned + 1 :])


def test_no_magic_and_no_shell(notebook):
    for cell in code(notebook):
        assert not re.search(r"(?m)^\s*[%!]", cell.source), cell.source


def test_exercises_have_solutions_and_hints_at_known_mistakes(notebook):
    checks = [cell for cell in code(notebook) if "exercises.check(" in cell.source]
    solutions = [cell for cell in checks if "solution" in cell.metadata.get("tags", [])]
    assert len(checks) == 2 * len(solutions)
    for cell in checks:
        if cell not in solutions:
            assert re.search(r"exercises\.check\(.*(mistakes|MISTAKES)\)", cell.source), cell.source


def test_solutions_are_folded(notebook):
    for cell in code(notebook):
        if "solution" in cell.metadata.get("tags", []):
            assert cell.metadata["jupyter"] == {"outputs_hidden": True, "source_hidden": True}


def test_a_notebook_has_what_all_share(notebook, request):
    """Times, links, tags and slides are what `layout` gives; `make notebooks` writes them."""
    again = copy.deepcopy(notebook)
    layout.arrange(again, request.node.callspec.params["notebook"].stem)
    for cell, arranged in zip(notebook.cells, again.cells, strict=True):
        assert cell == arranged, cell.source


def test_the_first_cell_says_how_long_it_takes_and_the_last_one_links_in_the_order_of_the_items(notebook, request):
    name = request.node.callspec.params["notebook"].stem
    (item,) = [item for item in published.items() if item.notebook == name] or [None]
    if item:
        line = f"**Time.** About {item.to_read} minutes to read; the cells take {item.to_run}."
        assert line in notebook.cells[0].source.split("\n\n")
    there = [item.notebook for item in published.items() if (paths.notebooks() / f"{item.notebook}.ipynb").is_file()]
    names = ["00_start_here", *there]
    here = names.index(name)
    wanted = [f"{stem}.ipynb" for stem in (*names[max(here, 2) - 1 : here], *names[here + 1 : here + 2])]
    last = notebook.cells[-1].source
    assert re.findall(r"\]\(([^)]+)\)", last) == [*wanted, *(["00_start_here.ipynb"] if here else [])], last


def test_every_link_arrives(notebook):
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for target in re.findall(r"\]\((?!http)([^)#\s]+)[^)]*\)", cell.source):
                assert (paths.notebooks() / target).exists(), target


def test_no_cell_of_a_lesson_begins_a_section_in_its_middle():
    for file in FILES:
        if file.stem.startswith(layout.LESSON):
            for cell in nbformat.read(file, as_version=4).cells:
                assert "\n## " not in cell.source, cell.source


def test_the_page_for_teachers_lists_every_exercise():
    page = (paths.notebooks() / "TEACHING.md").read_text(encoding="utf-8")
    cells = [cell for file in FILES for cell in code(nbformat.read(file, as_version=4))]
    exercises = [cell.source for cell in cells if "exercise" in cell.metadata.get("tags", [])]
    asked = [re.search(r"exercises\.check\((\w+)", source)[1] for source in exercises]
    assert sorted(asked) == sorted(re.findall(r"(?m)^\|[^|]*\| `(\w+)` \|", page))
    for target in re.findall(r"\]\(([^)]+)\)", page):
        assert (paths.notebooks() / target).is_file(), target


def test_provenance_is_left_out_of_the_comparison(notebook):
    for cell in code(notebook):
        if "report.provenance(" in cell.source:
            assert "nbval-ignore-output" in cell.metadata.get("tags", [])


def test_no_output_shows_a_widget_that_is_gone(notebook):
    assert "widget-view+json" not in nbformat.writes(notebook)

"""Write the notebooks as students get them: without solutions, and without what the checks of exercises printed.

    python -m agpo_core.experiments.student                             all notebooks
    python -m agpo_core.experiments.student learn_01_group_advantages   one

They go to `outputs/student/`. Everything else, outputs included, is as it is committed.
"""

import argparse
import os
from pathlib import Path

import nbformat
from nbconvert.preprocessors import TagRemovePreprocessor
from nbformat import NotebookNode

from agpo_core import paths


def edition(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """A notebook without the cells tagged `solution` and without the outputs of those tagged `exercise`.

    Args:
        folder: where it will lie; links to files of the repository are written as from there.
    """
    remover = TagRemovePreprocessor(remove_cell_tags={"solution"}, remove_all_outputs_tags={"exercise"})
    kept, _ = remover.preprocess(notebook, {})
    up = Path(os.path.relpath(paths.root(), folder)).as_posix()
    for cell in kept.cells:
        if cell.cell_type == "markdown":
            cell.source = cell.source.replace("](../", f"]({up}/")
    return kept


def write(name: str) -> Path:
    """Write the edition of a notebook for students, and give its place."""
    file = paths.outputs() / "student" / f"{name}.ipynb"
    file.parent.mkdir(parents=True, exist_ok=True)
    notebook = nbformat.read(paths.notebooks() / f"{name}.ipynb", as_version=4)
    nbformat.write(edition(notebook, file.parent), file)
    return file


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write the notebooks without solutions.")
    parser.add_argument("notebooks", nargs="*", help="names in notebooks/, without .ipynb; default: all")
    names = parser.parse_args(argv).notebooks
    for name in names or sorted(file.stem for file in paths.notebooks().glob("*.ipynb")):
        print(write(name))


if __name__ == "__main__":
    main()

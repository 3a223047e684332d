"""Execute the committed notebooks in place: every cell, in order, with the recorded runs.

    python -m agpo_core.experiments.refresh                            all notebooks
    python -m agpo_core.experiments.refresh agpo_table1_main_results   one

Before that, each gets what all notebooks share: times, links, folded solutions (see `layout`).

A notebook's own parameter cell says `profile = "tiny"` and, where it has a `run_mode`, `"replay"`.
"""

import argparse

import nbformat
from nbclient import NotebookClient

from agpo_core import paths
from agpo_core.experiments import layout

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def refresh(name: str) -> None:
    """Execute a notebook and write it back.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed; the notebook is left as it was.
    """
    path = paths.notebooks() / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    layout.arrange(notebook, name)
    client = NotebookClient(
        notebook, kernel_name="python3", timeout=None, record_timing=False, coalesce_streams=True,
        resources={"metadata": {"path": str(paths.notebooks())}},
    )  # fmt: skip
    client.execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", []):  # a slider does not work without its kernel; its text stays
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
    notebook.metadata = METADATA  # leaves out the version of this Python
    nbformat.write(notebook, path)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Execute notebooks in place, from the record.")
    parser.add_argument("notebooks", nargs="*", help="names in notebooks/, without .ipynb; default: all")
    names = parser.parse_args(argv).notebooks
    for name in names or sorted(file.stem for file in paths.notebooks().glob("*.ipynb")):
        refresh(name)
        print(f"notebooks/{name}.ipynb")


if __name__ == "__main__":
    main()

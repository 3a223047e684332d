"""Execute notebooks in place, as they are committed: every cell, in order, from the record.

    python -m agpo_core.experiments.refresh                            all notebooks
    python -m agpo_core.experiments.refresh agpo_table1_main_results   one

The own parameters of a notebook with `methods` are those of the tiny profile, replayed. They are first brought up to
date with `params/tiny.yaml` and `params/<notebook>.tiny.yaml`; the lines' comments stay.
"""

import argparse
import re

import nbformat
from nbclient import NotebookClient

from agpo_core import paths
from agpo_core.experiments import profiles

PROFILE = "tiny"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def refresh(name: str) -> None:
    """Bring a notebook's parameters up to date, execute it and write it back.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed; the notebook is left as it was.
    """
    path = paths.notebooks() / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    profile = profiles.settings(name, PROFILE)
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", []) and re.search("^methods = ", cell.source, re.MULTILINE):
            cell.source = with_values(cell.source, {**profile, "run_mode": "replay"})
    client = NotebookClient(
        notebook, kernel_name="python3", timeout=None, record_timing=False, coalesce_streams=True,
        resources={"metadata": {"path": str(paths.notebooks())}},
    )  # fmt: skip
    client.execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", []):  # a slider's model is gone with the kernel; its text stays
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
    notebook.metadata = METADATA  # without the version of this Python
    nbformat.write(notebook, path)


def with_values(source: str, values: dict) -> str:
    """The lines `name = literal  # comment` of a cell with other literals."""

    def replace(line: str) -> str:
        match = re.fullmatch(r"(\w+) = (?:.*?)(  #.*)?", line)
        if not match or match[1] not in values:
            return line
        return f"{match[1]} = {literal(values[match[1]])}{match[2] or ''}"

    return "\n".join(map(replace, source.splitlines()))


def literal(value) -> str:
    """A value as it is written in a notebook: double quotes, small numbers as 1.0e-6."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, float) and 0 < abs(value) < 1e-3:
        mantissa, exponent = f"{value:e}".split("e")
        digits = mantissa.rstrip("0")
        return f"{digits}{'0' * digits.endswith('.')}e{int(exponent)}"
    return repr(value)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Execute notebooks in place, from the record.")
    parser.add_argument("notebooks", nargs="*", help="names in notebooks/, without .ipynb; default: all")
    names = parser.parse_args(argv).notebooks
    for name in names or sorted(file.stem for file in paths.notebooks().glob("*.ipynb")):
        refresh(name)
        print(f"notebooks/{name}.ipynb")


if __name__ == "__main__":
    main()

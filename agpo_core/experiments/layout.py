"""What all notebooks share around their contents; `refresh` writes it, and a test holds the notebooks to it.

* The first cell says how long the notebook takes, and the last one links to its neighbours. Times and order are those
  of `published/items.csv`.
* A notebook or a source file that the text names in code type is a link.
* Solutions are folded, and exercises are tagged, so that `student` can clear what their checks printed.
* Cells of the lessons say how they stand on slides (`jupyter nbconvert --to slides`).
"""

import re
from functools import cache

import nbformat
from nbformat import NotebookNode

from agpo_core import paths
from agpo_core.experiments import published

START = "00_start_here"
LESSON = "learn_"
TIME = "**Time.** "
LINKS = re.compile(r"(\[?(Previous|Before|Next)\b|\[Start\]).*\.ipynb\)")  # the beginning of a line of links
SPAN = re.compile(r"\[`[^`\n]+`\]\([^)]*\)|`([^`\n]+)`")  # a link in code type, or code type that is no link yet
SHORT = re.compile(r"learn_\d\d|(agpo|rpp)_(table|fig|thm|appendix)_?[a-z0-9]")  # the beginning of a notebook's name
ROOMS = ("", "theory/", "experiments/", "experiments/plots/", "training/")  # where a module may lie that a text names


def arrange(notebook: NotebookNode, name: str) -> None:
    """Give a notebook what all share.

    Args:
        name: the notebook's; one that `items.csv` does not have gets no times and no links to neighbours.
    """
    cells = notebook.cells
    for cell in cells:
        if cell.cell_type == "markdown":
            cell.source = linked(cell.source, name)
        elif "exercises.check(" in cell.source:
            _mark_exercise(cell)
    if name in order():
        _say_time(cells[0], name)
        _link_neighbours(cells, name)
    if name.startswith(LESSON):
        for cell in cells:
            cell.metadata["slideshow"] = {"slide_type": slide(cell)}


def order() -> list[str]:
    """The notebooks that are there: the start, then those of `items.csv` in its order."""
    there = [item.notebook for item in published.items() if (paths.notebooks() / f"{item.notebook}.ipynb").is_file()]
    return [START, *there]


def time(name: str) -> str:
    """How long a notebook takes to read and to run; "" where `items.csv` does not say."""
    item = next((item for item in published.items() if item.notebook == name), None)
    if item is None or not item.to_run:
        return ""
    return f"{TIME}About {item.to_read} minutes to read; the cells take {item.to_run}."


def neighbours(name: str) -> str:
    """The line of links at the end of a notebook."""
    names, titles = order(), {item.notebook: _title(item) for item in published.items()}
    here = names.index(name)
    links = [("Previous", names[here - 1])] if here > 1 else []
    links += [("Next", names[here + 1])] if here + 1 < len(names) else []
    line = [f"[{word}: {titles[target]}]({target}.ipynb)" for word, target in links]
    return " · ".join([*line, *([f"[Start]({START}.ipynb)"] if here else [])])


def _title(item: published.Item) -> str:
    named = {"lesson": f"Lesson {item.item}", "beyond": item.item.capitalize(), "R++": f"REINFORCE++ {item.item}"}
    return named.get(item.paper, item.title)


def slide(cell: NotebookNode) -> str:
    """How a cell of a lesson stands on slides: a heading begins a slide, other text and code one below it.

    What sets a notebook up, solutions, provenance and links are left out.
    """
    if cell.cell_type == "markdown":
        skipped = LINKS.match(cell.source) or cell.source.startswith("## Parameters")
        return "skip" if skipped else "slide" if cell.source.startswith("#") else "subslide"
    tags = {"parameters", "solution", "nbval-ignore-output"} & set(cell.metadata.get("tags", []))
    folded = cell.metadata.get("jupyter", {}).get("source_hidden")
    return "skip" if tags or folded or "globals()" in cell.source else "subslide"


def linked(text: str, name: str) -> str:
    """A text of markdown whose code type is a link where it names another notebook or a source file."""

    def link(found: re.Match) -> str:
        target = _target(found[1]) if found[1] else ""
        return f"[`{found[1]}`]({target})" if target and target != f"{name}.ipynb" else found[0]

    return SPAN.sub(link, text)


@cache
def _target(words: str) -> str:
    """What a code type names, as a link from `notebooks/`: a notebook, a file, or a module with one of its names."""
    names = sorted(file.stem for file in paths.notebooks().glob("*.ipynb"))
    if SHORT.fullmatch(words):
        names = [stem for stem in names if stem.startswith(f"{words}_")]
        words = names[0] if len(names) == 1 else ""
    if words in names:
        return f"{words}.ipynb"
    if words.endswith((".py", ".yaml", ".md", ".csv", "/")):
        for place in (words, f"agpo_core/{words}"):
            if not words.startswith(("/", ".")) and (paths.root() / place).exists():
                return f"../{place}" if not place.startswith("notebooks/") else place.removeprefix("notebooks/")
    module, _, defined = words.removesuffix("()").partition(".")
    for room in ROOMS if re.fullmatch(r"[A-Za-z_]\w*", defined) else ():
        file = paths.root() / "agpo_core" / room / f"{module}.py"
        if file.is_file() and re.search(rf"(?m)^(def|class) {defined}\b|^{defined}\b.* = ", file.read_text("utf-8")):
            return f"../agpo_core/{room}{module}.py"
    return ""


def _say_time(cell: NotebookNode, name: str) -> None:
    parts = cell.source.split("\n\n")
    here = [i for i, part in enumerate(parts) if part.startswith(TIME)]
    if line := time(name):
        parts[here[0] if here else len(parts) :] = [line, *(parts[here[0] + 1 :] if here else [])]
    cell.source = "\n\n".join(parts)


def _link_neighbours(cells: list[NotebookNode], name: str) -> None:
    if cells[-1].cell_type == "markdown":
        text = [part for part in cells[-1].source.split("\n\n") if not LINKS.match(part)]
        cells[-1].source = "\n\n".join(text)
        if not text:
            cells.pop()
    cells.append(nbformat.v4.new_markdown_cell(neighbours(name), id="links"))


def _mark_exercise(cell: NotebookNode) -> None:
    tags = cell.metadata.setdefault("tags", [])
    if "solution" in tags:
        cell.metadata["collapsed"] = True
        cell.metadata["jupyter"] = {"outputs_hidden": True, "source_hidden": True}
    elif "exercise" not in tags:
        tags.append("exercise")

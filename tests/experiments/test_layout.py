"""What all notebooks share: times, links, folded solutions, slides."""

import nbformat
import pytest

from agpo_core import paths
from agpo_core.experiments import layout, published

ITEMS = (
    published.Item("lesson", "1 A", "a?", "learn_01_a", 40, "6 s"),
    published.Item("AGPO", "Table 9", "b?", "agpo_table9_b"),  # its notebook is to come
    published.Item("R++", "Appendix Z", "c?", "rpp_appendix_z", 20, "9 s (the record, 1 min)"),
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(published, "items", lambda: ITEMS)
    monkeypatch.setattr(paths, "notebooks", lambda: tmp_path)
    for name in ("00_start_here", "learn_01_a", "rpp_appendix_z"):
        (tmp_path / f"{name}.ipynb").touch()
    layout._target.cache_clear()
    yield tmp_path
    layout._target.cache_clear()


def markdown(text):
    return nbformat.v4.new_markdown_cell(text)


def notebook(*cells):
    return nbformat.v4.new_notebook(cells=list(cells))


def test_neighbours_are_those_that_are_there_in_the_order_of_the_items(folder):
    assert layout.neighbours("00_start_here") == "[Next: Lesson 1 A](learn_01_a.ipynb)"
    assert layout.neighbours("learn_01_a") == (
        "[Next: REINFORCE++ Appendix Z](rpp_appendix_z.ipynb) · [Start](00_start_here.ipynb)"
    )
    assert layout.neighbours("rpp_appendix_z") == (
        "[Previous: Lesson 1 A](learn_01_a.ipynb) · [Start](00_start_here.ipynb)"
    )


def test_a_line_of_links_and_a_time_are_replaced_and_nothing_else(folder):
    old = "Previous: [x](learn_01_a.ipynb) · Start: [00_start_here](00_start_here.ipynb)"
    made = notebook(markdown("# Z\n\n**Time.** An hour.\n\n## More"), markdown(f"**Limits.** None.\n\n{old}"))
    layout.arrange(made, "rpp_appendix_z")
    assert [cell.source for cell in made.cells] == [
        "# Z\n\n**Time.** About 20 minutes to read; the cells take 9 s (the record, 1 min).\n\n## More",
        "**Limits.** None.",
        layout.neighbours("rpp_appendix_z"),
    ]
    before = [cell.copy() for cell in made.cells]
    layout.arrange(made, "rpp_appendix_z")  # a second time changes nothing
    assert made.cells == before


def test_a_solution_is_folded_and_an_exercise_tagged(folder):
    check = "exercises.check(f, g, cases, mistakes)"
    solution = nbformat.v4.new_code_cell(check, metadata={"tags": ["solution"]})
    made = notebook(markdown("# A"), nbformat.v4.new_code_cell(check), solution)
    layout.arrange(made, "learn_01_a")
    assert made.cells[1].metadata["tags"] == ["exercise"]
    assert made.cells[2].metadata["jupyter"] == {"outputs_hidden": True, "source_hidden": True}
    assert [cell.metadata["slideshow"]["slide_type"] for cell in made.cells] == ["slide", "subslide", "skip", "skip"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("see `learn_01_a`", "see [`learn_01_a`](learn_01_a.ipynb)"),
        ("see `rpp_appendix_z`, itself", "see `rpp_appendix_z`, itself"),
        ("see `learn_01`", "see [`learn_01`](learn_01_a.ipynb)"),
        ("[`learn_01_a`](there) and `x`", "[`learn_01_a`](there) and `x`"),
        ("`probe.py`, `kl.k1`", "[`probe.py`](../agpo_core/probe.py), [`kl.k1`](../agpo_core/kl.py)"),
        ("`theory/bias.py`", "[`theory/bias.py`](../agpo_core/theory/bias.py)"),
        ("`kl.nothing`, `entropy`, `a = 1`", "`kl.nothing`, `entropy`, `a = 1`"),
    ],
)
def test_what_names_a_notebook_or_a_source_file_becomes_a_link(folder, text, wanted):
    assert layout.linked(text, "rpp_appendix_z") == wanted


def test_a_notebook_that_is_no_item_gets_neither_time_nor_neighbours(folder):
    made = notebook(markdown("# Mine"))
    layout.arrange(made, "mine")
    assert [cell.source for cell in made.cells] == ["# Mine"]

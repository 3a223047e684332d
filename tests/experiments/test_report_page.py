"""The page of all results holds every tagged output, and needs nothing beside it."""

import html.parser
import re

import nbformat
import pytest

from agpo_core import paths
from agpo_core.experiments import published, report_page

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Balance(html.parser.HTMLParser):
    """Counts tags that are open."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "img", "br", "hr", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def cell(source, outputs, tags=()):
    return nbformat.v4.new_code_cell(source, outputs=outputs, metadata={"tags": list(tags)})


@pytest.fixture
def outputs(tmp_path, monkeypatch):
    monkeypatch.setenv("AGPO_OUTPUTS", str(tmp_path / "outputs"))
    return tmp_path / "outputs"


def test_the_page_of_the_committed_notebooks_is_whole_and_needs_no_network(outputs):
    page = report_page.write("tiny").read_text("utf-8")
    balance = Balance()
    balance.feed(page)
    assert balance.open == []
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", page)  # nothing is fetched
    for claim in published.claims():
        assert f"<td>{claim.number}</td>" in page
    there = [item.notebook for item in published.items() if (paths.notebooks() / f"{item.notebook}.ipynb").is_file()]
    shown = re.findall(r'<h2 id="(\w+)">', page)
    assert shown == [name for name in there if name in shown] + ["all_claims"] and len(shown) > 1
    assert len(set(re.findall(r'id="(\w+)"', page))) == len(re.findall(r'id="(\w+)"', page))
    for link in re.findall(r'href="([^#"]+)"', page):
        assert (outputs / "report" / link).resolve().is_file(), link


def test_an_executed_notebook_goes_before_the_committed_one_and_only_tagged_cells_are_shown(outputs):
    item = next(item for item in published.items() if item.notebook == "agpo_table1_main_results")
    folder = outputs / "runs" / item.notebook / "tiny"
    folder.mkdir(parents=True)
    cells = [
        cell("a", [nbformat.v4.new_output("stream", text="not for the page")]),
        cell("b", [nbformat.v4.new_output("stream", text="1 < 2\n")], ["report"]),
        cell("c", [nbformat.v4.new_output("display_data", {"image/png": PIXEL + "\n", "text/plain": "x"})], ["report"]),
        cell("d", [nbformat.v4.new_output("display_data", {"text/html": "<style>b{}</style><b>t</b>"})], ["report"]),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "notebook.ipynb")
    page = report_page.write("tiny").read_text("utf-8")
    section = page.split(f'<h2 id="{item.notebook}">')[1].split("<h2")[0]
    assert "not for the page" not in page and "<pre>1 &lt; 2</pre>" in section
    assert f'src="data:image/png;base64,{PIXEL}"' in section and "<b>t</b>" in section and "<style>" not in section
    assert f'href="../runs/{item.notebook}/tiny/notebook.html"' in section and "From the executed notebook" in section

"""The tables of the README files are written from the record, the tasks and the code."""

import re

import matplotlib.pyplot as plt
import pytest

from agpo_core import paths
from agpo_core.experiments import claim_tables, published, readme
from agpo_core.metrics import LOGGED


@pytest.mark.parametrize("document", readme.DOCUMENTS)
def test_every_table_is_what_its_source_says(document):
    assert readme.fill(document) == _text(document), "run `make notebooks`: a table is out of date"


def test_every_marker_belongs_to_a_table():
    for document, tables in readme.DOCUMENTS.items():
        names = re.findall(r"<!-- (?!end)(\w+) -->", _text(document))
        assert sorted(names) == sorted(tables), document


def test_every_logged_metric_is_explained():
    for name in LOGGED:
        assert f"| `{name}` |" in _text("agpo_core/training/README.md")


@pytest.mark.parametrize("document", readme.DOCUMENTS)
def test_every_link_between_files_arrives(document):
    here = paths.root() / document
    for target in re.findall(r"\]\((?!http)([^)]+)\)", _text(document)):
        file, _, heading = target.partition("#")
        there = (here.parent / file).resolve() if file else here
        assert there.exists(), f"{document}: {target}"
        if heading:
            headings = re.findall(r"(?m)^#+ (.+)$", there.read_text(encoding="utf-8"))
            assert heading in [_anchor(text) for text in headings], f"{document}: {target}"


def test_a_missing_marker_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    (tmp_path / "README.md").write_text("no markers")
    with pytest.raises(ValueError, match=r"README\.md lacks the markers of its table 'coverage'"):
        readme.fill("README.md")


def _text(document: str) -> str:
    return (paths.root() / document).read_text(encoding="utf-8")


def _anchor(heading: str) -> str:
    """A heading's anchor, as GitHub makes it: lower case, no punctuation, a hyphen for a space."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_evaluations_are_a_row_each(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "reference", lambda: tmp_path)
    columns = "model,task,n,metric,value,low,high,k,tau,p,prompt,template,grading,truncated,too_long,tokens,seconds\n"
    for folder, row in (
        ("evaluation", "m,gsm8k,50,accuracy,0.06,0,0.14,1,0,1,zero,chat,modern,0.25,0,12345,99.6\n"),
        ("evaluation_few", "m,mmlu_stem,50,accuracy,0.2,0.1,0.32,1,0,1,mmlu (5-shot),base,likeliest letter,0,0,0,9\n"),
    ):
        (tmp_path / "small" / folder).mkdir(parents=True)
        (tmp_path / "small" / folder / "table.csv").write_text(columns + row)
    assert readme.evaluation().splitlines()[2:] == [
        "| `gsm8k` | zero | chat | 50 | accuracy | 6.0 | 0.0 to 14.0 | 25 % | 12,345 | 100 |",
        "| `mmlu_stem` | mmlu (5-shot) | base | 50 | accuracy | 20.0 | 10.0 to 32.0 | 0 % | 0 | 9 |",
    ]


# -- coverage and picture


def test_a_notebook_that_is_there_is_linked_and_the_others_are_to_come(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "notebooks", lambda: tmp_path)
    (tmp_path / "learn_01_group_advantages.ipynb").touch()
    rows = readme.coverage("there/").splitlines()[2:]
    assert len(rows) == len(published.items())
    linked = [row for row in rows if "| to come |" not in row]
    assert linked == readme.coverage("there/", missing=False).splitlines()[2:]
    assert len(linked) == 1 and "| [learn_01_group_advantages](there/learn_01_group_advantages.ipynb) |" in linked[0]


def test_the_verdicts_of_a_row_count_the_claims_of_its_notebook(monkeypatch):
    one, two, three, *_ = numbers = [c.number for c in published.claims() if c.notebook == "methods_overview"]
    found = dict.fromkeys(range(1, 57), []) | {one: ["contradicted"], two: ["contradicted", "holds"], three: ["holds"]}
    monkeypatch.setattr(claim_tables, "tallies", lambda: found)
    (row,) = [row for row in readme.coverage().splitlines() if "(notebooks/methods_overview.ipynb)" in row]
    assert "| 2 contradicted; by test: 2 hold |" in row and len(numbers) > 3  # what nothing judges is not counted
    found |= {one: ["supported"], two: ["inconclusive"], three: ["does not hold"]}
    (row,) = [row for row in readme.coverage().splitlines() if "(notebooks/methods_overview.ipynb)" in row]
    assert "| 1 supported, 1 inconclusive; by test: 1 does not hold |" in row


def test_every_word_of_a_verdict_is_counted():
    words = {word for of_claim in claim_tables.tallies().values() for word in of_claim}
    assert words <= {*readme.OF_RUNS, *readme.OF_TESTS}


def test_the_picture_is_what_the_record_says(tmp_path):
    committed = paths.reference() / readme.PICTURE
    readme.picture(tmp_path / "drawn.png")
    found, drawn = (plt.imread(file) for file in (committed, tmp_path / "drawn.png"))
    assert found.shape == drawn.shape, "run `make notebooks`: the picture is out of date"
    # other fonts or rounding may move a few pixels; 0.05 points in the scores of one method make this 1e-3
    assert abs(found - drawn).mean() < 2e-4, "run `make notebooks`: the picture is out of date"
    assert committed.stat().st_size <= 150_000


@pytest.mark.parametrize("document", readme.DOCUMENTS)
def test_every_picture_has_an_alternative_text(document):
    for text, file in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", _text(document)):
        assert len(text.split()) > 10, file

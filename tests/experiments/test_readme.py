"""The README's tables are written from the record, the tasks and the code."""

import pytest

from agpo_core import paths
from agpo_core.experiments import readme
from agpo_core.metrics import LOGGED

TEXT = (paths.root() / "README.md").read_text(encoding="utf-8")


def test_every_table_of_the_readme_is_what_its_source_says():
    assert readme.fill(TEXT) == TEXT, "run `make notebooks`: a table of README.md is out of date"


def test_every_logged_metric_stands_in_the_readme():
    for name in LOGGED:
        assert f"| `{name}` |" in TEXT


def test_a_missing_marker_is_named():
    with pytest.raises(ValueError, match="results"):
        readme.fill("a README without markers")


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

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

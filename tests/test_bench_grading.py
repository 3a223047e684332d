"""The benchmark of the grader: processes of its own, the table, copied questions, the record."""

import importlib.util
import json
from dataclasses import replace

import pytest

from agpo_core import paths, provenance
from agpo_core.grading.cases import load_cases
from agpo_core.tasks import Graded, Problem

spec = importlib.util.spec_from_file_location("bench_grading", paths.root() / "bench" / "grading.py")
grading = importlib.util.module_from_spec(spec)
spec.loader.exec_module(grading)


@pytest.fixture
def few(monkeypatch, tmp_path):
    """Three cases, and a quick stand-in for math-verify."""
    lines = (paths.root() / grading.CASES).read_text("utf-8").splitlines()[:3]
    (tmp_path / "cases.jsonl").write_text("\n".join(lines), "utf-8")
    monkeypatch.setattr(grading, "CASES", tmp_path / "cases.jsonl")
    monkeypatch.setattr(grading, "math_verify_alone", lambda gold, candidate, benchmark: gold == candidate)
    return load_cases(tmp_path / "cases.jsonl")


def test_every_way_is_measured_cold_and_warm_in_each_round(few):
    measured = grading.measure(few, rounds=2)
    assert list(measured) == ["agpo_core", "math-verify alone"]
    for way in measured.values():
        assert list(way) == ["cold", "warm"]
        assert all(len(several) == 2 and min(several) > 0 for several in way.values())


def test_an_expression_of_a_question_that_is_rewarded_is_found():
    class Task:
        def grade(self, problem, completion):
            return Graded(float("3^2-1" in completion), None)

    copied = Problem("t", "p", prompt="What is $3^2-1$ for $x = 2$?", answer="8")
    assert grading.pays(Task(), copied) == "3^2-1"
    assert grading.pays(Task(), replace(copied, prompt="What is $8$?")) is None
    assert grading.pays(Task(), replace(copied, answer="3^2 - 1")) is None


def test_the_table_shows_medians_ratios_and_the_goal():
    measured = {
        "agpo_core": {"cold": [3.0, 2.5, 9.0], "warm": [0.5, 0.4, 0.6]},
        "math-verify alone": {"cold": [6.0, 6.0, 7.0], "warm": [5.0, 5.2, 4.0]},
    }
    assert grading.table(measured)[2:] == [
        "| a thousand gradings, the first time | 3.000 | ≤ 2, missed | 6.000 | 2 |",
        "| a thousand gradings, the second time | 0.500 | ≤ 2, met | 5.000 | 10 |",
    ]


def test_a_record_holds_the_table_and_where_it_comes_from(few, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(provenance, "git_commit", lambda: "a" * 40)
    monkeypatch.setattr(paths, "reference", lambda: tmp_path)
    grading.main(["--record", "--rounds", "1"])
    record = json.loads((tmp_path / "bench" / "grading.json").read_text("utf-8"))
    assert record["table"] == grading.table(record["measured"]) == capsys.readouterr().out.splitlines()
    assert (record["commit"], record["rounds"], record["cases"]) == ("a" * 40, 1, 3)


@pytest.mark.parametrize(
    ("arguments", "commit", "message"),
    [
        (["--record"], "a" * 40 + "-dirty", "commit the code first"),
        (["--rounds", "0"], "a" * 40, "--rounds must be 1 or more"),
    ],
)
def test_what_would_be_no_record_is_refused(monkeypatch, capsys, arguments, commit, message):
    monkeypatch.setattr(provenance, "git_commit", lambda: commit)
    with pytest.raises(SystemExit):
        grading.main(arguments)
    assert message in capsys.readouterr().err

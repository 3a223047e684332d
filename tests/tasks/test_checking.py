"""The check of golds: they are put into sentences, and the grader finds them again."""

import json

import pytest

from agpo_core import paths, provenance
from agpo_core.tasks.__main__ import main
from agpo_core.tasks.benchmarks import checking
from tests.data import DATA, needs_data


def write(folder, *answers):
    file = folder / "math500" / "test.jsonl"
    file.parent.mkdir()
    rows = ({"problem": f"{i}?", "solution": "", "answer": a, "subject": "s", "level": 1, "unique_id": f"u{i}"}
            for i, a in enumerate(answers))  # fmt: skip
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


def test_golds_are_found_and_alike_ones_are_named(tmp_path):
    (found,) = checking.check(write(tmp_path, r"\frac12", "0.5", "(3,4]", "Evelyn"))
    assert found == checking.Checked("math500", "test", 4, (), (("test-0", r"\frac12", "0.5"),))


def test_a_gold_that_a_sentence_does_not_give_back_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(checking.SENTENCES, "en", ("It is {}, or rather 7.",))
    (found,) = checking.check(write(tmp_path, "5", "7"))
    assert found.missed == (("test-0", "It is {}, or rather 7."), ("test-1", "It is {}, or rather 7."))
    assert checking.table(str(tmp_path))[2].startswith("| `math500` | test | 2 | 0 | 0 | test-0: in It is {}")


def test_the_command_prints_the_table_and_needs_a_folder_with_a_benchmark(tmp_path, capsys):
    assert main(["check", "--data-dir", write(tmp_path, "5", "6")]) == 0
    assert capsys.readouterr().out.endswith("| `math500` | test | 2 | 2 | 0 |  |\n")
    for folder in (tmp_path / "math500" / "nothing", tmp_path / "nowhere"):
        with pytest.raises(SystemExit) as stop:
            main(["check", "--data-dir", str(folder)])
        assert stop.value.code == 2 and "data_dir" in capsys.readouterr().err


def test_a_record_says_where_it_comes_from_and_needs_committed_code(tmp_path, monkeypatch):
    folder = write(tmp_path, "5", "6")
    monkeypatch.setattr(paths, "reference", lambda: tmp_path)
    monkeypatch.setattr(provenance, "git_commit", lambda: "0" * 40)
    lines = checking.record(folder)
    written = json.loads((tmp_path / "golds.json").read_text())
    assert (written["table"], written["commit"]) == (lines, "0" * 40) and folder not in json.dumps(written)
    monkeypatch.setattr(provenance, "git_commit", lambda: "0" * 40 + "-dirty")
    with pytest.raises(ValueError, match="-dirty: commit the code first"):
        checking.record(folder)


@needs_data
def test_every_gold_of_the_shared_files_is_found_and_equals_no_neighbour_but_one():
    found = {(one.name, one.split): one for one in checking.check(str(DATA))}
    assert [one for one in found.values() if one.missed] == []
    assert {key: one.alike for key, one in found.items() if one.alike} == {
        ("math500", "test"): (("test-22", "5", "x=5"),)
    }
    assert len(found) >= 30 and sum(one.records for one in found.values()) > 9000

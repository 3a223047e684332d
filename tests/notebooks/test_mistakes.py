"""The mistakes that exercises know are mistakes, and each gets its own hint."""

import nbformat
import pytest

from agpo_core import paths
from agpo_core.experiments import exercises

FILES = sorted(paths.notebooks().glob("*.ipynb"))
WITH = [file for file in FILES if "exercises.check(" in file.read_text(encoding="utf-8")]


@pytest.mark.slow
@pytest.mark.parametrize("file", WITH, ids=lambda file: file.stem)
def test_a_known_mistake_gets_its_hint(file, monkeypatch, tmp_path, capsys):
    asked = []
    check = exercises.check
    monkeypatch.setattr(paths, "runs", lambda: tmp_path)
    monkeypatch.setattr(exercises, "check", lambda *args: asked.append(args))
    namespace = {"In": [""]}
    for cell in nbformat.read(file, as_version=4).cells:
        if cell.cell_type == "code":
            namespace["In"].append(cell.source)
            exec(cell.source, namespace)
    exercise_args = [args for args in asked if len(args) == 4]
    assert exercise_args
    for _, truth, cases, mistakes in exercise_args:
        for hint, mistaken in mistakes.items():
            capsys.readouterr()
            check(mistaken, truth, cases, mistakes)
            printed = capsys.readouterr().out
            assert f"Hint: {hint}\n" in printed, (hint, printed)

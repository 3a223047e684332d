"""The project's folders are found, whatever the working directory."""

from pathlib import Path

import pytest

from agpo_core import paths


@pytest.fixture(autouse=True)
def no_override(monkeypatch):
    monkeypatch.delenv("AGPO_OUTPUTS", raising=False)


def test_paths_do_not_depend_on_the_working_directory(monkeypatch, tmp_path):
    here = [paths.root(), paths.runs(), paths.reference(), paths.params(), paths.notebooks()]
    monkeypatch.chdir(tmp_path)
    assert here == [
        paths.root(),
        paths.root() / "outputs" / "runs",
        paths.root() / "outputs" / "reference",
        paths.root() / "params",
        paths.root() / "notebooks",
    ]
    assert (paths.root() / "agpo_core" / "paths.py").is_file()
    assert paths.models() == paths.root() / "agpo_core" / "models"


def test_the_override_moves_what_is_written_and_not_what_is_committed(monkeypatch, tmp_path):
    monkeypatch.setenv("AGPO_OUTPUTS", str(tmp_path))
    assert paths.runs() == tmp_path.resolve() / "runs"
    assert paths.reference() == paths.root() / "outputs" / "reference"


def test_a_run_folder_is_named_by_arm_seed_start_and_hash():
    folder = paths.run_dir("agpo_table1", "tiny", "agpo", 42, "tiny-llama", "1c9e44a07b")
    assert folder == paths.runs() / "agpo_table1" / "tiny" / "agpo-s42-tiny-llama-1c9e44a07b"


def test_outside_a_checkout_the_error_says_how_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "_PACKAGE", Path(tmp_path) / "agpo_core")
    with pytest.raises(FileNotFoundError, match="pip install -e"):
        paths.root()

"""Computed tables: replayed as they were recorded, computed once, never promoted from uncommitted code."""

import pandas as pd
import pytest

from agpo_core import paths, provenance
from agpo_core.experiments import computed

COMMIT = 40 * "a"


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    monkeypatch.setenv("AGPO_OUTPUTS", str(tmp_path / "outputs"))
    monkeypatch.setattr(provenance, "git_commit", lambda: COMMIT)
    return tmp_path


@pytest.fixture
def thirds():
    """A function that counts its calls."""

    def compute(n):
        compute.calls += 1
        return pd.DataFrame({"k": range(n), "third": [k / 3 for k in range(n)]})

    compute.calls = 0
    return compute


def test_a_table_is_computed_once_and_read_back_as_written(repository, thirds):
    first = computed.table("t", thirds, {"n": 3}, "notebook", "tiny", "train")
    again = computed.table("t", thirds, {"n": 3}, "notebook", "tiny", "train")
    assert thirds.calls == 1
    assert first.equals(again)
    assert first["third"].tolist() == [0.0, 0.33333333, 0.66666667]  # eight digits


@pytest.mark.parametrize("change", ["parameters", "commit", "dirty"])
def test_other_parameters_or_other_code_compute_anew(repository, thirds, monkeypatch, change):
    computed.table("t", thirds, {"n": 3}, "notebook", "tiny", "train")
    if change == "commit":
        monkeypatch.setattr(provenance, "git_commit", lambda: 40 * "b")
    if change == "dirty":
        monkeypatch.setattr(provenance, "git_commit", lambda: f"{COMMIT}-dirty")
    computed.table("t", thirds, {"n": 4 if change == "parameters" else 3}, "notebook", "tiny", "train")
    assert thirds.calls == 2


def test_a_promoted_table_is_replayed_without_computing(repository, thirds):
    made = computed.table("t", thirds, {"n": 3}, "notebook", "tiny", "train")
    assert computed.main(["promote", "notebook", "tiny"]) == 0
    replayed = computed.table("t", thirds, {"n": 3}, "notebook", "tiny", "replay")
    assert replayed.equals(made) and thirds.calls == 1
    about = computed.about("t", "notebook", "tiny", "replay")
    assert (about["params"], about["commit"]) == ({"n": 3}, COMMIT)


def test_a_replay_without_a_record_or_with_other_parameters_says_what_to_do(repository, thirds):
    with pytest.raises(FileNotFoundError, match="no record of t .*train"):
        computed.table("t", thirds, {"n": 3}, "notebook", "tiny", "replay")
    computed.table("t", thirds, {"n": 3}, "notebook", "tiny", "train")
    computed.promote("notebook", "tiny")
    with pytest.raises(ValueError, match="other n: .*train"):
        computed.table("t", thirds, {"n": 4}, "notebook", "tiny", "replay")


@pytest.mark.parametrize("commit", [f"{COMMIT}-dirty", "unknown"])
def test_nothing_from_uncommitted_code_becomes_the_record(repository, thirds, monkeypatch, capsys, commit):
    monkeypatch.setattr(provenance, "git_commit", lambda: commit)
    computed.table("t", thirds, {"n": 3}, "notebook", "tiny", "train")
    assert computed.main(["promote", "notebook", "tiny"]) == 1
    assert "commit the code" in capsys.readouterr().err
    assert not paths.reference().exists()


def test_promoting_nothing_is_an_error(repository, capsys):
    assert computed.main(["promote", "notebook", "tiny"]) == 1
    assert "nothing was computed" in capsys.readouterr().err

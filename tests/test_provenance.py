"""Provenance of a run, and files that survive a crash or a full disk."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agpo_core import paths, provenance
from agpo_core.config import NUMERICS_VERSION, TrainConfig


@pytest.fixture
def repository(tmp_path):
    """A git checkout with one commit."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "code.py").write_text("a = 1\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "-qm", "first")
    return folder


def git(folder, *words):
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    done = subprocess.run(["git", *words], cwd=folder, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def full_disk(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_clean_checkout_is_its_commit(repository):
    assert provenance.git_commit(repository) == git(repository, "rev-parse", "HEAD")


@pytest.mark.parametrize("changed", ["code.py", "new.py"])
def test_a_changed_or_new_file_makes_the_checkout_dirty(repository, changed):
    (repository / changed).write_text("a = 2\n")
    assert provenance.git_commit(repository) == git(repository, "rev-parse", "HEAD") + "-dirty"


def test_results_do_not_make_the_checkout_dirty(repository):
    (repository / "outputs").mkdir()
    (repository / "outputs" / "eval.json").write_text("{}\n")
    assert not provenance.git_commit(repository).endswith("-dirty")


def test_a_git_hook_of_another_repository_does_not_mislead(repository, monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert provenance.git_commit(repository) == git(repository, "rev-parse", "HEAD")


def test_a_copy_inside_another_repository_has_no_commit(repository):
    copy = repository / "site-packages"
    copy.mkdir()
    assert provenance.git_commit(copy) == "unknown"


def test_a_record_says_what_ran_from_what_and_where():
    config = TrainConfig(method="agpo", seed=7)
    record = provenance.collect([sys.executable, "-m", "module"], config)
    assert record["status"] == "running"
    assert record["command"] == "python -m module"
    assert record["python"] == ".".join(map(str, sys.version_info[:3]))
    assert (record["method"], record["seed"], record["hash"]) == ("agpo", 7, config.hash())
    assert record["numerics_version"] == NUMERICS_VERSION
    assert record["commit"] and record["started"].endswith("+00:00")
    assert record["hardware"]["cores"] >= 1 and record["hardware"]["cpu"]
    assert record["versions"]["torch"]
    assert record["ranks"] == 1
    assert json.loads(json.dumps(record)) == record


def test_versions_leave_out_what_is_not_installed(monkeypatch):
    monkeypatch.setattr(provenance, "PACKAGES", ("torch", "no-such-package"))
    assert list(provenance.versions()) == ["torch"]


def test_a_command_names_no_folder_of_the_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("AGPO_OUTPUTS", str(tmp_path))
    words = [sys.executable, "-m", "train", "--run-dir", str(tmp_path.resolve() / "runs" / "a")]
    assert provenance.portable(words) == "python -m train --run-dir outputs/runs/a"
    assert provenance.portable([str(paths.params() / "tiny.yaml")]) == "params/tiny.yaml"
    beside = paths.root().with_name(paths.root().name + "-data")  # not in the repository, whatever its name begins with
    words = ["--data-dir", str(beside / "official"), f"--out={paths.root() / 'a'}", "--model=/models/x/policy"]
    assert provenance.portable(words) == "--data-dir official --out=a --model=policy"


def test_a_record_is_concluded_by_the_exit_status():
    record = {"status": "running", "started": "2000-01-01T00:00:00.000+00:00", "seed": 7}
    finished = provenance.conclude(record, 0)
    assert finished["status"] == "finished" and finished["exit_status"] == 0
    assert finished["seed"] == 7 and "error" not in finished
    assert finished["seconds"] > 365 * 24 * 3600  # since 2000
    failed = provenance.conclude(record, 1, "ValueError: no")
    assert (failed["status"], failed["error"]) == ("failed", "ValueError: no")
    assert record["status"] == "running"


def test_json_is_written_whole_and_read_back(tmp_path):
    path = tmp_path / "eval.json"
    provenance.write_json(path, {"old": 1})
    provenance.write_json(path, {"macro": 0.5, "task": "应用题"})
    assert provenance.read_json(path) == {"macro": 0.5, "task": "应用题"}
    assert os.listdir(tmp_path) == ["eval.json"]


def test_a_full_disk_leaves_the_old_file_and_a_clear_error(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    provenance.write_json(path, {"status": "running"})
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="Finished runs are untouched.*run.json") as caught:
        provenance.write_json(path, {"status": "finished"})
    assert caught.value.errno == errno.ENOSPC
    assert provenance.read_json(path) == {"status": "running"}
    assert os.listdir(tmp_path) == ["run.json"]


def test_a_crash_before_the_replacement_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    provenance.write_json(path, {"status": "running"})

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        provenance.write_json(path, {"status": "finished"})
    assert provenance.read_json(path) == {"status": "running"}


def test_other_errors_of_the_disk_pass_unchanged(tmp_path):
    with pytest.raises(FileNotFoundError):
        provenance.write_json(tmp_path / "missing" / "run.json", {})


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_appending_to_a_full_disk_is_a_clear_error():
    with pytest.raises(OSError, match="no disk space left.*'/dev/full'"):
        provenance.append_jsonl("/dev/full", {"update": 1})


def test_damaged_json_names_the_file_and_the_remedy(tmp_path):
    (tmp_path / "run.json").write_text('{"status": ')
    with pytest.raises(ValueError, match=r"run\.json is damaged .* delete it and run again"):
        provenance.read_json(tmp_path / "run.json")


def test_a_file_torn_anywhere_loses_its_last_line_alone(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = [{"update": 1}, {"update": 2}, {"update": 3}]
    for row in rows:
        provenance.append_jsonl(path, row)
    content = path.read_bytes()
    assert len(content) == 42  # three lines of 13 characters and a newline
    for cut in range(42):
        path.write_bytes(content[:cut])
        whole = rows[: cut // 14]
        assert provenance.read_jsonl(path) == whole
        provenance.append_jsonl(path, {"update": 9})
        assert provenance.read_jsonl(path) == [*whole, {"update": 9}]


def test_a_line_damaged_in_the_middle_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"update": 1}\n{"upda\n{"update": 3}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl is damaged in line 2"):
        provenance.read_jsonl(path)

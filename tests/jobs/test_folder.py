"""A run's folder: one process at a time, damage is named or repaired, and no other run goes on in it."""

import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys

import pytest

from agpo_core import paths, provenance
from agpo_core.config import FIELDS, ConfigError, TrainConfig
from agpo_core.jobs import folder, launch
from agpo_core.jobs.folder import FolderError
from agpo_core.tasks import get_task
from agpo_core.training import checkpoint
from agpo_core.training import run as run_module
from agpo_core.training import train as module
from agpo_core.training.journal import Journal
from agpo_core.training.optimisation import learning_rate
from agpo_core.training.run import Run
from agpo_core.training.update import Learner, Sampler, check_gradient
from tests.conftest import Toy

pytestmark = pytest.mark.usefixtures("toy_tasks", "fresh_accelerator")

TIMES = ("seconds", "seconds_left")
RESULT = ("metrics.jsonl", "eval.json", "samples.jsonl", "policy/model.safetensors")


def start(run_dir):
    """Run the training command, as if started by hand."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["train", "--run-dir", str(run_dir)])
        module.main()


def result(run_dir):
    """All results of a run, without times."""
    rows = provenance.read_jsonl(run_dir / "metrics.jsonl")
    untimed = [{name: value for name, value in row.items() if name not in TIMES} for row in rows]
    return [untimed, *((run_dir / name).read_bytes() for name in RESULT[1:])]


def content(run_dir):
    return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in run_dir.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def small(config):
    """Three updates, a checkpoint after each."""
    return lambda **params: config(**{"dev_problems": 2, "test_problems": 2, "checkpoint_every": 0.3, **params})


@pytest.fixture(scope="module")
def finished(small, toy_tasks, tmp_path_factory):
    """The folder of a finished run, not to be changed."""
    run_dir = tmp_path_factory.mktemp("runs") / "finished"
    run_dir.mkdir()
    small().save(run_dir / "config.yaml")
    start(run_dir)
    return run_dir


@pytest.fixture(scope="module")
def half(small, toy_tasks, tmp_path_factory):
    """The folder of a run that was broken off after its second update, not to be changed."""
    run_dir = tmp_path_factory.mktemp("runs") / "half"
    run_dir.mkdir()
    small().save(run_dir / "config.yaml")
    module.train(small(), run_dir, stop_after=2)
    return run_dir


@pytest.fixture(params=["finished", "half"])
def copied(request, tmp_path):
    """A copy of either folder."""
    return shutil.copytree(request.getfixturevalue(request.param), tmp_path / "copy")


# -- one process at a time


def in_another_process(call):
    """The text of the error that a call raised in a forked process; empty if none."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            call()
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as file:
        return file.read()


def test_a_second_process_is_refused_by_name_and_writes_nothing(copied):
    if (copied / "run.json").exists():  # without it, a finished run is left alone before any lock is taken
        (copied / "policy" / "model.safetensors").unlink()
    with folder.locked(copied):
        before = content(copied)
        for call in (lambda: start(copied), lambda: launch.launch([copied])):
            said = in_another_process(call)
            assert f"FolderError: {copied} is being trained by process {os.getpid()}: wait for it or end it" in said
            assert "at most 300 s later" in said
        assert content(copied) == before
    assert in_another_process(lambda: folder.refuse_if_used(copied)) == ""


# -- edited settings


@pytest.mark.parametrize("name", [*FIELDS, "numerics_version", "ranks", "trainer", "model's content", "problems"])
def test_whatever_changes_numbers_is_refused_by_name_and_nothing_else(half, small, name):
    saved = json.loads((half / "checkpoint" / "manifest.json").read_text())["run"]
    now = json.loads(json.dumps(saved))
    if name in FIELDS:
        old = now["settings"][name]
        now["settings"][name] = "another" if isinstance(old, (str, list, type(None))) else not old if old in (
            True, False) and isinstance(old, bool) else old - 1 if name == "horizon" else old + 1  # fmt: skip
    elif name == "model's content":
        now["contents"]["model"] = "f" * 20
    elif name == "problems":
        now["contents"]["problems"] = "f" * 20
    else:
        now[name] = f"{now[name]}1"
    if name in checkpoint.FREE - {"reward_model"}:  # there was none, so that no content can be the same
        assert checkpoint.refuse_another(half, now) is None
        return
    word = name.split("'")[0]
    with pytest.raises(ConfigError, match=f"made with other settings: {word}(:| .* → ).*Put them back to go on"):
        checkpoint.refuse_another(half, now)


@pytest.mark.parametrize(
    "params", [{"seed": 7}, {"tasks": ["other"]}, {"horizon": 2.0}, {"learning_rate": 1.0e-4}, {"method": "dr_grpo"}]
)
def test_a_run_with_an_edited_file_is_refused_and_its_folder_left_as_it_was(copied, small, params):
    small(**params).save(copied / "config.yaml")
    before = {path: kept for path, kept in content(copied).items() if path.name != ".lock"}
    with pytest.raises(ConfigError, match=next(iter(params))):
        start(copied)
    assert {path: kept for path, kept in content(copied).items() if path.name != ".lock"} == before
    assert not folder.is_finished(copied)


def test_a_longer_horizon_extends_a_run_and_says_so(copied, small):
    small(horizon=6.0).save(copied / "config.yaml")
    assert not folder.is_finished(copied)
    with pytest.warns(UserWarning, match="the horizon was 3, and is 6 updates from update [23] on"):
        start(copied)
    rows = provenance.read_jsonl(copied / "metrics.jsonl")
    assert [row["update"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [row["progress"] for row in rows[3:]] == [4 / 6, 5 / 6, 1.0]
    assert rows[4]["learning_rate"] == learning_rate(small(), 4 / 6)
    assert provenance.read_json(copied / "run.json")["hash"] == small(horizon=6.0).hash()
    assert folder.is_finished(copied)
    assert "horizon_extended" in (copied / "warnings.jsonl").read_text()


def test_settings_that_change_nothing_to_come_may_be_edited(half, small, tmp_path):
    run_dir = shutil.copytree(half, tmp_path / "run")
    moved = shutil.copytree(small().model, tmp_path / "moved model")  # the same content elsewhere
    small(checkpoint_every=1.0, test_problems=3, model=str(moved)).save(run_dir / "config.yaml")
    start(run_dir)
    assert provenance.read_json(run_dir / "eval.json")["test"]["problems"] == 3


def test_a_model_that_changed_under_its_name_is_refused(copied, small, tmp_path, request):
    """Also a model of the same shape, which differs only in its content."""
    model = tmp_path / "model"
    shutil.copytree(small().model, model)
    small(model=str(model)).save(copied / "config.yaml")
    if (copied / "run.json").exists():
        record = provenance.read_json(copied / "run.json")
        provenance.write_json(copied / "run.json", record | {"hash": small(model=str(model)).hash()})
        assert folder.is_finished(copied)
    weights = bytearray((model / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (model / "model.safetensors").write_bytes(weights)
    assert not folder.is_finished(copied)
    with pytest.raises((ConfigError, FolderError), match="content of .*model"):
        start(copied)


# -- damage


def cut(content, _):
    return content[: len(content) // 2]


def flip(content, rng):
    at = rng.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]


def empty(*_):
    return b""


def missing(*_):
    return None


def twice(content, _):
    return content + content


def damage(path, how, rng):
    changed = how(path.read_bytes(), rng)
    path.unlink()
    if changed is not None:
        path.write_bytes(changed)


def ends_well_or_is_refused(run_dir, expected):
    """Run the command: it makes the straight run's result, or refuses in one line that names a file or setting."""
    try:
        start(run_dir)
    except (ConfigError, FolderError) as error:
        assert "\n" not in str(error) and len(str(error)) < 600
        return False
    assert result(run_dir) == expected
    assert folder.is_finished(run_dir)
    return True


FILES = {
    "half": ["checkpoint/model.safetensors", "checkpoint/optimizer.bin", "checkpoint/random_states_0.pkl",
             "checkpoint/state.json", "checkpoint/manifest.json", "checkpoint/metrics.jsonl",
             "checkpoint/samples.jsonl", "metrics.jsonl", "samples.jsonl", "eval.json", "config.yaml"],
    "finished": ["policy/model.safetensors", "policy/config.json", "policy/tokenizer.json", "eval.json",
                 "metrics.jsonl", "run.json", "config.yaml"],
}  # fmt: skip
MENDED = ("metrics.jsonl", "samples.jsonl", "eval.json", "policy")


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in FILES.items() for name in names])
def test_a_damaged_file_is_mended_or_named(request, finished, tmp_path, kind, name):
    source, rng = request.getfixturevalue(kind), random.Random(name)
    for how in rng.sample([cut, flip, empty, missing, twice], 3):
        run_dir = shutil.copytree(source, tmp_path / how.__name__)
        damage(run_dir / name, how, rng)
        if kind == "finished" and name != "config.yaml":
            assert name == "run.json" or how is flip or not folder.is_finished(run_dir)
        mended = ends_well_or_is_refused(run_dir, result(finished))
        if name.startswith(MENDED):
            assert mended, how
        elif name.startswith("checkpoint"):
            assert not mended, how


@pytest.mark.parametrize("command", [start, lambda one: launch.launch([one])])
@pytest.mark.parametrize(
    "name", [*folder.WRITTEN, *(name + end for name in folder.FOLDERS for end in ("", ".partial", ".former"))]
)
def test_what_stands_in_the_way_of_a_files_place_is_named_before_anything_is_trained(small, tmp_path, name, command):
    small().save(tmp_path / "config.yaml")
    if name in folder.WRITTEN:
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(FolderError, match=f"/{name} is no f(ile|older).*: move it away"):
        command(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", [".", *folder.WRITTEN, *folder.FOLDERS])
def test_what_may_not_be_written_is_named(tmp_path, monkeypatch, name):
    for path in [*folder.WRITTEN]:
        (tmp_path / path).touch()
    for path in folder.FOLDERS:
        (tmp_path / path).mkdir()
    folder.refuse_obstacles(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path / name)  # root may all
    with pytest.raises(FolderError, match="cannot be (read and )?written: get the permission to"):
        folder.locked(tmp_path).__enter__()


def test_every_flipped_byte_of_a_manifest_is_seen(half, tmp_path):
    """Also one that leaves a setting of another value, or another key."""
    run_dir = shutil.copytree(half, tmp_path / "run")
    path, run = run_dir / "checkpoint" / "manifest.json", checkpoint.identity(TrainConfig())
    content, rng = path.read_bytes(), random.Random(0)
    text = content.decode()
    edits = [text.replace(*pair, 1) for pair in [('"contents"', '"contentz"'), ('"ranks"', '"rankz"'), ("42", "43")]]
    for changed in [flip(content, rng) for _ in range(200)] + [edit.encode() for edit in edits]:
        if changed.lower() == content.lower():  # 1E-06 is 1e-06
            continue
        path.write_bytes(changed)
        with pytest.raises(FolderError, match=r"checkpoint is damaged: manifest\.json"):
            checkpoint.refuse_another(run_dir, run)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"tasks": ["stepz"]}, "^tasks: unknown task 'stepz'; use one of"),
        ({"test_tasks": ["stepz"]}, "^test_tasks: unknown task 'stepz'; use one of"),
        ({"tasks": ["gsm8k"], "data_dir": "/gone"}, "data_dir: no folder '/gone'; give one with"),
        ({"decontaminate": ["steps:x"]}, "^decontaminate: 'steps:x' names the split 'x'; use one of train, dev"),
        ({"decontaminate": ["nope"]}, "^decontaminate: unknown task 'nope'; use one of"),
    ],
)
def test_a_task_that_cannot_be_had_is_refused_by_its_setting(small, tmp_path, monkeypatch, params, message):
    def found(name, *rest):
        return Toy(name) if name == "toy" else get_task(name, *rest)

    monkeypatch.setattr(run_module, "get_task", found)
    small(**params).save(tmp_path / "config.yaml")
    with pytest.raises(ConfigError, match=message) as caught:
        start(tmp_path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "metrics.jsonl").exists()


def test_a_link_to_nowhere_in_a_models_folder_is_passed_over(half, small, tmp_path):
    model = shutil.copytree(small().model, tmp_path / "model")
    (model / "notes").symlink_to(tmp_path / "gone")
    run_dir = shutil.copytree(half, tmp_path / "run")
    small(model=str(model)).save(run_dir / "config.yaml")
    start(run_dir)
    assert folder.is_finished(run_dir)


def test_what_was_found_is_not_trained_over_where_only_the_policy_is_gone(finished, tmp_path):
    """As in a folder whose checkpoint and weights were deleted for space, or were never committed."""
    run_dir = shutil.copytree(finished, tmp_path / "run")
    shutil.rmtree(run_dir / "checkpoint")
    shutil.rmtree(run_dir / "policy")
    before = content(run_dir)
    with pytest.raises(FolderError, match=r"policy/.* is missing, and there is no checkpoint .*: put the files back"):
        start(run_dir)
    assert content(run_dir) == before


@pytest.mark.parametrize(
    "written", [b"[]", b"7", b"{}", b'{"status": "done"}', b'{"status": ["finished"]}', b"\xff\xfe", b"",
                b'{"status": "finished", "files": 3}', b"[" * 100_000]
)  # fmt: skip
def test_a_record_that_is_none_is_named_with_its_remedy(half, tmp_path, written):
    run_dir = shutil.copytree(half, tmp_path / "run")
    (run_dir / "run.json").write_bytes(written)
    for call in (start, lambda one: launch.launch([one]), folder.is_finished):
        with pytest.raises(FolderError, match=r"run\.json is damaged .*delete it and run again"):
            call(run_dir)


@pytest.mark.parametrize("lines", [slice(1, None), slice(None, 1), slice(0, 0)])
def test_lines_lost_or_doubled_before_the_checkpoint_come_back_from_it(half, finished, tmp_path, capsys, lines):
    run_dir = shutil.copytree(half, tmp_path / "run")
    rows = (run_dir / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run_dir / "metrics.jsonl").write_bytes(b"".join([*rows[lines], *rows[lines]]))
    start(run_dir)
    assert "metrics.jsonl lost or changed lines from before the checkpoint: it is restored" in capsys.readouterr().out
    assert result(run_dir) == result(finished)


def test_leftovers_of_checkpoints_are_removed_and_the_former_serves_where_the_newest_is_damaged(
    half, finished, tmp_path, capsys
):
    run_dir = shutil.copytree(half, tmp_path / "run")
    shutil.copytree(run_dir / "checkpoint", run_dir / "checkpoint.former")
    shutil.copytree(run_dir / "checkpoint", run_dir / "checkpoint.partial")
    (run_dir / "checkpoint" / "optimizer.bin").write_bytes(b"")
    start(run_dir)
    assert "optimizer.bin has 0 bytes, not" in (out := capsys.readouterr().out)
    assert "The checkpoint before it is used." in out
    assert [path.name for path in run_dir.glob("checkpoint*")] == ["checkpoint"]
    assert result(run_dir) == result(finished)


def test_a_checkpoint_that_would_run_code_is_refused(half, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "code ran"),)

    run_dir = shutil.copytree(half, tmp_path / "run")
    path, manifest = run_dir / "checkpoint" / "optimizer.bin", run_dir / "checkpoint" / "manifest.json"
    path.write_bytes(pickle.dumps(Evil()))
    found = provenance.read_json(manifest)
    found["files"]["optimizer.bin"] = [path.stat().st_size, folder.checksum(path)]  # as in a forged list
    provenance.write_json(manifest, checkpoint.sealed(found["run"], found["files"]))
    with pytest.raises(FolderError, match="objects other than weights.*not loaded"):
        start(run_dir)
    assert not (tmp_path / "code ran").exists()


# -- signals


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("where", ["prompts", "step", "log", "evaluate_dev", "save", "finish", "__init__"])
def test_a_signal_lets_the_update_end_and_the_run_goes_on_bit_for_bit(
    small, finished, tmp_path, monkeypatch, capsys, where, signum
):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    every = 0.3 if where == "save" else 1.0  # so that only the signal writes a checkpoint
    small(checkpoint_every=every).save(run_dir / "config.yaml")
    owner = {"prompts": Sampler, "step": Learner, "log": Journal}.get(where, Run)
    whole = getattr(owner, where)

    def updates(self, arguments):
        return arguments[-1] if where in ("prompts", "step") else self.horizon.updates

    def signalled(self, *arguments):
        if where in ("finish", "__init__") or updates(self, arguments) == 1:
            monkeypatch.setattr(owner, where, whole)
            signal.raise_signal(signum)
        return whole(self, *arguments)

    monkeypatch.setattr(owner, where, signalled)
    handlers = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
    try:
        with pytest.raises(SystemExit) as left:
            start(run_dir)
        assert left.value.code == 128 + signum
        record = provenance.read_json(run_dir / "run.json")
        assert (record["status"], record["exit_status"]) == ("interrupted", 128 + signum)
        assert record["error"] == f"stopped by {signum.name}"
        assert f"stopped by {signum.name}. The same command goes on" in capsys.readouterr().err
        if where != "__init__":
            assert (run_dir / "checkpoint").is_dir()
    finally:
        for one, handler in zip((signal.SIGTERM, signal.SIGINT), handlers, strict=True):
            signal.signal(one, handler)
    start(run_dir)
    assert result(run_dir) == result(finished)


def test_a_second_signal_leaves_at_once():
    code = """
import signal, sys
from agpo_core.jobs.interrupts import Interrupts
with Interrupts(print) as interrupts:
    interrupts.hold()
    signal.raise_signal(signal.SIGTERM)
    print("still here", flush=True)
    signal.raise_signal(signal.SIGINT)
    print("too late", flush=True)
"""
    env = {k: v for k, v in os.environ.items() if k != "LOCAL_RANK"} | {"PYTHONPATH": str(paths.root())}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == -signal.SIGINT
    assert done.stdout == "SIGTERM\nstill here\n"
    assert "a second signal stops at once" in done.stderr


# -- what is printed


def test_a_run_started_by_hand_tells_how_far_it_is(half, tmp_path, capsys):
    run_dir = shutil.copytree(half, tmp_path / "half")
    start(run_dir)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "half  goes on after update 2"
    assert lines[1].startswith("half  3 updates  100% of horizon  reward")


def test_a_full_disk_and_a_lack_of_memory_come_with_a_remedy(half, tmp_path, monkeypatch):
    from safetensors import SafetensorError

    failures = {
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"): "free some space",
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"): "Lower rollout_batch",
        MemoryError("std::bad_alloc"): "Lower rollout_batch",
    }
    for i, (failure, remedy) in enumerate(failures.items()):
        run_dir = shutil.copytree(half, tmp_path / str(i))

        def fail(*_, failure=failure):
            raise failure

        with monkeypatch.context() as patch:
            patch.setattr(run_module.policy, "save_policy", fail)
            with pytest.raises(Exception) as caught:
                start(run_dir)
        assert remedy in f"{caught.value} {getattr(caught.value, '__notes__', '')}"
        assert provenance.read_json(run_dir / "run.json")["status"] == "failed"
        start(run_dir)


@pytest.mark.parametrize(("beta", "advice"), [(0.03, "raise beta"), (900.0, "lower beta, which is 900")])
def test_a_gradient_that_is_not_finite_is_met_with_fitting_advice(beta, advice):
    with pytest.raises(FloatingPointError, match=f"Lower learning_rate, or {advice}"):
        check_gradient(float("inf"), beta, update=0)

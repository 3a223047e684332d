"""Jobs are started, watched and ended; small scripts stand in for training."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from agpo_core import paths, provenance
from agpo_core.jobs import launch, progress, silence, supervise

# The functions that every stand-in script can use; its folder is its argument.
PRELUDE = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
folder = Path(sys.argv[1])

def log(**row):
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(json.dumps(row) + "\\n")

def status(word):
    (folder / "new.json").write_text(json.dumps(
        {"status": word, "started": "2000-01-01T00:00:00+00:00"}))
    os.replace(folder / "new.json", folder / "run.json")

def wait_for(path):
    deadline = time.monotonic() + 10
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.01)

def child():
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    (folder / "child.new").write_text(str(process.pid))
    os.replace(folder / "child.new", folder / "child")
"""
FINISH = "status('finished')"
HANG = "status('running'); child(); time.sleep(60)"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Make a run folder whose job is a given script."""

    def make(name: str, script: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.yaml").touch()
        (folder / "job.py").write_text(PRELUDE + script)
        return folder

    monkeypatch.setattr(launch, "command", job_command)
    monkeypatch.setattr(launch, "POLL", 0.02)
    return make


def job_command(run_dir, *_):
    return [sys.executable, "-S", str(run_dir / "job.py"), str(run_dir)]


def is_gone(pid: int) -> bool:
    """Whether a process has ended, even if its parent has not reaped it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_the_command_of_one_process():
    assert launch.command("runs/a") == [
        sys.executable, "-m", "agpo_core.training.train", "--run-dir", "runs/a",
    ]  # fmt: skip


def test_the_command_under_deepspeed():
    assert launch.command("runs/a", "deepspeed", 2, "hosts", 29501) == [
        sys.executable, "-m", "deepspeed.launcher.runner", "--num_accelerators", "2",
        "--no_local_rank", "--hostfile", "hosts", "--master_port", "29501",
        "--module", "agpo_core.training.train", "--run-dir", "runs/a",
    ]  # fmt: skip


def test_deepspeed_understands_the_command():
    runner = pytest.importorskip("deepspeed.launcher.runner")
    arguments = runner.parse_args(launch.command("runs/a", "deepspeed", 2, "hosts", 29501)[3:])
    assert (arguments.num_gpus, arguments.hostfile, arguments.master_port) == (2, "hosts", 29501)
    assert (arguments.module, arguments.no_local_rank) == (True, True)
    assert arguments.user_script == "agpo_core.training.train"
    assert arguments.user_args == ["--run-dir", "runs/a"]


def test_a_cpu_gets_one_thread_a_process_unless_told_otherwise(monkeypatch):
    monkeypatch.setattr(launch.torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("DS_ACCELERATOR", raising=False)
    assert launch.environment()["OMP_NUM_THREADS"] == "1"
    assert launch.environment()["DS_ACCELERATOR"] == "cpu"
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert launch.environment()["OMP_NUM_THREADS"] == "4"


def test_a_gpu_keeps_its_defaults(monkeypatch):
    monkeypatch.setattr(launch.torch.cuda, "is_available", lambda: True)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("DS_ACCELERATOR", raising=False)
    assert not {"OMP_NUM_THREADS", "DS_ACCELERATOR"} & launch.environment().keys()


def test_a_run_is_trained_and_its_progress_told_at_each_quarter(run, monkeypatch):
    folder = run("agpo-s42-1c9e44a07b", """
print("to standard output"); print("to standard error", file=sys.stderr)
for update in range(1, 9):
    log(update=update, progress=update / 8, reward=update / 10, tau=1.0, epsilon=0.05,
        seconds_left=10.0 * (8 - update))
    if update in (2, 4, 6):
        wait_for(folder / f"told {update // 2}")
status("finished")
""")  # fmt: skip
    lines = []

    def tell(line, flush):
        lines.append(line)
        (folder / f"told {len(lines)}").touch()

    monkeypatch.setattr(progress, "print", tell, raising=False)
    launch.launch([folder])
    name = "agpo-s42-1c9e44a07b"
    assert lines[:3] == [
        f"{name}  2 updates  25% of horizon  reward 0.20  tau 1.00  eps 0.05  60 s left",
        f"{name}  4 updates  50% of horizon  reward 0.40  tau 1.00  eps 0.05  40 s left",
        f"{name}  6 updates  75% of horizon  reward 0.60  tau 1.00  eps 0.05  20 s left",
    ]
    assert lines[3].startswith(f"{name}  finished  8 updates  100% of horizon  reward 0.80")
    assert lines[3].endswith(" s in all") and len(lines) == 4
    log = (folder / "train.log").read_text()
    assert "to standard output" in log and "to standard error" in log


def test_silence_on_request(run, capsys):
    launch.launch([run("a", FINISH)], progress=False)
    assert capsys.readouterr().out == ""


def test_a_watched_notebook_gets_one_display_updated_in_place(run, capsys, monkeypatch):
    folder = run("a", "log(update=1, progress=0.5); wait_for(folder / 'seen'); " + FINISH)
    texts = []

    class Display:
        def update(self, data, raw):
            texts.append(data["text/plain"])
            if "50%" in texts[-1]:
                (folder / "seen").touch()

    monkeypatch.setattr(progress, "live_display", Display)
    launch.launch([folder])
    assert "a  1 updates  50% of horizon\n0 finished, 0 failed, 0 waiting" in texts
    assert texts[-1] == "1 finished, 0 failed, 0 waiting"
    assert len(texts) == len(set(texts))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("watched", [True, False])
def test_a_notebook_is_watched_when_it_can_be_asked_for_input(monkeypatch, watched):
    ipython = pytest.importorskip("IPython")
    message = {"content": {"allow_stdin": watched}}
    shell = SimpleNamespace(kernel=SimpleNamespace(get_parent=lambda: message))
    monkeypatch.setattr(ipython, "get_ipython", lambda: shell)
    monkeypatch.setattr(ipython.display, "display", lambda *_, **__: "display")
    assert progress.live_display() == ("display" if watched else None)


def test_outside_a_notebook_nothing_is_displayed():
    assert progress.live_display() is None


@pytest.mark.parametrize("seconds, text", [(0, "0 s"), (99, "99 s"), (100, "2 min"), (5400, "90 min"), (9000, "2.5 h")])
def test_durations_are_short(seconds, text):
    assert progress.duration(seconds) == text


def test_two_runs_side_by_side_and_a_third_waits(run):
    # a and b each end only once they have seen the other; c sees what had finished before it.
    meet = "(folder / 'here').touch(); wait_for(folder.parent / {!r} / 'here'); "
    a = run("a", meet.format("b") + FINISH)
    b = run("b", meet.format("a") + "wait_for(folder.parent / 'a' / 'run.json'); " + FINISH)
    c = run("c", "print('a finished:', (folder.parent / 'a' / 'run.json').exists()); " + FINISH)
    launch.launch([a, b, c], parallel=2)
    assert all(launch.is_finished(folder) for folder in (a, b, c))
    assert "a finished: True" in (c / "train.log").read_text()


def test_a_finished_run_is_left_as_it_is(run):
    folder = run("a", FINISH)
    launch.launch([folder])
    before = {path: path.read_bytes() for path in folder.iterdir()}
    launch.launch([folder, folder])
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_failure_lets_others_finish_starts_no_more_and_shows_the_log(run):
    done = run("done", FINISH)
    launch.launch([done])
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in done.iterdir()}

    bad = run("bad", """
status("running"); wait_for(folder.parent / "good" / "here")
print("\\n".join(f"line {i}" for i in range(100)))
raise ValueError("rewards are not finite")
""")  # fmt: skip
    good = run("good", """
(folder / "here").touch(); wait_for(folder.parent / "bad" / "run.json")
while json.loads((folder.parent / "bad" / "run.json").read_text())["status"] == "running":
    time.sleep(0.01)
status("finished")
""")  # fmt: skip
    never = run("never", FINISH)
    with pytest.raises(launch.JobFailed) as caught:
        launch.launch([done, bad, good, never], parallel=2)

    (failure,) = caught.value.failures
    assert (failure.run_dir, failure.exit_status) == (bad, 1)
    assert len(failure.tail.splitlines()) == 30
    assert failure.tail.endswith("ValueError: rewards are not finite")
    message = str(caught.value)
    assert "bad failed, exit status 1." in message and failure.tail in message
    assert message.endswith(
        "Failed: bad. Not started: 1. Finished runs are kept; launch again, and unfinished ones are resumed."
    )
    record = provenance.read_json(bad / "run.json")
    assert record["status"] == "failed" and record["exit_status"] == 1
    assert record["error"] == "ValueError: rewards are not finite"
    assert launch.is_finished(good)
    assert not (never / "run.json").exists()
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in done.iterdir()}
    assert after == before


def test_all_failures_are_named(run):
    a, b = run("a", "raise SystemExit(3)"), run("b", "raise SystemExit(4)")
    with pytest.raises(launch.JobFailed) as caught:
        launch.launch([a, b])
    statuses = {failure.run_dir: failure.exit_status for failure in caught.value.failures}
    assert statuses == {a: 3, b: 4}
    assert "a failed, exit status 3" in str(caught.value)
    assert "b failed, exit status 4" in str(caught.value)


def test_a_failed_run_can_be_launched_again_and_only_its_new_log_is_shown(run):
    folder = run("a", "raise ValueError('first')")
    with pytest.raises(launch.JobFailed):
        launch.launch([folder])
    (folder / "job.py").write_text(PRELUDE + "raise ValueError('second')")
    with pytest.raises(launch.JobFailed) as caught:
        launch.launch([folder])
    assert "second" in str(caught.value) and "first" not in str(caught.value)
    (folder / "job.py").write_text(PRELUDE + FINISH)
    launch.launch([folder])
    assert launch.is_finished(folder)
    assert "first" in (folder / "train.log").read_text()


def test_ending_well_without_a_finished_run_is_a_failure(run):
    with pytest.raises(launch.JobFailed, match="exit status 0"):
        launch.launch([run("a", "status('running')")])


def test_a_job_killed_from_outside_is_told_from_one_that_raised(run):
    folder = run("a", "status('running'); os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(launch.JobFailed, match="exit status 137.*memory ran out"):
        launch.launch([folder])
    assert provenance.read_json(folder / "run.json")["status"] == "failed"


@pytest.mark.parametrize(
    "words, remedy",
    [
        ("OSError: [Errno 28] No space left on device", "Free some disk space."),
        ("RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534", "Free some disk"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "Lower rollout_batch"),
        ("The server socket failed: Address already in use", "Leave master_port out"),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory",
            "Lower rollout",
        ),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "Lower rollout_batch"),
        ("OSError: [Errno 12] Cannot allocate memory", "Lower rollout_batch"),
        ("MemoryError", "Lower rollout_batch"),
        ("SafetensorError: I/O error: No space left on device (os error 28)", "Free some disk space."),
        ("KeyError: 'x'", "Its log says why."),
    ],
)
def test_common_failures_come_with_a_remedy(words, remedy):
    assert launch.Failure(Path("a"), 1, f"Traceback\n{words}").remedy.startswith(remedy)


def test_children_left_behind_by_a_job_are_ended(run):
    folder = run("a", "child(); " + FINISH)
    launch.launch([folder])
    assert is_gone(int((folder / "child").read_text()))


@pytest.mark.parametrize("raised", [KeyboardInterrupt, ZeroDivisionError])
def test_whatever_stops_the_caller_ends_the_jobs_and_their_children(run, monkeypatch, raised):
    folders = [run("a", HANG), run("b", HANG)]

    def interrupt(*_):
        if all((folder / "child").exists() for folder in folders):
            raise raised

    monkeypatch.setattr(progress.Progress, "update", interrupt)
    with pytest.raises(raised):
        launch.launch(folders)
    for folder in folders:
        assert is_gone(int((folder / "child").read_text()))
        record = provenance.read_json(folder / "run.json")
        assert record["status"] == "failed"
        assert record["error"] == f"stopped by {raised.__name__}"
        assert record["exit_status"] == 128 + signal.SIGTERM


@pytest.mark.parametrize("pipe_kept_open", [False, True])
def test_killing_the_caller_ends_the_job_and_its_children(run, pipe_kept_open):
    folder = run("a", "(folder / 'job').write_text(str(os.getpid())); " + HANG)
    caller = folder / "caller.py"
    caller.write_text(f"""
import os, sys, time
from pathlib import Path
from agpo_core.jobs import launch, progress

folder = Path(sys.argv[1])
forked = []

def fork_once(*_):  # a process forked from a notebook has copies of all its pipes
    if {pipe_kept_open} and not forked and (folder / "child").exists():
        forked.append(os.fork())
        if forked == [0]:
            time.sleep(60)
            os._exit(0)
        (folder / "forked.new").write_text(str(forked[0]))
        os.replace(folder / "forked.new", folder / "forked")

progress.Progress.update = fork_once
launch.command = lambda run_dir, *_: [sys.executable, "-S", str(folder / "job.py"), str(folder)]
launch.launch([folder])
""")
    env = dict(os.environ, PYTHONPATH=str(paths.root()))
    process = subprocess.Popen([sys.executable, str(caller), str(folder)], env=env)
    forked = folder / "forked"
    try:
        wait_until((forked if pipe_kept_open else folder / "child").exists, seconds=60)
        process.kill()
        process.wait()
        for name in ("job", "child"):
            wait_until(lambda: is_gone(int((folder / name).read_text())))
        if pipe_kept_open:
            assert not is_gone(int(forked.read_text()))
    finally:
        process.kill()
        if forked.exists():
            os.kill(int(forked.read_text()), signal.SIGKILL)


def test_a_job_that_ignores_sigterm_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(supervise, "GRACE", 0.3)
    script = (
        "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"pathlib.Path({str(tmp_path / 'ready')!r}).touch(); time.sleep(60)"
    )
    job = subprocess.Popen([sys.executable, "-S", "-c", script], start_new_session=True)
    wait_until((tmp_path / "ready").exists)
    supervise.end_group(job)
    assert job.returncode == -signal.SIGKILL


def test_ending_the_supervisor_itself_ends_the_job(tmp_path):
    ready = tmp_path / "ready"
    script = f"import pathlib, time; pathlib.Path({str(ready)!r}).touch(); time.sleep(60)"
    command = [sys.executable, "-S", "-c", script]
    process = subprocess.Popen(
        [sys.executable, "-IS", supervise.__file__, str(os.getpid()), *command],
        stdin=subprocess.PIPE,
    )
    wait_until(ready.exists)
    process.terminate()
    assert process.wait() == 128 + signal.SIGTERM  # the job's status, passed on
    process.stdin.close()


def test_only_whole_lines_of_the_metrics_are_read(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert launch.last_row(path) == {}
    path.write_text('{"update": 1}\n{"update": 2}\n{"upd')
    assert launch.last_row(path) == {"update": 2}
    path.write_text('{"update": 1}\n{"upd\n')
    assert launch.last_row(path) == {}


def test_a_run_with_torn_metrics_is_watched_to_its_end(run, capsys):
    folder = run("a", """
log(update=1, progress=0.5)
with open(folder / "metrics.jsonl", "a") as file:
    file.write('{"update": 2, "prog')
time.sleep(0.2)
status("finished")
""")  # fmt: skip
    launch.launch([folder])
    assert "a  finished  1 updates  50% of horizon" in capsys.readouterr().out


def test_no_disk_space_for_the_log_is_a_clear_error(run, monkeypatch):
    def full_disk(path, mode):
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(launch, "open", full_disk, raising=False)
    with pytest.raises(OSError, match="Finished runs are untouched.*train.log"):
        launch.launch([run("a", FINISH)])


def test_a_run_being_trained_elsewhere_is_refused(run):
    folder = run("a", FINISH)
    with launch._open_log(folder):
        with pytest.raises(RuntimeError, match="another process"):
            launch.launch([folder])
    launch.launch([folder])


def test_a_folder_without_settings_is_named_before_anything_starts(run, tmp_path):
    folder = run("a", FINISH)
    with pytest.raises(FileNotFoundError, match="empty has no config.yaml"):
        launch.launch([folder, tmp_path / "empty"])
    assert not (folder / "train.log").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"launcher": "torchrun"}, "launcher must be 'python' or 'deepspeed'"),
        ({"ranks": 2}, "need launcher='deepspeed'"),
        ({"launcher": "deepspeed", "ranks": 0}, "ranks must be at least 1"),
        ({"parallel": 0}, "parallel must be at least 1"),
        ({"launcher": "deepspeed", "master_port": 29500}, "set parallel=1"),
        ({"launcher": "deepspeed", "master_port": 0, "parallel": 1}, r"in \[1, 65535\]"),
    ],
)
def test_arguments_that_cannot_work_are_refused(run, arguments, message):
    folder = run("a", FINISH)
    with pytest.raises(ValueError, match=message):
        launch.launch([folder], **arguments)
    assert not (folder / "train.log").exists()


@pytest.fixture
def deepspeed_at_hand(monkeypatch):
    """As if DeepSpeed were installed."""
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda name: name)


def test_a_missing_hostfile_is_named(run, tmp_path):
    with pytest.raises(FileNotFoundError, match="hosts does not exist: write lines like"):
        launch.launch([run("a", FINISH)], "deepspeed", hostfile=tmp_path / "hosts")


def test_a_port_in_use_is_named_before_anything_starts(run, deepspeed_at_hand):
    folder = run("a", FINISH)
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(OSError, match=f"master_port {port} cannot be used .*leave master_port out"):
            launch.launch([folder], "deepspeed", master_port=port, parallel=1)
    assert not (folder / "train.log").exists()


def test_each_deepspeed_job_gets_a_free_port(run, deepspeed_at_hand, monkeypatch):
    ports = []

    def command(run_dir, launcher, ranks, hostfile, master_port):
        ports.append(master_port)
        return job_command(run_dir)

    monkeypatch.setattr(launch, "command", command)
    launch.launch([run("a", FINISH), run("b", FINISH)], "deepspeed", ranks=2)
    assert len(ports) == 2 and all(1024 <= port <= 65535 for port in ports)


def test_deepspeed_not_installed_is_told(run, monkeypatch):
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="needs the package deepspeed"):
        launch.launch([run("a", FINISH)], "deepspeed")


def test_a_run_is_finished_when_its_record_says_so(tmp_path):
    assert not launch.is_finished(tmp_path)
    for status in ("running", "failed", "finished"):
        (tmp_path / "run.json").write_text(json.dumps({"status": status}))
        assert launch.is_finished(tmp_path) == (status == "finished")


# -- ranks that do nothing


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(silence, "SAY_AFTER", 0.6)
    monkeypatch.setattr(silence, "LOOK_EVERY", 0.1)
    monkeypatch.setattr(silence, "BUSY", 0.05)


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs Linux's /proc")
def test_the_rank_that_is_stopped_is_named_and_its_job_ended_after_the_limit(run, impatient, capsys):
    folder = run("a", """
status("running")
(folder / "rank.py").write_text(
    "import os, signal, time\\nif os.environ['RANK'] == '1': os.kill(os.getpid(), signal.SIGSTOP)\\ntime.sleep(60)")
for rank in "01":
    env = {**os.environ, "RANK": rank, "LOCAL_RANK": rank}
    subprocess.Popen([sys.executable, "-S", str(folder / "rank.py")], env=env)
time.sleep(60)
""")  # fmt: skip
    with pytest.raises(launch.JobFailed, match=r"A rank was stopped or stuck.*\n(.*\n)*.*the job was ended"):
        launch.launch([folder], silence_limit=2.0)
    out = capsys.readouterr().out
    assert "a: rank 1 (process " in out and ", stopped) did nothing for" in out
    assert "rank 0" not in out
    assert "ended when this has lasted 2 s" in out
    assert "rank 1" in provenance.read_json(folder / "run.json")["error"]


def test_a_job_that_computes_is_not_called_silent(run, impatient, capsys):
    launch.launch([run("a", "until = time.monotonic() + 2\nwhile time.monotonic() < until: pass\n" + FINISH)],
                  silence_limit=1.5)  # fmt: skip
    assert "did nothing" not in capsys.readouterr().out


# -- told to stop

LEAVES_LATE = """
def leave(*_):
    time.sleep(1.0)  # the end of an update
    import psutil
    alive = psutil.Process(int((folder / "child").read_text())).status() != "zombie"
    (folder / "left").write_text(f"helper alive: {alive}")
    status("interrupted"); sys.exit(143)
signal.signal(signal.SIGTERM, leave)
status("running"); child(); time.sleep(60)
"""


def interrupt_when_ready(folder):
    def interrupt(*_):
        if (folder / "child").exists():
            raise KeyboardInterrupt

    return interrupt


def test_a_job_gets_the_time_to_end_its_update_and_its_helpers_stay_until_then(run, monkeypatch):
    folder = run("a", LEAVES_LATE)
    monkeypatch.setattr(launch, "command", lambda run_dir, *_: [sys.executable, str(run_dir / "job.py"), str(run_dir)])
    monkeypatch.setattr(progress.Progress, "update", interrupt_when_ready(folder))
    with pytest.raises(KeyboardInterrupt):
        launch.launch([folder])
    assert (folder / "left").read_text() == "helper alive: True"
    assert is_gone(int((folder / "child").read_text()))
    assert provenance.read_json(folder / "run.json")["status"] == "interrupted"


def test_a_second_interrupt_ends_a_job_at_once(run, monkeypatch):
    folder = run("a", "signal.signal(signal.SIGTERM, signal.SIG_IGN); " + HANG)
    monkeypatch.setattr(progress.Progress, "update", interrupt_when_ready(folder))
    wait, waited = launch._wait, []

    def interrupted_once(jobs):
        waited.append(True)
        if len(waited) == 1:
            time.sleep(0.5)
            raise KeyboardInterrupt
        wait(jobs)

    monkeypatch.setattr(launch, "_wait", interrupted_once)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        launch.launch([folder])
    assert time.monotonic() - begun < supervise.GRACE / 10
    wait_until(lambda: is_gone(int((folder / "child").read_text())))  # the system reaps it some time later
    assert provenance.read_json(folder / "run.json")["error"] == "stopped by KeyboardInterrupt"


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's prctl")
def test_a_job_whose_supervisor_was_killed_is_asked_to_leave(tmp_path):
    script = (
        "import pathlib, signal, sys, time; p = pathlib.Path(sys.argv[1]); "
        "signal.signal(signal.SIGTERM, lambda *_: (p / 'asked').touch()); (p / 'ready').touch(); time.sleep(1); "
        "[time.sleep(.1) for _ in range(100) if not (p / 'asked').exists()]"
    )
    process = subprocess.Popen(
        [
            sys.executable,
            "-IS",
            supervise.__file__,
            str(os.getpid()),
            sys.executable,
            "-S",
            "-c",
            script,
            str(tmp_path),
        ],
        stdin=subprocess.PIPE,
    )
    wait_until((tmp_path / "ready").exists)
    process.kill()
    process.wait()
    process.stdin.close()
    wait_until((tmp_path / "asked").exists)


def test_a_job_asked_to_leave_from_outside_goes_on_when_launched_again():
    assert (
        launch.Failure(Path("a"), 143, "b").remedy == "It was told from outside to stop: launch again, and it goes on."
    )


@pytest.mark.parametrize("line", ["[]", "7", '{"update": "x"}', '{"update": 1, "progress": "half"}', '{"progress": 2}'])
def test_a_line_that_is_none_of_metrics_is_not_shown(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_text(line + "\n")
    assert launch.last_row(tmp_path / "metrics.jsonl") == {}

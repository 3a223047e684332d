"""Starts training runs as separate processes, called jobs, watches them, and leaves none behind.

    launch([run_dir, ...])                             two runs at a time, one process each
    launch([run_dir], launcher="deepspeed", ranks=2)   one run on two ranks

Whatever ends the caller (an exception, an interrupted cell, a killed kernel) also ends the jobs with every process
below them: see `supervise`. Each job first ends its update and writes a checkpoint; a second interrupt ends it at once.
A job's output goes into its folder's `train.log`, and the last line of `metrics.jsonl` says how far it is. A run is
finished when its `run.json` says so and all its files are there.
"""

import contextlib
import fcntl
import importlib.util
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import torch

from agpo_core import paths, provenance
from agpo_core.jobs import supervise
from agpo_core.jobs.folder import FolderError, in_use, is_finished, refuse_if_used
from agpo_core.jobs.progress import Progress
from agpo_core.jobs.silence import Silence

POLL = 0.2  # seconds between two looks at the jobs
TAIL_LINES = 30  # last lines of a failed job's log that are shown
TAIL_BYTES = 65536  # read from the end of a log or of metrics.jsonl

REMEDIES = {  # words at the end of a log, in lower case -> what to do about the failure
    "no space left on device": "Free some disk space.",
    "no disk space left": "Free some disk space.",
    "unexpected pos": "Free some disk space.",  # torch.save on a full disk
    **dict.fromkeys(  # the words of a GPU; those of a CPU from torch, C++, the system and Python
        ("out of memory", "defaultcpuallocator", "bad_alloc", "cannot allocate memory", "memoryerror"),
        "Lower rollout_batch or micro_batch_prompts, or set parallel=1.",
    ),
    "did nothing for": "A rank was stopped or stuck: launch again; raise silence_limit where ranks wait so long.",
    "address already in use": "Leave master_port out: then a free port is used.",
}
KILLED = (128 + 9, 256 - 9)  # exit status after SIGKILL, of a job and of a rank as DeepSpeed reports it
ASKED = (128 + 15, 128 + 2)  # exit status after SIGTERM or SIGINT
SILENCE_LIMIT = 1800.0  # seconds


def remedy(words: str) -> str:
    """What to do about a failure with these words; empty where no known words are among them."""
    return next((text for symptom, text in REMEDIES.items() if symptom in words.lower()), "")


@dataclass(frozen=True)
class Failure:
    """A job that ended without a finished run."""

    run_dir: Path
    exit_status: int  # 128 + n: ended by signal n
    tail: str  # the last lines of its log

    @property
    def remedy(self) -> str:
        """What to do about the failure, as far as the log and the exit status tell."""
        if known := remedy(self.tail):
            return known
        if self.exit_status in ASKED:
            return "It was told from outside to stop: launch again, and it goes on."
        if self.exit_status in KILLED:
            return "It was killed from outside, usually because memory ran out: set parallel=1."
        return "Its log says why."

    def __str__(self) -> str:
        log = self.run_dir / "train.log"
        status = f"exit status {self.exit_status}"
        return f"{self.run_dir.name} failed, {status}. {self.remedy}\n--- {log}\n{self.tail}\n---"


class JobFailed(RuntimeError):
    """Jobs failed; the others that were running went on to their end, and none was started after the first failure.

    Attributes:
        failures: list[Failure].
    """

    def __init__(self, failures: list[Failure], not_started: int):
        self.failures = failures
        names = ", ".join(failure.run_dir.name for failure in failures)
        super().__init__(
            "\n".join(map(str, failures))
            + f"\nFailed: {names}. Not started: {not_started}. Finished runs are kept; launch "
            "again, and unfinished ones are resumed."
        )


def command(run_dir, launcher="python", ranks=1, hostfile=None, master_port=None) -> list[str]:
    """The command line of a run.

    Args:
        run_dir: the run's folder.
        launcher: "python" or "deepspeed".
        ranks, hostfile, master_port: as in `launch`; for "deepspeed" only.
    """
    train = ["agpo_core.training.train", "--run-dir", str(run_dir)]
    if launcher == "python":
        return [sys.executable, "-m", *train]
    # This is `deepspeed` of this Python, also where its environment is not activated. Ranks read LOCAL_RANK, so that
    # the arguments of a run are the same under both launchers.
    words = [sys.executable, "-m", "deepspeed.launcher.runner"]
    words += ["--num_accelerators", str(ranks), "--no_local_rank"]
    if hostfile is not None:
        words += ["--hostfile", str(hostfile)]
    if master_port is not None:
        words += ["--master_port", str(master_port)]
    return [*words, "--module", *train]


def environment() -> dict[str, str]:
    """The environment of a job: that of this process, with settings for the CPU where there is no GPU."""
    env = dict(os.environ, PYTHONUNBUFFERED="1")
    # DeepSpeed builds its CPU extension with the `ninja` that is installed beside this Python.
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
    if not torch.cuda.is_available():
        env.setdefault("OMP_NUM_THREADS", "1")
        env.setdefault("DS_ACCELERATOR", "cpu")
    return env


def launch(
    run_dirs, launcher="python", ranks=1, hostfile=None, parallel=2, master_port=None, progress=True,
    silence_limit=SILENCE_LIMIT, watch=None,
) -> None:  # fmt: skip
    """Train every run to its end: finished runs are left as they are, the others start or resume.

    After a job failed, no other is started; the running ones go on to their end, and then JobFailed is raised.

    Args:
        run_dirs: run folders, each with its `config.yaml`.
        launcher: "python" (one process for a run) or "deepspeed".
        ranks: processes of a run on each host, >= 1.
        hostfile: DeepSpeed's list of hosts; None: this machine.
        parallel: jobs at a time, >= 1. Every job takes whole GPUs, from the first one on, so set 1 on a GPU machine.
        master_port: the port at which ranks meet, for parallel=1; None: a free one for each job.
        progress: whether to show how far the jobs are.
        silence_limit: seconds, > 0, that a rank on this machine may do nothing (stopped, or waiting for another)
            before its job is ended; after a minute a message names the rank.
        watch: called without arguments at each look at the jobs, a few times a second; None: nothing is.

    Raises:
        ValueError: an argument is out of range or does not fit the launcher.
        FileNotFoundError: a `config.yaml` or the hostfile is missing.
        OSError: the port is in use, or the disk is full.
        RuntimeError: DeepSpeed is missing.
        FolderError: another process trains a run, or a run.json is damaged.
        JobFailed: jobs ended without a finished run.
    """
    run_dirs = list(dict.fromkeys(Path(run_dir).resolve() for run_dir in run_dirs))
    hostfile = None if hostfile is None else Path(hostfile).resolve()
    _check_arguments(launcher, ranks, hostfile, parallel, master_port)
    if not silence_limit > 0:
        raise ValueError(f"silence_limit must be above 0 seconds; got {silence_limit}.")
    for run_dir in run_dirs:
        if not (run_dir / "config.yaml").is_file():
            raise FileNotFoundError(f"{run_dir} has no config.yaml: write the run's settings there first.")
    waiting = deque(run_dir for run_dir in run_dirs if not is_finished(run_dir))
    if waiting and launcher == "deepspeed":
        _check_machine(master_port)
    for run_dir in waiting:
        refuse_if_used(run_dir)  # by a process that was started by hand
        _open_log(run_dir).close()  # refuses a run that another launcher has started

    report = Progress() if progress else None
    running, failures = [], []
    try:
        while running or (waiting and not failures):
            while waiting and len(running) < parallel and not failures:
                # The job is in the list before it starts, so that an interrupt in between leaves nothing behind.
                running.append(Job(waiting.popleft()))
                port = master_port
                if launcher == "deepspeed" and port is None:
                    port = _free_port()
                running[-1].start(command(running[-1].run_dir, launcher, ranks, hostfile, port))
            time.sleep(POLL)
            for job in running:
                job.look()
                job.name_silence(silence_limit)
            ended = [job for job in running if job.ended]
            running = [job for job in running if not job.ended]
            failures += [job.failure() for job in ended if not job.finished]
            if report:
                report.update(running, ended, len(waiting))
            if watch:
                watch()
    except BaseException as error:
        stop(running, reason=type(error).__name__)
        raise
    if failures:
        raise JobFailed(failures, len(waiting))


@dataclass
class Job:
    """One run that a supervised process trains."""

    run_dir: Path
    row: dict = field(default_factory=dict)  # the last line of metrics.jsonl
    process: subprocess.Popen | None = None  # the supervisor
    log_start: int = 0  # bytes of train.log written by earlier attempts
    exit_status: int | None = None  # None: still running
    started: float = 0.0  # time.monotonic()
    seconds: float = 0.0  # since the start
    silence: Silence = field(default_factory=Silence)
    given_up: bool = False

    def start(self, words: list[str]) -> None:
        """Start the command under a supervisor; its output is appended to train.log."""
        caller = str(os.getpid())
        with _open_log(self.run_dir) as log:
            with provenance.explain_full_disk(log.name):
                log.write(f"$ {shlex.join(words)}\n".encode())
                log.flush()
            self.log_start = log.tell()
            self.started = time.monotonic()
            self.process = subprocess.Popen(
                [sys.executable, "-IS", supervise.__file__, caller, *words],
                cwd=paths.root(),
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                bufsize=0,
                start_new_session=True,  # a keyboard interrupt reaches only the caller
            )

    def look(self) -> None:
        """Read how far the run is and whether it has ended."""
        self.exit_status = self.process.poll()  # first: what is read below is then final
        self.row = last_row(self.run_dir / "metrics.jsonl") or self.row
        self.seconds = time.monotonic() - self.started
        if self.ended:
            self.process.stdin.close()

    def name_silence(self, limit: float) -> None:
        """Print once which rank does nothing; end the job when this has lasted `limit` seconds."""
        if self.ended or self.given_up:
            return
        if sentence := self.silence.look(self.process.pid):
            print(f"{self.run_dir.name}: {sentence}. The job is ended when this has lasted {limit:.0f} s.", flush=True)
        if self.silence.sentence and self.silence.seconds >= limit:
            self.given_up = True
            with contextlib.suppress(OSError), open(self.run_dir / "train.log", "ab") as log:
                log.write(f"launch: {self.silence.sentence}; the job was ended.\n".encode())
            self.order_to_end()
            self.process.send_signal(signal.SIGINT)  # a rank that does nothing needs no time

    def order_to_end(self) -> None:
        """Tell the supervisor to end the job."""
        with contextlib.suppress(BrokenPipeError):  # it has just ended
            self.process.stdin.write(b"stop")

    @property
    def ended(self) -> bool:
        return self.exit_status is not None

    @property
    def finished(self) -> bool:
        return self.ended and is_finished(self.run_dir)

    def failure(self) -> Failure:
        """The job's failure, which is also written to run.json if the job could not do so."""
        tail = log_tail(self.run_dir / "train.log", self.log_start)
        note_failure(self.run_dir, self.exit_status, error=tail.rpartition("\n")[2])
        return Failure(self.run_dir, self.exit_status, tail)


def stop(jobs: list[Job], reason: str) -> None:
    """End jobs with all processes below them, and return when they have ended.

    Each job has supervise.GRACE seconds to end its update and write a checkpoint; an interrupt ends this time.
    """
    jobs = [job for job in jobs if job.process and not job.ended]
    for job in jobs:
        job.order_to_end()
        job.process.stdin.close()
    try:
        _wait(jobs)
    except KeyboardInterrupt:
        for job in jobs:
            job.process.send_signal(signal.SIGINT)
        _wait(jobs)
    for job in jobs:
        note_failure(job.run_dir, job.process.returncode, error=f"stopped by {reason}")


def _wait(jobs: list[Job]) -> None:
    """Wait for the end of jobs that were told to end, with a message if it takes a while."""
    said = time.monotonic() + 2
    while any(job.process.poll() is None for job in jobs):
        if said and time.monotonic() > said:
            print(f"Waiting until each job ends its update and writes a checkpoint: at most {supervise.GRACE:.0f} s. "
                  "Interrupt again to end at once. Run the same again to resume.", flush=True)  # fmt: skip
            said = None
        time.sleep(POLL)


def note_failure(run_dir: Path, exit_status: int, error: str) -> None:
    """Mark as failed a run.json in which a killed job left the status "running"."""
    path = run_dir / "run.json"
    # There may be no run.json yet, or no disk space; such errors must not hide the failure itself. If another process
    # trains in the folder now, the record is that process's.
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, FolderError):
        refuse_if_used(run_dir)
        record = provenance.read_json(path)
        if record["status"] == "running":
            record = provenance.conclude(record, exit_status, error)
            provenance.write_json(path, {**record, "status": "failed"})


def last_row(path: Path) -> dict:
    """The last complete line of metrics.jsonl; empty before the first line and if the line is damaged."""
    *lines, _torn = _tail_bytes(path).split(b"\n")
    with contextlib.suppress(IndexError, ValueError, TypeError, KeyError):
        row = json.loads(lines[-1])
        return row if row["update"] >= 0 and 0 <= row.get("progress", 0) <= 1 else {}
    return {}


def log_tail(path: Path, start: int) -> str:
    """The last lines of a log, without its first `start` bytes."""
    lines = _tail_bytes(path, start).decode(errors="replace").splitlines()
    return "\n".join(lines[-TAIL_LINES:])


def _tail_bytes(path: Path, start: int = 0) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(max(start, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            return file.read()
    except FileNotFoundError:
        return b""


def _check_arguments(launcher, ranks, hostfile, parallel, master_port) -> None:
    if launcher not in ("python", "deepspeed"):
        raise ValueError(f"launcher must be 'python' or 'deepspeed'; got {launcher!r}.")
    for name, value in (("ranks", ranks), ("parallel", parallel)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1; got {value}.")
    if launcher == "python" and (ranks, hostfile, master_port) != (1, None, None):
        raise ValueError(
            "ranks, hostfile and master_port need launcher='deepspeed': with 'python' a run is one process."
        )
    if hostfile is not None and not hostfile.is_file():
        raise FileNotFoundError(
            f"hostfile {hostfile} does not exist: write lines like 'worker-0 slots=8' there, "
            "or leave hostfile out to use this machine."
        )
    if master_port is not None:
        if not 1 <= master_port <= 65535:
            raise ValueError(f"master_port must be in [1, 65535]; got {master_port}.")
        if parallel > 1:
            raise ValueError(f"master_port {master_port} serves one job at a time: set parallel=1.")


def _check_machine(master_port: int | None) -> None:
    """Raise at once where DeepSpeed would fail after a while and with a less clear message."""
    if importlib.util.find_spec("deepspeed") is None:
        raise RuntimeError("launcher 'deepspeed' needs the package deepspeed: install it, or use 'python'.")
    if master_port is not None:
        try:
            socket.create_server(("", master_port)).close()
        except OSError as error:
            raise OSError(
                error.errno,
                f"master_port {master_port} cannot be used ({os.strerror(error.errno)}): end the "
                "process that listens there, choose another port, or leave master_port out to "
                "use a free one",
            ) from error


def _free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return server.getsockname()[1]


def _open_log(run_dir: Path):
    """Open train.log for appending, locked for as long as a process of the job has it open."""
    path = run_dir / "train.log"
    with provenance.explain_full_disk(path):
        log = open(path, "ab")
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.close()
        raise FolderError(in_use(run_dir, "another process")) from None
    except OSError:  # a file system without locks
        pass
    return log

"""Runs one command and ends its whole process group when told to or when the caller dies.

Usage: python supervise.py CALLER_PID COMMAND...

A Jupyter kernel that is killed cannot clean up after itself, and a death signal would reach only the direct child, so
the ranks below a DeepSpeed launcher would keep their GPUs. Therefore each job runs under this small process, in a
process group of its own. The job is ended when
  - standard input becomes readable: the caller asked for the end, closed its end of the pipe, or died;
  - the parent is no longer CALLER_PID: the caller died, and a process forked from it still has the pipe open;
  - this process gets SIGTERM.
The job's ranks then get SIGTERM, which stops them after their current update with a checkpoint. What is left after the
grace time is killed; SIGINT to this process ends the grace time. If this process itself is killed, the system sends
SIGTERM to the job.
The exit status is the job's; 128 + n when signal n ended it.

This file is started by its path and uses only the standard library, so that it costs little time and memory.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

GRACE = 300.0  # seconds that a job gets to end its update and write a checkpoint
REST = 5.0  # seconds between SIGTERM to all that is left of the group and SIGKILL
POLL = 0.1  # seconds
DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux's prctl


def supervise(caller: int, command: list[str]) -> int:
    """Start the command and wait until it ends or is to be ended; return the exit status."""
    stop, hurry = [], []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    signal.signal(signal.SIGINT, lambda *_: hurry.append(True))
    job = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        env=dict(os.environ, AGPO_SUPERVISED="1"),
        start_new_session=True,
        preexec_fn=end_with_this_process,
    )
    while job.poll() is None and os.getppid() == caller and not stop:
        stop += select.select([sys.stdin], [], [], POLL)[0]
    end_group(job, hurry)
    return job.returncode if job.returncode >= 0 else 128 - job.returncode


def end_with_this_process() -> None:
    """Have the system send SIGTERM to this process when its parent is killed; this works on Linux only."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGTERM)


def end_group(job: subprocess.Popen, hurry: list = ()) -> None:
    """Send SIGTERM to the ranks, wait until they end or `hurry` is not empty, then end what is left of the group."""
    deadline = time.monotonic() + GRACE
    if job.poll() is None:
        for pid in ranks(job.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)
    while job.poll() is None and time.monotonic() < deadline and not hurry:
        time.sleep(POLL / 2)
    deadline = time.monotonic() + min(REST, GRACE)
    alive = send(job, signal.SIGTERM)
    while alive and time.monotonic() < deadline:
        time.sleep(POLL / 2)
        job.poll()  # reaps the job, which would otherwise count as alive
        alive = send(job, 0)
    send(job, signal.SIGKILL)
    job.wait()


def ranks(job: int) -> list[int]:
    """The processes below a job's first process that a launcher gave a rank; the job itself if there is none.

    Only these get SIGTERM first, because the processes that they started must serve them to the end of the update.
    """
    parents, ranked = {}, set()
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int(entry)
            with open(f"/proc/{pid}/stat", "rb") as file:
                parents[pid] = int(file.read().rpartition(b")")[2].split()[1])
            with open(f"/proc/{pid}/environ", "rb") as file:
                if b"\0LOCAL_RANK=" in b"\0" + file.read():
                    ranked.add(pid)

    def below(pid: int) -> bool:
        while pid in parents and pid != job:
            pid = parents[pid]
        return pid == job

    first = [pid for pid in ranked if parents[pid] not in ranked and below(pid)]
    return first or [job]


def send(job: subprocess.Popen, signum: int) -> bool:
    """Send a signal to the job's group (0: only check it); False when no process is left in it."""
    try:
        os.killpg(job.pid, signum)
    except (ProcessLookupError, PermissionError):  # macOS: not permitted when only zombies are left
        return False
    return True


if __name__ == "__main__":
    sys.exit(supervise(int(sys.argv[1]), sys.argv[2:]))

"""Run one command, and take its whole process group down when told to or when the caller dies.

Usage: python supervise.py CALLER_PID COMMAND...

A Jupyter kernel that is killed cannot clean up after itself, and a death signal would reach only
the direct child: the ranks below a DeepSpeed launcher would keep their GPUs. So each job runs under
this small process, in a process group of its own. The job ends when
  - standard input becomes readable: the caller asked for it, closed its end or died;
  - the parent is no longer CALLER_PID: the caller died, and a process forked from it still holds
    the other end of the pipe;
  - this process gets SIGTERM.
The exit status is the job's; 128 + n when signal n ended it.

Started by its path and with the standard library alone, so that it costs little time and memory.
"""

import os
import select
import signal
import subprocess
import sys
import time

GRACE = 5.0  # seconds between SIGTERM and SIGKILL
POLL = 0.1  # seconds


def supervise(caller: int, command: list[str]) -> int:
    """Start the command, wait for its end or for the order to end it; return the exit status."""
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    job = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    while job.poll() is None and os.getppid() == caller and not stop:
        stop += select.select([sys.stdin], [], [], POLL)[0]
    end_group(job)
    return job.returncode if job.returncode >= 0 else 128 - job.returncode


def end_group(job: subprocess.Popen) -> None:
    """End all that is left of the job's group: SIGTERM first, SIGKILL after the grace time."""
    deadline = time.monotonic() + GRACE
    alive = send(job, signal.SIGTERM)
    while alive and time.monotonic() < deadline:
        time.sleep(POLL / 2)
        job.poll()  # reaps the job, which would otherwise count as alive
        alive = send(job, 0)
    send(job, signal.SIGKILL)
    job.wait()


def send(job: subprocess.Popen, signum: int) -> bool:
    """Send a signal to the job's group (0: only look); False when nobody is left in it."""
    try:
        os.killpg(job.pid, signum)
    except (ProcessLookupError, PermissionError):  # macOS: not permitted when only zombies are left
        return False
    return True


if __name__ == "__main__":
    sys.exit(supervise(int(sys.argv[1]), sys.argv[2:]))

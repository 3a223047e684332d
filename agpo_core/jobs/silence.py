"""Finds the rank of a job that does nothing; all others wait without a message for a rank that is stopped or stuck."""

import contextlib
import time

import psutil

from agpo_core.jobs import supervise

SAY_AFTER = 60.0  # seconds without a sign of life before a message
LOOK_EVERY = 5.0  # seconds between two looks
BUSY = 1.0  # seconds of computing time that count as a sign of life; a waiting process takes less in minutes
STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


class Silence:
    """Watches the computing time of a job's ranks on this machine, with all processes below each.

    Attributes:
        seconds: seconds without a sign of life, of the rank with the most.
        sentence: names the ranks that do nothing, with their states; empty while `seconds` is below SAY_AFTER.
    """

    def __init__(self):
        self.seconds, self.sentence = 0.0, ""
        self._signs = {}  # process -> (time, computing time) at its last sign of life
        self._next, self._told = 0.0, False

    def look(self, supervisor: int) -> str:
        """Look at the ranks below a supervisor. Returns the sentence when it is first to be printed, else ""."""
        now = time.monotonic()
        if now < self._next:
            return ""
        self._next = now + LOOK_EVERY
        found = []
        for rank in _ranks(supervisor):
            with contextlib.suppress(psutil.Error):
                used, state = _computing_time(rank), rank.status()
                since, before = self._signs.setdefault(rank.pid, (now, used))
                if abs(used - before) >= BUSY:
                    since = now
                    self._signs[rank.pid] = (now, used)
                found.append((now - since, state, rank))
        self.seconds = max((seconds for seconds, *_ in found), default=0.0)
        if self.seconds < SAY_AFTER:
            self.sentence, self._told = "", False
            return ""
        silent = [entry for entry in found if entry[0] >= SAY_AFTER]
        guilty = [entry for entry in silent if entry[1] in STOPPED] or silent
        names = ", ".join(f"rank {_number(rank)} (process {rank.pid}, {state})" for _, state, rank in guilty)
        self.sentence = f"{names} did nothing for {self.seconds:.0f} s"
        if self._told:
            return ""
        self._told = True
        return self.sentence


def _ranks(supervisor: int) -> list[psutil.Process]:
    found = supervise.ranks(supervisor)
    with contextlib.suppress(psutil.Error):
        if found == [supervisor]:  # a job of one process
            return psutil.Process(supervisor).children()
        return [psutil.Process(pid) for pid in found]
    return []


def _computing_time(process: psutil.Process) -> float:
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            total += sum(one.cpu_times()[:4])  # its own time and that of its ended children
    return total


def _number(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return process.environ().get("RANK", "0")
    return "?"

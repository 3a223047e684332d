"""Symbolic work, under a deadline: one worker process, killed and replaced when it does not answer in time.

The fast reader (`latex`) decides nearly every grading in this process. What it does not know, an integral or a sum,
is put to math-verify's reader in a process of its own, started when it is first needed. No signal is used and no
process is forked, so this works from threads, from daemonic processes, under pytest and in notebooks.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
import warnings
from fractions import Fraction
from pathlib import Path

from agpo_core.tasks.grading.latex import MAX_DEPTH, MAX_NODES, Node, Unreadable

DEADLINE = 3.0  # seconds for one expression
START_DEADLINE = 60.0  # seconds for the process to import SymPy, on a busy machine
MAX_CHARS, MAX_REPLY = 300, 200_000
_SCRIPT = Path(__file__).with_name("symbolic_worker.py")

# Only formulas go there, and only those that hold what the fast reader has no word for.
_COMMANDS = frozenset(
    "sum prod int lim frac sqrt cdot times pi infty to rightarrow ln log sin cos tan cot sec csc arcsin arccos "
    "arctan exp binom left right alpha beta gamma theta lambda mu sigma omega phi le ge iint limits lfloor "
    "rfloor lceil rceil max min".split()
)
_NEEDED = re.compile(r"\\(?:sum|prod|int|iint|lim)(?![A-Za-z])|\\frac ?\{ ?d ?\} ?\{ ?d ?[a-z] ?\}")
_PLAIN = re.compile(r"[A-Za-z0-9 (){}\[\]^_+\-*/=.!|\\]*")


class SymbolicReader:
    """One worker process. Safe to share between threads: requests wait for each other."""

    def __init__(self, deadline: float = DEADLINE):
        self.deadline = deadline
        self.process: subprocess.Popen | None = None
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._requests = 0
        self._buffer = b""

    def read(self, latex: str) -> Node | None:
        """The tree of a formula; None where the worker reads none, or not in time."""
        if self._owner != os.getpid():  # forked: the worker and the lock are the parent's
            self.__init__(self.deadline)
        with self._lock:
            if self.process is None or self.process.poll() is not None:
                if not self._start():
                    return None
            self._requests += 1
            request = json.dumps({"id": self._requests, "latex": latex}) + "\n"
            try:
                self.process.stdin.write(request.encode())
                self.process.stdin.flush()
                reply = self._reply(self._requests, self.deadline)
            except OSError:
                reply = None
            if reply is None:
                self._kill()
                return None
            return _tree(reply["tree"])

    def close(self) -> None:
        """End the worker, if one runs."""
        if self._owner == os.getpid():
            with self._lock:
                self._kill()

    def _start(self) -> bool:
        self._kill()
        self._buffer = b""
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        if self._reply(0, START_DEADLINE) is None:
            self._kill()
            warnings.warn(
                "the symbolic reader did not start, so sums and integrals in answers are not read; "
                f"try `{sys.executable} -c 'import latex2sympy2_extended'`",
                RuntimeWarning,
                stacklevel=2,
            )
            return False
        return True

    def _reply(self, number: int, seconds: float) -> dict | None:
        """The reply with this number; None at the deadline, or when the worker has died or talks nonsense."""
        until = time.monotonic() + seconds
        descriptor = self.process.stdout.fileno()
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0 or len(self._buffer) > MAX_REPLY or not select.select([descriptor], [], [], left)[0]:
                return None
            chunk = os.read(descriptor, 65536)
            if not chunk:
                return None
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        reply = json.loads(line)
        return reply if reply["id"] == number else None

    def _kill(self) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        try:
            os.killpg(process.pid, signal.SIGKILL)  # the worker leads its own group
        except (ProcessLookupError, PermissionError):
            process.kill()
        process.stdin.close()
        process.stdout.close()
        process.wait()


def _tree(value, depth: int = 0, count: list | None = None) -> Node | None:
    """A worker's reply as a tree within the fast reader's limits."""
    if value is None:
        return None
    count = [0] if count is None else count
    count[0] += 1
    if depth > MAX_DEPTH or count[0] > MAX_NODES:
        return None
    try:
        kind, *parts = value
        if kind == "num":
            return ("num", Fraction(parts[0]))
        if kind == "sym":
            return ("sym", parts[0])
        if kind in ("add", "mul"):
            inner = [tuple(_tree(part, depth + 1, count) for part in parts[0])]
        elif kind == "call":
            inner = [parts[0], tuple(_tree(part, depth + 1, count) for part in parts[1])]
        else:
            inner = [_tree(part, depth + 1, count) for part in parts]
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    missing = any(part is None or (isinstance(part, tuple) and None in part) for part in inner)
    return None if missing else (kind, *inner)


READER = SymbolicReader()
atexit.register(READER.close)


def needs_symbols(text: str) -> bool:
    """Whether a cleaned answer is a formula, and one that only the symbolic reader can know."""
    return (
        len(text) <= MAX_CHARS
        and _NEEDED.search(text) is not None
        and _PLAIN.fullmatch(text) is not None
        and set(re.findall(r"\\([A-Za-z]+)", text)) <= _COMMANDS
        and not re.search(r"[A-Za-z]{4}", re.sub(r"\\[A-Za-z]+", "", text))
        and "__" not in text
        and text.count("{") == text.count("}")
    )


def symbolic_key(text: str, reader: SymbolicReader = READER) -> str | None:
    """The key of a formula that the fast reader has no word for; None where the symbolic reader has none either."""
    from agpo_core.tasks.grading import values

    if not needs_symbols(text):
        return None
    node = reader.read(text)
    if node is None:
        return None
    try:
        return values.key(node)
    except Unreadable:
        return None

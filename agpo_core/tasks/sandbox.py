"""Run a program that a model wrote: one sandbox for the code reward and for the Python tool.

It guards a training machine against the accidents of such programs, and against a policy that finds out that a reward
can be had by reading a file. It shares the kernel with what it guards: it is no virtual machine, and no place for code
written by an attacker who holds an unknown hole of the kernel.

**Full** (the default; Linux 5.14 or newer with user namespaces open to users; root or not). What a program gets:

- files: a root of its own. Readable: the system's /usr (with /bin, /lib and the linker's cache), the running Python's
  installation and its packages, five harmless devices, its own processes under /proc. Nothing else of the machine
  exists there: no home, no /tmp, no /etc (/etc/passwd holds one made-up line). Writable: a scratch folder in memory,
  of a given size and number of files, gone with the program.
- network: none. A network namespace with nothing in it, and the call that makes sockets is refused (Unix sockets too).
- processes: a process namespace of its own. It sees and signals nothing outside, and when it ends, or at the
  deadline, the kernel kills all that is left in it: children that left the session too. `run` returns after that.
- limits: CPU seconds and address space a process; memory over all processes, looked at every 50 ms (a burst may pass
  it by what is written in that time); processes and threads; size of a file; open files; no core dumps; output, cut
  off at a cap. Wall clock.
- environment: four variables, none of the caller's. No privilege can be gained; tracing, shared memory, keyrings,
  further namespaces and the like are refused by a seccomp filter (x86-64 and aarch64).

Not isolated: time, the kernel's version and the number of cores can be seen; cores, caches and memory bandwidth are
shared; CPU time is limited for each process, so all together may use the cores until the deadline.

**Weak** (kernels or containers without user namespaces; Docker's default, Ubuntu 24.04's): refused, unless the
caller passes `weak=True` or the environment says AGPO_WEAK_SANDBOX=1. The limits, the filter (so no network and no
tracing) and the cleared environment are the same; files are confined by Landlock where the kernel has it (5.13), and
signals too from 6.12 on. Left over: the scratch folder lies on the disk, and the number of its files has no limit; the
process limit counts all threads of the user; names of files outside can be probed; before 6.12 a program of the same
user can kill its watcher and outlive the deadline.

Which of these hold is not assumed but tried, once a process, by a program that attempts them. `python -m
agpo_core.tasks.sandbox` prints the outcome.
"""

from __future__ import annotations

import ast
import marshal
import os
import re
import selectors
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

MIB = 1 << 20
LANGUAGES = ("python", "cpp")
WEAK_VARIABLE = "AGPO_WEAK_SANDBOX"
PYTHON = sys.executable

_LAUNCHER = str(Path(__file__).with_name("sandbox_launcher.py"))
_GRACE_SECONDS = 30.0  # for building and tearing down on a machine that is busy; past it the launcher is killed
_ATTEMPTS = 3  # a machine short of processes or descriptors fails for a moment, not for good
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Limits:
    """What one run may use."""

    seconds: float = 5.0  # wall clock, from the program's start
    cpu_seconds: int = 5  # CPU time of each process, whole seconds
    memory_bytes: int = 512 * MIB  # address space of each process, and resident memory of all together
    stack_bytes: int = 64 * MIB  # of each process; what a new thread reserves, too
    processes: int = 16  # processes and threads at once
    file_bytes: int = 16 * MIB  # size of the largest file
    scratch_bytes: int = 32 * MIB  # size of the scratch folder
    scratch_files: int = 1000  # files and folders in it
    open_files: int = 64  # descriptors of each process
    output_bytes: int = MIB  # of stdout, and again of stderr


COMPILE_LIMITS = Limits(
    seconds=60.0,  # as the official tester of CodeContests
    cpu_seconds=60,
    memory_bytes=2048 * MIB,
    processes=16,
    file_bytes=64 * MIB,
    scratch_bytes=128 * MIB,
    open_files=256,
)


@dataclass(frozen=True)
class Result:
    """How a run ended.

    `reason`: "ok" (exit status 0), "crashed" (another status, or a signal), "timeout", "memory", "output" (more than
    the cap; what fits is kept) or "compile" (it never ran; stderr is the compiler's). `status`: the exit status,
    -n for signal n, None where the sandbox ended it. `seconds`: wall clock of the program alone.
    """

    stdout: str
    stderr: str
    status: int | None
    reason: str
    seconds: float


class SandboxRefused(RuntimeError):
    """This machine offers no sandbox as asked for; the message says what is missing and what to do."""


# ── what callers use ─────────────────────────────────────────────────────────────────────────────────────────────────


def run(
    program: str,
    stdin: str = "",
    language: str = "python",
    limits: Limits = Limits(),
    weak: bool | None = None,
) -> Result:
    """Run a program once.

    Args:
        program: source text, one file.
        stdin: what it reads.
        language: "python" (this interpreter, with its packages) or "cpp" (C++17, where g++ is installed).
        limits: what the run may use; compiling has limits of its own.
        weak: accept a weak sandbox where there is no full one; None asks AGPO_WEAK_SANDBOX.
    Returns:
        how it ended, whatever the program did.
    Raises:
        SandboxRefused: the machine offers no such sandbox, or no compiler.
        ValueError: an unknown language.

    Example:
        >>> run("print(sum(map(int, input().split())))", "1 2 3").stdout  # doctest: +SKIP
        '6\\n'
    """
    return run_all(program, [stdin], language, limits, weak=weak)[0]


def run_all(
    program: str,
    stdins: Sequence[str],
    language: str = "python",
    limits: Limits = Limits(),
    budget_seconds: float | None = None,
    weak: bool | None = None,
) -> list[Result]:
    """Run a program once for each input, each time in a fresh sandbox, several at once. C++ is compiled once.

    Args:
        stdins: the inputs.
        budget_seconds: wall clock for all runs together, without compiling. A run that has not started by then is a
            "timeout" of 0 s, and one that has is cut short.
        program, language, limits, weak: as for `run`.
    Returns:
        one result an input, in order.
    """
    if language not in LANGUAGES:
        raise ValueError(f"language: unknown {language!r}; use one of {', '.join(LANGUAGES)}")
    require(language, weak)
    program = program.encode("utf-8", "replace")

    def execute(stdin):
        with _slots():
            allowed = limits
            if end is not None:
                left = end - time.monotonic()
                if left <= 0:
                    return Result("", "", None, "timeout", 0.0)
                allowed = replace(limits, seconds=min(limits.seconds, left))
            return _execute(*job, stdin.encode("utf-8", "replace"), allowed)[0]

    if language == "cpp":
        with _slots():
            failure, binary = _compile(program)
        if failure is not None:
            return [failure] * len(stdins)
        job = ["./program"], {"program": binary}
    else:
        job = [PYTHON, "-I", "-B", "-X", "utf8", "program.py"], {"program.py": program}
    if not stdins:
        return []
    end = None if budget_seconds is None else time.monotonic() + budget_seconds
    first = execute(stdins[0])
    if first.reason == "compile":
        return [first] * len(stdins)
    if len(stdins) == 1:
        return [first]
    with ThreadPoolExecutor(min(cores(), len(stdins) - 1)) as pool:
        return [first, *pool.map(execute, stdins[1:])]


def require(language: str = "python", weak: bool | None = None) -> None:
    """Raise SandboxRefused unless programs of this language can be run here, as `run` would."""
    if not missing(weak=False):
        kind = "full"
    elif not (os.environ.get(WEAK_VARIABLE) == "1" if weak is None else weak):
        raise SandboxRefused(
            f"sandbox: this machine has no full one ({'; '.join(missing(weak=False))}). Open user namespaces to the "
            f"user (sysctl kernel.apparmor_restrict_unprivileged_userns=0, docker run --security-opt "
            f"seccomp=unconfined), or accept a weaker one with {WEAK_VARIABLE}=1: there "
            f"{'; '.join(missing(weak=True)) or 'the walls tried hold'}, and the documentation says what is left"
        )
    elif cannot_start := [why for why in missing(weak=True) if why.startswith("start: ")]:
        raise SandboxRefused(f"sandbox: not even a weak one starts here ({cannot_start[0]})")
    else:
        kind = "weak"
    if language == "cpp" and compiler() is None:
        raise SandboxRefused(f"sandbox: no g++ on PATH for language 'cpp' ({kind} sandbox); install a C++ compiler")


def compiler() -> str | None:
    """The path of g++, or None."""
    found = shutil.which("g++")
    return None if found is None else os.path.abspath(found)


def cores() -> int:
    """Runs at once: the cores this process may use, shared with the other ranks on the machine."""
    return max(1, len(os.sched_getaffinity(0)) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


# ── trying the walls ─────────────────────────────────────────────────────────────────────────────────────────────────

# Prints the names of the walls that do not hold. It tries one thing of each kind; the tests try many more.
_TRY = """
import os, signal, socket, sys, time
def holds(attempt):
    try:
        attempt()
    except (OSError, MemoryError):
        return True
    return False
def fork_many():
    children = []
    try:
        for _ in range({processes} + 1):
            pid = os.fork()
            if not pid:
                time.sleep(60)
                os._exit(0)
            children.append(pid)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
def signal_parent():
    if not {full}:  # a full sandbox has no such process, though another may bear its number
        os.kill({parent}, 0)
    else:
        raise OSError
print(*[name for name, attempt in [
    ("files", lambda: open({file!r})), ("network", socket.socket), ("processes", fork_many),
    ("memory", lambda: bytearray({memory})), ("signals", signal_parent),
] if not holds(attempt)])
"""
_WALLS = ("files", "network", "processes", "memory", "signals")


@cache
def missing(weak: bool) -> tuple[str, ...]:
    """What the sandbox does not hold back on this machine, found by trying; empty when all holds."""
    if not sys.platform.startswith("linux"):
        return (f"start: it needs Linux, this is {sys.platform}",)
    limits = Limits(seconds=20.0, cpu_seconds=10, memory_bytes=256 * MIB, processes=8)
    with tempfile.NamedTemporaryFile() as outside:
        os.chmod(outside.name, 0o644)
        program = _TRY.format(
            processes=limits.processes,
            parent=os.getpid(),
            memory=limits.memory_bytes,
            file=outside.name,
            full=not weak,
        )
        command = [PYTHON, "-I", "-B", "program.py"]
        try:
            result, _ = _execute(command, {"program.py": program.encode()}, b"", limits, weak=weak)
        except SandboxRefused as error:
            return (f"start: {error}",)
    if result.reason != "ok":
        return (f"start: Python does not run in it ({result.reason}: {result.stderr.strip()[-300:]})",)
    return tuple(f"no wall around {name}" for name in result.stdout.split())


# ── one run ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _compile(program: bytes) -> tuple[Result | None, bytes]:
    """The failure, or the binary of a C++ program."""
    command = [compiler(), "-std=c++17", "-O2", "-o", "program", "program.cpp"]
    result, binary = _execute(command, {"program.cpp": program}, b"", COMPILE_LIMITS, export="program")
    if result.reason == "ok" and binary:
        return None, binary
    return replace(result, reason="compile", stdout=""), b""


def _execute(
    command: list[str],
    files: dict[str, bytes],
    stdin: bytes,
    limits: Limits,
    export: str | None = None,
    weak: bool | None = None,
) -> tuple[Result, bytes]:
    """Run a command in a new sandbox. Returns how it ended, and the content of the file to export."""
    weak = bool(missing(weak=False)) if weak is None else weak
    spec = {
        "command": command,
        "files": files,
        "export": export,
        "environment": _ENVIRONMENT,
        "readable": _readable(),
        "weak": weak,
        **vars(limits),
    }
    for attempt in range(_ATTEMPTS):
        if weak:
            spec["scratch"] = tempfile.mkdtemp(prefix="agpo-sandbox-")
        try:
            report, content, stdout, stderr = _talk(spec, stdin, limits)
        finally:
            if weak:
                _remove(spec["scratch"])
        if "error" not in report:
            return _judge(report, stdout, stderr, limits), content
        time.sleep(0.05 * attempt)
    raise SandboxRefused(report["error"])


def _talk(spec: dict, stdin: bytes, limits: Limits) -> tuple[dict, bytes, bytes, bytes]:
    """Start the launcher, feed it, collect what comes. Returns when every process of the run is gone."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        launcher = subprocess.Popen(
            [PYTHON, "-I", "-S", "-B", _LAUNCHER, str(theirs.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            env={},
            cwd="/",
            start_new_session=True,
        )
        theirs.close()
        with launcher:
            try:
                return _exchange(launcher, ours, spec, stdin, limits)
            finally:
                ours.close()  # whatever went wrong here: what is left there ends now
                try:
                    launcher.wait(_GRACE_SECONDS)
                except subprocess.TimeoutExpired:
                    launcher.kill()


def _exchange(launcher, control, spec: dict, stdin: bytes, limits: Limits) -> tuple[dict, bytes, bytes, bytes]:
    """Feed and read all pipes at once, until all are closed. Past the cap on output the run is told to end."""
    unread = memoryview(stdin)
    received = {"stdout": bytearray(), "stderr": bytearray(), "report": bytearray()}
    end = time.monotonic() + limits.seconds + _GRACE_SECONDS
    flooded = late = False
    try:
        _send(control, spec)
    except OSError:
        return {"error": "the launcher ended before it began"}, b"", b"", b""
    with selectors.DefaultSelector() as selector:
        for name, file in (("stdout", launcher.stdout), ("stderr", launcher.stderr), ("report", control)):
            selector.register(file, selectors.EVENT_READ, name)
        os.set_blocking(launcher.stdin.fileno(), False)
        selector.register(launcher.stdin, selectors.EVENT_WRITE, "stdin")
        while not late and {key.data for key in selector.get_map().values()} - {"stdin"}:
            for key, _ in selector.select(timeout=1.0):
                if key.data == "stdin":
                    unread = _feed(key.fd, unread)
                    if not unread:
                        selector.unregister(key.fileobj)
                        key.fileobj.close()
                    continue
                chunk = _take(key.fd)
                if not chunk:
                    selector.unregister(key.fileobj)
                received[key.data] += chunk
                if key.data != "report" and len(received[key.data]) > limits.output_bytes:
                    del received[key.data][limits.output_bytes :]
                    if not flooded:
                        control.shutdown(socket.SHUT_WR)
                    flooded = True
            late = time.monotonic() > end
    line, _, content = bytes(received["report"]).partition(b"\n")
    report = _read_report(line)
    if "error" in report:
        pass
    elif flooded:
        report["reason"] = "output"
    elif late:
        report = {"reason": "timeout"}
    elif not report:
        report = {"error": "the launcher was killed"}
    return report, content, bytes(received["stdout"]), bytes(received["stderr"])


def _feed(pipe: int, unread: memoryview) -> memoryview:
    """Write what fits; what is left, nothing where the program reads no more."""
    try:
        return unread[os.write(pipe, unread[: 1 << 16]) :] if unread else unread
    except BlockingIOError:
        return unread
    except OSError:
        return unread[:0]


def _take(pipe: int) -> bytes:
    try:
        return os.read(pipe, 1 << 16)
    except OSError:
        return b""


def _send(control: socket.socket, spec: dict) -> None:
    body = marshal.dumps(spec)
    control.settimeout(_GRACE_SECONDS)
    control.sendall(struct.pack("Q", len(body)) + body)


def _read_report(line: bytes) -> dict:
    """The launcher's report; empty when it never came. A literal, so that reading it can do nothing else."""
    try:
        return ast.literal_eval(line.decode())
    except (SyntaxError, ValueError):
        return {}


# A program that Python cannot compile leaves this and no "Traceback" line before it; one that raises it leaves both.
_SYNTAX = re.compile(r'\A {2}File ".*^(SyntaxError|IndentationError|TabError):', re.DOTALL | re.MULTILINE)
_NO_MEMORY = re.compile(r"^MemoryError\b|std::bad_alloc|^Fatal Python error: .*memory", re.MULTILINE)


def _judge(report: dict, stdout: bytes, stderr: bytes, limits: Limits) -> Result:
    """A report in the terms of `Result`."""
    out, err = (text.decode("utf-8", "replace") for text in (stdout, stderr))
    status, reason = report.get("status"), report["reason"]
    if reason == "exited":
        if status == 0:
            reason = "ok"
        elif status == -signal.SIGXCPU or (status == -signal.SIGKILL and report["seconds"] >= limits.cpu_seconds):
            reason = "timeout"
        elif _NO_MEMORY.search(err[-2000:]) or report["peak_bytes"] > 0.95 * limits.memory_bytes:
            reason = "memory"
        else:
            reason = "compile" if status == 1 and _SYNTAX.search(err) else "crashed"
    if reason in ("timeout", "memory", "output"):
        status = status if report["reason"] == "exited" else None
    return Result(out, err, status, reason, report.get("seconds", limits.seconds))


@cache
def _readable() -> list[str]:
    """Folders that a program may read beside the system's: this Python's, and the compiler's where it lies apart."""
    folders = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    folders |= {os.path.realpath(folder) for folder in folders}
    if compiler() is not None:
        folders |= {os.path.dirname(os.path.dirname(path)) for path in (compiler(), os.path.realpath(compiler()))}
    return sorted(folders - {"/", "/usr"})


@cache
def _slots() -> threading.BoundedSemaphore:
    """One slot a core, over all threads that run programs."""
    return threading.BoundedSemaphore(cores())


def _remove(folder: str) -> None:
    """Delete a scratch folder: whatever its depth, whatever modes are left on it, never through a link.

    One open folder at a time, down by name and up by "..": no path gets long, and nothing recurses.
    """

    def enter(name, within=None):
        os.chmod(name, 0o700, dir_fd=within)
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=within)

    here = enter(folder)
    levels = [(folder, os.listdir(here))]
    while levels:
        name, left = levels[-1]
        if left:
            entry = left.pop()
            if stat.S_ISDIR(os.lstat(entry, dir_fd=here).st_mode):
                inside = enter(entry, here)
                os.close(here)
                here = inside
                levels.append((entry, os.listdir(here)))
            else:
                os.unlink(entry, dir_fd=here)
        else:
            levels.pop()
            outside = os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here) if levels else None
            os.close(here)
            here = outside
            os.rmdir(name, dir_fd=here)


def main() -> None:
    """Print what holds on this machine."""
    for kind in ("full", "weak"):
        found = missing(weak=kind == "weak")
        print(f"{kind:4}  {'; '.join(found) if found else 'all walls hold: ' + ', '.join(_WALLS)}")
    print(f"cpp   {compiler() or 'no g++ on PATH'}")


if __name__ == "__main__":
    main()

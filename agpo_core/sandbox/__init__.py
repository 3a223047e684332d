"""Runs a program that a model wrote, in one sandbox for the code reward and for the Python tool.

The sandbox guards a training machine against the accidents of such programs, and against a policy that learns to earn
its reward by reading a file. The program shares the kernel with the machine. So the sandbox is no virtual machine, and
it is not meant for code by an attacker who knows an undisclosed flaw of the kernel.

Whatever a program does counts as its own result: once it has started, `run` returns a `Result` and raises nothing. If
the sandbox cannot be built, `run` refuses before anything has run.

There are two kinds. The **full** sandbox is the default. It needs Linux 5.14 or newer with user namespaces that users
may make; it works as root and as an ordinary user. The **weak** sandbox is for kernels and containers without user
namespaces (the default of Docker and of Ubuntu 24.04). It is refused unless the caller passes `weak=True` or the
environment has AGPO_WEAK_SANDBOX=1. The protections of each (a watcher is the process that enforces the limits):

                    FULL                                             WEAK
------------------  -----------------------------------------------  -----------------------------------------------
files read          a root folder of its own with the system's       the same files, by Landlock (Linux 5.13 or
                    programs, libraries, headers and /usr/share;     newer), without /proc; before 5.13 no file is
                    the interpreter's or the compiler's own files;   protected. Names, sizes and times of other
                    five devices; its own /proc. No home, no         files can be found out
                    project, no /tmp and no /etc exists there

files changed       a scratch folder in memory, gone with the        a scratch folder on the disk, removed after the
                    program; all else is read-only                   run; all else is protected by Landlock. Calls
                                                                     that change modes and times do nothing; calls
                                                                     that change owners and attributes are refused

scratch folder      the kernel limits its size and its number of     checked every 50 ms: a program past the size or
                    files                                            the number is ended; a burst may exceed them.
                                                                     Files deleted while open count where the
                                                                     watcher may look into the program (not as root
                                                                     without CAP_SYS_PTRACE)

network             a network namespace with nothing in it; calls    the same calls are refused; there is no
                    that make, name or connect a socket are          namespace
                    refused, except for a connected pair of Unix
                    streams

namespaces          unshare, clone and clone3 cannot make any        the same

other processes     those outside do not exist in it                 their numbers can be seen. Landlock keeps
                                                                     signals inside (Linux 6.12 or newer); before
                                                                     6.12 a process may signal only itself and its
                                                                     group, so a program cannot stop a child by its
                                                                     number

limits, priority,   calls that reach them are refused                the same
affinity of others

its watcher         process 1 of the namespace, which no signal      belongs to another user where root starts the
                    reaches                                          run; otherwise the two rows above protect it

the end             the kernel kills the namespace                   one signal to the process group, which nothing
                                                                     can leave: setsid and setpgid do nothing

CPU, address        limits of each process                           the same
space, file size,
open files

memory of all       checked every 50 ms; a burst may exceed it by    the same
processes           what is written in that time

processes, threads  counted in the namespace                         counted over the user: what other programs of
                                                                     the user start or end meanwhile shifts the
                                                                     limit

output              cut off at a cap                                 the same

the rest            four environment variables, none of the          the same
                    caller's; no privilege can be gained; tracing,
                    shared memory, keyrings and the like are
                    refused (x86-64 and aarch64)

not guarded         time, the kernel's version and the number of     the same; pipes and timers count for the user
                    cores can be seen; cores, caches and memory
                    bandwidth are shared; all processes together
                    may use the cores until the deadline

If the interpreter or the compiler is installed directly in a home folder, its files cannot be told from the rest of
that folder, and the sandbox is refused.

Which of these protections (below: walls) hold on a machine is tested, once in each process, by a program that tries to
break them. `python -m agpo_core.sandbox` prints the outcome.
"""

from __future__ import annotations

import ast
import logging
import marshal
import os
import pwd
import re
import select
import selectors
import shutil
import signal
import site
import socket
import stat
import struct
import subprocess
import sys
import sysconfig
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

_LAUNCHER = str(Path(__file__).with_name("launcher.py"))
_GRACE_SECONDS = 30.0  # for starting and ending the sandbox on a busy machine; after it the launcher is killed
_PAUSES = (0.05, 0.2, 1.0, 4.0)  # seconds before the next try to start; a machine may be short of processes
_SYSTEM = (
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/ld.so.cache", "/etc/alternatives"),
    *(
        f"/usr/{local}{folder}"
        for local in ("", "local/")
        for folder in ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "include", "share")
    ),
)
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """What one run of a program may use."""

    seconds: float = 5.0  # wall clock, from the program's start
    cpu_seconds: int = 5  # CPU time of each process, whole seconds
    memory_bytes: int = 512 * MIB  # address space of each process; also resident memory of all processes together
    stack_bytes: int = 64 * MIB  # stack of each process, and of each new thread
    processes: int = 16  # processes and threads at once
    file_bytes: int = 16 * MIB  # size of the largest file
    scratch_bytes: int = 32 * MIB  # size of the scratch folder
    scratch_files: int = 1000  # files and folders in it
    open_files: int = 64  # descriptors of each process
    output_bytes: int = MIB  # of stdout; stderr may have as many


COMPILE_LIMITS = Limits(
    seconds=60.0,  # as in the official tester of CodeContests
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

    Attributes:
        stdout, stderr: what the program wrote, up to the cap.
        status: the exit status; -n for signal n; None where the sandbox ended the program or never started it.
        reason: "ok" (exit status 0), "crashed" (another status, a signal, or too much in the scratch folder),
            "timeout", "memory", "output" (more than the cap; what fits is kept) or "compile" (it never ran; stderr
            says why).
        seconds: wall clock of the program alone.
    """

    stdout: str
    stderr: str
    status: int | None
    reason: str
    seconds: float


class SandboxRefused(RuntimeError):
    """This machine does not offer the sandbox that was asked for; the message says what is missing and what to do."""


# ── what callers use ─────────────────────────────────────────────────────────────────────────────────────────────────


def run(
    program: str,
    stdin: str = "",
    language: str = "python",
    limits: Limits = Limits(),
    weak: bool | None = None,
) -> Result:
    """Run a program once in the sandbox.

    Args:
        program: source text, one file.
        stdin: the text that the program reads.
        language: "python" (this interpreter, with its packages) or "cpp" (C++17, where g++ is installed).
        limits: what the run may use; compiling has the limits COMPILE_LIMITS.
        weak: whether a weak sandbox will do where there is no full one; None: as AGPO_WEAK_SANDBOX says.
    Returns:
        how the run ended, whatever the program did.
    Raises:
        SandboxRefused: the machine offers no such sandbox, or no compiler; nothing has run.
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
    """Run a program once for each input, each time in a fresh sandbox, several at a time. C++ is compiled once.

    Args:
        stdins: the inputs.
        budget_seconds: wall clock for all runs together, without compiling. When it is used up, a run that has not
            started is a "timeout" of 0 s, and one that has started is ended.
        program, language, limits, weak: as for `run`.
    Returns:
        one result for each input, in order.
    """
    if language not in LANGUAGES:
        raise ValueError(f"language: unknown {language!r}; use one of {', '.join(LANGUAGES)}")
    require(language, weak)
    if "\0" in program:
        return [Result("", "SyntaxError: source code cannot contain null bytes\n", None, "compile", 0.0)] * len(stdins)
    program = program.encode("utf-8", "replace")
    readable = _readable() if language == "python" else _compiler_files(compiler())

    def execute(stdin):
        with _slots():
            allowed = limits
            if end is not None:
                left = end - time.monotonic()
                if left <= 0:
                    return Result("", "", None, "timeout", 0.0)
                allowed = replace(limits, seconds=min(limits.seconds, left))
            return _execute(*job, stdin.encode("utf-8", "replace"), allowed, readable=readable)[0]

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
    _readable()
    if not missing(weak=False):
        kind = "full"
    elif not (os.environ.get(WEAK_VARIABLE) == "1" if weak is None else weak):
        raise SandboxRefused(
            f"sandbox: this machine offers no full sandbox ({'; '.join(missing(weak=False))}). Allow user namespaces "
            f"to users (sysctl kernel.apparmor_restrict_unprivileged_userns=0, docker run --security-opt "
            f"seccomp=unconfined), or accept the weak sandbox with {WEAK_VARIABLE}=1; tried on this machine: "
            f"{'; '.join(missing(weak=True)) or 'all its walls hold'}; agpo_core.sandbox lists what it protects"
        )
    elif cannot_start := [why for why in missing(weak=True) if why.startswith("start: ")]:
        raise SandboxRefused(f"sandbox: not even the weak sandbox starts on this machine ({cannot_start[0]})")
    else:
        kind = "weak"
    if language == "cpp":
        if compiler() is None:
            raise SandboxRefused(f"sandbox: no g++ on PATH for language 'cpp' ({kind} sandbox); install a C++ compiler")
        if why := _cpp_missing(compiler(), kind):
            raise SandboxRefused(
                f"sandbox: {compiler()} does not work inside it ({why}); put another g++ first on PATH"
            )


def compiler() -> str | None:
    """The path of g++; None where there is none."""
    found = shutil.which("g++")
    return None if found is None else os.path.abspath(found)


def cores() -> int:
    """The number of runs at a time: the cores that this process may use, divided by the ranks on the machine."""
    return max(1, len(os.sched_getaffinity(0)) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


# ── trying the walls ─────────────────────────────────────────────────────────────────────────────────────────────────

# This program prints the names of the walls that do not hold. It tries one thing of each kind; the tests try more.
_TRY = """
import os, resource, signal, socket, sys, time
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
    if not {full}:  # in a full sandbox the parent does not exist; another process may have its number
        os.kill({parent}, 0)
    else:
        raise OSError
print(*[name for name, attempt in [
    ("files", lambda: open({file!r})), ("network", socket.socket), ("processes", fork_many),
    ("memory", lambda: bytearray({memory})), ("signals", signal_parent),
    ("datagrams", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)),
    ("limits", lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CORE)),
] if not holds(attempt)])
"""
WALLS = ("files", "network", "processes", "memory", "signals", "datagrams", "limits")


@cache
def missing(weak: bool) -> tuple[str, ...]:
    """What the sandbox cannot guard on this machine, found by trying; empty when every wall holds."""
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


@cache
def _cpp_missing(path: str, kind: str, limits: Limits = COMPILE_LIMITS) -> str:
    """Why this compiler does not work in this kind of sandbox, found by trying it; empty if it works."""
    result, binary = _run_compiler(b"#include <iostream>\nint main() { std::cout << 1; }", limits)
    if result.reason == "ok":
        result, _ = _execute(["./program"], {"program": binary}, b"", limits, readable=_compiler_files(path))
    return "" if result.reason == "ok" else f"{result.reason}: {result.stderr.strip()[-300:]}"


# ── one run ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _compile(program: bytes) -> tuple[Result | None, bytes]:
    """A C++ program's binary and None, or the failed compilation and no binary."""
    result, binary = _run_compiler(program, COMPILE_LIMITS)
    if result.reason == "ok" and binary:
        return None, binary
    return replace(result, reason="compile", stdout=""), b""


def _run_compiler(program: bytes, limits: Limits) -> tuple[Result, bytes]:
    path = compiler()
    command = [path, "-std=c++17", "-O2", "-o", "program", "program.cpp"]
    files, readable = {"program.cpp": program}, _compiler_files(path)
    return _execute(command, files, b"", limits, "program", readable=readable)


def _execute(
    command: list[str],
    files: dict[str, bytes],
    stdin: bytes,
    limits: Limits,
    export: str | None = None,
    weak: bool | None = None,
    readable: Sequence[str] | None = None,
) -> tuple[Result, bytes]:
    """Run a command in a new sandbox. Returns how it ended, and the content of the file named by `export`.

    `readable`: the paths that it may read besides the system's; None: those of this Python.
    """
    for name, content in files.items():
        if len(content) > limits.scratch_bytes - MIB // 2:
            why = f"{name}: its {len(content)} bytes do not fit in a scratch folder of {limits.scratch_bytes}\n"
            return Result("", why, None, "compile", 0.0), b""
    weak = bool(missing(weak=False)) if weak is None else weak
    spec = {
        "command": command,
        "files": files,
        "export": export,
        "environment": _ENVIRONMENT,
        "readable": [*_SYSTEM, *(_readable() if readable is None else readable)],
        "weak": weak,
        **vars(limits),
    }
    for pause in (*_PAUSES, None):
        scratch = None
        try:
            if weak:
                scratch = spec["scratch"] = tempfile.mkdtemp(prefix="agpo-sandbox-")
            report, content, stdout, stderr = _talk(spec, stdin, limits)
        except OSError as error:  # this process could get no new process, descriptor or folder
            report = {"error": str(error)}
        finally:
            if scratch is not None:
                _discard(scratch)
        if "reason" in report:
            return _judge(report, stdout, stderr, limits), content
        if pause is not None:
            time.sleep(pause)
    raise SandboxRefused(report["error"])


def _talk(spec: dict, stdin: bytes, limits: Limits) -> tuple[dict, bytes, bytes, bytes]:
    """Start the launcher, send it input, and collect its output. Returns when every process of the run is gone."""
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
            handle = os.pidfd_open(launcher.pid)
            try:
                return _exchange(launcher, handle, ours, spec, stdin, limits)
            finally:
                ours.close()  # closing it ends what is left of the run, whatever went wrong here
                _end(launcher, handle)
                os.close(handle)


def _end(launcher: subprocess.Popen, handle: int) -> None:
    """Wait for the launcher. If it hangs or was killed, kill all processes of its session."""
    ended = select.poll()
    ended.register(handle, select.POLLIN)
    if not ended.poll(_GRACE_SECONDS * 1000):
        launcher.kill()
        ended.poll()
    try:
        # WNOWAIT leaves the launcher a zombie, so that its number still names its session.
        if os.waitid(os.P_PID, launcher.pid, os.WEXITED | os.WNOWAIT).si_code != os.CLD_EXITED:
            _kill_session(launcher.pid)
    except ChildProcessError:  # the calling process ignores SIGCHLD, so that the kernel has reaped the launcher
        pass


def _kill_session(session: int) -> None:
    end = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < end:
        groups = set()
        for process in filter(str.isdigit, os.listdir("/proc")):
            try:
                # After the name, which may contain anything, come state, parent, group and session.
                state, _, *ids = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[:4]
            except (OSError, ValueError):
                continue
            if int(ids[1]) == session and int(process) != session and state not in b"ZX":
                groups.add(int(ids[0]))
        if not groups:
            return
        for group in groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except OSError:
                continue
        time.sleep(0.01)


def _exchange(
    launcher: subprocess.Popen, handle: int, control: socket.socket, spec: dict, stdin: bytes, limits: Limits
) -> tuple[dict, bytes, bytes, bytes]:
    """Write and read all pipes together until all are closed. Past the cap on output, tell the launcher to end the run.

    The report has a "reason" if the program started, however it ended, and otherwise an "error".
    """
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
        selector.register(handle, selectors.EVENT_READ, "end")
        os.set_blocking(launcher.stdin.fileno(), False)
        selector.register(launcher.stdin, selectors.EVENT_WRITE, "stdin")
        while not late and {key.data for key in selector.get_map().values()} - {"stdin", "end"}:
            for key, _ in selector.select(timeout=1.0):
                if key.data == "stdin":
                    unread = _feed(key.fd, unread)
                    if not unread:
                        selector.unregister(key.fileobj)
                        key.fileobj.close()
                    continue
                if key.data == "end":  # if the launcher was killed, the program may still hold the pipes open
                    selector.unregister(handle)
                    _end(launcher, handle)
                    continue
                chunk = _take(key.fd)
                if not chunk:
                    selector.unregister(key.fileobj)
                received[key.data] += chunk
                if key.data != "report" and len(received[key.data]) > limits.output_bytes:
                    del received[key.data][limits.output_bytes :]
                    if not flooded:
                        _hang_up(control)
                    flooded = True
            late = time.monotonic() > end
    started, message = bytes(received["report"]).partition(_STARTED)[1:]
    line, _, content = (message if started else bytes(received["report"])).partition(b"\n")
    report = _read_report(line)
    if not started:
        slow = f"it was not built within {end - time.monotonic() + _GRACE_SECONDS:.0f} s"
        report = {"error": report.get("error", slow if late else "the launcher was killed")}
    elif flooded:
        report["reason"] = "output"
    elif "reason" not in report:
        report = {"reason": "timeout" if late else "lost", **report}
    return report, content, bytes(received["stdout"]), bytes(received["stderr"])


def _hang_up(control: socket.socket) -> None:
    try:
        control.shutdown(socket.SHUT_WR)
    except OSError:  # the other end has closed it already
        pass


def _feed(pipe: int, unread: memoryview) -> memoryview:
    """Write what fits into a pipe. Returns what is left; nothing is left when the program reads no more."""
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
    """The launcher's report, empty when none came. It is read as a Python literal, so that nothing is executed."""
    try:
        return ast.literal_eval(line.decode())
    except (SyntaxError, ValueError):
        return {}


# A program that Python cannot compile writes this with no "Traceback" line before it. A program that raises the error
# itself writes both. A source that is too large to compile writes `_TOO_LARGE`.
_SYNTAX = re.compile(r'\A {2}File ".*^(SyntaxError|IndentationError|TabError):', re.DOTALL | re.MULTILINE)
_TOO_LARGE = re.compile(r"\A(?:s_push: [^\n]*\n)?(MemoryError|RecursionError)\b[^\n]*\n?\Z")  # the same, of its size
_NO_MEMORY = re.compile(
    r"^MemoryError\b|std::bad_alloc|^Fatal Python error: .*memory|^OSError: \[Errno 12\]|: Cannot allocate memory$",
    re.MULTILINE,
)
_STARTED = b"started\n"
_LOST = {"lost": "its watcher was lost", "scratch": "its scratch folder held more than it may"}


def _judge(report: dict, stdout: bytes, stderr: bytes, limits: Limits) -> Result:
    """The `Result` that a launcher's report stands for."""
    out, err = (text.decode("utf-8", "replace") for text in (stdout, stderr))
    status, reason = report.get("status"), report["reason"]
    if reason == "exited":
        out_of_time = report["cpu_seconds"] >= limits.cpu_seconds
        # These signals end a program that did not check whether it got memory, or that was killed for using it.
        share = 0.5 if status in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGKILL) else 0.95
        if status == 0:
            reason = "ok"
        elif status == -signal.SIGXCPU or (status == -signal.SIGKILL and out_of_time):
            reason = "timeout"
        elif status == 1 and _SYNTAX.search(err):
            reason = "compile"
        elif status == 1 and _TOO_LARGE.search(err):
            reason, err = "compile", f"{err}the source is too large to be compiled in the memory allowed\n"
        elif _NO_MEMORY.search(err[-2000:]) or report["peak_bytes"] > share * limits.memory_bytes:
            reason = "memory"
        else:
            reason = "crashed"
    elif reason in _LOST:
        reason, err = "crashed", f"{err}stopped: {_LOST[reason]} {report.get('error', '')}".rstrip() + "\n"
    return Result(out, err, status, reason, report.get("seconds", limits.seconds))


# ── what may be read ─────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def _readable() -> list[str]:
    """The interpreter's own files: its path, the standard library, the installed packages, the shared libraries.

    Raises:
        SandboxRefused: a program that may read them could also read a home folder or the project.
    """
    prefixes = {os.path.realpath(prefix) for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    for prefix in prefixes:
        _refuse_home(prefix, f"Python ({sys.executable})")
    paths = [PYTHON, sys.executable, os.path.join(sys.prefix, "pyvenv.cfg"), *site.getsitepackages()]
    paths += [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths += [os.path.join(sys.base_prefix, folder) for folder in ("lib", "lib64")]
    return _shown(paths, f"Python ({sys.executable})")


@cache
def _compiler_files(path: str) -> list[str]:
    """The compiler's own files: its path, and the folders that it was installed in if they are not the system's.

    Raises:
        SandboxRefused: a program that may read them could also read a home folder or the project.
    """
    paths = [path]
    for name in ("cc1plus", "collect2", "as", "ld"):
        command = [path, f"-print-prog-name={name}"]
        try:
            said = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd="/", timeout=30).stdout
        except (OSError, subprocess.TimeoutExpired):
            continue
        part = Path(os.path.realpath(said.strip()))
        if not said.startswith("/") or not part.is_file() or _is_system(str(part)):
            continue
        paths.append(said.strip())
        if name == "cc1plus" and len(part.parents) > 4:  # prefix/libexec/gcc/machine/version/cc1plus
            machine, prefix = part.parents[1].name, str(part.parents[4])
            _refuse_home(prefix, f"the C++ compiler ({path})")
            paths += [os.path.join(prefix, folder) for folder in ("lib", "lib64", "libexec", "include", machine)]
    return _shown(paths, f"the C++ compiler ({path})")


def _shown(paths: Sequence[str], what: str) -> list[str]:
    """The files, folders and links that must be in the sandbox for these paths to work there."""
    shown = {step for path in paths if os.path.exists(path) for step in _way_to(path)}
    shown = {path for path in shown if not _is_system(path)}
    for path in (*_SYSTEM, *shown):
        if not os.path.islink(path):
            _refuse_home(path, what, (*_homes(), *_project()))
    return sorted(shown)


def _way_to(path: str) -> list[str]:
    """The symbolic links that a path goes through, also those among its folders, and then its real path."""
    links, here, left = [], "", os.path.abspath(path).split("/")
    while left:
        part = left.pop(0)
        if part == "..":
            here = os.path.dirname(here)
        elif part not in ("", "."):
            step = f"{here}/{part}"
            if os.path.islink(step) and len(links) < 100:
                links.append(step)
                target = os.readlink(step)
                here = "" if target.startswith("/") else here
                left = target.split("/") + left
            else:
                here = step
    return [*links, here]


def _is_system(path: str) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in _SYSTEM)


def _homes() -> set[str]:
    """The home folders of this process, its user and root, and all in /home; a system folder does not count as one."""
    homes = {os.path.expanduser("~"), "/root"}
    try:
        homes.add(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:  # a user without a name, as in some containers
        pass
    if os.path.isdir("/home"):
        homes |= {f"/home/{name}" for name in os.listdir("/home")}
    homes |= {os.path.realpath(home) for home in homes if home.startswith("/")}
    return {home for home in homes if home.startswith("/")} - {"/", *_SYSTEM}


def _project() -> list[str]:
    """The folder that this package is developed in; empty where it is installed in site-packages."""
    folder = Path(__file__).resolve().parents[2]
    return [] if folder.name in ("site-packages", "dist-packages") else [str(folder)]


def _refuse_home(folder: str, what: str, private: Sequence[str] | None = None) -> None:
    """Raise SandboxRefused if a folder is or contains one that programs must not read (`private`; None: the homes)."""
    for home in sorted(_homes() if private is None else private):
        if folder not in ("/usr", "/usr/local") and f"{home}/".startswith(f"{folder.rstrip('/')}/"):
            raise SandboxRefused(
                f"sandbox: {what} has its files in {folder}, which is or holds {home}, and programs would read that; "
                f"install it in a folder of its own"
            )


@cache
def _slots() -> threading.BoundedSemaphore:
    """A semaphore with one slot for each core, shared by all threads that run programs."""
    return threading.BoundedSemaphore(cores())


def _discard(folder: str) -> None:
    """Delete a scratch folder. A failure is logged and not raised, so that it cannot end the caller's grading."""
    try:
        _remove(folder)
    except OSError as error:
        _log.warning("sandbox: the scratch folder %s is left behind (%s); delete it", folder, error)


def _remove(folder: str) -> None:
    """Delete a folder of any depth, whatever modes and names are in it, without following links.

    One folder is open at a time. The walk goes down by name and up by "..", so that no path gets long and nothing
    recurses.
    """

    def enter(name, within=None):
        handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=within)
        try:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
            return os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=handle)
        finally:
            os.close(handle)

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

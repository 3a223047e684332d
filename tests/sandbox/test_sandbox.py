"""The sandbox runs hostile programs: each ends with the right reason and leaves no process and no file.

Each test runs in the full sandbox and also in the weak one, unless it says why not.
"""

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import venv
from dataclasses import replace
from pathlib import Path

import pytest

from agpo_core import sandbox
from agpo_core.sandbox import MIB, Limits, SandboxRefused
from agpo_core.tasks import Graded
from agpo_core.tasks.code_contests import CodeContests, CodeProblem
from agpo_core.tasks.tools import Python, Reply

# A stack limit that no other program has marks these programs: children inherit it in any session and cannot raise it.
MARK = 64 * MIB + 16 * os.getpid()
LIMITS = Limits(seconds=10.0, stack_bytes=MARK)
SHORT = replace(LIMITS, seconds=0.5)  # for programs that never end
LONGER = replace(LIMITS, seconds=1.5)  # for programs that must have started, even on a busy machine
needs_cpp = pytest.mark.skipif(sandbox.compiler() is None, reason="no g++")


def marked_processes():
    """The processes on the machine that a program of these tests started and that have not ended."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stack = next(line for line in (folder / "limits").read_text().splitlines() if "stack" in line)
            if str(MARK) in stack.split() and (folder / "stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z":
                found.append(folder.name)
        except (OSError, StopIteration):
            continue
    return found


def children():
    tasks = Path("/proc/self/task").glob("*/children")
    return {pid for task in tasks for pid in task.read_text().split()}


@pytest.fixture(scope="module")
def weak_python():
    """Use an interpreter that works in the weak sandbox, where root's programs run as "nobody"."""
    with pytest.MonkeyPatch.context() as patch:
        sandbox.missing.cache_clear()
        if sandbox.missing(weak=True) and os.getuid() == 0 and (other := shutil.which("python3", path="/usr/bin")):
            patch.setattr(sandbox, "PYTHON", other)
            sandbox.missing.cache_clear()
        yield sandbox.missing(weak=True)
    sandbox.missing.cache_clear()


@pytest.fixture
def open_folder():
    """A temporary folder that any user may enter; pytest's own are closed to the one that root's programs run as."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture(params=["full", "weak"])
def kind(request, monkeypatch, open_folder):
    """Run the test in one kind of sandbox, then check that it left nothing."""
    if request.param == "weak":
        missing = request.getfixturevalue("weak_python")
        monkeypatch.setattr(sandbox, "missing", lambda weak: missing if weak else ("a full one, for this test",))
        monkeypatch.setenv(sandbox.WEAK_VARIABLE, "1")
        if missing:
            pytest.skip(f"no weak sandbox here: {'; '.join(missing)}")
    elif sandbox.missing(weak=False):
        pytest.skip(f"no full sandbox here: {'; '.join(sandbox.missing(weak=False))}")
    temporary = open_folder / "temporary"
    temporary.mkdir()
    temporary.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    children_before, threads_before = children(), threading.active_count()
    descriptors_before = len(os.listdir("/proc/self/fd"))
    yield request.param
    assert marked_processes() == []
    assert children() == children_before
    assert threading.active_count() == threads_before
    assert list(temporary.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == descriptors_before


@pytest.fixture
def full(kind):
    if kind == "weak":
        pytest.skip("the weak sandbox has no limit for this")


def run(program, stdin="", limits=LIMITS, language="python"):
    return sandbox.run(textwrap.dedent(program), stdin, language, limits)


def outcome(result):
    return result.reason, result.status


# ── what programs are for ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_program_reads_its_input_and_prints(kind):
    result = run("print(sum(map(int, open(0).read().split())), file=__import__('sys').stdout)", "1 2\n3")
    assert (result.stdout, result.stderr, *outcome(result)) == ("6\n", "", "ok", 0)
    assert 0 < result.seconds < LIMITS.seconds


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("import sys; print('last words', file=sys.stderr); sys.exit(3)", ("crashed", 3)),
        ("1 / 0", ("crashed", 1)),
        ("import ctypes; ctypes.string_at(0)", ("crashed", -signal.SIGSEGV)),
        ("import os; os.abort()", ("crashed", -signal.SIGABRT)),
        ("import os; os._exit(0)", ("ok", 0)),
        ("raise SyntaxError('not while compiling')", ("crashed", 1)),
        ("def f(:", ("compile", 1)),
        ("if 1:\nprint(1)", ("compile", 1)),
    ],
)
def test_exit_codes_signals_and_syntax_errors_are_told_apart(kind, program, expected):
    assert outcome(run(program)) == expected


def test_standard_error_is_kept_apart(kind):
    result = run("import sys; print('out'); print('err', file=sys.stderr)")
    assert (result.stdout, result.stderr) == ("out\n", "err\n")


def test_each_run_starts_in_an_empty_scratch_folder(kind):
    program = "import os; print(sorted(os.listdir())); open('left', 'w').write('x')"
    assert [r.stdout for r in sandbox.run_all(program, ["", "", ""], limits=LIMITS)] == ["['program.py']\n"] * 3


def test_a_python_that_lies_in_tmp_is_seen_there_and_nothing_else_of_it(full, monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="agpo-python-") as folder:
        Path(folder).chmod(0o755)
        Path(folder, "module.py").write_text("x = 5")
        monkeypatch.setattr(sandbox, "_readable", lambda known=tuple(sandbox._readable()): [*known, folder])
        program = f"""
            import os, tempfile
            print(open("{folder}/module.py").read(), *os.listdir("/tmp"), tempfile.gettempdir() == os.getcwd())
            for place in ("/tmp", "{folder}"):
                try:
                    open(place + "/written", "w")
                except OSError as error:
                    print(error.strerror)
        """
        result = run(program)
    # a Python that itself lies in /tmp stands beside the folder
    seen = {Path(prefix).parts[2] for prefix in sandbox._readable() if prefix.startswith("/tmp/")} | {Path(folder).name}
    first, *written = result.stdout.splitlines()
    *text, in_scratch = first.split()
    assert (text[:3], set(text[3:]), in_scratch) == (["x", "=", "5"], seen, "True")
    assert written == ["Read-only file system"] * 2


def test_the_environment_holds_nothing_of_ours(kind, monkeypatch):
    monkeypatch.setenv("AGPO_TEST_SECRET", "tell nobody")
    result = run("import os; print(*sorted(os.environ))")
    allowed = {*sandbox._ENVIRONMENT, "HOME", "TMPDIR", "LC_CTYPE"}
    assert set(result.stdout.split()) <= allowed


def test_no_descriptor_of_ours_is_inherited(kind):
    program = """
        import os
        def is_open(number):
            try:
                os.fstat(number)
            except OSError:
                return False
            return True
        print(*filter(is_open, range(64)))
    """
    assert run(program).stdout == "0 1 2\n"


def test_results_come_in_the_order_of_the_inputs(kind):
    program = "import time; n = int(input()); time.sleep((5 - n) / 50); print(n)"
    results = sandbox.run_all(program, [str(n) for n in range(6)], limits=LIMITS)
    assert [r.stdout for r in results] == [f"{n}\n" for n in range(6)]


def test_a_budget_cuts_the_runs_short(kind):
    results = sandbox.run_all("import time; time.sleep(60)", [""] * 6, limits=LIMITS, budget_seconds=0.5)
    assert [outcome(r) for r in results] == [("timeout", None)] * 6
    assert results[-1].seconds == 0.0


def test_no_more_runs_at_once_than_there_are_cores(kind, monkeypatch):
    running, most, lock, execute = [], [], threading.Lock(), sandbox._execute

    def counted(*args, **kwargs):
        with lock:
            running.append(1)
            most.append(len(running))
        try:
            return execute(*args, **kwargs)
        finally:
            with lock:
                running.pop()

    monkeypatch.setattr(sandbox, "cores", lambda: 2)
    monkeypatch.setattr(sandbox, "_execute", counted)
    sandbox._slots.cache_clear()
    grades = [threading.Thread(target=sandbox.run_all, args=("pass", [""] * 3)) for _ in range(3)]
    for grade in grades:
        grade.start()
    for grade in grades:
        grade.join()
    sandbox._slots.cache_clear()
    assert max(most) == 2


# ── time, memory, processes ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "program",
    [
        "while True: pass",
        "import time; time.sleep(60)",
        "import signal\nfor n in (1, 2, 3, 13, 15): signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
        "import os, time; os.close(1); os.close(2); time.sleep(60)",
        "input(); input()",
    ],
    ids=["loop", "sleep", "ignored signals", "stopped", "closed outputs", "more input wanted"],
)
def test_a_program_that_does_not_end_is_killed_at_the_deadline(kind, program):
    stdin = "one line\n"
    result = run(program, stdin, limits=SHORT)
    if program.startswith("input"):
        assert outcome(result) == ("crashed", 1)  # the input is closed after its last byte: EOFError
    else:
        assert outcome(result) == ("timeout", None)
        assert result.seconds >= SHORT.seconds


def test_cpu_time_has_a_limit_of_its_own(kind):
    result = run("while True: pass", limits=replace(LIMITS, seconds=60.0, cpu_seconds=1))
    assert outcome(result) == ("timeout", -signal.SIGXCPU)


def test_what_was_printed_before_the_deadline_is_kept(kind):
    assert run("import time; print('half', flush=True); time.sleep(60)", limits=LONGER).stdout == "half\n"


def test_a_fork_bomb_ends_at_the_deadline(kind):
    program = """
        import os
        while True:
            try:
                os.fork()
            except OSError:
                pass
    """
    assert run(program, limits=SHORT).reason == "timeout"


def test_the_number_of_processes_is_limited(kind):
    program = """
        import os, time
        started = 0
        try:
            while started < 100:
                if not os.fork():
                    time.sleep(60)
                    os._exit(0)
                started += 1
        except OSError:
            print(started)
    """
    started = int(run(program, limits=replace(LIMITS, processes=6)).stdout)
    assert 3 <= started <= 5  # the program is one of the six; a weak sandbox's watcher may be another


def test_orphans_that_ended_do_not_count_as_processes(kind):
    program = """
        import os, time
        for _ in range(8):
            child = os.fork()
            if not child:
                os.fork()
                os._exit(0)  # parent and child alike: the child's child is nobody's
            os.waitpid(child, 0)
            time.sleep(0.1)
        print("done")
    """
    result = run(program, limits=replace(LIMITS, processes=5))
    assert (result.stdout, result.stderr) == ("done\n", "")


def test_the_number_of_threads_is_limited(kind):
    program = """
        import threading, time, os
        for started in range(1000):
            try:
                threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
            except RuntimeError:
                print(started, flush=True)
                os._exit(0)
    """
    limits = replace(LIMITS, processes=6, memory_bytes=2048 * MIB)
    assert 3 <= int(run(program, limits=limits).stdout) <= 5


def test_one_process_cannot_take_more_memory_than_allowed(kind):
    result = run("x = []\nwhile True: x.append(bytearray(10**7))", limits=replace(LIMITS, memory_bytes=128 * MIB))
    assert outcome(result) == ("memory", 1)


@pytest.mark.parametrize("hide", [False, True], ids=["open", "hidden"])
def test_many_processes_together_cannot_either(kind, hide):
    program = f"""
        import ctypes, os, time
        if {hide}:
            ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # not dumpable: others of its user may not look into it
        for _ in range(6):
            if not os.fork():
                block = bytearray(os.urandom(1)) * (90 << 20)
                time.sleep(60)
        time.sleep(60)
    """
    assert outcome(run(program, limits=replace(LIMITS, memory_bytes=192 * MIB))) == ("memory", None)


def test_a_forked_copy_is_not_counted_twice(kind):
    program = """
        import os, time
        block = bytearray(os.urandom(1)) * (100 << 20)
        children = []
        for _ in range(3):
            pid = os.fork()
            if not pid:
                time.sleep(0.3)
                os._exit(0)
            children.append(pid)
        for pid in children:
            os.waitpid(pid, 0)
    """
    assert outcome(run(program, limits=replace(LIMITS, memory_bytes=192 * MIB))) == ("ok", 0)


@pytest.mark.parametrize("stay", [True, False], ids=["waits for ever", "ends at once"])
@pytest.mark.parametrize("leave", [True, False], ids=["new session", "same session"])
def test_no_child_outlives_the_run(kind, leave, stay):
    program = f"""
        import os, time
        if not os.fork():
            if {leave}:
                os.setsid()
            if not os.fork():
                print("orphan", flush=True)
                time.sleep(60)
            os._exit(0)
        time.sleep(60 if {stay} else 0.2)
    """
    result = run(program, limits=LONGER if stay else LIMITS)
    assert outcome(result) == (("timeout", None) if stay else ("ok", 0))
    assert result.stdout == "orphan\n"


def test_nothing_outlives_the_process_that_asked(kind):
    """The calling process is killed outright, as by a scheduler, so that none of its handlers can run."""
    script = textwrap.dedent(f"""
        import importlib.util, sys
        spec = importlib.util.spec_from_file_location("sandbox", {sandbox.__file__!r})
        module = sys.modules["sandbox"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.PYTHON = {sandbox.PYTHON!r}
        print("go", flush=True)
        limits = module.Limits(seconds=60, stack_bytes={MARK})
        module._execute([module.PYTHON, "-c", "while True: pass"], {{}}, b"", limits, weak={kind == "weak"})
    """)
    environment = {**os.environ, "TMPDIR": tempfile.gettempdir()}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment) as asking:
        asking.stdout.readline()
        end = time.monotonic() + 10
        while not marked_processes() and time.monotonic() < end:
            time.sleep(0.02)
        assert marked_processes()
        asking.kill()
    while marked_processes() and time.monotonic() < end:
        time.sleep(0.02)
    for left in Path(tempfile.gettempdir()).iterdir():
        assert kind == "weak"  # its scratch folder is on the disk, and the process that would remove it was killed
        sandbox._remove(str(left))


# ── output and input ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize(
    "end", ["while True: f.write('x' * 4096)", "f.write('x' * 5001)"], ids=["endless", "just over"]
)
def test_output_is_cut_off_at_the_cap(kind, stream, end):
    result = run(f"import sys; f = sys.{stream}\n{end}", limits=replace(LIMITS, output_bytes=5000))
    assert result.reason == "output"
    assert getattr(result, stream) == "x" * 5000


def test_output_of_just_the_cap_is_whole(kind):
    result = run("print('x' * 4999)", limits=replace(LIMITS, output_bytes=5000))
    assert (result.reason, len(result.stdout)) == ("ok", 5000)


def test_output_that_is_no_text_is_read_with_marks(kind):
    assert run(r"import os; os.write(1, b'a\xff\xc3b')").stdout == "a\ufffd\ufffdb"


@pytest.mark.parametrize("program", ["pass", "import os; os.close(0)", "import sys; sys.stdin.read(10)"])
def test_input_that_is_not_read_holds_nothing_up(kind, program):
    assert outcome(run(program, "x" * (5 * MIB))) == ("ok", 0)


def test_large_input_and_output_flow_at_the_same_time(kind):
    result = run("import sys\nfor line in sys.stdin: sys.stdout.write(line)", "0123456789abcde\n" * 50_000)
    assert result.stdout == "0123456789abcde\n" * 50_000


def test_text_that_utf8_cannot_hold_does_not_stop_the_run(kind):
    assert run("print('\ud800')", "\ud800").reason == "ok"


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def secret(open_folder):
    """A file that any user may read and write."""
    path = open_folder / "secret"
    path.write_text("the secret")
    path.chmod(0o666)
    return str(path)


def attempts(ways, secret=""):
    """A program that tries each way and prints the ways that were not refused and the number of all."""
    return f"""
import ctypes, glob, os, resource, signal, socket, sys
secret, ways, done = {secret!r}, {list(ways)!r}, []
for way in ways:
    try:
        exec(way)
        done.append(way)
    except OSError:
        pass
print(done, "of", len(ways))
"""


def none_of(ways):
    return f"[] of {len(ways)}\n"


READING = (
    "open(secret)",
    "open('../' * 20 + secret)",
    "(os.symlink(secret, 'link'), open('link'))",
    "(os.symlink('/', 'root'), open('root' + secret))",
    "os.link(secret, 'hard')",
    "open('/proc/1/root' + secret)",
    "open('/proc/self/root' + secret)",
    "os.listdir(os.path.dirname(secret))",
    "os.listdir('/home')",
    "os.listdir('/var')",
    "open('/etc/shadow')",
    "open('/etc/hostname')",
    "(os.chroot('/'), open(secret))",
    "open('/dev/mem')",
    "os.listdir('/proc/sys')",
    f"open({__file__!r})",
)
CHANGING = (
    "open(secret, 'a')",
    "os.remove(secret)",
    "os.rename(secret, 'mine')",
    "os.truncate(secret, 0)",
    "open('/usr/bin/new', 'w')",
    "os.remove(os.path.realpath(sys.executable))",
    "os.mkdir('/new')",
    "open(os.__file__, 'a')",
)


@pytest.mark.parametrize("ways", [READING, CHANGING], ids=["reading", "changing"])
def test_files_outside_cannot_be_read_or_changed(kind, secret, ways):
    assert run(attempts(ways, secret)).stdout == none_of(ways)
    assert Path(secret).read_text() == "the secret"


def test_the_password_file_is_not_the_machines(full):
    assert len(run("print(open('/etc/passwd').read())").stdout.splitlines()) == 2  # one line, and print's own


def test_the_size_of_a_file_is_limited(kind):
    program = """
        import os, errno
        try:
            with open("large", "wb") as file:
                while True:
                    file.write(bytes(1 << 16))
                    file.flush()
        except OSError as error:
            print(errno.errorcode[error.errno], os.path.getsize("large"))
    """
    assert run(program, limits=replace(LIMITS, file_bytes=MIB)).stdout == f"EFBIG {MIB}\n"


def test_the_size_of_the_scratch_folder_is_limited(full):
    program = """
        import errno
        written = 0
        try:
            for i in range(100):
                with open(str(i), "wb") as file:
                    file.write(bytes(1 << 20))
                written += 1
        except OSError as error:
            print(errno.errorcode[error.errno], written)
    """
    reason, written = run(program, limits=replace(LIMITS, scratch_bytes=8 * MIB)).stdout.split()
    assert reason == "ENOSPC" and 6 <= int(written) <= 8


def test_the_number_of_files_is_limited(full):
    program = """
        import errno
        try:
            for i in range(10**6):
                open(str(i), "w").close()
        except OSError as error:
            print(errno.errorcode[error.errno], i)
    """
    reason, files = run(program, limits=replace(LIMITS, scratch_files=100)).stdout.split()
    assert reason == "ENOSPC" and 90 <= int(files) <= 100


def test_many_small_files_are_gone_afterwards(kind):
    assert run("for i in range(500): open(str(i), 'w').close()").reason == "ok"


def test_a_program_may_delete_its_own_scratch_folder(kind):
    program = "import shutil, os; shutil.rmtree(os.getcwd(), ignore_errors=True); print(os.path.exists('program.py'))"
    assert run(program).stdout == "False\n"


@pytest.mark.parametrize(
    "trick",
    [
        "os.symlink(os.path.dirname(secret), 'folder')",
        "os.makedirs('a/b'); open('a/b/c', 'w'); os.chmod('a/b', 0); os.chmod('a', 0); os.chmod('.', 0)",
        "os.mkfifo('pipe')",
        pytest.param("for _ in range(1200): os.mkdir('d'); os.chdir('d')", marks=pytest.mark.slow),
        r"open(b'\xff\n', 'w')",
    ],
    ids=["link", "modes", "pipe", "deep", "name"],
)
def test_tricks_with_the_scratch_folder_leave_nothing_and_remove_nothing_else(kind, secret, trick):
    limits = replace(LIMITS, seconds=30.0, scratch_files=5000)
    assert run(f"import os\nsecret = {secret!r}\n{trick}", limits=limits).reason == "ok"
    assert Path(secret).read_text() == "the secret"


@pytest.mark.parametrize(
    ("program", "content"),
    [
        ("open('made', 'w').write('content')", b"content"),
        ("import os; os.symlink({secret!r}, 'made')", b""),
        ("import os; os.symlink('/etc/passwd', 'made')", b""),
        ("import os; os.mkfifo('made')", b""),
        ("import os; os.mkdir('made')", b""),
        ("pass", b""),
    ],
    ids=["file", "link out", "link", "pipe", "folder", "nothing"],
)
def test_only_a_plain_file_is_handed_out(kind, secret, program, content):
    source = program.format(secret=secret).encode()
    command = [sandbox.PYTHON, "-I", "program.py"]
    result, made = sandbox._execute(command, {"program.py": source}, b"", LIMITS, "made", weak=kind == "weak")
    assert (result.reason, made) == ("ok", content)


# ── network, other processes, the kernel ─────────────────────────────────────────────────────────────────────────────


def test_no_socket_can_be_opened(kind):
    ways = [
        f"socket.socket(socket.{family}, socket.{kind})"
        for family in ("AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK", "AF_PACKET", "AF_VSOCK")
        for kind in ("SOCK_STREAM", "SOCK_DGRAM", "SOCK_RAW")
    ]
    assert run(attempts(ways)).stdout == none_of(ways)


def test_a_server_on_this_machine_cannot_be_reached(kind):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.0)
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0]:
            pass  # we reach it
        ways = [f"socket.create_connection(('127.0.0.1', {port}), 2)", f"socket.create_connection(('::1', {port}), 2)"]
        assert run(attempts(ways)).stdout == none_of(ways)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_there_is_no_network_even_past_the_filter(full):
    assert run("import os; print(os.listdir('/sys/class/net'))").reason == "crashed"
    links = "print([line.split(':')[0].strip() for line in open('/proc/self/net/dev').readlines()[2:]])"
    assert run(links).stdout in ("['lo']\n", "[]\n", "")


def test_a_program_cannot_kill_its_parent_or_us(kind):
    program = f"""
        import os, signal, time
        for pid in (os.getppid(), 1, {os.getpid()}, {os.getppid()}, -1):
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGSTOP, signal.SIGKILL):
                try:
                    if pid > 0 or number != signal.SIGSTOP:
                        os.kill(pid, number)
                except OSError:
                    pass
        time.sleep(0.1)
        print("alive")
    """
    result = run(program)
    if kind == "full":
        assert (result.stdout, *outcome(result)) == ("alive\n", "ok", 0)  # a signal to -1 does not reach its sender
    else:
        assert result.reason in ("ok", "crashed")  # it may hit itself by a number from outside or by -1


def test_our_environment_cannot_be_read_from_proc(kind, monkeypatch):
    """Not even from the sandbox's own processes."""
    monkeypatch.setenv("AGPO_TEST_SECRET", "tell nobody")
    program = f"""
        import glob
        for path in ["/proc/{os.getpid()}/environ", *glob.glob("/proc/[0-9]*/environ")]:
            try:
                print(open(path).read())
            except OSError:
                pass
    """
    assert "tell nobody" not in run(program).stdout


def test_the_watcher_cannot_be_looked_into(kind):
    ways = [
        f"open(f'/proc/{{os.getppid()}}/{name}', 'rb').read(1)" for name in ("mem", "environ", "fd/3", "cwd/x", "maps")
    ]
    assert run(attempts(ways)).stdout == none_of(ways)


def test_a_program_sees_only_its_own_processes(full):
    assert set(run("import os; print(*[n for n in os.listdir('/proc') if n.isdigit()])").stdout.split()) == {"1", "2"}


# Number on x86-64, number elsewhere, arguments that would work if the call were allowed.
SYSTEM_CALLS = {
    "user namespace": "272 if x86 else 97, 0x10000000",
    "shared memory": "29 if x86 else 194, 0, 1 << 20, 0o1600",
    "memory file": "319 if x86 else 279, b'name', 0",
    "io_uring": "425, 8, ctypes.create_string_buffer(256)",
    "trace": "101 if x86 else 117, 16, os.getppid(), 0, 0",
    "key": "248 if x86 else 217, b'user', b'name', b'x', 1, -3",
    "bpf": "321 if x86 else 280, 0, 0, 0",
    "mount": "165 if x86 else 40, b'tmpfs', b'.', b'tmpfs', 0, 0",
}


def test_dangerous_system_calls_are_refused(kind):
    program = f"""
        import ctypes, os
        x86 = os.uname().machine == "x86_64"
        libc = ctypes.CDLL(None, use_errno=True)
        for call in {list(SYSTEM_CALLS.values())!r}:
            print(eval(f"libc.syscall({{call}})"), ctypes.get_errno())
    """
    assert run(program).stdout == "-1 1\n" * len(SYSTEM_CALLS)  # EPERM


def test_no_further_user_namespace_can_be_made_by_clone_either(full):
    program = """
        import ctypes, os
        x86 = os.uname().machine == "x86_64"
        libc = ctypes.CDLL(None, use_errno=True)
        pid = libc.syscall(56 if x86 else 220, 0x10000000 | 17, 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        print(pid, ctypes.get_errno())
    """
    assert run(program).stdout == "-1 1\n"


def test_no_privilege_is_held_or_can_be_gained(kind):
    program = """
        import os
        print(os.getuid() != 0, os.geteuid() != 0)
        for attempt in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.chown(".", 0, 0), lambda: os.nice(-5)):
            try:
                attempt()
                print("done")
            except OSError:
                pass
    """
    assert run(program).stdout == "True True\n"


def test_limits_cannot_be_raised(kind):
    program = """
        import resource
        for kind in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU):
            try:
                resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                print("raised", kind)
            except (ValueError, OSError):
                pass
    """
    assert run(program).stdout == ""


# ── C++ ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

SUM = "#include <iostream>\nint main() { long a, b; std::cin >> a >> b; std::cout << a + b << '\\n'; }"


@needs_cpp
def test_cpp_is_compiled_once_and_run_for_each_input(kind, monkeypatch):
    compiled, original = [], sandbox._compile
    monkeypatch.setattr(sandbox, "_compile", lambda program: compiled.append(1) or original(program))
    results = sandbox.run_all(SUM, ["1 2", "3 4", "5 6"], "cpp", LIMITS)
    assert [r.stdout for r in results] == ["3\n", "7\n", "11\n"]
    assert compiled == [1]


@needs_cpp
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("throw 1;", ("crashed", -signal.SIGABRT)),
        ("volatile int *p = nullptr; *p = 1;", ("crashed", -signal.SIGSEGV)),
        ("std::vector<char> v(1ul << 40);", ("memory", -signal.SIGABRT)),
        ("return 7;", ("crashed", 7)),
        ("for (;;);", ("timeout", None)),
    ],
)
def test_cpp_failures_are_told_apart(kind, body, expected):
    program = "#include <vector>\nint main() {" + body + "}"
    assert outcome(run(program, limits=LONGER, language="cpp")) == expected


@needs_cpp
def test_a_compiler_error_is_handed_on(kind):
    results = sandbox.run_all("int main() { return x; }", ["", ""], "cpp", LIMITS)
    assert [r.reason for r in results] == ["compile"] * 2
    assert "'x' was not declared" in results[0].stderr.replace("‘", "'").replace("’", "'")


@needs_cpp
@pytest.mark.parametrize(
    "program",
    [
        '#include "/dev/zero"',
        '#include "{secret}"\nint main() {{}}',
        "template <int n> struct S {{ S<n + 1> s; }}; S<0> s; int main() {{}}",
        "int a[1 << 27] = {{1}}; int main() {{}}",
        '#include "program.cpp"',
    ],
    ids=["device", "secret", "endless template", "huge binary", "includes itself"],
)
def test_hostile_sources_do_not_get_past_the_compiler(kind, secret, monkeypatch, program):
    monkeypatch.setattr(sandbox, "COMPILE_LIMITS", replace(sandbox.COMPILE_LIMITS, seconds=1.5, stack_bytes=MARK))
    result = run(program.format(secret=secret), language="cpp")
    assert result.reason == "compile"
    assert "the secret" not in result.stderr


def test_without_a_compiler_cpp_is_refused_with_the_reason(kind, monkeypatch):
    monkeypatch.setattr(sandbox, "compiler", lambda: None)
    with pytest.raises(SandboxRefused, match=r"no g\+\+ on PATH.*install a C\+\+ compiler"):
        run(SUM, language="cpp")


# ── refusal ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_unknown_language_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="language: unknown 'perl'; use one of python, cpp"):
        sandbox.run("print 1", language="perl")


def pretend(monkeypatch, full, weak):
    found = {False: full, True: weak}
    monkeypatch.setattr(sandbox, "missing", lambda weak: found[weak])


def test_a_machine_without_a_full_sandbox_refuses_and_says_what_to_do(monkeypatch):
    pretend(monkeypatch, ("start: unshare: Operation not permitted",), ("no wall around signals",))
    monkeypatch.delenv(sandbox.WEAK_VARIABLE, raising=False)
    refusal = "unshare: Operation.*AGPO_WEAK_SANDBOX=1; tried on this machine: no wall around signals"
    with pytest.raises(SandboxRefused, match=refusal):
        sandbox.run("print(1)")
    with pytest.raises(SandboxRefused):
        sandbox.require(weak=False)
    sandbox.require(weak=True)
    monkeypatch.setenv(sandbox.WEAK_VARIABLE, "1")
    sandbox.require()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
def test_where_the_kernel_refuses_namespaces_the_trial_says_so(weak_python, open_folder):
    """As in a container, the calling process has a filter that refuses `unshare`."""
    folder = str(Path(sandbox.__file__).parents[1])
    script = f"""
import sys
sys.path.insert(0, {folder!r})
import sandbox
from sandbox import launcher
sandbox.PYTHON = {sandbox.PYTHON!r}
launcher.call("prctl", launcher.PR_NO_NEW_PRIVS, 1, 0, 0, 0)
launcher.forbid()
print(sandbox.missing(weak=False))
counted = "no wall around processes"  # over the user, so that a neighbour's processes shift it
print({{*sandbox.missing(weak=True)}} - {{counted}} == {{*{weak_python!r}}} - {{counted}})
try:
    sandbox.run("print(1)")
except sandbox.SandboxRefused as refusal:
    print("refused:", refusal)
"""
    environment = {key: value for key, value in os.environ.items() if key != sandbox.WEAK_VARIABLE}
    environment["TMPDIR"] = str(open_folder)
    command = [sys.executable, "-I", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    trial, weak, refusal = done.stdout.splitlines()
    assert "unshare: Operation not permitted" in trial
    assert weak == "True"
    assert refusal.startswith("refused: sandbox: this machine offers no full sandbox (start: PermissionError: ")
    assert list(open_folder.iterdir()) == []


def test_where_nothing_starts_consent_does_not_help(monkeypatch):
    pretend(monkeypatch, ("start: no",), ("start: it needs Linux, this is darwin",))
    with pytest.raises(SandboxRefused, match="not even the weak sandbox .*darwin"):
        sandbox.require(weak=True)


def test_the_trial_program_finds_every_wall_missing_where_there_is_none(tmp_path):
    """Without a sandbox it must name all walls; otherwise its naming none would prove nothing."""
    outside = tmp_path / "outside"
    outside.touch()
    program = sandbox._TRY.format(processes=3, parent=os.getpid(), memory=MIB, file=str(outside), full=False)
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == list(sandbox.WALLS)


def test_a_launcher_that_fails_for_a_moment_is_started_again(kind, monkeypatch):
    talk, failures = sandbox._talk, [1, 1]

    def fails_twice(*args):
        return ({"error": "busy"}, b"", b"", b"") if failures and failures.pop() else talk(*args)

    monkeypatch.setattr(sandbox, "_talk", fails_twice)
    assert run("print(1)").stdout == "1\n"
    monkeypatch.setattr(sandbox, "_PAUSES", (0.0,))
    monkeypatch.setattr(sandbox, "_talk", lambda *args: ({"error": "broken"}, b"", b"", b""))
    with pytest.raises(SandboxRefused, match="broken"):
        run("print(1)")


# ── whatever a program does is its own result ──────────────────────────────────────────────────────

PRELUDE = """
import ctypes, fcntl, mmap, os, random, resource, shutil, signal, socket, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
x86 = os.uname().machine == "x86_64"
outsiders = [os.getppid(), 1, {asking}]
def name(raw):
    libc.prctl(15, ctypes.c_char_p(raw[:15]), 0, 0, 0)
def syscall(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")
def child(act):
    if not os.fork():
        try:
            act()
            time.sleep(60)
        finally:
            os._exit(0)
def thread(act):
    threading.Thread(target=lambda: (act(), time.sleep(0.3)), daemon=True).start()
def executable(raw):
    with open(os.open(raw, os.O_CREAT | os.O_WRONLY, 0o755), "wb") as file:
        file.write(open("/bin/sleep", "rb").read())
    return raw
def everything_open():
    while True:
        os.dup(1)
def many_forks(n):
    for _ in range(n):
        if not os.fork():
            os.setsid()
"""
# {name}: hostile bytes; {n}: a small number; {mb}: some MiB; {signal}: any signal; {pid}: the watcher's, 1 or ours
ACTS = (
    "name({name})",
    "thread(lambda: name({name}))",
    "child(lambda: name({name}))",
    "child(lambda: (os.setsid(), name({name}), os.fork()))",
    "open({name}, 'wb').write(os.urandom(100))",
    "os.mkdir({name}, {n} * 73)",
    "os.umask(0o777), os.makedirs(b'a/b/c'), os.chmod(b'a', 0)",
    "os.symlink({name}, {name} + b'2')",
    "os.symlink('/', b'root' + {name}[:9])",
    "os.mkfifo({name})",
    "os.rename('program.py', {name})",
    "[os.mkdir('d' * 150) or os.chdir('d' * 150) for _ in range({n})]",
    "[open(str(i), 'w').close() for i in range({n} * 40)]",
    "open('large', 'wb').write(bytes({mb} << 20))",
    "subprocess.Popen([executable({name}), '60'])",
    "subprocess.Popen([{name} + b'(' * {n}, b')' * {n} + b'60'], executable='/bin/sleep', start_new_session=True)",
    "resource.prlimit({pid}, resource.RLIMIT_NOFILE, (0, 0))",
    "resource.prlimit({pid}, resource.RLIMIT_CPU, (0, 0))",
    "resource.prlimit({pid}, resource.RLIMIT_AS, (1, 1))",
    "resource.prlimit({pid}, resource.RLIMIT_FSIZE, (0, 0))",
    "resource.setrlimit({n} % 10, (0, 0))",
    "os.setpriority(os.PRIO_PROCESS, {pid}, 19)",
    "os.setpriority(os.PRIO_USER, 0, 19)",
    "os.nice(19)",
    "os.sched_setaffinity({pid}, {{0}})",
    "os.sched_setscheduler({pid}, os.SCHED_IDLE, os.sched_param(0))",
    "os.kill({pid}, {signal})",
    "os.killpg(0, {signal})",
    "os.kill(-1, {signal})",
    "[signal.signal(s, signal.SIG_IGN) for s in range(1, 65) if s not in (9, 19, 32, 33)]",
    "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))",
    "signal.setitimer(signal.ITIMER_REAL, 0.01 * {n})",
    "signal.alarm(1)",
    "fcntl.fcntl(1, fcntl.F_SETOWN, {pid})",
    "[fcntl.fcntl(fd, 1031, {mb} << 16) for fd in (0, 1, 2)]",
    "[os.set_blocking(fd, False) for fd in (0, 1, 2)]",
    "os.closerange(0, {n})",
    "everything_open()",
    "os.dup2(os.open('.', os.O_RDONLY), {n} % 3)",
    "libc.prctl(4, 0, 0, 0, 0)",
    "libc.prctl(36, 1, 0, 0, 0)",
    "os.write(1, {name} * 1000)",
    "os.write(2, b'Traceback\\nMemoryError\\n' + {name})",
    "print(repr({{'reason': 'ok'}}), 'started', flush=True)",
    "bytearray(os.urandom(1)) * ({mb} << 20)",
    "mmap.mmap(-1, {mb} << 20)",
    "many_forks({n})",
    "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "child(lambda: os.kill(os.getpid(), signal.SIGSTOP))",
)
ENDS = (
    "pass",
    "os._exit({n})",
    "os.kill(os.getpid(), {signal})",
    "os.execv('/bin/sleep', [{name}, b'0.1'])",
    "time.sleep(60)",
    "while True: os.write(1, {name})",
    "while True: pass",
    "os.execv(executable({name}), [{name}, b'60'])",
    "exec('while True:\\n try: os.fork(); name({name})\\n except OSError: pass')",
    "raise {n} / 0",
)


def hostile_name(rng):
    """Bytes that file and process names may contain and that code which reads /proc or folders often mishandles."""
    kinds = (
        bytes(rng.randrange(1, 256) for _ in range(rng.randint(1, 40))),
        rng.choice([b"\xff", b"\xc3(", b") R 1 1 1", b"(\n)", b"a\nPss: 0 kB", b"\x1b[2J", b"\xed\xa0\x80", b"%s{}"]),
        b"\xff" * rng.randint(1, 255),
    )
    return rng.choice(kinds).replace(b"/", b"_") or b"x"


def hostile_program(rng):
    """A program of a few hostile acts, none of which stops the next, and a hostile end."""

    def fill(act):
        return act.format(
            name=hostile_name(rng),
            n=rng.randint(1, 30),
            mb=rng.choice([1, 20, 200, 900]),
            signal=rng.randint(1, 64),
            pid=f"outsiders[{rng.randrange(3)}]",
        )

    lines = [PRELUDE.format(asking=os.getpid())]
    for act in rng.sample(ACTS, rng.randint(1, 5)):
        lines.append(f"try:\n    {fill(act)}\nexcept BaseException:\n    pass")
    return "\n".join([*lines, "time.sleep(0.1)", fill(rng.choice(ENDS))])


HOSTILE_LIMITS = replace(LIMITS, seconds=0.7, memory_bytes=256 * MIB, output_bytes=100_000)
REASONS = {"ok", "crashed", "timeout", "memory", "output", "compile"}


def through_run(program):
    result = sandbox.run(program, limits=HOSTILE_LIMITS)
    assert isinstance(result, sandbox.Result) and result.reason in REASONS
    assert result.seconds < HOSTILE_LIMITS.seconds + 5


def through_the_grader(program):
    tests = (("1\n", "1\n"), ("2\n", "2\n"))
    problem = CodeProblem("code_contests", "test-0", "", "", tests, seconds=0.2, memory_bytes=MARK)  # so is its stack
    graded = CodeContests().grade(problem, f"```python\n{program}\n```")
    assert isinstance(graded, Graded) and 0 <= graded.reward <= 1
    assert CodeContests().grade(replace(problem, seconds=5.0), "```python\nprint(input())\n```").reward == 1


def through_the_tool(program):
    first, second = Python(HOSTILE_LIMITS).run([program, "print(6 * 7)"])
    assert isinstance(first, Reply)
    assert second == Reply("42") or second.failed  # a busy machine may stop it; it cannot change its answer


@pytest.mark.parametrize("through", [through_run, through_the_grader, through_the_tool])
@pytest.mark.parametrize("seed", [0, 1, pytest.param(range(100, 160), marks=pytest.mark.slow, id="many")])
def test_whatever_a_program_does_is_its_own_result(kind, through, seed):
    for number in [seed] if isinstance(seed, int) else seed:
        rng = random.Random(f"{through.__name__} {number}")
        for _ in range(2):
            program = hostile_program(rng)
            through(program)
            assert marked_processes() == [], program
    assert run("print(6 * 7)").stdout == "42\n"


@pytest.mark.parametrize("act", ACTS[:6] + ACTS[14:20], ids=range(12))
def test_a_harmless_ending_after_hostile_names_and_limits_is_ok(kind, act):
    """Such acts could only disturb the watcher: the program goes on, and its result must be ok."""
    rng = random.Random(act)
    act = act.format(name=hostile_name(rng) + b"\xff", n=2, mb=1, signal=9, pid="outsiders[0]")
    source = f"{PRELUDE.format(asking=os.getpid())}\ntry:\n    {act}\nexcept OSError:\n    pass\n"
    result = run(f"{source}time.sleep(0.15)\nsys.stdout.buffer.write(b'done')")
    assert (result.stdout, *outcome(result)) == ("done", "ok", 0)


OTHERS = [
    *(f"resource.prlimit({pid}, resource.RLIMIT_{limit}{new})" for pid in ("os.getppid()", os.getpid())
      for limit in ("NOFILE", "CPU", "AS") for new in ("", ", (0, 0)")),
    *(f"os.setpriority(os.PRIO_{which}, {who}, 19)" for which, who in (
        ("PROCESS", "os.getppid()"), ("PROCESS", os.getpid()), ("USER", 0), ("PGRP", os.getpgid(0)))),
    *(f"os.sched_setaffinity({pid}, {{0}})" for pid in ("os.getppid()", os.getpid())),
    *(f"os.sched_setscheduler({pid}, os.SCHED_IDLE, os.sched_param(0))" for pid in ("os.getppid()", os.getpid())),
    "syscall(251 if x86 else 30, 1, os.getppid(), 3 << 13)",  # ioprio_set
    "syscall(314 if x86 else 274, os.getppid(), ctypes.create_string_buffer(bytes([48]), 48), 0)",  # sched_setattr
    "fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())",
    "fcntl.fcntl(0, 10, signal.SIGKILL)",
    *(f"socket.socketpair(socket.AF_UNIX, socket.SOCK_{kind})" for kind in ("DGRAM", "SEQPACKET", "RAW")),
    r"socket.socketpair()[0].bind('\0name')",
    "socket.socketpair()[0].bind('name')",
    "socket.socketpair()[0].listen()",
    r"socket.socketpair()[0].connect('\0name')",
    *(f"syscall(56 if x86 else 220, {flag:#x} | 17, 0, 0, 0, 0)" for flag in (
        0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)),  # clone
    "syscall(435, ctypes.create_string_buffer((0x10000000).to_bytes(8, 'little') + bytes(24) + b'\\x11', 88), 88)",
    "syscall(272 if x86 else 97, 0x10000000)",  # unshare
    "syscall(253 if x86 else 26, 0)",  # inotify_init, inotify_init1
    "syscall(206 if x86 else 0, 1, ctypes.create_string_buffer(8))",  # io_setup
]  # fmt: skip


def test_nothing_outside_is_limited_slowed_signalled_or_reached(kind):
    program = PRELUDE.format(asking=os.getpid()) + attempts(OTHERS)
    assert run(program).stdout == none_of(OTHERS)


def test_a_datagram_reaches_no_socket_outside(kind, open_folder):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as outside:
        outside.bind(str(open_folder / "socket"))
        (open_folder / "socket").chmod(0o777)
        outside.setblocking(False)
        ways = [
            f"socket.socketpair(socket.AF_UNIX, socket.SOCK_{kind})[0].{send}"
            for kind in ("DGRAM", "STREAM", "SEQPACKET")
            for send in (
                f"sendto(b'x', {str(open_folder / 'socket')!r})",
                f"sendmsg([b'x'], [], 0, {str(open_folder / 'socket')!r})",
            )
        ]
        assert run(attempts(ways)).stdout == none_of(ways)
        with pytest.raises(BlockingIOError):
            outside.recv(1)


def test_what_programs_need_of_the_refused_calls_still_works(kind):
    program = """
        import asyncio, os, resource, signal, subprocess, sys, threading, time
        asyncio.run(asyncio.sleep(0))
        os.nice(1)
        os.sched_setaffinity(0, os.sched_getaffinity(0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
        thread = threading.Thread(target=print, args=("thread",))
        thread.start()
        thread.join()
        sleeper = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
        sleeper.kill()
        print(sleeper.wait(), subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True).stdout)
        signal.signal(signal.SIGALRM, lambda *_: print("alarm"))
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)
    """
    result = run(program)
    assert result.stdout.split() == ["thread", "-9", r"b'1\n'", "alarm"] or result.stdout == ""  # not flushed
    assert (result.stderr, *outcome(result)) == ("", "crashed", -signal.SIGTERM)


FILLERS = {
    "bytes": "for i in range(10**5): open(str(i), 'wb').write(block)",
    "one deep": "for i in range(10**5): os.mkdir('d' * 200); os.chdir('d' * 200); open('f', 'wb').write(block)",
    "deleted": "while True: f = open('f', 'wb', 0); kept.append(f); os.remove('f'); f.write(block)",
    "files": "for i in range(10**7): open(str(i), 'w').close()",
    "folders": "for i in range(10**7): os.mkdir(str(i))",
    "hidden": "os.umask(0); os.mkdir('h', 0o300)\nfor i in range(10**7): open(f'h/{i}', 'w').close()",
    "links": "for i in range(10**7): os.symlink('x', str(i))",
    "hostile names": "for i in range(10**7): open(b'\\xff\\n' + str(i).encode(), 'w').close()",
}


@pytest.mark.parametrize("filler", FILLERS.values(), ids=FILLERS)
def test_a_full_scratch_folder_ends_the_program_soon(kind, filler):
    program = f"import os\nblock, kept = bytes(1 << 20), []\n{filler}"
    limits = replace(LIMITS, seconds=60.0, cpu_seconds=60, scratch_bytes=8 * MIB, scratch_files=200, open_files=1000)
    result = run(program, limits=limits)
    assert result.reason == "crashed" and result.seconds < 20
    said = "stopped: its scratch folder held more than it may" if kind == "weak" else "[Errno 28] No space left"
    assert said in result.stderr


def test_a_killed_launcher_is_the_end_of_the_program_and_its_result(kind):
    """A kernel short of memory may kill the launcher, and so may the program: this counts as the program's failure."""
    before, results = children(), []
    program = "import os, time\nif not os.fork(): os.setsid()\nprint('on', flush=True)\ntime.sleep(60)"
    thread = threading.Thread(target=lambda: results.append(run(program, limits=replace(LIMITS, seconds=30.0))))
    thread.start()
    end = time.monotonic() + 20
    while len(marked_processes()) < 2 and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.3)
    for pid in children() - before:
        os.kill(int(pid), signal.SIGKILL)
    thread.join(20)
    assert outcome(results[0]) == ("crashed", None)
    assert "watcher was lost" in results[0].stderr


@pytest.mark.parametrize("length", [10_000_000, 40_000_000])
def test_a_source_that_is_too_large_never_ran(kind, length):
    result = sandbox.run("x = 1\n" * (length // 6), limits=replace(LIMITS, seconds=60.0, cpu_seconds=60))
    assert result.reason == "compile"
    assert "too large to be compiled" in result.stderr or "do not fit in a scratch folder" in result.stderr


@pytest.mark.parametrize("program", ["print(1)\n\0print(2)", "print(1)\0", "\0", "# \0\nprint(1)"])
@pytest.mark.parametrize("language", ["python", pytest.param("cpp", marks=needs_cpp)])
def test_a_source_with_a_null_byte_never_ran(kind, program, language):
    result = run(program, language=language)
    assert (result.reason, result.stdout) == ("compile", "") and "null bytes" in result.stderr


@needs_cpp
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("char a[{size}] = {{1}}; int main() {{}}", "compile"),  # the binary is larger than the scratch folder
        ("char a[1u << 31]; int main() {{ a[5] = 1; }}", "crashed"),
    ],
    ids=["size", "memory"],
)
def test_a_binary_that_cannot_start_is_the_programs_failure(kind, program, reason):
    limits = replace(LIMITS, scratch_bytes=4 * MIB)
    result = run(program.format(size=6 * MIB), limits=limits, language="cpp")
    assert result.reason in (reason, "memory")


@needs_cpp
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("for (;;) { char *p = (char *)malloc(1 << 24); memset(p, 1, 1 << 24); }", "memory"),
        ("signal(SIGXCPU, SIG_IGN); for (volatile int i = 0;;) i = i + 1;", "timeout"),
    ],
    ids=["memory", "time"],
)
def test_bombs_are_told_by_what_they_exhausted(kind, body, reason):
    program = f"#include <csignal>\n#include <cstdlib>\n#include <cstring>\nint main() {{ {body} }}"
    limits = replace(LIMITS, seconds=30.0, cpu_seconds=1, memory_bytes=128 * MIB)
    assert run(program, limits=limits, language="cpp").reason == reason


# ── as an ordinary user, and on older kernels ────────────────────────────────────────────────────────────────────────

# This program runs programs, each followed by a harmless one, and prints their results.
ORDINARY = """
import importlib.util, json, os, resource, subprocess, sys
def load(name):
    spec = importlib.util.spec_from_file_location(name, os.path.join(os.path.dirname(__file__), name, "__init__.py"))
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
sandbox = load("sandbox")
kind, programs, limits = json.load(sys.stdin)
if kind == "weak":
    missing = sandbox.missing(weak=True)
    sandbox.missing = lambda weak: missing if weak else ("a full one, for this test",)
found, bystander = [], subprocess.Popen(["/bin/sleep", "600"])
os.environ["AGPO_BYSTANDER"] = str(bystander.pid)
before = resource.getrlimit(resource.RLIMIT_NOFILE), os.getpriority(os.PRIO_PROCESS, 0)
for program in programs:
    program = program.replace("BYSTANDER", str(bystander.pid)).replace("ASKING", str(os.getpid()))
    result = sandbox.run(program, limits=sandbox.Limits(**limits), weak=kind == "weak")
    harmless = sandbox.run("print(6 * 7)", weak=kind == "weak").stdout
    found.append([result.reason, result.seconds, result.stdout, harmless])
after = resource.getrlimit(resource.RLIMIT_NOFILE), os.getpriority(os.PRIO_PROCESS, 0)
alive = bystander.poll() is None
bystander.kill()
json.dump([sandbox.missing(weak=kind == "weak"), found, alive and before == after], sys.stdout)
"""


@pytest.fixture
def as_user(open_folder):
    """A function that runs programs in an ordinary user's sandboxes and checks that they leave nothing.

    Its arguments are the kind of sandbox, the programs, the Landlock version that the launcher is to see, and limits.
    It returns [reason, seconds, stdout] for each program, and checks that no program disturbs the next one or another
    process of the same user.
    """
    if not sys.platform.startswith("linux") or not os.path.exists("/usr/bin/python3"):
        pytest.skip("needs Linux and the system's Python")
    user = 400_000 + os.getpid() if os.getuid() == 0 else os.getuid()
    identity = {"user": user, "group": user, "extra_groups": []} if os.getuid() == 0 else {}
    home = open_folder / "home"
    home.mkdir()
    home.chmod(0o777)

    def processes():
        return {p.name for p in Path("/proc").glob("[0-9]*") if os.getuid() == 0 and owner(p) == user}

    def owner(path):
        try:
            ended = (path / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
            return None if ended else path.stat().st_uid
        except OSError:
            return None

    def run_all(kind, programs, landlock=None, **limits):
        (home / "sandbox").mkdir(exist_ok=True)
        for name in ("__init__.py", "launcher.py"):
            text = Path(sandbox.__file__).with_name(name).read_text()
            if landlock is not None and name == "launcher.py":
                call = 'landlock(spec["readable"], scratch)'
                assert call in text
                text = text.replace(call, f"min({call}, {landlock})" if landlock else "0")
            (home / "sandbox" / name).write_text(text)
        (home / "ordinary.py").write_text(ORDINARY)
        told = subprocess.run(
            ["/usr/bin/python3", "-I", "-B", str(home / "ordinary.py")],
            input=json.dumps([kind, programs, {"seconds": 10.0, "stack_bytes": MARK, **limits}]),
            env={"PATH": "/usr/bin:/bin", "HOME": str(home), "TMPDIR": str(home)},
            stdout=subprocess.PIPE,
            text=True,
            timeout=500,
            **identity,
        )
        if not told.stdout:
            pytest.fail("the sandbox raised")
        missing, found, in_peace = json.loads(told.stdout)
        if any(why.startswith("start") for why in missing):
            pytest.skip(f"no {kind} sandbox for an ordinary user here: {missing}")
        assert in_peace
        assert [harmless for *_, harmless in found] == ["42\n"] * len(programs)
        assert marked_processes() == [] and processes() == set()
        assert not list(home.glob("agpo-sandbox-*"))
        return [told for *told, _ in found]

    return run_all


KINDS = pytest.mark.parametrize("kind_of_user", ["full", "weak"])


@KINDS
def test_bombs_of_an_ordinary_user_are_told_by_what_they_exhausted(as_user, kind_of_user):
    memory = [
        "x = []\nwhile True: x.append(bytearray(10**7))",
        "import mmap\nx = []\nwhile True: x.append(mmap.mmap(-1, 1 << 24))",
        "import os, time\nfor _ in range(4): os.fork() or (bytearray(os.urandom(1)) * (60 << 20), time.sleep(60))\n"
        "time.sleep(60)",
    ]
    cpu = [
        "while True: pass",
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    ]
    found = as_user(kind_of_user, memory + cpu, seconds=2.5, cpu_seconds=1, memory_bytes=128 * MIB)
    assert [reason for reason, *_ in found] == ["memory"] * len(memory) + ["timeout"] * len(cpu)


@KINDS
@pytest.mark.parametrize("count", [5, pytest.param(150, marks=pytest.mark.slow)])
def test_hostile_programs_of_an_ordinary_user_are_their_own_results(as_user, kind_of_user, count):
    rng = random.Random(count)
    programs = [hostile_program(rng).replace(str(os.getpid()), "ASKING") for _ in range(count)]
    found = as_user(kind_of_user, programs, seconds=0.7, memory_bytes=256 * MIB, output_bytes=100_000)
    assert all(reason in REASONS and seconds < 5 for reason, seconds, _ in found)


# This program leaves children with names and sessions of their own and tries to kill or stop the processes that could
# end them.
ASSASSIN = """
import ctypes, os, signal, time
libc = ctypes.CDLL(None)
x86 = os.uname().machine == "x86_64"
for _ in range(3):
    if not os.fork():
        os.setsid()
        libc.prctl(15, ctypes.c_char_p(b"\\xff) S 1 1"), 0, 0, 0)
        os.fork()
        time.sleep(60)
        os._exit(0)
for victim in (os.getppid(), BYSTANDER, ASKING):
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for attempt in (
            lambda: os.kill(victim, number),
            lambda: os.killpg(victim, number),
            lambda: libc.syscall(200 if x86 else 130, victim, number),
            lambda: libc.syscall(234 if x86 else 131, victim, victim, number),
            lambda: signal.pidfd_send_signal(os.pidfd_open(victim), number),
        ):
            try:
                attempt()
            except OSError:
                pass
print("done", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(("kind_of_user", "landlock"), [("full", None), ("weak", None), ("weak", 5), ("weak", 0)])
def test_no_program_of_an_ordinary_user_ends_its_watcher_or_a_bystander(as_user, kind_of_user, landlock):
    """Tried with the current Landlock, with that before Linux 6.12, and with none, where only the filter is left."""
    if kind_of_user == "full":
        program = ASSASSIN.replace("BYSTANDER, ASKING", "1")  # there these numbers name no process, or the program
    else:
        program = ASSASSIN
    ((reason, seconds, stdout),) = as_user(kind_of_user, [program], landlock, seconds=1.5)
    assert (reason, stdout) == ("timeout", "done\n") and seconds < 5


@pytest.mark.parametrize("landlock", [None, 2])
def test_a_weak_sandbox_of_an_ordinary_user_changes_no_file_outside(as_user, open_folder, landlock):
    """Landlock does not guard modes and times, nor lengths before its version 3, and these files belong to the user."""
    library = open_folder / "home" / "own"  # made by the user, in the first program's asking process
    ways = [
        "os.chmod(victim, 0)",
        "os.utime(victim, (0, 0))",
        "os.truncate(victim, 0)",
        "os.open(victim, os.O_RDONLY | os.O_TRUNC)",
        "os.open(victim, os.O_WRONLY)",
        "os.remove(victim)",
        "os.setxattr(victim, 'user.x', b'')",
        "os.chown(victim, -1, os.getgid())",
    ]
    program = "import os\nvictim = " + repr(str(library)) + "\n"
    program += "\n".join(f"try:\n    {way}\nexcept OSError:\n    pass" for way in ways)
    library.write_text("content")
    library.chmod(0o644)
    if os.getuid() == 0:
        os.chown(library, 400_000 + os.getpid(), 400_000 + os.getpid())
    before = library.stat()
    as_user("weak", [program], landlock)
    after = library.stat()
    assert [getattr(after, part) for part in ("st_mode", "st_mtime_ns", "st_size", "st_ctime_ns")] == [
        getattr(before, part) for part in ("st_mode", "st_mtime_ns", "st_size", "st_ctime_ns")
    ]


# ── homes and projects are never shown ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def home(open_folder, monkeypatch):
    """A home folder with a secret in it."""
    folder = open_folder / "home"
    (folder / "bin").mkdir(parents=True)
    (folder / "secret").write_text("the secret")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")
    for known in (sandbox._readable, sandbox._compiler_files, sandbox._cpp_missing):
        known.cache_clear()
    yield folder
    for known in (sandbox._readable, sandbox._compiler_files, sandbox._cpp_missing):
        known.cache_clear()


def compiler_in(home, prefix=None):
    """Put a g++ in the home that calls the system's and, given a `prefix`, claims to have its own files there."""
    answer = ""
    if prefix is not None:
        part = prefix / "libexec" / "gcc" / "machine" / "12" / "cc1plus"
        part.parent.mkdir(parents=True)
        part.touch()
        answer = f'[ "$1" = -print-prog-name=cc1plus ] && echo {part} && exit\n'
    (home / "bin" / "g++").write_text(f'#!/bin/sh\n{answer}exec /usr/bin/g++ "$@"\n')
    (home / "bin" / "g++").chmod(0o755)


@needs_cpp
@pytest.mark.parametrize("way", ["link", "folder of its own", pytest.param("script", marks=pytest.mark.slow)])
def test_a_compiler_in_a_home_folder_shows_its_own_files_alone(kind, home, way):
    if way == "link":
        (home / "bin" / "g++").symlink_to("/usr/bin/g++")
    else:
        compiler_in(home, home / "opt" / "gcc" if way == "folder of its own" else None)
    secret = home / "secret"
    body = f'std::cout << "read:" << std::ifstream("{secret}").rdbuf();'
    result = run(f"#include <fstream>\n#include <iostream>\nint main() {{ {body} }}", language="cpp")
    assert (result.stdout, result.reason) == ("read:", "ok")
    assert "the secret" not in run(f'#include "{secret}"\nint main() {{}}', language="cpp").stderr
    ways = [f"open({str(secret)!r})", *([f"os.listdir({str(home / 'bin')!r})"] if kind == "weak" else [])]
    assert run(attempts(ways)).stdout == none_of(ways)


@needs_cpp
@pytest.mark.parametrize("above", [False, True], ids=["is the home", "holds the home"])
def test_a_compiler_that_is_installed_as_a_home_folder_is_refused(kind, home, above):
    compiler_in(home, home.parent if above else home)
    with pytest.raises(SandboxRefused, match=r"C\+\+ compiler .* is or holds .*home, .*in a folder of its own"):
        run(SUM, language="cpp")
    assert run("print(1)").stdout == "1\n"  # Python needs no compiler


@needs_cpp
def test_a_compiler_that_does_not_work_inside_is_found_out_before_a_program_runs(kind, home):
    (home / "bin" / "g++").write_text(f'#!/bin/sh\n. {home}/secret\nexec /usr/bin/g++ "$@"\n')
    (home / "bin" / "g++").chmod(0o755)
    with pytest.raises(SandboxRefused, match="does not work inside it"):
        run(SUM, language="cpp")


# This program loads the sandbox from the path in its first argument and runs the program on its standard input.
FROM_ENVIRONMENT = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("sandbox", sys.argv[1])
sandbox = sys.modules["sandbox"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sandbox)
try:
    print(sandbox.run(sys.stdin.read()).stdout)
except sandbox.SandboxRefused as refusal:
    print("refused:", refusal)
"""


@pytest.mark.parametrize("where", [".", "project", "project/.venv", ".venvs/one"])
def test_a_python_environment_in_a_home_folder_shows_its_own_files_alone(home, where):
    """An environment that is a project's folder or in it does not show the project; one that is a home is refused."""
    if sandbox.missing(weak=False):
        pytest.skip(f"no full sandbox here: {'; '.join(sandbox.missing(weak=False))}")
    folder = home / where
    venv.create(folder, symlinks=True, with_pip=False)
    (home / "project").mkdir(exist_ok=True)
    (home / "project" / "secret").write_text("the secret")
    (folder / "lib" / "secret").write_text("the secret")
    package = next((folder / "lib").glob("python*/site-packages")) / "package.py"
    package.write_text("x = 5")
    secrets = [str(path) for path in home.rglob("secret")]
    program = attempts([f"open({path!r})" for path in secrets]) + "import package; print(package.x)"
    done = subprocess.run(
        [folder / "bin" / "python", "-I", "-c", FROM_ENVIRONMENT, sandbox.__file__],
        input=program,
        capture_output=True,
        text=True,
        check=True,
    )
    if where == ".":
        assert re.match(r"refused: sandbox: Python .* is or holds .*home, .*in a folder of its own", done.stdout)
    else:
        assert done.stdout.split("\n")[:2] == [f"[] of {len(secrets)}", "5"]


def test_no_folder_that_is_shown_is_or_holds_a_home_or_the_project():
    private = [*sandbox._homes(), *sandbox._project()]
    for path in (*sandbox._SYSTEM, *sandbox._readable()):
        if not os.path.islink(path):
            assert not any(f"{folder}/".startswith(f"{path}/") for folder in private), path
    assert str(Path(sandbox.__file__).resolve().parents[2]) in private or "site-packages" in sandbox.__file__


# ── for a long time ──────────────────────────────────────────────────────────────────────────────────────────────────

MIX = (
    ("print(int(input()) ** 2)", "ok"),
    ("1 / 0", "crashed"),
    ("def f(:", "compile"),
    ("while True: print('x' * 100)", "output"),
    ("x = bytearray(1 << 40)", "memory"),
    ("while True: pass", "timeout"),
    ("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", "timeout"),
    ("import os, time\nif not os.fork():\n    os.setsid()\n    os.fork()\n    time.sleep(60)", "ok"),
    ("for i in range(300): open(str(i), 'w').write('x' * 1000)", "ok"),
)


@pytest.mark.slow
def test_a_soak_of_all_kinds_of_programs_leaves_nothing(kind):
    """AGPO_SOAK_MINUTES says how long (default: 0.2)."""
    rng, runs = random.Random(0), 0
    end = time.monotonic() + 60 * float(os.environ.get("AGPO_SOAK_MINUTES", "0.2"))
    limits = replace(LIMITS, seconds=0.5, output_bytes=10_000)
    resident, scratch = [], set(Path(tempfile.gettempdir()).glob("agpo-sandbox-*"))
    while time.monotonic() < end or not runs:
        program, reason = rng.choice(MIX)
        for result in sandbox.run_all(program, ["3"] * 4, limits=limits):
            assert result.reason in (reason, "timeout"), (program, result)  # a busy machine may be late
            runs += 1
        assert marked_processes() == []
        resident.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE"))
    print(f"{runs} runs")
    assert set(Path(tempfile.gettempdir()).glob("agpo-sandbox-*")) <= scratch
    assert resident[-1] - resident[len(resident) // 2] < 50 * MIB

"""The sandbox against hostile programs: each ends with the right reason, and leaves no process and no file.

Each test runs in the full sandbox, and in the weak one unless it says why not.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agpo_core.tasks import sandbox
from agpo_core.tasks.sandbox import MIB, Limits, SandboxRefused

# A stack limit that no other program has: children inherit it, whatever session they move to, and cannot raise it.
MARK = 64 * MIB + 16 * os.getpid()
LIMITS = Limits(seconds=10.0, stack_bytes=MARK)
SHORT = replace(LIMITS, seconds=0.5)  # for programs that never end
LONGER = replace(LIMITS, seconds=1.5)  # for those that must have started, on a busy machine too
needs_cpp = pytest.mark.skipif(sandbox.compiler() is None, reason="no g++")


def marked_processes():
    """The processes, anywhere on the machine, that a program of these tests started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stack = next(line for line in (folder / "limits").read_text().splitlines() if "stack" in line)
            if str(MARK) in stack.split():
                found.append(folder.name)
        except (OSError, StopIteration):
            continue
    return found


def children():
    tasks = Path("/proc/self/task").glob("*/children")
    return {pid for task in tasks for pid in task.read_text().split()}


@pytest.fixture(scope="module")
def weak_python():
    """An interpreter for the weak sandbox. There root's programs run as "nobody", who may not reach root's own."""
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
    """Run the test in one kind of sandbox, and hold it to leave nothing."""
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
    """Killed outright, as by a scheduler: no handler of ours can run."""
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
        assert kind == "weak"  # its scratch folder is on the disk, and whoever would remove it was killed
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
    """A program that tries each way, and prints those that were not refused, and how many it tried."""
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
        assert (result.stdout, *outcome(result)) == ("alive\n", "ok", 0)  # -1 spares who sends it
    else:
        assert result.reason in ("ok", "crashed")  # it may hit itself, under a number from outside or by -1


def test_our_environment_cannot_be_read_from_proc(kind, monkeypatch):
    """The sandbox's own processes too must not hold it."""
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
    with pytest.raises(SandboxRefused, match="unshare: Operation.*AGPO_WEAK_SANDBOX=1: there no wall around signals"):
        sandbox.run("print(1)")
    with pytest.raises(SandboxRefused):
        sandbox.require(weak=False)
    sandbox.require(weak=True)
    monkeypatch.setenv(sandbox.WEAK_VARIABLE, "1")
    sandbox.require()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
def test_where_the_kernel_refuses_namespaces_the_trial_says_so(weak_python, open_folder):
    """As in a container: a filter that refuses `unshare` lies on this process before it asks."""
    folder = str(Path(sandbox.__file__).parent)
    script = f"""
import sys
sys.path.insert(0, {folder!r})
import sandbox, sandbox_launcher as launcher
sandbox.PYTHON = {sandbox.PYTHON!r}
launcher.call("prctl", launcher.PR_NO_NEW_PRIVS, 1, 0, 0, 0)
launcher.forbid()
print(sandbox.missing(weak=False))
print(sandbox.missing(weak=True) == {weak_python!r})
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
    assert refusal.startswith("refused: sandbox: this machine has no full one (start: PermissionError: ")
    assert list(open_folder.iterdir()) == []


def test_where_nothing_starts_consent_does_not_help(monkeypatch):
    pretend(monkeypatch, ("start: no",), ("start: it needs Linux, this is darwin",))
    with pytest.raises(SandboxRefused, match="not even a weak one .*darwin"):
        sandbox.require(weak=True)


def test_the_trial_program_finds_every_wall_missing_where_there_is_none(tmp_path):
    """Run as it is, without a sandbox, it must name them all; else it could not be believed when it names none."""
    outside = tmp_path / "outside"
    outside.touch()
    program = sandbox._TRY.format(processes=3, parent=os.getpid(), memory=MIB, file=str(outside), full=False)
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == list(sandbox._WALLS)


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

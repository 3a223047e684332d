"""The inside of the sandbox: build the walls, start the program, watch it, report. See `agpo_core.tasks.sandbox`.

Not imported but run, `python -I -S sandbox_launcher.py FD`: namespaces need a process with a single thread. It starts
before every program, so it imports the few modules that load fast (`signal`, `socket` or `json` would double it), and
makes raw system calls. FD is a socket. In comes the specification, marshalled, its length before it. Out goes the
report, a line with a Python literal, and after it the file asked for. When the other end closes, whatever is left is
killed.

The processes, outermost first: the launcher; the namespace's process 1, which watches; the program. A weak sandbox
has no process 1: there the launcher watches, and adopts the program's orphans.
"""

import ctypes
import errno
import marshal
import os
import resource
import select
import struct
import sys
import time

SCRATCH = "/scratch"
NOBODY = 65534
POLL_SECONDS = 0.05
KILL_SECONDS = 5.0
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

# Linux's constants; Python has no names for them.
NEW_NS, NEW_UTS, NEW_IPC, NEW_USER, NEW_PID, NEW_NET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
PR_PDEATHSIG, PR_DUMPABLE, PR_SECCOMP, PR_SUBREAPER, PR_NO_NEW_PRIVS = 1, 4, 22, 36, 38
SIGINT, SIGKILL, SIGPIPE, SIGXFSZ, SIG_DFL, SIG_IGN = 2, 9, 13, 25, 0, 1
AT_FDCWD, AT_RECURSIVE, MNT_DETACH = -100, 0x8000, 2

# System calls the program may not make, as (x86_64, aarch64): those that talk to the network or to another process,
# hold memory that no limit counts, or reach parts of the kernel that no exercise needs.
MACHINES = {"x86_64": 0, "aarch64": 1}
AUDIT_ARCH = (0xC000003E, 0xC00000B7)
FORBIDDEN = {
    "socket": (41, 198),
    "io_uring_setup": (425, 425),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
}
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
READ_FILE, WRITE_FILE, READ_TREE = 0b0101, 0b0010, 0b1101  # Landlock's execute, write, read file, read folder

libc = ctypes.CDLL(None, use_errno=True)


def call(name, *args):
    """A system call by its name in libc or its number; raises OSError."""
    args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    code = libc.syscall(ctypes.c_long(name), *args) if isinstance(name, int) else getattr(libc, name)(*args)
    if code < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return code


# ── the walls of a full sandbox: namespaces ──────────────────────────────────────────────────────────────────────────


def enter_namespaces():
    """A user, process, mount, network, IPC and host name namespace of our own; needs no privilege.

    Root maps "nobody" too, for the program to run as: no process limit holds for user 0. Only a process that stayed
    outside may write such a map.
    """
    uid, gid = os.getuid(), os.getgid()
    flags = NEW_USER | NEW_PID | NEW_NS | NEW_NET | NEW_IPC | NEW_UTS
    if uid:
        call("unshare", flags)
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"{uid} {uid} 1")
        write("/proc/self/gid_map", f"{gid} {gid} 1")
        return
    ready, go = os.pipe()
    outside = os.fork()
    if not outside:
        os.close(go)
        try:
            if os.read(ready, 1):
                for kind in ("uid", "gid"):
                    write(f"/proc/{os.getppid()}/{kind}_map", f"0 0 1\n{NOBODY} {NOBODY} 1")
            os._exit(0)
        finally:
            os._exit(1)
    try:
        call("unshare", flags)
        os.write(go, b"1")
    finally:
        os.close(go)
        _, failed = os.waitpid(outside, 0)
    if failed:
        raise OSError(errno.EPERM, f"uid_map: user {NOBODY} cannot be mapped")


def build_root(spec):
    """A root of our own: system folders and the Python installation read-only, devices, /proc, an empty scratch folder.

    The scratch folder is a tmpfs with a size and a number of files, gone with its last process.
    """
    call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
    call("mount", b"tmpfs", b"/tmp", b"tmpfs", MS_NOSUID | MS_NODEV, b"mode=0755,size=1m")
    os.mkdir("/tmp/old")
    call(FORBIDDEN["pivot_root"][MACHINES[os.uname().machine]], b"/tmp", b"/tmp/old")
    os.chdir("/")
    os.mkdir("/new")
    call("mount", b"tmpfs", b"/new", b"tmpfs", MS_NOSUID | MS_NODEV, b"mode=0755,size=1m")
    for path in visible(spec["readable"]):
        if os.path.islink(f"/old{path}") and path in SYSTEM:
            os.symlink(os.readlink(f"/old{path}"), f"/new{path}")
        else:
            bind(path)
    for path in DEVICES:
        bind(path)
    os.symlink("/proc/self/fd", "/new/dev/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"/new/dev/{name}")
    os.makedirs("/new/etc", exist_ok=True)
    write("/new/etc/passwd", f"nobody:x:{program_user()}:{program_user()}::{SCRATCH}:/bin/sh\n", new=True)
    os.mkdir("/new/proc")
    call("mount", b"proc", b"/new/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, b"subset=pid")
    os.mkdir(f"/new{SCRATCH}")
    if not os.path.isdir("/new/tmp"):  # else the Python installation lies in it; TMPDIR names the scratch folder
        os.symlink(SCRATCH, "/new/tmp")
    read_only = struct.pack("QQQQ", 0b11, 0, 0, 0)  # read-only, no set-user-id; whole tree
    call(442, AT_FDCWD, b"/new", AT_RECURSIVE, read_only, len(read_only))  # mount_setattr
    options = f"mode=0700,uid={program_user()},gid={program_user()},"
    options += f"size={spec['scratch_bytes']},nr_inodes={spec['scratch_files']}"
    call("mount", b"tmpfs", f"/new{SCRATCH}".encode(), b"tmpfs", MS_NOSUID | MS_NODEV, options.encode())
    call("umount2", b"/old", MNT_DETACH)
    os.chroot("/new")  # from inside a chroot no further user namespace can be made


def visible(readable):
    """The readable paths that exist, outermost first, without those that lie in another."""
    kept = []
    for path in sorted({os.path.normpath(p) for p in (*SYSTEM, *readable)}, key=len):
        if os.path.lexists(f"/old{path}") and not any(path.startswith(f"{k}/") for k in kept):
            kept.append(path)
    return kept


def bind(path):
    source, target = f"/old{path}", f"/new{path}"
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.isdir(source):
        os.mkdir(target)
    else:
        write(target, "", new=True)
    call("mount", source.encode(), target.encode(), None, MS_BIND | MS_REC, None)


def program_user():
    return os.getuid() or NOBODY


def drop_root():
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


# ── the program's own limits ─────────────────────────────────────────────────────────────────────────────────────────


def limit(spec, others=0):
    """Resource limits; `others`: threads of this user that the process limit counts but that are not the program's."""
    for name, value in (
        ("CPU", spec["cpu_seconds"]),
        ("AS", spec["memory_bytes"]),
        ("STACK", spec["stack_bytes"]),
        ("NPROC", spec["processes"] + others),
        ("FSIZE", spec["file_bytes"]),
        ("NOFILE", spec["open_files"]),
        ("CORE", 0),
        ("MEMLOCK", 0),
        ("MSGQUEUE", 0),
    ):
        kind = getattr(resource, f"RLIMIT_{name}")
        top = value + 1 if name == "CPU" else value  # SIGXCPU at the limit, SIGKILL a second later
        ceiling = resource.getrlimit(kind)[1]
        if ceiling != resource.RLIM_INFINITY:
            value, top = min(value, ceiling), min(top, ceiling)
        resource.setrlimit(kind, (value, top))


def forbid():
    """A seccomp filter: the calls of FORBIDDEN fail with EPERM; another architecture's calls kill."""
    machine = MACHINES.get(os.uname().machine)
    if machine is None:
        raise OSError(errno.ENOSYS, f"seccomp: no table of system calls for {os.uname().machine}")
    numbers = [pair[machine] for pair in FORBIDDEN.values()]
    load, equal, at_least, leave = 0x20, 0x15, 0x35, 0x06
    allow, deny, kill = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
    body = [(equal, len(numbers) - i, 0, number) for i, number in enumerate(numbers)]
    rules = [(load, 0, 0, 4), (equal, 1, 0, AUDIT_ARCH[machine]), (leave, 0, 0, kill), (load, 0, 0, 0)]
    rules += [(at_least, len(numbers) + 1, 0, 0x40000000), *body]  # x32's calls lie from there on
    rules += [(leave, 0, 0, allow), (leave, 0, 0, deny)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
    call("prctl", PR_SECCOMP, 2, struct.pack("HxxxxxxQ", len(rules), ctypes.addressof(code)), 0, 0)


def landlock(readable, scratch):
    """Files outside `readable` and the scratch folder out of reach; other processes too where the kernel can (6.12).

    Returns: whether signals are confined.
    """
    version = call(LANDLOCK_CREATE, None, 0, 1)
    files = (1 << (13 + (version >= 2) + (version >= 3) + (version >= 5))) - 1
    attributes = struct.pack("QQQ", files, 0b11 if version >= 4 else 0, 0b11 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = call(LANDLOCK_CREATE, attributes[:size], size, 0)
    for path in (*SYSTEM, *readable, *DEVICES, scratch):
        if not os.path.exists(path):
            continue
        access = READ_TREE if os.path.isdir(path) else READ_FILE | (WRITE_FILE if path in DEVICES else 0)
        folder = os.open(path, os.O_PATH)
        call(LANDLOCK_ADD, rules, 1, struct.pack("=Qi", files if path == scratch else access, folder), 0)
        os.close(folder)
    call(LANDLOCK_RESTRICT, rules, 0)
    return version >= 6


def start(spec, scratch, weak):
    """Fork, put up what concerns the program alone, and become it. Returns its process id."""
    others = threads_of(NOBODY if os.getuid() == 0 else os.getuid()) if weak else 0
    failed, tell = os.pipe()
    pid = os.fork()
    if pid:
        os.close(tell)
        with os.fdopen(failed, "rb") as pipe:
            message = pipe.read()  # ends with the program's start, which closes the other end
        if message:
            raise OSError(errno.EPERM, message.decode())
        return pid
    try:
        os.setsid()
        for number in (SIGPIPE, SIGXFSZ, SIGINT):
            libc.signal(number, SIG_DFL)  # the launcher and its interpreter ignore them
        os.umask(0o077)
        os.chdir(scratch)
        drop_root()
        call("prctl", PR_NO_NEW_PRIVS, 1, 0, 0, 0)
        if weak:
            try:
                landlock(spec["readable"], scratch)
            except OSError:
                pass  # the caller's check of the walls says what holds
        limit(spec, others)
        forbid()
        os.execve(spec["command"][0], spec["command"], {**spec["environment"], "HOME": scratch, "TMPDIR": scratch})
    except BaseException as error:
        os.write(tell, f"{spec['command'][0]}: {error}".encode())
    os._exit(127)


# ── watching ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def watch(pid, control, spec, members):
    """Wait for the program, its deadline, too much memory, or the other end's hanging up.

    Args:
        members: () → the ids of the program's processes.
    Returns:
        the report: reason ("exited", "timeout", "memory" or "stopped"), exit status or None, seconds, peak bytes.
    """
    begin = time.monotonic()
    ended = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(ended, select.POLLIN)
    poller.register(control, select.POLLIN)
    report = {"reason": "exited", "status": None, "peak_bytes": 0}
    while True:
        left = begin + spec["seconds"] - time.monotonic()
        ready = {number for number, _ in poller.poll(max(0, min(left, POLL_SECONDS)) * 1000)}
        if ended in ready:
            _, status, usage = os.wait4(pid, 0)
            report["status"] = os.waitstatus_to_exitcode(status)
            report["peak_bytes"] = usage.ru_maxrss * 1024
            break
        if control in ready:
            report["reason"] = "stopped"
            break
        if left <= 0:
            report["reason"] = "timeout"
            break
        processes = members()
        allowed = spec["memory_bytes"]
        if sum(map(resident, processes)) > allowed and sum(map(proportional, processes)) > allowed:
            report["reason"] = "memory"
            break
        reap(but=pid)
    report["seconds"] = time.monotonic() - begin
    return report


def resident(pid):
    """Bytes of memory a process holds, those shared with others included; 0 when it is gone. Quick."""
    try:
        with open(f"/proc/{pid}/statm") as line:
            return int(line.read().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def proportional(pid):
    """The same with only its part of what is shared, so that a sum counts a page once; `resident` where it hides it."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return resident(pid)


def reap(but):
    """Bury orphans, which would otherwise count as processes; leave the program for `watch`."""
    for child in children_of(os.getpid()):
        if child != but:
            try:
                os.waitpid(child, os.WNOHANG)
            except ChildProcessError:
                pass


def all_processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def parents():
    """{process id: its parent's}"""
    found = {}
    for pid in all_processes():
        try:
            with open(f"/proc/{pid}/stat") as line:
                found[pid] = int(line.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
    return found


def children_of(pid):
    return [child for child, parent in parents().items() if parent == pid]


def descendants_of(pid):
    family, tree = {pid}, parents()
    while grown := {child for child, parent in tree.items() if parent in family} - family:
        family |= grown
    return family - {pid}


def threads_of(uid):
    total = 0
    for pid in all_processes():
        try:
            if os.stat(f"/proc/{pid}").st_uid == uid:
                total += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            continue
    return total


def kill_descendants():
    """Kill and bury all descendants; a process born meanwhile falls in a later pass."""
    end = time.monotonic() + KILL_SECONDS
    while family := descendants_of(os.getpid()):
        if time.monotonic() > end:
            raise OSError(errno.EBUSY, f"processes {sorted(family)} cannot be killed")
        for pid in family:
            try:
                os.kill(pid, SIGKILL)
            except ProcessLookupError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return


# ── the two kinds of sandbox ─────────────────────────────────────────────────────────────────────────────────────────


def run(spec, control, scratch, weak, members):
    """Lay out the files and run the program. Returns the report, and the file that it was to leave."""
    for name, content in spec["files"].items():
        path = os.path.join(scratch, name)
        write(path, content, new=True)
        os.chmod(path, 0o755)
    pid = start(spec, scratch, weak)
    for number in (0, 1, 2):
        os.close(number)  # the program's alone from here on
    report = watch(pid, control, spec, members)
    export = b""
    if spec["export"] and report["status"] == 0:
        export = read_regular(os.path.join(scratch, spec["export"]))
    return report, export


def full(spec, control):
    enter_namespaces()
    inner = os.fork()
    if inner:
        os.close(control)
        os.waitpid(inner, 0)  # returns when the whole namespace is empty
        return
    call("prctl", PR_PDEATHSIG, SIGKILL, 0, 0, 0)
    build_root(spec)
    drop_root()
    os.umask(0o022)
    call("prctl", PR_DUMPABLE, 0, 0, 0, 0)  # the program may not look into its watcher
    send(control, *run(spec, control, SCRATCH, False, lambda: [pid for pid in all_processes() if pid != 1]))
    os._exit(0)


def weak(spec, control):
    call("prctl", PR_SUBREAPER, 1, 0, 0, 0)
    call("prctl", PR_DUMPABLE, 0, 0, 0, 0)
    if os.getuid() == 0:
        os.chown(spec["scratch"], NOBODY, NOBODY)
    try:
        outcome = run(spec, control, spec["scratch"], True, lambda: descendants_of(os.getpid()))
    finally:
        kill_descendants()
    send(control, *outcome)


def write(path, content, new=False):
    content = content.encode() if isinstance(content, str) else content
    with open(os.open(path, os.O_WRONLY | (os.O_CREAT | os.O_EXCL if new else 0), 0o644), "wb") as file:
        file.write(content)


def read_regular(path):
    """A file that the program made, empty when there is none; never what a link leads to."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return file.read()
    except OSError:
        return b""


def send(control, report, export=b""):
    rest = memoryview(repr(report).encode() + b"\n" + export)
    while rest:
        rest = rest[os.write(control, rest) :]


def receive(control):
    with open(control, "rb", closefd=False) as stream:
        return marshal.loads(stream.read(*struct.unpack("Q", stream.read(8))))


def main():
    control = int(sys.argv[1])
    os.set_inheritable(control, False)
    libc.signal(SIGINT, SIG_IGN)
    try:
        write("/proc/self/oom_score_adj", "1000")  # should memory run out, not the training process
        spec = receive(control)
        (weak if spec["weak"] else full)(spec, control)
    except BaseException as error:
        try:
            send(control, {"error": f"{type(error).__name__}: {error}"})
        except OSError:
            pass
    os._exit(0)


if __name__ == "__main__":
    main()

"""Builds the sandbox from the inside, starts the program, watches it and reports. See `agpo_core.sandbox`.

This file is not imported. It is run as `python -I -S launcher.py FD`, because namespaces need a process with a single
thread. It starts before every program, so it imports only a few modules that load fast (`signal`, `socket` or `json`
would double its start) and makes raw system calls. FD is a socket. The launcher receives the specification on it,
marshalled, with its length before it. It sends "started" once the program runs, then the report (a line with a Python
literal), and then the file that was asked for. When the other end closes, it kills whatever is left.

The processes, outermost first, are the launcher, the namespace's process 1, which watches, and the program. A weak
sandbox has no process 1; there the launcher watches, and it adopts the program's orphans. All that the program starts
there stays in one process group, because the calls that would leave the group do nothing. So one signal to the group
ends all at once, also those that are just being forked.

The program chooses the names of processes and files, so /proc is read as bytes and folders are opened by descriptor.
"""

import ctypes
import errno
import marshal
import os
import resource
import select
import stat
import struct
import sys
import time

SCRATCH = "/scratch"
NOBODY = 65534
POLL_SECONDS = 0.05
KILL_SECONDS = 5.0
MOST = (1 << 63) - 2  # the largest limit that the kernel can store
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

# Linux's constants, for which Python has no names
NEW_NS, NEW_UTS, NEW_IPC, NEW_USER, NEW_PID, NEW_NET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
NEW_ANY = NEW_NS | NEW_UTS | NEW_IPC | NEW_USER | NEW_PID | NEW_NET | 0x2000000  # the last one is a cgroup namespace
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
PR_PDEATHSIG, PR_DUMPABLE, PR_SECCOMP, PR_SUBREAPER, PR_NO_NEW_PRIVS = 1, 4, 22, 36, 38
SIGINT, SIGKILL, SIGPIPE, SIGXFSZ, SIG_DFL, SIG_IGN = 2, 9, 13, 25, 0, 1
AT_FDCWD, AT_RECURSIVE, MNT_DETACH = -100, 0x8000, 2

# The tables of the system call filter. A call is given by its numbers on (x86_64, aarch64); None: no such call there.
MACHINES = {"x86_64": 0, "aarch64": 1}
AUDIT_ARCH = (0xC000003E, 0xC00000B7)

# These are refused: calls that talk to the network or to another process, hold memory that no limit counts, use up what
# the whole machine or all processes of the user share, or reach parts of the kernel that no exercise needs.
FORBIDDEN = {
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    "io_uring_setup": (425, 425),
    "io_setup": (206, 0),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "ioprio_set": (251, 30),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    "syslog": (103, 116),
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

# These are refused unless every condition holds. (argument, mask, values) says that the masked argument is one of the
# values, (argument, mask, values, False) that it is none of them. An id of 0 means the caller itself.
WHOLE = 0xFFFFFFFF
ITSELF = ((0, WHOLE, (0,)),)
CONFINED = {
    "clone": ((56, 220), ((0, NEW_ANY, (0,)),)),
    "socketpair": ((53, 199), ((0, WHOLE, (1,)), (1, 0xF, (1,)))),  # Unix streams, which reach only each other
    "prlimit64": ((302, 261), ITSELF),
    "setpriority": ((141, 140), ((0, WHOLE, (0,)), (1, WHOLE, (0,)))),
    "sched_setparam": ((142, 118), ITSELF),
    "sched_setscheduler": ((144, 119), ITSELF),
    "sched_setaffinity": ((203, 122), ITSELF),
    "sched_setattr": ((314, 274), ITSELF),
    "fcntl": ((72, 25), ((1, WHOLE, (8, 10, 15, 1024, 1026), False),)),  # signals to the owner of a file; leases
    "ioctl": ((16, 29), ((1, WHOLE, (0x8901, 0x8902, 0x5412), False),)),  # the same; also input to a terminal
}

# The flags of this call are in memory, where a filter cannot look. So it is reported as not existing, and libc then
# makes the older call.
CLONE3 = (435, 435)

# In a weak sandbox these calls do nothing and report success. The first two would leave the process group (see above).
# The others change modes and times of files, which Landlock does not guard outside the scratch folder.
IDLE = {
    "setsid": (112, 157),
    "setpgid": (109, 154),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
}
# These calls are refused in a weak sandbox too, because Landlock does not guard against them either.
UNGUARDED = {
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
}
# Before its version 3 (Linux 6.2) Landlock does not guard against truncating. 0x200 is O_TRUNC with O_RDONLY.
OPENAT2 = (437, 437)
UNGUARDED_BEFORE_3 = {
    "truncate": ((76, 45), ((0, WHOLE, ()),)),
    "open": ((2, None), ((1, 0x203, (0x200,), False),)),
    "openat": ((257, 56), ((2, 0x203, (0x200,), False),)),
}
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
READ_FILE, WRITE_FILE, READ_TREE = 0b0101, 0b0010, 0b1101  # Landlock's execute, write, read file, read folder

libc = ctypes.CDLL(None, use_errno=True)


def call(name, *args):
    """Make a system call by its name in libc or by its number; a failure raises OSError."""
    args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    code = libc.syscall(ctypes.c_long(name), *args) if isinstance(name, int) else getattr(libc, name)(*args)
    if code < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return code


# ── the walls of a full sandbox: namespaces ──────────────────────────────────────────────────────────────────────────


def enter_namespaces():
    """Enter new user, process, mount, network, IPC and host name namespaces; this needs no privilege.

    Root also maps the user "nobody", as whom the program then runs, because process limits do not hold for user 0. Only
    a process that stayed outside may write such a map.
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
    """Build a new root folder: the readable paths (read-only), devices, /proc and an empty scratch folder.

    The scratch folder is a tmpfs with a limited size and number of files. It is gone with its last process.
    """
    call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
    call("mount", b"tmpfs", b"/tmp", b"tmpfs", MS_NOSUID | MS_NODEV, b"mode=0755,size=1m")
    os.mkdir("/tmp/old")
    call(FORBIDDEN["pivot_root"][MACHINES[os.uname().machine]], b"/tmp", b"/tmp/old")
    os.chdir("/")
    os.mkdir("/new")
    call("mount", b"tmpfs", b"/new", b"tmpfs", MS_NOSUID | MS_NODEV, b"mode=0755,size=1m")
    for path in (*visible(spec["readable"]), *DEVICES):
        bind(path)
    os.symlink("/proc/self/fd", "/new/dev/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"/new/dev/{name}")
    os.makedirs("/new/etc", exist_ok=True)
    write("/new/etc/passwd", f"nobody:x:{program_user()}:{program_user()}::{SCRATCH}:/bin/sh\n", new=True)
    os.mkdir("/new/proc")
    call("mount", b"proc", b"/new/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, b"subset=pid")
    os.mkdir(f"/new{SCRATCH}")
    if not os.path.isdir("/new/tmp"):  # if it exists, Python is installed in it; TMPDIR names the scratch folder
        os.symlink(SCRATCH, "/new/tmp")
    read_only = struct.pack("QQQQ", 0b11, 0, 0, 0)  # read-only, no set-user-id; whole tree
    call(442, AT_FDCWD, b"/new", AT_RECURSIVE, read_only, len(read_only))  # mount_setattr
    options = f"mode=0700,uid={program_user()},gid={program_user()},"
    options += f"size={spec['scratch_bytes']},nr_inodes={spec['scratch_files']}"
    call("mount", b"tmpfs", f"/new{SCRATCH}".encode(), b"tmpfs", MS_NOSUID | MS_NODEV, options.encode())
    call("umount2", b"/old", MNT_DETACH)
    os.chroot("/new")  # no further user namespace can be made inside a chroot


def visible(readable):
    """The readable paths that exist, outermost first, without those inside another."""
    kept = []
    for path in sorted({os.path.normpath(p) for p in readable}, key=len):
        if os.path.lexists(f"/old{path}") and not any(path.startswith(f"{k}/") for k in kept):
            kept.append(path)
    return kept


def bind(path):
    """Show a file or a folder under its own path. A link is copied as a link; its target is shown only if listed."""
    source, target = f"/old{path}", f"/new{path}"
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
        return
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
    """Set the resource limits. `others`: threads of the user that count for the process limit besides the program's."""
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
        ("SIGPENDING", 256),
        ("NICE", 0),
        ("RTPRIO", 0),
    ):
        kind = getattr(resource, f"RLIMIT_{name}")
        value = min(value, MOST)
        top = value + 1 if name == "CPU" else value  # SIGXCPU at the limit, SIGKILL a second later
        ceiling = resource.getrlimit(kind)[1]
        if ceiling != resource.RLIM_INFINITY:
            value, top = min(value, ceiling), min(top, ceiling)
        resource.setrlimit(kind, (value, top))


def forbid(weak=False, version=0):
    """Install the seccomp filter of the tables above; a call of another architecture kills the process.

    Args:
        weak: whether the sandbox is weak, so that files and processes outside can be reached.
        version: Landlock's version, 0 where there is none.
    """
    machine = MACHINES.get(os.uname().machine)
    if machine is None:
        raise OSError(errno.ENOSYS, f"seccomp: no table of system calls for {os.uname().machine}")
    refused, confined, answers = {**FORBIDDEN}, {**CONFINED}, {CLONE3: errno.ENOSYS}
    if weak:
        refused |= UNGUARDED
        answers |= dict.fromkeys(IDLE.values(), 0)
        if version < 3:
            confined |= UNGUARDED_BEFORE_3
            answers[OPENAT2] = errno.ENOSYS
        if version < 6:
            confined |= own_signals()
    answers |= dict.fromkeys(refused.values(), errno.EPERM)

    load, both, equal, at_least, leave = 0x20, 0x54, 0x15, 0x35, 0x06
    allow, kill = (leave, 0, 0, 0x7FFF0000), (leave, 0, 0, 0x80000000)
    rules = [(load, 0, 0, 4), (equal, 1, 0, AUDIT_ARCH[machine]), kill, (load, 0, 0, 0)]
    rules += [(at_least, 0, 1, 0x40000000), answer(errno.EPERM)]  # the numbers of x32's calls start here
    for numbers, error in answers.items():
        if numbers[machine] is not None:
            rules += [(equal, 0, 1, numbers[machine]), answer(error)]
    for numbers, conditions in confined.values():
        if numbers[machine] is None:
            continue
        tests = []
        for argument, mask, values, *wanted in conditions:
            tests += [(load, 0, 0, 16 + 8 * argument), (both, 0, 0, mask)]
            if wanted == [False]:
                tests += [rule for value in values for rule in ((equal, 0, 1, value), answer(errno.EPERM))]
            else:
                tests += [(equal, len(values) - i, 0, value) for i, value in enumerate(values)] + [answer(errno.EPERM)]
        rules += [(equal, 0, len(tests) + 1, numbers[machine]), *tests, allow]
    rules.append(allow)
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
    call("prctl", PR_SECCOMP, 2, struct.pack("HxxxxxxQ", len(rules), ctypes.addressof(code)), 0, 0)


def answer(error):
    """The filter rule that ends a call with an error; with error 0 the call does nothing and reports success."""
    return 0x06, 0, 0, 0x00050000 | error


def own_signals():
    """The conditions that let a process signal only itself and its group, for Landlock before version 6 (Linux 6.12).

    That Landlock does not confine signals: without these conditions a program could end its watcher and any process of
    the user. With them it cannot signal a child by its number.
    """
    own = os.getpid()
    to_itself, to_group = ((0, WHOLE, (own,)),), ((0, WHOLE, (0, own, WHOLE + 1 - own)),)
    return {
        "kill": ((62, 129), to_group),
        "tkill": ((200, 130), to_itself),
        "tgkill": ((234, 131), to_itself),
        "rt_sigqueueinfo": ((129, 138), to_itself),
        "rt_tgsigqueueinfo": ((297, 240), to_itself),
        "pidfd_send_signal": ((424, 424), ((0, WHOLE, ()),)),
    }


def landlock(readable, scratch):
    """Deny files outside `readable` and the scratch folder, and from Linux 6.12 on signals to processes outside.

    Returns: Landlock's version, 0 where the kernel has none.
    """
    try:
        version = call(LANDLOCK_CREATE, None, 0, 1)
    except OSError:
        return 0
    files = (1 << (13 + (version >= 2) + (version >= 3) + (version >= 5))) - 1
    attributes = struct.pack("QQQ", files, 0b11 if version >= 4 else 0, 0b11 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = call(LANDLOCK_CREATE, attributes[:size], size, 0)
    for path in (*readable, *DEVICES, scratch):
        if os.path.islink(path) or not os.path.exists(path):
            continue  # a link's target is readable only if it is listed too
        access = READ_TREE if os.path.isdir(path) else READ_FILE | (WRITE_FILE if path in DEVICES else 0)
        folder = os.open(path, os.O_PATH)
        call(LANDLOCK_ADD, rules, 1, struct.pack("=Qi", files if path == scratch else access, folder), 0)
        os.close(folder)
    call(LANDLOCK_RESTRICT, rules, 0)
    os.close(rules)
    return version


def start(spec, scratch, weak):
    """Fork; in the child, apply the program's own limits and execute it. Returns the child's process id."""
    others = threads_of(NOBODY if os.getuid() == 0 else os.getuid()) if weak else 0
    failed, tell = os.pipe()
    pid = os.fork()
    if pid:
        os.close(tell)
        with os.fdopen(failed, "rb") as pipe:
            message = pipe.read()  # ends when the program starts, which closes the other end
        if message:
            raise OSError(errno.EPERM, message.decode("utf-8", "replace"))
        return pid
    try:
        os.setpgid(0, 0)
        libc.sigprocmask(2, bytes(128), None)  # block no signal, whatever the calling process blocks
        for number in (SIGPIPE, SIGXFSZ, SIGINT):
            libc.signal(number, SIG_DFL)  # the launcher and its interpreter ignore them
        os.umask(0o077)
        os.chdir(scratch)
        drop_root()
        call("prctl", PR_PDEATHSIG, SIGKILL, 0, 0, 0)
        call("prctl", PR_NO_NEW_PRIVS, 1, 0, 0, 0)
        version = landlock(spec["readable"], scratch) if weak else 0
        limit(spec, others)
        forbid(weak, version)
    except BaseException as error:
        os.write(tell, f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
        os._exit(127)
    try:
        os.execve(spec["command"][0], spec["command"], {**spec["environment"], "HOME": scratch, "TMPDIR": scratch})
    except BaseException as error:  # the program's own failure: a compiler can write one that cannot start
        os.write(2, f"{spec['command'][0]}: {error}\n".encode("utf-8", "replace"))
    os._exit(127)


# ── watching ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def watch(pid, control, spec, members, crowded):
    """Wait until the program ends, its time is up, memory or scratch folder exceed a limit, or the other end hangs up.

    Args:
        members: a function from the program's id to the ids of all its processes.
        crowded: a function from these ids to whether the scratch folder holds more than it may.
    Returns:
        the report: reason ("exited", "timeout", "memory", "scratch" or "stopped"), exit status or None, seconds, and
        the CPU seconds and peak bytes of the program's first process.
    """
    begin = time.monotonic()
    ended = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(ended, select.POLLIN)
    poller.register(control, select.POLLIN)
    report = {"reason": "exited", "status": None, "cpu_seconds": 0.0, "peak_bytes": 0}
    while True:
        left = begin + spec["seconds"] - time.monotonic()
        ready = {number for number, _ in poller.poll(max(0, min(left, POLL_SECONDS)) * 1000)}
        if ended in ready:
            break
        if control in ready:
            report["reason"] = "stopped"
            break
        if left <= 0:
            report["reason"] = "timeout"
            break
        processes = members(pid)
        allowed = spec["memory_bytes"]
        if sum(map(resident, processes)) > allowed and sum(map(proportional, processes)) > allowed:
            report["reason"] = "memory"
            break
        if crowded(processes):
            report["reason"] = "scratch"
            break
        bury(but=pid)
    report["seconds"] = time.monotonic() - begin
    # The first process is reaped only after this, so that its number, which is the group's, is not given to another.
    os.killpg(pid, SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    if report["reason"] == "exited":
        report["status"] = os.waitstatus_to_exitcode(status)
        report["cpu_seconds"] = usage.ru_utime + usage.ru_stime
        report["peak_bytes"] = usage.ru_maxrss * 1024
    return report


def resident(pid):
    """Bytes of memory that a process holds, with those it shares; 0 when it is gone. Faster than `proportional`."""
    try:
        return int(read(f"/proc/{pid}/statm").split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def proportional(pid):
    """Bytes of memory of a process with only its part of shared pages, so that a sum counts each page once.

    Where the process may not be looked into, this is `resident`.
    """
    try:
        lines = read(f"/proc/{pid}/smaps_rollup").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:"))
    except (OSError, StopIteration, IndexError, ValueError):
        return resident(pid)


def bury(but):
    """Reap orphans that have ended, which would otherwise count as processes; leave the program for `watch`."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None or found.si_pid == but:
                return
            os.waitpid(found.si_pid, 0)
        except ChildProcessError:
            return


def all_processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def group_of(pid):
    """A process's group; 0 when it is gone. In /proc the name comes first, between the outermost parentheses."""
    try:
        return int(read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[2])
    except (OSError, IndexError, ValueError):
        return 0


def members_of(group):
    return [pid for pid in all_processes() if group_of(pid) == group]


def threads_of(uid):
    total = 0
    for pid in all_processes():
        try:
            if os.stat(f"/proc/{pid}").st_uid == uid:
                total += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            continue
    return total


def wait_for_all():
    """Reap all children, which were killed, and their orphans, which become ours; none is left when no child is."""
    end = time.monotonic() + KILL_SECONDS
    try:
        while time.monotonic() < end:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.001)
    except ChildProcessError:
        return
    raise OSError(errno.EBUSY, "processes that were killed do not end")


def overfull(scratch, spec, processes):
    """Whether the files in the scratch folder, with those deleted while open, exceed its size or number."""
    size, left = 0, spec["scratch_files"]
    waiting = enter(scratch)
    while waiting and left >= 0 and size <= spec["scratch_bytes"]:
        here = waiting.pop()
        for name in names(here):
            found = look(name, here)
            size += found.st_blocks * 512
            left -= 1
            if stat.S_ISDIR(found.st_mode) and left >= 0:
                waiting += enter(name, here)
        os.close(here)
    for folder in waiting:
        os.close(folder)
    deleted = {}
    for pid in processes:
        for number in names(f"/proc/{pid}/fd"):
            found = look(f"/proc/{pid}/fd/{number}", follow=True)
            if stat.S_ISREG(found.st_mode) and not found.st_nlink:
                deleted[found.st_dev, found.st_ino] = found.st_blocks * 512
    return left < len(deleted) or size + sum(deleted.values()) > spec["scratch_bytes"]


def enter(name, within=None):
    """A list with a descriptor of the folder, which is made readable first; [] for a link or on failure."""
    try:
        handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=within)
    except OSError:
        return []
    try:
        if not os.access(f"/proc/self/fd/{handle}", os.R_OK | os.X_OK):
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
        return [os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=handle)]
    except OSError:
        return []
    finally:
        os.close(handle)


def names(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []


def look(name, within=None, follow=False):
    """The status of a file; one of all zeros where the file is gone."""
    try:
        return os.stat(name, dir_fd=within, follow_symlinks=follow)
    except OSError:
        return os.stat_result([0] * 18)


# ── the two kinds of sandbox ─────────────────────────────────────────────────────────────────────────────────────────


def run(spec, control, scratch, weak, members, crowded):
    """Write the files, run the program, and send the report and the exported file."""
    for name, content in spec["files"].items():
        path = os.path.join(scratch, name)
        write(path, content, new=True)
        os.chmod(path, 0o755)
    pid = start(spec, scratch, weak)
    send(control, b"started\n")
    for number in (0, 1, 2):
        os.close(number)  # from here on only the program has these open
    report = watch(pid, control, spec, members, crowded)
    if weak:
        wait_for_all()
    export = b""
    if spec["export"] and report["status"] == 0:
        export = read_regular(os.path.join(scratch, spec["export"]))
    send(control, repr(report).encode() + b"\n" + export)


def full(spec, control):
    enter_namespaces()
    inner = os.fork()
    if inner:
        os.close(control)
        os.waitpid(inner, 0)  # returns when the whole namespace is empty
        return
    build_root(spec)
    drop_root()
    call("prctl", PR_PDEATHSIG, SIGKILL, 0, 0, 0)  # after drop_root, because a change of user clears it
    os.umask(0o022)
    call("prctl", PR_DUMPABLE, 0, 0, 0, 0)  # the program may not look into its watcher
    run(spec, control, SCRATCH, False, lambda _: [pid for pid in all_processes() if pid != 1], lambda _: False)
    os._exit(0)


def weak(spec, control):
    call("prctl", PR_SUBREAPER, 1, 0, 0, 0)
    call("prctl", PR_DUMPABLE, 0, 0, 0, 0)
    scratch = spec["scratch"]
    if os.getuid() == 0:
        os.chown(scratch, NOBODY, NOBODY)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # `overfull` opens a descriptor for each folder
    run(spec, control, scratch, True, members_of, lambda processes: overfull(scratch, spec, processes))


def write(path, content, new=False):
    content = content.encode() if isinstance(content, str) else content
    with open(os.open(path, os.O_WRONLY | (os.O_CREAT | os.O_EXCL if new else 0), 0o644), "wb") as file:
        file.write(content)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def read_regular(path):
    """The content of a file that the program made; empty when there is none or it is a link."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return file.read()
    except OSError:
        return b""


def send(control, message):
    rest = memoryview(message)
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
        write("/proc/self/oom_score_adj", "1000")  # if memory runs out, this is killed and not the training
        spec = receive(control)
        (weak if spec["weak"] else full)(spec, control)
    except BaseException as error:
        try:
            send(control, ascii({"error": f"{type(error).__name__}: {error}"}).encode() + b"\n")
        except OSError:
            pass
    os._exit(0)


if __name__ == "__main__":
    main()
